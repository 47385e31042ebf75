"""Gathers what a report shows from a model, its answers and its work folder."""
from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from PIL import Image

from mmcluspro.apis.prototype_images import (
    NAME,
    PrototypeImages,
    as_jpeg,
    write_prototype_images,
)
from mmcluspro.datasets import CZSLDataset, TableCZSL
from mmcluspro.evaluation import abstaining, accuracies, class_tables

from ..confusion import confusions
from ..phase_answers import PhaseAnswers, known_space
from ..phase_run import picture
from .report_page import Report, ShownCase, write_report
from .run_history import RunFiles

CASES, CASE_SIDE = 24, 160


def build_report(title: str, checkpoint: str, run: RunFiles, model: Any,
                 answers: PhaseAnswers | None = None, dataset: CZSLDataset | None = None,
                 prototypes: PrototypeImages | None = None, cases: int = CASES) -> Report:
    """Collects the content of a report.

    Args:
        title (str): Name of the run.
        checkpoint (str): File, for the commands to type next.
        run (RunFiles): Of the work folder.
        model (CompositionalClassifier): The model.
        answers (PhaseAnswers, optional): Of the test images. Defaults to None: none.
        dataset (CZSLDataset, optional): The test images. Defaults to None.
        prototypes (PrototypeImages, optional): Their nearest images. Defaults to None.
        cases (int): Mistakes to show. Defaults to 24.
    """
    report = Report(title, checkpoint, _facts(model, dataset), run=run)
    report.space = known_space(model)
    if prototypes is not None:
        report.prototypes = prototypes
        report.offsets = {branch: bank.offsets.tolist()
                          for branch, bank in model.head.prototypes.items()}
    if answers is None or dataset is None:
        return report
    report.tables = class_tables(answers.outcomes, answers.space)
    report.confusions = confusions(answers)
    report.images = len(answers.index)
    if 'predict/seen' not in run.metrics:
        run.metrics |= _metrics(answers)
    report.cases = [_case(answers, dataset, row) for row in answers.mistakes(cases)]
    return report


def leave_report(report: Report, path: str | Path, prototypes: str | Path | None = None) -> Path:
    """Writes the report, and the pictures of prototypes and examples for the demo.

    Args:
        report (Report): What to write.
        path (str | Path): HTML file.
        prototypes (str | Path, optional): Folder of the checkpoint, for ``prototype_images.json``.
            Defaults to None: that of ``path``.
    """
    if report.prototypes.pictures:
        write_prototype_images(report.prototypes, Path(prototypes or Path(path).parent) / NAME)
    return write_report(report, path)


def _case(answers: PhaseAnswers, dataset: CZSLDataset, row: int) -> ShownCase:
    outcomes = answers.outcomes
    image = Image.fromarray(picture(dataset, int(answers.index[row])))
    return ShownCase(as_jpeg(image, CASE_SIDE, quality=85),
                     answers.pair_names(outcomes.target[row]),
                     answers.pair_names(outcomes.answer[row]), float(outcomes.probability[row]),
                     bool(answers.seen[row]))


def _metrics(answers: PhaseAnswers) -> dict[str, float]:
    """The numbers of ``PredictionMetric``, for a checkpoint whose work folder has none."""
    outcomes = answers.outcomes
    numbers = accuracies(outcomes.target, outcomes.answer, answers.space.seen.numpy())
    numbers |= abstaining(outcomes.right, outcomes.probability)
    return {f'predict/{name}': value for name, value in numbers.items()}


def _facts(model: Any, dataset: CZSLDataset | None) -> list[tuple[str, str]]:
    space = known_space(model)
    seen = int(space.seen.sum())
    trained = sum(part.numel() for part in model.parameters() if part.requires_grad)
    facts = [('Model', f'{type(model.head).__name__} on {type(model.backbone).__name__}')]
    if trained:
        facts.append(('Trained parameters', f'{trained / 1e6:.2f} million'))
    facts += [('Labels', f'{len(space.attributes)} attributes, {len(space.objects)} objects'),
              ('Pairs', f'{seen} seen, {len(space) - seen} unseen')]
    if dataset is not None:
        facts.append(('Test images', str(len(dataset)) if isinstance(dataset, TableCZSL)
                      else f'{len(dataset)} of {type(dataset).__name__}'))
    return [*facts, ('Made', time.strftime('%Y-%m-%d %H:%M'))]
