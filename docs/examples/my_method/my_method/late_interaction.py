"""A head that compares single words with single patches."""
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from mmcluspro.models import Candidates
from mmcluspro.models.heads import CompositionHead, Portable, ThreePathHead
from mmcluspro.models.structures import Features, Logits, Texts
from mmcluspro.registry import MODELS


@MODELS.register_module()
class LateInteractionHead(ThreePathHead):
    """Adds the mean over words of the best cosine to a patch to the composition logits.

    Args:
        *args: As in ThreePathHead.
        layer (str): Which raw tokens of the image tower, of ``backbone.out_layers``.
        in_channels (int): Their width.
        weight (float): Weight of the addition. Defaults to 0.5.
        **kwargs: As in ThreePathHead.
    """

    def __init__(self, *args: Any, layer: str, in_channels: int, weight: float = 0.5,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.layer, self.weight = layer, weight
        self.patch_proj = nn.Linear(in_channels, self.text.out_dim)

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        """Logits over candidates, in training and in testing."""
        logits = super().compare(features, texts, candidates)
        patches = F.normalize(self.patch_proj(features.extra[self.layer][:, 1:]), dim=-1)
        states, mask = self.text.encode_tokens(candidates.text_pairs)
        used = int(mask.sum(1).max())  # the rest of the sequence is padding
        words = F.normalize(self.text.project(states[:, :used]), dim=-1)
        best = torch.einsum('bld,ptd->bptl', patches, words).amax(-1)  # (B, P, words)
        mean = (best * mask[:, :used]).sum(-1) / mask.sum(1)
        scale = self.text.logit_scale.exp()
        return logits._replace(composition=logits.composition + self.weight * scale * mean)

    def portable(self) -> Portable:
        """A table of texts has no words: refused by name."""
        return CompositionHead.portable(self)
