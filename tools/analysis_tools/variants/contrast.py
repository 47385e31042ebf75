"""Contrast with other positives: all prototypes of the own primitive, or its text."""
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.models.losses import PCLLoss
from mmcluspro.models.structures import TrainStep
from mmcluspro.registry import MODELS


@MODELS.register_module()
class OwnPCLLoss(PCLLoss):
    """Eq. 10 with the sum over all prototypes of the own primitive in the numerator.

    Modes of one primitive are not pushed apart.

    Args:
        num_prototypes (int): K, the same for all primitives. Defaults to 5.
        **kwargs: As in PCLLoss.
    """

    def __init__(self, num_prototypes: int = 5, **kwargs: float) -> None:
        super().__init__(**kwargs)
        self.num_prototypes = num_prototypes

    def forward(self, features: Sequence[Tensor], rows: Sequence[Tensor | None],
                prototypes: Sequence[Tensor | None]) -> Tensor:
        """As in PCLLoss; of ``rows`` only the primitive counts."""
        present = [(f, r, p) for f, r, p in zip(features, rows, prototypes)
                   if r is not None and p is not None]
        table = torch.cat([p for _, _, p in present]).detach().float()
        logits = F.normalize(torch.cat([f for f, _, _ in present]).float(),
                             dim=1) @ table.T / self.temperature
        first, owners = 0, []
        for _, row, own in present:
            owners.append(torch.where(row >= 0, (row + first) // self.num_prototypes, -1))
            first += len(own)
        classes = logits.unflatten(1, (-1, self.num_prototypes)).logsumexp(dim=2)
        return self.loss_weight * F.cross_entropy(classes, torch.cat(owners), ignore_index=-1)


@MODELS.register_module()
class TextContrast(nn.Module):
    """A control: PCL with the text of the primitive in the place of its prototypes.

    Args:
        temperature (float): tau. Defaults to 0.1.
        loss_weight (float): Defaults to 1.0.
    """

    def __init__(self, temperature: float = 0.1, loss_weight: float = 1.0) -> None:
        super().__init__()
        self.temperature, self.loss_weight = temperature, loss_weight

    def forward(self, step: TrainStep) -> Tensor:
        """Mean cross-entropy over the texts of both branches in one table."""
        features = F.normalize(torch.cat([*step.features.primitives.values()]).float(), dim=1)
        table = torch.cat([step.texts.attribute, step.texts.object]).float()
        rows = torch.cat([step.labels['attr'],
                          step.labels['obj'] + len(step.texts.attribute)])
        return self.loss_weight * F.cross_entropy(features @ table.T / self.temperature, rows)
