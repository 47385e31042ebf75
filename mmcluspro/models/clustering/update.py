"""Prototype updating (Eq. 9), as pure functions without a loop over prototypes.

Shapes depend on the batch only, and the host never waits. Several features may carry the same
prototype: each computes its new place, and the first one's bits are written for all of them.
A leading dimension G counts branches.
"""
import torch
import torch.nn.functional as F
from torch import Tensor

from .segments import own_columns, own_cosines


def unit_or_zero(features: Tensor) -> tuple[Tensor, Tensor]:
    """Scales rows to norm one and replaces those that are not finite by zeros.

    Args:
        features (Tensor): Shape (G, N, D).

    Returns:
        tuple[Tensor, Tensor]: The features, and which were finite, shape (G, N).
    """
    norm = features.norm(dim=2, keepdim=True)
    finite = norm < torch.inf
    return torch.where(finite, features / norm.clamp_min(1e-12), 0.0), finite[:, :, 0]


def group_sums(features: Tensor, keys: Tensor, counted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum of the features that share a key.

    Args:
        features (Tensor): Finite, shape (G, N, D).
        keys (Tensor): Prototype (or class) of each feature, shape (G, N).
        counted (Tensor): Which features count, shape (G, N).

    Returns:
        tuple[Tensor, Tensor, Tensor]: For each feature the sum of the counted features with its
        key, shape (G, N, D), their number, shape (G, N, 1), and the first feature with the
        same key, shape (G, N, 1). Sums of equal keys may differ in their last bits.
    """
    same = keys[:, :, None] == keys[:, None]
    first = same.byte().argmax(dim=2, keepdim=True)
    weight = (same & counted[:, None]).to(features.dtype)
    return torch.bmm(weight, features), weight.sum(dim=2, keepdim=True), first


def moved(old: Tensor, sums: Tensor, count: Tensor, momentum: float | Tensor,
          normalize_mean: bool) -> tuple[Tensor, Tensor]:
    """Eq. 9 and back to unit norm: ``p <- unit(mu * p + (1 - mu) * mean)``.

    Args:
        old (Tensor): Prototypes, shape (G, N, D).
        sums (Tensor): Sum of the features assigned to each, same shape.
        count (Tensor): Their number, shape (G, N, 1).
        momentum (float or Tensor): mu, or one for each, shape (G, N, 1).
        normalize_mean (bool): Scale the mean to unit norm first (Algorithm 1).

    Returns:
        tuple[Tensor, Tensor]: New prototypes and the means, both of shape (G, N, D). A prototype
        without features, or whose terms cancel, keeps its place.
    """
    means = F.normalize(sums, dim=2) if normalize_mean else sums / count.clamp_min(1)
    if isinstance(momentum, float):
        new = torch.lerp(means, old, momentum)
    else:
        new = torch.lerp(means, old, momentum.to(old.dtype))
    norm = new.norm(dim=2, keepdim=True)
    stays = (norm <= 1e-6) | (count == 0)
    return torch.where(stays, old, new / norm.clamp_min(1e-6)), means


def correctly_classified(features: Tensor, labels: Tensor, prototypes: Tensor,
                         owner: Tensor) -> Tensor:
    """Features whose nearest prototype of all belongs to their own primitive (Algorithm 1).

    Args:
        features (Tensor): Unit norm, shape (N, D).
        labels (Tensor): Primitive of each, shape (N,).
        prototypes (Tensor): Unit norm, shape (P, D).
        owner (Tensor): Primitive of each prototype, shape (P,).

    Returns:
        Tensor: Booleans, shape (N,).
    """
    return owner[(features @ prototypes.T).argmax(dim=1)] == labels


def reseeded(prototypes: Tensor, dead: Tensor, features: Tensor, labels: Tensor,
             offsets: Tensor, valid: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """New places for dead prototypes: the feature of the primitive that is represented worst.

    Args:
        prototypes (Tensor): Shape (P, D).
        dead (Tensor): Which may move, shape (P,).
        features (Tensor): Unit-norm features of the batch, shape (N, D).
        labels (Tensor): Primitive of each, shape (N,).
        offsets (Tensor): Shape (C + 1,).
        valid (Tensor): Features to look at, shape (N,).
        width (int): Largest K.

    Returns:
        tuple[Tensor, Tensor, Tensor]: For each feature a row of its primitive, shape (N,), its
        place (the old one unless it moves), shape (N, D), and whether it moves, shape (N,).
        At most one row per primitive moves.
    """
    rows, real = own_columns(labels, offsets, width)
    movable = dead[rows] & real
    best = own_cosines(features, labels, prototypes, offsets, width)[0].amax(dim=1)
    seen = (labels[:, None] == labels) & valid
    worst = torch.where(seen, best, torch.inf).argmin(dim=1)
    place = features.index_select(0, worst)
    row = rows.gather(1, movable.byte().argmax(dim=1, keepdim=True))[:, 0]
    moves = movable.any(dim=1) & seen.any(dim=1) & (place.norm(dim=1) > 0.5)
    return row, torch.where(moves[:, None], place, prototypes[row]), moves
