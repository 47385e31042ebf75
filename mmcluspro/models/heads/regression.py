"""Softmax regressions and class means of attributes and objects on frozen features."""
from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.datasets import CompositionSpace
from mmcluspro.fields import Part, Unsaved, Width
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.softmax import Problems, fit
from mmcluspro.models.structures import (
    Features,
    Logits,
    Scores,
    Texts,
    TrainStep,
    as_features,
)
from mmcluspro.models.text.encoder import TextEncoder
from mmcluspro.registry import MODELS

from .base import LABELS, Arrays, CompositionHead, Portable

NEW = 0.6  # share of the word vectors in the covariance between new and trained classes
RIDGE = 5.0  # photographs without an effect that each name is thought to have
SHRINKAGE = 0.6  # of the covariance within pairs towards the same variance in all directions


class Settings(NamedTuple):
    """What a fit is made with.

    Attributes:
        attr_penalty (float | tuple[float, ...]): Of the weights of the attributes, 1 / C of
            scikit-learn; the weights are the mean over several penalties.
        obj_penalty (float | tuple[float, ...]): Of the weights of the objects.
        means (float): Factor of the log odds of the class means, at least 0.
        texts (float): Share of the text paths of a :class:`JoinedHead`, in [0, 1].
    """
    attr_penalty: float | tuple[float, ...] = 0.01
    obj_penalty: float | tuple[float, ...] = 0.01
    means: float = 0.0
    texts: float = 0.0


class Names(NamedTuple):
    """n names: their places on the text side, and unit-norm word vectors, (n,) and (n, d)."""
    places: Tensor
    vectors: Tensor

    def shares(self, others: Names) -> Tensor:
        """Shares of n trained names in the weights of m names, shape (n, m).

        A new name gets the weights that are expected from those of the trained names, if the
        covariance between names is that of the same name, and with the share :data:`NEW` the
        cosine of the word vectors.
        """
        found = (self.places[:, None] == others.places).to(self.vectors)
        new = others.places >= len(self.places)
        if new.any():
            own = (1 - NEW) * torch.eye(len(self.places)).to(found)
            found[:, new] = torch.linalg.solve(
                own + NEW * self.vectors @ self.vectors.T,
                NEW * self.vectors @ others.vectors[new].T)
        return found


class ClassMeans(NamedTuple):
    """Log odds of Gaussian classes whose means add up: mean of all + attribute + object.

    The log odds of pair (a, o) against any other pair are those of
    ``x @ (attr[a] + obj[o]) + attr_bias[a] + obj_bias[o] + cross[a, o]``.

    Attributes:
        attr (Tensor): Shape (A, D).
        obj (Tensor): Shape (O, D).
        attr_bias (Tensor): Of mean zero, (A,).
        obj_bias (Tensor): Of mean zero, (O,).
        cross (Tensor): Shape (A, O).
    """
    attr: Tensor
    obj: Tensor
    attr_bias: Tensor
    obj_bias: Tensor
    cross: Tensor

    @classmethod
    def fit(cls, x: Tensor, attr: Tensor, obj: Tensor, sizes: tuple[int, int]) -> ClassMeans:
        """Estimates effects by ridge regression, and their common covariance within pairs.

        So an unseen pair has a mean, too, and what goes with the object in the pairs of an
        attribute is not counted as the attribute.

        Args:
            x (Tensor): Of N images, (N, D).
            attr (Tensor): Attribute of each, (N,).
            obj (Tensor): Object of each, (N,).
            sizes (tuple[int, int]): Numbers of attributes and objects.
        """
        mean = x.mean(dim=0)
        names = torch.cat([F.one_hot(attr, sizes[0]), F.one_hot(obj, sizes[1])], dim=1).to(x)
        effects = torch.linalg.solve(
            names.T @ names + RIDGE * torch.eye(sum(sizes)).to(x), names.T @ (x - mean))
        pair = torch.unique(torch.stack([attr, obj]), dim=1, return_inverse=True)[1]
        member = F.one_hot(pair).to(x)
        rest = x - member @ ((member.T @ x) / member.sum(dim=0)[:, None])
        within = rest.T @ rest / max(1, len(x) - member.shape[1])
        spread = within.diagonal().mean() + torch.finfo(x.dtype).tiny
        within = (1 - SHRINKAGE) * within
        within.diagonal().add_(SHRINKAGE * spread)
        weights = torch.linalg.solve(within, effects.T).T
        bias = -(weights * (mean + effects / 2)).sum(dim=1)
        first = sizes[0]
        return cls(weights[:first], weights[first:], bias[:first] - bias[:first].mean(),
                   bias[first:] - bias[first:].mean(), -effects[:first] @ weights[first:].T)

    def logits(self, x: Tensor, pairs: Tensor) -> Tensor:
        """Of B images (B, D) for P pairs (P, 2), up to a constant of the image; shape (B, P)."""
        attr, obj = pairs.T
        return (x @ self.attr.T + self.attr_bias)[:, attr] + (
            x @ self.obj.T + self.obj_bias)[:, obj] + self.cross[attr, obj]


