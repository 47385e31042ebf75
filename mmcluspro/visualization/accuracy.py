"""Accuracy of classes: of several models (``mmcluspro accuracy``), and of a test, worst first."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mmcluspro.cli.pictures import parse_accuracy as parse_args
from mmcluspro.evaluation import ClassRow
from mmcluspro.utils.files import write_text
from mmcluspro.utils.plain_files import csv_text

from .options import names_of, open_checkpoints, run_names, save_and_say
from .phase import run_phase
from .style import BRIGHT, SMALL, WIDTH, new_figure, print_style, write_figure

TITLES = {'attr': 'Attributes', 'obj': 'Objects'}
TABLE_COLUMNS = ('name', 'seen', 'images', 'accuracy', 'confidence', 'mistaken_for')
UNSEEN = BRIGHT[1]


@dataclass
class PrimitiveAccuracy:
    """Accuracy by primitive of M models.

    Args:
        names (Sequence[str]): Primitives, C of them.
        images (np.ndarray): Images of each, shape (C,).
        accuracy (Mapping[str, np.ndarray]): In percent by the name of the model, NaN where there
            are no images, shape (C,) each.
    """
    names: Sequence[str]
    images: np.ndarray
    accuracy: Mapping[str, np.ndarray]


def accuracy_by_class(labels: np.ndarray, answers: np.ndarray,
                      num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and accuracy of each class.

    Args:
        labels (np.ndarray): True class, shape (N,).
        answers (np.ndarray): Predicted class, shape (N,).
        num_classes (int): C.

    Returns:
        tuple[np.ndarray, np.ndarray]: Number of images, and accuracy in percent, NaN where
        there are none, shape (C,) each.
    """
    labels, answers = np.asarray(labels), np.asarray(answers)
    if labels.shape != answers.shape:
        raise ValueError(f'{len(answers)} answers for {len(labels)} labels.')
    images = np.bincount(labels, minlength=num_classes)
    right = np.bincount(labels[labels == answers], minlength=num_classes)
    return images, np.where(images > 0, 100 * right / np.maximum(images, 1), np.nan)


def ranked(table: PrimitiveAccuracy, most: int | None = None) -> np.ndarray:
    """Classes with images, the best of the first model first.

    Args:
        table (PrimitiveAccuracy): What to rank.
        most (int, optional): Keep only this many of the most frequent classes. Defaults to None:
            all.
    """
    classes = np.flatnonzero(table.images > 0)
    if most is not None:
        classes = classes[np.argsort(-table.images[classes], kind='stable')][:most]
    first = next(iter(table.accuracy.values()))
    return classes[np.lexsort([classes, -first[classes]])]


def draw_accuracy(tables: Mapping[str, PrimitiveAccuracy], most: int = 24) -> Figure:
    """Draws horizontal bars, one panel per table, sorted by the first model.

    Args:
        tables (Mapping[str, PrimitiveAccuracy]): By the title of their panel, for example
            'Attributes'.
        most (int): Maximum number of rows in a panel; the most frequent primitives are kept.
            Defaults to 24, which fills a page.
    """
    if most < 1:
        raise ValueError(f'draw_accuracy needs at least one row, got most={most}.')
    rows = {title: ranked(table, most) for title, table in tables.items()}
    if not any(map(len, rows.values())):
        raise ValueError('draw_accuracy needs at least one primitive with images.')
    models = list(next(iter(tables.values())).accuracy)
    bar = 0.8 / len(models)
    height = max(map(len, rows.values())) * max(0.17, 0.07 * len(models) + 0.04) + 0.75
    with print_style():
        figure = new_figure(WIDTH, height, constrained=True)
        parts = figure.subplots(1, len(tables), squeeze=False)[0]
        for axes, (title, table) in zip(parts, tables.items()):
            chosen, total = rows[title], int((table.images > 0).sum())
            for number, model in enumerate(models):
                axes.barh(np.arange(len(chosen)) + (number - (len(models) - 1) / 2) * bar,
                          table.accuracy[model][chosen], bar * 0.92,
                          color=BRIGHT[number % len(BRIGHT)], label=model)
            axes.set_yticks(np.arange(len(chosen)), [
                f'{table.names[row]} ({table.images[row]})' for row in chosen])
            axes.tick_params(axis='y', length=0)
            axes.set_ylim(len(chosen) - 0.4, -0.6)
            axes.set_xlim(0, 100)
            axes.set_xlabel('Accuracy (%)')
            axes.grid(axis='x', alpha=0.4)
            axes.set_axisbelow(True)
            axes.set_title(title if total == len(chosen) else
                           f'{title} ({len(chosen)} of {total})')
        figure.legend(*parts[0].get_legend_handles_labels(), loc='outside lower center',
                      ncols=min(4, len(models)), frameon=False, fontsize=SMALL)
    return figure


