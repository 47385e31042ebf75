"""CDS-CZSL: attributes that few kinds of objects have are specific, and count for more.

Li, Liu, Chen and Yao, "Context-based and Diversity-driven Specificity in Compositional Zero-Shot
Learning".
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width, number
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads import CompositionHead, Portable, ThreePathHead
from mmcluspro.models.heads.three_path import Fusion
from mmcluspro.models.prototypes.start import spherical_kmeans
from mmcluspro.models.structures import Features, Scores, Texts, TrainStep, as_features
from mmcluspro.registry import MODELS


@MODELS.register_module()
class CDSHead(ThreePathHead):
    """Three paths, the attribute path refined by a specificity that depends on the object.

    No source of the formulas could be had (the authors published no code), so that this is a
    reconstruction of what the abstract says: three branches; the specificity of an attribute
    falls with the diversity of the objects it applies to, found by clustering each batch; it
    depends on the context, the object; it refines the prediction of the attribute.

        context:    s(a, o) = sigmoid(MLP([t_a; t_o])), in (0, 1)
        diversity:  d(a) = H(clusters of the object features f_o of the batch's images with a)
                    / log min(k, number of these images), k-means with k clusters over the batch
        loss:       three-path losses, the attribute's over softmax_a(l_a + γ log s(a, o_true)),
                    + λ mean (s(a, o) − (1 − d(a)))² over the images with two or more of a
        score:      p(c) + s(a, o)^γ p(a) p(o)

    With γ = 0 and λ = 0 it is the three-path head. The paper also filters the pairs of the open
    world by specificity; here all methods share one filter (docs/evaluation.md).

    Args:
        *args: As in :class:`~mmcluspro.models.heads.ThreePathHead`.
        in_channels (int): Width D of features and texts.
        num_clusters (int): k. Defaults to 8.
        gamma (float): γ in [0, 2], how strongly specificity counts. Defaults to 1.0.
        specificity_weight (float): λ. Defaults to 1.0.
        fusion (str): 'probability', the only one. Defaults to 'probability'.
        **kwargs: As in :class:`~mmcluspro.models.heads.ThreePathHead`.
    """

    def __init__(self, *args: Any, in_channels: Width, num_clusters: Unsaved[int] = 8,
                 gamma: Annotated[float, number(0, 2)] = 1.0,
                 specificity_weight: Unsaved[float] = 1.0, fusion: Fusion = 'probability',
                 **kwargs: Any) -> None:
        super().__init__(*args, fusion=fusion, **kwargs)
        if fusion != 'probability':
            raise ValueError("CDSHead adds probabilities: head.fusion must be 'probability', got "
                             f'{fusion!r}.')
        if num_clusters < 2:
            raise ValueError(f'head.num_clusters must be at least 2, got {num_clusters}.')
        if not 0 <= gamma <= 2:
            raise ValueError(f'head.gamma must lie in [0, 2], got {gamma}.')
        self.num_clusters, self.gamma = num_clusters, gamma
        self.specificity_weight = specificity_weight
        self.learner = nn.Sequential(nn.Linear(2 * in_channels, in_channels), nn.ReLU(),
                                     nn.Linear(in_channels, 1))

    def log_specificity(self, texts: Texts, pairs: Tensor) -> Tensor:
        """log s(a, o) of pairs of places in the texts, shape (P, 2) → (P,)."""
        assert texts.attribute is not None and texts.object is not None
        # The first layer is linear: once per name instead of once per pair.
        first: Any = self.learner[0]
        attr, obj = first.weight.chunk(2, dim=1)
        hidden = (F.linear(texts.attribute, attr, first.bias)[pairs[:, 0]]
                  + F.linear(texts.object, obj)[pairs[:, 1]])
        return F.logsigmoid(self.learner[1:](hidden)[:, 0].float())

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """p(c) + s(a, o)^γ p(a) p(o) over candidates."""
        candidates = candidates.to(self.device)
        texts = self.texts(candidates)
        logits = self.compare(as_features(feats), texts, candidates)
        assert logits.attribute is not None and logits.object is not None
        attr, obj = logits.attribute.softmax(dim=1), logits.object.softmax(dim=1)
        weight = (self.gamma * self.log_specificity(texts, candidates.pairs)).exp()
        pair = logits.composition.softmax(dim=1) + weight * (
            attr[:, candidates.pairs[:, 0]] * obj[:, candidates.pairs[:, 1]])
        return Scores(pair, attr, obj)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """Three-path losses with the refined attribute, and that of the specificity."""
        attr, obj = step.labels['attr'], step.labels['obj']
        assert step.logits.attribute is not None and step.features.object is not None
        num_attr, num_obj = len(step.candidates.attributes), len(step.candidates.objects)
        every = torch.cartesian_prod(torch.arange(num_attr, device=attr.device),
                                     torch.arange(num_obj, device=attr.device))
        specificity = self.log_specificity(step.texts, every).view(num_attr, num_obj)
        refined = step.logits.attribute + self.gamma * specificity.T[obj]
        losses = super().terms(step._replace(logits=step.logits._replace(attribute=refined)))
        if self.specificity_weight:
            diversity, known = self.diversity(step.features.object, attr, num_attr)
            error = (specificity.exp()[attr, obj] - (1 - diversity[attr])).square() * known[attr]
            losses['specificity_loss'] = self.specificity_weight * (
                error.sum() / known[attr].sum().clamp_min(1))
        return losses

    @torch.no_grad()
    def diversity(self, features: Tensor, labels: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Normalised entropy of the clusters of each attribute's images.

        Args:
            features (Tensor): Object features f_o of the batch, shape (B, D).
            labels (Tensor): Attribute of each, shape (B,).
            size (int): Number of attributes A.

        Returns:
            tuple[Tensor, Tensor]: d(a) in [0, 1], and 1.0 where the batch has at least two images
            of a, shape (A,) each.
        """
        unit = F.normalize(features.float(), dim=1)
        k = min(self.num_clusters, len(unit))
        # The same centres for the same batch: ranks and repetitions agree.
        centres = spherical_kmeans(unit, k, torch.Generator().manual_seed(0), steps=5)
        cluster = (unit @ centres.T).argmax(dim=1)
        count = unit.new_zeros(size, k).index_put(
            (labels, cluster), unit.new_ones(len(unit)), accumulate=True)
        total = count.sum(dim=1)
        share = count / total.clamp_min(1)[:, None]
        entropy = -torch.xlogy(share, share).sum(dim=1)
        most = total.clamp(max=float(k)).clamp_min(2).log()
        return (entropy / most).clamp(0, 1), (total >= 2).float()

    def portable(self) -> Portable:
        """Not possible: the table of texts has no specificity."""
        return CompositionHead.portable(self)
