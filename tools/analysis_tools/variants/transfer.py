"""Transfer of looks: what separates two prototypes of one primitive is added to another one."""
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.models.heads import ClusProHead
from mmcluspro.models.structures import TrainStep
from mmcluspro.registry import MODELS


def transferred(features: Tensor, looks: Tensor, donors: Tensor, chosen: Tensor) -> Tensor:
    """``unit(f + p_bk' - p_bk)``: a feature with the look k' of the donor b.

    k is the donor's prototype that is closest to the feature.

    Args:
        features (Tensor): Unit norm, shape (N, D).
        looks (Tensor): Unit-norm prototypes, shape (C, K, D).
        donors (Tensor): b of each feature, shape (N,).
        chosen (Tensor): k' of each feature, shape (N,).
    """
    own = looks[donors]
    nearest = torch.einsum('nd,nkd->nk', features, own).argmax(dim=1)
    rows = torch.arange(len(features), device=features.device)
    return F.normalize(features + own[rows, chosen] - own[rows, nearest], dim=1)


@MODELS.register_module()
class TransferHead(ClusProHead):
    """Classifies features with the looks of other primitives, so that looks do not count.

    An attribute is seen with some objects only; the difference of two looks of another attribute
    shows how its feature would change with an object that training never showed it with. The
    virtual features keep their label and join the cross-entropies of Eq. 3 and 4.

    Args:
        *args: As in ClusProHead; K is the same for all primitives.
        donor (str): 'other' takes the looks of a random primitive, 'own' (a control) those of
            the same one. Defaults to 'other'.
        transfer_weight (float): Weight of both losses. Defaults to 1.0.
        **kwargs: As in ClusProHead.
    """

    def __init__(self, *args: Any, donor: str = 'other', transfer_weight: float = 1.0,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.donor, self.transfer_weight = donor, transfer_weight
        self.generator = torch.Generator().manual_seed(0)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """Adds ``attr_transfer_loss`` and ``obj_transfer_loss``."""
        losses = super().terms(step)
        scale = self.text.logit_scale.exp()
        for branch, texts in (('attr', step.texts.attribute), ('obj', step.texts.object)):
            bank, own = self.bank(branch), step.labels[branch]
            looks = bank.prototypes.view(bank.num_classes, -1, bank.prototypes.shape[1])
            donors = own if self.donor == 'own' else torch.randint(
                len(looks), own.shape, generator=self.generator).to(own.device)
            chosen = torch.randint(looks.shape[1], own.shape,
                                   generator=self.generator).to(own.device)
            unit = F.normalize(step.features.primitives[branch].float(), dim=1)
            virtual = transferred(unit, looks, donors, chosen)
            losses[f'{branch}_transfer_loss'] = self.transfer_weight * F.cross_entropy(
                scale * virtual @ texts.float().T, own)
        return losses
