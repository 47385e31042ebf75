"""Training by a config: ``mmcluspro train`` and ``tools/train.py``."""
import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from mmengine.config import Config
from mmengine.dist import barrier

from mmcluspro.artefact.standalone import make_standalone
from mmcluspro.datasets.table_file import Columns
from mmcluspro.engine.checkpoint import find_resumable
from mmcluspro.engine.config_fields import check_fields, check_precision, check_shared_memory
from mmcluspro.engine.hooks.console_text import short_path
from mmcluspro.engine.launch import build_runner, load_config
from mmcluspro.engine.precision import use_mixed_precision
from mmcluspro.engine.ranks import is_first_process, lost_rank
from mmcluspro.engine.signals import STOP, Stopped, leave_code
from mmcluspro.flags.train_flags import parse_train as parse_args
from mmcluspro.utils.locks import work_lock

from .own_methods import deliver
from .own_photos import is_photos, own_config, store_features


def main(argv: Sequence[str] | None = None) -> None:
    """Trains, then tests the checkpoint that was best on validation."""
    args = parse_args(argv)
    # A full disk must not fill the screen with tracebacks of the log.
    logging.raiseExceptions = False
    if args.dataset is None and Path(args.config).suffix != '.py' and not Path(
            args.config).exists():
        raise FileNotFoundError(f'{args.config} does not exist. Give a folder of images, a '
                                'table (.csv, .tsv), or a config (.py).')
    is_own, args.epochs = is_photos(args.config), None
    if is_own:
        args.config, args.work_dir, stored, args.epochs = own_config(
            args.config, args.work_dir, args.weights, args.arch, args.words, args.separator,
            Columns(**args.columns), args.fix_names, args.refit)
        if stored:
            try:
                store_features(args.config)
            except KeyboardInterrupt:
                raise KeyboardInterrupt('Run the same command again: the features that are stored '
                                        'are kept.') from None
    elif args.weights or args.arch or args.words:
        raise ValueError('--weights, --arch and --words are for pictures only; in a config, set '
                         'clip=dict(arch=…, pretrained=…).')
    elif args.separator or args.columns or args.fix_names:
        raise ValueError('--separator, --columns and --fix-names are for pictures only; with a '
                         'config, write a table with mmcluspro make-split.')
    elif args.method != 'auto' or not args.refit:
        raise ValueError('--method and --no-refit are for pictures only; a config names its head '
                         'and its data.')
    cfg = load_config(args, ('train', 'val', 'test'), not args.no_persistent_workers)
    if args.no_validate:
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    if args.report:
        cfg.setdefault('default_hooks', {}).setdefault(
            'report', dict(type='mmcluspro.ReportHook'))
    if args.patience is not None:
        stop_early(cfg, args.patience)
    if args.amp:
        use_mixed_precision(cfg.optim_wrapper)
    check_fields(cfg)
    check_precision(cfg)
    check_shared_memory(cfg)
    if args.auto_scale_lr:
        if cfg.get('auto_scale_lr') is None:
            raise ValueError('--auto-scale-lr needs auto_scale_lr=dict(base_batch_size=…) in the '
                             'config, which says the batch size that optim_wrapper.lr is for.')
        cfg.auto_scale_lr.enable = True
    lock = work_lock(cfg.work_dir) if is_first_process(cfg.launcher) else nullcontext()
    try:
        with STOP.handled(), lock:
            _train(cfg, args)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_how_to_go_on(cfg.work_dir)) from None
    except Stopped as stopped:
        print(f'\n{stopped.reason}', file=sys.stderr)
        leave_code(stopped.code)
        raise
    except RuntimeError as error:
        lost = lost_rank(error)
        if lost is None:
            raise
        raise ConnectionError(lost) from error
    if is_first_process(cfg.launcher):
        leave_code(0)  # a signal that reaches torchrun now comes too late to matter


def stop_early(cfg: Config, patience: int) -> None:
    """Ends the training where validation has stopped to get better.

    Args:
        cfg (Config): Gets a hook that watches what the best checkpoint is chosen by.
        patience (int): Validations in a row without a better one.
    """
    best = ((cfg.get('default_hooks') or {}).get('checkpoint') or {}).get('save_best')
    if patience < 1 or best is None or cfg.get('val_cfg') is None:
        raise ValueError(f'--patience {patience} needs a positive number, validation, and '
                         'default_hooks.checkpoint.save_best in the config.')
    cfg.custom_hooks = [*(cfg.get('custom_hooks') or ()), dict(
        type='EarlyStoppingHook', monitor=best, rule='greater', min_delta=1e-6, patience=patience)]


def _how_to_go_on(work_dir: str) -> str:
    start = find_resumable(work_dir)
    if start is None:
        return f'There is no checkpoint in {work_dir} yet: run the same command again.'
    return f'Run the same command with --resume to continue from {short_path(start)}.'


def _train(cfg: Config, args: argparse.Namespace) -> None:
    if args.resume is not None:
        start = find_resumable(cfg.work_dir) if args.resume == 'auto' else args.resume
        cfg.resume, cfg.load_from = start is not None, str(start) if start else cfg.load_from
        if start is None:
            print(f'There is no checkpoint in {cfg.work_dir} to resume: training starts over.')
    runner = build_runner(cfg)
    runner.train()
    if args.epochs and args.method != 'regression':
        runner = deliver(runner, args.epochs, args)
    best = runner.message_hub.runtime_info.get('best_ckpt')
    final = best or find_resumable(cfg.work_dir)
    if args.standalone and final and is_first_process(cfg.launcher):
        make_standalone(final)
    if cfg.get('test_dataloader') is None or args.no_test or not cfg.get('final_test', True):
        return
    barrier()  # the first process may still be writing the best checkpoint
    if best:
        runner.load_checkpoint(best)
    runner.test()
