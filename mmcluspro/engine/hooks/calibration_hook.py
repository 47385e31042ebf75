"""Keeps what validation chose, saves it with the weights, and passes it to the test."""
from collections.abc import Mapping
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.evaluation import Chosen, chosen_meta, read_chosen
from mmcluspro.registry import HOOKS

from .parts import czsl_metrics, find_hook


@HOOKS.register_module()
class CalibrationHook(Hook):
    """Keeps bias, threshold, temperature and seen bias of each world.

    Every validation chooses them. They are saved in ``meta.calibration`` of the checkpoint together
    with the weights they were chosen for, read when a checkpoint is loaded, and passed to the
    metrics of a test.

    Attributes:
        chosen (Mapping[str, Chosen]): Values by world for the weights in the model; empty if they
            were not validated.
    """

    priority = 'ABOVE_NORMAL'

    def __init__(self) -> None:
        self.chosen: Mapping[str, Chosen] = read_chosen({})
        self._iteration: int | None = None  # of the weights that it was chosen for

    def before_val_epoch(self, runner: Runner) -> None:
        """Tells the metrics to choose the values."""
        for metric in czsl_metrics(runner.val_evaluator):
            metric.set_calibration()

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Keeps what they chose."""
        self.chosen = {metric.world: metric.chosen
                       for metric in czsl_metrics(runner.val_evaluator)}
        self._iteration = runner.iter

    def before_test_epoch(self, runner: Runner) -> None:
        """Passes the values to the metrics of the test."""
        for metric in czsl_metrics(runner.test_evaluator):
            chosen = self.chosen.get(metric.world, Chosen())
            metric.set_threshold(chosen.threshold)
            if chosen.calibration is not None:
                metric.set_calibration(chosen.calibration)
            else:
                metric.forget_calibration()

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Saves it with the weights that it was chosen for, and no others."""
        # Not runner.iter: inside an iteration it still counts those before.
        if self.chosen and self._iteration == checkpoint['meta'].get('iter'):
            checkpoint['meta']['calibration'] = chosen_meta(self.chosen)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Reads the values of the loaded weights, or clears them if the file has none."""
        self.chosen = read_chosen(checkpoint.get('meta', {}))
        self._iteration = runner.iter if self.chosen else None


def needs_calibration(runner: Runner) -> bool:
    """Whether a test needs a threshold that validation has to choose first."""
    waiting = [metric for metric in czsl_metrics(runner.test_evaluator)
               if metric.threshold == 'stored']
    if not waiting or runner.val_evaluator is None:
        return False
    chosen = find_hook(runner, CalibrationHook).chosen
    return any(chosen.get(metric.world, Chosen()).threshold is None for metric in waiting)
