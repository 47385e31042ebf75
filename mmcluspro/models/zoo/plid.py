"""PLID: prompts informed by descriptions of each pair, which also give their distribution.

Bao, Chen, Huang and Kong, "Prompting Language-Informed Distribution for Compositional Zero-Shot
Learning".
"""
from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from open_clip.transformer import QuickGELU
from torch import Tensor, nn
from torch.distributions import Beta
from torch.nn import functional as F

from mmcluspro.errors import FileError
from mmcluspro.fields import Unsaved, Width, integer, items, number, text
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads import Portable, ThreePathHead
from mmcluspro.models.heads.base import Arrays
from mmcluspro.models.necks import Neck
from mmcluspro.models.structures import (
    PATHS,
    Features,
    Logits,
    Scores,
    Texts,
    TrainStep,
    as_features,
    with_width,
)
from mmcluspro.models.text import CLIPText
from mmcluspro.registry import MODELS

from .common import AttentionBlock, primitive_means

# Of a pair for which no file has sentences: {0} is the attribute, {1} the object.
TEMPLATES = (
    'a photo of a {0} {1}', 'a picture of one {0} {1}', 'an image with a {0} {1} in it',
    'the {1} in the photo is {0}', 'a close view of a {0} {1}', 'this {1} looks {0}',
    'a {1} that is {0}', 'a {0} {1} in the centre')


