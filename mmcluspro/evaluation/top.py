"""The best pairs of groups of pairs, with ties resolved as by ``torch.argmax``."""
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Top(NamedTuple):
    """The K best pairs of a set: high scores first, among equals the lower index first."""

    score: Tensor  # (..., K), -inf where the set has fewer than K pairs
    pair: Tensor  # (..., K), index of the pair; P there


def top_of_groups(scores: Tensor, group: Tensor, num: int, k: int) -> Top:
    """Finds the k best pairs of each group.

    ``torch.topk`` leaves the order of equal scores open, and a gather by group would copy all
    scores in random order; a segment maximum and a search for its first place do neither.

    Args:
        scores (Tensor): Finite scores, shape (B, P).
        group (Tensor): Group of each pair, shape (P,); pairs of group ``num`` are left out.
        num (int): Number of groups G.
        k (int): How many pairs to find.

    Returns:
        Top: Scores and pair indices, shape (B, G, k).
    """
    size, num_pairs = scores.shape
    every = group.expand(size, -1)
    values, indices = [], []
    for rank in range(k):
        best = scores.new_full((size, num + 1), -torch.inf)
        best.scatter_reduce_(1, every, scores, 'amax')
        row, column = (scores == best.gather(1, every)).nonzero(as_tuple=True)
        first = column.new_full((size * (num + 1), ), num_pairs)
        first.scatter_reduce_(0, row * (num + 1) + group[column], column, 'amin')
        first = first.view(size, num + 1).masked_fill(best == -torch.inf, num_pairs)
        values.append(best[:, :num])
        indices.append(first[:, :num])
        if rank + 1 < k:
            # One column more than pairs: the place of "no such pair".
            taken = scores.new_zeros((size, num_pairs + 1)).scatter_(1, first, -torch.inf)
            scores = scores + taken[:, :num_pairs]
    return Top(torch.stack(values, -1), torch.stack(indices, -1))


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
