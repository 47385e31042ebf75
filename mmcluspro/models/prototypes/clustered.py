"""Prototypes in a head of any project: assigned in its loss, moved after each step (Eq. 7-9)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from mmpretrain.structures import DataSample
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.models.gather import RowGatherer

from .bank import PrototypeBank, assign_together, update_together

MOST_CALLS = 64  # of the loss between two updates; older features are dropped


@dataclass
class Observation:
    """Features of an iteration for the update of a bank: N images of all ranks.

    Args:
        features (Tensor): Unit norm, NaN where a rank had fewer images, shape (N, D).
        labels (Tensor): Class of each, shape (N,).
        rows (Tensor): Assigned prototype of each, -1 for none, shape (N,).
    """
    features: Tensor
    labels: Tensor
    rows: Tensor


class PrototypeMixin:
    """What :class:`~mmcluspro.engine.hooks.PrototypeHook` needs of a head, first among its bases.

    The head calls :meth:`keep_banks` in its ``__init__``, implements :meth:`clusters`, and calls
    :meth:`observe` in its ``loss``. The hook initialises the banks before training, moves the
    prototypes after each step of the optimizer, compares them between ranks, and logs their
    health. ``docs/other_projects.md`` has an example.

    Attributes:
        banks (nn.ModuleDict): By name.
        observed (dict[str, Observation]): What was assigned since the last update, by name.
    """

    banks: nn.ModuleDict

    def keep_banks(self, banks: Mapping[str, PrototypeBank]) -> None:
        """Sets the banks, by the names that :meth:`clusters` uses."""
        self.banks = nn.ModuleDict(banks)
        self._assign, self._update = assign_together, update_together
        self.observed: dict[str, Observation] = {}
        self.gatherer = RowGatherer()

    def clusters(self, feats: Any,
                 data_samples: Sequence[DataSample]) -> dict[str, tuple[Tensor, Tensor]]:
        """Features (B, D) and classes (B,) for each bank, by its name.

        Args:
            feats (Any): What ``extract_feat`` of the model returns for B images.
            data_samples (Sequence[DataSample]): With the labels.
        """
        raise NotImplementedError

    def observe(self, clusters: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        """Assigns a batch to prototypes, together with those of all ranks.

        Args:
            clusters (Mapping): As :meth:`clusters` returns them.

        Returns:
            dict[str, Tensor]: The prototype of each image, a row of ``bank.prototypes``, or -1 for
            none, shape (B,), by the name of the bank.
        """
        seen = {}
        with torch.no_grad():
            for name, (features, labels) in clusters.items():
                unit = F.normalize(features.detach().float(), dim=1)
                seen[name] = (self.gatherer(unit[None])[0], self.gatherer(labels[None], fill=0)[0])
        rows = self._assigned(seen)
        return {name: self.gatherer.local(row, len(clusters[name][1]))
                for name, row in rows.items()}

    @torch.no_grad()
    def _assigned(self, seen: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        """Assigns unit features (N, D) of classes (N,), and keeps them for the update."""
        if not seen:
            return {}
        rows = self._assign([self.bank(name) for name in seen], *zip(*seen.values()))
        for (name, each), row in zip(seen.items(), rows):
            self._remember(name, Observation(*each, row))
        return dict(zip(seen, rows))

    def _remember(self, name: str, new: Observation) -> None:
        """Keeps an observation for the update; several losses in one step accumulate."""
        old = self.observed.get(name)
        if old is not None:
            most = MOST_CALLS * len(new.labels)  # where nobody updates, memory must not grow
            new = Observation(*(torch.cat([getattr(old, part), getattr(new, part)])[-most:]
                                for part in ('features', 'labels', 'rows')))
        self.observed[name] = new

    def update_prototypes(self) -> None:
        """Updates the prototypes with all features since the last update (Eq. 9)."""
        seen = self.observed.values()
        if seen:
            self._update([self.bank(name) for name in self.observed],
                         [each.features for each in seen], [each.labels for each in seen],
                         [each.rows for each in seen])
        self.observed = {}

    def expect_batches(self, size: int) -> None:
        """Allocates memory for the features of batches of ``size`` images per rank."""
        self.gatherer.least = size

    def bank(self, name: str) -> PrototypeBank:
        """A bank."""
        return cast(PrototypeBank, self.banks[name])

    @property
    def clustered(self) -> dict[str, PrototypeBank]:
        """The banks by name."""
        return {name: self.bank(name) for name in self.banks}

    @property
    def replicated(self) -> dict[str, Tensor]:
        """State by name that every rank computes itself and that must be equal on all ranks."""
        return {f'{name} prototypes': bank.prototypes for name, bank in self.clustered.items()}

    def health(self) -> dict[str, float]:
        """State of the clusters for the log, for example ``attr_used``."""
        return {f'{name}_{key}': value for name, bank in self.clustered.items()
                for key, value in bank.health().items()}
