"""The best pairs of groups of pairs, with ties resolved as by ``torch.argmax``."""
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .feasibility import PairGroups


class Top(NamedTuple):
    """The K best pairs of a set: high scores first, among equals the lower index first."""

    score: Tensor  # (..., K), -inf where the set has fewer than K pairs
    pair: Tensor  # (..., K), index of the pair; P there


def top_of_groups(scores: Tensor, groups: PairGroups, k: int) -> Top:
    """Finds the k best pairs of each group (``torch.topk`` leaves the order of equals open).

    Args:
        scores (Tensor): Finite scores in single or double precision, shape (B, P).
        groups (PairGroups): J groups of unseen pairs and the seen pairs.
        k (int): How many pairs to find.

    Returns:
        Top: Scores and pair indices, shape (B, J + 1, k); the seen pairs come last.
    """
    size, num_pairs = scores.shape
    score = scores.new_full((size, groups.num + 1, k), -torch.inf)
    pair = torch.full(score.shape, num_pairs, device=scores.device)
    for j, (part, columns) in enumerate(groups.split(scores)):
        for rank in range(min(k, part.shape[1])):
            place = _first_maximum(part)
            best = part.gather(1, place)
            score[:, j, rank] = best[:, 0]
            pair[:, j, rank] = columns[place[:, 0]].masked_fill(best[:, 0] == -torch.inf, num_pairs)
            part.scatter_(1, place, -torch.inf)
    return Top(score, pair)


def _first_maximum(scores: Tensor) -> Tensor:
    """Lowest index of the maximum of each row, shape (B, 1)."""
    if scores.device.type == 'cpu':  # ten times faster than torch's, which is not vectorised
        return torch.from_numpy(scores.numpy().argmax(1))[:, None]
    return scores.argmax(1, keepdim=True)


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
