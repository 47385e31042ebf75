"""PrototypeBank: the prototypes of one branch (attributes or objects), their assignment and update.

The pure functions come first: Eq. 9, usage, re-seeding. They have no loop over prototypes, shapes
depend on the batch only, and the host never waits. Several features may carry the same prototype:
each computes its new place, and the first one's bits are written for all of them. A leading
dimension G counts branches. Banks that are alike (same options, as many features of the same
width) share every call but the reads and writes of their own tables: :func:`assign_together` and
:func:`update_together` are what training runs.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmcluspro.errors import at_least, between, one_of
from mmcluspro.fields import Left, Unsaved, integer
from mmcluspro.models.state import declare_training_only
from mmcluspro.registry import MODELS

from .assign import CosineAssigner, LocalAwareOT, Solved, one_branch
from .problems import (
    Branches,
    check_labels,
    finite_rows,
    make_offsets,
    own_columns,
    own_cosines,
    unit,
)
from .start import JITTER, choose_sizes, initial_prototypes


class FeatureQueue(nn.Module):
    """Ring buffer of the last ``size`` features of each class.

    The first row takes what is not to be kept, so that writing needs no selection; it always
    holds zeros.

    Args:
        num_classes (int): C.
        size (int): Features kept per class.
        dim (int): D.
    """
    features: Tensor
    pushed: Tensor

    def __init__(self, num_classes: int, size: int, dim: int) -> None:
        super().__init__()
        self.num_classes, self.size = num_classes, size
        self.register_buffer('features', torch.zeros(1 + num_classes * size, dim))
        self.register_buffer('pushed', torch.zeros(num_classes, dtype=torch.long))
        # A head that scores with prototypes keeps them in a file, and needs no queue for that.
        declare_training_only(self)

    def push(self, features: Tensor, labels: Tensor, valid: Tensor | None = None) -> None:
        """Stores features, the oldest of a class first to go.

        Args:
            features (Tensor): Shape (N, D).
            labels (Tensor): Class of each, shape (N,).
            valid (Tensor, optional): Which of them to store, shape (N,). Defaults to all.
        """
        if valid is None:
            valid = torch.ones_like(labels, dtype=torch.bool)
        push_together([self], features[None], labels[None], valid[None])

    def context(self) -> tuple[Tensor, Tensor]:
        """The stored features of all classes.

        Returns:
            tuple[Tensor, Tensor]: Features (C, size, D), a view, and how often each class was
            pushed, shape (C,): that many exist, at most ``size``.
        """
        return self.features[1:].view(self.num_classes, self.size, -1), self.pushed

    def clear(self) -> None:
        """Forgets everything."""
        self.features.zero_()
        self.pushed.zero_()


@torch.no_grad()
def push_together(queues: Sequence[FeatureQueue], features: Tensor, labels: Tensor,
                  valid: Tensor) -> None:
    """:meth:`FeatureQueue.push` of G queues of the same size.

    Args:
        queues (Sequence[FeatureQueue]): The queues.
        features (Tensor): Finite features, shape (G, N, D).
        labels (Tensor): Class of each, shape (G, N).
        valid (Tensor): Which of them to store, shape (G, N).
    """
    size = queues[0].size
    # Sorted by class, features that are not stored behind all others: linear in N, not N x N.
    last = max(queue.num_classes for queue in queues)
    ordered, order = torch.where(valid, labels, last).sort(dim=1, stable=True)
    start = torch.searchsorted(ordered, labels)
    count = torch.searchsorted(ordered, labels, right=True) - start
    place = torch.arange(labels.shape[1], device=labels.device).expand_as(order)
    earlier = torch.empty_like(order).scatter_(1, order, place) - start
    pushed = torch.stack([queue.pushed[label] for queue, label in zip(queues, labels)])
    # Of more than `size` features of a class only the last may land: a slot written twice
    # has no defined winner.
    keep = valid & (earlier >= count - size)
    slots = torch.where(keep, labels * size + (pushed + earlier) % size + 1, 0)
    values = features.to(queues[0].features.dtype)
    for queue, *each in zip(queues, slots, values, labels, pushed + count):
        queue.features.index_copy_(0, each[0], each[1])
        queue.features[0].zero_()
        queue.pushed.index_copy_(0, each[2], each[3])


def unit_or_zero(features: Tensor) -> tuple[Tensor, Tensor]:
    """Scales rows to norm one and replaces those that are not finite by zeros.

    Args:
        features (Tensor): Shape (G, N, D).

    Returns:
        tuple[Tensor, Tensor]: The features, and which were finite, shape (G, N).
    """
    norm = features.norm(dim=2, keepdim=True)
    finite = norm < torch.inf
    # Faster than torch.where over all channels.
    units = features / torch.where(finite, norm.clamp_min(1e-12), torch.inf)
    return units.nan_to_num_(0.0, 0.0, 0.0), finite[:, :, 0]


def group_sums(features: Tensor, keys: Tensor, counted: Tensor,
               num_keys: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sum of the features that share a key.

    Args:
        features (Tensor): Finite, shape (G, N, D).
        keys (Tensor): Prototype (or class) of each feature, in [0, num_keys), shape (G, N).
        counted (Tensor): Which features count, shape (G, N).
        num_keys (int): Number of keys. Time grows with N times the smaller of it and N.

    Returns:
        tuple[Tensor, Tensor, Tensor]: For each feature the sum of the counted features with its
        key, shape (G, N, D), their number, shape (G, N, 1), and the first feature with the
        same key, shape (G, N, 1). Sums of equal keys may differ in their last bits.
    """
    few = num_keys < keys.shape[1]
    groups = torch.arange(num_keys, device=keys.device)[None] if few else keys
    same = groups[:, :, None] == keys[:, None]
    first = same.byte().argmax(dim=2)
    weight = (same & counted[:, None]).to(features.dtype)
    sums, count = torch.bmm(weight, features), weight.sum(dim=2)
    if few:
        first, count = first.gather(1, keys), count.gather(1, keys)
        sums = torch.stack([each.index_select(0, key) for each, key in zip(sums, keys)])
    return sums, count[:, :, None], first[:, :, None]


