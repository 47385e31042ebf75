"""SCEN: attribute and object features that contrast images which share one name."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width
from mmcluspro.models.heads.three_path import ThreePathHead
from mmcluspro.models.necks import Neck, mlp
from mmcluspro.models.structures import Features, TrainStep, as_features
from mmcluspro.models.text.words import WordTableText
from mmcluspro.registry import MODELS

from .common import draw, sharing


@MODELS.register_module()
class SCENNeck(Neck):
    """f → e = MLP(f), f_a = MLP_a(e), f_o = MLP_o(e), f_c = W [f_o, f_a].

    Args:
        in_channels (int): Width of f.
        out_channels (int): Width of the three features.
        hidden (int): Of each MLP. Defaults to 768.
        dropout (float): After hidden layers. Defaults to 0.5.
        branch_hidden (int, optional): Of MLP_a and MLP_o. Defaults to None, ``hidden``.
    """

    def __init__(self, in_channels: Width, out_channels: Width, hidden: Width = 768,
                 dropout: Unsaved[float] = 0.5, branch_hidden: Width | None = None) -> None:
        super().__init__()
        options: dict[str, Any] = dict(norm=True, dropout=dropout)
        self.embed = mlp((in_channels, hidden, out_channels), **options)
        branch = out_channels, branch_hidden or hidden, out_channels
        self.attribute = mlp(branch, **options, last_act=True)
        self.object = mlp(branch, **options, last_act=True)
        self.compose = nn.Linear(2 * out_channels, out_channels)

    def forward(self, inputs: Features | Tensor | Sequence[Tensor]) -> Features:
        """f of shape (B, in_channels) → f_a, f_o and f_c, (B, out_channels) each."""
        features = as_features(inputs)
        embedded = self.embed(features.composition)
        attribute, obj = self.attribute(embedded), self.object(embedded)
        return replace(features, attribute=attribute, object=obj,
                       composition=self.compose(torch.cat([obj, attribute], dim=1)))


@MODELS.register_module()
class SCENText(WordTableText):
    """Names are their word vectors, of any length; a pair is one linear layer on both, unit norm.

    Args:
        attributes (Sequence[str]): Raw names.
        objects (Sequence[str]): Raw names.
        path (str, optional): As in :class:`~mmcluspro.models.text.WordTableText`.
        **kwargs: As in :class:`~mmcluspro.models.text.WordTableText`.
    """

    unit_norm = False

    def __init__(self, attributes: Unsaved[Sequence[str]], objects: Unsaved[Sequence[str]],
                 path: Unsaved[str | Path | None], **kwargs: Any) -> None:
        super().__init__(attributes, objects, path, **kwargs)
        self.out_dim = self.width
        self.composer = nn.Linear(2 * self.width, self.width)

    def compose(self, parts: tuple[Tensor, Tensor], pairs: Tensor) -> Tensor:
        return F.normalize(self.composer(super().compose(parts, pairs)), dim=1)


def contrast(features: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    r"""Triplets inside a batch, of unit-norm features.

    .. math:: \mathrm{mean}_{i, n} \max(0, \|g_i - g_p\| - \|g_i - g_n\| + m)

    over the images i that have a positive p, one drawn, and all their negatives n.

    Args:
        features (Tensor): g, of any norm, shape (B, D).
        positive (Tensor): Which images are alike, shape (B, B).
        negative (Tensor): Which are not, shape (B, B).
        margin (float): m.

    Returns:
        Tensor: Zero without triplets.
    """
    unit = F.normalize(features.float(), dim=1)
    # Not torch.cdist, whose gradient at distance 0 is not the same on all devices.
    squared = (2 - 2 * unit @ unit.T).clamp_min(1e-12)
    distance = squared.sqrt()
    partner, valid = draw(positive)
    triplets = negative & valid[:, None]
    hinge = (distance.gather(1, partner[:, None]) - distance + margin).relu()
    return (hinge * triplets).sum() / triplets.sum().clamp_min(1)


@MODELS.register_module()
class SCENHead(ThreePathHead):
    r"""SCEN (Li et al., "Siamese Contrastive Embedding Network for CZSL", CVPR 2022).

    Scores are those of the composition path. The loss has three parts,

    .. math::
        L = L_c + \lambda_{aux} (0.4 L_a + 0.6 L_o) + \lambda_{con} (C_a + C_o),

    cross-entropies of cosines over temperature, and contrasts: :math:`C_o` pulls the object
    feature of an image to that of another image of its object, and pushes it from those of images
    that share only its attribute (:func:`contrast`); :math:`C_a` the other way round.

    Args:
        *args: ``space`` and ``text`` of :class:`ThreePathHead`.
        aux_weight (float): :math:`\lambda_{aux}`. Defaults to 1.0.
        contrast_weight (float): :math:`\lambda_{con}`. Defaults to 4.0.
        margin (float): Of the contrasts. Defaults to 1.0.
        same_pair (bool): Whether images of the same pair are negatives, too, as in the released
            code; their triplets only add noise. Defaults to False.
        **kwargs: ``feasibility``, ``losses`` and ``init_cfg``.
    """

    fixed: tuple[str, ...] = ('fusion', )

    def __init__(self, *args: Any, aux_weight: Unsaved[float] = 1.0,
                 contrast_weight: Unsaved[float] = 4.0, margin: Unsaved[float] = 1.0,
                 same_pair: Unsaved[bool] = False, **kwargs: Any) -> None:
        super().__init__(*args, fusion='composition', loss_weights=dict(
            attr=0.4 * aux_weight, obj=0.6 * aux_weight), **kwargs)
        self.contrast_weight, self.margin = contrast_weight, margin
        self.same_pair = same_pair

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """The cross-entropies and the two contrasts."""
        found = super().terms(step)
        labels, features = step.labels, step.features.primitives
        other = ~torch.eye(len(labels['attr']), dtype=torch.bool, device=labels['attr'].device)
        for name, shared in (('attr', 'obj'), ('obj', 'attr')):
            alike = (labels[name][:, None] == labels[name]) & other
            unlike = sharing(labels[shared], labels[name])
            if self.same_pair:
                unlike |= sharing(labels[shared], torch.arange(len(other), device=other.device))
            found[f'{name}_contrast_loss'] = self.contrast_weight * contrast(
                features[name], alike, unlike, self.margin)
        return found
