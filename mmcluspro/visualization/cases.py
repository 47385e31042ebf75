"""Case studies (Fig. 3), right in green, wrong in red: ``mmcluspro cases``."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from mmcluspro.cli.pictures import parse_cases as parse_args
from mmcluspro.datasets import CZSLDataset

from .options import open_checkpoints, run_names, save_and_say
from .phase import PhaseAnswers, answer_phase, evenly, picture
from .style import (
    RIGHT,
    SMALL,
    TEXT,
    WIDTH,
    WRONG,
    fitting,
    new_figure,
    place,
    print_style,
    text_width,
    write,
)

LINE, HEAD, GAP, MARGIN, SPACE = 0.15, 0.24, 0.08, 0.06, 0.04  # inches

Names = tuple[str, str]


@dataclass
class Case:
    """An image with its true pair and the answers of the models.

    Args:
        image (np.ndarray): RGB, shape (H, W, 3).
        truth (tuple[str, str]): Attribute and object.
        answers (Sequence[tuple[str, str]]): Of each model.
        unseen (bool): Whether the true pair is an unseen one.
        probability (float, optional): Of the only answer, to print in the picture. Defaults to
            None.
    """
    image: np.ndarray
    truth: Names
    answers: Sequence[Names]
    unseen: bool = False
    probability: float | None = None


def outcome_groups(first_right: np.ndarray, second_right: np.ndarray) -> dict[str, np.ndarray]:
    """Groups the images by which model is right.

    Args:
        first_right (np.ndarray): Whether the first model (baseline) is right, shape (N,).
        second_right (np.ndarray): Whether the second one (ClusPro) is, shape (N,).

    Returns:
        dict[str, np.ndarray]: 'success' (only the second is right), 'failure' (only the first),
        'both_wrong' and 'both_right'; together every image once.
    """
    first, second = np.asarray(first_right, bool), np.asarray(second_right, bool)
    return {
        'success': np.flatnonzero(~first & second),
        'failure': np.flatnonzero(first & ~second),
        'both_wrong': np.flatnonzero(~first & ~second),
        'both_right': np.flatnonzero(first & second),
    }


def choose_cases(candidates: np.ndarray, pairs: np.ndarray, seen: np.ndarray, count: int,
                 seed: int = 0) -> list[int]:
    """Picks images at random: seen and unseen ones in turn, different pairs first.

    Args:
        candidates (np.ndarray): Indices to choose from, shape (M,).
        pairs (np.ndarray): True pair of every image, shape (N,).
        seen (np.ndarray): Whether the pair is seen, shape (N,).
        count (int): How many at most.
        seed (int): Defaults to 0.
    """
    mixed = np.random.default_rng(seed).permutation(candidates)
    _, first = np.unique(pairs[mixed], return_index=True)
    fresh = np.isin(np.arange(len(mixed)), first)
    mixed = np.concatenate([mixed[fresh], mixed[~fresh]])
    # The n-th seen and the n-th unseen image have the same rank.
    is_seen = seen[mixed].astype(bool)
    rank = np.where(is_seen, np.cumsum(is_seen), np.cumsum(~is_seen))
    return mixed[np.lexsort([~is_seen, rank])][:count].tolist()


def draw_cases(groups: Sequence[tuple[str, Sequence[Case]]], models: Sequence[str],
               columns: int = 6, width: float = WIDTH) -> Figure:
    """Draws a titled row of images per group, with the true pair and the answers below each image.

    Every word has its own colour, so half-right answers are visible, and every answer has a sign
    for readers who cannot see the colours.

    Args:
        groups (Sequence): Title and cases of each; a group may be empty.
        models (Sequence[str]): Names of the models, in the order of ``Case.answers``.
        columns (int): Images per row. Defaults to 6.
        width (float): Inches. Defaults to the text width of a paper.
    """
    if columns < 1:
        raise ValueError(f'draw_cases needs at least one column, got {columns}.')
    names = ['truth', *models]
    label = min(1.0, max(text_width(name) for name in names) + 2 * GAP)
    cell = (width - label - MARGIN) / columns
    side = min(cell - GAP, 1.1)
    words = [f'{" ".join(pair)} ✓' for _, cases in groups for case in cases
             for pair in (case.truth, *case.answers)]
    lines = 1 if all(text_width(word) <= cell - GAP for word in words) else 2
    answer = lines * LINE + 0.03
    heights = [HEAD + max(1, -(-len(cases) // columns)) * (
        side + answer * len(names) + GAP) for _, cases in groups]
    with print_style():
        figure = new_figure(width, sum(heights) + MARGIN)
        top = MARGIN
        for (title, cases), height in zip(groups, heights):
            write(figure, MARGIN, top + HEAD / 2, title, va='center', weight='bold', fontsize=TEXT)
            if not cases:
                write(figure, label + MARGIN, top + HEAD + LINE, 'no such image', fontsize=SMALL,
                      va='center', color='#666666')
            for number, case in enumerate(cases):
                row, column = divmod(number, columns)
                upper = top + HEAD + row * (side + answer * len(names) + GAP)
                if column == 0:
                    for place_, name in enumerate(names):
                        write(figure, MARGIN, upper + side + LINE / 2 + 0.03 + place_ * answer,
                              fitting(name, label - GAP), va='center', fontsize=SMALL)
                _draw_case(figure, case, MARGIN + label + column * cell, upper, cell, side, lines)
            top += height
    return figure


def _draw_case(figure: Figure, case: Case, left: float, top: float, cell: float, side: float,
               lines: int) -> None:
    middle = left + (cell - GAP) / 2
    axes = place(figure, middle - side / 2, top, side, side)
    axes.imshow(case.image, interpolation='nearest')
    axes.set_axis_off()
    answer = lines * LINE + 0.03
    for number, pair in enumerate((case.truth, *case.answers)):
        if number:
            right = [said == true for said, true in zip(pair, case.truth)]
            colors, sign = [RIGHT if part else WRONG for part in right], '✓' if all(right) else '✗'
        else:
            colors, sign = ['black', 'black'], ''
        upper = top + side + LINE / 2 + 0.03 + number * answer
        _write_pair(figure, pair, colors, sign, middle, upper, cell - GAP / 2, lines)
    box = dict(facecolor='white', edgecolor='none', pad=1, alpha=0.85)
    if case.unseen:
        axes.text(0.03, 0.03, 'unseen', transform=axes.transAxes, fontsize=SMALL - 0.5, bbox=box)
    if case.probability is not None:
        axes.text(0.97, 0.97, f'{case.probability:.0%}', transform=axes.transAxes, ha='right',
                  va='top', fontsize=SMALL - 0.5, bbox=box)


def _write_pair(figure: Figure, pair: Names, colors: Sequence[str], sign: str, middle: float,
                top: float, room: float, lines: int) -> None:
    """Attribute and object in their colours, in one line or in two, and the sign."""
    tail = [(sign, WRONG if WRONG in colors else RIGHT)] if sign else []
    parts = list(zip(pair, colors))
    if lines == 1:
        _write_parts(figure, [*parts, *tail], middle, top)
        return
    spare = text_width(sign) + SPACE if sign else 0.0
    for number, (word, color) in enumerate(parts):
        last = tail if number else []
        word = fitting(word, room - (spare if last else 0.0))
        _write_parts(figure, [(word, color), *last], middle, top + number * LINE)


def _write_parts(figure: Figure, parts: Sequence[tuple[str, str]], middle: float,
                 top: float) -> None:
    """Words in their colours, side by side around the middle."""
    widths = [text_width(text) for text, _ in parts]
    left = middle - (sum(widths) + SPACE * (len(parts) - 1)) / 2
    for (text, color), width in zip(parts, widths):
        write(figure, left, top, text, va='center', color=color, fontsize=SMALL)
        left += width + SPACE


def make_case(dataset: CZSLDataset, row: int, found: Sequence[PhaseAnswers],
              side: int = 256) -> Case:
    """An image with names for its labels.

    Args:
        dataset (CZSLDataset): Of the images.
        row (int): Of the answers.
        found (Sequence[PhaseAnswers]): Of each model, for the same images.
        side (int): Pixels. Defaults to 256.
    """
    first = found[0]
    return Case(picture(dataset, int(first.index[row]), side),
                first.pair_names(first.outcomes.target[row]),
                [part.pair_names(part.outcomes.answer[row]) for part in found],
                not bool(first.seen[row]),
                float(first.outcomes.probability[row]) if len(found) == 1 else None)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and draws."""
    args = parse_args(argv)
    names = run_names(args.checkpoints, args.names)
    models, dataset = open_checkpoints(args.checkpoints, args)
    indices = evenly(len(dataset), args.max_images)
    found = [answer_phase(model, dataset, indices, args.bias, args.batch_size,
                          f'{name}: {len(indices)} {args.phase} images')
             for name, model in zip(names, models)]
    groups = _mistakes(found[0], args.count, names[0]) if len(found) == 1 else _compared(
        found, names, args.count, args.seed)
    for title, _ in groups:
        print(title)
    shown = [(title, [make_case(dataset, row, found) for row in rows]) for title, rows in groups]
    save_and_say(draw_cases(shown, names, args.columns), args.out)


def _mistakes(answers: PhaseAnswers, count: int, name: str) -> list[tuple[str, list[int]]]:
    wrong = len(answers.mistakes())
    return [(f'Mistakes of {name}, most confident first ({wrong} of {len(answers.index)} images)',
             answers.mistakes(count))]


def _compared(found: Sequence[PhaseAnswers], names: Sequence[str], count: int,
              seed: int) -> list[tuple[str, list[int]]]:
    first, second = found
    groups = outcome_groups(first.outcomes.right, second.outcomes.right)
    total = len(first.index)
    print(f'Both are right: {len(groups["both_right"])} of {total} images')
    titles = {'success': f'Only {names[1]} is right', 'failure': f'Only {names[0]} is right',
              'both_wrong': 'Both are wrong'}
    return [(f'{title} ({len(groups[key])} of {total} images)',
             choose_cases(groups[key], first.outcomes.target, first.seen, count, seed))
            for key, title in titles.items()]
