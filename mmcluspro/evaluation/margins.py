"""From rows of pair scores to the few numbers that decide every bias; NumPy only.

A bias is added to the scores, or to their logarithms. For scores s >= 0 of Eq. 13 it is added to
z = log s; a head whose scores are logits has z = s. The logarithm is monotone, so that pairs keep
their order, and for a head with one path log p and the logits differ by a constant per image: the
sweep over z is then the sweep over logits of the published evaluators.

Of each group of pairs the best ones are kept; ties are resolved as by ``argmax``.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .curve import exact_metrics, standard_metrics

LINKS = ('log', 'identity')
SPACES = ('log', 'score')
LOG_ZERO = -150 * math.log(2)  # of a score that underflowed: below every positive float32
BLOCK = 2**21  # scores looked at together: small enough for the cache, large enough to vectorise


def as_array(values: Any) -> np.ndarray:
    """An array of a tensor, an array or lists; half precision becomes single."""
    if hasattr(values, 'detach'):
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() and values.itemsize < 4 else values
    found = np.asarray(values)
    return found.astype(np.float32) if found.dtype == np.float16 else found


def check_link(link: str) -> None:
    """Raises a ValueError for an unknown link."""
    if link not in LINKS:
        raise ValueError(f'link must be one of {LINKS}, got {link!r}.')


def check_space(bias_on: str, field: str = 'bias_on') -> None:
    """Raises a ValueError for an unknown space, which names the config field."""
    if bias_on not in SPACES:
        raise ValueError(f"{field} must be 'log' or 'score', got {bias_on!r}.")


def check_topk(topk: int | Sequence[int]) -> tuple[int, ...]:
    """``topk`` as a tuple of different positive integers."""
    values = (topk, ) if isinstance(topk, int) else tuple(topk)
    whole = all(isinstance(k, int) and not isinstance(k, bool) and k > 0 for k in values)
    if not values or not whole or len(set(values)) < len(values):
        raise ValueError(
            f'topk must be a positive integer or a list of different ones, got {topk!r}.')
    return values


class PairGroups:
    """Pairs in groups: threshold j keeps the seen pairs and the unseen ones of groups >= j.

    Args:
        group (np.ndarray): Group of each pair, shape (P,): 0 … J - 1 for unseen pairs, J for the
            seen ones, J + 1 for those that no threshold keeps.
        num (int): Number of thresholds J.

    Attributes:
        group (np.ndarray): As given.
        outside (np.ndarray): For J = 1: 0 for the pairs of group j, -inf for the others, shape
            (2, P).
        order (np.ndarray): Indices of the pairs of groups 0 … J, group by group, rising in
            each; ``order[bounds[j]:bounds[j + 1]]`` is group j.
    """

    def __init__(self, group: np.ndarray, num: int) -> None:
        self.group, self.num = group, num
        self.outside = np.empty((0, 0), np.float32)
        if num == 1:
            self.outside = np.where(group == np.arange(2)[:, None], np.float32(0), -np.float32(
                np.inf))
        ends = np.bincount(group, minlength=num + 2).cumsum().tolist()
        self.bounds = [0, *ends[:num + 1]]
        self.order = group.argsort(kind='stable')[:ends[num]]
        self._room = np.empty((0, 0))

    @classmethod
    def all_feasible(cls, seen: Any) -> PairGroups:
        """One threshold that keeps every pair."""
        return cls(as_array(seen).astype(np.int64), 1)

    @classmethod
    def from_thresholds(cls, rho: Any, seen: Any, thresholds: Any) -> PairGroups:
        """Groups for the rule :math:`\\rho > T` (Eq. 15); seen pairs are always feasible.

        Args:
            rho (np.ndarray): Feasibility of each pair, shape (P,).
            seen (np.ndarray): Which pairs are seen, shape (P,).
            thresholds (np.ndarray): Rising thresholds, shape (J,).
        """
        num = len(thresholds)
        passed = np.searchsorted(as_array(thresholds).astype(np.float64),
                                 as_array(rho).astype(np.float64))  # thresholds below rho
        group = np.where(passed > 0, passed - 1, num + 1)
        return cls(np.where(as_array(seen), num, group), num)

    def room(self, scores: np.ndarray) -> np.ndarray:
        """Memory like ``scores``, kept: fresh pages cost more than the arithmetic."""
        if self._room.dtype != scores.dtype or self._room.shape[1:] != scores.shape[1:] or len(
                self._room) < len(scores):
            self._room = np.empty_like(scores)
        return self._room[:len(scores)]


class Top(NamedTuple):
    """The K best pairs of a set: high scores first, among equals the lower index first."""

    score: np.ndarray  # (..., K), -inf where the set has fewer than K pairs
    pair: np.ndarray  # (..., K), index of the pair; P there


def top_of_groups(scores: np.ndarray, groups: PairGroups, k: int) -> Top:
    """Finds the k best pairs of each group.

    Args:
        scores (np.ndarray): Finite scores in single or double precision, shape (B, P).
        groups (PairGroups): J groups of unseen pairs and the seen pairs.
        k (int): How many pairs to find.

    Returns:
        Top: Scores and pair indices, shape (B, J + 1, k); the seen pairs come last.
    """
    size, num_pairs = scores.shape
    score = np.full((size, groups.num + 1, k), -np.inf, scores.dtype)
    pair = np.full(score.shape, num_pairs)
    for j, (part, columns) in enumerate(_split(scores, groups)):
        for rank in range(min(k, part.shape[1])):
            place = part.argmax(1)[:, None]
            best = np.take_along_axis(part, place, 1)
            score[:, j, rank] = best[:, 0]
            index = place if columns is None else columns[place]
            pair[:, j, rank] = np.where(best == -np.inf, num_pairs, index)[:, 0]
            np.put_along_axis(part, place, -np.inf, 1)
    return Top(score, pair)


def _split(scores: np.ndarray,
           groups: PairGroups) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yields scores (B, n) and rising pair indices (n,), or None for all, group by group."""
    room = groups.room(scores)
    if groups.num == 1:  # adding -inf to the other pairs is faster than a gather
        for outside in groups.outside:
            yield np.add(scores, outside, out=room), None
        return
    ordered = room[:, :len(groups.order)]
    for source, target in zip(scores, ordered):
        np.take(source, groups.order, out=target, mode='clip')
    for start, end in zip(groups.bounds, groups.bounds[1:]):
        yield ordered[:, start:end], groups.order[start:end]


