"""PrototypeBank: the prototypes of one branch (attributes or objects) and their update, Eq. 9."""
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mmcluspro.registry import MODELS

from .assigners import LocalAwareOT
from .bank_checks import check_options, check_state
from .health import bank_health, updated_usage
from .joint import assign_together, fill_queue, update_together
from .kmeans import initial_prototypes
from .num_prototypes import choose_sizes
from .queue import FeatureQueue
from .segments import check_labels, make_offsets, unit


@MODELS.register_module()
class PrototypeBank(nn.Module):
    """Unit-norm prototypes of C primitives, K of them each or a K for each.

    ``prototypes[offsets[c]:offsets[c + 1]]`` belong to primitive ``c``. All state is in buffers,
    so a checkpoint carries it. Given the same inputs every step gives the same bits: ranks that
    see the gathered batch stay equal. ``assign`` and ``update`` never make the host wait.

    Args:
        num_classes (int): Primitives of the branch, C.
        dim (int): Feature size, D.
        num_prototypes (int or str): K for all; 'share' for the paper's rule by share of training
            samples (Table 11); 'auto' for a K that pays on held-out samples. Defaults to 5.
        momentum (float): mu of Eq. 9. Defaults to 0.99.
        momentum_unit (str): 'step': a prototype keeps ``momentum`` of itself in each step in which
            it gets features, the paper. 'epoch': it keeps ``momentum`` of itself
            over one epoch, whatever the batch size, the number of steps and the frequency of the
            primitive. Defaults to 'step'.
        correct_only (bool): Only features whose nearest prototype of the branch is one of their
            own primitive move a prototype (Algorithm 1; Eq. 9 takes all). Defaults to True.
        normalize_mean (bool): Scale the mean of the features to unit norm before the momentum
            step (Algorithm 1; Eq. 9 does not). Defaults to True.
        assigner (dict): Strategy of Table 4d. Defaults to ``dict(type='mmcluspro.LocalAwareOT')``.
        queue_size (int, optional): Recent features per primitive that join its transport problem.
            Defaults to None: 64 for transport inside a primitive, else 0.
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
    owner: Tensor
    usage: Tensor
    hits: Tensor
    potentials: Tensor
    counts: Tensor
    seeded: Tensor
    initialised: Tensor
    transported: Tensor
    assigned: Tensor

    def __init__(self,
                 num_classes: int,
                 dim: int,
                 num_prototypes: int | Literal['share', 'auto'] = 5,
                 momentum: float = 0.99,
                 momentum_unit: Literal['step', 'epoch'] = 'step',
                 correct_only: bool = True,
                 normalize_mean: bool = True,
                 assigner: dict | None = None,
                 queue_size: int | None = None,
                 single: Literal['batch_mean', 'momentum'] = 'batch_mean',
                 missing: Literal['later', 'error'] = 'later',
                 usage_decay: float = 0.99,
                 dead_share: float = 0.1,
                 reseed: bool = False,
                 max_prototypes: int = 5,
                 seed: int = 0) -> None:
        super().__init__()
        self.assigner = MODELS.build(assigner or dict(type='mmcluspro.LocalAwareOT'))
        wanted = getattr(self.assigner, 'queue_size', 0)
        if queue_size is None:
            queue_size = 0 if num_prototypes == 1 else wanted
        elif queue_size and isinstance(self.assigner, LocalAwareOT) and not wanted:
            raise ValueError(f"bank.queue_size={queue_size} needs assigner.scope='class': "
                             "scope='batch' takes the features of the batch and no others.")
        check_options(
            num_prototypes, momentum_unit, single, missing,
            shares=dict(momentum=momentum, usage_decay=usage_decay, dead_share=dead_share),
            numbers=dict(num_classes=(num_classes, 1), dim=(dim, 1),
                         queue_size=(queue_size, 0), max_prototypes=(max_prototypes, 1)))
        self.num_classes, self.dim = num_classes, dim
        self.num_prototypes = num_prototypes
        self.momentum, self.momentum_unit = momentum, momentum_unit
        self.correct_only, self.normalize_mean = correct_only, normalize_mean
        self.single, self.missing = single, missing
        self.usage_decay, self.dead_share, self.reseed = usage_decay, dead_share, reseed
        self.max_prototypes = max_prototypes
        self.seed = seed
        size = 0 if isinstance(num_prototypes, str) else num_prototypes
        self.width, self.waiting = size, True
        self._ready = False
        self.last_move: tuple = ()
        self.register_buffer('prototypes', torch.zeros(num_classes * size, dim))
        self.register_buffer('offsets', torch.arange(num_classes + 1) * size)
        self.register_buffer('usage', torch.zeros(num_classes * size))
        self.register_buffer('hits', torch.zeros(num_classes * size))
        self.register_buffer('potentials', torch.zeros(num_classes * size))
        self.register_buffer('counts', torch.zeros(num_classes, dtype=torch.long))
        self.register_buffer('seeded', torch.zeros(num_classes, dtype=torch.bool))
        self.register_buffer('initialised', torch.tensor(False))
        self.register_buffer('owner', torch.arange(num_classes).repeat_interleave(size),
                             persistent=False)
        self.register_buffer('transported', torch.zeros((), dtype=torch.long), persistent=False)
        self.register_buffer('assigned', torch.zeros((), dtype=torch.long), persistent=False)
        self.queue = FeatureQueue(num_classes, queue_size, dim) if queue_size else None

    def extra_repr(self) -> str:
        """Shown by ``print(bank)``."""
        return (f'num_classes={self.num_classes}, num_prototypes={self.num_prototypes!r}, '
                f'momentum={self.momentum} per {self.momentum_unit}')

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
            counts (Tensor, optional): Training samples of each primitive, for the rule 'share' and
                a momentum per epoch, shape (C,). Defaults to the counts in ``labels``.
        """
        check_labels(labels, len(features), self.num_classes)
        self.check_width(features)
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
        counts = present if counts is None else counts.to(device)
        sizes = choose_sizes(self.num_prototypes, features, labels, counts, self.max_prototypes,
                             generator)
        offsets = make_offsets(sizes, int(sizes.sum()), device)
        self._set('offsets', offsets)
        self._set('prototypes', initial_prototypes(features, labels, offsets, generator))
        self._set('usage', 1 / self.sizes.repeat_interleave(self.sizes))
        self.counts.copy_(counts)
        self.seeded.copy_(present > 0)
        self.initialised.fill_(True)
        self._look()
        self._set('hits', torch.zeros_like(self.usage))
        self._set('potentials', torch.zeros_like(self.usage))
        fill_queue(self, features, labels)

    def _set(self, name: str, value: Tensor) -> None:
        """Keeps the buffer where its shape allows: others may hold a reference to it."""
        buffer = getattr(self, name)
        if buffer.shape == value.shape:
            buffer.copy_(value)
        else:
            setattr(self, name, value)

    def _look(self) -> None:
        """Reads from the device, once, what decides shapes and branches."""
        sizes = self.sizes
        self.width, self.waiting = int(sizes.max()), not bool(self.seeded.all())
        self.owner = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
        self._ready = True

    def check_width(self, features: Tensor) -> None:
        """Raises if features (N, D) are not as wide as the prototypes."""
        if features.shape[1] != self.dim:
            raise ValueError(f'The features have {features.shape[1]} channels, the prototypes '
                             f'{self.dim}: set model.head.in_channels={features.shape[1]}.')

    def assign(self, features: Tensor, labels: Tensor) -> Tensor:
        """Prototype of each feature (Eq. 7-8), with the queue as context.

        With K = 1 and ``single='batch_mean'``, training first moves the prototypes to the means
        of this batch.

        Args:
            features (Tensor): Shape (N, D).
            labels (Tensor): Primitive of each, shape (N,).

        Returns:
            Tensor: Rows of ``prototypes``, -1 where the primitive has none yet or the feature
            is not finite, shape (N,).
        """
        return assign_together([self], [features], [labels])[0]

    @property
    def kind(self) -> tuple:
        """tuple: What banks that are updated together must have in common."""
        weights = getattr(self.assigner, 'weights', self.assigner)
        return (weights, self.queue and self.queue.size, self.momentum, self.momentum_unit,
                self.correct_only, self.normalize_mean, self.usage_decay, self.reseed,
                self.batch_mean, self.training)

    @property
    def warm(self) -> bool:
        """bool: Whether the solver starts from the potentials of a primitive's last visit."""
        return (self.queue is not None and isinstance(self.assigner, LocalAwareOT) and
                self.assigner.weights.fixed)

    def context(self) -> tuple[Tensor | None, Tensor | None]:
        """Features of the queue (C, Q, D) and how many exist (C,), or None twice."""
        return (None, None) if self.queue is None else self.queue.context()

    def update(self, features: Tensor, labels: Tensor, rows: Tensor) -> None:
        """After the backward pass of an iteration: Eq. 9, usage, re-seeding.

        Prototypes without features in the batch keep their bits. Features that are not
        finite (an overflow under mixed precision) are left out.

        Args:
            features (Tensor): Features of all ranks, shape (N, D).
            labels (Tensor): Primitive of each, shape (N,).
            rows (Tensor): Result of :meth:`assign`, shape (N,).
        """
        update_together([self], [features], [labels], [rows])

    @torch.no_grad()
    def count_usage(self) -> Tensor:
        """Counts the features since the last call into ``usage``, shape (P,), and returns it."""
        self.usage.copy_(updated_usage(self.usage, self.hits, self.owner, self.num_classes,
                                       self.usage_decay))
        self.hits.zero_()
        return self.usage

    def fair(self) -> Tensor:
        """Tensor: 1/K for each prototype, shape (P,)."""
        return 1 / self.sizes[self.owner]

    def dead(self) -> Tensor:
        """Tensor: Prototypes hardly used by their primitive's features, shape (P,)."""
        self.require_initialised()
        fair = self.fair()
        return (self.count_usage() < self.dead_share * fair) & (fair < 1)

    def health(self) -> dict[str, float]:
        """Numbers to log, see :func:`~.health.bank_health`; reading them makes the host wait."""
        self.require_initialised()
        self._look()
        return bank_health(self)

    def require_initialised(self) -> None:
        """Raises if there are no prototypes yet."""
        if self._ready:
            return
        if not bool(self.initialised):
            raise RuntimeError(
                'The PrototypeBank has no prototypes yet: call initialise(features, labels) first '
                '(PrototypeHook does so before training) or load a checkpoint.')
        self._look()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args) -> None:
        check_state(self, state_dict, prefix)
        # With 'share' and 'auto' the shapes are known only to the checkpoint.
        if isinstance(self.num_prototypes, str):
            for name in ('prototypes', 'usage', 'hits', 'potentials'):
                saved = state_dict.get(prefix + name)
                if saved is not None:
                    setattr(self, name, getattr(self, name).new_empty(saved.shape))
        self._ready = False
        super()._load_from_state_dict(state_dict, prefix, *args)
