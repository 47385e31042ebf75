"""ClusPro+: prototypes of seen pairs take part in prediction (docs/variants.md)."""
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width, number
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.prototypes import PairPrototypes
from mmcluspro.models.prototypes.clustered import Observation
from mmcluspro.models.structures import PATHS, Features, Logits, Texts
from mmcluspro.registry import MODELS

from .base import Portable, three_path_scores
from .cluspro import ClusProHead

PAIRS = 'pairs'  # beside the branches


def redistribute(logits: Tensor, evidence: Tensor, known: Tensor) -> Tensor:
    """Adds evidence to the logits of some pairs without changing their total probability.

    Args:
        logits (Tensor): Shape (B, P).
        evidence (Tensor): Shape (B, P).
        known (Tensor): Which pairs have evidence, bool, shape (P,).

    Returns:
        Tensor: Logits, shape (B, P). Their softmax keeps the probability of each other pair, and
            the total probability of the ``known`` pairs.
    """
    raised = logits + evidence
    before, after = (values.masked_fill(~known, -torch.inf).logsumexp(dim=1, keepdim=True)
                     for values in (logits, raised))
    return torch.where(known, raised + (before - after), logits)


@MODELS.register_module()
class ClusProPlusHead(ClusProHead):
    """ClusPro with prototypes of seen pairs, which are used at prediction.

    Unseen pairs are known by their texts only, but seen pairs also have training images. Training
    keeps the mean of their features in the attribute and the object branch
    (:class:`~mmcluspro.models.prototypes.PairPrototypes`). Prediction adds ``evidence`` times the
    two cosines to the text cosine of seen pairs, and rescales them so that their total probability
    does not change. Scores of unseen pairs and losses are those of ClusPro.

    Args:
        *args: As in :class:`ClusProHead`. With ``branches=()`` this is the three-path baseline
            with prototypes of pairs.
        evidence (float): Weight of the cosines to prototypes relative to the text cosine; 0 gives
            the prediction of ClusPro. Defaults to 1.0.
        pair_decay (float): ``decay`` of the running means. Defaults to 0.95.
        **kwargs: As in :class:`ClusProHead`.
    """

    def __init__(self, *args: Any, in_channels: Width,
                 evidence: Annotated[float, number(0, 1e6)] = 1.0,
                 pair_decay: Unsaved[float] = 0.95, **kwargs: Any) -> None:
        super().__init__(*args, in_channels=in_channels, **kwargs)
        if not 0 <= evidence < float('inf'):
            raise ValueError(f'head.evidence must be a finite number from 0 on, got {evidence}.')
        self.evidence = evidence
        self.pairs = PairPrototypes(
            self._train.pairs, (len(self.space.attributes), len(self.space.objects)), in_channels,
            pair_decay)

    @property
    def observes(self) -> bool:
        """Always True: pairs have prototypes even if no branch is clustered."""
        return True

    @property
    def replicated(self) -> dict[str, Tensor]:
        """The prototypes of primitives and of pairs."""
        return {**super().replicated, 'pair prototypes': self.pairs.sums}

    def _observe(self, features: list[Tensor], owners: Tensor) -> list[Tensor | None]:
        self._remember(PAIRS, Observation(
            torch.stack([feature.detach() for feature in features], dim=1), owners.T, owners[0]))
        return super()._observe(features, owners)

    def update_prototypes(self) -> None:
        """Updates the prototypes of pairs and of primitives."""
        seen = self.observed.pop(PAIRS, None)
        if seen is not None:
            self.pairs.update(seen.features.transpose(0, 1), seen.labels)
        super().update_prototypes()

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        """As in :class:`ThreePathHead`; prediction adds the evidence for seen pairs."""
        logits = super().compare(features, texts, candidates)
        primitives = features.primitives
        if self.training or not self.evidence or len(primitives) < 2:
            return logits
        with torch.autocast(logits.composition.device.type, enabled=False):
            prototypes = self.pairs.of(candidates.text_pairs)
            cosines = [F.normalize(feature.float(), dim=1) @ prototypes[:, place].T
                       for place, feature in enumerate(primitives.values())]
            weight = self.evidence * self.text.logit_scale.exp()
            return logits._replace(composition=redistribute(
                logits.composition, weight * (cosines[0] + cosines[1]),
                prototypes.any(dim=2).all(dim=1)))

    def portable(self) -> Portable:
        """As in :class:`ThreePathHead`, with the prototypes ``pair_a`` and ``pair_o``, (P, D)."""
        info = dict(super().portable().info, evidence=self.evidence)
        return Portable(PATHS, info, partial(three_path_scores, **info), self._portable_arrays)

    def _portable_arrays(self, candidates: Candidates) -> dict[str, np.ndarray]:
        prototypes = self.pairs.of(candidates.text_pairs.to(self.device)).cpu().numpy()
        return dict(pair_a=prototypes[:, 0], pair_o=prototypes[:, 1])
