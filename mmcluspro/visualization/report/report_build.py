"""Gathers what a report shows from a model, its answers and its work folder."""
from __future__ import annotations

import time
from pathlib import Path

from PIL import Image

from mmcluspro.artefact import TrainedModel
from mmcluspro.artefact.prototype_images import (
    NAME,
    PrototypeImages,
    as_jpeg,
    write_prototype_images,
)
from mmcluspro.datasets import CZSLDataset, TableCZSL
from mmcluspro.engine.hooks.console_text import next_commands
from mmcluspro.evaluation import abstaining, accuracies, class_tables
from mmcluspro.visualization.confusion import confusions
from mmcluspro.visualization.phase_answers import PhaseAnswers
from mmcluspro.visualization.phase_run import picture

from .report_page import Report, ShownCase, write_report
from .run_history import RunFiles

CASES, CASE_SIDE = 24, 160


def build_report(title: str, checkpoint: str, run: RunFiles, model: TrainedModel,
                 answers: PhaseAnswers | None = None, dataset: CZSLDataset | None = None,
                 prototypes: PrototypeImages | None = None, cases: int = CASES,
                 config: str | None = None) -> Report:
    """Collects the content of a report.

    Args:
        title (str): Name of the run.
        checkpoint (str): File, for the commands to type next.
        run (RunFiles): Of the work folder.
        model (TrainedModel): The model.
        answers (PhaseAnswers, optional): Of the test images. Defaults to None: none.
        dataset (CZSLDataset, optional): The test images. Defaults to None.
        prototypes (PrototypeImages, optional): Their nearest images. Defaults to None.
        cases (int): Mistakes to show. Defaults to 24.
        config (str, optional): Config of the training, for the same commands. Defaults to None.
    """
    commands = next_commands(checkpoint, dataset, config) if checkpoint else ()
    report = Report(title, commands, _facts(model, dataset), run=run)
    report.space = model.space
    if prototypes is not None:
        report.prototypes = prototypes
        report.offsets = {branch: bank.offsets.tolist()
                          for branch, bank in model.network.head.prototypes.items()}
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
    numbers = accuracies(outcomes.right, outcomes.seen)
    numbers |= abstaining(outcomes.right, outcomes.probability)
    return {f'predict/{name}': value for name, value in numbers.items()}


def _facts(model: TrainedModel, dataset: CZSLDataset | None) -> list[tuple[str, str]]:
    space = model.space
    seen = int(space.seen.sum())
    trained = sum(part.numel() for part in model.network.parameters() if part.requires_grad)
    parts = (type(part).__name__ for part in (model.network.head, model.network.backbone))
    facts = [('Model', ' on '.join(parts))]
    if trained:
        facts.append(('Trained parameters', f'{trained / 1e6:.2f} million'))
    facts += [('Labels', f'{len(space.attributes)} attributes, {len(space.objects)} objects'),
              ('Pairs', f'{seen} seen, {len(space) - seen} unseen')]
    if dataset is not None:
        kind = 'Images, all of them trained on' if dataset.phase == 'train' else 'Test images'
        facts.append((kind, str(len(dataset)) if isinstance(dataset, TableCZSL)
                      else f'{len(dataset)} of {type(dataset).__name__}'))
    return [*facts, ('Made', time.strftime('%Y-%m-%d %H:%M'))]
