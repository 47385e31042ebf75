"""Config, runner and process group of ``tools/train.py`` and ``tools/test.py``."""
import argparse
import logging
import os
from copy import deepcopy
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path

import torch
from mmengine.config import Config, ConfigDict
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import nn

from mmcluspro.utils.files import configs_folder

from .configs import (
    complete,
    config_names,
    dataset_names,
    find_method,
    is_method,
    joined,
    merge_options,
    read_method,
    stands_on_method,
)
from .messages import ConfigError, raised_here, reason
from .ranks import is_first_process
from .runner import SafeRunner


def load_config(args: argparse.Namespace, phases: tuple[str, ...],
                persistent_workers: bool) -> Config:
    """Reads the config file and merges the flags of the command line.

    Args:
        args (argparse.Namespace): Flags of ``mmcluspro train`` or ``test``.
        phases (tuple[str]): Whose dataloaders get the default settings.
        persistent_workers (bool): Keep dataloader workers between epochs.

    Returns:
        Config: What the runner is built from.
    """
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    path = find_config(args.config, args.dataset)
    if is_first_process(args.launcher):
        _say_which(path)
    cfg = read_config(path)
    cfg.launcher = args.launcher
    cfg.work_dir = args.work_dir or cfg.get('work_dir') or f'./work_dirs/{path.stem}'
    fill_loaders(cfg, phases, persistent_workers)
    for phase in phases if args.no_pin_memory else ():
        if cfg.get(f'{phase}_dataloader') is not None:
            cfg[f'{phase}_dataloader'].pin_memory = False
    if args.log == 'short' and 'console' not in cfg.get('default_hooks', {}):
        cfg.setdefault('default_hooks', {})['console'] = dict(type='mmcluspro.ConsoleHook')
    apply_options(cfg, args.cfg_options)
    return cfg


def fill_loaders(cfg: Config, phases: tuple[str, ...], persistent_workers: bool = False) -> None:
    """Fills in what the dataloaders of a config do not say.

    Args:
        cfg (Config): Changed in place.
        phases (tuple[str]): Whose dataloaders.
        persistent_workers (bool): Keep workers between epochs. Defaults to False.
    """
    for field in (f'{phase}_dataloader' for phase in phases):
        if cfg.get(field) is None:
            continue
        loader = ConfigDict(
            pin_memory=torch.cuda.is_available(), collate_fn=dict(type='default_collate'))
        if persistent_workers and cfg[field].get('num_workers', 0) > 0:
            loader.persistent_workers = True
        loader.update(cfg[field])
        cfg[field] = loader


def apply_options(cfg: Config, options: dict | None) -> None:
    """Merges ``--cfg-options`` into a config.

    Raises:
        ConfigError: An option does not fit the config, such as an index beyond a list.
    """
    try:
        merge_options(cfg, options or {})
    except Exception as error:
        if raised_here(error):
            raise
        given = ' '.join(f'{key}={value}' for key, value in (options or {}).items())
        raise ConfigError(f'--cfg-options {given} does not fit the config: {reason(error)}'
                          ) from error


def find_config(name: str, dataset: str | None = None) -> Path:
    """Finds a config by path, or by name among those of the package.

    Args:
        name (str): Config, or a method if a dataset is given.
        dataset (str, optional): A name such as 'utzappos'. Defaults to None.

    Returns:
        Path: Its file. A method on a dataset has none: :func:`read_config` puts it together.
    """
    if dataset is not None:
        if dataset not in dataset_names():
            raise ValueError(f'There is no dataset {dataset}. Those of the configs: '
                             f'{", ".join(sorted(dataset_names()))}.')
        name = str(Path(name).with_name(f'{joined(Path(name).stem, dataset)}.py'))
    path, folder = Path(name), configs_folder()
    if path.is_file():
        return path
    found = [file for file in sorted(folder.rglob(path.name)) if '_base_' not in file.parts]
    if path.name == name and found:
        return found[0]
    if find_method(path):
        return path
    near = get_close_matches(path.name, config_names(), 3)
    top = sorted(item.name for item in folder.glob('*.py'))
    raise FileNotFoundError(
        f'The config {name} does not exist. Configs of mmcluspro: '
        + (', '.join(top) or 'none installed') + '.'
        + (f' Did you mean {" or ".join(near)}?' if near else ''))