def moved(old: Tensor, sums: Tensor, count: Tensor, momentum: float | Tensor,
          normalize_mean: bool) -> tuple[Tensor, Tensor]:
    """Eq. 9 and back to unit norm: ``p <- unit(mu * p + (1 - mu) * mean)``.

    Args:
        old (Tensor): Prototypes, shape (G, N, D).
        sums (Tensor): Sum of the features assigned to each, same shape.
        count (Tensor): Their number, shape (G, N, 1).
        momentum (float or Tensor): mu, or one for each, shape (G, N, 1).
        normalize_mean (bool): Scale the mean to unit norm first (Algorithm 1).

    Returns:
        tuple[Tensor, Tensor]: New prototypes and the means, both of shape (G, N, D). A prototype
        without features, or whose terms cancel, keeps its place.
    """
    means = F.normalize(sums, dim=2) if normalize_mean else sums / count.clamp_min(1)
    if isinstance(momentum, float):
        new = torch.lerp(means, old, momentum)
    else:
        new = torch.lerp(means, old, momentum.to(old.dtype))
    norm = new.norm(dim=2, keepdim=True)
    stays = (norm <= 1e-6) | (count == 0)
    return torch.where(stays, old, new / norm.clamp_min(1e-6)), means


def correctly_classified(features: Tensor, labels: Tensor, prototypes: Tensor,
                         owner: Tensor) -> Tensor:
    """Features whose nearest prototype of all belongs to their own primitive (Algorithm 1).

    Args:
        features (Tensor): Unit norm, shape (N, D).
        labels (Tensor): Primitive of each, shape (N,).
        prototypes (Tensor): Unit norm, shape (P, D).
        owner (Tensor): Primitive of each prototype, shape (P,).

    Returns:
        Tensor: Booleans, shape (N,).
    """
    return owner[(features @ prototypes.T).argmax(dim=1)] == labels