def write_accuracy(tables: Mapping[str, PrimitiveAccuracy], path: str | Path) -> Path:
    """Writes all primitives as CSV: kind, primitive, images, then one column per model."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    models = list(next(iter(tables.values())).accuracy)
    rows = [[kind, table.names[row], int(table.images[row]),
             *(round(float(table.accuracy[model][row]), 2) for model in models)]
            for kind, table in tables.items() for row in ranked(table)]
    write_text(path, csv_text([['kind', 'primitive', 'images', *models], *rows]))
    return path


def write_tables(tables: Mapping[str, Sequence[ClassRow]], folder: str | Path,
                 phase: str = 'test') -> Path:
    """Writes ``<phase>_pairs.csv`` and so on, and ``<phase>_classes.png``.

    Args:
        tables (Mapping[str, Sequence[ClassRow]]): By 'pairs', 'attributes' and 'objects'.
        folder (str | Path): Work folder of the run.
        phase (str): Prefix of the file names. Defaults to 'test'.

    Returns:
        Path: The picture.
    """
    for kind, rows in tables.items():
        write_text(Path(folder) / f'{phase}_{kind}.csv', _as_csv(rows))
    picture = Path(folder) / f'{phase}_classes.png'
    write_figure(draw_worst(tables), picture)
    return picture


def _as_csv(rows: Sequence[ClassRow]) -> str:
    """Only pairs have the column seen."""
    columns = [name for name in TABLE_COLUMNS if name != 'seen' or any(row.seen is not None
                                                                  for row in rows)]
    cells = [row._replace(seen=None if row.seen is None else int(row.seen),  # type: ignore
                          accuracy=round(row.accuracy, 2), confidence=round(row.confidence, 2))
             for row in rows]
    return csv_text([columns, *([getattr(row, name) for name in columns] for row in cells)])


def draw_worst(tables: Mapping[str, Sequence[ClassRow]], most: int = 24) -> Figure:
    """A panel of horizontal bars per table: accuracy, and the mean confidence as a mark.

    Args:
        tables (Mapping[str, Sequence[ClassRow]]): By the title of their panel, worst first.
        most (int): Maximum number of rows in a panel. Defaults to 24.
    """
    shown = {title: list(rows[:most]) for title, rows in tables.items()}
    longest = max(map(len, shown.values()))
    height = max(longest * 0.17, 0.5) + 0.85
    with print_style():
        figure = new_figure(WIDTH, height, constrained=True)
        for axes, (title, rows) in zip(figure.subplots(1, len(shown), squeeze=False)[0],
                                       shown.items()):
            place = np.arange(len(rows))
            axes.barh(place, [row.accuracy for row in rows], 0.75,
                      color=[UNSEEN if row.seen is False else BRIGHT[0] for row in rows])
            axes.plot([row.confidence for row in rows], place, 'k|', markersize=5)
            axes.set_yticks(place, [f'{row.name} ({row.images})' for row in rows])
            axes.tick_params(axis='y', length=0)
            axes.set_ylim(longest - 0.4, -0.6)
            axes.set_xlim(0, 100)
            axes.set_xlabel('Percent')
            axes.grid(axis='x', alpha=0.4)
            axes.set_axisbelow(True)
            total = len(tables[title])
            axes.set_title(title.capitalize() + (
                f' (worst {len(rows)} of {total})' if len(rows) < total else ''))
        figure.legend(handles=[
            Patch(color=BRIGHT[0], label='accuracy'),
            Patch(color=UNSEEN, label='accuracy of an unseen pair'),
            Line2D([], [], color='k', marker='|', linestyle='', label='mean probability')],
            loc='outside lower center', ncols=3, frameon=False, fontsize=SMALL)
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and draws."""
    args = parse_args(argv)
    names = run_names(args.checkpoints, args.names)
    models, dataset = open_checkpoints(args.checkpoints, args)
    pairs = dataset.space.pairs
    tables = {title: PrimitiveAccuracy(names_of(dataset.space, branch), np.empty(0), {})
              for branch, title in TITLES.items()}
    for name, model in zip(names, models):
        found = [(pairs[batch.answer], batch.labels['attr'], batch.labels['obj'])
                 for batch in run_phase(model, dataset, None, args.bias, args.batch_size,
                                        f'{name}: {len(dataset)} {args.phase} images')]
        answers, *labels = (torch.cat(part).numpy() for part in zip(*found))
        for column, table in enumerate(tables.values()):
            table.images, accuracy = accuracy_by_class(
                labels[column], answers[:, column], len(table.names))
            table.accuracy = {**table.accuracy, name: accuracy}
    for title, table in tables.items():
        means = {name: np.nansum(table.images * np.nan_to_num(accuracy)) / table.images.sum()
                 for name, accuracy in table.accuracy.items()}
        print(f'{title}: ' + ', '.join(f'{name} {mean:.1f} %' for name, mean in means.items()))
    save_and_say(draw_accuracy(tables, args.most), args.out)
    out = Path(args.out)
    print(write_accuracy(tables, out.with_suffix('.csv') if out.suffix else f'{out}.csv'))
