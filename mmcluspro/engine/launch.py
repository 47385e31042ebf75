"""What ``tools/train.py`` and ``tools/test.py`` share: flags, set-up, messages."""
import argparse
import os
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import torch
from mmengine.config import Config, ConfigDict, DictAction
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from ..registry import explain

CARRIED = Path(__file__).resolve().parents[1] / '.mim' / 'configs'
LAUNCHERS = ('none', 'pytorch', 'slurm', 'mpi')


def add_common_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that training and testing have in common."""
    parser.add_argument('--work-dir', help='folder for logs, checkpoints and pictures '
                        '(default: work_dirs/<name of the config>)')
    parser.add_argument('--amp', action='store_true', help='mixed precision (GPU only)')
    parser.add_argument('--no-pin-memory', action='store_true',
                        help='do not pin host memory in the dataloaders')
    parser.add_argument(
        '--cfg-options', nargs='+', action=DictAction, metavar='KEY=VALUE',
        help='override config fields, for example train_cfg.max_epochs=3 '
        'model.head.fusion=logits; lists as key="[a,b]", without spaces')
    parser.add_argument('--launcher', choices=LAUNCHERS, default='none', help='job launcher')
    # torchrun sets LOCAL_RANK; older launchers pass it as a flag.
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0,
                        help=argparse.SUPPRESS)


def load_config(args: argparse.Namespace, phases: tuple[str, ...],
                persistent_workers: bool) -> Config:
    """Reads the config file and merges the flags of the command line.

    Args:
        args (argparse.Namespace): Parsed flags of :func:`add_common_flags`,
            and ``config``.
        phases (tuple[str]): Whose dataloaders get the default settings.
        persistent_workers (bool): Keep dataloader workers between epochs.

    Returns:
        Config: What the runner is built from.
    """
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    path = find_config(args.config)
    cfg = read_config(path)
    cfg.launcher = args.launcher
    cfg.work_dir = args.work_dir or cfg.get('work_dir') or f'./work_dirs/{path.stem}'
    for phase in phases:
        field = f'{phase}_dataloader'
        if cfg.get(field) is None:
            continue
        loader = ConfigDict(
            pin_memory=torch.cuda.is_available(), collate_fn=dict(type='default_collate'))
        if persistent_workers and cfg[field].get('num_workers', 0) > 0:
            loader.persistent_workers = True
        loader.update(cfg[field])
        if args.no_pin_memory:
            loader.pin_memory = False
        cfg[field] = loader
    if args.cfg_options is not None:
        cfg.merge_from_dict(args.cfg_options)
    return cfg


def find_config(name: str) -> Path:
    """Finds a config file by path, or by name among those of the package."""
    path = Path(name)
    if path.is_file():
        return path
    found = sorted(CARRIED.rglob(path.name)) if path.name == name else []
    if found:
        return found[0]
    raise FileNotFoundError(
        f'The config {name} does not exist. Configs of mmcluspro: '
        + (', '.join(sorted(item.name for item in CARRIED.glob('*.py'))) or 'none installed') + '.')


def read_config(name: str | Path) -> Config:
    """Reads a config by path or name.

    Configs elsewhere name ours as ``_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/cluspro_shapes.py'``.
    """
    os.environ.setdefault('MMCLUSPRO_CONFIGS', str(CARRIED))
    return Config.fromfile(find_config(str(name)))


def build_runner(cfg: Config) -> Runner:
    """Starts the process group if the launcher asks for one, then the runner."""
    start_cpu_process_group(cfg)
    runner = RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(deepcopy(cfg))
    runner.register_hook(dict(type='mmcluspro.ResumeHook'))
    return runner


def start_cpu_process_group(cfg: Config) -> None:
    """Joins a gloo group where there is no GPU.

    mmengine's own start calls ``torch.cuda.set_device`` whatever the backend
    is; it leaves a group alone that is there already.

    Args:
        cfg (Config): ``launcher`` says whether to join; ``model_wrapper_cfg``
            gets the defaults that DDP needs for modules on the CPU.
    """
    if cfg.launcher == 'none' or torch.cuda.is_available():
        return
    if cfg.launcher == 'slurm':
        os.environ.setdefault('RANK', os.environ['SLURM_PROCID'])
        os.environ.setdefault('WORLD_SIZE', os.environ['SLURM_NTASKS'])
        os.environ['LOCAL_RANK'] = os.environ.get('SLURM_LOCALID', '0')
        os.environ.setdefault('MASTER_PORT', str(cfg.get('env_cfg', {}).get(
            'dist_cfg', {}).get('port', 29500)))
        os.environ.setdefault('MASTER_ADDR', '127.0.0.1')
    elif cfg.launcher != 'pytorch':
        raise ValueError(
            f"launcher='{cfg.launcher}' needs GPUs. On CPUs use --launcher pytorch or slurm.")
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group('gloo')
    wrapper = dict(
        type='MMDistributedDataParallel', broadcast_buffers=False, device_ids=None)
    wrapper.update(cfg.get('model_wrapper_cfg') or {})
    cfg.model_wrapper_cfg = wrapper


def raised_here(error: BaseException) -> bool:
    """Whether an error was raised by this package itself."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get('__name__', '').startswith(
        'mmcluspro.')


def run_command(main: Callable[[], None]) -> None:
    """Runs a tool; what a user can mend is said in words, without a traceback.

    ``MMCLUSPRO_TRACEBACK=1`` shows the traceback all the same.

    Args:
        main (Callable): The tool.
    """
    try:
        main()
    except (KeyError, ValueError, FileNotFoundError, ImportError, TypeError,
            RuntimeError) as error:
        text = explain(error)
        # Of these two kinds only our own are written for users.
        unclear = isinstance(error, (TypeError, RuntimeError)) and not raised_here(error)
        if (unclear and text is None) or os.environ.get('MMCLUSPRO_TRACEBACK') == '1':
            raise
        text = text or (error.args[0] if error.args else repr(error))
        if isinstance(error, FileNotFoundError) and error.filename:
            text = f'{error.strerror}: {error.filename}'
        print(f'\nerror: {text}\n(MMCLUSPRO_TRACEBACK=1 shows where it was raised.)',
              file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print('\nInterrupted. The same command with --resume goes on from the last checkpoint.',
              file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
