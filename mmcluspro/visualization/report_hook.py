"""Leaves a report of the run as one HTML file in the work folder."""
import logging
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.apis.prototype_images import PrototypeImages
from mmcluspro.engine.hooks.parts import unwrap
from mmcluspro.evaluation import PredictionMetric
from mmcluspro.flags.picture_flags import MAX_IMAGES
from mmcluspro.registry import HOOKS

from .phase_answers import PhaseAnswers, known_space
from .phase_run import phase_dataset
from .report import Report, build_report, leave_report, read_run
from .thumbnails import add_examples, prototype_images

NAME = 'report.html'


@HOOKS.register_module()
class ReportHook(Hook):
    """Writes ``report.html`` after a test, and ``prototype_images.json`` for the demo.

    ``mmcluspro train`` adds it. The test is not run again; for the pictures of the prototypes the
    model looks at training images once more.

    Args:
        cases (int): Mistakes to show. Defaults to 24.
        max_images (int): Training images to look at, evenly spread. Defaults to 2000.
    """

    # After PredictionHook, before ConsoleHook, which names the file.
    priority = 80

    def __init__(self, cases: int = 24, max_images: int = MAX_IMAGES) -> None:
        self.cases, self.max_images = cases, max_images

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Writes the files; whatever goes wrong is a warning, the run is done."""
        if runner.rank:
            return
        path = Path(runner.work_dir) / NAME
        try:
            leave_report(self._report(runner), path)
        except Exception as error:  # a page must never cost a run
            runner.logger.log(logging.WARNING, f'No report was written ({error}). Try again with '
                              f'mmcluspro report {runner.work_dir} --config CONFIG')
            return
        runner.logger.info(f'Report: {path}')

    def _report(self, runner: Runner) -> Report:
        model: Any = unwrap(runner.model)
        dataset = runner.test_dataloader.dataset
        outcomes = next((metric.outcomes for metric in runner.test_evaluator.metrics
                         if isinstance(metric, PredictionMetric)), None)
        found, notes = PrototypeImages(), []
        try:
            found = prototype_images(model, phase_dataset(model, 'train', runner.cfg),
                                     max_images=self.max_images)
        except (ValueError, OSError) as error:  # an image that training skips, for example
            notes = [f'Prototypes are not shown: {error}']
        answers = None
        if outcomes is not None:
            answers = PhaseAnswers(known_space(model), np.arange(len(outcomes.target)), outcomes)
            add_examples(found, dataset, answers)
        checkpoint = runner.message_hub.runtime_info.get('best_ckpt') or runner._load_from or ''
        report = build_report(
            Path(runner.work_dir).resolve().name, str(checkpoint), read_run(runner.work_dir), model,
            answers, dataset, found, self.cases)
        report.notes = notes
        return report