def merge(first: Top, second: Top) -> Top:
    """The K best of two disjoint sets of pairs, each of shape (..., K)."""
    pair = np.concatenate([first.pair, second.pair], -1)
    score = np.concatenate([first.score, second.score], -1)
    order = pair.argsort(axis=-1, kind='stable')
    pair, score = (np.take_along_axis(part, order, -1) for part in (pair, score))
    order = (-score).argsort(axis=-1, kind='stable')
    pair, score = (np.take_along_axis(part, order, -1) for part in (pair, score))
    k = first.score.shape[-1]
    return Top(score[..., :k], pair[..., :k])


def accumulate(top: Top) -> Top:
    """Best pairs of the groups j, j + 1, … for each j; shapes (N, J, K)."""
    parts = [Top(top.score[:, j], top.pair[:, j]) for j in range(top.score.shape[1])]
    for j in range(len(parts) - 2, -1, -1):
        parts[j] = merge(parts[j], parts[j + 1])
    return Top(*(np.stack(part, 1) for part in zip(*parts)))


class Margins(NamedTuple):
    """Numbers kept for N samples, J thresholds and K values of k.

    ``margin`` is the least bias towards the sample's own side at which it is right: an unseen
    sample is right iff ``bias >= margin``, a seen one iff ``-bias >= margin``. A tie that the
    true pair loses moves the margin up by one float64 step, so that ``>=`` is exact.
    """

    is_seen: np.ndarray  # (N,) bool
    diff: np.ndarray  # (N, K): k-th best seen score - true score, in the space of the bias
    margin: np.ndarray  # (N, J, K), in the space of the bias
    score_diff: np.ndarray  # (N, K): the same two for a bias that is added to the scores
    score_margin: np.ndarray  # (N, J, K)
    attr_right: np.ndarray | None  # (N, J, K) bool, at bias 0
    obj_right: np.ndarray | None  # (N, J, K) bool, at bias 0

    def to_rows(self) -> list[np.ndarray]:
        """One float64 array per sample, which is what ranks exchange. Needs ``pairs``."""
        parts = [np.reshape(part, (len(self.is_seen), -1)) for part in self if part is not None]
        return list(np.concatenate(parts, axis=1, dtype=np.float64))

    @classmethod
    def from_rows(cls, rows: Sequence[np.ndarray], num_k: int) -> Margins:
        """The inverse of :meth:`to_rows`, for samples of any number of calls."""
        table = np.stack(rows)
        width = (table.shape[1] - 1 - 2 * num_k) // 4  # J · K
        ends = np.cumsum([1, num_k, width, num_k, width, width])
        seen, diff, margin, score_diff, score_margin, attr, obj = np.split(table, ends, axis=1)
        shape = (len(table), -1, num_k)
        return cls(seen[:, 0] > 0, diff, margin.reshape(shape), score_diff,
                   score_margin.reshape(shape), attr.reshape(shape) > 0, obj.reshape(shape) > 0)