@MODELS.register_module()
class RegressionHead(CompositionHead):
    """Classifies frozen features by softmax regressions, for hundreds of photographs.

    With x the feature of an image, scaled to unit norm, and W_a, W_o the weights:

        log score = log p(a|x) + log p(o|x) + V_ao,  p(.|x) = softmax(W x + b)

    Each W is the mean of minima of cross-entropy with several penalties, plus
    ``settings.means`` times the weights of :class:`ClassMeans`, and V is what these add for the
    pair. New words have the weights that are expected from those of the trained ones.

    ``train_cfg=dict(type='mmcluspro.FitLoop')`` calls :meth:`fit` with the features of all
    training images.

    Args:
        space (CompositionSpace | dict): As in :class:`CompositionHead`.
        text (dict): A text side of word vectors, ``dict(type='mmcluspro.WordTableText')``.
        in_channels (int): Width D of the features.
        **kwargs: As in :class:`CompositionHead`.
    """

    link = 'identity'

    def __init__(self, space: Unsaved[CompositionSpace | dict],
                 text: Annotated[dict, Part((TextEncoder, ))], in_channels: Width,
                 **kwargs: Any) -> None:
        super().__init__(space, text, **kwargs)
        sizes = len(self.space.attributes), len(self.space.objects)
        self.weight = nn.ParameterDict({
            name: nn.Parameter(torch.zeros(size, in_channels))
            for name, size in zip(LABELS, sizes)})
        self.bias = nn.ParameterDict({
            name: nn.Parameter(torch.zeros(size)) for name, size in zip(LABELS, sizes)})
        self.register_buffer('cross', torch.zeros(sizes))

    @torch.no_grad()
    def fit(self, features: Tensor, labels: dict[str, Tensor], settings: Settings,
            tolerance: float = 1e-6) -> None:
        """Finds the weights.

        Args:
            features (Tensor): f of all N training images, (N, D).
            labels (dict[str, Tensor]): 'attr', 'obj' and 'pair', (N,) each; 'pair' are rows of
                ``train_candidates.pairs``.
            settings (Settings): Penalties and factors.
            tolerance (float): As in :func:`~mmcluspro.models.softmax.fit`. Defaults to 1e-6.
        """
        x = F.normalize(features.double(), dim=1)
        sizes = len(self.weight['attr']), len(self.weight['obj'])
        means = ClassMeans.fit(x, labels['attr'], labels['obj'], sizes)
        for name, penalties, weights, bias in zip(LABELS, settings[:2], means[:2], means[2:4]):
            problems = Problems.path(
                x, labels[name], len(weights), np.atleast_1d(penalties).tolist())
            found = fit(problems, 1000, tolerance)
            self.weight[name].copy_(found.weight.mean(dim=0) + settings.means * weights)
            self.bias[name].copy_(found.bias.mean(dim=0) + settings.means * bias)
        self.cross.copy_(settings.means * means.cross)

    def for_space(self, space: CompositionSpace) -> RegressionHead:
        """A head for other seen pairs of the same names; it has yet to be fitted.

        Args:
            space (CompositionSpace): The pairs.
        """
        learns = any(weight.requires_grad for weight in self.text.parameters())
        other = deepcopy(self, {} if learns else {id(self.text): self.text})
        other.space, other._known = space, Candidates.from_space(space)
        other._train = Candidates.from_space(space, seen_only=True)
        return other

    def names(self, candidates: Candidates) -> tuple[Names, Names]:
        """The attributes and objects of candidates."""
        return (Names(candidates.text_attributes,
                      self.text.encode_attributes()[candidates.text_attributes]),
                Names(candidates.text_objects,
                      self.text.encode_objects()[candidates.text_objects]))

    def weights(self, candidates: Candidates) -> dict[str, Tensor]:
        """The weights of the names of candidates.

        Args:
            candidates (Candidates): The pairs to choose from.

        Returns:
            dict[str, Tensor]: ``attr`` (A, D), ``obj`` (O, D), ``attr_bias`` (A,), ``obj_bias``
            and ``cross``, V of each pair, (P,).
        """
        attr, obj = (own.shares(other) for own, other in zip(
            self.names(self.train_candidates), self.names(candidates)))
        rows, columns = candidates.pairs.T
        return dict(attr=attr.T @ self.weight['attr'], obj=obj.T @ self.weight['obj'],
                    attr_bias=attr.T @ self.bias['attr'], obj_bias=obj.T @ self.bias['obj'],
                    cross=(attr.T @ self.cross @ obj)[rows, columns])

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """Log scores of pairs, and the probabilities of attributes and objects.

        Args:
            feats (Features): Of B images; the composition path is used.
            candidates (Candidates): The pairs to choose from.
        """
        candidates = candidates.to(self.device)
        attr, obj, pair = self._logits(as_features(feats), candidates)
        return Scores(pair, attr.softmax(dim=1), obj.softmax(dim=1))

    def _logits(self, features: Features, candidates: Candidates) -> tuple[Tensor, Tensor, Tensor]:
        x = F.normalize(features.composition.float(), dim=1)
        parts = self.weights(candidates)
        attr, obj = (x @ parts[name].T + parts[f'{name}_bias'] for name in LABELS[:2])
        rows, columns = candidates.pairs.T
        return attr, obj, (attr.log_softmax(dim=1)[:, rows] + obj.log_softmax(dim=1)[:, columns]
                           + parts['cross'])

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Logits over the seen pairs; there are no texts of pairs."""
        candidates = self.train_candidates
        logits = Logits(*self._logits(features, candidates))
        return TrainStep(features, Texts(None, None, logits.composition.new_zeros(
            len(candidates), 0)), logits, labels, candidates)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """Cross-entropy of attributes, objects and pairs, without the penalty of :meth:`fit`."""
        return {f'{name}_loss': F.cross_entropy(logits, step.labels[name])
                for name, logits in zip(LABELS, step.logits) if logits is not None}

    def portable(self) -> Portable:
        """Products with the weights in numpy."""

        def arrays(candidates: Candidates) -> Arrays:
            return {f'weight_{name}': value.detach().cpu().numpy()
                    for name, value in self.weights(candidates.to(self.device)).items()}

        return Portable(('composition', ), {}, portable_scores, arrays)


def portable_scores(features: Arrays, table: Arrays) -> np.ndarray:
    """:meth:`RegressionHead.score` in numpy; shape (B, P)."""
    attr, obj = (_log_softmax(features['composition'] @ table[f'weight_{name}'].T
                              + table[f'weight_{name}_bias']) for name in LABELS[:2])
    rows, columns = table['pairs'].T
    return attr[:, rows] + obj[:, columns] + table['weight_cross']


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    rest = logits - logits.max(axis=1, keepdims=True)
    return rest - np.log(np.exp(rest).sum(axis=1, keepdims=True))