@MODELS.register_module()
class PLIDText(CLIPText):
    """Soft prompts that read the descriptions of their pair.

    t_c of the prompt attends to the features d_1 … d_N of N sentences about the pair, which the
    frozen tower makes: t'_c = t_c + attention(t_c, d), then t'_c + MLP(t'_c).

    Args:
        *args: As in :class:`~mmcluspro.models.text.CLIPText`.
        num_texts (int): N, sentences per pair. Defaults to 8, all templates.
        templates (Sequence[str]): Sentences of a pair that ``descriptions`` does not have, with
            {0} for the attribute and {1} for the object. Defaults to eight sentences.
        descriptions (str | None): JSON file with sentences by pair,
            ``{"red,circle": ["A circle painted red.", …]}``, raw names. Defaults to None: all
            pairs have the templates.
        attn_dropout (float): Dropout rate of the attention and in the MLP. Defaults to 0.1.
        released (bool): As the released code: t' and d keep their length, the block starts at
            random and has dropout twice in its MLP. Defaults to False.
        **kwargs: As in :class:`~mmcluspro.models.text.CLIPText`.
    """

    def __init__(self, *args: Any, num_texts: Annotated[int, integer(1, 1000)] = len(TEMPLATES),
                 templates: Annotated[Sequence[str], items(text(), 1, 1000)] = TEMPLATES,
                 descriptions: str | None = None, attn_dropout: Unsaved[float] = 0.1,
                 released: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not 1 <= num_texts <= len(templates):
            raise ValueError(f'text.num_texts must lie in [1, {len(templates)}], the number of '
                             f'text.templates, got {num_texts}.')
        for template in templates:
            rest = template.replace('{0}', '').replace('{1}', '')
            if '{0}' not in template or '{1}' not in template or {'{', '}'} & {*rest}:
                raise ValueError('text.templates need {0} for the attribute and {1} for the '
                                 f'object, and no other brackets, got {template!r}.')
        self.templates = tuple(templates[:num_texts])
        self.written = read_descriptions(descriptions, num_texts) if descriptions else {}
        self.unit_norm = not released
        self.enhance = AttentionBlock(self.out_dim, True, attn_dropout, attn_dropout,
                                      identity=not released, drop_twice=released)

    def sentences(self, pairs: Tensor) -> list[str]:
        """The sentences of pairs (P, 2), N for each, in their order."""
        found: list[str] = []
        for attr, obj in pairs.tolist():
            names = self.attributes[attr], self.objects[obj]
            spoken = [self.readable(name) for name in names]
            found += self.written.get(names) or [
                template.format(*spoken) for template in self.templates]
        return found

    def describe(self, pairs: Tensor) -> Tensor:
        """Features of the sentences of pairs, shape (P, N, D)."""
        return self.encode_sentences(self.sentences(pairs)).unflatten(0, (len(pairs), -1))

    def embed(self, path: str, parts: Any, pairs: Tensor | None) -> Tensor:
        found = super().embed(path, parts, pairs)
        if path != 'composition' or pairs is None:
            return found
        # The sentences of the open world are not kept: the result is.
        size = self.chunk()
        return torch.cat([
            self.enhance(text[:, None], self.describe(part).to(text))[:, 0]
            for text, part in zip(found.split(size), pairs.split(size))])


@MODELS.register_module()
class PLIDNeck(Neck):
    """f → f_a = MLP_a(f), f_o = MLP_o(f), f_c = f, as in the released code.

    Args:
        in_channels (int): Width D of f. Each MLP has one hidden layer of 4 D and QuickGELU.
        dropout (float): After the activation. Defaults to 0.1.
    """

    def __init__(self, in_channels: Width, dropout: Unsaved[float] = 0.1) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.attribute, self.object = (nn.Sequential(
            nn.Linear(in_channels, 4 * in_channels), QuickGELU(), nn.Dropout(dropout),
            nn.Linear(4 * in_channels, in_channels)) for _ in range(2))

    def forward(self, inputs: Features | Tensor | Sequence[Tensor]) -> Features:
        """f of shape (B, D) → f_a, f_o and f_c, (B, D) each."""
        features = with_width(inputs, self.in_channels)
        f = features.composition
        return replace(features, attribute=self.attribute(f), object=self.object(f))


def read_descriptions(path: str, num_texts: int) -> dict[tuple[str, str], list[str]]:
    """The first ``num_texts`` sentences of each pair of a JSON file.

    Args:
        path (str): The file, ``{"attribute,object": [sentence, …]}``.
        num_texts (int): Sentences per pair.
    """
    try:
        table = json.loads(Path(path).expanduser().read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise FileError(path, f'the descriptions cannot be read ({error})',
                        'Set model.head.text.descriptions to a JSON file, see docs/baselines.md.'
                        ) from error
    found = {}
    for name, sentences in table.items() if isinstance(table, dict) else [('', None)]:
        attr, comma, obj = name.partition(',')
        if not comma or not isinstance(sentences, list) or len(sentences) < num_texts or not all(
                isinstance(sentence, str) for sentence in sentences):
            raise FileError(path, f'the entry {name!r} is not a list of at least {num_texts} '
                            'sentences under "attribute,object"',
                            'Write it so, or lower model.head.text.num_texts.')
        found[attr.strip(), obj.strip()] = sentences[:num_texts]
    return found


@MODELS.register_module()
class PLIDHead(ThreePathHead):
    """Compositions and primitives fused in logits; cross-entropy under Gaussian texts.

    Texts of primitives are means over pairs: t_a = mean_o t'_(a,o), t_o = mean_a t'_(a,o). With
    cosines over temperature l_c, l_a, l_o of (f, t'_c), (f_a, t_a) and (f_o, t_o),

        score:  softmax_c((1 − β) l_c + β (l_a + l_o)),  β ~ Beta(1, 9) in training, its mean 0.1
                in testing.

    The texts of a class are the samples unit(t'_c + d_n) with the diagonal covariance Σ between
    classes; t' and d have unit norm, or their own length with ``text.released``. The loss
    is the cross-entropy of the logits plus the upper bound

        ½ τ⁻² f² · (Σ_yy + Σ_jj − 2 Σ_yj)    for each class j beside the true one y,

    and the same for attributes and objects with small weights.

    Args:
        *args: As in :class:`~mmcluspro.models.heads.ThreePathHead`; ``text.type`` is
            'mmcluspro.PLIDText'.
        beta (tuple[float, float]): Parameters of the Beta distribution. Defaults to (1, 9).
        smoothing (float): Part of the label that goes to the other seen pairs of the attribute.
            Defaults to 0.0.
        group_objects (bool): Covariances of objects in the place of those of pairs, for many
            pairs. Defaults to False.
        loss_weights (dict, optional): Of 'attr', 'obj' and 'pair'. Defaults to None: 0.01, 0.01
            and 1.
        **kwargs: As in :class:`~mmcluspro.models.heads.ThreePathHead`; ``fusion`` has no meaning.
    """

    def __init__(self, *args: Any,
                 beta: Annotated[Sequence[float], items(number(1e-6, 1e6), 2, 2)] = (1.0, 9.0),
                 smoothing: Unsaved[float] = 0.0, group_objects: Unsaved[bool] = False,
                 loss_weights: Unsaved[dict | None] = None, **kwargs: Any) -> None:
        super().__init__(*args, loss_weights=dict(attr=0.01, obj=0.01) | (loss_weights or {}),
                         **kwargs)
        if not isinstance(self.text, PLIDText):
            raise ValueError("PLIDHead needs head.text.type='mmcluspro.PLIDText', got "
                             f'{type(self.text).__name__}.')
        if len(beta) != 2 or min(beta) <= 0:
            raise ValueError(f'head.beta must be two positive numbers, got {tuple(beta)}.')
        if not 0 <= smoothing < 1:
            raise ValueError(f'head.smoothing must lie in [0, 1), got {smoothing}.')
        self.beta, self.smoothing = tuple(beta), smoothing
        self.group_objects = group_objects

    @property
    def link(self) -> str:  # type: ignore[override]
        """'log': scores are probabilities."""
        return 'log'

    @property
    def factor(self) -> float:
        """β of testing, the mean of its distribution."""
        return self.beta[0] / sum(self.beta)

    def texts(self, candidates: Candidates, primitives: bool = True) -> Texts:
        """Texts of pairs that read their descriptions and their means per primitive, unit norm."""
        return self.unit(self.centres(candidates))

    def centres(self, candidates: Candidates) -> Texts:
        """The texts to which descriptions are added: unit norm, or as ``text.released`` says."""
        pair = self.text.encode_pairs(candidates.text_pairs)
        sizes = len(candidates.attributes), len(candidates.objects)
        attr, obj = (primitive_means(pair, column, size)[0]
                     for column, size in zip(candidates.pairs.T, sizes))
        found = Texts(attr, obj, pair)
        return self.unit(found) if self.text.unit_norm else found

    @staticmethod
    def unit(texts: Texts) -> Texts:
        """The same with unit norm."""
        return Texts._make(F.normalize(text, dim=1) for text in texts if text is not None)

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """Softmax of the fused logits over candidates."""
        candidates = candidates.to(self.device)
        logits = self.compare(as_features(feats), self.texts(candidates), candidates)
        attr, obj = logits.attribute, logits.object
        assert attr is not None and obj is not None
        return Scores(fused(logits, candidates, self.factor).softmax(dim=1), attr.softmax(dim=1),
                      obj.softmax(dim=1))

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Texts and logits over the seen pairs, those of pairs fused with a β drawn anew."""
        candidates = self.train_candidates
        texts = self.centres(candidates)
        logits = self.compare(features, self.unit(texts), candidates)
        first, second = (torch.tensor(value) for value in self.beta)
        share = float(Beta(first, second).sample())
        return TrainStep(features, texts, logits._replace(
            composition=fused(logits, candidates, share)), labels, candidates)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """Cross-entropies under the upper bound, of pairs, attributes and objects."""
        candidates, texts = step.candidates, step.texts
        described = self.text.describe(candidates.text_pairs)
        scale = self.text.logit_scale.exp()
        losses = {}
        classes = dict(attr=candidates.pairs[:, 0], obj=candidates.pairs[:, 1], pair=None)
        for path, (name, index) in zip(PATHS, classes.items()):
            text, logit = getattr(texts, path), getattr(step.logits, path)
            samples = described if index is None else primitive_means(
                described.flatten(1), index, len(text))[0].view(len(text), *described.shape[1:])
            samples = F.normalize(text[:, None] + samples, dim=-1)
            owner, label = torch.arange(len(text), device=text.device), step.labels[name]
            if name == 'pair' and self.group_objects:
                owner = candidates.pairs[:, 1]
                samples = primitive_means(samples.flatten(1), owner, len(candidates.objects)
                                          )[0].view(-1, *samples.shape[1:])
            image = F.normalize(step.features.paths[path].float(), dim=1)
            bound = upper_bound(image, samples, owner[label])[:, owner]
            target = smoothed(label, candidates.pairs[:, 0], self.smoothing) if (
                name == 'pair' and self.smoothing) else label
            losses[f'{name}_loss'] = self.loss_weights[name] * F.cross_entropy(
                logit + 0.5 * scale**2 * bound, target)
        return {name: loss for name, loss in losses.items() if self.loss_weights[name[:-5]]}

    def portable(self) -> Portable:
        """Cosines and their fusion in numpy."""
        scale = float(self.text.logit_scale.exp())
        return Portable(PATHS, dict(fusion='plid', scale=scale, factor=self.factor),
                        partial(_portable_scores, scale=scale, factor=self.factor))


def fused(logits: Logits, candidates: Candidates, share: float) -> Tensor:
    """(1 − β) l_c + β (l_a + l_o) of each pair, shape (B, P)."""
    assert logits.attribute is not None and logits.object is not None
    attr, obj = candidates.pairs.T
    return (1 - share) * logits.composition + share * (
        logits.attribute.index_select(1, attr) + logits.object.index_select(1, obj))


def smoothed(label: Tensor, attr: Tensor, smoothing: float) -> Tensor:
    """Labels as distributions: a share goes to the other pairs with the same attribute.

    Args:
        label (Tensor): True pair of each image, shape (B,).
        attr (Tensor): Attribute of each pair, shape (P,).
        smoothing (float): The share of the other pairs together.

    Returns:
        Tensor: Shape (B, P). A row sums to less than 1 where the attribute has no other pair.
    """
    alike = (attr[label][:, None] == attr).float().scatter(1, label[:, None], 0.0)
    target = smoothing * alike / alike.sum(dim=1, keepdim=True).clamp_min(1)
    return target.scatter(1, label[:, None], 1 - smoothing)


def upper_bound(image: Tensor, samples: Tensor, labels: Tensor) -> Tensor:
    """f² · (Σ_yy + Σ_jj − 2 Σ_yj) of each image and class, the diagonal covariances over samples.

    Args:
        image (Tensor): Unit-norm features, shape (B, D).
        samples (Tensor): N unit-norm texts of each of C classes, shape (C, N, D).
        labels (Tensor): True class y of each image, shape (B,).

    Returns:
        Tensor: Shape (B, C), zero at y.
    """
    centred = (samples - samples.mean(dim=1, keepdim=True)).float()
    square = image.square()
    own = square @ centred.square().sum(dim=1).T  # (B, C)
    cross = (square[:, None] * centred[labels]).flatten(1) @ centred.flatten(1).T
    return (own.gather(1, labels[:, None]) + own - 2 * cross) / (samples.shape[1] + 1)


def _portable_scores(features: Arrays, table: Arrays, scale: float, factor: float) -> Any:
    import numpy as np
    attr, obj, pair = (scale * (features[path] @ table[f'text_{key}'].T)
                       for path, key in zip(PATHS, 'aoc'))
    logits = (1 - factor) * pair + factor * (
        attr[:, table['pairs'][:, 0]] + obj[:, table['pairs'][:, 1]])
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
