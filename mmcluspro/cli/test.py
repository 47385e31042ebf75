"""Testing a checkpoint: ``mmcluspro test`` and ``tools/test.py``."""
from collections.abc import Sequence

import mmengine
from mmengine.evaluator import DumpResults

from mmcluspro.engine.hooks import needs_calibration
from mmcluspro.engine.launch import build_runner, load_config
from mmcluspro.flags.train_flags import parse_test as parse_args


def main(argv: Sequence[str] | None = None) -> None:
    """Tests, after choosing an open-world threshold where there is none."""
    args = parse_args(argv)
    cfg = load_config(args, ('val', 'test'), persistent_workers=False)
    cfg.load_from = args.checkpoint
    cfg.default_hooks.checkpoint = None  # nothing is saved, also when validation runs first
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
