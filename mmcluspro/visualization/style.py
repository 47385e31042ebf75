"""How all pictures look: sizes in print, colours that colour-blind readers tell apart, files."""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mmcluspro.utils.files import atomic_path

WIDTH = 5.5  # inches: the text width of a paper in one column; fonts below are for this width
TEXT, SMALL = 8.5, 8.0  # points
DPI = 220
ENDINGS = ('.png', '.svg')

# Paul Tol's "bright" for lines and bars, "muted" where there are many classes.
BRIGHT = ('#4477AA', '#EE6677', '#228833', '#CCBB44', '#66CCEE', '#AA3377', '#888888')
MUTED = ('#332288', '#CC6677', '#88CCEE', '#117733', '#DDCC77', '#882255', '#44AA99', '#999933',
         '#AA4499')
# Green and red that differ in lightness, too; pictures add a sign to the colour.
RIGHT, WRONG = '#00734D', '#D0440A'

_STYLE: Any = {
    'font.size': TEXT,
    'axes.titlesize': TEXT,
    'axes.labelsize': TEXT,
    'xtick.labelsize': SMALL,
    'ytick.labelsize': SMALL,
    'legend.fontsize': SMALL,
    'axes.linewidth': 0.6,
    'axes.spines.top': False,
    'axes.spines.right': False,
    'xtick.major.width': 0.6,
    'ytick.major.width': 0.6,
    'grid.linewidth': 0.4,
    'svg.hashsalt': 'mmcluspro',  # the same picture gives the same file
}


@contextmanager
def print_style() -> Iterator[None]:
    """Fonts and lines for print, inside a ``with`` only; the user's settings stay."""
    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(width: float = WIDTH, height: float = 3.0, constrained: bool = False) -> Figure:
    """A figure that never opens a window, whatever matplotlib's backend is.

    Args:
        width (float): Inches. Defaults to the text width of a paper.
        height (float): Inches. Defaults to 3.
        constrained (bool): Let matplotlib find room for labels. Defaults to False: axes are
            placed by :func:`place`.
    """
    figure = Figure(figsize=(width, height), dpi=DPI, layout='constrained' if constrained else None)
    FigureCanvasAgg(figure)
    return figure


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place in inches, measured from the upper left corner of the figure."""
    total_width, total_height = figure.get_size_inches()
    return figure.add_axes((
        left / total_width, 1 - (top + height) / total_height,
        width / total_width, height / total_height))


def write(figure: Figure, left: float, top: float, text: str, **options) -> None:
    """Text at a place in inches, measured from the upper left corner of the figure."""
    width, height = figure.get_size_inches()
    figure.text(left / width, 1 - top / height, text, **options)


@lru_cache(maxsize=4096)
def text_width(text: str, size: float = SMALL, **options) -> float:
    """Width of a text in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath
    if not text:
        return 0.0
    return TextPath((0, 0), text, size=size, prop=FontProperties(**options)).get_extents().x1 / 72


def fitting(text: str, width: float, size: float = SMALL, **options) -> str:
    """The text, shortened with an ellipsis to a width in inches."""
    if text_width(text, size, **options) <= width:
        return text
    kept = bisect_right(range(1, len(text) + 1), width,
                        key=lambda n: text_width(f'{text[:n]}…', size, **options))
    return f'{text[:kept]}…'


def save(figure: Figure, path: str | Path) -> list[Path]:
    """Writes a figure as PNG and SVG; folders are made.

    Args:
        figure (Figure): What :func:`new_figure` gave.
        path (str | Path): Name without ending, or with '.png' or '.svg': both are written.

    Returns:
        list[Path]: The two files.
    """
    path = Path(path)
    stem = path.with_suffix('') if path.suffix.lower() in ENDINGS else path
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_name(stem.name + ending) for ending in ENDINGS]
    for file in files:
        write_figure(figure, file)
    return files


def write_figure(figure: Figure, path: Path) -> None:
    """Writes one file, whose ending chooses the format."""
    # Without a date, the same figure gives the same SVG.
    options: dict[str, Any] = {'metadata': {'Date': None}} if path.suffix == '.svg' else {}
    with print_style(), atomic_path(path, keep_suffix=True) as part:
        figure.savefig(part, **options)
