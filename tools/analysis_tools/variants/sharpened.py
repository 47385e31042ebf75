"""A control of ClusPro+: seen pairs are told apart by their texts once more, not by prototypes."""
from typing import Any

from mmcluspro.models import Candidates
from mmcluspro.models.heads import ThreePathHead, redistribute
from mmcluspro.models.structures import Features, Logits, Texts
from mmcluspro.registry import MODELS


@MODELS.register_module()
class SharpenedHead(ThreePathHead):
    """Prediction adds the composition logits of seen pairs to themselves.

    Args:
        *args: As in ThreePathHead.
        times (float): How often. Defaults to 0.
        **kwargs: As in ThreePathHead.
    """

    def __init__(self, *args: Any, times: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.times = times

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        logits = super().compare(features, texts, candidates)
        if self.training or not self.times:
            return logits
        return logits._replace(composition=redistribute(
            logits.composition, self.times * logits.composition, candidates.seen))
