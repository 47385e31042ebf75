r"""From pair scores to probabilities: temperature and seen bias, chosen on validation.

A score s of Eq. 13 becomes a probability over the pairs of a world by

.. math::
    q(c) \propto \exp\big((z_c - \beta\,[c\ \text{is seen}]) / T\big), \qquad z_c = \log s_c,

with z = s for a head whose scores are logits. T = 1 and β = 0 give s / Σ s, the mixture of the
two terms of Eq. 13. β is the bias with the best harmonic mean, counted in z; T then minimises the
negative log-likelihood, which is convex in 1 / T. A few numbers per sample are kept, see
:class:`LogSums`; nothing of the size images × pairs is.

Values that validation chose for each world, and how a checkpoint stores them.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mmcluspro.errors import shown

from .curve import czsl_curve
from .margins import BLOCK, PairGroups, Top, accumulate
from .tensors import as_matrix, log_scores, order_of, top_of_groups

INVERSE_TEMPERATURES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
NUM_BINS = 15


class Calibration(NamedTuple):
    """Temperature and seen bias that map z to probabilities; the defaults keep Eq. 13."""

    temperature: float = 1.0
    seen_bias: float = 0.0


class LogSums(NamedTuple):
    """Numbers kept for N samples, J thresholds and A inverse temperatures, in units of z."""

    true: np.ndarray  # (N,)
    top_seen: np.ndarray  # (N,): best seen pair, -inf without any
    top_unseen: np.ndarray  # (N, J): best feasible unseen pair
    status: np.ndarray  # (N, J): 1 the true pair is best on its side, 0 not, -1 not feasible
    seen: np.ndarray  # (N, A): log of the sum of exp(z / T) over the seen pairs
    unseen: np.ndarray  # (N, J, A): the same over the feasible unseen pairs

    def to_rows(self) -> list[np.ndarray]:
        """One array per sample."""
        parts = [np.reshape(part, (len(self.true), -1)) for part in self]
        return list(np.concatenate(parts, axis=1, dtype=np.float64))

    @staticmethod
    def width(num: int, temperatures: int) -> int:
        """Length of a row for J thresholds and A inverse temperatures."""
        return 2 + 2 * num + (1 + num) * temperatures

    @classmethod
    def from_rows(cls, table: np.ndarray, num: int, temperatures: int) -> LogSums:
        """The inverse of :meth:`to_rows`, from an array (N, width)."""
        sizes = [1, 1, num, num, temperatures]
        true, top, top_unseen, status, seen, unseen = np.split(table, np.cumsum(sizes), axis=1)
        return cls(true[:, 0], top[:, 0], top_unseen, status, seen,
                   unseen.reshape(len(table), num, temperatures))


def probabilities(scores: Tensor, seen: Tensor, calibration: Calibration = Calibration(),  # noqa: B008
                  link: str = 'log', feasible: Tensor | None = None) -> Tensor:
    """Probabilities of the pairs.

    Args:
        scores (Tensor): Shape (N, P).
        seen (Tensor): Which pairs are seen, shape (P,).
        calibration (Calibration): Defaults to none.
        link (str): 'log' for scores of Eq. 13, 'identity' for logits. Defaults to 'log'.
        feasible (Tensor, optional): Which pairs may be the answer, shape (P,); the others get
            probability 0. Defaults to None: all.

    Returns:
        Tensor: Shape (N, P), each row sums to 1.
    """
    z = log_scores(scores, link)
    z = z - calibration.seen_bias * seen.to(z)
    if feasible is not None:
        z = z.masked_fill(~feasible, -torch.inf)
    return (z / calibration.temperature).softmax(dim=1)


def reduce_log_sums(scores: Tensor | Sequence[Tensor], targets: Tensor, groups: PairGroups,
                    inverse: Sequence[float] = INVERSE_TEMPERATURES,
                    link: str = 'log') -> LogSums:
    """Reduces finite scores (N, P), or N rows, with true pairs (N,), to :class:`LogSums`.

    Args:
        scores (Tensor | Sequence[Tensor]): Shape (N, P), or N rows of shape (P,).
        targets (Tensor): Index of the true pair, shape (N,).
        groups (PairGroups): Which unseen pairs are feasible at each threshold.
        inverse (Sequence[float]): 1 / T, rising, shape (A,).
        link (str): As in :func:`probabilities`.
    """
    num, step = groups.num, max(1, BLOCK // len(groups.group))
    matrix = scores if isinstance(scores, Tensor) else as_matrix(scores)
    parts: list[list[np.ndarray]] = []
    for start in range(0, len(targets), step):
        z = log_scores(matrix[start:start + step], link)
        target = targets[start:start + step].to(z.device)
        member = groups.group[target.cpu().numpy()][:, None]  # (B, 1)
        top = top_of_groups(z, groups, 1)
        best_unseen = accumulate(Top(top.score[:, :-1], top.pair[:, :-1]))
        best = np.where(member == num, top.pair[:, -1], best_unseen.pair[..., 0])
        status = (best == target.cpu().numpy()[:, None]).astype(np.float64)
        feasible = (member >= np.arange(num)) & (member <= num)
        parts.append([
            z.gather(1, target[:, None])[:, 0].cpu().numpy(), top.score[:, -1, 0],
            best_unseen.score[..., 0], np.where(feasible, status, -1),
            *(part.numpy() for part in _group_sums(z, groups, inverse))])
    return LogSums(*(np.concatenate(part).astype(np.float64) for part in zip(*parts)))


def _group_sums(z: Tensor, groups: PairGroups,
                inverse: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Log-sums over the seen pairs (B, A), and over the unseen ones of groups >= j (B, J, A)."""
    top = z.amax(dim=1, keepdim=True)
    away = (z - top).float().index_select(1, order_of(groups, z.device))
    sizes = [end - start for start, end in zip(groups.bounds, groups.bounds[1:])]
    sums = torch.stack([
        torch.stack([part.sum(dim=1) for part in (away * a).exp_().split(sizes, dim=1)], dim=1)
        for a in inverse], dim=-1)  # (B, J + 1, A)
    unseen = sums[:, :-1].flip(1).cumsum(1).flip(1)
    shift = top[..., None].double() * torch.tensor(inverse, dtype=torch.float64, device=z.device)
    return ((sums[:, -1].double().log() + shift[:, 0]).cpu(),
            (unseen.double().log() + shift).cpu())


