"""Seen-unseen curves: their file, their picture, ``mmcluspro curves``."""
from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mmcluspro.cli.pictures import parse_curves as parse_args
from mmcluspro.errors import FileError, reason_of
from mmcluspro.evaluation.curve import Curve
from mmcluspro.utils.files import write_text
from mmcluspro.utils.plain_files import read_json, verified, with_checksum

from .options import run_names, save_and_say
from .style import BRIGHT, WIDTH, new_figure, print_style, write_figure

REMEDY = 'tools/test.py writes test_curve.json into its work folder: evaluate once more.'


class StoredCurve(NamedTuple):
    """One world of an evaluation.

    Args:
        curve (Curve): The exact curve.
        auc (float): AUC of the standard protocol, in percent, or the exact one if it was not
            stored.
        hm (float): Best harmonic mean, likewise.
    """

    curve: Curve
    auc: float
    hm: float


def write_curves(curves: Mapping[str, Curve], path: str | Path,
                 metrics: Mapping[str, Mapping[str, float]] | None = None) -> Path:
    """Writes curves by world.

    Args:
        curves (Mapping[str, Curve]): By 'closed' and 'open'.
        path (str | Path): File to write.
        metrics (Mapping, optional): By world, with ``auc`` and ``hm`` of the standard protocol.
            Defaults to None: readers take those of the curve.

    Returns:
        Path: ``path``.
    """
    content: dict[str, Any] = {}
    for world, curve in curves.items():
        numbers = (metrics or {}).get(world, {})
        content[world] = {name: float(numbers[name]) for name in ('auc', 'hm') if name in numbers}
        # JSON has no infinity; float() reads these words.
        content[world]['bias'] = [
            float(f'{value:.6g}') if math.isfinite(value) else str(value)
            for value in curve.bias.tolist()]
        content[world]['seen'] = np.round(curve.seen, 4).tolist()
        content[world]['unseen'] = np.round(curve.unseen, 4).tolist()
    path = Path(path)
    write_text(path, json.dumps(with_checksum(content)) + '\n')
    return path


def read_curves(path: str | Path) -> dict[str, StoredCurve]:
    """Reads what :func:`write_curves` wrote, by world."""
    path = Path(path)
    try:
        content = verified(read_json(path, dict, REMEDY), path, REMEDY, ('closed', 'open'))
        found = {world: _parse(entry) for world, entry in content.items()}
    except FileNotFoundError:
        raise FileNotFoundError(f'The file of curves {path} does not exist.') from None
    except FileError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise FileError(path, f'it is not a file of seen-unseen curves ({reason_of(error)})',
                        REMEDY) from None
    if not found:
        raise FileError(path, 'it holds no curve', REMEDY)
    return found


def _parse(entry: Mapping[str, Any]) -> StoredCurve:
    parts = [np.array([float(value) for value in entry[name]])
             for name in ('bias', 'seen', 'unseen')]
    if len({len(part) for part in parts}) != 1 or not len(parts[0]):
        raise ValueError(f'{[len(part) for part in parts]} biases, seen and unseen accuracies')
    if not all(np.isfinite(part).all() for part in parts[1:]):
        raise ValueError('an accuracy is not a number')
    curve = Curve(*parts)
    return StoredCurve(curve, float(entry.get('auc', curve.auc)),
                       float(entry.get('hm', curve.hm.max())))


DASHES = ('-', '--', '-.', ':')


def draw_curves(panels: Mapping[str, Mapping[str, Curve]]) -> Figure:
    """Seen over unseen accuracy of several runs; a dot marks the best harmonic mean.

    Args:
        panels (Mapping): Curves by the text of their legend, by the title of their panel, for
            example ``{'Closed world': {'ClusPro: AUC 46.6': curve}}``. The n-th line looks the
            same in every panel.

    Returns:
        Figure: One panel per title, side by side.
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


WORLDS = {'closed': 'Closed world', 'open': 'Open world'}


def read_run(run: str, phase: str) -> dict[str, StoredCurve]:
    """Curves of a work folder or file, by world."""
    path = Path(run)
    if not path.exists():
        raise FileNotFoundError(f'The run {run} does not exist: give the work folder of a run.')
    if path.is_dir():
        path = path / f'{phase}_curve.json'
        if not path.is_file():
            raise FileNotFoundError(
                f'{run} has no {path.name}. Evaluate its checkpoint once more: python '
                f'tools/test.py CONFIG CHECKPOINT --work-dir {run}')
    return read_curves(path)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and draws."""
    args = parse_args(argv)
    names = run_names(args.runs, args.names)
    found = {name: read_run(run, args.phase) for name, run in zip(names, args.runs)}
    panels = {
        title: {f'{name}: AUC {curves[world].auc:.1f}, HM {curves[world].hm:.1f}':
                curves[world].curve for name, curves in found.items() if world in curves}
        for world, title in WORLDS.items() if args.world in (world, 'both')}
    panels = {title: curves for title, curves in panels.items() if curves}
    if not panels:
        raise ValueError(f'None of the runs was evaluated in the {args.world} world.')
    for title, curves in panels.items():
        if len(curves) < len(found):
            raise ValueError(f'Not every run was evaluated in the {title.lower()}: choose the '
                             'other one with --world.')
    save_and_say(draw_curves(panels), args.out)