Read = Callable[[Any, np.ndarray, PairGroups, int, Sequence[object], str], tuple[Top, np.ndarray]]


def read_block(scores: np.ndarray, targets: np.ndarray, groups: PairGroups, k: int,
               names: Sequence[object], bias_on: str) -> tuple[Top, np.ndarray]:
    """The k best pairs of each group, and the scores of the true pairs, shape (B,).

    Args:
        scores (np.ndarray): Shape (B, P).
        targets (np.ndarray): Index of the true pair, shape (B,).
        groups (PairGroups): As in :func:`reduce_scores`, like the other arguments.
        k (int): How many pairs.
        names (Sequence): What to call the samples in an error.
        bias_on (str): For 'log', negative scores are refused.
    """
    if scores.dtype not in (np.float32, np.float64):
        scores = scores.astype(np.float64)
    check_finite(scores, names)
    top = top_of_groups(scores, groups, k)
    true = np.take_along_axis(scores, targets[:, None], 1)[:, 0]
    # Logits show in any row; looking at all would take a pass.
    kept = np.concatenate([top.score.ravel(), true, scores[:1].ravel()])
    if bias_on == 'log' and ((kept < 0) & (kept > -np.inf)).any():
        check_positive(scores, names)
    return top, true


def reduce_scores(scores: Any, targets: Any, seen: Any, pairs: Any = None,
                  topk: Sequence[int] = (1, ), groups: PairGroups | None = None,
                  names: Sequence[object] | None = None, bias_on: str = 'score',
                  read: Read | None = None) -> Margins:
    """Reduces scores to :class:`Margins`; the only function that sees all pairs.

    A bias moves all unseen pairs together, so with ``r`` better pairs on its own side a sample is
    in the top k iff it beats the (k - r)-th best pair of the other side. Pairs are ordered as by
    ``argmax``: of equal scores the lower index comes first.

    Args:
        scores (np.ndarray): Shape (N, P). Finite.
        targets (np.ndarray): Index of the true pair, shape (N,).
        seen (np.ndarray): Which pairs are seen, shape (P,).
        pairs (np.ndarray, optional): (attribute, object) of each pair, shape (P, 2); needed for
            attribute and object accuracy.
        topk (Sequence[int]): The values of k.
        groups (PairGroups, optional): Which unseen pairs are feasible at each threshold.
            Defaults to all of them at one threshold.
        names (Sequence, optional): What to call the samples in an error. Defaults to 0, 1, ….
        bias_on (str): 'score' adds the bias to the scores, 'log' to their logarithms, which
            needs scores >= 0. Defaults to 'score'.
        read (Callable, optional): Reads a block of ``scores`` that are no array, as
            :func:`read_block`. Defaults to None: they are made one.

    Returns:
        Margins: A few numbers per sample.
    """
    check_space(bias_on)
    if read is None:
        scores, read = as_array(scores), read_block
    targets, seen = as_array(targets).astype(np.int64), as_array(seen).astype(bool)
    groups = groups or PairGroups.all_feasible(seen)
    names = names or range(len(targets))
    most = min(max(topk), len(seen))
    step = max(1, BLOCK // len(seen))
    blocks = [slice(start, start + step) for start in range(0, len(targets), step)]
    tops, true = zip(*(read(scores[block], targets[block], groups, most, names[block], bias_on)
                       for block in blocks))
    score, index = (np.concatenate(part) for part in zip(*tops))
    score = score.astype(np.float64)
    unseen_top = accumulate(Top(score[:, :-1], index[:, :-1]))
    seen_top = Top(np.broadcast_to(score[:, -1:], unseen_top.score.shape),
                   np.broadcast_to(index[:, -1:], unseen_top.pair.shape))
    return _compare(seen_top, unseen_top, np.concatenate(true).astype(np.float64), targets, seen,
                    None if pairs is None else as_array(pairs), topk, bias_on)


def check_positive(scores: np.ndarray, names: Sequence[object]) -> None:
    """Raises a ValueError that names the first sample with negative scores."""
    bad = (scores < 0).any(1)
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f'The scores of sample {names[row]} go down to {float(scores[row].min()):.4g}, so '
            "that they have no logarithm for bias_on='log'. If the scores are logits, set "
            "bias_on='score', or head.link='identity' for a head of yours.")


def check_finite(scores: np.ndarray, names: Sequence[object]) -> None:
    """Raises a ValueError that names the first sample with NaN or infinite scores."""
    with np.errstate(over='ignore', invalid='ignore'):
        sums = scores.sum(1)
    if np.isfinite(sums).all():  # one fast pass; huge scores overflow and are looked at
        return
    bad = (~np.isfinite(scores)).sum(1)
    if bad.any():
        row = int((bad > 0).argmax())
        raise ValueError(
            f'{int(bad[row])} of the {scores.shape[1]} pair scores of sample {names[row]} are NaN '
            f'or infinite, and {int((bad > 0).sum()) - 1} of the {len(bad) - 1} samples next to it '
            'have such scores too. Scores must be finite: look for a diverged loss or an overflow '
            'in half precision.')


