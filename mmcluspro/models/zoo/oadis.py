"""OADis: attributes and objects disentangled by comparing the locations of two images."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width
from mmcluspro.models.heads.three_path import ThreePathHead
from mmcluspro.models.necks import Neck, mlp
from mmcluspro.models.structures import Features, TrainStep, as_features
from mmcluspro.models.text.words import WordTableText
from mmcluspro.registry import MODELS

from .common import draw, pair_rows, sharing


@MODELS.register_module()
class OADisNeck(Neck):
    """Embeds every location of the image; f_c is a linear layer of their mean.

    Locations are the tokens of the backbone without the first, the class token. A backbone
    without tokens (stored features) has one location, its pooled feature.

    Args:
        in_channels (int): Width of the locations.
        hidden (int): Width of the embedded locations.
        out_channels (int): Width of f_c.
        dropout (float): Of whole channels of the embedded locations. Defaults to 0.3.
    """

    def __init__(self, in_channels: Width, hidden: Width, out_channels: Width,
                 dropout: Unsaved[float] = 0.3) -> None:
        super().__init__()
        self.embed = nn.Linear(in_channels, hidden, bias=False)
        self.norm = nn.BatchNorm1d(hidden)
        self.dropout = nn.Dropout1d(dropout)
        self.final = nn.Linear(hidden, out_channels)

    def forward(self, inputs: Features | Tensor | Sequence[Tensor]) -> Features:
        """f (B, C) or tokens (B, 1 + L, C) → f_c (B, out_channels), tokens (B, L, hidden)."""
        features = as_features(inputs)
        places = (features.composition[:, None] if features.tokens is None
                  else features.tokens[:, 1:])
        if self.training and len(places) * places.shape[1] == 1:
            raise ValueError('OADisNeck cannot train on a batch of one image: set '
                             'train_dataloader.drop_last=True.')
        states = self.norm(self.embed(places).transpose(1, 2)).relu()  # (B, hidden, L)
        states = self.dropout(states)
        return replace(features, composition=self.final(states.mean(dim=2)),
                       tokens=states.transpose(1, 2))


@MODELS.register_module()
class OADisText(WordTableText):
    """The released text side: linear layers on names, and a composer of pairs.

    With word vectors w_a, w_o, a pair is a linear layer on [w_o, w_a], or with
    ``composer='conditioned'`` an MLP on [w_o, relu(W (relu(U w_o) * relu(V w_a)))].

    Args:
        attributes (Sequence[str]): Raw names.
        objects (Sequence[str]): Raw names.
        path (str, optional): As in :class:`~mmcluspro.models.text.WordTableText`.
        out_dim (int): Width of the features. Defaults to 300.
        composer (str): 'linear' or 'conditioned'. Defaults to 'linear'.
        hidden (int): Of the conditioned composer. Defaults to 600.
        dropout (float): Before the layers of names and the composer. Defaults to 0.1.
        **kwargs: As in :class:`~mmcluspro.models.text.WordTableText`.
    """

    def __init__(self, attributes: Unsaved[Sequence[str]], objects: Unsaved[Sequence[str]],
                 path: Unsaved[str | Path | None], out_dim: Width = 300,
                 composer: Literal['linear', 'conditioned'] = 'linear', hidden: Width = 600,
                 dropout: Unsaved[float] = 0.1, **kwargs: Any) -> None:
        super().__init__(attributes, objects, path, out_dim, **kwargs)
        if composer not in ('linear', 'conditioned'):
            raise ValueError("text.composer must be 'linear' or 'conditioned', got "
                             f'{composer!r}.')
        width = self.width
        self.drop = nn.Dropout(dropout)
        self.attr_proj, self.obj_proj = nn.Linear(width, out_dim), nn.Linear(width, out_dim)
        self.codes = None
        if composer == 'conditioned':
            self.codes = nn.ModuleDict({
                'object': nn.Linear(width, hidden), 'attribute': nn.Linear(width, hidden),
                'joined': nn.Linear(hidden, hidden)})
            self.composer: nn.Module = mlp((width + hidden, hidden, out_dim))
        else:
            self.composer = nn.Linear(2 * width, out_dim)

    def single(self, path: str, vectors: Tensor) -> Tensor:
        return (self.attr_proj if path == 'attribute' else self.obj_proj)(self.drop(vectors))

    def compose(self, parts: tuple[Tensor, Tensor], pairs: Tensor) -> Tensor:
        attr, obj = parts[0][pairs[:, 0]], parts[1][pairs[:, 1]]
        if self.codes is not None:
            joined = self.codes['object'](obj).relu() * self.codes['attribute'](attr).relu()
            attr = self.codes['joined'](joined).relu()
        return self.composer(self.drop(torch.cat([obj, attr], dim=1)))


class Compared(NamedTuple):
    """Features of two images by the locations that they share, (n, C) each."""

    first: Tensor  # of image 1, where it is like image 2
    second: Tensor  # of image 2, where it is like image 1
    different: Tensor  # of image 2, where it is not


def compare_places(first: Tensor, second: Tensor, sharpness: float) -> Compared:
    r"""Weighs locations by how much another image resembles them.

    With cosines :math:`R_{ij}` of location i of image 1 and j of image 2, the weights of image 2
    are :math:`\sum_i \mathrm{softmax}_j(\lambda R_{ij})` where it is alike,
    :math:`\sum_i \mathrm{softmax}_j(-\lambda R_{ij})` where it is different, and those of image 1
    :math:`\sum_j \mathrm{softmax}_i(\lambda R_{ij})`, each scaled to sum 1.

    Args:
        first (Tensor): Shape (n, L, C).
        second (Tensor): Shape (n, L, C).
        sharpness (float): λ.
    """
    relevance = sharpness * torch.bmm(F.normalize(first, dim=2),
                                      F.normalize(second, dim=2).transpose(1, 2))
    weights = (relevance.softmax(dim=1).sum(dim=2), relevance.softmax(dim=2).sum(dim=1),
               (-relevance).softmax(dim=2).sum(dim=1))
    return Compared._make(
        ((weight / weight.sum(dim=1, keepdim=True))[:, :, None] * image).sum(dim=1)
        for weight, image in zip(weights, (first, second, second)))


@MODELS.register_module()
class OADisHead(ThreePathHead):
    r"""OADis (Saini et al., "Disentangling Visual Embeddings for Attributes and Objects", 2022).

    Scores are cosines over temperature of f_c and the pairs. In training each image (a, o) is
    compared with one of the batch that shares its attribute, (a, o'), and with one that shares its
    object, (a', o) (:func:`compare_places`); images without both are left out here. With linear
    layers :math:`g_a, g_o` and h,

    .. math::
        L = L_c + \lambda_a L_a + \lambda_o L_o + \lambda_p L_p + \lambda_s L_{seen}
            + \lambda_u L_{unseen}

    - :math:`L_a`: attribute of :math:`g_a` of what (a, o) and (a, o') share, averaged over the
      two; :math:`L_o` likewise for what (a, o) and (a', o) share;
    - :math:`L_p`: pair (a, o) of :math:`h([g_a(\cdot), g_o(\cdot)])` of the two other images;
    - :math:`L_{seen}, L_{unseen}`: pair (a', o') of h of what makes (a', o) and (a, o') different
      from the image, over the seen or the unseen pairs of the data, where (a', o') is one of them.

    Args:
        *args: ``space`` and ``text`` of :class:`ThreePathHead`.
        in_channels (int): ``hidden`` of :class:`OADisNeck`.
        dim (int): Width of the texts.
        sharpness (float): λ of :func:`compare_places`. Defaults to 10.0.
        weights (dict): λ of the terms: 'attr', 'obj', 'both' (p), 'seen' and 'unseen'. Defaults
            to 0.25, 0.25, 0.1, 0.05 and 0.05.
        **kwargs: ``feasibility``, ``losses`` and ``init_cfg``.
    """

    fixed: tuple[str, ...] = ('fusion', )

    def __init__(self, *args: Any, in_channels: Width, dim: Width, sharpness: Unsaved[float] = 10.0,
                 weights: Unsaved[dict | None] = None, **kwargs: Any) -> None:
        super().__init__(*args, fusion='composition', loss_weights=dict(attr=0, obj=0), **kwargs)
        default = dict(attr=0.25, obj=0.25, both=0.1, seen=0.05, unseen=0.05)
        unknown = set(weights or {}) - set(default)
        if unknown:
            raise ValueError(f'head.weights has the keys {sorted(default)}, got '
                             f'{sorted(unknown)}.')
        self.weights = {**default, **(weights or {})}
        self.sharpness = sharpness
        self.attr_embed = nn.Linear(in_channels, dim)
        self.obj_embed = nn.Linear(in_channels, dim)
        self.pair_embed = nn.Linear(2 * dim, dim)

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Texts of all paths and logits of the composition path, over the seen pairs."""
        candidates = self.train_candidates
        texts = self.texts(candidates)
        logits = self.compare(features, texts._replace(attribute=None, object=None), candidates)
        return TrainStep(features, texts, logits, labels, candidates)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """The six terms, by name."""
        attr, obj = step.labels['attr'], step.labels['obj']
        by_attr, has_attr = draw(sharing(attr, obj))
        by_obj, has_obj = draw(sharing(obj, attr))
        own = (has_attr & has_obj).nonzero()[:, 0]
        by_attr, by_obj, places = by_attr[own], by_obj[own], step.features.tokens
        if places is None:
            raise ValueError("OADisHead needs the locations of the images: set "
                             "model.neck.type='mmcluspro.OADisNeck'.")
        same_attr = compare_places(places[own], places[by_attr], self.sharpness)
        same_obj = compare_places(places[own], places[by_obj], self.sharpness)
        texts, seen = step.texts, step.texts.composition
        shared_attr = [self.attr_embed(part) for part in same_attr[:2]]
        shared_obj = [self.obj_embed(part) for part in same_obj[:2]]
        found = dict(
            attr=self.classify(torch.cat(shared_attr), texts.attribute, attr[own].repeat(2)),
            obj=self.classify(torch.cat(shared_obj), texts.object, obj[own].repeat(2)),
            both=self.classify(self.joined(shared_attr[1], shared_obj[1]), seen,
                               step.labels['pair'][own]))
        other = self.joined(self.attr_embed(same_obj.different),
                            self.obj_embed(same_attr.different))
        pairs = torch.stack([attr[by_obj], obj[by_attr]], dim=1)
        for name, known, text in (('seen', step.candidates.pairs, seen),
                                  ('unseen', *self.unseen())):
            rows = pair_rows(known, pairs, len(self.space.objects))
            found[name] = self.classify(other[rows >= 0], text, rows[rows >= 0])
        return {**super().terms(step), **{
            f'{name}_loss': self.weights[name] * loss for name, loss in found.items()}}

    def joined(self, attribute: Tensor, obj: Tensor) -> Tensor:
        """h([g_a, g_o]), shape (n, dim)."""
        return self.pair_embed(torch.cat([attribute, obj], dim=1))

    def unseen(self) -> tuple[Tensor, Tensor]:
        """The unseen pairs of the data (U, 2), and their texts (U, dim)."""
        known = self.known_candidates
        pairs = known.pairs[~known.seen]
        return pairs, self.text.encode_pairs(pairs)

    def classify(self, features: Tensor, texts: Tensor | None, labels: Tensor) -> Tensor:
        """Mean cross-entropy of cosines over temperature; zero for no image."""
        assert texts is not None  # the step asks for all paths
        unit = F.normalize(features.float(), dim=1)
        logits = self.text.logit_scale.exp() * unit @ texts.float().T
        return F.cross_entropy(logits, labels, reduction='sum') / max(1, len(labels))
