"""VP-CMJL: visual proxies of attributes and objects beside the texts, and a loss that joins both.

Zhang, Yan, Liu, Jing, Zhou and Wang, "Learning Visual Proxy for Compositional Zero-Shot Learning"
(ICCV 2025).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width, integer, number
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads import CompositionHead, Portable, ThreePathHead
from mmcluspro.models.heads.three_path import Fusion
from mmcluspro.models.structures import (
    PATHS,
    Features,
    Logits,
    Scores,
    Texts,
    TrainStep,
    as_features,
)
from mmcluspro.models.text import CLIPText
from mmcluspro.registry import MODELS

from .common import AttentionBlock


class TextReader(AttentionBlock):
    """x ← x + attention(norm(x), norm(t)), then x ← x + MLP(norm(x)), for one vector per image.

    Args:
        dim (int): Width D.
        num_heads (int): Heads of the attention.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__(dim, cross=True, identity=False)
        self.attn = nn.MultiheadAttention(dim, num_heads, batch_first=True)

    def read(self, x: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        """x (B, D) and texts (T, D) → (B, D), and the mean attention of the heads (B, T)."""
        assert self.norm_y is not None
        key = self.norm_y(texts)[None]
        found, weights = self.attn(self.norm_x(x)[None], key, key)
        x = x + found[0]
        return x + self.mlp(self.norm(x)), weights[0]


@MODELS.register_module()
class VPCMJLText(CLIPText):
    """CLIP's text side whose features keep their length: images read them before they are compared.

    Args:
        *args: As in :class:`~mmcluspro.models.text.CLIPText`.
        **kwargs: As in :class:`~mmcluspro.models.text.CLIPText`.
    """

    unit_norm = False


@MODELS.register_module()
class VPCMJLHead(ThreePathHead):
    """Three paths to texts and three to visual proxies, joined in training and in the score.

    With the image feature f, f_a and f_o of the neck, texts t, and proxies v_a and v_o that start
    at the text features of the single names, v_c = W [v_a, v_o] + b,

        text    s_c = cos(f, t_c) / τ,  s_a = (cos(r_a, t_a) + w_a) / τ, s_o alike, where r_a and
                w_a are what f reads of the t_a, and its attention weights (:class:`TextReader`)
        proxy   s'_c = cos(f, v_c) / τ,  s'_a = cos(f_a, v_a) / τ,  s'_o = cos(f_o, v_o) / τ
        loss    cross-entropies of all six, and KL(softmax(s_c) ‖ softmax(s'_c))
        score   S_c + softmax(S_a) + softmax(S_o)  with  S = α s' + β s

    The proxy of a new name is where it would have started.

    Args:
        *args: As in :class:`ThreePathHead`.
        in_channels (int): Width D of the features.
        num_heads (int): Heads of the attention. Defaults to 16.
        proxy_weight (float): α. Defaults to 0.5.
        text_weight (float): β. Defaults to 0.5.
        joint_weight (float): Of the divergence. Defaults to 1.0.
        fusion (str): 'logits', the only one. Defaults to 'logits'.
        **kwargs: As in :class:`ThreePathHead`.
    """

    def __init__(self, *args: Any, in_channels: Width,
                 num_heads: Annotated[int, integer(1, 256)] = 16,
                 proxy_weight: Annotated[float, number(0, 1e6)] = 0.5,
                 text_weight: Annotated[float, number(0, 1e6)] = 0.5,
                 joint_weight: Unsaved[float] = 1.0, fusion: Fusion = 'logits',
                 **kwargs: Any) -> None:
        super().__init__(*args, fusion=fusion, **kwargs)
        if fusion != 'logits':
            raise ValueError("VPCMJLHead adds to logits: head.fusion must be 'logits', got "
                             f'{fusion!r}.')
        if not isinstance(self.text, VPCMJLText):
            raise ValueError('VPCMJLHead reads texts with their length: set head.text.type='
                             f"'mmcluspro.VPCMJLText', got {type(self.text).__name__}.")
        if in_channels % num_heads:
            raise ValueError(f'head.num_heads={num_heads} must divide head.in_channels='
                             f'{in_channels}.')
        self.proxy_weight, self.text_weight, self.joint_weight = (
            proxy_weight, text_weight, joint_weight)
        self.readers = nn.ModuleDict({
            path: TextReader(in_channels, num_heads) for path in PATHS[:2]})
        self.attr_proxy, self.obj_proxy = (
            nn.Parameter(self._start(names, in_channels))
            for names in (self.space.attributes, self.space.objects))
        self.composer = nn.Linear(2 * in_channels, in_channels)

    @torch.no_grad()
    def _start(self, names: Sequence[str], width: int) -> Tensor:
        """Text features of single names, (n, D); of no value where no weights are read yet."""
        scale = self.text.logit_scale
        if scale.is_meta or not len(names):
            return scale.new_zeros(len(names), width)
        return self.text.encode_sentences([self.text.readable(name) for name in names]).clone()

    def proxies(self, candidates: Candidates) -> Texts:
        """v_a (A, D), v_o (O, D) and v_c (P, D) of candidates, unit norm."""
        tables = [torch.cat([proxy, self._start(names[len(proxy):], proxy.shape[1])])
                  for proxy, names in ((self.attr_proxy, self.text.attributes),
                                       (self.obj_proxy, self.text.objects))]
        attr, obj = candidates.text_pairs.T
        pair = self.composer(torch.cat([tables[0][attr], tables[1][obj]], dim=1))
        return Texts(*(F.normalize(part, dim=1) for part in (
            tables[0][candidates.text_attributes], tables[1][candidates.text_objects], pair)))

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        """Logits s of the texts.

        Args:
            features (Features): Of B images.
            texts (Texts): Of any length.
            candidates (Candidates): Pairs, attributes and objects of the texts.
        """
        f = features.composition
        attr, obj = texts.attribute, texts.object
        assert attr is not None and obj is not None
        (r_a, w_a), (r_o, w_o) = (self.readers[path].read(f, part)  # type: ignore[operator]
                                  for path, part in zip(PATHS, (attr, obj)))
        read = Features(f, r_a, r_o)
        logits = super().compare(read, Texts._make(F.normalize(part, dim=1) for part in (
            attr, obj, texts.composition)), candidates)
        assert logits.attribute is not None and logits.object is not None
        scale = self.text.logit_scale.exp()
        return logits._replace(attribute=logits.attribute + scale * w_a,
                               object=logits.object + scale * w_o)

    def proxy_logits(self, features: Features, candidates: Candidates) -> Logits:
        """Logits s' of the proxies."""
        return super().compare(features, self.proxies(candidates), candidates)

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """The weighted sum above over candidates.

        Args:
            feats (Features): Of B images.
            candidates (Candidates): The pairs to choose from.
        """
        candidates, features = candidates.to(self.device), as_features(feats)
        proxy, text = self.proxy_logits(features, candidates), self.logits(features, candidates)
        attr, obj, pair = (self.proxy_weight * one + self.text_weight * other
                           for one, other in zip(proxy, text)
                           if one is not None and other is not None)
        attr, obj = attr.softmax(dim=1), obj.softmax(dim=1)
        first, second = candidates.pairs.T
        return Scores(pair + attr[:, first] + obj[:, second], attr, obj)

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Texts of three paths and logits over the seen pairs."""
        candidates = self.train_candidates
        texts = self.texts(candidates)
        return TrainStep(features, texts, self.compare(features, texts, candidates), labels,
                         candidates)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """Cross-entropies of texts and proxies, and their divergence."""
        losses = super().terms(step)
        proxy = self.proxy_logits(step.features, step.candidates)
        others = super().terms(step._replace(logits=proxy))
        losses.update({f'proxy_{name}': loss for name, loss in others.items()})
        losses['joint_loss'] = self.joint_weight * F.kl_div(
            proxy.composition.log_softmax(dim=1), step.logits.composition.softmax(dim=1),
            reduction='batchmean')
        return losses

    def portable(self) -> Portable:
        """Not possible: every image reads the texts of attributes and objects."""
        return CompositionHead.portable(self)
