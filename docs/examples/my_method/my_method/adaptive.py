"""A head that moves its prototypes to the unlabelled images it is tested on."""
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.models import Candidates
from mmcluspro.models.heads import ClusProHead
from mmcluspro.models.structures import Features, Scores, as_features
from mmcluspro.registry import MODELS


@MODELS.register_module()
class AdaptiveHead(ClusProHead):
    """Scores attributes by their nearest prototype, too, and moves it to the image first.

    Args:
        *args: As in ClusProHead.
        step (float): How far a prototype moves to an image. Defaults to 0.05.
        weight (float): Weight of the prototypes in the scores. Defaults to 0.1.
        **kwargs: As in ClusProHead.
    """

    scores_with_prototypes = True  # published files keep the prototypes

    def __init__(self, *args: Any, step: float = 0.05, weight: float = 0.1,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.step_size, self.weight = step, weight
        self.moved: Tensor | None = None

    def forget_adaptation(self) -> None:
        """Before each evaluation: the prototypes that training left."""
        self.moved = None

    @torch.no_grad()
    def adapt(self, feats: Features) -> None:
        """Before a batch is scored: moves the nearest prototype of each image."""
        unit = F.normalize(as_features(feats).primitives['attr'].float(), dim=1)
        table = self._table().clone()
        nearest = (unit @ table.T).argmax(dim=1)
        table.index_add_(0, nearest, self.step_size * (unit - table[nearest]))
        self.moved = F.normalize(table, dim=1)

    def score(self, feats: Features, candidates: Candidates) -> Scores:
        """Eq. 13 plus the cosine of the nearest prototype of the attribute."""
        scores, bank = super().score(feats, candidates), self.bank('attr')
        unit = F.normalize(as_features(feats).primitives['attr'].float(), dim=1)
        owner = torch.repeat_interleave(bank.offsets.diff())
        near = unit.new_full((len(unit), bank.num_classes), -1.0).scatter_reduce(
            1, owner.expand(len(unit), -1), unit @ self._table().T, 'amax')
        known = candidates.text_pairs[:, 0].clamp(max=bank.num_classes - 1)
        return scores._replace(pair=scores.pair + self.weight * (1 + near[:, known]))

    def _table(self) -> Tensor:
        return self.bank('attr').prototypes if self.moved is None else self.moved
