"""Line charts as SVG that takes its colours from the page, so that light and dark both work."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from matplotlib.ticker import MaxNLocator

WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 8, 40
MOST_POINTS = 400  # of a line; more are not seen

Line = Sequence[tuple[float, float]]


def line_chart(lines: Mapping[str, Line], across: str, up: str, title: str,
               marks: Mapping[str, tuple[float, float]] | None = None) -> str:
    """A chart with a legend below.

    Args:
        lines (Mapping[str, Line]): Points (x, y) by name; at most seven look different.
        across (str): Words below.
        up (str): Words at the left.
        title (str): For people who do not see it.
        marks (Mapping, optional): A point by the name of its line. Defaults to None.

    Returns:
        str: A ``<figure>``.
    """
    points = [point for line in lines.values() for point in line]
    ticks = [_ticks([point[side] for point in points], zero=side == 1) for side in (0, 1)]
    frame = _Frame(*ticks)
    drawn = [frame.grid(across, up)]
    for number, (name, line) in enumerate(lines.items()):
        path = frame.path(_thinned(line))
        drawn.append(f'<polyline class="line c{number % 7}" points="{path}"/>')
        if len(line) == 1:
            drawn.append(frame.dot(line[0], number))
        if marks and name in marks:
            drawn.append(frame.dot(marks[name], number))
    legend = ''.join(f'<li class="c{number % 7}"><i></i>{escape(name)}</li>'
                     for number, name in enumerate(lines))
    return (f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
            f'{"".join(drawn)}</svg><ul class="legend">{legend}</ul></figure>')


class _Frame:
    """From values to places."""

    def __init__(self, across: list[float], up: list[float]) -> None:
        self.across, self.up = across, up

    def x(self, value: float) -> float:
        span = self.across[-1] - self.across[0] or 1
        return LEFT + (value - self.across[0]) / span * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        span = self.up[-1] - self.up[0] or 1
        return HEIGHT - BOTTOM - (value - self.up[0]) / span * (HEIGHT - TOP - BOTTOM)

    def path(self, line: Line) -> str:
        return ' '.join(f'{self.x(x):.1f},{self.y(y):.1f}' for x, y in line)

    def dot(self, point: tuple[float, float], number: int) -> str:
        return (f'<circle class="dot c{number % 7}" cx="{self.x(point[0]):.1f}" '
                f'cy="{self.y(point[1]):.1f}" r="5"/>')

    def grid(self, across: str, up: str) -> str:
        parts = []
        for value in self.up:
            y = self.y(value)
            parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
                         f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        for value in self.across:
            x = self.x(value)
            anchor = 'end' if value == self.across[-1] else 'middle'
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="{anchor}">'
                         f'{value:g}</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        height = (TOP + HEIGHT - BOTTOM) / 2
        return ''.join(parts) + (
            f'<text x="{middle}" y="{HEIGHT - 5}" text-anchor="middle">{escape(across)}</text>'
            f'<text x="12" y="{height}" text-anchor="middle" '
            f'transform="rotate(-90 12 {height})">{escape(up)}</text>')


def _ticks(values: Sequence[float], zero: bool) -> list[float]:
    low, high = min(values), max(values)
    low = min(low, 0.0) if zero else low
    locator = MaxNLocator(5, integer=not zero)
    return [round(float(tick), 10) for tick in locator.tick_values(low, high)]


def _thinned(line: Line) -> Line:
    if len(line) <= MOST_POINTS:
        return line
    step = (len(line) - 1) / (MOST_POINTS - 1)
    return [line[round(i * step)] for i in range(MOST_POINTS)]
