"""Shared parts of LE+ and AttrAsOp: distances instead of cosines, and a triplet loss."""
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.fields import Unsaved
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads.base import CompositionHead
from mmcluspro.models.structures import Features, Logits, Scores, TrainStep, as_features


def other_rows(rows: Tensor, count: int, shape: Sequence[int] = ()) -> Tensor:
    """Rows drawn evenly from the ``count - 1`` others.

    Args:
        rows (Tensor): The row of each image, shape (B,).
        count (int): Number of rows, at least 2.
        shape (Sequence[int]): How many are drawn for each image. Defaults to (), one.

    Returns:
        Tensor: Shape (B, *shape).
    """
    steps = torch.randint(1, count, (len(rows), *shape), device=rows.device)
    return (rows.view(-1, *[1] * len(shape)) + steps) % count


class DistanceHead(CompositionHead):
    """Scores are -‖f_c - t_c‖² of embeddings that are not normalised.

    Training pulls an image to its pair and pushes it from one other seen pair, drawn at random:

        L = max(0, ‖f_c - t_pos‖ - ‖f_c - t_neg‖ + margin)

    Args:
        *args: ``space`` and ``text`` of :class:`CompositionHead`.
        margin (float): Of the triplet loss. Defaults to 0.5.
        **kwargs: As in :class:`CompositionHead`.
    """

    link = 'identity'

    def __init__(self, *args: Any, margin: Unsaved[float] = 0.5, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if margin < 0:
            raise ValueError(f'head.margin must not be negative, got {margin}.')
        self.margin = margin

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """Negative squared distances to the pairs.

        Args:
            feats (Features): Of B images.
            candidates (Candidates): What can be answered.
        """
        texts = self.texts(candidates.to(self.device), primitives=False)
        return Scores(self.compare(as_features(feats).composition, texts.composition))

    def compare(self, features: Tensor, texts: Tensor) -> Tensor:
        """-‖f - t‖² for f (B, D) and t (P, D), in float32, shape (B, P)."""
        with torch.autocast(features.device.type, enabled=False):
            f, t = features.float(), texts.float()
            return 2 * f @ t.T - f.square().sum(1, keepdim=True) - t.square().sum(1)

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Embeddings of the seen pairs and scores over them."""
        candidates = self.train_candidates
        texts = self.texts(candidates, primitives=False)
        logits = self.compare(features.composition, texts.composition)
        return TrainStep(features, texts, Logits(None, None, logits), labels, candidates)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """The triplet loss."""
        texts, rows = step.texts.composition, step.labels['pair']
        negative = texts[other_rows(rows, len(texts))]
        return dict(triplet_loss=F.triplet_margin_loss(
            step.features.composition.float(), texts[rows], negative, margin=self.margin))
