"""From margins to the reported numbers, and how they look in the log."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .calibration import (
    INVERSE_TEMPERATURES,
    Calibration,
    LogSums,
    best_bias,
    confidences,
    expected_calibration_error,
    fit_calibration,
)
from .curve import exact_metrics, standard_metrics
from .reduction import Margins


def summarise(margins: Margins, topk: Sequence[int], threshold: int = 0) -> dict[str, float]:
    """All numbers in percent; ``best_bias`` in the units of the space of the bias.

    Args:
        margins (Margins): Of all samples.
        topk (Sequence[int]): The values of k. The first one has the plain names, another one
            appends ``_top{k}``.
        threshold (int): Which threshold. Defaults to 0.
    """
    numbers = {}
    for column, k in enumerate(topk):
        margin = margins.margin[:, threshold, column]
        part = standard_metrics(margin, margins.diff[:, column], margins.is_seen)
        part |= exact_metrics(margin, margins.is_seen)
        literal = standard_metrics(margins.score_margin[:, threshold, column],
                                   margins.score_diff[:, column], margins.is_seen)
        part |= {f'{name}_score': literal[name] for name in ('auc', 'hm')}
        for name, right in (('attr_acc', margins.attr_right), ('obj_acc', margins.obj_right)):
            if right is not None:
                part[name] = 100 * float(right[:, threshold, column].mean())
        suffix = f'_top{k}' if column else ''
        numbers.update({name + suffix: value for name, value in part.items()})
    return numbers


def best_threshold(margins: Margins) -> int:
    """The threshold with the highest standard AUC; of equal ones the most permissive."""
    return int(np.argmax([
        standard_metrics(margins.margin[:, j, 0], margins.diff[:, 0], margins.is_seen)['auc']
        for j in range(margins.margin.shape[1])
    ]))


# Weight of the seen accuracy in the harmonic mean by which validation chooses the seen bias of
# ``--prefer seen`` and ``--prefer unseen``: one side counts four times as much as the other.
PREFERRED = {'seen': 0.8, 'unseen': 0.2}


def calibration_grid(calibration: Calibration | None) -> tuple[float, ...]:
    """The inverse temperatures to keep: none but 1 and the one that is known."""
    if calibration is None:
        return INVERSE_TEMPERATURES
    return tuple(sorted({1.0, 1 / calibration.temperature}))


def summarise_calibration(sums: LogSums, is_seen: np.ndarray, calibration: Calibration | None,
                          threshold: int = 0) -> dict[str, float]:
    """``ece`` of s / Σ s and ``ece_calibrated``, in percent, with what calibrates.

    Args:
        sums (LogSums): For the grid of :func:`calibration_grid`.
        is_seen (np.ndarray): Whether the true pair is seen, shape (N,).
        calibration (Calibration, optional): None chooses it here, on these samples.
        threshold (int): Which threshold. Defaults to 0.
    """
    grid = calibration_grid(calibration)
    chosen = calibration or fit_calibration(sums, is_seen, threshold, grid)
    before, after = (
        expected_calibration_error(*confidences(sums, is_seen, which, threshold, grid))
        for which in (Calibration(), chosen))
    numbers = dict(ece=before, ece_calibrated=after, **chosen._asdict())
    if calibration is None:
        numbers |= {f'prefer_{side}': best_bias(sums, is_seen, threshold, weight)
                    for side, weight in PREFERRED.items()}
    return numbers


def format_table(numbers: dict[str, float], topk: Sequence[int]) -> str:
    """One aligned line per k below a line of names."""
    names = ['seen', 'unseen', 'hm', 'auc', 'auc_score', 'hm_score', 'auc_exact', 'hm_exact',
             'attr_acc', 'obj_acc', 'best_bias', 'ece', 'ece_calibrated']
    names = [name for name in names if name in numbers]
    lines = [['', *names]]
    for column, k in enumerate(topk):
        suffix = f'_top{k}' if column else ''
        lines.append([f'top-{k}', *(
            f'{numbers[name + suffix]:{".4g" if name == "best_bias" else ".2f"}}'
            if name + suffix in numbers else '' for name in names)])
    widths = [max(map(len, column)) for column in zip(*lines)]
    return '\n'.join('  '.join(cell.rjust(width) for cell, width in zip(line, widths))
                     for line in lines)
