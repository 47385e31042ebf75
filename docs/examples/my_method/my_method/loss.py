"""A loss: the own prototype must win by a margin over the next best."""
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.registry import MODELS


def margin_loss(features: Tensor, rows: Tensor, prototypes: Tensor, margin: float) -> Tensor:
    """Mean of ``max(0, margin + best other cosine - own cosine)``.

    Args:
        features (Tensor): Unit-norm features, shape (N, D).
        rows (Tensor): Own prototype of each feature, shape (N,).
        prototypes (Tensor): Unit-norm prototypes, shape (P, D) with P >= 2.
        margin (float): By how much the own prototype must win.

    Returns:
        Tensor: Scalar; zero, with zero gradient, without features.
    """
    cosine = features @ prototypes.T
    own = cosine.gather(1, rows[:, None])[:, 0]
    other = cosine.scatter(1, rows[:, None], -torch.inf).amax(dim=1)
    return F.relu(margin + other - own).sum() / max(len(rows), 1)


@MODELS.register_module()
class MarginLoss(nn.Module):
    """Stands in the place of prototype contrast, ``model.head.loss_pcl``.

    Args:
        margin (float): In units of the cosine. Defaults to 0.2.
        loss_weight (float): Weight in the objective. Defaults to 1.0.
    """

    def __init__(self, margin: float = 0.2, loss_weight: float = 1.0) -> None:
        super().__init__()
        if not 0 <= margin <= 2:
            raise ValueError(f'loss_pcl.margin must lie in [0, 2], got {margin}.')
        self.margin = margin
        self.loss_weight = loss_weight

    def forward(self, features: Sequence[Tensor], rows: Sequence[Tensor | None],
                prototypes: Sequence[Tensor | None]) -> Tensor:
        """Loss of both branches.

        Args:
            features (Sequence[Tensor]): Attribute and object features, two of shape (N, D).
            rows (Sequence[Tensor | None]): Prototype of each, -1 to leave a feature out, shapes
                (N,). None for a branch without clustering.
            prototypes (Sequence[Tensor | None]): Prototypes of each branch, shapes (P_i, D).

        Returns:
            Tensor: Scalar.
        """
        loss = features[0].sum() * 0.0
        for feature, row, table in zip(features, rows, prototypes):
            if row is not None and table is not None:
                known = row >= 0
                unit = F.normalize(feature.float()[known], dim=1)
                loss = loss + margin_loss(unit, row[known], table.detach(), self.margin)
        return self.loss_weight * loss
