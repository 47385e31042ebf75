"""Testing a checkpoint: ``mmcluspro test`` and ``tools/test.py``."""
from __future__ import annotations

import argparse
from collections.abc import Sequence

from .flags import add_common_flags, make_parser

TEST_EXAMPLES = """examples:
  mmcluspro test cluspro_shapes.py work_dirs/cluspro_shapes/best_czsl_auc_epoch_16.pth
  mmcluspro test clip_zeroshot_shapes.py     # zero-shot CLIP needs no checkpoint"""


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro test``; without ``argv``, the command line of ``tools/test.py``."""
    parser = make_parser(None if argv is None else 'test', 'Test a checkpoint.', TEST_EXAMPLES)
    parser.add_argument('config', help='config file, or the name of a shipped one')
    parser.add_argument('checkpoint', nargs='?', help='checkpoint file (default: none; the model '
                        'is tested as the config builds it, for zero-shot CLIP)')
    parser.add_argument('--out', help='file for the results (.pkl, .json or .yaml)')
    parser.add_argument('--out-item', choices=['metrics', 'pred'],
                        help='what --out contains (default: pred)')
    parser.add_argument('--retrieval', action='store_true', help='also rank images by pairs and '
                        'pairs by images: recall@k and mean average precision')
    parser.add_argument('--show-dir', help='folder for pictures of the predictions')
    parser.add_argument('--show', action='store_true', help='show the pictures in a window')
    parser.add_argument('--interval', type=int, default=1, help='draw every n-th image only')
    parser.add_argument('--wait-time', type=float, default=2,
                        help='seconds to show each window (default: 2)')
    add_common_flags(parser)
    parser.set_defaults(log='full' if argv is None else 'short')
    args = parser.parse_args(argv)
    if args.out is None and args.out_item is not None:
        parser.error('--out-item needs --out FILE.')
    return args


def main(argv: Sequence[str] | None = None) -> None:
    """Tests, after choosing an open-world threshold where there is none."""
    import mmengine
    from mmengine.evaluator import DumpResults

    from mmcluspro.artefact.hub import model_file
    from mmcluspro.engine.hooks import needs_calibration
    from mmcluspro.engine.launch import build_runner, load_config
    args = parse_args(argv)
    cfg = load_config(args, ('val', 'test'), persistent_workers=False)
    cfg.load_from = args.checkpoint and model_file(args.checkpoint)
    cfg.default_hooks.checkpoint = None  # nothing is saved, also when validation runs first
    if args.retrieval:
        metrics = cfg.test_evaluator
        cfg.test_evaluator = [*(metrics if isinstance(metrics, list) else [metrics]),
                              dict(type='mmcluspro.RetrievalMetric')]
    if args.amp:
        cfg.test_cfg.fp16 = True
    if args.show or args.show_dir is not None:
        cfg.default_hooks.visualization = dict(
            type='VisualizationHook', enable=True, show=args.show, out_dir=args.show_dir,
            interval=args.interval, wait_time=args.wait_time)

    runner = build_runner(cfg)
    if args.out and args.out_item != 'metrics':
        runner.test_evaluator.metrics.append(DumpResults(out_file_path=args.out))
    runner.load_or_resume()
    if needs_calibration(runner):
        runner.logger.info('The checkpoint holds no open-world threshold: choosing it on '
                           'validation first.')
        runner.val()
    metrics = runner.test()
    if args.out and args.out_item == 'metrics':
        mmengine.dump(metrics, args.out)
