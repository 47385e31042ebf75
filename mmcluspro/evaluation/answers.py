"""Answers as ``mmcluspro predict`` gives them, from a few numbers per image.

The bias moves all seen pairs together, so the best seen and the best unseen pair decide every
answer, and two log-sums its probability:

.. math:: q = \\exp(z / T) \\,/\\, \\big(e^{-\\beta / T} \\sum_{seen} e^{z_c / T}
    + \\sum_{unseen} e^{z_c / T}\\big)
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from mmcluspro.datasets.space import CompositionSpace

from .calibration import Calibration
from .score_space import log_scores

THRESHOLDS = (0.3, 0.5, 0.7, 0.9)


class Answers(NamedTuple):
    """Numbers kept for N images; all arrays have shape (N,)."""

    target: np.ndarray  # row of the true pair
    seen_pair: np.ndarray  # best seen pair
    seen_z: np.ndarray
    seen_sum: np.ndarray  # log of the sum of exp(z / T) over the seen pairs
    unseen_pair: np.ndarray
    unseen_z: np.ndarray
    unseen_sum: np.ndarray

    def given(self, calibration: Calibration) -> tuple[np.ndarray, np.ndarray]:
        """Answered pair and its probability, both of shape (N,).

        Args:
            calibration (Calibration): Any seen bias; the temperature of :func:`reduce_answers`.
        """
        bias, temperature = calibration.seen_bias, calibration.temperature
        seen = self.seen_z - bias
        total = np.logaddexp(self.seen_sum - bias / temperature, self.unseen_sum)
        best = np.maximum(seen, self.unseen_z) / temperature
        pair = np.where(seen >= self.unseen_z, self.seen_pair, self.unseen_pair)
        return pair.astype(int), np.exp(np.minimum(best - total, 0))


def reduce_answers(scores: Tensor, targets: Tensor, seen: Tensor, temperature: float = 1.0,
                   link: str = 'log') -> Answers:
    """Reduces scores to :class:`Answers`.

    Args:
        scores (Tensor): Shape (N, P).
        targets (Tensor): Row of the true pair, shape (N,).
        seen (Tensor): Which pairs are seen, shape (P,).
        temperature (float): T. Defaults to 1.
        link (str): As in :func:`~mmcluspro.evaluation.probabilities`. Defaults to 'log'.
    """
    z = log_scores(scores, link).double()
    parts = [targets]
    for side in (seen, ~seen):
        part = z.masked_fill(~side.to(z.device), -np.inf)
        best = part.argmax(dim=1)
        parts += [best, part.gather(1, best[:, None])[:, 0],
                  (part / temperature).logsumexp(dim=1)]
    return Answers(*(part.cpu().numpy() for part in parts))


def accuracies(target: np.ndarray, pair: np.ndarray, seen: np.ndarray) -> dict[str, float]:
    """``seen``, ``unseen`` and their harmonic mean ``hm``, in percent; 0 without images.

    Args:
        target (np.ndarray): Row of the true pair, shape (N,).
        pair (np.ndarray): Row of the answer, shape (N,).
        seen (np.ndarray): Which pairs are seen, shape (P,).
    """
    right, is_seen = pair == target, seen[target]
    first, second = (100 * float(right[side].mean()) if side.any() else 0.0
                     for side in (is_seen, ~is_seen))
    total = first + second
    return dict(seen=first, unseen=second, hm=2 * first * second / total if total else 0.0)


def abstaining(right: np.ndarray, probability: np.ndarray,
               thresholds: Sequence[float] = THRESHOLDS) -> dict[str, float]:
    """Share of images that are answered at each threshold, and their accuracy, in percent.

    Args:
        right (np.ndarray): Whether the answer is right, shape (N,).
        probability (np.ndarray): Of the answer, shape (N,).
        thresholds (Sequence[float]): As ``--threshold`` of ``mmcluspro predict``.

    Returns:
        dict: ``coverage_at_0.5`` and, where any image is answered, ``accuracy_at_0.5`` …
    """
    numbers = {}
    for threshold in thresholds:
        sure = probability >= threshold
        numbers[f'coverage_at_{threshold:g}'] = 100 * float(sure.mean())
        if sure.any():
            numbers[f'accuracy_at_{threshold:g}'] = 100 * float(right[sure].mean())
    return numbers


class Outcomes(NamedTuple):
    """True and answered pairs of N images; rows of a label space, shape (N,) each."""

    target: np.ndarray  # row of the true pair
    answer: np.ndarray  # row of the answered pair
    probability: np.ndarray  # of the answer

    @property
    def right(self) -> np.ndarray:
        """Whether each answer is right, shape (N,)."""
        return self.answer == self.target


class ClassRow(NamedTuple):
    """Results for the images of one pair, attribute or object."""

    name: str
    seen: bool | None  # of pairs: whether training had it
    images: int
    accuracy: float  # percent
    confidence: float  # mean probability of the answers, percent
    mistaken_for: str  # the most frequent wrong answer, '' without any


def by_class(target: np.ndarray, answer: np.ndarray, probability: np.ndarray,
             names: Sequence[str], seen: np.ndarray | None = None) -> list[ClassRow]:
    """Classes with images, worst first; among equals, the most frequent first.

    Args:
        target (np.ndarray): True class, shape (N,).
        answer (np.ndarray): Answered class, shape (N,).
        probability (np.ndarray): Of the answer, shape (N,).
        names (Sequence[str]): Of the classes, C of them.
        seen (np.ndarray, optional): For pairs: which are seen, shape (C,). Defaults to None.
    """
    rows = []
    for label in np.unique(target):
        mine = target == label
        wrong, counts = np.unique(answer[mine & (answer != label)], return_counts=True)
        rows.append(ClassRow(
            names[label], None if seen is None else bool(seen[label]), int(mine.sum()),
            100 * float((answer[mine] == label).mean()), 100 * float(probability[mine].mean()),
            names[wrong[counts.argmax()]] if len(wrong) else ''))
    return sorted(rows, key=lambda row: (row.accuracy, -row.images, row.name))


def class_tables(outcomes: Outcomes, space: CompositionSpace) -> dict[str, list[ClassRow]]:
    """:func:`by_class` of 'pairs', 'attributes' and 'objects'.

    Args:
        outcomes (Outcomes): Rows of the space.
        space (CompositionSpace): The pairs to choose from.
    """
    target, answer, probability = outcomes
    sides = space.pairs.numpy().T
    names = [f'{space.attributes[attr]} {space.objects[obj]}' for attr, obj in sides.T]
    return dict(pairs=by_class(target, answer, probability, names, space.seen.numpy()), **{
        kind: by_class(side[target], side[answer], probability, words)
        for kind, side, words in zip(('attributes', 'objects'), sides,
                                     (space.attributes, space.objects))})
