"""Training by a config: ``mmcluspro train`` and ``tools/train.py``."""
import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from mmengine.config import Config
from mmengine.dist import barrier

from mmcluspro.engine.checkpoint import find_resumable
from mmcluspro.engine.config_check import check_fields, check_precision
from mmcluspro.engine.hooks.console_text import short_path
from mmcluspro.engine.launch import add_common_flags, build_runner, load_config
from mmcluspro.engine.precision import use_mixed_precision
from mmcluspro.engine.ranks import is_first_process, lost_rank
from mmcluspro.engine.signals import STOP, Stopped, leave_code
from mmcluspro.engine.work_lock import work_lock

from .own_photos import is_photos, own_config, store_features

EXAMPLES = """examples:
  mmcluspro train photos/                   # folders attribute_object/, or a CSV file
  mmcluspro train cluspro_shapes.py
  mmcluspro train my_config.py --cfg-options train_cfg.max_epochs=5
  mmcluspro train my_config.py --resume     # go on after an interruption
exit codes: 0 done, 2 an error that the message explains, 75 stopped by SIGTERM, SIGHUP or SIGUSR1
after saving (run again with --resume), 130 interrupted
several GPUs: tools/dist_train.sh CONFIG 4, or torchrun with tools/train.py --launcher pytorch"""


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog=None if argv is None else 'mmcluspro train', description='Train a model.',
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', help='config file, or the name of one that is shipped; or your '
                        'pictures: a folder of folders attribute_object/, or a CSV file '
                        'image,attribute,object')
    parser.add_argument('--weights', metavar='FILE', help='with pictures: CLIP weights for both '
                        'towers, a file or a tag of open_clip; or a file of DINOv2, for a CPU; '
                        'tiny_clip is for drawings (default: a known file in this folder, weights/ '
                        "or data/weights/, otherwise OpenAI's CLIP)")
    parser.add_argument('--words', metavar='FILE', help='with pictures and DINOv2: word vectors, '
                        'such as glove.6B.300d.txt (default: a known file at hand)')
    parser.add_argument('--arch', help='with pictures: architecture of CLIP (default: ViT-L-14 '
                        'on a large GPU, otherwise ViT-B-32)')
    parser.add_argument(
        '--resume', nargs='?', const='auto', metavar='CHECKPOINT',
        help='go on from this checkpoint of the same run; without a value, from the latest one '
        'in the work folder')
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
    args = parse_args(argv)
    # A full disk must not fill the screen with tracebacks of the log.
    logging.raiseExceptions = False
    if Path(args.config).suffix != '.py' and not Path(args.config).exists():
        raise FileNotFoundError(f'There is no {args.config}. Give a folder of images, a CSV file, '
                                'or a config (.py).')
    if is_photos(args.config):
        args.config, args.work_dir, stored = own_config(
            args.config, args.work_dir, args.weights, args.arch, args.words)
        if stored:
            try:
                store_features(args.config)
            except KeyboardInterrupt:
                raise KeyboardInterrupt('Run the same command again: the features that are stored '
                                        'are kept.') from None
    elif args.weights or args.arch or args.words:
        raise ValueError('--weights, --arch and --words are for pictures only; in a config, set '
                         'clip=dict(arch=…, pretrained=…).')
    cfg = load_config(args, ('train', 'val', 'test'), not args.no_persistent_workers)
    if args.no_validate:
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    if args.report:
        cfg.setdefault('default_hooks', {}).setdefault(
            'report', dict(type='mmcluspro.ReportHook'))
    if args.amp:
        use_mixed_precision(cfg.optim_wrapper)
    check_fields(cfg)
    check_precision(cfg)
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
    if cfg.get('test_dataloader') is None or args.no_test or not cfg.get('final_test', True):
        return
    barrier()  # the first process may still be writing the best checkpoint
    best = runner.message_hub.runtime_info.get('best_ckpt')
    if best:
        runner.load_checkpoint(best)
    runner.test()
