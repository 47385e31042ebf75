"""An assigner: nearest prototype, but crowded ones cost more."""
import torch
from torch import Tensor

from mmcluspro.models.prototypes.problems import own_cosines, unit
from mmcluspro.registry import MODELS


@MODELS.register_module()
class CrowdAssigner:
    """Assigns by cosine less a price for crowding.

    In each round a prototype that more than its fair share 1/K of its primitive's features chose
    gets dearer by ``price`` times the excess. A middle way between the nearest prototype, which
    may leave prototypes empty, and transport, which makes all shares equal.

    Args:
        price (float): Price of an excess of one, in units of the cosine. Defaults to 0.5.
        rounds (int): How often the prices are set. Defaults to 3.
    """

    def __init__(self, price: float = 0.5, rounds: int = 3) -> None:
        if price < 0:
            raise ValueError(f'assigner.price must be at least 0, got {price}.')
        self.price = price
        self.rounds = rounds

    @torch.no_grad()
    def __call__(self, features: Tensor, labels: Tensor, prototypes: Tensor, offsets: Tensor,
                 context: Tensor | None = None, context_count: Tensor | None = None) -> Tensor:
        """Chooses a prototype for each feature.

        Args:
            features (Tensor): Features of all ranks, shape (N, D).
            labels (Tensor): Primitive of each feature in [0, C), shape (N,).
            prototypes (Tensor): All prototypes, shape (P, D).
            offsets (Tensor): ``prototypes[offsets[c]:offsets[c + 1]]`` belong to primitive ``c``,
                shape (C + 1,).
            context (Tensor, optional): Features of the queue, shape (C, Q, D); not used here.
            context_count (Tensor, optional): How many there are, shape (C,).

        Returns:
            Tensor: Row of ``prototypes`` for each feature, or -1 to leave it out, shape (N,).
        """
        cosine, rows = own_cosines(unit(features.float()), labels, prototypes, offsets)
        size = offsets.diff().to(cosine.dtype)  # K of each primitive
        owner = torch.repeat_interleave(offsets.diff())  # primitive of each prototype
        count = torch.bincount(labels, minlength=len(size)).clamp_min(1)
        cost = cosine.new_zeros(len(prototypes))
        for _ in range(self.rounds):
            chosen = rows.gather(1, (cosine - cost[rows]).argmax(dim=1, keepdim=True))[:, 0]
            share = torch.bincount(chosen, minlength=len(cost)) / count[owner]
            cost = cost + self.price * (share - 1 / size[owner]).clamp_min(0)
        return rows.gather(1, (cosine - cost[rows]).argmax(dim=1, keepdim=True))[:, 0]