def reseeded(prototypes: Tensor, dead: Tensor, features: Tensor, labels: Tensor,
             offsets: Tensor, valid: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """New places for dead prototypes: the feature of the primitive that is represented worst.

    Args:
        prototypes (Tensor): Shape (P, D).
        dead (Tensor): Which may move, shape (P,).
        features (Tensor): Unit-norm features of the batch, shape (N, D).
        labels (Tensor): Primitive of each, shape (N,).
        offsets (Tensor): Shape (C + 1,).
        valid (Tensor): Features to look at, shape (N,).
        width (int): Largest K.

    Returns:
        tuple[Tensor, Tensor, Tensor]: For each feature a row of its primitive, shape (N,), its
        place (the old one unless it moves), shape (N, D), and whether it moves, shape (N,).
        At most one row per primitive moves.
    """
    rows, real = own_columns(labels, offsets, width)
    movable = dead[rows] & real
    best = own_cosines(features, labels, prototypes, offsets, width)[0].amax(dim=1)
    seen = (labels[:, None] == labels) & valid
    worst = torch.where(seen, best, torch.inf).argmin(dim=1)
    place = features.index_select(0, worst)
    row = rows.gather(1, movable.byte().argmax(dim=1, keepdim=True))[:, 0]
    moves = movable.any(dim=1) & seen.any(dim=1) & (place.norm(dim=1) > 0.5)
    return row, torch.where(moves[:, None], place, prototypes[row]), moves


def updated_usage(usage: Tensor, hits: Tensor, owner: Tensor, num_classes: int,
                  decay: float) -> Tensor:
    """Running share of its primitive's features that each prototype gets.

    A primitive forgets by ``decay`` for each of its features, so that rare ones are not
    called dead for being absent.

    Args:
        usage (Tensor): Shares so far, 1/K at the start, shape (P,).
        hits (Tensor): Features that each prototype got since then, shape (P,).
        owner (Tensor): Primitive of each prototype, shape (P,).
        num_classes (int): C.
        decay (float): In [0, 1].

    Returns:
        Tensor: New shares; they still sum to one inside a primitive, shape (P,).
    """
    # Sums of whole numbers are exact in any order, so scattered additions do no harm here.
    seen = usage.new_zeros(num_classes).scatter_add_(0, owner, hits)[owner]
    # Without features the weight is one, which leaves the old share as it is.
    return torch.lerp(hits / seen.clamp_min(1), usage, decay**seen)


def usage_balance(usage: Tensor, offsets: Tensor) -> Tensor:
    """Mean entropy of usage over its maximum log K, in primitives with K > 1 (else 1)."""
    sizes = offsets.diff()
    several = sizes > 1
    if not bool(several.any()):
        return usage.new_ones(())
    rows, real = own_columns(torch.arange(len(sizes), device=sizes.device), offsets)
    shares = torch.where(real, usage[rows], 0.0)
    entropy = -torch.xlogy(shares, shares).sum(dim=1)
    return (entropy[several] / sizes[several].log()).mean()


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

    >>> bank = PrototypeBank(num_classes=2, dim=4, num_prototypes=2, queue_size=8)
    >>> features, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> bank.initialise(features, labels)
    >>> rows = bank.assign(features, labels)
    >>> sorted(rows.tolist())
    [0, 1, 2, 3]
    >>> bank.update(features, labels, rows)
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

    def __init__(self, num_classes: Unsaved[int], dim: Unsaved[int],
                 num_prototypes: Annotated[int, integer(1, 1000)] | Literal['share', 'auto'] = 5,
                 momentum: Unsaved[float] = 0.99,
                 momentum_unit: Unsaved[Literal['step', 'epoch']] = 'step',
                 correct_only: Unsaved[bool] = True, normalize_mean: Unsaved[bool] = True,
                 assigner: Unsaved[dict | None] = None,
                 queue_size: Annotated[int | None, Left(0)] = None,
                 single: Unsaved[Literal['batch_mean', 'momentum']] = 'batch_mean',
                 missing: Unsaved[Literal['later', 'error']] = 'later',
                 usage_decay: Unsaved[float] = 0.99, dead_share: Unsaved[float] = 0.1,
                 reseed: Unsaved[bool] = False, max_prototypes: Unsaved[int] = 5,
                 seed: Unsaved[int] = 0) -> None:
        super().__init__()
        self.assigner = MODELS.build(assigner or dict(type='mmcluspro.LocalAwareOT'))
        wanted = getattr(self.assigner, 'queue_size', 0)
        if queue_size is None:
            queue_size = 0 if num_prototypes == 1 else wanted
        elif queue_size and isinstance(self.assigner, LocalAwareOT) and not wanted:
            raise ValueError(f"bank.queue_size={queue_size} needs assigner.scope='class': "
                             "scope='batch' takes the features of the batch and no others.")
        if isinstance(num_prototypes, str):
            one_of('bank.num_prototypes', num_prototypes, ('share', 'auto'))
        else:
            at_least('bank.num_prototypes', num_prototypes, 1)
        for name, share in dict(momentum=momentum, usage_decay=usage_decay,
                                dead_share=dead_share).items():
            between(f'bank.{name}', share, 0, 1)
        for name, number, least in (
                ('num_classes', num_classes, 1), ('dim', dim, 1), ('queue_size', queue_size, 0),
                ('max_prototypes', max_prototypes, 1)):
            at_least(f'bank.{name}', number, least)
        one_of('bank.momentum_unit', momentum_unit, ('step', 'epoch'))
        one_of('bank.single', single, ('batch_mean', 'momentum'))
        one_of('bank.missing', missing, ('later', 'error'))
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
        self.fill_queue(features, labels)

    @torch.no_grad()
    def fill_queue(self, features: Tensor, labels: Tensor) -> None:
        """Stores the last features of each primitive, and potentials to start from.

        Args:
            features (Tensor): Unit norm and finite, shape (N, D).
            labels (Tensor): Primitive of each, shape (N,).
        """
        if self.queue is None:
            return
        self.queue.clear()
        # In pieces: a push compares all with all.
        for part in torch.arange(len(labels), device=labels.device).split(1024):
            self.queue.push(features[part], labels[part])
        if self.warm:
            for classes in torch.arange(self.num_classes, device=labels.device).split(64):
                self.keep_potentials(self.assigner.assign(one_branch(
                    features.new_zeros(len(classes), self.dim), classes, self.prototypes,
                    self.offsets, self.width, *self.queue.context())), 0)

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

    def assign_alone(self, features: Tensor, labels: Tensor) -> Tensor:
        """Rows of a bank with one prototype per primitive, or with an assigner of its own."""
        if isinstance(self.assigner, CosineAssigner) and not self.batch_mean:
            return self.assigner(features, labels, self.prototypes, self.offsets, width=self.width)
        if not self.batch_mean:
            return self.assigner(features, labels, self.prototypes, self.offsets, *self.context())
        vectors, finite = finite_rows(features.float())
        if self.training:
            _move([self], unit(vectors)[None], labels[None], finite[None])
        return self.offsets[labels].masked_fill(~finite, -1)

    def keep_potentials(self, result: Solved, branch: int) -> None:
        """Stores where a solve ended, for the next visit of the same primitives."""
        columns = result.problems.layouts[branch].columns
        values = result.problems.by_branch(result.solution.potential)[branch]
        if columns.shape[1] * self.num_classes != len(self.prototypes):
            # Beyond a class's K its last row is repeated: so must its potential be.
            values = values.gather(1, columns - columns[:, :1])
        # A solve that failed must not spoil the next one.
        values = values.nan_to_num(0.0, 0.0, 0.0).to(self.potentials.dtype)
        self.potentials.index_copy_(0, columns.flatten(), values.flatten())

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

    def keep_rate(self, rows: Tensor, count: Tensor) -> Tensor:
        """mu (N, 1) per epoch of prototypes (N,) that get ``count`` (N, 1) features."""
        owner = self.owner[rows]
        expected = self.counts[owner].clamp_min(1) / self.sizes[owner]
        return self.momentum**(count / expected[:, None])

    def start_unseeded(self, features: Tensor, labels: Tensor, valid: Tensor) -> None:
        """Puts all prototypes of a primitive around its first features (N, D), apart by noise."""
        sums, count, first = group_sums(features[None], labels[None], valid[None],
                                        self.num_classes)
        means = (sums[0] / count[0].clamp_min(1)).index_select(0, first[0, :, 0])
        rows, _ = own_columns(labels, self.offsets, self.width)
        fresh = ~self.seeded[labels] & (count[0, :, 0] > 0)
        old = self.prototypes[rows]
        places = torch.where(fresh[:, None, None], unit(means[:, None] + JITTER * old), old)
        self.prototypes.index_copy_(0, rows.flatten(), places.flatten(0, 1))
        self.seeded.index_copy_(0, labels, self.seeded[labels] | fresh)

    def revive(self, features: Tensor, labels: Tensor, valid: Tensor) -> None:
        """Moves dead prototypes to features (N, D) that are represented badly."""
        row, place, moves = reseeded(self.prototypes, self.dead(), features, labels, self.offsets,
                                     valid, self.width)
        self.prototypes.index_copy_(0, row, place)
        self.usage.index_copy_(0, row, torch.where(moves, self.fair()[row], self.usage[row]))

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

    @torch.no_grad()
    def health(self) -> dict[str, float]:
        """Numbers to log; reading them makes the host wait. Warns if a solve did not converge.

        Returns:
            dict[str, float]: ``used``, the share of prototypes that are not dead; ``balance``,
            the mean entropy of usage in primitives with K > 1 over its maximum log K;
            ``drift``, the mean 1 - cosine of the last update; ``lag``, the mean 1 - cosine
            between a prototype and the mean of its features (those in the queue that are nearest
            to it or, without a queue, those of the last batch); ``transport``, the share of
            features since the last call that transport decided.
        """
        self.require_initialised()
        self._look()
        if isinstance(self.assigner, LocalAwareOT):
            self.assigner.warn_if_unconverged()
        transport = int(self.transported) / max(int(self.assigned), 1)
        self.transported.zero_()
        self.assigned.zero_()
        drift, lag = self._distances()
        return dict(
            used=1 - float(self.dead().float().mean()),
            balance=float(usage_balance(self.count_usage(), self.offsets)),
            drift=drift, lag=lag, transport=transport)

    def _distances(self) -> tuple[float, float]:
        """Drift and lag."""
        drift = lag = torch.zeros(())
        if self.last_move:
            old, new, means, moving = (each[self.last_move[4]] for each in self.last_move[:4])
            if bool(moving.any()):
                drift = (1 - (old * new).sum(dim=1))[moving].mean()
                lag = (1 - (new * unit(means)).sum(dim=1))[moving].mean()
        if self.queue is not None:
            means, used = self.queue_means()
            lag = (1 - (self.prototypes * unit(means)).sum(dim=1))[used].mean()
        return float(drift), float(lag)

    def queue_means(self) -> tuple[Tensor, Tensor]:
        """Mean of the features in the queue that are nearest to each prototype.

        Returns:
            tuple[Tensor, Tensor]: Means, zero where there is none, shape (P, D), and which
            prototypes have one, shape (P,).
        """
        features, pushed = self.context()
        assert features is not None and pushed is not None
        held = torch.arange(features.shape[1], device=pushed.device) < pushed[:, None]
        columns, real = own_columns(torch.arange(self.num_classes, device=pushed.device),
                                    self.offsets, self.width)
        cosine = features @ self.prototypes[columns].transpose(1, 2)
        nearest = cosine.masked_fill(~real[:, None], -torch.inf).argmax(dim=2)
        member = (nearest[:, None] == torch.arange(self.width, device=pushed.device)[:, None])
        member = member & held[:, None]
        count = member.sum(dim=2)
        means = member.to(features.dtype) @ features / count.clamp_min(1)[:, :, None]
        return means[real], count[real] > 0

    def require_initialised(self) -> None:
        """Raises if there are no prototypes yet."""
        if self._ready:
            return
        if not bool(self.initialised):
            raise RuntimeError(
                'The PrototypeBank has no prototypes yet: call initialise(features, labels) first '
                '(PrototypeHook does so before training) or load a checkpoint.')
        self._look()

    def _check_state(self, state: dict[str, Any], prefix: str) -> None:
        """Raises ValueError for saved buffers that another config must have written.

        PyTorch would leave such buffers as they are, with prototypes of zeros, where
        loading is not strict.

        Args:
            state (dict): The whole state dict.
            prefix (str): Where the bank's part begins.
        """
        offsets, prototypes = state.get(f'{prefix}offsets'), state.get(f'{prefix}prototypes')
        if offsets is not None and len(offsets) != self.num_classes + 1:
            raise ValueError(
                f'{prefix}offsets: the checkpoint has prototypes of {len(offsets) - 1} primitives, '
                f'the model {self.num_classes}. Load it with the space it was trained with.')
        if prototypes is None:
            return
        if prototypes.shape[1:] != (self.dim, ):
            raise ValueError(
                f'{prefix}prototypes: the checkpoint has prototypes with {prototypes.shape[-1]} '
                f'channels, the model has {self.dim}: model.head.in_channels differs from the '
                "checkpoint's.")
        if isinstance(self.num_prototypes, int) and \
                len(prototypes) != self.num_classes * self.num_prototypes:
            per_class = f'{len(prototypes) / self.num_classes:g}'
            raise ValueError(
                f'{prefix}prototypes: the checkpoint has {len(prototypes)} prototypes of '
                f'{self.num_classes} primitives ({per_class} each), the model wants '
                f'{self.num_prototypes} each: set model.head.bank.num_prototypes to what the '
                'checkpoint was trained with.')

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args) -> None:
        self._check_state(state_dict, prefix)
        # With 'share' and 'auto' the shapes are known only to the checkpoint.
        if isinstance(self.num_prototypes, str):
            for name in ('prototypes', 'usage', 'hits', 'potentials'):
                saved = state_dict.get(prefix + name)
                if saved is not None:
                    setattr(self, name, getattr(self, name).new_empty(saved.shape))
        self._ready = False
        super()._load_from_state_dict(state_dict, prefix, *args)


