"""Prototype-based contrastive learning (Eq. 10)."""
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmcluspro.registry import MODELS


def prototype_contrast(features: Tensor, rows: Tensor, prototypes: Tensor,
                       temperature: float) -> Tensor:
    """Mean of ``-log softmax(f . P / temperature)[row]`` over the assigned features.

    Args:
        features (Tensor): Unit-norm features, shape (N, D).
        rows (Tensor): Row of its positive prototype for each feature, -1 to leave it
            out, shape (N,).
        prototypes (Tensor): Positives and negatives, unit norm, shape (P, D).
        temperature (float): tau.

    Returns:
        Tensor: Scalar, zero (with zero gradient) if no feature is assigned.
    """
    losses = F.cross_entropy(features @ prototypes.T / temperature, rows, ignore_index=-1,
                             reduction='none')
    return losses.sum() / (rows >= 0).sum().clamp_min(1)


@MODELS.register_module()
class PCLLoss(nn.Module):
    """Pulls each feature towards its prototype and away from all others of both branches.

    Attributes and objects are one set of primitives: the K(M+N) prototypes of both
    branches form one table and the loss is the mean over the features of both branches.

    Args:
        temperature (float): tau. Defaults to 0.1.
        loss_weight (float): alpha. Defaults to 0.2.
    """

    def __init__(self, temperature: float = 0.1, loss_weight: float = 0.2) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f'loss_pcl.temperature must be positive, got {temperature}.')
        if loss_weight < 0:
            raise ValueError(f'loss_pcl.loss_weight must be at least 0, got {loss_weight}.')
        self.temperature = temperature
        self.loss_weight = loss_weight

    def forward(self, features: Sequence[Tensor], rows: Sequence[Tensor | None],
                prototypes: Sequence[Tensor | None]) -> Tensor:
        """Weighted loss; runs in float32.

        Args:
            features (Sequence[Tensor]): Features of each branch, scaled to unit norm here,
                shapes (N_i, D).
            rows (Sequence[Tensor or None]): Assignment of each branch as rows of its own
                prototypes, -1 to leave a feature out, shapes (N_i,). None for a branch without
                clustering (Table 4c).
            prototypes (Sequence[Tensor or None]): Prototypes of each branch, shapes (P_i, D).

        Returns:
            Tensor: Scalar. The prototypes get no gradient.
        """
        branches = [(f, r, p) for f, r, p in zip(features, rows, prototypes)
                    if r is not None and p is not None]
        if not branches:
            return features[0].sum() * 0.0
        with torch.autocast(features[0].device.type, enabled=False):
            first, table_rows = 0, []
            for _, row, table in branches:
                table_rows.append(torch.where(row >= 0, row + first, -1))
                first += len(table)
            loss = prototype_contrast(
                F.normalize(torch.cat([f for f, _, _ in branches]).float(), dim=1),
                torch.cat(table_rows),
                torch.cat([p for _, _, p in branches]).detach().float(), self.temperature)
        return self.loss_weight * loss
