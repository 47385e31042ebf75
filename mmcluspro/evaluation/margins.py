"""The space in which a bias is added to scores: their logarithms, or the scores themselves.

For scores s >= 0 of Eq. 13 the bias is added to z = log s; a head whose scores are logits has
z = s. The logarithm is monotone, so that pairs keep their order, and for a head with one path
log p and the logits differ by a constant per image: the sweep over z is then the sweep over
logits of the published evaluators.

The best pairs of groups of pairs, with ties resolved as by ``torch.argmax``.

From a row of pair scores to the few numbers that decide every bias.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .feasibility import PairGroups

LINKS = ('log', 'identity')
SPACES = ('log', 'score')
LOG_ZERO = -150 * math.log(2)  # of a score that underflowed: below every positive float32


def log_scores(scores: Tensor, link: str = 'log') -> Tensor:
    """z of scores, in at least single precision.

    Args:
        scores (Tensor): Any shape.
        link (str): 'log' for scores of Eq. 13, 'identity' for logits. Defaults to 'log'.
    """
    check_link(link)
    scores = scores if scores.dtype == torch.float64 else scores.float()
    return scores.log().clamp_min(LOG_ZERO) if link == 'log' else scores


def check_link(link: str) -> None:
    """Raises a ValueError for an unknown link."""
    if link not in LINKS:
        raise ValueError(f'link must be one of {LINKS}, got {link!r}.')


def check_space(bias_on: str, field: str = 'bias_on') -> None:
    """Raises a ValueError for an unknown space, which names the config field."""
    if bias_on not in SPACES:
        raise ValueError(f"{field} must be 'log' or 'score', got {bias_on!r}.")


class Top(NamedTuple):
    """The K best pairs of a set: high scores first, among equals the lower index first."""

    score: Tensor  # (..., K), -inf where the set has fewer than K pairs
    pair: Tensor  # (..., K), index of the pair; P there


def top_of_groups(scores: Tensor, groups: PairGroups, k: int, buffer: Tensor) -> Top:
    """Finds the k best pairs of each group (``torch.topk`` leaves the order of equals open).

    Args:
        scores (Tensor): Finite scores in single or double precision, shape (B, P).
        groups (PairGroups): J groups of unseen pairs and the seen pairs, on the same device.
        k (int): How many pairs to find.
        buffer (Tensor): Like ``scores``; is overwritten.

    Returns:
        Top: Scores and pair indices, shape (B, J + 1, k); the seen pairs come last.
    """
    size, num_pairs = scores.shape
    score = scores.new_full((size, groups.num + 1, k), -torch.inf)
    pair = torch.full(score.shape, num_pairs, device=scores.device)
    for j, (part, columns) in enumerate(_split(scores, groups, buffer)):
        for rank in range(min(k, part.shape[1])):
            place = _first_maximum(part)
            best = part.gather(1, place)
            score[:, j, rank] = best[:, 0]
            index = place if columns is None else columns[place]
            pair[:, j, rank] = index.masked_fill(best == -torch.inf, num_pairs)[:, 0]
            part.scatter_(1, place, -torch.inf)
    return Top(score, pair)


def _split(scores: Tensor, groups: PairGroups,
           buffer: Tensor) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yields scores (B, n) and rising pair indices (n,), or None for all, group by group."""
    if groups.num == 1:  # adding -inf to the other pairs is faster than a gather
        for outside in groups.outside:
            yield _add(scores, outside, buffer), None
        return
    ordered = _take(scores, groups.order, buffer[:, :len(groups.order)])
    for start, end in zip(groups.bounds, groups.bounds[1:]):
        yield ordered[:, start:end], groups.order[start:end]


def as_matrix(rows: Sequence[Tensor]) -> Tensor:
    """Rows (P,) as a matrix (B, P), without a copy if they are neighbours in one tensor."""
    first = rows[0]
    storage, step = first.untyped_storage().data_ptr(), first.numel() * first.element_size()
    neighbours = all(
        row.untyped_storage().data_ptr() == storage and row.dtype == first.dtype
        and row.is_contiguous() and row.data_ptr() == first.data_ptr() + i * step
        for i, row in enumerate(rows))
    if neighbours:
        return first.as_strided((len(rows), len(first)), (len(first), 1))
    return torch.stack(list(rows))


# The four operations that see every score. On the CPU numpy does them: its argmax is vectorised
# and torch's is not, and without threads there is no barrier at which busy data workers, which
# are the rule during validation, hold it up.


def uses_numpy(scores: Tensor) -> bool:
    """Whether NumPy computes on these scores: it is faster than torch on the CPU."""
    return scores.device.type == 'cpu'


