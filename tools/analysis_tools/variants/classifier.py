"""Prototypes inside the classifier, in training and in testing."""
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.models import Candidates
from mmcluspro.models.heads import ClusProHead
from mmcluspro.models.prototypes import PrototypeBank
from mmcluspro.models.structures import Features, Logits, Texts, as_features
from mmcluspro.registry import MODELS

BRANCHES = ('attr', 'obj')


def soft_cosine(features: Tensor, prototypes: Tensor, owner: Tensor, num_classes: int,
                temperature: float) -> Tensor:
    """``t log mean_k exp(f . p_ck / t)`` over the prototypes of each primitive, shape (N, C).

    Args:
        features (Tensor): Unit norm, shape (N, D).
        prototypes (Tensor): Unit norm, shape (P, D).
        owner (Tensor): Primitive of each prototype, shape (P,).
        num_classes (int): C.
        temperature (float): t; the maximum for t -> 0, the mean for t -> infinity.
    """
    # A cosine is at most 1, so that no maximum has to be found.
    shares = torch.exp((features @ prototypes.T - 1) / temperature)
    total = shares.new_zeros(len(features), num_classes).index_add(1, owner, shares)
    return 1 + temperature * torch.log(total / torch.bincount(owner, minlength=num_classes))


@MODELS.register_module()
class PrototypeLogitsHead(ClusProHead):
    """Logit of a primitive: text cosine + a learned share of its soft prototype cosine.

    The composition logit of (a, o) gets a share of the sum of both. Prototypes may move to
    unlabelled test images.

    Args:
        *args: As in ClusProHead.
        share (float): Share of each path at the start. Defaults to 0.1.
        temperature (float): Of :func:`soft_cosine`. Defaults to 0.1.
        **kwargs: As in ClusProHead.

    Attributes:
        step_size (float): How far the nearest prototype moves to a test image; 0 in training.
    """

    scores_with_prototypes = True

    def __init__(self, *args: Any, share: float = 0.1, temperature: float = 0.1,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.share = nn.Parameter(torch.full((3, ), float(share)))
        self.temperature = temperature
        self.step_size = 0.0
        self.moved: dict[str, Tensor] = {}

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        logits = super().compare(features, texts, candidates)
        if logits.attribute is None or logits.object is None:
            return logits
        soft = {branch: self._soft(branch, feature)
                for branch, feature in features.primitives.items()}
        attr, obj = soft['attr'][:, candidates.text_attributes], soft['obj'][
            :, candidates.text_objects]
        share = self.share * self.text.logit_scale.exp()
        return Logits(
            logits.attribute + share[0] * attr, logits.object + share[1] * obj,
            logits.composition + share[2] * (
                attr[:, candidates.pairs[:, 0]] + obj[:, candidates.pairs[:, 1]]))

    def _soft(self, branch: str, feature: Tensor) -> Tensor:
        bank: PrototypeBank = self.bank(branch)
        return soft_cosine(F.normalize(feature.float(), dim=1),
                           self.moved.get(branch, bank.prototypes), bank.owner, bank.num_classes,
                           self.temperature)

    def forget_adaptation(self) -> None:
        """Goes back to the prototypes of training."""
        self.moved = {}

    @torch.no_grad()
    def adapt(self, feats: Features) -> None:
        """Moves the nearest prototype of each image by ``step_size`` before they are scored."""
        if not self.step_size or self.training:
            return
        for branch, feature in as_features(feats).primitives.items():
            unit = F.normalize(feature.float(), dim=1)
            table = self.moved.get(branch, self.bank(branch).prototypes).clone()
            nearest = (unit @ table.T).argmax(dim=1)
            table.index_add_(0, nearest, self.step_size * (unit - table[nearest]))
            self.moved[branch] = F.normalize(table, dim=1)