@torch.no_grad()
def assign_together(banks: Sequence[PrototypeBank], features: Sequence[Tensor],
                    labels: Sequence[Tensor]) -> list[Tensor]:
    """:meth:`PrototypeBank.assign` of several banks; one solve where they are alike.

    Args:
        banks (Sequence[PrototypeBank]): The banks.
        features (Sequence[Tensor]): Features for each, shapes (N, D).
        labels (Sequence[Tensor]): Primitives for each, shapes (N,).

    Returns:
        list[Tensor]: Rows of each bank's prototypes, shapes (N,).
    """
    for bank, feature in zip(banks, features):
        bank.require_initialised()
        bank.check_width(feature)
    if not len(labels[0]):
        return list(labels)
    if len(banks) > 1 and not _alike(banks, features):
        return [row for bank, f, y in zip(banks, features, labels)
                for row in assign_together([bank], [f], [y])]
    if isinstance(banks[0].assigner, LocalAwareOT) and not banks[0].batch_mean:
        rows = _transported(banks, features, labels)
    else:
        rows = [bank.assign_alone(f, y) for bank, f, y in zip(banks, features, labels)]
    return [row.masked_fill(~bank.seeded[label], -1) if bank.waiting else row
            for bank, row, label in zip(banks, rows, labels)]


