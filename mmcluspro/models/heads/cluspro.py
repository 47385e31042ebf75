"""ClusPro: the three-path head with prototypes, contrast and decorrelation (Eq. 7-12)."""
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from mmpretrain.structures import DataSample
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.fields import Left, Options, Width, choice, items
from mmcluspro.models.prototypes import (
    PrototypeBank,
    PrototypeMixin,
    assign_together,
    update_together,
)
from mmcluspro.models.state import declare_training_only
from mmcluspro.models.structures import Features, TrainStep
from mmcluspro.registry import MODELS

from .three_path import ThreePathHead

BRANCHES = ('attr', 'obj')


@MODELS.register_module()
class ClusProHead(PrototypeMixin, ThreePathHead):
    """Adds prototypes of the attributes and objects to the three-path head.

    In training, each feature is assigned to a prototype of its own primitive, together with the
    features of all ranks. Both losses use the assignments, and
    :class:`~mmcluspro.engine.hooks.PrototypeHook` updates the prototypes after the iteration.
    Prediction does not use prototypes.

    Attributes:
        scores_with_prototypes (bool): Set this to True in a subclass whose ``score`` uses the
            prototypes, so that published files keep them. Defaults to False.

    Args:
        *args: As in :class:`ThreePathHead`.
        in_channels (int): Width D of the features.
        bank (dict, optional): Fields of :class:`~mmcluspro.models.prototypes.PrototypeBank` (K, μ,
            assigner, queue, …). Defaults to None: the paper's settings.
        branches (Sequence[str]): Which of 'attr' and 'obj' are clustered
            (Table 4c). Defaults to both.
        loss_pcl (dict, optional): Contrast, Eq. 10; None leaves it out.
            Defaults to ``dict(type='mmcluspro.PCLLoss')``.
        loss_pdl (dict, optional): Decorrelation, Eq. 11; None leaves it out.
            Defaults to ``dict(type='mmcluspro.HSICLoss')``.
        **kwargs: As in :class:`ThreePathHead`.
    """

    scores_with_prototypes = False

    def __init__(self, *args: Any, in_channels: Width,
                 bank: Annotated[dict | None, Options(PrototypeBank)] = None,
                 branches: Annotated[Sequence[str], items(choice(*BRANCHES), 0, 2)] = BRANCHES,
                 loss_pcl: Annotated[dict | None, Left(None)] = dict(type='mmcluspro.PCLLoss'),  # noqa: B006
                 loss_pdl: Annotated[dict | None, Left(None)] = dict(type='mmcluspro.HSICLoss'),  # noqa: B006
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        unknown = set(branches) - set(BRANCHES)
        if unknown:
            raise ValueError(f"head.branches takes 'attr' and 'obj', got {sorted(unknown)}.")
        sizes = dict(attr=len(self.space.attributes), obj=len(self.space.objects))
        self.keep_banks({
            branch: MODELS.build(dict(
                dict(type='mmcluspro.PrototypeBank', **(bank or {})),
                num_classes=sizes[branch], dim=in_channels))
            for branch in BRANCHES if branch in branches
        })
        if not self.scores_with_prototypes:
            declare_training_only(self.banks)
        self.loss_pcl = MODELS.build(loss_pcl) if loss_pcl else None
        self.loss_pdl = MODELS.build(loss_pdl) if loss_pdl else None

    @property
    def unscored(self) -> tuple[str, ...]:
        return (*super().unscored, 'loss_pcl', 'loss_pdl',
                *(f'banks.{branch}.queue' for branch in self.banks))

    @property
    def observes(self) -> bool:
        """Whether the features of a step are gathered to update prototypes."""
        return bool(self.banks)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """The objective of Eq. 12, term by term.

        Returns:
            dict[str, Tensor]: The three-path losses, ``pcl_loss`` and
            ``pdl_loss``, each with its weight.
        """
        losses = super().terms(step)
        if not self.observes:
            return losses
        attribute, object_ = step.features.attribute, step.features.object
        if attribute is None or object_ is None:
            raise ValueError(f'{type(self).__name__} clusters attribute and object features: set '
                             'model.neck, for example mmcluspro.PrimitiveAdapter.')
        features = [F.normalize(f.float(), dim=1) for f in (attribute, object_)]
        # HSIC does not decompose over images, so it sees those of all ranks, as clustering does.
        everyone = list(self.gatherer(torch.stack(features)))
        owners = self.gatherer(torch.stack([step.labels[branch] for branch in BRANCHES]), fill=0)
        rows = self._observe(everyone, owners)
        tables = [self.bank(branch).prototypes if branch in self.banks else None
                  for branch in BRANCHES]
        if self.loss_pcl is not None:
            local = [None if row is None else self.gatherer.local(row, len(attribute))
                     for row in rows]
            losses['pcl_loss'] = self.loss_pcl(features, local, tables)
        if self.loss_pdl is not None:
            losses['pdl_loss'] = self.loss_pdl(everyone, rows, tables)
        return losses

    @torch.no_grad()
    def _observe(self, features: list[Tensor], owners: Tensor) -> list[Tensor | None]:
        """Assigns the features of all ranks, so that every rank finds the same rows.

        Args:
            features (list[Tensor]): Of both branches, shape (N, D) each.
            owners (Tensor): Attribute and object of each image, shape (2, N).

        Returns:
            list: Rows of both branches, of the images of all ranks; None without a bank.
        """
        seen = {branch: (feature.detach(), owner)
                for branch, feature, owner in zip(BRANCHES, features, owners)
                if branch in self.banks}
        rows = self._assigned(seen)
        return [rows.get(branch) for branch in BRANCHES]

    def clusters(self, feats: Features,
                 data_samples: Sequence[DataSample]) -> dict[str, tuple[Tensor, Tensor]]:
        labels = self.labels(list(data_samples))
        return {branch: (feats.primitives[branch], labels[branch]) for branch in self.banks}

    def compile_clustering(self, **options: Any) -> None:
        """Compiles assignment, update and both losses, each as one graph, and nothing else.

        The state of the banks is in buffers, whose addresses are static.

        Args:
            **options: Of ``torch.compile``, such as ``backend``.
        """
        options = dict(dict(fullgraph=True, dynamic=False), **options)
        self._assign = torch.compile(assign_together, **options)
        self._update = torch.compile(update_together, **options)
        for loss in (self.loss_pcl, self.loss_pdl):
            if loss is not None:
                loss.compile(**options)
