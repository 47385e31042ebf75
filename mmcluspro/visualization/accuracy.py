"""Accuracy of each attribute and object, of several models: ``mmcluspro accuracy``."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from mmcluspro.cli.pictures import parse_accuracy as parse_args
from mmcluspro.utils.files import write_text
from mmcluspro.utils.plain_files import csv_text

from .options import names_of, open_checkpoints, run_names, save_and_say
from .phase import run_phase
from .style import BRIGHT, SMALL, WIDTH, new_figure, print_style


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


TITLES = {'attr': 'Attributes', 'obj': 'Objects'}


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