def _alike(banks: Sequence[PrototypeBank], features: Sequence[Tensor]) -> bool:
    return len({(bank.kind, feature.shape) for bank, feature in zip(banks, features)}) == 1


def _transported(banks: Sequence[PrototypeBank], features: Sequence[Tensor],
                 labels: Sequence[Tensor]) -> list[Tensor]:
    """Rows of banks that are alike and use transport."""
    vectors, finite = unit_or_zero(torch.stack(list(features)).detach().float())
    label = torch.stack(list(labels))
    queues = [bank.queue for bank in banks if bank.queue is not None]
    if queues and banks[0].training:
        push_together(queues, vectors, label, finite)
    contexts, counts = zip(*(queue.context() for queue in queues)) if queues else (None, None)
    warm = banks[0].warm
    result = banks[0].assigner.assign(Branches(
        vectors, finite, label, [bank.prototypes for bank in banks],
        [bank.offsets for bank in banks], max(bank.width for bank in banks), contexts, counts,
        [bank.potentials for bank in banks] if warm else None))
    solved = result.solved.sum(dim=1)
    for i, bank in enumerate(banks):
        bank.assigner.last = result
        bank.transported += solved[i]
        bank.assigned += len(labels[i])
        if warm and bank.training:
            bank.keep_potentials(result, i)
    return list(result.rows)