def _compare(seen_top: Top, unseen_top: Top, true: np.ndarray, targets: np.ndarray,
             seen: np.ndarray, pairs: np.ndarray | None, topk: Sequence[int],
             bias_on: str) -> Margins:
    """Compares the true pair, of score ``true`` (N,), with both sides (N, J, K)."""
    is_seen = seen[targets]
    literal = _turns(seen_top, unseen_top, true, targets, seen, topk)
    turns = literal
    if bias_on == 'log':
        turns = _turns(_log(seen_top), _log(unseen_top), _logs(true), targets, seen, topk)
    attr_right = obj_right = None
    if pairs is not None:
        table = np.concatenate([pairs, np.full((1, 2), -1)])
        right = table[merge(seen_top, unseen_top).pair] == table[targets][:, None, None]
        right = np.stack([right[:, :, :k].any(2) for k in topk], 2)  # (N, J, K, 2)
        attr_right, obj_right = right[..., 0], right[..., 1]
    return Margins(is_seen, *turns, *literal, attr_right, obj_right)


def _logs(scores: np.ndarray) -> np.ndarray:
    with np.errstate(divide='ignore', invalid='ignore'):
        return np.maximum(np.log(scores), LOG_ZERO)


def _log(top: Top) -> Top:
    """The same pairs with the logarithms of their scores; places without a pair keep -inf."""
    return Top(np.where(top.score > -np.inf, _logs(top.score), top.score), top.pair)


def _turns(seen_top: Top, unseen_top: Top, true: np.ndarray, targets: np.ndarray,
           seen: np.ndarray, topk: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """``diff`` (N, K) and ``margin`` (N, J, K) of :class:`Margins`."""
    side, target = seen[targets][:, None, None], targets[:, None]
    hit = np.where(side, seen_top.pair, unseen_top.pair) == target[..., None]
    found, better = hit.any(-1), hit.argmax(-1)  # (N, J)
    scores, index = (np.where(side, *parts) for parts in zip(unseen_top, seen_top))

    most, num_seen = hit.shape[-1], int(seen.sum())
    margins, diffs = [], []
    for k in topk:
        rank = min(k, most) - 1 - better  # of the pair on the other side that must not win
        place = rank.clip(0)[..., None]
        margin = np.take_along_axis(scores, place, -1)[..., 0] - true[:, None]
        lower = np.take_along_axis(index, place, -1)[..., 0] < target
        margin = np.where(lower, np.nextafter(margin, np.inf), margin)
        margins.append(np.where(~found | (rank < 0), np.inf, margin))
        last = min(k, num_seen)  # without seen pairs no bias matters, and 0 is as good as any
        diffs.append(seen_top.score[:, 0, last - 1] - true if last else np.zeros_like(true))
    return np.stack(diffs, -1), np.stack(margins, -1)


def calculate(scores: Any,
              targets: Any,
              seen: Any,
              pairs: Any = None,
              topk: int | Sequence[int] = 1,
              bias_on: str = 'score') -> dict[str, float]:
    """Calculates all numbers from arrays, lists or tensors, with NumPy only.

    Args:
        scores (np.ndarray): Finite score of each pair, shape (N, P).
        targets (np.ndarray): Index of the true pair, shape (N,).
        seen (np.ndarray): Which pairs are seen, shape (P,).
        pairs (np.ndarray, optional): (attribute, object) of each pair, shape (P, 2); adds
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
    scores, targets, seen = map(as_array, (scores, targets, seen))
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f'scores must have shape (N, P), got {scores.shape}.')
    for name, value, shape in (('targets', targets, scores.shape[:1]),
                               ('seen', seen, scores.shape[1:])):
        if value.shape != shape:
            raise ValueError(f'{name} must have shape {shape} to go with scores of shape '
                             f'{scores.shape}, got {value.shape}.')
    outside = (targets < 0) | (targets >= len(seen))
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(f'targets must be pair indices in [0, {len(seen)}), got '
                         f'{int(targets[row])} for sample {row} ({int(outside.sum())} such '
                         'samples).')
    if pairs is not None:
        pairs = as_array(pairs)
        if pairs.shape != (len(seen), 2):
            raise ValueError(f'pairs must have shape ({len(seen)}, 2), got {pairs.shape}.')
    topk = check_topk(topk)
    return summarise(reduce_scores(scores, targets, seen, pairs, topk, bias_on=bias_on), topk)


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
