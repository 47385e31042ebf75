"""Writes a report of a run as one HTML file: ``mmcluspro report``, and the end of a training."""
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image

from mmcluspro.artefact import TrainedModel
from mmcluspro.cli.pictures import MAX_IMAGES
from mmcluspro.cli.pictures import parse_report as parse_args
from mmcluspro.datasets import CZSLDataset, TableCZSL
from mmcluspro.engine.hooks.console import next_commands
from mmcluspro.evaluation import abstaining, accuracies, class_tables

from .confusion import confusions
from .options import open_checkpoints, open_phase
from .phase import PhaseAnswers, answer_phase, picture
from .prototypes import (
    NAME,
    PrototypeImages,
    add_examples,
    as_jpeg,
    prototype_images,
    write_prototype_images,
)
from .report_page import Report, ShownCase, read_run, write_report

REPORT, CASES, CASE_SIDE = 'report.html', 24, 160


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and writes."""
    args = parse_args(argv)
    checkpoint = find_checkpoint(args.run)
    folder = checkpoint.resolve().parent
    (model, ), dataset = open_checkpoints([str(checkpoint)], args)
    answers = answer_phase(model, dataset, batch_size=args.batch_size,
                           progress=f'Answers for {len(dataset)} {args.phase} images')
    path = make_report(
        args.title or folder.name, folder, str(checkpoint), model, dataset, answers,
        lambda: open_phase(model, 'train', args), args.cases, args.max_images, args.config,
        args.out, args.batch_size, progress='Training images near the prototypes')
    print(f'{path} ({path.stat().st_size / 1e6:.1f} MB)')


def find_checkpoint(run: str) -> Path:
    """The best checkpoint of a work folder, or the file that was given."""
    path = Path(run).expanduser()
    if not path.is_dir():
        return path  # that it does not exist is said when it is read
    for pattern in ('best_*.pth', 'epoch_*.pth', '*.pth'):
        files = sorted(path.glob(pattern), key=lambda file: file.stat().st_mtime)
        if files:
            return files[-1]
    raise FileNotFoundError(f'{run} has no checkpoint (*.pth). Give the work folder of a training, '
                            'or a checkpoint.')


def make_report(title: str, folder: Path, checkpoint: str, model: TrainedModel,
                dataset: CZSLDataset, answers: PhaseAnswers | None,
                training: Callable[[], CZSLDataset], cases: int = CASES,
                max_images: int | None = MAX_IMAGES, config: str | None = None,
                out: str | Path | None = None, batch_size: int = 64, progress: str = '') -> Path:
    """Collects the content of a report and writes it, and the pictures for the demo.

    Args:
        title (str): Name of the run.
        folder (Path): Work folder; ``prototype_images.json`` goes there.
        checkpoint (str): File, for the commands to type next; '' for none.
        model (TrainedModel): The model.
        dataset (CZSLDataset): The test images.
        answers (PhaseAnswers, optional): Of the test images. None leaves parts out.
        training (Callable): Opens the training images; whatever is wrong with them becomes a note.
        cases (int): Mistakes to show. Defaults to 24.
        max_images (int, optional): Training images to look at. Defaults to 2000.
        config (str, optional): Config of the training, for the same commands. Defaults to None.
        out (str | Path, optional): HTML file. Defaults to None: ``report.html`` in the folder.
        batch_size (int): Defaults to 64.
        progress (str): Says on stderr how far it is. Defaults to '': nothing.

    Returns:
        Path: The HTML file.
    """
    report = Report(title, next_commands(checkpoint, dataset, config) if checkpoint else (),
                    _facts(model, dataset), run=read_run(folder), space=model.space)
    found = PrototypeImages()
    if model.network.head.prototypes:
        try:
            found = prototype_images(model, training(), max_images=max_images,
                                     batch_size=batch_size, progress=progress)
        except (ValueError, OSError) as error:  # an image that training skips, for example
            report.notes = [f'Prototypes are not shown: {error}']
    if answers is not None:
        add_examples(found, dataset, answers)
        _add_answers(report, dataset, answers, cases)
    report.prototypes = found
    report.offsets = {branch: bank.offsets.tolist()
                      for branch, bank in model.network.head.prototypes.items()}
    if found.pictures:
        write_prototype_images(found, folder / NAME)
    return write_report(report, out or folder / REPORT)


def _add_answers(report: Report, dataset: CZSLDataset, answers: PhaseAnswers, cases: int) -> None:
    report.tables = class_tables(answers.outcomes, answers.space)
    report.confusions = confusions(answers)
    report.cases = [_case(answers, dataset, row) for row in answers.mistakes(cases)]
    if 'predict/seen' not in report.run.metrics:
        report.run.metrics |= _metrics(answers)


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


def _facts(model: TrainedModel, dataset: CZSLDataset) -> list[tuple[str, str]]:
    space = model.space
    seen = int(space.seen.sum())
    trained = sum(part.numel() for part in model.network.parameters() if part.requires_grad)
    parts = (type(part).__name__ for part in (model.network.head, model.network.backbone))
    facts = [('Model', ' on '.join(parts))]
    if trained:
        facts.append(('Trained parameters', f'{trained / 1e6:.2f} million'))
    facts += [('Labels', f'{len(space.attributes)} attributes, {len(space.objects)} objects'),
              ('Pairs', f'{seen} seen, {len(space) - seen} unseen')]
    kind = 'Images, all of them trained on' if dataset.phase == 'train' else 'Test images'
    facts.append((kind, str(len(dataset)) if isinstance(dataset, TableCZSL)
                  else f'{len(dataset)} of {type(dataset).__name__}'))
    return [*facts, ('Made', time.strftime('%Y-%m-%d %H:%M'))]
