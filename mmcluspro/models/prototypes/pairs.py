"""PairPrototypes: what an attribute and an object look like together, for each seen pair."""
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .bank import group_sums, unit_or_zero


class PairPrototypes(nn.Module):
    """Running means of the features of S seen pairs, in the attribute and the object branch.

    Two prototypes per pair, one in each branch: an attribute gets one for every object that it
    was seen with, an object one for every attribute. The assignment is the label, so nothing is
    clustered. A pair without an image has zeros.

    Args:
        pairs (Tensor): Attribute and object of each seen pair, shape (S, 2).
        sizes (tuple[int, int]): Attributes A and objects O.
        dim (int): Feature size, D.
        decay (float): A feature counts ``decay`` times as much after each newer feature of its
            pair, so that the mean follows the training over 1 / (1 - decay) features.
            Defaults to 0.95.
    """
    sums: Tensor
    keys: Tensor
    rows: Tensor

    def __init__(self, pairs: Tensor, sizes: tuple[int, int], dim: int,
                 decay: float = 0.95) -> None:
        super().__init__()
        if not 0 <= decay < 1:
            raise ValueError(f'head.pair_decay must lie in [0, 1), got {decay}.')
        self.decay = decay
        self.register_buffer('sums', torch.zeros(len(pairs), 2, dim))
        # Sorted keys a O + o and their rows: a table of A x O rows could fill the memory.
        self.sizes = sizes
        keys, rows = (pairs[:, 0] * sizes[1] + pairs[:, 1]).sort()
        self.register_buffer('keys', keys, persistent=False)
        self.register_buffer('rows', rows, persistent=False)

    def lookup(self, pairs: Tensor) -> Tensor:
        """Row of each pair (N, 2) of names, -1 for unseen pairs and names beyond A and O; (N,)."""
        if not len(self.keys):
            return torch.full_like(pairs[:, 0], -1)
        attributes, objects = self.sizes
        asked = pairs[:, 0] * objects + pairs[:, 1]
        places = torch.searchsorted(self.keys, asked).clamp_max(len(self.keys) - 1)
        known = ((pairs[:, 0] < attributes) & (pairs[:, 1] < objects)
                 & (self.keys[places] == asked))
        return torch.where(known, self.rows[places], -1)

    def of(self, pairs: Tensor) -> Tensor:
        """Unit-norm prototypes of pairs (N, 2), zeros where there are none; shape (N, 2, D)."""
        rows = self.lookup(pairs)
        found = F.normalize(self.sums[rows.clamp_min(0)], dim=2)
        return torch.where((rows >= 0)[:, None, None], found, 0.0)

    @torch.no_grad()
    def update(self, features: Tensor, pairs: Tensor) -> None:
        """Adds the features of a batch; those that are not finite are left out.

        Args:
            features (Tensor): Of both branches, shape (2, N, D).
            pairs (Tensor): Attribute and object of each image, shape (N, 2).
        """
        rows = self.lookup(pairs)
        unit, finite = unit_or_zero(features.float())
        # Images of no seen pair (those that fill up a rank) join another one, and do not count.
        place = torch.where(rows >= 0, rows, rows.max().clamp_min(0))
        sums, count, first = group_sums(unit, place.expand(2, -1), finite & (rows >= 0),
                                        max(len(self.sums), 1))
        new = self.decay ** count * self.sums[place].transpose(0, 1) + sums
        # Sums of one pair may differ in their last bits: all of its images write those of one.
        self.sums[place] = new.gather(1, first.expand_as(new)).transpose(0, 1)
