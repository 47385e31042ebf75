"""AttrAsOp (AoP): an attribute is a matrix that acts on the vector of an object."""
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved
from mmcluspro.models.structures import TrainStep
from mmcluspro.models.text import WordTableText
from mmcluspro.registry import MODELS

from .common import DistanceHead


@MODELS.register_module()
class AoPText(WordTableText):
    """t_c = ReLU(M_a w_o), not normalised; M_a starts as the identity.

    New objects are taken from their word vectors. A new attribute has no matrix and is refused.

    Args:
        **kwargs: As in :class:`WordTableText`; features are as wide as the word vectors.
    """

    unit_norm = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.out_dim = self.width
        self.operators = nn.Parameter(
            torch.eye(self.width).repeat(len(self.attributes), 1, 1))

    def compose(self, parts: tuple[Tensor, Tensor], pairs: Tensor) -> Tensor:
        # All attributes on all objects: a matrix for each pair would take D times the memory.
        return self.act(self.operators, parts[1][None])[pairs[:, 0], pairs[:, 1]]

    def act(self, operators: Tensor, vectors: Tensor) -> Tensor:
        """ReLU(M v) for matrices (N, D, D) and vectors (N or 1, K, D), shape (N, K, D)."""
        return F.relu(vectors @ operators.transpose(1, 2))

    def extend(self, attributes: Sequence[str] = (), objects: Sequence[str] = ()) -> None:
        """Adds objects that were not trained."""
        if attributes:
            raise ValueError(
                'AttrAsOp learns a matrix for each attribute and has none for '
                f'{", ".join(map(repr, attributes[:5]))}: leave these attributes out, or use a '
                'method that composes pairs of word vectors, such as CompCos.')
        super().extend(attributes, objects)


class AuxClassifiers(nn.Module):
    """λ (CE(W_a t_c, a) + CE(W_o t_c, o)): the pair's embedding says what it is made of.

    Args:
        in_channels (int): Width of t_c.
        num_attributes (int): Number of attributes.
        num_objects (int): Number of objects.
        loss_weight (float): λ.
    """

    def __init__(self, in_channels: int, num_attributes: int, num_objects: int,
                 loss_weight: float) -> None:
        super().__init__()
        self.attr = nn.Linear(in_channels, num_attributes)
        self.obj = nn.Linear(in_channels, num_objects)
        self.loss_weight = loss_weight

    def forward(self, step: TrainStep) -> Tensor:
        """The loss, for the pairs of the images."""
        positive = step.texts.composition[step.labels['pair']]
        return self.loss_weight * (F.cross_entropy(self.attr(positive), step.labels['attr'])
                                   + F.cross_entropy(self.obj(positive), step.labels['obj']))


@MODELS.register_module()
class AoPHead(DistanceHead):
    """AttrAsOp (Nagarajan and Grauman, "Attributes as Operators", ECCV 2018).

    A linear layer with ReLU (the neck) embeds the image as f, :class:`AoPText` the pair:

        score(x, a, o) = -‖f - ReLU(M_a w_o)‖²

    Four losses, with T(x, y, z) the triplet loss of anchor, positive and negative, M^b_o the
    operator of another attribute that training has with o, and [·] for ReLU:

        triplet      T(f, [M_a w_o], [M_a' w_o'])
        aux          CE of attribute and object from [M_a w_o]
        commutative  ‖[M_a [M_b w_o]] - [M_b [M_a w_o]]‖²
        inverse      T([M_b [M_a⁻¹ f]], [M_b w_o], [M_a w_o])

    Args:
        *args: ``space`` and ``text`` of :class:`~mmcluspro.models.heads.CompositionHead`.
        aux_weight (float): Weight of the auxiliary loss. Defaults to 0.
        comm_weight (float): Weight of the commutative loss. Defaults to 0.
        inv_weight (float): Weight of the inverse loss. Defaults to 0.
        **kwargs: As in :class:`~.common.DistanceHead`.
    """

    text: AoPText

    def __init__(self, *args: Any, aux_weight: Unsaved[float] = 0.0,
                 comm_weight: Unsaved[float] = 0.0, inv_weight: Unsaved[float] = 0.0,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.comm_weight, self.inv_weight = comm_weight, inv_weight
        if aux_weight:
            self.losses['aux'] = AuxClassifiers(
                self.text.out_dim, len(self.space.attributes), len(self.space.objects), aux_weight)
        together = torch.zeros(len(self.space.objects), len(self.space.attributes))
        attr, obj = self.space.train_pairs.T
        together[obj, attr] = 1
        self.register_buffer('together', together, persistent=False)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """Triplet, commutative and inverse loss."""
        losses = super().terms(step)
        if not self.comm_weight and not self.inv_weight:
            return losses
        attr, obj = step.labels['attr'], step.labels['obj']
        own = self.text.operators[attr]
        other = self.text.operators[self.other_attributes(attr, obj)]
        objects = self.text.obj_table()[obj][:, None]
        positive, changed = self.text.act(own, objects), self.text.act(other, objects)
        if self.comm_weight:
            difference = self.text.act(own, changed) - self.text.act(other, positive)
            losses['comm_loss'] = self.comm_weight * difference.square().sum(2).mean()
        if self.inv_weight:
            found = self.text.act(torch.linalg.inv(own), step.features.composition[:, None])
            losses['inv_loss'] = self.inv_weight * F.triplet_margin_loss(
                self.text.act(other, found)[:, 0], changed[:, 0], positive[:, 0],
                margin=self.margin)
        return losses

    def other_attributes(self, attr: Tensor, obj: Tensor) -> Tensor:
        """Another attribute that training has with each object; the own one where there is none."""
        shares = self.together[obj].scatter(1, attr[:, None], 1e-9)
        return torch.multinomial(shares, 1)[:, 0]
