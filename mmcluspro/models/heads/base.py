"""Base class of all heads: candidates in, scores out; losses by config; one way to predict.

:class:`Portable` scores features with a table of texts, without torch.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from mmengine.model import BaseModule
from mmpretrain.structures import DataSample
from torch import Tensor, nn

from mmcluspro.datasets import CompositionSpace, build_space
from mmcluspro.fields import Part, Unsaved, choice
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.prototypes import PrototypeBank
from mmcluspro.models.structures import Features, Scores, Texts, TrainStep, as_features
from mmcluspro.models.text.encoder import TextEncoder
from mmcluspro.registry import MODELS
from mmcluspro.utils.device import upload

Arrays = Mapping[str, np.ndarray]


class Portable(NamedTuple):
    """How to score the features of a head outside torch.

    Attributes:
        paths (tuple[str, ...]): The features that the graph returns, of 'attribute', 'object'
            and 'composition', unit norm.
        info (dict): Plain data that the reader of the table needs, as JSON takes it.
        score (Callable): What the reader computes: features by path, (B, D) each, and the table
            with ``text_a`` (A, D), ``text_o`` (O, D), ``text_c`` (P, D) and ``pairs`` (P, 2), to
            pair scores (B, P). Export compares it with the head's ``score``.
        arrays (Callable): From candidates to further arrays of the table, by name. Defaults to
            none.
    """

    paths: tuple[str, ...]
    info: dict[str, Any]
    score: Callable[[Arrays, Arrays], np.ndarray]
    arrays: Callable[[Candidates], Arrays] = lambda candidates: {}


def three_path_scores(features: Arrays, table: Arrays, fusion: str, scale: float,
                      evidence: float = 0.0) -> np.ndarray:
    """Eq. 13 in numpy, see :func:`~mmcluspro.models.heads.fuse`; shape (B, P).

    With ``evidence``, pairs that have prototypes ``pair_a`` and ``pair_o`` are compared with
    them, see :class:`~mmcluspro.models.heads.ClusProPlusHead`.
    """
    pair = scale * (features['composition'] @ table['text_c'].T)
    known = table['pair_a'].any(axis=1) if evidence else np.zeros(len(table['pairs']), bool)
    if known.any():
        raised = pair[:, known] + evidence * scale * (
            features['attribute'] @ table['pair_a'][known].T
            + features['object'] @ table['pair_o'][known].T)
        pair[:, known] = raised + (_logsumexp(pair[:, known]) - _logsumexp(raised))
    score = pair if fusion == 'logits' else _softmax(pair)
    if fusion == 'composition':
        return score
    attr = _softmax(scale * (features['attribute'] @ table['text_a'].T))
    obj = _softmax(scale * (features['object'] @ table['text_o'].T))
    return score + attr[:, table['pairs'][:, 0]] * obj[:, table['pairs'][:, 1]]


def _logsumexp(logits: np.ndarray) -> np.ndarray:
    most = logits.max(axis=1, keepdims=True)
    return most + np.log(np.exp(logits - most).sum(axis=1, keepdims=True))


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


FEASIBILITIES = ('pretrained', 'trained', 'relatedness')
Feasibility = Annotated[str, choice(*FEASIBILITIES)]
LABELS = ('attr', 'obj', 'pair')


class CompositionHead(BaseModule):
    """Base class of all heads. Subclasses implement ``score``, ``step`` and ``terms``.

    Validation, test, prediction, the demo, pictures, calibration and export all call
    :meth:`score`, and nothing else.

    Attributes:
        link (str): Maps pair scores to log scores, to which a bias is added: 'log', or 'identity'
            for scores that are logits.

    Args:
        space (CompositionSpace | dict): Label space, or a config for
            :func:`~mmcluspro.datasets.build_space`. The classifier fills it in from its own
            ``space``.
        text (dict | nn.Module): The text side, or its config, for example
            ``dict(type='mmcluspro.CLIPText', arch='ViT-L-14')``, whose ``attributes`` and
            ``objects`` are filled in from the space.
        feasibility (str): Embeddings that decide which pairs are feasible in the open world (Eq.
            14): 'pretrained' for the text side before training, 'trained' for its trained features
            of attributes and objects, or 'relatedness' for the cosine between the pre-trained
            vectors of attribute and object (KG-SP). Defaults to 'pretrained', as in the paper.
        losses (Sequence[dict]): Further losses. Each is a module that is called with a
            :class:`~mmcluspro.models.TrainStep` and returns a weighted scalar, which is logged as
            ``<name>_loss``. Defaults to ().
        init_cfg (dict, optional): As in mmengine. Defaults to None.
    """

    link: str = 'log'

    def __init__(self, space: Unsaved[CompositionSpace | dict],
                 text: Annotated[dict | nn.Module, Part((TextEncoder, ))],
                 feasibility: Feasibility = 'pretrained',
                 losses: Unsaved[Sequence[Mapping[str, Any]]] = (),
                 init_cfg: Unsaved[dict | None] = None) -> None:
        super().__init__(init_cfg)
        if feasibility not in FEASIBILITIES:
            raise ValueError(
                f'head.feasibility must be one of {FEASIBILITIES}, got {feasibility!r}.')
        self.feasibility = feasibility
        self.space = build_space(space, 'train')
        names = self.space.attributes, self.space.objects
        if isinstance(text, nn.Module) and (text.attributes, text.objects) != names:
            raise ValueError('head.text has other attributes or objects than head.space: build it '
                             'with those of the space, in its order.')
        self.text: Any = text if isinstance(text, nn.Module) else MODELS.build(
            dict(text, attributes=names[0], objects=names[1]))
        self.losses = nn.ModuleDict(_build_losses(losses))
        self._known = Candidates.from_space(build_space(space, 'all'))
        self._train = Candidates.from_space(self.space, seen_only=True)

    @property
    def device(self) -> torch.device:
        """Device of the head."""
        return self.text.logit_scale.device

    @property
    def known_candidates(self) -> Candidates:
        """The pairs of all phases, on the device of the head."""
        self._known = self._known.to(self.device)
        return self._known

    @property
    def train_candidates(self) -> Candidates:
        """The seen pairs, on the device of the head."""
        self._train = self._train.to(self.device)
        return self._train

    @property
    def clustered(self) -> Mapping[str, PrototypeBank]:
        """Banks by branch ('attr', 'obj') that ``PrototypeHook`` initialises; none by default."""
        return {}

    @property
    def prototypes(self) -> Mapping[str, PrototypeBank]:
        """Banks of :attr:`clustered` that already have prototypes."""
        return {branch: bank for branch, bank in self.clustered.items() if bool(bank.initialised)}

    @property
    def unscored(self) -> tuple[str, ...]:
        """Parts that no score needs, which a model that only predicts is built without."""
        return ('losses', )

    def update_prototypes(self) -> None:
        """Updates the prototypes after an iteration; does nothing without banks."""

    def begin_epoch(self, epoch: int) -> None:
        """Called before each training epoch, counted from 0; does nothing by default."""

    def end_epoch(self, epoch: int) -> None:
        """Called after each training epoch, before its validation; does nothing by default."""

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """Scores images over candidates. This is the only method that computes scores.

        Args:
            feats (Features): Of B images.
            candidates (Candidates): The pairs to choose from.
        """
        raise NotImplementedError

    def score_worlds(self, feats: Features,
                     worlds: Mapping[str, Candidates]) -> dict[str, Scores]:
        """Scores over several sets of candidates; a head may share what they have in common.

        Args:
            feats (Features): Of B images.
            worlds (Mapping[str, Candidates]): By name.
        """
        return {world: self.score(feats, candidates) for world, candidates in worlds.items()}

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Texts and logits of a training step."""
        raise NotImplementedError

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """The head's own losses by name, already weighted."""
        raise NotImplementedError

    def adapt(self, feats: Features | Sequence[Tensor]) -> None:
        """Receives the features of unlabelled test images before they are scored.

        It does nothing by default. Validation, test and prediction call it once per batch, so a
        head can update its state at test time. :meth:`forget_adaptation` is called before each
        evaluation.
        """

    def forget_adaptation(self) -> None:
        """Restores the state after training; does nothing by default."""

    def portable(self) -> Portable:
        """How to score features with a table of texts outside torch, for ``mmcluspro export``."""
        raise ValueError(
            f'{type(self).__name__} cannot be exported: it does not say how features are scored '
            'outside torch. A head says so in its method portable, see docs/extending.md; '
            'ThreePathHead and ClusProHead do.')

    def texts(self, candidates: Candidates, primitives: bool = True) -> Texts:
        """Text features of candidates; cached if nothing on the text side is trained.

        Args:
            candidates (Candidates): On the device of the head.
            primitives (bool): Whether to include the attribute and object paths. Defaults to True.
        """
        if not primitives:
            return Texts(None, None, self.text.encode_pairs(candidates.text_pairs))
        # One call for three paths, so that they share what dropout leaves of the vocabulary.
        attr, obj, pair = self.text(candidates.text_pairs)
        sizes = len(candidates.attributes), len(candidates.objects)
        if not candidates.all_names or (len(attr), len(obj)) != sizes:
            attr, obj = attr[candidates.text_attributes], obj[candidates.text_objects]
        return Texts(attr, obj, pair)

    def loss(self, feats: Features | Sequence[Tensor], data_samples: list[DataSample],
             **kwargs: Any) -> dict[str, Tensor]:
        """All losses of a batch, by name.

        Args:
            feats (Features): Of B images.
            data_samples (list[DataSample]): With ``attr_label``, ``obj_label``, ``pair_label``.
        """
        step = self.step(as_features(feats), self.labels(data_samples))
        losses = self.terms(step)
        for name, loss in self.losses.items():
            if f'{name}_loss' in losses:
                raise ValueError(
                    f'head.losses has a loss called {name!r}, which {type(self).__name__} has '
                    'already: give it another name.')
            losses[f'{name}_loss'] = loss(step)
        return losses

    def labels(self, data_samples: list[DataSample]) -> dict[str, Tensor]:
        """Labels of a batch: 'attr', 'obj' and 'pair', each of shape (B,)."""
        labels = [[int(sample.get(f'{name}_label')) for sample in data_samples] for name in LABELS]
        return dict(zip(LABELS, upload(labels, self.device)))

    def forward(self, feats: Features | Sequence[Tensor]) -> Tensor:
        """Scores over the pairs of all phases, shape (B, P)."""
        return self.score(feats, self.known_candidates).pair

    def predict(self, feats: Features | Sequence[Tensor],
                data_samples: list[DataSample | None] | None = None,
                worlds: Mapping[str, Candidates] | None = None) -> list[DataSample]:
        """Adds ``<world>_score`` to the samples, for each world.

        Args:
            feats (Features): Of B images.
            data_samples (list[DataSample], optional): Samples to fill. Defaults to None, for new
                ones.
            worlds (Mapping[str, Candidates], optional): Candidates by name. Defaults to None: the
                pairs of all phases as 'closed'.

        Returns:
            list[DataSample]: Samples; the first world's scores are also in ``pred_score``, and
            its best pair in ``pred_label``.
        """
        feats = as_features(feats)
        worlds = worlds or {'closed': self.known_candidates}
        samples = [sample if sample is not None else DataSample()
                   for sample in data_samples or [None] * len(feats)]
        self.adapt(feats)
        for place, (world, found) in enumerate(self.score_worlds(feats, worlds).items()):
            scores = found.pair
            best = scores.argmax(dim=1, keepdim=True)
            for sample, row, label in zip(samples, scores, best):
                sample.set_field(row, f'{world}_score')
                if not place:
                    sample.set_pred_score(row).set_pred_label(label)
        return samples


def _build_losses(configs: Sequence[Mapping[str, Any]]) -> dict[str, nn.Module]:
    losses: dict[str, nn.Module] = {}
    for place, config in enumerate(configs):
        fields = dict(config)
        name = fields.pop('name', None) or str(fields.get('type', '')).rpartition('.')[2].lower()
        if name in losses:
            raise ValueError(f'head.losses[{place}] is called {name!r} like another one: set its '
                             'name.')
        losses[name] = MODELS.build(fields)
    return losses
