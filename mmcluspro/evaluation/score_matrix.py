"""All numbers from a score matrix, with the arguments checked."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .metric_report import summarise
from .reduction import reduce_scores


def check_topk(topk: int | Sequence[int]) -> tuple[int, ...]:
    """``topk`` as a tuple of different positive integers."""
    values = (topk, ) if isinstance(topk, int) else tuple(topk)
    whole = all(isinstance(k, int) and not isinstance(k, bool) and k > 0 for k in values)
    if not values or not whole or len(set(values)) < len(values):
        raise ValueError(
            f'topk must be a positive integer or a list of different ones, got {topk!r}.')
    return values


def calculate(scores: Any,
              targets: Any,
              seen: Any,
              pairs: Any = None,
              topk: int | Sequence[int] = 1,
              bias_on: str = 'score') -> dict[str, float]:
    """Calculates all numbers from tensors, arrays or lists.

    Args:
        scores (Tensor): Finite score of each pair, shape (N, P).
        targets (Tensor): Index of the true pair, shape (N,).
        seen (Tensor): Which pairs are seen, shape (P,).
        pairs (Tensor, optional): (attribute, object) of each pair, shape (P, 2); adds
            ``attr_acc`` and ``obj_acc``. Defaults to None.
        topk (int | Sequence[int]): The values of k. The first one has the plain names, another
            one appends ``_top{k}``. Defaults to 1.
        bias_on (str): 'score' adds the bias to the numbers of the matrix as they are, which is
            right for logits; 'log' to their logarithms, which is right for probabilities and
            is what ``CZSLMetric`` does with the scores of Eq. 13. Defaults to 'score'.

    Returns:
        dict: Plain floats, in percent except for ``best_bias``.

    Examples:
        >>> scores = [[0.6, 0.3, 0.1], [0.2, 0.3, 0.4], [0.5, 0.1, 0.4]]
        >>> numbers = calculate(scores, targets=[0, 2, 2], seen=[True, True, False])
        >>> numbers['unseen'], numbers['auc_exact']
        (100.0, 100.0)
    """
    if isinstance(scores, (list, tuple)):  # as_tensor would round Python floats to float32
        scores = np.asarray(scores, np.float64)
    scores, targets, seen = map(torch.as_tensor, (scores, targets, seen))
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f'scores must have shape (N, P), got {tuple(scores.shape)}.')
    for name, value, shape in (('targets', targets, scores.shape[:1]),
                               ('seen', seen, scores.shape[1:])):
        if value.shape != shape:
            raise ValueError(f'{name} must have shape {tuple(shape)} to go with scores of shape '
                             f'{tuple(scores.shape)}, got {tuple(value.shape)}.')
    outside = (targets < 0) | (targets >= len(seen))
    if outside.any():
        row = int(outside.nonzero()[0])
        raise ValueError(f'targets must be pair indices in [0, {len(seen)}), got '
                         f'{int(targets[row])} for sample {row} ({int(outside.sum())} such '
                         'samples).')
    if pairs is not None:
        pairs = torch.as_tensor(pairs)
        if pairs.shape != (len(seen), 2):
            raise ValueError(
                f'pairs must have shape ({len(seen)}, 2), got {tuple(pairs.shape)}.')
    topk = check_topk(topk)
    margins = reduce_scores(scores.detach(), targets.long(), seen.bool(), pairs, topk,
                            bias_on=bias_on)
    return summarise(margins, topk)
