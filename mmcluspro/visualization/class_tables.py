"""Accuracy of each pair, attribute and object, worst first: CSV files and a picture."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mmcluspro.evaluation import ClassRow
from mmcluspro.utils.files import write_text
from mmcluspro.utils.plain_files import csv_text

from .style import BRIGHT, SMALL, WIDTH, new_figure, print_style, write_figure

COLUMNS = ('name', 'seen', 'images', 'accuracy', 'confidence', 'mistaken_for')
UNSEEN = BRIGHT[1]
ROWS = 24  # of the picture, as many as a page holds


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
    columns = [name for name in COLUMNS if name != 'seen' or any(row.seen is not None
                                                                  for row in rows)]
    cells = [row._replace(seen=None if row.seen is None else int(row.seen),  # type: ignore
                          accuracy=round(row.accuracy, 2), confidence=round(row.confidence, 2))
             for row in rows]
    return csv_text([columns, *([getattr(row, name) for name in columns] for row in cells)])


def draw_worst(tables: Mapping[str, Sequence[ClassRow]], most: int = ROWS) -> Figure:
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
