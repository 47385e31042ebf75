"""The seen-unseen curve as a picture."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mmcluspro.evaluation.curve import Curve

from .style import BRIGHT, WIDTH, new_figure, print_style, write_figure

DASHES = ('-', '--', '-.', ':')


def draw_curves(panels: Mapping[str, Mapping[str, Curve]]) -> Figure:
    """Seen over unseen accuracy of several runs; a dot marks the best harmonic mean.

    Args:
        panels (Mapping): Curves by the text of their legend, by the title of their panel, for
            example ``{'Closed world': {'ClusPro: AUC 46.6': curve}}``. The n-th line looks the
            same in every panel.

    Returns:
        Figure: One panel a title, side by side.
    """
    if not any(panels.values()):
        raise ValueError('draw_curves needs at least one curve, got none.')
    lines = max(len(curves) for curves in panels.values())
    width = WIDTH if len(panels) > 1 else 0.65 * WIDTH
    with print_style():
        figure = new_figure(width, 2.75 + 0.17 * lines, constrained=True)
        parts = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (title, curves) in zip(parts, panels.items()):
            axes.set_title(title)
            _draw_panel(axes, curves)
        parts[0].set_ylabel('Seen accuracy (%)')
    return figure


def _draw_panel(axes: Axes, curves: Mapping[str, Curve]) -> None:
    for number, (label, curve) in enumerate(curves.items()):
        color, best = BRIGHT[number % len(BRIGHT)], int(np.argmax(curve.hm))
        axes.plot(curve.unseen, curve.seen, DASHES[number % len(DASHES)], linewidth=1.4,
                  color=color, label=label)
        axes.plot(curve.unseen[best], curve.seen[best], 'o', markersize=5, color=color,
                  markeredgecolor='white', markeredgewidth=0.7)
    axes.set_xlabel('Unseen accuracy (%)')
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.4)
    axes.legend(loc='upper center', bbox_to_anchor=(0.5, -0.2), frameon=False, handlelength=2.4)


def plot_curve(curves: Mapping[str, Curve], path: str | Path, title: str = '') -> Path:
    """Draws seen over unseen accuracy of one or more runs, with the best harmonic means marked.

    Args:
        curves (Mapping[str, Curve]): Curves by the name of their run, e.g. ``metric.curve``.
        path (str | Path): Picture to write; the ending chooses the format. Folders are made.
        title (str): Defaults to none.

    Returns:
        Path: ``path``.
    """
    if not curves:
        raise ValueError('plot_curve needs at least one curve, got none.')
    figure = draw_curves({title: {
        f'{name}: exact AUC {curve.auc:.1f}, HM {curve.hm.max():.1f}': curve
        for name, curve in curves.items()}})
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_figure(figure, path)
    return path
