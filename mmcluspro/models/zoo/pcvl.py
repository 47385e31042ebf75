"""PCVL: context and vocabulary of one prompt learn together.

Xu, Kordjamshidi and Chai, "Prompting Large Pre-trained Vision-Language Models For Compositional
Concept Learning" (PromptCompVL).
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any

from mmcluspro.fields import Unsaved
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads import ThreePathHead
from mmcluspro.models.heads.three_path import Fusion
from mmcluspro.models.structures import Features, Logits, Texts
from mmcluspro.registry import MODELS

from .common import require_one_path


@MODELS.register_module()
class PCVLHead(ThreePathHead):
    """Soft prompts and soft embeddings on frozen towers, composition path only.

    The prompt of a pair is [v_1 … v_m, θ_a, θ_o]: context v and embeddings θ both learn (CoOp
    learns v, CSP θ). With the unit feature f of the image and t_c of the prompt,

        p(c | x) = softmax_c(f · t_c / τ),   L = CE(p(c)) + λ_a CE(p(a)) + λ_o CE(p(o)),

    where p(a) and p(o) compare the same f with the prompts [v_1 … v_m, θ_a] and [v_1 … v_m, θ_o].
    The code of its authors (in the repository of GIPCOL) has the last two terms commented out, so
    that λ_a = λ_o = 0.

    Args:
        *args: As in :class:`~mmcluspro.models.heads.ThreePathHead`.
        loss_weights (dict, optional): λ of 'attr', 'obj' and 'pair'. Defaults to None: 0, 0, 1.
        fusion (str): 'composition', the only one. Defaults to 'composition'.
        **kwargs: As in :class:`~mmcluspro.models.heads.ThreePathHead`.
    """

    def __init__(self, *args: Any, loss_weights: Unsaved[dict | None] = None,
                 fusion: Fusion = 'composition', **kwargs: Any) -> None:
        super().__init__(*args, loss_weights=dict(attr=0.0, obj=0.0) | (loss_weights or {}),
                         fusion=fusion, **kwargs)
        require_one_path(self, fusion)

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        """Cosines over temperature of the one image feature with each prompt."""
        f = features.composition
        return super().compare(replace(features, attribute=f, object=f), texts, candidates)