def fit_calibration(sums: LogSums, is_seen: np.ndarray, threshold: int = 0,
                    inverse: Sequence[float] = INVERSE_TEMPERATURES) -> Calibration:
    """Chooses bias and temperature on N samples of validation.

    Args:
        sums (LogSums): With the same ``inverse``.
        is_seen (np.ndarray): Whether the true pair is seen, shape (N,).
        threshold (int): Which threshold. Defaults to 0.
        inverse (Sequence[float]): The grid of 1 / T, rising.
    """
    bias = best_bias(sums, is_seen, threshold)
    possible = sums.status[:, threshold] >= 0
    if not possible.any():
        return Calibration(1.0, bias)
    grid = np.asarray(inverse)
    true = sums.true - bias * is_seen
    nll = (_total(sums, bias, threshold, grid) - grid * true[:, None])[possible].mean(axis=0)
    middle = int(np.clip(nll.argmin(), 1, len(grid) - 2))
    curve = np.polynomial.Polynomial.fit(grid[middle - 1:middle + 2], nll[middle - 1:middle + 2], 2)
    lowest = curve.deriv().roots()
    inside = len(lowest) == 1 and grid[middle - 1] <= lowest[0] <= grid[middle + 1]
    return Calibration(float(1 / (lowest[0] if inside else grid[nll.argmin()])), bias)


