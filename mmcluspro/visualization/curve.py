"""The seen-unseen curve as a picture."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mmcluspro.evaluation.curve import Curve


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
    figure = Figure(figsize=(6.4, 5.2), dpi=150, layout='constrained')
    FigureCanvasAgg(figure)  # never opens a window, whatever the default backend is
    axes = figure.add_subplot()
    for name, curve in curves.items():
        best = int(np.argmax(curve.hm))
        line, = axes.plot(curve.unseen, curve.seen, linewidth=2,
                          label=f'{name}: exact AUC {curve.auc:.1f}, HM {curve.hm[best]:.1f}')
        axes.plot(curve.unseen[best], curve.seen[best], 'o', markersize=8, color=line.get_color(),
                  markeredgecolor='white')
    axes.set_xlabel('Unseen accuracy (%)', fontsize=12)
    axes.set_ylabel('Seen accuracy (%)', fontsize=12)
    axes.set_title(title, fontsize=13)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=10, loc='upper center', bbox_to_anchor=(0.5, -0.13), frameon=False)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path
