"""Softmax regressions joined with text paths: for hundreds and for thousands of photographs."""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.datasets import CompositionSpace
from mmcluspro.fields import Part, Unsaved, Width
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.structures import (
    PATHS,
    Features,
    Logits,
    Scores,
    as_features,
)
from mmcluspro.models.text.encoder import TextEncoder
from mmcluspro.registry import MODELS

from .base import LABELS, Arrays, Portable, three_path_scores
from .regression import Names, RegressionHead, Settings, portable_scores
from .three_path import fuse

BATCH = 64
STEPS, EPOCHS = 120, 20  # at least so many of each
RATE, DECAY = 1e-3, 5e-5
TINY = 1e-30


@MODELS.register_module()
class JoinedHead(RegressionHead):
    """A weighted geometric mean of two regressions and of three text paths.

    With t the share of the text paths, whose score is that of Eq. 13:

        log score = (1 - t) (log p(a|x) + log p(o|x) + V_ao) + t log (p(c|x) + p(a|x) p(o|x))

    A text path compares a linear projection of the feature with the projected word vectors, as
    the three-path baseline does; attribute and object are composed by an MLP. Regressions win with
    few photographs, text paths with many; :class:`~mmcluspro.evaluation.held_out.CrossValidation`
    chooses t. New words are answered by both: a regression expects their
    weights from those of related words.

    Args:
        space (CompositionSpace | dict): As in :class:`CompositionHead`.
        text (dict): A ``dict(type='mmcluspro.WordVectorText', learn_vectors=True)``.
        in_channels (int): Width D of the features.
        **kwargs: As in :class:`CompositionHead`.
    """

    texts_share: Tensor

    def __init__(self, space: Unsaved[CompositionSpace | dict],
                 text: Annotated[dict, Part((TextEncoder, ))], in_channels: Width,
                 **kwargs: Any) -> None:
        super().__init__(space, text, in_channels, **kwargs)
        self.project = nn.ModuleDict({
            path: nn.Linear(in_channels, self.text.out_dim, bias=False) for path in PATHS})
        tables = self.text.attr_table, self.text.obj_table
        for name, table in zip(LABELS, tables):
            self.register_buffer(f'{name}_words', table.vectors.detach().clone())
        self.register_buffer('texts_share', torch.tensor(0.0))

    def fit(self, features: Tensor, labels: dict[str, Tensor], settings: Settings,
            *args: Any) -> None:
        """Finds the weights of the regressions, then trains the text paths for seconds.

        Args:
            features (Tensor): f of all N training images, (N, D).
            labels (dict[str, Tensor]): 'attr', 'obj' and 'pair', (N,) each.
            settings (Settings): Penalties and shares.
            *args: As in :class:`RegressionHead`.
        """
        super().fit(features, labels, settings, *args)
        self.texts_share.fill_(settings.texts)
        if settings.texts:
            self.fit_texts(features, labels)

    def names(self, candidates: Candidates) -> tuple[Names, Names]:
        """The attributes and objects of candidates, with the word vectors before training."""
        attr, obj = (F.normalize(torch.cat([getattr(self, f'{name}_words'), table.added]), dim=1)
                     for name, table in zip(LABELS, (self.text.attr_table, self.text.obj_table)))
        return (Names(candidates.text_attributes, attr[candidates.text_attributes]),
                Names(candidates.text_objects, obj[candidates.text_objects]))

    @torch.enable_grad()
    def fit_texts(self, features: Tensor, labels: dict[str, Tensor]) -> None:
        """Trains the text paths anew, with Adam and the same random numbers each time.

        Args:
            features (Tensor): f of N images, (N, D).
            labels (dict[str, Tensor]): 'attr', 'obj' and 'pair', (N,) each.
        """
        count = len(features)
        x = self._scaled(features.float())
        epochs = max(EPOCHS, -(-STEPS // -(-count // BATCH)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self._restart()
            weights = [*self.project.parameters(),
                       *(weight for weight in self.text.parameters() if weight.requires_grad)]
            optimizer = torch.optim.Adam(weights, lr=RATE, weight_decay=DECAY)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
                optimizer, epochs * -(-count // BATCH))
            for _ in range(epochs):
                for rows in torch.randperm(count).to(x.device).split(BATCH):
                    logits = self._logits_of_texts(x[rows], self.train_candidates)
                    loss = torch.stack([F.cross_entropy(each, labels[name][rows])
                                        for name, each in zip(LABELS, logits)]).sum()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    schedule.step()
        self.text.forget()

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """Log scores of pairs, and the joined probabilities of attributes and objects.

        Args:
            feats (Features): Of B images; the composition path is used.
            candidates (Candidates): The pairs to choose from.
        """
        candidates = candidates.to(self.device)
        plain = super().score(feats, candidates)
        share = self.texts_share
        if not share:
            return plain
        texts = self.text_scores(as_features(feats).composition, candidates)
        return Scores(*((1 - share) * one + share * other.clamp_min(TINY).log()
                        for one, other in zip(plain[:1], texts[:1])),
                      *(_mean(one, other, share) for one, other in zip(plain[1:], texts[1:])))

    def text_scores(self, features: Tensor, candidates: Candidates) -> Scores:
        """Eq. 13 of the text paths.

        Args:
            features (Tensor): f of B images, (B, D).
            candidates (Candidates): The pairs to choose from.
        """
        return fuse(Logits(*self._logits_of_texts(
            self._scaled(features.float()), candidates)), candidates)

    def portable(self) -> Portable:
        """Products with the weights in numpy, and cosines to the texts."""
        plain, share = super().portable(), float(self.texts_share)
        scale = float(torch.exp(self.text.logit_scale))

        def arrays(candidates: Candidates) -> Arrays:
            return {**plain.arrays(candidates), **{
                f'project_{name.removesuffix(".weight")}': weight.cpu().numpy()
                for name, weight in self.project.state_dict().items()}}

        return Portable(plain.paths, dict(plain.info, texts_share=share, scale=scale), partial(
            portable_joined, texts=share, scale=scale), arrays)

    @staticmethod
    def _scaled(features: Tensor) -> Tensor:
        """Features of unit mean square, so that one rate fits all towers."""
        return F.normalize(features, dim=1) * features.shape[1] ** 0.5

    def _logits_of_texts(self, x: Tensor, candidates: Candidates) -> list[Tensor]:
        """Of attributes (B, A), objects (B, O) and pairs (B, P)."""
        texts = self.text(candidates.text_pairs)
        known = candidates.text_attributes, candidates.text_objects, slice(None)
        scale = torch.exp(self.text.logit_scale)
        return [scale * F.normalize(self.project[path](x), dim=1) @ text[rows].T
                for path, text, rows in zip(PATHS, texts, known)]

    @torch.no_grad()
    def _restart(self) -> None:
        """Weights as at the start of a training, and the word vectors of the file."""
        first, *others = self.project.values()
        for module in (*self.text.modules(), first):
            if isinstance(module, nn.Linear):
                module.reset_parameters()
        for layer in others:  # the three paths begin with one projection
            layer.load_state_dict(first.state_dict())
        for name, table in zip(LABELS, (self.text.attr_table, self.text.obj_table)):
            table.vectors.copy_(getattr(self, f'{name}_words'))
        self.text.forget()


def _mean(one: Tensor | None, other: Tensor | None, share: Tensor) -> Tensor | None:
    """The weighted geometric mean of two tables of probabilities, summing to one."""
    if one is None or other is None:
        return None
    return ((1 - share) * one.clamp_min(TINY).log()
            + share * other.clamp_min(TINY).log()).softmax(dim=1)


def portable_joined(features: Arrays, table: Arrays, texts: float, scale: float) -> np.ndarray:
    """:meth:`JoinedHead.score` in numpy; shape (B, P)."""
    plain = portable_scores(features, table)
    if not texts:
        return plain
    x = {path: features['composition'] @ table[f'project_{path}'].T for path in PATHS}
    unit = {path: each / np.linalg.norm(each, axis=1, keepdims=True) for path, each in x.items()}
    scores = three_path_scores(unit, table, 'probability', scale)
    return (1 - texts) * plain + texts * np.log(np.maximum(scores, TINY))
