"""Training by a config: ``mmcluspro train`` and ``tools/train.py``."""
from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from .flags import add_common_flags, add_photo_flags, make_parser

if TYPE_CHECKING:
    from mmengine.config import Config

TRAIN_EXAMPLES = """examples:
  mmcluspro train photos/                   # folders attribute_object/, or a CSV file
  mmcluspro train cluspro_shapes.py
  mmcluspro train my_config.py --cfg-options train_cfg.max_epochs=5
  mmcluspro train my_config.py --resume     # continue after an interruption
exit codes: 0 done, 2 an error that the message explains, 75 stopped by SIGTERM, SIGHUP or SIGUSR1
after saving (run again with --resume), 130 interrupted
several GPUs: tools/dist_train.sh CONFIG 4, or torchrun with tools/train.py --launcher pytorch"""


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro train``; without ``argv``, the command line of ``tools/train.py``."""
    parser = make_parser(None if argv is None else 'train', 'Train a model.', TRAIN_EXAMPLES)
    parser.add_argument('config', help='config file, or the name of a shipped one; or your '
                        'images: a folder of folders attribute_object/, or a table '
                        'image,attribute,object (.csv, .tsv)')
    parser.add_argument('--weights', metavar='FILE', help='for your images: CLIP weights for both '
                        'towers, as a file or a tag of open_clip; or dinov2-s (or -b, -l, -s-reg, '
                        '…) or a file of DINOv2 weights, for a CPU; or tiny_clip, for drawings '
                        'only (default: a known file in this folder, weights/ or data/weights/, '
                        "otherwise OpenAI's CLIP)")
    parser.add_argument('--words', metavar='FILE', help='for your images, with DINOv2: word '
                        'vectors: glove, or a file such as glove.6B.300d.txt (default: a known '
                        'file in the same folders)')
    parser.add_argument('--arch', help='for your images: architecture of CLIP (default: ViT-L-14 '
                        'on a large GPU, otherwise ViT-B-32)')
    add_photo_flags(parser, fix=True)
    parser.add_argument('--method', choices=('auto', 'regression', 'cluspro'), default='auto',
                        help='for your images, with DINOv2: softmax regressions, ClusPro trained '
                        'in epochs, or the better one in cross-validation (default: auto)')
    parser.add_argument('--no-refit', dest='refit', action='store_false', help='for your images, '
                        'with DINOv2: hold out validation and test images for good, instead of '
                        'measuring by cross-validation and training on all images')
    parser.add_argument('--standalone', action='store_true', help='put the frozen towers into the '
                        'best checkpoint, in half precision (45 MB for dinov2-s), so that other '
                        'machines need nothing else')
    parser.add_argument('--resume', nargs='?', const='auto', metavar='CHECKPOINT',
                        help='continue from this checkpoint of the same run; without a value, from '
                        'the latest one in the work folder')
    parser.add_argument('--patience', type=int, metavar='N', help='stop after N validations in a '
                        'row without a better one (default: train all epochs; rates that fall to '
                        'zero over all epochs, as in our configs, gain most at the end)')
    parser.add_argument('--no-validate', action='store_true',
                        help='do not evaluate during training')
    parser.add_argument('--no-test', action='store_true',
                        help='do not test the best checkpoint after training')
    parser.add_argument('--report', action=argparse.BooleanOptionalAction,
                        default=argv is not None, help='after the test, write report.html and the '
                        'pictures of prototypes for mmcluspro demo (default: yes for the command '
                        'mmcluspro, no for tools/train.py)')
    parser.add_argument('--auto-scale-lr', action='store_true',
                        help='scale the learning rate with the batch size')
    parser.add_argument('--no-persistent-workers', action='store_true',
                        help='restart the dataloader workers in each epoch')
    add_common_flags(parser)
    parser.set_defaults(log='full' if argv is None else 'short')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Trains, then tests the checkpoint that was best on validation."""
    from mmcluspro.datasets.table_file import Columns
    from mmcluspro.engine.configs import check_fields, check_precision, check_shared_memory
    from mmcluspro.engine.launch import load_config
    from mmcluspro.engine.optim import use_mixed_precision
    from mmcluspro.engine.ranks import is_first_process, lost_rank
    from mmcluspro.engine.signals import STOP, Stopped, leave_code
    from mmcluspro.utils.locks import work_lock

    from .own_photos import is_photos, own_config, store_features
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
    from mmcluspro.engine.hooks.console import short_path
    from mmcluspro.engine.resuming import find_resumable
    start = find_resumable(work_dir)
    if start is None:
        return f'There is no checkpoint in {work_dir} yet: run the same command again.'
    return f'Run the same command with --resume to continue from {short_path(start)}.'


def _train(cfg: Config, args: argparse.Namespace) -> None:
    from mmengine.dist import barrier

    from mmcluspro.artefact.save import make_standalone
    from mmcluspro.engine.launch import build_runner
    from mmcluspro.engine.ranks import is_first_process
    from mmcluspro.engine.resuming import find_resumable

    from .own_methods import deliver
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