def row_sums(scores: Tensor) -> Tensor:
    """Sum of each row, shape (B,); finite only if all its scores are."""
    if not uses_numpy(scores):
        return scores.sum(1)
    with np.errstate(over='ignore', invalid='ignore'):
        return torch.from_numpy(scores.numpy().sum(1))


def _add(scores: Tensor, row: Tensor, out: Tensor) -> Tensor:
    if not uses_numpy(scores):
        return torch.add(scores, row, out=out)
    np.add(scores.numpy(), row.numpy(), out=out.numpy())
    return out


def _take(scores: Tensor, columns: Tensor, out: Tensor) -> Tensor:
    if not uses_numpy(scores):
        return torch.index_select(scores, 1, columns)
    for source, target in zip(scores.numpy(), out.numpy()):
        np.take(source, columns.numpy(), out=target, mode='clip')
    return out


def _first_maximum(scores: Tensor) -> Tensor:
    if not uses_numpy(scores):
        return scores.argmax(1, keepdim=True)
    return torch.from_numpy(scores.numpy().argmax(1))[:, None]


def merge(first: Top, second: Top) -> Top:
    """The K best of two disjoint sets of pairs, each of shape (..., K)."""
    index, order = torch.cat([first.pair, second.pair], -1).sort(-1)
    score = torch.cat([first.score, second.score], -1).gather(-1, order)
    score, order = score.sort(dim=-1, descending=True, stable=True)
    k = first.score.shape[-1]
    return Top(score[..., :k], index.gather(-1, order)[..., :k])


def accumulate(top: Top) -> Top:
    """Best pairs of the groups j, j + 1, … for each j; shapes (N, J, K)."""
    parts = [Top(*part) for part in zip(top.score.unbind(1), top.pair.unbind(1))]
    for j in range(len(parts) - 2, -1, -1):
        parts[j] = merge(parts[j], parts[j + 1])
    return Top(*(torch.stack(part, 1) for part in zip(*parts)))


BLOCK = 2**21  # scores looked at together: small enough for the cache, large enough to vectorise


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