def _say_which(path: Path) -> None:
    """Says that a file of the current folder is run in place of a shipped config."""
    shipped = sorted(configs_folder().rglob(path.name))
    if path.parent == Path() and shipped and not path.samefile(shipped[0]):
        print(f'{path.absolute()} is run, not the config of mmcluspro of the same name. To run '
              f'that one, give {shipped[0]}.')


def read_config(name: str | Path, dataset: str | None = None) -> Config:
    """Reads a config by path or name, and fills in what follows from its other fields.

    Configs elsewhere name ours as ``_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/cluspro_shapes.py'``.

    Args:
        name (str | Path): As for :func:`find_config`.
        dataset (str, optional): For a method. Defaults to None.

    Raises:
        ConfigError: The file is not a valid config.
    """
    os.environ.setdefault('MMCLUSPRO_CONFIGS', str(configs_folder()))
    path = find_config(str(name), dataset)
    if is_method(path) and path.is_file() and path.is_relative_to(configs_folder()):
        names = [config for config in config_names()
                 if (found := find_method(Path(config))) and found[0].name == path.name]
        raise ConfigError(f'{path.name} is a method. Give a dataset (--dataset), or one of the '
                          f'names {", ".join(names)}.')
    try:
        logging.disable(logging.INFO)  # mmengine tells which variable it replaced
        cfg = read_method(path) if stands_on_method(path) else Config.fromfile(path)
    except SyntaxError as error:
        # mmengine reads a copy; the name in the error is not that of the user's file.
        line = (error.text or '').strip()
        raise ConfigError(f'The config {path}, or one of its _base_ files, is not valid Python: '
                          f'{error.msg} in line {error.lineno}: {line}') from error
    except ConfigError:
        raise
    except Exception as error:  # the file is code of the user: anything may be raised
        raise ConfigError(f'The config {path} cannot be read: {reason(error)}') from error
    finally:
        logging.disable(logging.NOTSET)
    complete(cfg)
    return cfg


def build_runner(cfg: Config, network: nn.Module | None = None) -> Runner:
    """Starts the process group if the launcher asks for one, then the runner.

    Args:
        cfg (Config): Its ``runner_type`` names the runner. Defaults to a :class:`SafeRunner`.
        network (nn.Module, optional): What ``model`` of the config would build. Defaults to None:
            it is built.
    """
    start_cpu_process_group(cfg)
    if network is not None:
        kind = RUNNERS.get(cfg.get('runner_type', 'mmcluspro.SafeRunner'))
        return kind.from_cfg(cfg, network)
    return RUNNERS.build(cfg) if 'runner_type' in cfg else SafeRunner.from_cfg(deepcopy(cfg))


def start_cpu_process_group(cfg: Config) -> None:
    """Joins a gloo process group if there is no GPU.

    mmengine calls ``torch.cuda.set_device`` for every backend when it starts a group, but it uses a
    group that already exists.

    Args:
        cfg (Config): ``launcher`` says whether to join; ``model_wrapper_cfg``, or the
            ``strategy`` of mmengine's FlexibleRunner, gets what DDP needs for modules on the CPU.
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
        seconds = (cfg.get('env_cfg') or {}).get('dist_cfg', {}).get('timeout', 1800)
        torch.distributed.init_process_group('gloo', timeout=timedelta(seconds=seconds))
    wrapper = dict(
        type='MMDistributedDataParallel', broadcast_buffers=False, device_ids=None)
    strategy = cfg.get('strategy')
    if strategy is None:
        wrapper.update(cfg.get('model_wrapper_cfg') or {})
        cfg.model_wrapper_cfg = wrapper
    elif str(strategy['type']).endswith('DDPStrategy'):
        wrapper.update(strategy.get('model_wrapper') or {})
        strategy.model_wrapper = wrapper