def best_bias(sums: LogSums, is_seen: np.ndarray, threshold: int = 0,
              weight: float = 0.5) -> float:
    """The middle of the biases with the best harmonic mean, 0 when no bias has one.

    Args:
        sums (LogSums): Of N samples of validation.
        is_seen (np.ndarray): Whether the true pair is seen, shape (N,).
        threshold (int): Which threshold. Defaults to 0.
        weight (float): Of the seen accuracy in the harmonic mean, in (0, 1). Defaults to 0.5.
    """
    rival = np.where(is_seen, sums.top_unseen[:, threshold], sums.top_seen)
    margin = np.where(sums.status[:, threshold] == 1, rival - sums.true, np.inf)
    curve = czsl_curve(margin, is_seen)
    mean = curve.hm if weight == 0.5 else curve.weighted(weight)
    best = int(mean.argmax())
    ends = curve.bias[best:best + 2]
    if mean[best] == 0 or not np.isfinite(ends).any():
        return 0.0
    return float(ends[np.isfinite(ends)].mean())


def _total(sums: LogSums, bias: float, threshold: int, inverse: np.ndarray) -> np.ndarray:
    """Log of the denominator of q on the grid, shape (N, A)."""
    return np.logaddexp(sums.seen - inverse * bias, sums.unseen[:, threshold])


def confidences(sums: LogSums, is_seen: np.ndarray, calibration: Calibration, threshold: int = 0,
                inverse: Sequence[float] = INVERSE_TEMPERATURES) -> tuple[np.ndarray, np.ndarray]:
    """Probability of the best pair and whether it is right, both of shape (N,).

    Between the temperatures of the grid the denominator is interpolated.
    """
    bias, wanted, grid = calibration.seen_bias, 1 / calibration.temperature, np.asarray(inverse)
    near = np.sort(np.argsort(np.abs(grid - wanted), kind='stable')[:3])
    weights = [np.prod([(wanted - grid[k]) / (grid[i] - grid[k]) for k in near if k != i])
               for i in near]
    total = _total(sums, bias, threshold, grid)[:, near] @ np.asarray(weights, np.float64)
    seen, unseen = sums.top_seen - bias, sums.top_unseen[:, threshold]
    side = np.where(is_seen, seen > unseen, unseen > seen)
    right = side & (sums.status[:, threshold] == 1)
    return np.exp(np.minimum(wanted * np.maximum(seen, unseen) - total, 0.0)), right


def expected_calibration_error(confidence: np.ndarray, right: np.ndarray,
                               num_bins: int = NUM_BINS) -> float:
    """Mean distance of confidence and accuracy over equal bins of confidence, in percent.

    Args:
        confidence (np.ndarray): In [0, 1], shape (N,).
        right (np.ndarray): Whether the answer is right, shape (N,).
        num_bins (int): Defaults to 15.
    """
    place = np.clip(np.ceil(confidence * num_bins).astype(int) - 1, 0, num_bins - 1)
    gap = np.bincount(place, weights=confidence - right, minlength=num_bins)
    return float(100 * np.abs(gap).sum() / len(confidence))


#: What a checkpoint may say; validation chooses temperatures from 0.25 to 4. A negative one would
#: answer the least probable pair.
BOUNDS = dict(temperature=(1e-3, 1e3), seen_bias=(-1e3, 1e3), threshold=(-1.0, 1.0))
PREFERENCES = ('seen', 'balanced', 'unseen')