def reduce_scores(scores: Tensor | Sequence[Tensor],
                  targets: Tensor,
                  seen: Tensor,
                  pairs: Tensor | None = None,
                  topk: Sequence[int] = (1, ),
                  groups: PairGroups | None = None,
                  names: Sequence[object] | None = None,
                  bias_on: str = 'score') -> Margins:
    """Reduces scores to :class:`Margins`; the only function that sees all pairs.

    A bias moves all unseen pairs together, so with ``r`` better pairs on its own side a sample is
    in the top k iff it beats the (k - r)-th best pair of the other side. Pairs are ordered as by
    ``torch.argmax``: of equal scores the lower index comes first.

    Args:
        scores (Tensor | Sequence[Tensor]): Shape (N, P), or N rows of shape (P,). Finite.
        targets (Tensor): Index of the true pair, shape (N,).
        seen (Tensor): Which pairs are seen, shape (P,).
        pairs (Tensor, optional): (attribute, object) of each pair, shape (P, 2); needed for
            attribute and object accuracy.
        topk (Sequence[int]): The values of k.
        groups (PairGroups, optional): Which unseen pairs are feasible at each threshold.
            Defaults to all of them at one threshold.
        names (Sequence, optional): What to call the samples in an error. Defaults to 0, 1, ….
        bias_on (str): 'score' adds the bias to the scores, 'log' to their logarithms, which
            needs scores >= 0. Defaults to 'score'.

    Returns:
        Margins: A few numbers per sample.
    """
    check_space(bias_on)
    groups = (groups or PairGroups.all_feasible(seen)).to(scores[0].device)
    names = names or range(len(targets))
    most = min(max(topk), len(seen))
    step = max(1, BLOCK // len(seen))
    tops, true, buffer = [], [], torch.empty(0)
    for start in range(0, len(targets), step):
        block = scores[start:start + step]
        block = block if isinstance(block, Tensor) else as_matrix(block)
        if block.dtype not in (torch.float32, torch.float64):
            block = block.float() if block.is_floating_point() else block.double()
        check_finite(block, names[start:start + step])
        if not start:
            buffer = torch.empty_like(block)  # once: fresh pages cost more than the arithmetic
            if bias_on == 'log':  # logits show in any row; looking at all would take a pass
                check_positive(block[:1], names[:1])
        top = top_of_groups(block, groups, most, buffer[:len(block)])
        tops.append(top)
        target = targets[start:start + step, None].to(block.device)
        true.append(block.gather(1, target).squeeze(1))
        kept = torch.cat([top.score.flatten(), true[-1]])
        if bias_on == 'log' and bool(((kept < 0) & (kept > -torch.inf)).any()):
            check_positive(block, names[start:start + step])

    score, index = (torch.cat(part).cpu() for part in zip(*tops))
    score = score.double()
    unseen_top = accumulate(Top(score[:, :-1], index[:, :-1]))
    seen_top = Top(score[:, -1:].expand_as(unseen_top.score),
                   index[:, -1:].expand_as(unseen_top.pair))
    return _compare(seen_top, unseen_top, torch.cat(true).cpu().double(), targets.cpu(),
                    seen.cpu(), pairs, topk, bias_on)


def check_positive(scores: Tensor, names: Sequence[object]) -> None:
    """Raises a ValueError that names the first sample with negative scores."""
    bad = (scores < 0).any(1)
    if bad.any():
        row = int(bad.nonzero()[0])
        raise ValueError(
            f'The scores of sample {names[row]} go down to {float(scores[row].min()):.4g}, so '
            "that they have no logarithm for bias_on='log'. If the scores are logits, set "
            "bias_on='score', or head.link='identity' for a head of yours.")


def check_finite(scores: Tensor, names: Sequence[object]) -> None:
    """Raises a ValueError that names the first sample with NaN or infinite scores."""
    if row_sums(scores).isfinite().all():  # one fast pass; huge scores overflow and are looked at
        return
    bad = (~scores.isfinite()).sum(1)
    if bad.any():
        row = int(bad.nonzero()[0])
        raise ValueError(
            f'{int(bad[row])} of the {scores.shape[1]} pair scores of sample {names[row]} are NaN '
            f'or infinite, and {int((bad > 0).sum()) - 1} of the {len(bad) - 1} samples next to it '
            'have such scores too. Scores must be finite: look for a diverged loss or an overflow '
            'in half precision.')


def _compare(seen_top: Top, unseen_top: Top, true: Tensor, targets: Tensor, seen: Tensor,
             pairs: Tensor | None, topk: Sequence[int], bias_on: str) -> Margins:
    """Compares the true pair, of score ``true`` (N,), with both sides (N, J, K)."""
    is_seen = seen[targets]
    literal = _turns(seen_top, unseen_top, true, targets, seen, topk)
    turns = literal
    if bias_on == 'log':
        turns = _turns(_log(seen_top), _log(unseen_top), log_scores(true), targets, seen, topk)
    attr_right = obj_right = None
    if pairs is not None:
        table = torch.cat([pairs.cpu(), torch.full((1, 2), -1)])
        best = merge(seen_top, unseen_top).pair
        right = table[best] == table[targets][:, None, None]  # (N, J, K, 2)
        right = torch.stack([right[:, :, :k].any(2) for k in topk], 2)
        attr_right, obj_right = (part.numpy() for part in right.unbind(-1))
    return Margins(is_seen.numpy(), *turns, *literal, attr_right, obj_right)


def _log(top: Top) -> Top:
    """The same pairs with the logarithms of their scores; places without a pair keep -inf."""
    return Top(log_scores(top.score).where(top.score > -torch.inf, top.score), top.pair)


def _turns(seen_top: Top, unseen_top: Top, true: Tensor, targets: Tensor, seen: Tensor,
           topk: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """``diff`` (N, K) and ``margin`` (N, J, K) of :class:`Margins`."""
    side, target = seen[targets][:, None, None], targets[:, None]
    hit = torch.where(side, seen_top.pair, unseen_top.pair) == target[..., None]
    found, better = hit.any(-1), hit.int().argmax(-1)  # (N, J)
    other = [torch.where(side, *parts) for parts in zip(unseen_top, seen_top)]

    most, num_seen = hit.shape[-1], int(seen.sum())
    margins, diffs = [], []
    for k in topk:
        rank = min(k, most) - 1 - better  # of the pair on the other side that must not win
        rival_score, rival_index = (
            part.gather(-1, rank.clamp(0)[..., None])[..., 0] for part in other)
        margin = rival_score - true[:, None]
        above = torch.nextafter(margin, torch.full_like(margin, torch.inf))
        margin = torch.where(rival_index < target, above, margin)
        margins.append(margin.masked_fill(~found | (rank < 0), torch.inf))
        last = min(k, num_seen)  # without seen pairs no bias matters, and 0 is as good as any
        diffs.append(seen_top.score[:, 0, last - 1] - true if last else torch.zeros_like(true))
    return torch.stack(diffs, -1).numpy(), torch.stack(margins, -1).numpy()
