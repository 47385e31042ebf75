"""Assignment and update of several banks (attributes and objects) in one go.

Banks that are alike (same options, as many features of the same width) share every call except
the reads and writes of their own tables.
"""
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .assigners import CosineAssigner, LocalAwareOT
from .kmeans import JITTER
from .local_aware import Solved, one_branch
from .problems import Branches
from .queue import push_together
from .segments import finite_rows, own_columns, unit
from .update import correctly_classified, group_sums, moved, reseeded, unit_or_zero

if TYPE_CHECKING:
    from .prototypes import PrototypeBank


@torch.no_grad()
def assign_together(banks: Sequence['PrototypeBank'], features: Sequence[Tensor],
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
        rows = [_assign_alone(*each) for each in zip(banks, features, labels)]
    return [row.masked_fill(~bank.seeded[label], -1) if bank.waiting else row
            for bank, row, label in zip(banks, rows, labels)]


def _alike(banks: Sequence['PrototypeBank'], features: Sequence[Tensor]) -> bool:
    return len({(bank.kind, feature.shape) for bank, feature in zip(banks, features)}) == 1


def _transported(banks: Sequence['PrototypeBank'], features: Sequence[Tensor],
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
            keep_potentials(bank, result, i)
    return list(result.rows)


def keep_potentials(bank: 'PrototypeBank', result: Solved, branch: int) -> None:
    """Stores where a solve ended, for the next visit of the same primitives."""
    columns = result.problems.columns[branch]
    values = result.solution.potential.view(result.problems.columns.shape)[branch]
    if columns.shape[1] * bank.num_classes != len(bank.prototypes):
        # Beyond a class's K its last row is repeated: so must its potential be.
        values = values.gather(1, columns - columns[:, :1])
    # A solve that failed must not spoil the next one.
    values = values.nan_to_num(0.0, 0.0, 0.0).to(bank.potentials.dtype)
    bank.potentials.index_copy_(0, columns.flatten(), values.flatten())


@torch.no_grad()
def fill_queue(bank: 'PrototypeBank', features: Tensor, labels: Tensor) -> None:
    """Stores the last features of each primitive, and potentials to start from.

    Args:
        bank (PrototypeBank): A bank with prototypes; without a queue nothing happens.
        features (Tensor): Unit norm and finite, shape (N, D).
        labels (Tensor): Primitive of each, shape (N,).
    """
    if bank.queue is None:
        return
    bank.queue.clear()
    # In pieces: a push compares all with all.
    for part in torch.arange(len(labels), device=labels.device).split(1024):
        bank.queue.push(features[part], labels[part])
    if bank.warm:
        for classes in torch.arange(bank.num_classes, device=labels.device).split(64):
            keep_potentials(bank, bank.assigner.assign(one_branch(
                features.new_zeros(len(classes), bank.dim), classes, bank.prototypes,
                bank.offsets, bank.width, *bank.queue.context())), 0)


def _assign_alone(bank: 'PrototypeBank', features: Tensor, labels: Tensor) -> Tensor:
    """Rows of a bank with one prototype per primitive, or with an assigner of its own."""
    if isinstance(bank.assigner, CosineAssigner) and not bank.batch_mean:
        return bank.assigner(features, labels, bank.prototypes, bank.offsets, width=bank.width)
    if not bank.batch_mean:
        return bank.assigner(features, labels, bank.prototypes, bank.offsets, *bank.context())
    vectors, finite = finite_rows(features.float())
    if bank.training:
        _move([bank], unit(vectors)[None], labels[None], finite[None])
    return bank.offsets[labels].masked_fill(~finite, -1)


@torch.no_grad()
def update_together(banks: Sequence['PrototypeBank'], features: Sequence[Tensor],
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
            _start_unseeded(bank, vectors[i], labels[i], finite[i])
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
            _revive(bank, vectors[i], labels[i], finite[i])


def _move(banks: Sequence['PrototypeBank'], features: Tensor, rows: Tensor,
          moving: Tensor) -> None:
    """Eq. 9 for the prototypes ``rows`` (G, N) of features (G, N, D), of which ``moving`` count."""
    sums, count, first = group_sums(features, rows, moving)
    old = torch.stack([bank.prototypes.index_select(0, row) for bank, row in zip(banks, rows)])
    rate: float | Tensor = 0.0 if banks[0].batch_mean else banks[0].momentum
    if banks[0].momentum_unit == 'epoch' and not banks[0].batch_mean:
        rate = torch.stack([_rate(*each) for each in zip(banks, rows, count)])
    new, means = moved(old, sums, count, rate, banks[0].normalize_mean)
    new = new.gather(1, first.expand_as(new))
    for i, bank in enumerate(banks):
        bank.prototypes.index_copy_(0, rows[i], new[i])
        bank.last_move = (old, new, means, moving, i)


def _rate(bank: 'PrototypeBank', rows: Tensor, count: Tensor) -> Tensor:
    """mu (N, 1) of prototypes (N,) that get ``count`` (N, 1) features, for a momentum per epoch."""
    owner = bank.owner[rows]
    expected = bank.counts[owner].clamp_min(1) / bank.sizes[owner]
    return bank.momentum**(count / expected[:, None])


def _start_unseeded(bank: 'PrototypeBank', features: Tensor, labels: Tensor,
                    valid: Tensor) -> None:
    """Puts all prototypes of a primitive around its first features (N, D), apart by noise."""
    sums, count, first = group_sums(features[None], labels[None], valid[None])
    means = (sums[0] / count[0].clamp_min(1)).index_select(0, first[0, :, 0])
    rows, _ = own_columns(labels, bank.offsets, bank.width)
    fresh = ~bank.seeded[labels] & (count[0, :, 0] > 0)
    old = bank.prototypes[rows]
    places = torch.where(fresh[:, None, None], unit(means[:, None] + JITTER * old), old)
    bank.prototypes.index_copy_(0, rows.flatten(), places.flatten(0, 1))
    bank.seeded.index_copy_(0, labels, bank.seeded[labels] | fresh)


def _revive(bank: 'PrototypeBank', features: Tensor, labels: Tensor, valid: Tensor) -> None:
    """Moves dead prototypes to features (N, D) that are represented badly."""
    row, place, moves = reseeded(bank.prototypes, bank.dead(), features, labels, bank.offsets,
                                 valid, bank.width)
    bank.prototypes.index_copy_(0, row, place)
    bank.usage.index_copy_(0, row, torch.where(moves, bank.fair()[row], bank.usage[row]))
