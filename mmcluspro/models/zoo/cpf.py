"""CPF: the object is recognised with the texts of objects, and guides the attribute.

Wu, Lai, Fang, Xie, Yin, Lu and Wang, "A Conditional Probability Framework for Compositional
Zero-shot Learning". Its repository holds no code; see docs/baselines.md for what is not known.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from mmcluspro.fields import Unsaved, Width, integer
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads import CompositionHead, Portable, ThreePathHead
from mmcluspro.models.heads.three_path import Fusion
from mmcluspro.models.structures import Features, Logits, Scores, Texts
from mmcluspro.registry import MODELS


def read(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(q Kᵀ / √D) V: query (B, D), keys and values (B, L, D) → (B, D)."""
    weights = torch.bmm(keys, query[:, :, None])[:, :, 0] / query.shape[1]**0.5
    return torch.bmm(weights.softmax(dim=1)[:, None], values)[:, 0]


@MODELS.register_module()
class CPFHead(ThreePathHead):
    r"""p(o, a | x) = p(o | x) p(a | o, x): deep features for objects, shallow ones for attributes.

    v is the class token, V_h the patches of the last block, V_l = W_l [patches of shallow blocks],
    all after CLIP's last norm and projection, and T the unit texts of the trained objects. With
    the linear layer g from images to texts,

        q   = softmax(g(v) Tᵀ / √D) T                     the text that describes the object,
        v_o = v + softmax(q g(V_h)ᵀ / √D) V_h               (TEO),
        v_a = softmax(v_o V_lᵀ / √D) V_l                   (OGA),
        v_c = W_c [v_a; v_o].

    p(a), p(o) and p(c) are the softmax of the cosines over temperature of v_a, v_o and v_c with
    the texts. The loss is CE(p(c)) + 0.6 CE(p(a)) + 0.4 CE(p(o)), the score p(c) + p(a) + p(o).

    g, W_l and W_c start so that v_o, V_l and v_c are close to CLIP's own features.

    Args:
        *args: As in :class:`~mmcluspro.models.heads.ThreePathHead`.
        in_channels (int): Width D of features, tokens and texts.
        shallow (int): Number of shallow blocks, those of ``backbone.out_layers``. Defaults to 3.
        loss_weights (dict, optional): Of 'attr', 'obj' and 'pair'. Defaults to None: 0.6, 0.4, 1.
        fusion (str): 'probability', the only one. Defaults to 'probability'.
        **kwargs: As in :class:`~mmcluspro.models.heads.ThreePathHead`.
    """

    def __init__(self, *args: Any, in_channels: Width, shallow: Annotated[int, integer(1, 256)] = 3,
                 loss_weights: Unsaved[dict | None] = None, fusion: Fusion = 'probability',
                 **kwargs: Any) -> None:
        super().__init__(*args, loss_weights=dict(attr=0.6, obj=0.4) | (loss_weights or {}),
                         fusion=fusion, **kwargs)
        if fusion != 'probability':
            raise ValueError('CPFHead adds three probabilities: head.fusion must be '
                             f"'probability', got {fusion!r}.")
        if shallow < 1:
            raise ValueError(f'head.shallow must be at least 1, got {shallow}.')
        self.shallow = shallow
        self.to_text = nn.Linear(in_channels, in_channels)
        self.join = nn.Linear(shallow * in_channels, in_channels)
        self.compose = nn.Linear(2 * in_channels, in_channels)
        same = torch.eye(in_channels)
        for layer, start in ((self.to_text, [same]), (self.join, [same / shallow] * shallow),
                             (self.compose, [torch.zeros_like(same), same])):
            layer.weight.data.copy_(torch.cat(start, dim=1))
            nn.init.zeros_(layer.bias)

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        """Cosines over temperature of v_a, v_o and v_c.

        Args:
            features (Features): With tokens and ``extra['layer_<n>']``, (B, 1 + patches, D) each.
            texts (Texts): Unit-norm texts of the candidates.
            candidates (Candidates): The pairs; those of training say which objects describe.
        """
        trained = self.train_candidates
        known = texts if candidates is trained else self.texts(trained)
        assert known.object is not None
        return super().compare(self.disentangle(features, known.object), texts, candidates)

    def disentangle(self, features: Features, objects: Tensor) -> Features:
        """v_a, v_o and v_c (B, D) of images, from the texts of objects (O, D)."""
        names = sorted((name for name in features.extra if name.startswith('layer_')),
                       key=lambda name: int(name[6:]))
        if features.tokens is None or len(names) != self.shallow:
            raise ValueError(
                f'CPFHead reads the tokens and {self.shallow} shallow layers of the image tower '
                f'and got {len(names)} layers: set backbone.out_tokens=True, backbone.out_layers, '
                'such as [6, 12, 18], and for CLIPVision backbone.project_layers=True.')
        dtype = self.to_text.weight.dtype
        v, patches = features.composition.to(dtype), features.tokens[:, 1:].to(dtype)
        layers = torch.cat([features.extra[name][:, 1:].to(dtype) for name in names], dim=-1)
        if layers.shape[-1] != self.join.in_features:
            raise ValueError(f'CPFHead needs layers of width {v.shape[1]}, got '
                             f'{layers.shape[-1] // self.shallow}: set '
                             'backbone.project_layers=True.')
        objects = objects.to(dtype)
        described = (self.to_text(v) @ objects.T / v.shape[1]**0.5).softmax(dim=1) @ objects
        v_o = v + read(described, self.to_text(patches), patches)
        shallow = self.join(layers)
        v_a = read(v_o, shallow, shallow)
        return replace(features, attribute=v_a, object=v_o,
                       composition=self.compose(torch.cat([v_a, v_o], dim=1)))

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """p(c) + p(a) + p(o) over candidates.

        Args:
            feats (Features): Of B images.
            candidates (Candidates): What can be answered.
        """
        candidates = candidates.to(self.device)
        attr, obj, pair = (part.softmax(dim=1)  # type: ignore[union-attr]
                           for part in self.logits(feats, candidates))
        both = attr[:, candidates.pairs[:, 0]] + obj[:, candidates.pairs[:, 1]]
        return Scores(pair + both, attr, obj)

    def portable(self) -> Portable:
        """Not possible: what is compared with the texts is made in the head."""
        return CompositionHead.portable(self)
