"""Confusion matrices of attributes, objects and pairs: ``mmcluspro confusion``."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from mmcluspro.cli.pictures import MOST
from mmcluspro.cli.pictures import parse_confusion as parse_args
from mmcluspro.utils.files import write_text
from mmcluspro.utils.plain_files import csv_text

from .options import open_checkpoints, save_and_say
from .phase import PhaseAnswers, answer_phase, evenly
from .style import (
    BRIGHT,
    SMALL,
    TEXT,
    WIDTH,
    fitting,
    new_figure,
    place,
    print_style,
    text_width,
    write,
)

LABEL, GAP, HEAD, ROW = 1.1, 0.06, 0.3, 0.2  # inches
OTHERS = 'others'


@dataclass
class Confusion:
    """Counts of true and answered classes, without combinations that do not occur.

    Args:
        names (Sequence[str]): C classes.
        truth (np.ndarray): True class, shape (M,).
        answer (np.ndarray): Answered class, shape (M,).
        count (np.ndarray): Images with this truth and this answer, shape (M,).
    """
    names: Sequence[str]
    truth: np.ndarray
    answer: np.ndarray
    count: np.ndarray

    @classmethod
    def of(cls, truth: np.ndarray, answer: np.ndarray, names: Sequence[str]) -> Confusion:
        """Counts the truths and answers of N images, shape (N,) each."""
        met, count = np.unique(np.stack([truth, answer]), axis=1, return_counts=True)
        return cls(names, met[0], met[1], count)

    def worst(self, most: int = MOST) -> np.ndarray:
        """The classes that are involved in the most wrong answers, sorted by name.

        A wrong answer involves two classes, the true one and the answered one.

        Args:
            most (int): How many at most. Defaults to 16.
        """
        if most < 1:
            raise ValueError(f'The number of classes must be at least 1, got {most}.')
        wrong = self.truth != self.answer
        about = np.zeros(len(self.names), int)
        for side in (self.truth, self.answer):
            np.add.at(about, side[wrong], self.count[wrong])
        classes = np.unique(self.truth)
        chosen = classes[np.argsort(-about[classes], kind='stable')][:most]
        return np.array(sorted(chosen, key=lambda row: self.names[row]), int)

    def matrix(self, classes: np.ndarray) -> np.ndarray:
        """Images by truth (rows) and answer (columns); the last column counts other answers.

        Args:
            classes (np.ndarray): Classes to show, shape (K,).

        Returns:
            np.ndarray: Shape (K, K + 1).
        """
        column = np.full(len(self.names), len(classes))
        column[classes] = np.arange(len(classes))
        table = np.zeros((len(classes) + 1, len(classes) + 1), int)
        np.add.at(table, (column[self.truth], column[self.answer]), self.count)
        return table[:-1]


def confusions(answers: PhaseAnswers) -> dict[str, Confusion]:
    """Confusions of 'attributes', 'objects' and 'pairs'."""
    space, outcomes = answers.space, answers.outcomes
    sides = space.pairs.numpy().T
    names = [f'{space.attributes[attr]} {space.objects[obj]}' for attr, obj in sides.T]
    found = {kind: Confusion.of(side[outcomes.target], side[outcomes.answer], words)
             for kind, side, words in zip(('attributes', 'objects'), sides,
                                          (space.attributes, space.objects))}
    return dict(found, pairs=Confusion.of(outcomes.target, outcomes.answer, names))


def draw_confusions(found: Mapping[str, Confusion], most: int = MOST) -> Figure:
    """A heat map each, one below the other: rows are truths, columns answers, percent of the row.

    Right answers are blue, wrong ones red; numbers below half a percent are not printed.

    Args:
        found (Mapping[str, Confusion]): By 'attributes' and so on.
        most (int): Maximum number of classes; those with the most wrong answers are kept. Defaults
            to 16.
    """
    panels = [_Panel(kind, confusion, most) for kind, confusion in found.items()]
    with print_style():
        figure = new_figure(WIDTH, sum(panel.height for panel in panels))
        top = 0.0
        for panel in panels:
            panel.draw(figure, top)
            top += panel.height
    return figure


class _Panel:
    """One heat map, with the room that its words need."""

    def __init__(self, kind: str, confusion: Confusion, most: int) -> None:
        classes = confusion.worst(most)
        counts = confusion.matrix(classes)
        names = [fitting(confusion.names[row], LABEL) for row in classes]
        if counts[:, -1].any():
            self.names = [*names, OTHERS]
        else:
            self.names, counts = names, counts[:, :-1]
        self.share = counts / counts.sum(axis=1, keepdims=True)
        self.labels = [f'{name} ({images})'
                       for name, images in zip(self.names, counts.sum(axis=1))]
        total = len(np.unique(confusion.truth))
        shown = f' ({len(classes)} of {total}, those with most mistakes)' if (
            len(classes) < total) else ''
        self.title = f'{kind.capitalize()}{shown}: truth (images) by answer, percent'
        self.height = HEAD + ROW * len(classes) + max(map(text_width, self.names)) + 0.2

    def draw(self, figure: Figure, top: float) -> None:
        """Draws at a distance from the upper edge, in inches."""
        left = max(map(text_width, self.labels)) + 0.15
        cell = min((WIDTH - left - GAP) / len(self.names), 0.36)
        title = fitting(self.title, WIDTH - 2 * GAP, TEXT, weight='bold')
        write(figure, GAP, top + HEAD / 2, title, va='center', weight='bold', fontsize=TEXT)
        axes = place(figure, left, top + HEAD, cell * len(self.names), ROW * len(self.labels))
        axes.imshow(_paint(self.share), aspect='auto', interpolation='nearest')
        for (row, column), part in np.ndenumerate(self.share):
            if part >= 0.005:
                axes.text(column, row, f'{100 * part:.0f}', ha='center', va='center',
                          fontsize=SMALL - 0.5, color='white' if part > 0.55 else 'black')
        axes.set_yticks(range(len(self.labels)), self.labels)
        axes.set_xticks(range(len(self.names)), self.names, rotation=90)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)


def _paint(share: np.ndarray) -> np.ndarray:
    """Colours of the cells, RGB in [0, 1]: from white to blue where right, to red where wrong."""
    right = (np.eye(*share.shape) > 0)[..., None]
    full = np.where(right, to_rgb(BRIGHT[0]), to_rgb(BRIGHT[1]))
    return 1 - np.sqrt(share)[..., None] * (1 - full)


def write_confusions(found: Mapping[str, Confusion], path: str | Path) -> Path:
    """Writes all mistakes as CSV, the most frequent first: kind, truth, answer, images, of."""
    rows: list[list[object]] = [['kind', 'truth', 'answer', 'images', 'of']]
    for kind, confusion in found.items():
        total = np.bincount(confusion.truth, confusion.count, len(confusion.names)).astype(int)
        wrong = np.flatnonzero(confusion.truth != confusion.answer)
        for row in wrong[np.argsort(-confusion.count[wrong], kind='stable')]:
            truth, answer = confusion.truth[row], confusion.answer[row]
            rows.append([kind, confusion.names[truth], confusion.names[answer],
                         confusion.count[row], total[truth]])
    write_text(path, csv_text(rows))
    return Path(path)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and draws."""
    args = parse_args(argv)
    (model, ), dataset = open_checkpoints([args.checkpoint], args)
    indices = evenly(len(dataset), args.max_images)
    answers = answer_phase(model, dataset, indices, args.bias, args.batch_size,
                           f'{len(indices)} {args.phase} images')
    found = confusions(answers)
    shown = {kind: found[kind] for kind in args.of}
    save_and_say(draw_confusions(shown, args.most), args.out)
    out = Path(args.out)
    print(write_confusions(found, out.with_suffix('.csv') if out.suffix else f'{out}.csv'))
