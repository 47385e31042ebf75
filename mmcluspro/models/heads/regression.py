"""Softmax regressions of attributes, objects and pairs on frozen features: a convex fit."""
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

NEW = 0.6  # as WORDS of the cross-validation has at most


class Settings(NamedTuple):
    """What cross-validation chooses for a fit.

    Attributes:
        attr_penalty (float): Of the weights of the attributes, 1 / C of scikit-learn.
        obj_penalty (float): Of the weights of the objects.
        pair_penalty (float): Of the weights of the pairs.
        words (float): Share of the word vectors in the covariance between classes, in [0, 1).
        pairs (float): Share of the regression of pairs in the log scores, in [0, 1].
        texts (float): Share of the text paths of a :class:`JoinedHead` in them, in [0, 1].
    """
    attr_penalty: float = 0.01
    obj_penalty: float = 0.01
    pair_penalty: float = 0.01
    words: float = 0.3
    pairs: float = 0.3
    texts: float = 0.0


class Names(NamedTuple):
    """n names: their places on the text side, and unit-norm word vectors, (n,) and (n, d)."""
    places: Tensor
    vectors: Tensor

    def kernel(self, others: Names, words: float | Tensor) -> Tensor:
        """Covariances with m other names, shape (n, m): the same name, and related words.

        Args:
            others (Names): m names of the same kind.
            words (float | Tensor): Share of the cosine of the word vectors.
        """
        same = (self.places[:, None] == others.places).to(self.vectors)
        return (1 - words) * same + words * (self.vectors @ others.vectors.T)

    def shares(self, others: Names, words: Tensor) -> Tensor:
        """Shares of n trained names in the weights of m names, shape (n, m), for the dual weights.

        A fit without word vectors says nothing of a new name. It gets the weights that are expected
        from those of the trained names, with :data:`NEW` as the share of the words.
        """
        found, new = self.kernel(others, words), others.places >= len(self.places)
        if new.any() and not words:
            own = self.kernel(self, NEW)
            found[:, new] = torch.linalg.solve(own, self.kernel(others, NEW)[:, new])
        return found


def pair_kernel(attr: Tensor, obj: Tensor) -> Tensor:
    """Covariances between pairs: parts of the attribute, of the object, and of both together.

    Args:
        attr (Tensor): Between the attributes of the pairs, (n, m).
        obj (Tensor): Between their objects, (n, m).
    """
    return (attr + obj + attr * obj) / 3


def mix(attr: Tensor, obj: Tensor, pair: Tensor | None, pairs: Tensor,
        share: float | Tensor) -> Tensor:
    """Log scores of pairs: a weighted geometric mean of p(a) p(o) and p(c).

    Args:
        attr (Tensor): Logits of attributes, (…, B, A).
        obj (Tensor): Logits of objects, (…, B, O).
        pair (Tensor, optional): Logits of pairs, (…, B, P); None without their regression.
        pairs (Tensor): Attribute and object of each pair, (P, 2).
        share (float | Tensor): Of p(c).
    """
    primitives = attr.log_softmax(-1)[..., pairs[:, 0]] + obj.log_softmax(-1)[..., pairs[:, 1]]
    if pair is None:
        return primitives
    return (1 - share) * primitives + share * pair.log_softmax(-1)


