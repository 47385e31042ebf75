"""The prototypes that are nearest to an image: what its attribute and object look like."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import functional as F

from mmcluspro.models.structures import Features


class NearPrototype(NamedTuple):
    """Number ``place`` (from 1) of the ``size`` prototypes of a primitive, ``row`` of the bank."""
    name: str
    place: int
    size: int
    cosine: float
    row: int = 0


def nearest_prototypes(feature: Tensor, prototypes: Tensor, offsets: Tensor,
                       names: Sequence[str], count: int) -> list[NearPrototype]:
    """Prototypes of all primitives by their cosine to a feature, nearest first.

    Args:
        feature (Tensor): f_a or f_o of Eq. 1, shape (D,).
        prototypes (Tensor): Shape (P, D).
        offsets (Tensor): ``prototypes[offsets[c]:offsets[c + 1]]`` belong to primitive ``c``,
            shape (C + 1,).
        names (Sequence[str]): C names.
        count (int): How many to return at most.
    """
    cosine = F.normalize(prototypes.float(), dim=1) @ F.normalize(feature.float(), dim=0)
    best = cosine.topk(min(count, len(cosine)))
    owners = (offsets[1:, None] <= best.indices).sum(dim=0).tolist()
    starts, sizes = offsets.tolist(), offsets.diff().tolist()
    return [NearPrototype(names[owner], row - starts[owner] + 1, sizes[owner], value, row)
            for owner, row, value in zip(owners, best.indices.tolist(), best.values.tolist())]


def prototypes_of(head: Any, feats: Features, count: int) -> dict[str, list[NearPrototype]]:
    """The nearest prototypes of one image by branch; empty for a model without prototypes.

    Args:
        head (Any): The model's head.
        feats (Features): Of one image.
        count (int): How many of each branch.
    """
    names = dict(attr=head.space.attributes, obj=head.space.objects)
    return {
        branch: nearest_prototypes(feats.primitives[branch][0], bank.prototypes, bank.offsets,
                                   names[branch], count)
        for branch, bank in head.prototypes.items() if branch in feats.primitives
    }
