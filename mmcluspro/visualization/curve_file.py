"""The seen-unseen curves of an evaluation as JSON, so that they can be drawn again."""
from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mmcluspro.errors import FileError, reason_of
from mmcluspro.evaluation.curve import Curve
from mmcluspro.utils.atomic import write_text
from mmcluspro.utils.plain_files import read_json, verified, with_checksum

REMEDY = 'tools/test.py writes test_curve.json into its work folder: evaluate once more.'


class StoredCurve(NamedTuple):
    """One world of an evaluation.

    Args:
        curve (Curve): The exact curve.
        auc (float): AUC of the standard protocol, in percent; the exact one where it was not
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