@MODELS.register_module()
class RegressionHead(CompositionHead):
    """Classifies frozen features by softmax regressions, for hundreds of photographs.

    With x the feature of an image, scaled to unit norm, and W_a, W_o, W_c the weights:

        log score = (1 - s) (log p(a|x) + log p(o|x)) + s log p(c|x),  p(.|x) = softmax(W x + b)

    Each W minimises cross-entropy plus a penalty, in which classes with related words have
    related weights (:mod:`mmcluspro.models.softmax`). Pairs share what their attributes and
    objects share, so unseen pairs and new words have weights, too.

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
        sizes = len(self.space.attributes), len(self.space.objects), len(self.train_candidates)
        self.dual = nn.ParameterDict({
            name: nn.Parameter(torch.zeros(size, in_channels))
            for name, size in zip(LABELS, sizes)})
        self.bias = nn.ParameterDict({
            name: nn.Parameter(torch.zeros(size)) for name, size in zip(LABELS[:2], sizes)})
        self.register_buffer('words', torch.tensor(0.0))
        self.register_buffer('share', torch.tensor(0.0))

    @torch.no_grad()
    def fit(self, features: Tensor, labels: dict[str, Tensor], settings: Settings,
            tolerance: float = 1e-6) -> None:
        """Finds the weights.

        Args:
            features (Tensor): f of all N training images, (N, D).
            labels (dict[str, Tensor]): 'attr', 'obj' and 'pair', (N,) each; 'pair' are rows of
                ``train_candidates.pairs``.
            settings (Settings): Penalties and shares.
            tolerance (float): As in :func:`~mmcluspro.models.softmax.fit`. Defaults to 1e-6.
        """
        x = F.normalize(features.double(), dim=1)
        candidates = self.train_candidates
        attr, obj = self.names(candidates)
        kernels = attr.kernel(attr, settings.words), obj.kernel(obj, settings.words)
        rows, columns = candidates.pairs.T
        between = pair_kernel(kernels[0][rows[:, None], rows],
                              kernels[1][columns[:, None], columns])
        self.words.fill_(settings.words)
        self.share.fill_(settings.pairs)
        for name, kernel, penalty in zip(LABELS, (*kernels, between), settings[:3]):
            if name == 'pair' and not settings.pairs:
                continue
            found = fit(Problems.single(x, labels[name], kernel, penalty), 1000, tolerance)
            self.dual[name].copy_(found.dual[0])
            if name in self.bias:
                self.bias[name].copy_(found.bias[0])

    def for_space(self, space: CompositionSpace) -> RegressionHead:
        """A head for other seen pairs of the same names; it has yet to be fitted.

        Args:
            space (CompositionSpace): The pairs.
        """
        learns = any(weight.requires_grad for weight in self.text.parameters())
        other = deepcopy(self, {} if learns else {id(self.text): self.text})
        other.space, other._known = space, Candidates.from_space(space)
        other._train = Candidates.from_space(space, seen_only=True)
        other.dual['pair'] = nn.Parameter(self.dual['pair'].new_zeros(
            len(other._train), self.dual['pair'].shape[1]))
        return other

    def names(self, candidates: Candidates) -> tuple[Names, Names]:
        """The attributes and objects of candidates."""
        return (Names(candidates.text_attributes,
                      self.text.encode_attributes()[candidates.text_attributes]),
                Names(candidates.text_objects,
                      self.text.encode_objects()[candidates.text_objects]))

    def weights(self, candidates: Candidates) -> dict[str, Tensor]:
        """What the features are multiplied with.

        Args:
            candidates (Candidates): The pairs to choose from.

        Returns:
            dict[str, Tensor]: ``attr``, (A_known, A), ``obj`` and ``pair``: covariances of the
            trained classes with those of the candidates; and ``attr_bias`` (A,) and ``obj_bias``.
        """
        known = self.train_candidates
        ours, theirs = self.names(known), self.names(candidates)
        kernels = [own.shares(other, self.words) for own, other in zip(ours, theirs)]
        both = [kernel[known.pairs[:, i]][:, candidates.pairs[:, i]]
                for i, kernel in enumerate(kernels)]
        biases = [torch.cat([self.bias[name], self.bias[name].new_zeros(1)])[
            other.places.clamp(max=len(own.places))]  # the last one is that of all new names
            for own, other, name in zip(ours, theirs, LABELS)]
        return dict(attr=kernels[0], obj=kernels[1], pair=pair_kernel(*both),
                    attr_bias=biases[0], obj_bias=biases[1])

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """Log scores of pairs, and the probabilities of attributes and objects.

        Args:
            feats (Features): Of B images; the composition path is used.
            candidates (Candidates): The pairs to choose from.
        """
        candidates = candidates.to(self.device)
        attr, obj, pair = self._logits(as_features(feats), candidates)
        return Scores(mix(attr, obj, pair, candidates.pairs, self.share),
                      attr.softmax(dim=1), obj.softmax(dim=1))

    def _logits(self, features: Features, candidates: Candidates) -> tuple[Tensor, ...]:
        x = F.normalize(features.composition.float(), dim=1)
        parts = self.weights(candidates)
        # The trained classes first: a product with the weights of many pairs would be larger.
        attr, obj, pair = (x @ self.dual[name].T @ parts[name] for name in LABELS)
        return attr + parts['attr_bias'], obj + parts['obj_bias'], pair

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Logits over the seen pairs; there are no texts of pairs."""
        candidates = self.train_candidates
        logits = Logits(*self._logits(features, candidates))
        return TrainStep(features, Texts(None, None, logits.composition.new_zeros(
            len(candidates), 0)), logits, labels, candidates)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """Cross-entropy of the three regressions, without the penalty of :meth:`fit`."""
        return {f'{name}_loss': F.cross_entropy(logits, step.labels[name])
                for name, logits in zip(LABELS, step.logits) if logits is not None}

    def portable(self) -> Portable:
        """Products with the weights in numpy."""
        share = float(self.share)

        def arrays(candidates: Candidates) -> Arrays:
            parts = self.weights(candidates.to(self.device))
            weights = {f'weight_{name}': parts[name].T @ self.dual[name]
                       for name in LABELS}
            biases = {f'bias_{name}': parts[f'{name}_bias'] for name in LABELS[:2]}
            return {name: value.detach().cpu().numpy()
                    for name, value in (weights | biases).items()}

        return Portable(('composition', ), dict(pairs_share=share),
                        lambda features, table: portable_scores(features, table, share), arrays)


def portable_scores(features: Arrays, table: Arrays, share: float) -> np.ndarray:
    """:meth:`RegressionHead.score` in numpy; shape (B, P)."""
    x, pairs = features['composition'], table['pairs']
    attr, obj, pair = (_log_softmax(x @ table[f'weight_{name}'].T + table.get(f'bias_{name}', 0))
                       for name in LABELS)
    return (1 - share) * (attr[:, pairs[:, 0]] + obj[:, pairs[:, 1]]) + share * pair


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    rest = logits - logits.max(axis=1, keepdims=True)
    return rest - np.log(np.exp(rest).sum(axis=1, keepdims=True))
