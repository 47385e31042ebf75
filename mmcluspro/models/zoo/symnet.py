"""SymNet: attributes are added to and removed from an image, as the elements of a group."""
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.necks import mlp
from mmcluspro.models.structures import Features, TrainStep
from mmcluspro.registry import MODELS

from .common import ProductHead, other_rows


class Coupling(nn.Module):
    """Adds an attribute to an image embedding, or removes one: CoN and DecoN.

        T(f, w) = MLP([f (1 + σ(MLP'(w))), w])

    Args:
        in_channels (int): Width D of f.
        width (int): Width of the attribute's vector w.
        hidden (tuple[int, int]): Hidden widths of MLP' and MLP.
        dropout (float): Dropout rate of both.
    """

    def __init__(self, in_channels: int, width: int, hidden: tuple[int, int],
                 dropout: float) -> None:
        super().__init__()
        self.attention = mlp((width, hidden[0], in_channels), dropout=dropout)
        self.embed = mlp((in_channels + width, hidden[1], in_channels), dropout=dropout)

    def forward(self, f: Tensor, w: Tensor) -> Tensor:
        """f (…, D) and w (…, width), which broadcast, to (…, D)."""
        scaled = f * (1 + self.attention(w).sigmoid())
        return self.embed(torch.cat([scaled, w.expand(*scaled.shape[:-1], -1)], dim=-1))


@MODELS.register_module()
class SymNetHead(ProductHead):
    """SymNet (Li et al., "Symmetry and Group in Attribute-Object Compositions", CVPR 2020).

    CoN (+) adds an attribute to the image embedding f (a linear neck), DecoN (-) removes it. An
    image that has an attribute stays where it is when it is added, and moves when it is removed.
    The relative moving distance classifies attributes, an MLP objects:

        p(a|x) = softmax_a(‖f - w_a - f‖ - ‖f + w_a - f‖),  p(o|x) = softmax(MLP_o(f))
        score = p(a|x) p(o|x)

    With a the attribute of the image and b another one, drawn at random, the losses are

        attribute  CE(MLP_a(f), a) - log(1 - p_MLP(a | f - a)) + CE(distances, a)
        object     CE of MLP_o for f, f - a and f + b
        symmetry   MSE(f + a, f) + MSE(f - b, f)
        axioms     MSE of closure (f + a - a, f - a), (f - b + b, f + b), of invertibility
                   (f - a + a, f), (f + b - b, f) and of commutativity (f + a - b, f - b + a)
        triplet    T(f, f + a, f - a) + T(f, f - b, f + b), margin 1

    New attributes are taken from their word vectors; new objects are refused.

    Args:
        *args: ``space`` and ``text`` of :class:`~mmcluspro.models.heads.CompositionHead`.
        in_channels (int): Width of f.
        hidden (int): Hidden width of the classifiers and of the attention. Defaults to 512.
        coupling_hidden (int): Hidden width of CoN and DecoN. Defaults to 768.
        dropout (float): Dropout rate of all MLPs. Defaults to 0.5.
        loss_weights (dict): Of 'attr', 'obj', 'sym', 'axiom' and 'triplet'. Defaults to the
            published 1, 1, 0.01, 0.03 and 0.5.
        draw (str): Where b comes from: 'attribute' is any other attribute, each as likely;
            'pair' is that of another seen pair, as in the released code, which may be a itself.
            Defaults to 'attribute'.
        **kwargs: As in :class:`~mmcluspro.models.heads.CompositionHead`.
    """

    def __init__(self, *args: Any, in_channels: Width, hidden: Width = 512,
                 coupling_hidden: Width = 768, dropout: Unsaved[float] = 0.5,
                 loss_weights: Unsaved[dict | None] = None,
                 draw: Unsaved[Literal['attribute', 'pair']] = 'attribute',
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if draw not in ('attribute', 'pair'):
            raise ValueError(f"head.draw must be 'attribute' or 'pair', got {draw!r}.")
        self.draw = draw
        self.loss_weights = dict(attr=1.0, obj=1.0, sym=0.01, axiom=0.03, triplet=0.5)
        unknown = set(loss_weights or {}) - set(self.loss_weights)
        if unknown:
            raise ValueError(f'head.loss_weights has the keys {list(self.loss_weights)}, got '
                             f'{sorted(unknown)}.')
        self.loss_weights.update(loss_weights or {})
        coupling = (in_channels, self.text.width, (hidden, coupling_hidden), dropout)
        self.add, self.remove = Coupling(*coupling), Coupling(*coupling)
        self.attr_classifier, self.obj_classifier = (
            mlp((in_channels, hidden, len(names)), dropout=dropout)
            for names in (self.space.attributes, self.space.objects))

    def primitive_logits(self, features: Features, candidates: Candidates) -> tuple[Tensor, Tensor]:
        f = features.composition
        attributes = self.text.encode_attributes()[candidates.text_attributes]
        return (self.distances(f, attributes),
                self.trained(self.obj_classifier(f), 'object', candidates))

    def distances(self, f: Tensor, attributes: Tensor) -> Tensor:
        """Relative moving distances of f (B, D) for vectors (A, width), shape (B, A)."""
        f = f[:, None]
        return (self.remove(f, attributes) - f).norm(dim=2) - (self.add(f, attributes) - f).norm(
            dim=2)

    def others(self, step: TrainStep) -> Tensor:
        """The attribute b of each image, shape (B,)."""
        if self.draw == 'attribute':
            return other_rows(step.labels['attr'], len(self.space.attributes))
        seen = step.candidates.pairs
        return seen[other_rows(step.labels['pair'], len(seen)), 0]

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """The five losses."""
        f, attr, obj = step.features.composition, step.labels['attr'], step.labels['obj']
        vectors = self.text.encode_attributes()
        own, other = vectors[attr], vectors[self.others(step)]
        added, removed = self.add(f, own), self.remove(f, own)
        wrong_added, wrong_removed = self.add(f, other), self.remove(f, other)
        moved, objects = step.logits.attribute, step.logits.object
        assert moved is not None and objects is not None
        gone = self.attr_classifier(removed).softmax(dim=1).gather(1, attr[:, None])
        losses = dict(
            attr=F.cross_entropy(self.attr_classifier(f), attr)
            - torch.log1p(-gone.clamp(max=1 - 1e-6)).mean()
            + F.cross_entropy(moved, attr),
            obj=F.cross_entropy(objects, obj)
            + F.cross_entropy(self.obj_classifier(removed), obj)
            + F.cross_entropy(self.obj_classifier(wrong_added), obj),
            sym=F.mse_loss(added, f) + F.mse_loss(wrong_removed, f),
            axiom=F.mse_loss(self.remove(added, own), removed)
            + F.mse_loss(self.add(wrong_removed, other), wrong_added)
            + F.mse_loss(self.add(removed, own), f) + F.mse_loss(self.remove(wrong_added, other), f)
            + F.mse_loss(self.remove(added, other), self.add(wrong_removed, own)),
            triplet=F.triplet_margin_loss(f, added, removed)
            + F.triplet_margin_loss(f, wrong_removed, wrong_added))
        return {f'{name}_loss': self.loss_weights[name] * loss for name, loss in losses.items()
                if self.loss_weights[name]}
