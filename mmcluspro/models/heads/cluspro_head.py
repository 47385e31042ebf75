"""ClusPro: the three-path head with prototypes, contrast and decorrelation (Eq. 7-12)."""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from mmengine.dist import all_gather, get_rank, get_world_size
from mmpretrain.structures import DataSample
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.registry import MODELS

from ..clustering import PrototypeBank
from ..state import declare_training_only
from .three_path_head import ThreePathHead

BRANCHES = ('attr', 'obj')


@dataclass
class Observation:
    """What an iteration leaves for the update of a bank: N images of all ranks.

    Args:
        features (Tensor): Unit norm, shape (N, D).
        labels (Tensor): Primitive of each, shape (N,).
        rows (Tensor): Assigned prototype of each, shape (N,).
    """
    features: Tensor
    labels: Tensor
    rows: Tensor


def gather(tensor: Tensor) -> Tensor:
    """Rows of all ranks, in the order of the ranks, without gradient."""
    return torch.cat(all_gather(tensor.detach().contiguous()))


def gather_with_gradient(tensor: Tensor) -> Tensor:
    """Rows of all ranks; the gradient goes back to the rank a row came from.

    Its backward sums what all ranks ask for. Where every rank computes the
    same loss from the gathered rows, that is the world size times too much,
    which is what DDP's average takes away again.
    """
    if get_world_size() == 1:
        return tensor
    from torch.distributed.nn.functional import all_gather as differentiable_all_gather
    return torch.cat(differentiable_all_gather(tensor.contiguous()))


@MODELS.register_module()
class ClusProHead(ThreePathHead):
    """Adds prototypes of the attributes and objects to the three-path head.

    In training each feature is assigned to a prototype of its own primitive,
    with the features of all ranks; both losses look at the assignments; and
    :class:`~mmcluspro.engine.hooks.PrototypeHook` moves the prototypes after
    the iteration. Prediction does not know of prototypes.

    Args:
        *args: As in :class:`ThreePathHead`.
        in_channels (int): Width D of the features.
        bank (dict, optional): Fields of
            :class:`~mmcluspro.models.clustering.PrototypeBank` (K, μ,
            assigner, queue, …). Defaults to None, the paper's.
        branches (Sequence[str]): Which of 'attr' and 'obj' are clustered
            (Table 4c). Defaults to both.
        loss_pcl (dict, optional): Contrast, Eq. 10; None leaves it out.
            Defaults to ``dict(type='mmcluspro.PCLLoss')``.
        loss_pdl (dict, optional): Decorrelation, Eq. 11; None leaves it out.
            Defaults to ``dict(type='mmcluspro.HSICLoss')``.
        **kwargs: As in :class:`ThreePathHead`.
    """

    def __init__(self,
                 *args: Any,
                 in_channels: int,
                 bank: dict | None = None,
                 branches: Sequence[str] = BRANCHES,
                 loss_pcl: dict | None = dict(type='mmcluspro.PCLLoss'),  # noqa: B006
                 loss_pdl: dict | None = dict(type='mmcluspro.HSICLoss'),  # noqa: B006
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        unknown = set(branches) - set(BRANCHES)
        if unknown:
            raise ValueError(f"head.branches takes 'attr' and 'obj', got {sorted(unknown)}.")
        sizes = dict(attr=len(self.space.attributes), obj=len(self.space.objects))
        self.banks = nn.ModuleDict({
            branch: MODELS.build(dict(
                dict(type='mmcluspro.PrototypeBank', **(bank or {})),
                num_classes=sizes[branch], dim=in_channels))
            for branch in BRANCHES if branch in branches
        })
        declare_training_only(self.banks)
        self.loss_pcl = MODELS.build(loss_pcl) if loss_pcl else None
        self.loss_pdl = MODELS.build(loss_pdl) if loss_pdl else None
        self.observed: dict[str, Observation] = {}

    def bank(self, branch: str) -> PrototypeBank:
        """Returns the prototypes of a branch."""
        return cast(PrototypeBank, self.banks[branch])

    def loss(self, feats: tuple[Tensor, ...], data_samples: list[DataSample],
             **kwargs: Any) -> dict[str, Tensor]:
        """The objective of Eq. 12, term by term.

        Args:
            feats (tuple): Ends with f_a, f_o and f_c, each of shape (B, D).
            data_samples (list[DataSample]): With the three labels.

        Returns:
            dict[str, Tensor]: The three-path losses, ``pcl_loss`` and
            ``pdl_loss``, each with its weight.
        """
        losses = super().loss(feats, data_samples)
        if not self.banks:
            return losses
        features = [F.normalize(f.float(), dim=1) for f in feats[-3:-1]]
        self._observe(features, self.labels(data_samples))
        tables = [self.bank(branch).prototypes if branch in self.banks else None
                  for branch in BRANCHES]
        if self.loss_pcl is not None:
            losses['pcl_loss'] = self.loss_pcl(features, self._rows(local=True), tables)
        if self.loss_pdl is not None:
            # HSIC is no mean over images: it needs those of all ranks at once.
            losses['pdl_loss'] = self.loss_pdl(
                [gather_with_gradient(f) for f in features], self._rows(local=False), tables)
        return losses

    @torch.no_grad()
    def _observe(self, features: list[Tensor], labels: dict[str, Tensor]) -> None:
        """Assigns the features of all ranks, so that every rank finds the same rows."""
        for branch, local in zip(BRANCHES, features):
            if branch in self.banks:
                every, every_label = gather(local), gather(labels[branch])
                rows = self.bank(branch).assign(every, every_label)
                self.observed[branch] = Observation(every, every_label, rows)

    def _rows(self, local: bool) -> list[Tensor | None]:
        """Assigned rows of both branches, of this rank's images or of all."""
        rows = [self.observed[branch].rows if branch in self.observed else None
                for branch in BRANCHES]
        if not local:
            return rows
        return [None if row is None else row.chunk(get_world_size())[get_rank()] for row in rows]

    def update_prototypes(self) -> None:
        """Moves the prototypes to the features of the last iteration (Eq. 9)."""
        for branch, seen in self.observed.items():
            self.bank(branch).update(seen.features, seen.labels, seen.rows)
        self.observed = {}

    def health(self) -> dict[str, float]:
        """State of the clusters for the log, for example ``attr_used``."""
        return {f'{branch}_{name}': value for branch in self.banks
                for name, value in self.bank(branch).health().items()}
