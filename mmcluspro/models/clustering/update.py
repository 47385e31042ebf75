"""Prototype updating (Eq. 9), as pure functions without a loop over prototypes.

Sums go through a padded block (segments.py), never through ``index_add``, so that the result
does not depend on the order in which a GPU happens to add.
"""
import torch
from torch import Tensor

from .segments import ClassBlocks, own_columns, own_cosines, unit


def assigned_means(features: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of the features that share a row.

    Args:
        features (Tensor): Shape (N, D) with N >= 1.
        rows (Tensor): Prototype (or class) of each feature, shape (N,).

    Returns:
        tuple[Tensor, Tensor]: The rows that occur, ascending, shape (R,), and the means,
        shape (R, D).
    """
    groups = ClassBlocks.group(rows)
    return groups.classes, groups.pad(features).sum(dim=1) / groups.counts[:, None]


def momentum_update(old: Tensor, means: Tensor, momentum: float) -> Tensor:
    """Eq. 9 and back to unit norm: ``p <- unit(mu * p + (1 - mu) * mean)``.

    Args:
        old (Tensor): Prototypes, shape (R, D).
        means (Tensor): Mean of the features assigned to each, shape (R, D).
        momentum (float): mu.

    Returns:
        Tensor: New prototypes, shape (R, D). One whose terms cancel keeps its place.
    """
    new = momentum * old + (1 - momentum) * means
    return torch.where(new.norm(dim=1, keepdim=True) > 1e-6, unit(new), old)


def reseeded(prototypes: Tensor, dead: Tensor, features: Tensor, labels: Tensor,
             offsets: Tensor) -> tuple[Tensor, Tensor]:
    """New places for dead prototypes: the feature of the primitive that is represented worst.

    Args:
        prototypes (Tensor): Shape (P, D).
        dead (Tensor): Which may move, shape (P,).
        features (Tensor): Unit-norm features of the batch, shape (N, D).
        labels (Tensor): Primitive of each, shape (N,).
        offsets (Tensor): Shape (C + 1,).

    Returns:
        tuple[Tensor, Tensor]: Rows to move, at most one per primitive of the batch, shape (R,),
        and where to, shape (R, D).
    """
    groups = ClassBlocks.group(labels)
    rows, real = own_columns(groups.classes, offsets)
    movable = dead[rows] & real
    best = own_cosines(features, labels, prototypes, offsets)[0].amax(dim=1)
    worst = groups.pad(best).masked_fill(~groups.mask, torch.inf).argmin(dim=1)
    place = groups.pad(features)[torch.arange(len(worst), device=worst.device), worst]
    row = rows.gather(1, movable.int().argmax(dim=1, keepdim=True))[:, 0]
    chosen = movable.any(dim=1) & (place.norm(dim=1) > 0.5)
    return row[chosen], place[chosen]
