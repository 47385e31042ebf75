"""Hooks that leave pictures, tables and a report of a run in its work folder."""
from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.runner import Runner
from mmengine.visualization import LocalVisBackend
from PIL import Image

from mmcluspro.artefact import TrainedModel
from mmcluspro.cli.pictures import MAX_IMAGES
from mmcluspro.engine.hooks.parts import czsl_metrics, finished_iterations, unwrap
from mmcluspro.evaluation import PredictionMetric
from mmcluspro.evaluation.curve import Curve
from mmcluspro.registry import HOOKS

from .accuracy import write_tables
from .curve_plot import plot_curve, write_curves
from .make_report import make_report
from .phase import PhaseAnswers


def leave_curves(curves: Mapping[str, Curve], folder: str | Path, phase: str,
                 metrics: Mapping[str, Mapping[str, float]] | None = None) -> Path:
    """Writes ``<phase>_curve.png``, and its points to ``<phase>_curve.json``.

    Args:
        curves (Mapping[str, Curve]): By 'closed' and 'open'.
        folder (str | Path): Work folder of the run.
        phase (str): 'val' or 'test'.
        metrics (Mapping, optional): Reported numbers by world, see :func:`write_curves`.
            Defaults to None.

    Returns:
        Path: The picture.
    """
    picture = Path(folder) / f'{phase}_curve.png'
    plot_curve({f'{world} world': curve for world, curve in curves.items()}, picture)
    write_curves(curves, picture.with_suffix('.json'), metrics)
    return picture


def show_picture(visualizer: Any, name: str, path: str | Path, step: int) -> None:
    """Passes a picture to TensorBoard, Weights & Biases and other backends of the config.

    Args:
        visualizer (Visualizer): Of the runner.
        name (str): What they call it.
        path (str | Path): PNG file.
        step (int): Iteration.
    """
    backends = [backend for backend in getattr(visualizer, '_vis_backends', {}).values()
                # The local backend would only copy the file.
                if not isinstance(backend, LocalVisBackend)]
    if backends:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert('RGB'))
        for backend in backends:
            try:
                backend.add_image(name, pixels, step=step)
            except Exception as error:  # a picture must never cost a run
                # Weights & Biases: mmengine ends its run with the training, before the test.
                print_log(f'{type(backend).__name__} does not show {name} ({error}); the picture '
                          f'is in {path}.', 'current', logging.WARNING)


@HOOKS.register_module()
class CurveHook(Hook):
    """Writes the curve to the work folder, and shows it in the visualizer."""

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
        show_picture(runner.visualizer, path.stem, path, finished_iterations(runner))
        runner.logger.info(f'Seen-unseen curve: {path}')


@HOOKS.register_module()
class ClassTablesHook(Hook):
    """Leaves the tables of :class:`PredictionMetric` in the work folder after a test.

    ``test_pairs.csv``, ``test_attributes.csv``, ``test_objects.csv`` and ``test_classes.png``, the
    worst classes first.
    """

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Writes the tables and the picture."""
        for metric in runner.test_evaluator.metrics:
            if runner.rank == 0 and isinstance(metric, PredictionMetric) and metric.tables:
                path = write_tables(metric.tables, runner.work_dir)
                show_picture(runner.visualizer, path.stem, path, finished_iterations(runner))
                runner.logger.info(f'Accuracy by class, worst first: {path}, and test_pairs.csv, '
                                   'test_attributes.csv and test_objects.csv next to it')


@HOOKS.register_module()
class ReportHook(Hook):
    """Writes ``report.html`` after a test, and ``prototype_images.json`` for the demo.

    ``mmcluspro train`` adds this hook. The test is not repeated. For the pictures of the
    prototypes, the model processes training images once more.

    Args:
        cases (int): Mistakes to show. Defaults to 24.
        max_images (int): Number of evenly spaced training images to use. Defaults to 2000.
    """

    # After ClassTablesHook, before ConsoleHook, which names the file.
    priority = 80

    def __init__(self, cases: int = 24, max_images: int = MAX_IMAGES) -> None:
        self.cases, self.max_images = cases, max_images

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Writes the files; whatever goes wrong is a warning, the run is done."""
        if runner.rank:
            return
        try:
            path = self._report(runner)
        except Exception as error:  # a page must never cost a run
            runner.logger.log(logging.WARNING, f'No report was written ({error}). Try again with '
                              f'mmcluspro report {runner.work_dir} --config CONFIG')
            return
        runner.logger.info(f'Report: {path}')

    def _report(self, runner: Runner) -> Path:
        model = TrainedModel.of(unwrap(runner.model), runner.cfg)
        outcomes = next((metric.outcomes for metric in runner.test_evaluator.metrics
                         if isinstance(metric, PredictionMetric)), None)
        answers = None if outcomes is None else PhaseAnswers(
            model.space, getattr(runner.test_loop, 'images', np.arange(len(outcomes.target))),
            outcomes)
        folder = Path(runner.work_dir)
        checkpoint = runner.message_hub.runtime_info.get('best_ckpt') or runner._load_from or ''
        return make_report(
            folder.resolve().name, folder, str(checkpoint), model, runner.test_dataloader.dataset,
            answers, lambda: model.dataset('train'), self.cases, self.max_images,
            getattr(runner.cfg, 'filename', None))
