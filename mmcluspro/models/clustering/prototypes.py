"""PrototypeBank: the prototypes of one branch (attributes or objects) and their update, Eq. 9."""
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mmcluspro.registry import MODELS

from .kmeans import JITTER, initial_prototypes
from .num_prototypes import choose_sizes
from .queue import FeatureQueue
from .segments import check_labels, make_offsets, own_columns, unit
from .update import assigned_means, momentum_update, reseeded
from .usage import fair_shares, updated_usage, usage_balance


@MODELS.register_module()
class PrototypeBank(nn.Module):
    """Unit-norm prototypes of C primitives, K of them each or a K for each.

    ``prototypes[offsets[c]:offsets[c + 1]]`` belong to primitive ``c``. All state is in buffers,
    so a checkpoint carries it. Given the same inputs every step gives the same bits: ranks that
    see the gathered batch stay equal.

    Args:
        num_classes (int): Primitives of the branch, C.
        dim (int): Feature size, D.
        num_prototypes (int or str): K for all; 'share' for the paper's rule by share of training
            samples (Table 11); 'auto' for a K that pays on held-out samples. Defaults to 5.
        momentum (float): mu of Eq. 9. Defaults to 0.99.
        assigner (dict): Strategy of Table 4d. Defaults to ``dict(type='mmcluspro.LocalAwareOT')``.
        queue_size (int): Recent features per primitive that join the transport problem.
            Defaults to 0, the paper.
        single (str): When every K is 1: 'batch_mean' makes a prototype the mean of the primitive's
            features in the current batch (the paper's remark on Table 4a), 'momentum' keeps Eq. 9.
            Defaults to 'batch_mean'.
        missing (str): Primitives without a sample in ``initialise``: 'later' gives them random
            directions until their first features arrive, 'error' raises. Defaults to 'later'.
        usage_decay (float): Memory of the usage count per feature seen. Defaults to 0.99.
        dead_share (float): A prototype is dead when it gets less than this share of its fair
            share, 1/K. Defaults to 0.1.
        reseed (bool): Move dead prototypes to the worst represented feature of their primitive.
            Defaults to False.
        max_prototypes (int): Largest K of 'auto'. Defaults to 5.
        seed (int): Seed of the initialisation. Defaults to 0.
    """
    prototypes: Tensor
    offsets: Tensor
    usage: Tensor
    seeded: Tensor
    initialised: Tensor

    def __init__(self,
                 num_classes: int,
                 dim: int,
                 num_prototypes: int | Literal['share', 'auto'] = 5,
                 momentum: float = 0.99,
                 assigner: dict | None = None,
                 queue_size: int = 0,
                 single: Literal['batch_mean', 'momentum'] = 'batch_mean',
                 missing: Literal['later', 'error'] = 'later',
                 usage_decay: float = 0.99,
                 dead_share: float = 0.1,
                 reseed: bool = False,
                 max_prototypes: int = 5,
                 seed: int = 0) -> None:
        super().__init__()
        if isinstance(num_prototypes, str):
            _one_of('num_prototypes', num_prototypes, ('share', 'auto'))
        elif num_prototypes < 1:
            raise ValueError(f'bank.num_prototypes must be at least 1, got {num_prototypes}.')
        for name, value in dict(
                momentum=momentum, usage_decay=usage_decay, dead_share=dead_share).items():
            if not 0.0 <= value <= 1.0:
                raise ValueError(f'bank.{name} must lie in [0, 1], got {value}.')
        for name, number, least in (('num_classes', num_classes, 1), ('dim', dim, 1),
                                    ('queue_size', queue_size, 0),
                                    ('max_prototypes', max_prototypes, 1)):
            if number < least:
                raise ValueError(f'bank.{name} must be at least {least}, got {number}.')
        _one_of('single', single, ('batch_mean', 'momentum'))
        _one_of('missing', missing, ('later', 'error'))
        self.num_classes, self.dim = num_classes, dim
        self.num_prototypes = num_prototypes
        self.momentum = momentum
        self.assigner = MODELS.build(assigner or dict(type='mmcluspro.LocalAwareOT'))
        self.single, self.missing = single, missing
        self.usage_decay, self.dead_share, self.reseed = usage_decay, dead_share, reseed
        self.max_prototypes = max_prototypes
        self.seed = seed
        self.drift = torch.tensor(0.0)
        self._ready = False
        size = 0 if isinstance(num_prototypes, str) else num_prototypes
        self.register_buffer('prototypes', torch.zeros(num_classes * size, dim))
        self.register_buffer('offsets', torch.arange(num_classes + 1) * size)
        self.register_buffer('usage', torch.zeros(num_classes * size))
        self.register_buffer('seeded', torch.zeros(num_classes, dtype=torch.bool))
        self.register_buffer('initialised', torch.tensor(False))
        self.queue = FeatureQueue(num_classes, queue_size, dim) if queue_size else None

    def extra_repr(self) -> str:
        """Shown by ``print(bank)``."""
        return (f'num_classes={self.num_classes}, num_prototypes={self.num_prototypes!r}, '
                f'momentum={self.momentum}')

    @property
    def sizes(self) -> Tensor:
        """Tensor: K of each primitive, shape (C,)."""
        return self.offsets.diff()

    @property
    def batch_mean(self) -> bool:
        """bool: Whether prototypes are the means of the current batch (K = 1)."""
        return self.single == 'batch_mean' and len(self.prototypes) == self.num_classes

    @torch.no_grad()
    def initialise(self, features: Tensor, labels: Tensor, counts: Tensor | None = None) -> None:
        """Starts all prototypes by spherical k-means inside each primitive.

        Args:
            features (Tensor): Features of one pass, or of the first batches, shape (N, D).
            labels (Tensor): Primitive of each, shape (N,).
            counts (Tensor, optional): Training samples of each primitive for the rule 'share',
                shape (C,). Defaults to the counts in ``labels``.
        """
        check_labels(labels, len(features), self.num_classes)
        device = self.offsets.device
        features, labels = features.to(device).float(), labels.to(device)
        finite = features.isfinite().all(dim=1)
        features, labels = unit(features[finite]), labels[finite]
        present = torch.bincount(labels, minlength=self.num_classes)
        if self.missing == 'error' and bool((present == 0).any()):
            raise ValueError(
                'PrototypeBank.initialise got no features of the primitives '
                f'{(present == 0).nonzero()[:, 0].tolist()[:10]}; pass features of the whole '
                "training set, or set bank.missing='later'.")
        generator = torch.Generator().manual_seed(self.seed)
        sizes = choose_sizes(self.num_prototypes, features, labels,
                             present if counts is None else counts, self.max_prototypes, generator)
        offsets = make_offsets(sizes, int(sizes.sum()), device)
        self._set('offsets', offsets)
        self._set('prototypes', initial_prototypes(features, labels, offsets, generator))
        self._set('usage', fair_shares(offsets))
        self._set('seeded', present > 0)
        self.initialised.fill_(True)
        if self.queue is not None:
            self.queue.clear()
            self.queue.push(features, labels)

    def _set(self, name: str, value: Tensor) -> None:
        """Keeps the buffer where its shape allows: others may hold a reference to it."""
        buffer = getattr(self, name)
        if buffer.shape == value.shape:
            buffer.copy_(value)
        else:
            setattr(self, name, value)

    @torch.no_grad()
    def assign(self, features: Tensor, labels: Tensor) -> Tensor:
        """Prototype of each feature (Eq. 7-8), with the queue as context.

        With K = 1 and ``single='batch_mean'``, training first moves the prototypes to the means
        of this batch.

        Args:
            features (Tensor): Shape (N, D).
            labels (Tensor): Primitive of each, shape (N,).

        Returns:
            Tensor: Rows of ``prototypes``, -1 where the primitive has none yet, shape (N,).
        """
        self._require_initialised()
        if self.batch_mean:
            if self.training:
                finite = features.isfinite().all(dim=1)
                self._move(unit(features.float())[finite], labels[finite], momentum=0.0)
            return self.offsets[labels]
        context = (None, None) if self.queue is None else self.queue.context(labels)
        rows = self.assigner(features, labels, self.prototypes, self.offsets, *context)
        return rows.masked_fill(~self.seeded[labels], -1)

    @torch.no_grad()
    def update(self, features: Tensor, labels: Tensor, rows: Tensor) -> None:
        """After the backward pass of an iteration: Eq. 9, usage, re-seeding, queue.

        Prototypes without features in the batch keep their bits. Features that are not
        finite (an overflow under mixed precision) are left out.

        Args:
            features (Tensor): Features of all ranks, shape (N, D).
            labels (Tensor): Primitive of each, shape (N,).
            rows (Tensor): Result of :meth:`assign`, shape (N,).
        """
        self._require_initialised()
        finite = features.isfinite().all(dim=1)
        features = unit(features.detach().float()[finite])
        labels, rows = labels[finite], rows[finite]
        self._start_unseeded(features, labels)
        known = rows >= 0
        self._move(features[known], rows[known], 0.0 if self.batch_mean else self.momentum)
        self.usage.copy_(updated_usage(self.usage, rows[known], labels[known], self.offsets,
                                       self.usage_decay))
        if self.reseed and len(features):
            moved, places = reseeded(self.prototypes, self.dead(), features, labels, self.offsets)
            self.prototypes[moved] = places
            self.usage[moved] = fair_shares(self.offsets)[moved]
        if self.queue is not None:
            self.queue.push(features, labels)

    def _move(self, features: Tensor, rows: Tensor, momentum: float) -> None:
        if len(rows):
            touched, means = assigned_means(features, rows)
            old = self.prototypes[touched]
            new = momentum_update(old, means, momentum)
            self.prototypes[touched] = new
            self.drift = (1 - (old * new).sum(dim=1)).mean()

    def _start_unseeded(self, features: Tensor, labels: Tensor) -> None:
        """Puts all prototypes of a primitive around its first features, apart by noise."""
        fresh = ~self.seeded[labels]
        if bool(fresh.any()):
            classes, means = assigned_means(features[fresh], labels[fresh])
            rows, real = own_columns(classes, self.offsets)
            places = unit(means[:, None] + JITTER * self.prototypes[rows])
            self.prototypes[rows[real]] = places[real]
            self.seeded[classes] = True

    def dead(self) -> Tensor:
        """Tensor: Prototypes hardly used by their primitive's features, shape (P,)."""
        fair = fair_shares(self.offsets)
        return (self.usage < self.dead_share * fair) & (fair < 1)

    def health(self) -> dict[str, float]:
        """Numbers to log.

        Returns:
            dict[str, float]: ``used``, the share of prototypes that are not dead; ``balance``,
            the mean entropy of usage in primitives with K > 1 over its maximum log K; and
            ``drift``, the mean 1 - cosine of the last update.
        """
        self._require_initialised()
        return dict(
            used=1 - float(self.dead().float().mean()),
            balance=float(usage_balance(self.usage, self.offsets)),
            drift=float(self.drift))

    def _require_initialised(self) -> None:
        if not self._ready:
            self._ready = bool(self.initialised)
        if not self._ready:
            raise RuntimeError(
                'The PrototypeBank has no prototypes yet: call initialise(features, labels) first '
                '(PrototypeHook does so before training) or load a checkpoint.')

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args) -> None:
        # With 'share' and 'auto' the shapes are known only to the checkpoint.
        if isinstance(self.num_prototypes, str):
            for name in ('prototypes', 'usage'):
                saved = state_dict.get(prefix + name)
                if saved is not None:
                    setattr(self, name, getattr(self, name).new_empty(saved.shape))
        self._ready = False
        super()._load_from_state_dict(state_dict, prefix, *args)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f'bank.{name} must be one of {allowed}, got {value!r}.')
