"""The best pairs of groups of pairs, with ties resolved as by ``torch.argmax``."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .feasibility import PairGroups


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
