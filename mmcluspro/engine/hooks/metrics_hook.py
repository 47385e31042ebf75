"""Leaves the numbers of a test in the work folder."""
import json
from pathlib import Path

from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.registry import HOOKS
from mmcluspro.utils.atomic import write_text


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