@torch.no_grad()
def update_together(banks: Sequence[PrototypeBank], features: Sequence[Tensor],
                    labels: Sequence[Tensor], rows: Sequence[Tensor]) -> None:
    """:meth:`PrototypeBank.update` of several banks, together where they are alike.

    Args:
        banks (Sequence[PrototypeBank]): The banks.
        features (Sequence[Tensor]): Features for each, shapes (N, D).
        labels (Sequence[Tensor]): Primitives for each, shapes (N,).
        rows (Sequence[Tensor]): Results of :func:`assign_together`, shapes (N,).
    """
    for bank, feature in zip(banks, features):
        bank.require_initialised()
        bank.check_width(feature)
    if not len(labels[0]):
        return
    if len(banks) > 1 and not _alike(banks, features):
        for bank, f, y, r in zip(banks, features, labels, rows):
            update_together([bank], [f], [y], [r])
        return
    vectors, finite = unit_or_zero(torch.stack(list(features)).detach().float())
    for i, bank in enumerate(banks):
        if bank.waiting:
            bank.start_unseeded(vectors[i], labels[i], finite[i])
    row = torch.stack(list(rows))
    known = finite & (row >= 0)
    moving = known
    if banks[0].correct_only and not banks[0].batch_mean:
        moving = known & torch.stack([
            correctly_classified(vectors[i], labels[i], bank.prototypes, bank.owner)
            for i, bank in enumerate(banks)])
    row = row.clamp_min(0)
    _move(banks, vectors, row, moving)
    counted = known.float()
    for i, bank in enumerate(banks):
        bank.hits.scatter_add_(0, row[i], counted[i])
        if bank.reseed:
            bank.revive(vectors[i], labels[i], finite[i])


def _move(banks: Sequence[PrototypeBank], features: Tensor, rows: Tensor,
          moving: Tensor) -> None:
    """Eq. 9 for the prototypes ``rows`` (G, N) of features (G, N, D), of which ``moving`` count."""
    sums, count, first = group_sums(features, rows, moving,
                                    max(len(bank.prototypes) for bank in banks))
    old = torch.stack([bank.prototypes.index_select(0, row) for bank, row in zip(banks, rows)])
    rate: float | Tensor = 0.0 if banks[0].batch_mean else banks[0].momentum
    if banks[0].momentum_unit == 'epoch' and not banks[0].batch_mean:
        rate = torch.stack([bank.keep_rate(*each) for bank, *each in zip(banks, rows, count)])
    new, means = moved(old, sums, count, rate, banks[0].normalize_mean)
    new = new.gather(1, first.expand_as(new))
    for i, bank in enumerate(banks):
        bank.prototypes.index_copy_(0, rows[i], new[i])
        bank.last_move = (old, new, means, moving, i)


