"""Draws the seen-unseen curve of every evaluation."""
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.engine.hooks.parts import czsl_metrics
from mmcluspro.registry import HOOKS

from .run_files import leave_curves, show_picture


@HOOKS.register_module()
class CurveHook(Hook):
    """Leaves the curve in the work folder, and shows it in the visualizer."""

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Draws the curve of a validation."""
        self._draw(runner, runner.val_evaluator, 'val', metrics or {})

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Draws the curve of a test."""
        self._draw(runner, runner.test_evaluator, 'test', metrics or {})

    def _draw(self, runner: Runner, evaluator: Evaluator, phase: str,
              metrics: dict[str, float]) -> None:
        curves = {metric.world: metric.curve for metric in czsl_metrics(evaluator)
                  if metric.curve is not None}
        if runner.rank != 0 or not curves:
            return
        numbers = {metric.world: {
            name: metrics[key] for name in ('auc', 'hm')
            if (key := f'{metric.prefix}/{name}') in metrics
        } for metric in czsl_metrics(evaluator) if metric.world in curves}
        path = leave_curves(curves, runner.work_dir, phase, numbers)
        show_picture(runner.visualizer, path.stem, path, runner.iter)
        runner.logger.info(f'Seen-unseen curve: {path}')
