"""The three-path head: attribute, object and composition (Eq. 2-6 and 13)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, choice
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.structures import (
    PATHS,
    Features,
    Logits,
    Scores,
    Texts,
    TrainStep,
    as_features,
)
from mmcluspro.registry import MODELS

from .base import LABELS, CompositionHead, Portable, three_path_scores

FUSIONS = ('probability', 'logits', 'composition')
Fusion = Annotated[str, choice(*FUSIONS)]


def fuse(logits: Logits, candidates: Candidates, fusion: str = 'probability') -> Scores:
    """Scores of pairs from the logits of the three paths (Eq. 13).

    ``p(c) + p(a) p(o)``; with ``fusion='logits'`` the composition logits take the place of
    ``p(c)``, as in the released code, and with ``'composition'`` only ``p(c)`` counts.

    Args:
        logits (Logits): Attribute (B, A), object (B, O) and composition (B, P) logits; the first
            two may be None for ``'composition'``.
        candidates (Candidates): P pairs of A attributes and O objects.
        fusion (str): One of 'probability', 'logits', 'composition'.

    Returns:
        Scores: Of pairs (B, P), attributes (B, A) and objects (B, O).
    """
    attributes, objects, compositions = logits
    scores = compositions if fusion == 'logits' else compositions.softmax(dim=1)
    if fusion == 'composition' or attributes is None or objects is None:
        return Scores(scores)
    p_attribute, p_object = attributes.softmax(dim=1), objects.softmax(dim=1)
    if candidates.all_pairs:  # the outer product needs no gather
        scores = torch.baddbmm(
            scores.view(len(scores), p_attribute.shape[1], -1),
            p_attribute[:, :, None], p_object[:, None, :]).view_as(scores)
    else:
        scores = scores.addcmul(p_attribute.index_select(1, candidates.pairs[:, 0]),
                                p_object.index_select(1, candidates.pairs[:, 1]))
    return Scores(scores, p_attribute, p_object)


@MODELS.register_module()
class ThreePathHead(CompositionHead):
    """Classifies by cosine similarity to the text features of three prompts.

    Args:
        *args: ``space`` and ``text`` of :class:`CompositionHead`.
        loss_weights (dict): λ of Eq. 6 for 'attr', 'obj' and 'pair'. A path
            of weight zero is not computed in training. Defaults to 1 each.
        fusion (str): How the paths are combined (:func:`fuse`). Defaults to 'probability'.
        **kwargs: As in :class:`CompositionHead`.
    """

    def __init__(self, *args: Any, loss_weights: Unsaved[dict | None] = None,
                 fusion: Fusion = 'probability', **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        weights = dict.fromkeys(LABELS, 1.0)
        unknown = set(loss_weights or {}) - set(weights)
        if unknown:
            raise ValueError(
                f"head.loss_weights has the keys 'attr', 'obj' and 'pair', got {sorted(unknown)}.")
        if fusion not in FUSIONS:
            raise ValueError(f'head.fusion must be one of {FUSIONS}, got {fusion!r}.')
        self.loss_weights = {**weights, **(loss_weights or {})}
        self.fusion = fusion

    @property
    def link(self) -> str:  # type: ignore[override]
        """Maps pair scores to log scores: 'identity' for ``fusion='logits'``, else 'log'."""
        return 'identity' if self.fusion == 'logits' else 'log'

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """Eq. 13 over candidates.

        Args:
            feats (Features): Of B images.
            candidates (Candidates): The pairs to choose from.
        """
        candidates = candidates.to(self.device)
        logits = self.logits(feats, candidates, self.fusion != 'composition')
        return fuse(logits, candidates, self.fusion)

    def score_worlds(self, feats: Features,
                     worlds: Mapping[str, Candidates]) -> dict[str, Scores]:
        """The same, with the attribute and object paths once for all worlds of the same names."""
        own = type(self)
        if own.score is not ThreePathHead.score or own.compare is not ThreePathHead.compare:
            return super().score_worlds(feats, worlds)  # its paths may depend on the pairs
        found: dict[str, Scores] = {}
        first: Logits | None = None
        for world, candidates in worlds.items():
            candidates = candidates.to(self.device)
            shared = first is not None and candidates.all_names
            logits = self.logits(feats, candidates, self.fusion != 'composition' and not shared)
            if shared and first is not None:
                logits = first._replace(composition=logits.composition)
            elif candidates.all_names:
                first = logits
            found[world] = fuse(logits, candidates, self.fusion)
        return found

    def logits(self, feats: Features | Sequence[Tensor], candidates: Candidates,
               primitives: bool = True) -> Logits:
        """Logits over candidates, of the composition path alone without ``primitives``."""
        texts = self.texts(candidates, primitives)
        return self.compare(as_features(feats), texts, candidates)

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        """Cosines over temperature, in training and in testing.

        Args:
            features (Features): Of B images.
            texts (Texts): Unit-norm texts of the requested paths.
            candidates (Candidates): Pairs, attributes and objects of the texts.

        Returns:
            Logits: Of the requested paths.
        """
        pairs = self.matched(features, texts)
        # Sixteen bits are too few for a softmax over cosines times 100.
        with torch.autocast(features.composition.device.type, enabled=False):
            scale = self.text.logit_scale.exp()
            return Logits._make(
                None if pair is None
                else scale * (F.normalize(pair[0].float(), dim=1) @ pair[1].float().T)
                for pair in pairs)

    def matched(self, features: Features, texts: Texts) -> list[tuple[Tensor, Tensor] | None]:
        """Features and texts of each path, None for a path that is not requested."""
        found: list[tuple[Tensor, Tensor] | None] = []
        for path, text in zip(PATHS, texts):
            feature = features.paths.get(path)
            if text is not None and feature is None:
                raise ValueError(
                    f'head.fusion={self.fusion!r} and head.loss_weights ask for the attribute, '
                    'object and composition paths, but there is 1 feature per image: set '
                    "model.neck, for example mmcluspro.PrimitiveAdapter, or head.fusion="
                    "'composition' and head.loss_weights=dict(attr=0, obj=0) for the composition "
                    'path alone.')
            found.append(None if text is None or feature is None else (feature, text))
        return found

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Texts and logits over the seen pairs."""
        candidates = self.train_candidates
        texts = self.texts(candidates, bool(self.loss_weights['attr'] or self.loss_weights['obj']))
        return TrainStep(features, texts, self.compare(features, texts, candidates), labels,
                         candidates)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """Cross-entropy of the three paths over the seen pairs (Eq. 3-6).

        Returns:
            dict[str, Tensor]: ``attr_loss``, ``obj_loss`` and ``pair_loss``.
        """
        return {
            f'{name}_loss': self.loss_weights[name] * F.cross_entropy(logit, step.labels[name])
            for name, logit in zip(LABELS, step.logits)
            if self.loss_weights[name] and logit is not None
        }

    def portable(self) -> Portable:
        """Cosines and Eq. 13 in numpy; a subclass with other scores must override this, too."""
        scale = float(self.text.logit_scale.exp())
        return Portable(
            PATHS[-1:] if self.fusion == 'composition' else PATHS,
            dict(fusion=self.fusion, scale=scale),
            partial(three_path_scores, fusion=self.fusion, scale=scale))
