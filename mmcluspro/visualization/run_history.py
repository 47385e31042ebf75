"""Reads the work folder of a run: losses, validations, test results, curves."""
from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmcluspro.utils.plain_files import check_plain, read_json

from .curve_plot import StoredCurve, read_curves

Points = list[tuple[float, float]]
MOST_BYTES = 1 << 28
LARGEST = 1e100  # beyond it, no axis can be drawn
REMEDY = 'Test the checkpoint once more with mmcluspro test, or remove the file.'


@dataclass
class RunFiles:
    """Content of a work folder; everything may be missing.

    Args:
        losses (dict[str, Points]): Iteration and value by the name of the loss.
        validations (dict[str, Points]): Epoch and percent by the name of the metric.
        metrics (dict[str, float]): Of the test.
        curves (dict[str, StoredCurve]): Of the test by world; of the last validation where there
            was no test.
    """
    losses: dict[str, Points] = field(default_factory=dict)
    validations: dict[str, Points] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    curves: dict[str, StoredCurve] = field(default_factory=dict)


def read_run(folder: str | Path) -> RunFiles:
    """Reads a work folder."""
    folder = Path(folder)
    found = RunFiles()
    losses: dict[str, dict[float, float]] = {}
    validations: dict[str, dict[float, float]] = {}
    # A resumed run has a folder per start; of an iteration that ran twice the later one counts.
    for path in sorted(folder.glob('*/vis_data/scalars.json')):
        check_plain(path, 'Remove the file: the report then has no losses.', MOST_BYTES)
        for line in path.read_text(encoding='utf-8', errors='replace').splitlines():
            _add_line(line, losses, validations)
    found.losses = {name: sorted(points.items()) for name, points in losses.items()}
    found.validations = {name: sorted(points.items()) for name, points in validations.items()}
    if (folder / 'test_metrics.json').is_file():
        found.metrics = numbers_of(read_json(folder / 'test_metrics.json', dict, REMEDY))
    for phase in ('test', 'val'):
        path = folder / f'{phase}_curve.json'
        if path.is_file():
            found.curves = read_curves(path)
            break
    return found


def numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among some values that can be drawn."""
    return {str(name): float(value) for name, value in values.items()
            if isinstance(value, (int, float)) and abs(value) <= LARGEST}


def _add_line(line: str, losses: dict[str, dict[float, float]],
              validations: dict[str, dict[float, float]]) -> None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):  # the last line of a run that was killed
        return
    numbers = numbers_of(values) if isinstance(values, dict) else {}
    step = numbers.get('step')
    if step is None:
        return
    if 'loss' in numbers:
        for name, value in numbers.items():
            if name == 'loss' or name.endswith('_loss'):
                losses.setdefault(name, {})[step] = value
    for name, value in numbers.items():
        if name.startswith('czsl'):
            validations.setdefault(name, {})[step] = value
