"""Named values that the parts of a model pass to each other."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from mmcluspro.models.candidates import Candidates


PATHS = ('attribute', 'object', 'composition')


@dataclass(frozen=True, eq=False)
class Features:
    """Features of B images, as backbone and neck made them (Eq. 1), of any norm.

    Args:
        composition (Tensor): f_c, shape (B, D).
        attribute (Tensor, optional): f_a, shape (B, D); None without a neck.
        object (Tensor, optional): f_o, shape (B, D); None without a neck.
        tokens (Tensor, optional): Projected tokens of the image tower, shape (B, L, D).
        extra (Mapping[str, Tensor]): What else the backbone was asked for, by name.
    """
    composition: Tensor
    attribute: Tensor | None = None
    object: Tensor | None = None
    tokens: Tensor | None = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.composition)

    @property
    def paths(self) -> dict[str, Tensor]:
        """The features of the paths that there are, by 'attribute', 'object', 'composition'."""
        found = {name: getattr(self, name) for name in PATHS}
        return {name: feature for name, feature in found.items() if feature is not None}

    @property
    def primitives(self) -> dict[str, Tensor]:
        """f_a and f_o by branch, 'attr' and 'obj'; empty without these paths."""
        if self.attribute is None or self.object is None:
            return {}
        return dict(attr=self.attribute, obj=self.object)


def as_features(outputs: Features | Tensor | Sequence[Tensor]) -> Features:
    """Names for what a backbone or neck of another project returns.

    Args:
        outputs (Features | Tensor | Sequence[Tensor]): Features are returned as they are. A tensor
            (B, D) is f_c. A sequence ends with f_c, or with f_a, f_o and f_c, each (B, D); tokens
            (B, L, D) may come first.
    """
    if isinstance(outputs, Features):
        return outputs
    if isinstance(outputs, Tensor):
        return Features(outputs)
    tokens = next((output for output in outputs if output.ndim == 3), None)
    vectors = [output for output in outputs if output.ndim == 2]
    if len(vectors) not in (1, 3) or outputs[-1].ndim != 2:
        raise ValueError(
            'The head expects f_c, or f_a, f_o and f_c, each of shape (B, D), after the tokens if '
            f'there are any; got shapes {[tuple(output.shape) for output in outputs]}. Return '
            'mmcluspro.models.Features from the neck to name other outputs.')
    attribute, object_ = vectors[:2] if len(vectors) == 3 else (None, None)
    return Features(vectors[-1], attribute, object_, tokens)


def join(parts: Sequence[Features]) -> Features:
    """Features of all images of several batches, in their order."""
    def cat(name: str) -> Tensor | None:
        tensors = [getattr(part, name) for part in parts]
        return None if tensors[0] is None else torch.cat(tensors)

    extra = {name: torch.cat([part.extra[name] for part in parts]) for name in parts[0].extra}
    return Features(torch.cat([part.composition for part in parts]), cat('attribute'),
                    cat('object'), cat('tokens'), extra)


def with_width(feats: Features | Tensor | Sequence[Tensor], in_channels: int) -> Features:
    """What a neck gets, whose f must have the shape (B, in_channels)."""
    features = as_features(feats)
    shape = tuple(features.composition.shape)
    if len(shape) != 2 or shape[1] != in_channels:
        raise ValueError(
            f'neck.in_channels={in_channels} expects f of shape (B, {in_channels}), got {shape}; '
            'set it to the width of the backbone.')
    return features


class Texts(NamedTuple):
    """Unit-norm text features of the paths; None for a path that was not asked for."""

    attribute: Tensor | None  # (A, D)
    object: Tensor | None  # (O, D)
    composition: Tensor  # (P, D)


class TextTokens(NamedTuple):
    """States of all tokens of P prompts, after the last norm, before the projection."""

    states: Tensor  # (P, L, width of the text tower)
    mask: Tensor  # (P, L), True from the start token to the end token


class Logits(NamedTuple):
    """Cosines over temperature of the paths; None for a path that was not asked for."""

    attribute: Tensor | None  # (B, A)
    object: Tensor | None  # (B, O)
    composition: Tensor  # (B, P)


class Scores(NamedTuple):
    """Scores of a head for B images and some candidates.

    The link of the head maps ``pair`` to log scores. ``attribute`` and ``object`` are
    probabilities, None for a head without these paths.
    """

    pair: Tensor  # (B, P)
    attribute: Tensor | None = None  # (B, A)
    object: Tensor | None = None  # (B, O)


class TrainStep(NamedTuple):
    """Inputs of the losses in one training step, for B images of this rank."""

    features: Features
    texts: Texts
    logits: Logits
    labels: dict[str, Tensor]  # 'attr', 'obj' and 'pair', (B,) each
    candidates: Candidates  # the seen pairs; labels['pair'] are rows of candidates.pairs
