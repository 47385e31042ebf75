"""CANet: attributes that are conditioned on the recognised object and on the image."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width, number
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads.base import CompositionHead, Portable
from mmcluspro.models.heads.three_path import ThreePathHead
from mmcluspro.models.necks import PathEmbedder, mlp
from mmcluspro.models.structures import PATHS, Features, Logits, Scores, Texts, as_features
from mmcluspro.registry import MODELS


@MODELS.register_module()
class CANetNeck(PathEmbedder):
    """An MLP for each path, and the image feature itself as ``extra['image']``.

    Args:
        in_channels (int): Width of f.
        out_channels (int): Width of the embeddings.
        hidden (int, optional): Width of the hidden layer. Defaults to None, that of f.
        dropout (float): After the hidden layer. Defaults to 0.5.
    """

    def __init__(self, in_channels: Width, out_channels: Width, hidden: Width | None = None,
                 dropout: Unsaved[float] = 0.5) -> None:
        super().__init__(in_channels, out_channels, (hidden or in_channels, ), PATHS, norm=True,
                         dropout=dropout)

    def forward(self, inputs: Features | Tensor | Sequence[Tensor]) -> Features:
        """f (B, in_channels) → f_a, f_o and f_c (B, out_channels), with f in ``extra``."""
        features = as_features(inputs)
        return replace(super().forward(features),
                       extra={**features.extra, 'image': features.composition})


class AttributeAdapter(nn.Module):
    """Two layers for attributes whose outputs are scaled by an image (Eq. 4-6 of CANet).

    Args:
        width (int): Of attributes and of the condition.
        dropout (float): Between the layers.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first_scale, self.second_scale = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.between = nn.Sequential(nn.LayerNorm(2 * width), nn.ReLU(), nn.Dropout(dropout))

    def forward(self, attributes: Tensor, condition: Tensor) -> Tensor:
        """attributes (A, D), condition (B, D) → attributes of each image, (B, A, D)."""
        states = self.first(attributes) * self.first_scale(condition)[:, None]
        return self.second(self.between(states)) * self.second_scale(condition)[:, None]


@MODELS.register_module()
class CANetHead(ThreePathHead):
    r"""CANet (Wang et al., "Learning Conditional Attributes for CZSL", CVPR 2023).

    The object o* is recognised first. With image feature f, the path features f_a, f_o, f_c and
    the texts t of attributes, objects and pairs (numbers of CANet's equations),

    .. math::
        d_o &= \cos(f_o, t_o), \quad o^* = \arg\max_o d_o & (2) \\
        \beta &= \mathrm{MLP}([t_{o^*}, f]) & (3) \\
        e_a &= \mathrm{adapter}(t_a; \beta), \quad d_a = \cos(f_a, e_a) & (5, 7) \\
        d_c &= \cos(f_c, t_c) & (8)

    The loss is :math:`(L_a + L_o) / 2 + L_c`, cross-entropies of the cosines over temperature
    (9-12). With :math:`p = (d + 1) / 2` the score of a pair is

    .. math:: (1 - \alpha)\, p_c + \alpha\, p_a\, p_o

    to which the bias is added as it is, as in the published evaluation. Attributes are different
    for every image, so there is no table of texts to export.

    Args:
        *args: As in :class:`ThreePathHead`.
        in_channels (int): Width of f.
        dim (int): Width of the texts.
        alpha (float): α. Defaults to 0.4.
        dropout (float): In the condition and in the adapter. Defaults to 0.5.
        **kwargs: As in :class:`ThreePathHead`; ``loss_weights`` defaults to 0.5, 0.5 and 1.
    """

    link = 'identity'

    fixed: tuple[str, ...] = ('fusion', )

    def __init__(self, *args: Any, in_channels: Width, dim: Width,
                 alpha: Annotated[float, number(0, 1)] = 0.4, dropout: Unsaved[float] = 0.5,
                 loss_weights: Unsaved[dict | None] = None, **kwargs: Any) -> None:
        super().__init__(*args, fusion='logits', loss_weights={
            **dict(attr=0.5, obj=0.5, pair=1.0), **(loss_weights or {})}, **kwargs)
        if not 0 <= alpha <= 1:
            raise ValueError(f'head.alpha must lie in [0, 1], got {alpha}.')
        self.alpha = alpha
        self.condition = mlp((dim + in_channels, dim, dim), norm=True, dropout=dropout,
                             last_act=True)
        self.adapter = AttributeAdapter(dim, dropout)

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """The weighted sum above over candidates.

        Args:
            feats (Features): Of B images, from :class:`CANetNeck`.
            candidates (Candidates): What can be answered.
        """
        candidates = candidates.to(self.device)
        logits = self.logits(feats, candidates)
        scale = self.text.logit_scale.exp()
        assert logits.attribute is not None and logits.object is not None
        attr, obj, pair = ((part / scale + 1) / 2 for part in logits)
        both = attr[:, candidates.pairs[:, 0]] * obj[:, candidates.pairs[:, 1]]
        return Scores((1 - self.alpha) * pair + self.alpha * both,
                      logits.attribute.softmax(dim=1), logits.object.softmax(dim=1))

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        """Cosines over temperature, with attributes of each image.

        Args:
            features (Features): Of B images, from :class:`CANetNeck`.
            texts (Texts): Unit-norm texts.
            candidates (Candidates): Not used.
        """
        if texts.attribute is None or texts.object is None:  # neither is learned
            return super().compare(features, texts, candidates)
        if 'image' not in features.extra or features.attribute is None:
            raise ValueError("CANetHead needs the image feature as well as those of the paths: set "
                             "model.neck.type='mmcluspro.CANetNeck'.")
        plain = super().compare(features, texts._replace(attribute=None), candidates)
        assert plain.object is not None
        recognised = texts.object[plain.object.detach().argmax(dim=1)]
        condition = self.condition(torch.cat([recognised, features.extra['image']], dim=1))
        attributes = F.normalize(self.adapter(texts.attribute, condition).float(), dim=2)
        f_a = F.normalize(features.attribute.float(), dim=1)
        with torch.autocast(f_a.device.type, enabled=False):
            logits = self.text.logit_scale.exp() * torch.bmm(attributes, f_a[:, :, None])[:, :, 0]
        return plain._replace(attribute=logits)

    def portable(self) -> Portable:
        """Not possible: a table of texts cannot hold the attributes of every image."""
        return CompositionHead.portable(self)
