"""The training images nearest to each prototype, in one pass and little memory."""
from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


class NearestImages:
    """Keeps the ``count`` best images of each prototype, by cosine, inside its primitive.

    Args:
        prototypes (Tensor): Shape (P, D).
        offsets (Tensor): ``prototypes[offsets[c]:offsets[c + 1]]`` belong to primitive ``c``,
            shape (C + 1,).
        count (int): Images to keep of each.
    """

    def __init__(self, prototypes: Tensor, offsets: Tensor, count: int) -> None:
        if count < 1:
            raise ValueError(f'The number of images must be at least 1, got {count}.')
        self.prototypes = F.normalize(prototypes.float().cpu(), dim=1)
        sizes = offsets.cpu().diff()
        self.owner = torch.arange(len(sizes)).repeat_interleave(sizes)
        self.cosine = torch.full((len(prototypes), count), -torch.inf)
        self.index = torch.full((len(prototypes), count), -1)
        self.assigned = torch.zeros(len(prototypes), dtype=torch.long)

    def update(self, features: Tensor, labels: Tensor, index: Tensor) -> None:
        """Looks at another batch.

        Args:
            features (Tensor): Shape (B, D).
            labels (Tensor): Primitive of each, shape (B,).
            index (Tensor): What to remember an image by, at least 0, shape (B,).
        """
        own = labels[:, None] == self.owner
        cosine = (F.normalize(features.float(), dim=1) @ self.prototypes.T).masked_fill(
            ~own, -torch.inf)
        has = own.any(dim=1)  # a primitive may have no prototypes
        self.assigned += torch.bincount(cosine[has].argmax(dim=1), minlength=len(self.assigned))
        # Stable, the kept ones first: of equal cosines the earlier image stays.
        every = torch.cat([self.cosine, cosine.T], dim=1)
        every, order = every.sort(dim=1, descending=True, stable=True)
        images = torch.cat([self.index, index.expand(len(self.index), -1)], dim=1)
        count = self.cosine.shape[1]
        self.cosine, self.index = every[:, :count], images.gather(1, order[:, :count])
        self.index = self.index.masked_fill(self.cosine == -torch.inf, -1)

    def shares(self) -> Tensor:
        """Share of its primitive's images whose nearest prototype each one is, shape (P,)."""
        classes = int(self.owner.max()) + 1 if len(self.owner) else 0
        total = torch.zeros(classes).index_add_(0, self.owner, self.assigned.float())
        return self.assigned / total[self.owner].clamp_min(1)

    def images(self, row: int) -> list[int]:
        """The images of a prototype, nearest first; fewer where there are not enough."""
        return [index for index in self.index[row].tolist() if index >= 0]
