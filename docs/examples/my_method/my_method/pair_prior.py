"""A head that needs to know which pairs it compares with."""
from typing import Any

import torch
from torch import nn

from mmcluspro.models import Candidates
from mmcluspro.models.heads import ThreePathHead
from mmcluspro.models.structures import Features, Logits, Texts
from mmcluspro.registry import MODELS


@MODELS.register_module()
class PairPriorHead(ThreePathHead):
    """Learns how common each attribute and each object is, and adds both to the pair's logit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.attr_prior = nn.Parameter(torch.zeros(len(self.space.attributes)))
        self.obj_prior = nn.Parameter(torch.zeros(len(self.space.objects)))

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        """Logits over candidates; names that were not trained have the mean prior."""
        logits = super().compare(features, texts, candidates)
        prior = sum(
            self._prior(table, places) for table, places in zip(
                (self.attr_prior, self.obj_prior), candidates.text_pairs.T))
        return logits._replace(composition=logits.composition + prior)

    @staticmethod
    def _prior(table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        known = places < len(table)
        return torch.where(known, table[places.clamp(max=len(table) - 1)], table.mean())
