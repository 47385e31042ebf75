"""Seen-unseen curve and its numbers: the standard protocol and the exact one."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

MAX_BIAS = 1e3  # "infinite" bias of the standard protocol
STEP_BACK = 1e-4  # the standard protocol stops this short of each sample's own turning point
NUM_STEPS = 20


class Curve(NamedTuple):
    """Accuracy per image, in percent, at rising biases; each array has shape (M,)."""

    bias: np.ndarray
    seen: np.ndarray
    unseen: np.ndarray

    @property
    def hm(self) -> np.ndarray:
        """Harmonic mean of both accuracies, 0 where one of them is 0."""
        total = self.seen + self.unseen
        return 2 * self.seen * self.unseen / np.where(total > 0, total, 1)

    def weighted(self, weight: float) -> np.ndarray:
        """Harmonic mean with this weight of the seen accuracy, 0 where one of them is 0.

        Args:
            weight (float): In (0, 1); 0.5 gives :attr:`hm`.
        """
        total = weight * self.unseen + (1 - weight) * self.seen
        return self.seen * self.unseen / np.where(total > 0, total, 1)

    @property
    def auc(self) -> float:
        """Area under seen over unseen accuracy (trapezoid), in percent."""
        height = (self.seen[1:] + self.seen[:-1]) / 2
        return float(np.sum(np.diff(self.unseen) * height) / 100)


def czsl_curve(margin: np.ndarray, is_seen: np.ndarray, bias: np.ndarray | None = None) -> Curve:
    """Seen and unseen accuracy at each bias.

    Args:
        margin (np.ndarray): Least bias towards its own side at which a sample is right, see
            :class:`~mmcluspro.evaluation.margins.Margins`, shape (N,).
        is_seen (np.ndarray): Whether the true pair is seen, shape (N,).
        bias (np.ndarray, optional): Biases to look at, shape (M,). Defaults to one for each
            point that any real bias, or either infinite one, can reach.

    Returns:
        Curve: A side without samples has accuracy 0.
    """
    margin, is_seen = np.asarray(margin, np.float64), np.asarray(is_seen, bool)
    right_once = margin < np.inf  # the others would count as right at an infinite bias
    seen = np.sort(margin[is_seen & right_once])
    unseen = np.sort(margin[~is_seen & right_once])
    every = bias is None
    if bias is None:
        last = -seen[np.isfinite(seen)]  # a seen sample is right up to here …
        after = np.nextafter(last, np.inf)  # … and wrong from here on
        bias = np.unique(np.concatenate([[-np.inf, np.inf], unseen, last, after]))
    counts = np.stack([
        np.searchsorted(seen, -bias, side='right'),
        np.searchsorted(unseen, bias, side='right'),
    ])
    if every:
        changed = np.append(True, np.any(np.diff(counts) != 0, axis=0))
        bias, counts = bias[changed], counts[:, changed]
    totals = np.maximum([[is_seen.sum()], [(~is_seen).sum()]], 1)
    return Curve(bias, *(100 * counts / totals))


def standard_curve(margin: np.ndarray, diff: np.ndarray, is_seen: np.ndarray) -> Curve:
    """The at most 40 points that the field's evaluators look at.

    Biases: of the unseen samples that are right at bias +1e3, (k-th best seen score - true
    score) - 1e-4, sorted, every max(n // 20, 1)-th; then +1e3. There is no -inf point.

    Args:
        margin (np.ndarray): As in :func:`czsl_curve`, shape (N,).
        diff (np.ndarray): k-th best seen score - true score, shape (N,).
        is_seen (np.ndarray): Whether the true pair is seen, shape (N,).
    """
    reachable = ~np.asarray(is_seen, bool) & (np.asarray(margin) <= MAX_BIAS)
    bias = np.sort(np.asarray(diff, np.float64)[reachable] - STEP_BACK)
    bias = bias[::max(len(bias) // NUM_STEPS, 1)]
    return czsl_curve(margin, is_seen, np.append(bias, MAX_BIAS))


def standard_metrics(margin: np.ndarray, diff: np.ndarray,
                     is_seen: np.ndarray) -> dict[str, float]:
    """``seen``, ``unseen``, ``hm``, ``auc`` and ``best_bias`` as published results have them."""
    curve = standard_curve(margin, diff, is_seen)
    best = int(curve.hm.argmax())
    return dict(
        seen=float(curve.seen.max()),
        unseen=float(curve.unseen.max()),
        hm=float(curve.hm[best]),
        auc=curve.auc,
        best_bias=float(curve.bias[best]))


def exact_metrics(margin: np.ndarray, is_seen: np.ndarray) -> dict[str, float]:
    """``auc_exact`` and ``hm_exact`` over all biases, both infinite ones included."""
    curve = czsl_curve(margin, is_seen)
    return dict(auc_exact=curve.auc, hm_exact=float(curve.hm.max()))
