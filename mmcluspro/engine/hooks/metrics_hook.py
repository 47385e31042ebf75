"""Writes the results of a test to the work folder, TensorBoard and similar backends."""
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.runner import Runner
from mmengine.visualization import LocalVisBackend

from mmcluspro.registry import HOOKS
from mmcluspro.utils.files import write_text


@HOOKS.register_module()
class TestMetricsHook(Hook):
    """Writes ``test_metrics.json``."""

    __test__ = False  # no test case of pytest

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Writes the file."""
        if runner.rank == 0:
            path = Path(runner.work_dir) / 'test_metrics.json'
            write_text(path, json.dumps(metrics, indent=2) + '\n')
            runner.logger.info(f'Test metrics: {path}')
            show_scalars(runner.visualizer, {f'test/{name}': value
                                             for name, value in (metrics or {}).items()},
                         runner.iter)


def show_scalars(visualizer: Any, numbers: Mapping[str, float], step: int) -> None:
    """Passes numbers to TensorBoard, Weights & Biases and other backends of the config.

    Args:
        visualizer (Visualizer): Of the runner.
        numbers (Mapping[str, float]): By name.
        step (int): Iteration.
    """
    for backend in getattr(visualizer, '_vis_backends', {}).values():
        # The local backend has the validations; a test among them would be taken for one.
        if not isinstance(backend, LocalVisBackend):
            try:
                backend.add_scalars(dict(numbers), step=step)
            except Exception as error:  # numbers in a browser must never cost a run
                print_log(f'{type(backend).__name__} does not show the numbers of the test '
                          f'({error}); they are in test_metrics.json.', 'current',
                          logging.WARNING)