class Chosen(NamedTuple):
    """Values that validation chose for a world; None for those that it did not choose.

    Attributes:
        bias (float): Best one of the standard protocol, in the space of the bias.
        threshold (float): Feasibility above which unseen pairs stay, open world only.
        temperature (float): See :class:`Calibration`.
        seen_bias (float): See :class:`Calibration`.
        prefer_seen (float): The seen bias for a user to whom seen pairs matter more.
        prefer_unseen (float): The same for unseen pairs.
    """

    bias: float | None = None
    threshold: float | None = None
    temperature: float | None = None
    seen_bias: float | None = None
    prefer_seen: float | None = None
    prefer_unseen: float | None = None

    @property
    def calibration(self) -> Calibration | None:
        """Temperature and seen bias, None unless both were chosen."""
        if self.temperature is None or self.seen_bias is None:
            return None
        return Calibration(self.temperature, self.seen_bias)

    def preferring(self, prefer: str = 'balanced') -> Calibration | None:
        """The calibration with another seen bias, None where validation chose none.

        Args:
            prefer (str): 'balanced': :attr:`calibration`; 'seen' or 'unseen'. Defaults to
                'balanced'.
        """
        if prefer not in PREFERENCES:
            raise ValueError(f'prefer must be one of {PREFERENCES}, got {prefer!r}.')
        found = self.calibration
        if found is None or prefer == 'balanced':
            return found
        bias = self.prefer_seen if prefer == 'seen' else self.prefer_unseen
        return None if bias is None else found._replace(seen_bias=bias)


def read_chosen(meta: Mapping[str, Any]) -> Mapping[str, Chosen]:
    """Reads the values that validation chose, by world, from the ``meta`` of a checkpoint.

    Args:
        meta (Mapping): Its field ``calibration`` holds numbers by name, by 'closed' and 'open'.

    Raises:
        ValueError: Names a field that is not a number within :data:`BOUNDS`.
    """
    worlds = meta.get('calibration')
    worlds = {} if worlds is None else worlds
    if not isinstance(worlds, Mapping) or not all(
            world in ('closed', 'open') and isinstance(values, Mapping)
            for world, values in worlds.items()):
        raise ValueError("calibration must be a dict of 'closed' and 'open', each a dict, got "
                         f'{shown(worlds)}')
    return MappingProxyType({
        world: Chosen(**{name: _within(values.get(name), f'calibration[{world!r}].{name}',
                                       *BOUNDS.get(name, BOUNDS['seen_bias']))
                         for name in Chosen._fields})
        for world, values in worlds.items()})


def _within(value: Any, where: str, low: float, high: float) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (
            low <= value <= high):
        raise ValueError(f'{where} must be a number from {low:g} to {high:g}, got {shown(value)}')
    return float(value)


def asked_calibration(chosen: Chosen, world: str, prefer: str = 'balanced',
                      seen_bias: float | None = None) -> Calibration | None:
    """The calibration that a user asked for, by a preference or by a seen bias.

    Args:
        chosen (Chosen): What validation chose for the world.
        world (str): 'closed' or 'open', for messages.
        prefer (str): As in :meth:`Chosen.preferring`. Defaults to 'balanced'.
        seen_bias (float, optional): Is subtracted from the log scores of seen pairs. Defaults to
            None: that of ``prefer``.

    Returns:
        Calibration | None: None where validation chose nothing and nothing was asked for.
    """
    if seen_bias is not None:
        if prefer != 'balanced':
            raise ValueError('Give either prefer or seen_bias, not both.')
        if not isfinite(seen_bias):
            raise ValueError(f'seen_bias must be a finite number, got {seen_bias!r}.')
        return (chosen.calibration or Calibration())._replace(seen_bias=float(seen_bias))
    found = chosen.preferring(prefer)
    if found is None and prefer != 'balanced':
        raise ValueError(
            f'The checkpoint holds no seen bias for prefer={prefer!r} in the {world} world: '
            'best_*.pth of a training with validation by this version does. Give a number with '
            '--seen-bias X (seen_bias=X) instead: 0 favours seen pairs, 1 divides their scores by '
            '2.7, and so on.')
    return found


def chosen_meta(chosen: Mapping[str, Chosen]) -> dict[str, dict[str, float | None]]:
    """The inverse of :func:`read_chosen`: plain data for ``meta.calibration``."""
    return {world: values._asdict() for world, values in chosen.items()}
