"""Rows of a table that belong to classes, and reductions inside groups of samples.

Every shape follows from the shapes of the arguments and nothing is read back from the device, so
these functions never make the host wait. Sums inside a group are products with a 0/1 matrix:
unlike ``index_add`` on a GPU (atomic additions in any order) they give the same bits on every
rank.

The transport problems of a batch as one padded block of fixed shape.

A branch with C classes and N features in the batch gives M = min(C, N) problems: one for each
class where there are few classes, else one for the class of each feature (a class that occurs
twice is solved twice, which costs less than finding out). The R rows of a problem are the features
over which transport balances the prototypes, those in the queue or those of the batch;
its columns are the prototypes, as many as the largest K. Masks say which rows and columns take
part, so that no shape depends on the values. Prototypes come before rows in memory: a softmax
or a product over a short last dimension is several times slower.

The result of a solver, and the plan that follows from it for any feature.

Column potentials v and the coupling Z = w Q o L of the rows (L: plan with rows of mass one) give
the row of the plan of a feature, whether or not it is one of the rows of its class's problem:

    L_n = softmax_k(v_k + log Q_nk / eps + (2 kappa / eps) Q_nk [S_n Z]_k).
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

# Tables up to this many rows are multiplied whole; of larger ones only the rows of the batch.
SMALL_TABLE = 512


def unit(vectors: Tensor, eps: float = 1e-12) -> Tensor:
    """Scales rows to norm one; rows of zeros stay zeros and huge ones do not overflow."""
    tiny = torch.finfo(vectors.dtype).tiny
    vectors = vectors / vectors.abs().amax(dim=-1, keepdim=True).clamp_min(tiny)
    return vectors / vectors.norm(dim=-1, keepdim=True).clamp_min(eps)


def finite_rows(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Replaces rows with an infinity or NaN by zeros.

    Args:
        vectors (Tensor): Shape (..., N, D).

    Returns:
        tuple[Tensor, Tensor]: The vectors, and which rows were finite, shape (..., N).
    """
    finite = vectors.isfinite().all(dim=-1)
    return torch.where(finite[..., None], vectors, 0.0), finite


def own_columns(classes: Tensor, offsets: Tensor,
                width: int | None = None) -> tuple[Tensor, Tensor]:
    """Rows of the prototype table that belong to each class.

    Args:
        classes (Tensor): Shape (B,).
        offsets (Tensor): Where each class begins, shape (C + 1,).
        width (int, optional): Largest K, if it is known. Defaults to None, which reads it from
            ``offsets``.

    Returns:
        tuple[Tensor, Tensor]: Rows, shape (B, width), and which of them exist, same
        shape. Beyond a class's K its last row is repeated.
    """
    if width is None:
        width = int(offsets.diff().max())
    first, last = offsets[classes, None], offsets[classes + 1, None]
    rows = first + torch.arange(width, device=classes.device)
    return torch.minimum(rows, last - 1), rows < last


def own_cosines(features: Tensor, labels: Tensor, prototypes: Tensor, offsets: Tensor,
                width: int | None = None) -> tuple[Tensor, Tensor]:
    """Cosines between each feature and the prototypes of its own class.

    Args:
        features (Tensor): Unit-norm features, shape (N, D).
        labels (Tensor): Class of each feature in [0, C), shape (N,).
        prototypes (Tensor): Prototypes of any norm, shape (P, D).
        offsets (Tensor): Where each class begins, shape (C + 1,).
        width (int, optional): Largest K, if it is known. Defaults to None.

    Returns:
        tuple[Tensor, Tensor]: Cosines, -inf beyond a class's K, and the rows of
        ``prototypes`` they belong to, both of shape (N, max K).
    """
    rows, real = own_columns(labels, offsets, width)
    if len(prototypes) <= SMALL_TABLE:
        cosine = (features @ unit(prototypes.to(features.dtype)).T).gather(1, rows)
    else:
        own = unit(prototypes[rows].to(features.dtype))
        cosine = torch.bmm(own, features[:, :, None])[:, :, 0]
    # -inf, not a large negative: a cosine of -1 must still win inside its class.
    return cosine.masked_fill(~real, -torch.inf), rows


def make_offsets(num_prototypes: int | Tensor, total: int, device: torch.device) -> Tensor:
    """First row of each class in the table of ``total`` prototypes, shape (C + 1,).

    Args:
        num_prototypes (int or Tensor): K of all classes, or of each one, shape (C,).
        total (int): Rows of the table.
        device (torch.device): Device of the result.
    """
    if isinstance(num_prototypes, int):
        if num_prototypes < 1 or total % num_prototypes:
            raise ValueError(f'num_prototypes must divide the {total} rows of prototypes, '
                             f'got {num_prototypes}.')
        return torch.arange(0, total + 1, num_prototypes, device=device)
    sizes = num_prototypes.to(device)
    if bool((sizes < 1).any()) or int(sizes.sum()) != total:
        raise ValueError(f'num_prototypes must be positive and sum to the {total} rows of '
                         f'prototypes, got {sizes.tolist()}.')
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def check_labels(labels: Tensor, num_features: int, num_classes: int) -> None:
    """Raises if there is not one label in [0, num_classes) for each feature."""
    if labels.shape != (num_features, ):
        raise ValueError(f'labels must have one entry for each of the {num_features} features, '
                         f'got shape {tuple(labels.shape)}.')
    if num_features and not bool(((labels >= 0) & (labels < num_classes)).all()):
        raise ValueError(f'labels must lie in [0, {num_classes}), got values from '
                         f'{int(labels.min())} to {int(labels.max())}.')


Scope = Literal['class', 'batch']


@dataclass(frozen=True)
class Branches:
    """Inputs of the assignment of G branches (attributes, objects).

    Args:
        features (Tensor): Unit norm, or zero where not finite, shape (G, N, D).
        finite (Tensor): Which of them take part, shape (G, N).
        labels (Tensor): Primitive of each in [0, C), shape (G, N).
        prototypes (Sequence[Tensor]): Prototypes of each branch, unit norm, shapes (P, D).
        offsets (Sequence[Tensor]): Where each primitive begins, shapes (C + 1,).
        width (int): Largest K.
        contexts (Sequence[Tensor], optional): Unit-norm features of each primitive, those of the
            batch among them: transport then goes over these, shapes (C, Q, D).
            Defaults to None, the batch.
        counts (Sequence[Tensor], optional): How many of them exist (the first ones),
            shapes (C,).
        potentials (Sequence[Tensor], optional): Column potentials to start from, shapes (P,).
    """
    features: Tensor
    finite: Tensor
    labels: Tensor
    prototypes: Sequence[Tensor]
    offsets: Sequence[Tensor]
    width: int
    contexts: Sequence[Tensor] | None = None
    counts: Sequence[Tensor] | None = None
    potentials: Sequence[Tensor] | None = None

    @property
    def uniform(self) -> bool:
        """bool: Whether every primitive has ``width`` prototypes."""
        return all(len(table) == self.width * (len(offsets) - 1)
                   for table, offsets in zip(self.prototypes, self.offsets))

    def classes(self) -> Tensor:
        """Class of each problem, shape (G, M); the features' own labels where M = N."""
        num = self.labels.shape[1]
        sizes = [len(offsets) - 1 for offsets in self.offsets]
        if min(sizes) >= num:
            return self.labels
        order = torch.arange(min(max(sizes), num), device=self.labels.device)
        if max(sizes) < num:
            return torch.stack([order.clamp_max(size - 1) for size in sizes])
        return torch.stack([order.clamp_max(size - 1) if size < num else label
                            for size, label in zip(sizes, self.labels)])

    def slots(self) -> Tensor:
        """Problem of each feature inside its branch, where M is not N for all, shape (G, N)."""
        num = self.labels.shape[1]
        order = torch.arange(num, device=self.labels.device)
        return torch.stack([label if len(offsets) - 1 < num else order
                            for offsets, label in zip(self.offsets, self.labels)])

    def columns(self, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the prototype tables (G, M, K) for classes (G, M), and which exist (G, M, K)."""
        if self.uniform:
            columns = classes[:, :, None] * self.width + torch.arange(
                self.width, device=classes.device)
            return columns, columns >= 0
        parts = [own_columns(each, offsets, self.width)
                 for each, offsets in zip(classes, self.offsets)]
        return torch.stack([rows for rows, _ in parts]), torch.stack([real for _, real in parts])

    def rows(self, column: Tensor) -> Tensor:
        """Rows of the prototype tables for a column (G, N) of each feature's own primitive."""
        if self.uniform:
            return self.labels * self.width + column
        return column + torch.stack([offsets[label]
                                     for offsets, label in zip(self.offsets, self.labels)])


@dataclass(frozen=True)
class Spread:
    """Features and the rows of their problems, where a problem serves several features.

    With C the rows, S Z of a feature f is f^T (C^T Z): K products for each problem of the branch
    instead of R.

    Args:
        features (Tensor): Shape (G, N, D).
        context (Tensor): C, shape (B, R, D).
        slot (Tensor): Problem of each feature inside its branch, shape (G, N).
    """
    features: Tensor
    context: Tensor
    slot: Tensor

    def coupled(self, coupling: Tensor) -> Tensor:
        """As :meth:`Problems.coupled`."""
        sums = torch.bmm(coupling, self.context.to(coupling.dtype))
        return _pick(_against_all(self.features.to(coupling.dtype), sums), self.slot)


@dataclass(frozen=True)
class Problems:
    """G branches with M problems each: B = G * M problems of R rows and K columns.

    Attributes:
        cosine (Tensor): Of prototypes and rows, shape (B, K, R).
        similarity (Tensor): S, cosines between rows, shape (B, R, R).
        row_mask (Tensor): Rows that take part, shape (B, R).
        col_mask (Tensor): Prototypes that exist, shape (B, K).
        potential (Tensor): Potentials to start from, shape (B, K), or None.
        columns (Tensor): Rows of the prototype tables, shape (G, M, K).
        classes (Tensor): Class of each problem, shape (G, M).
        problem (Tensor): Problem of each feature, shape (G * N,), or None if B = G * N and
            each has its own.
        own_cosine (Tensor): Of features and prototypes of their class, shape (G * N, K).
        own_similarity (Tensor): Of features and rows of their problem, shape (G * N, R); None
            where ``spread`` says it in fewer operations.
        spread (Spread): Features and rows themselves, or None.
    """
    cosine: Tensor
    similarity: Tensor
    row_mask: Tensor
    col_mask: Tensor
    potential: Tensor | None
    columns: Tensor
    classes: Tensor
    problem: Tensor | None
    own_cosine: Tensor
    own_similarity: Tensor | None
    spread: Spread | None = None

    def of_features(self, values: Tensor) -> Tensor:
        """Takes for each feature the values (G * N, ...) of its problem (B, ...)."""
        return values if self.problem is None else values.index_select(0, self.problem)

    def coupled(self, coupling: Tensor) -> Tensor:
        """S Z of the features, shape (G * N, K), for the coupling Z (B, K, R) of the problems."""
        if self.spread is not None:
            return self.spread.coupled(coupling)
        assert self.own_similarity is not None
        similarity = self.own_similarity.to(coupling.dtype)[:, :, None]
        return torch.bmm(self.of_features(coupling), similarity)[:, :, 0]


def build_problems(branches: Branches, scope: Scope) -> Problems:
    """Lays out the problems of all branches.

    Args:
        branches (Branches): What to assign.
        scope (str): 'class' lets the features of its own class into a problem (Eq. 7-8),
            'batch' all features of the batch (Algorithm 1).
    """
    features, dtype = branches.features, branches.features.dtype
    groups, num = branches.labels.shape
    classes = branches.classes()
    most = classes.shape[1]
    columns, real = branches.columns(classes)
    # With a problem for each feature, in order, nothing needs to be looked up.
    slot = None if classes is branches.labels else branches.slots()
    table = torch.cat([each[rows] for each, rows in zip(branches.prototypes, columns)]).to(dtype)
    spread = None
    if branches.contexts is None or branches.counts is None:
        rows: tuple = _rows_of_batch(features, table, slot)
        row_mask = branches.finite[:, None].expand(groups, most, num)
        if scope == 'class':
            row_mask = row_mask & (branches.labels[:, None] == classes[:, :, None])
        row_mask = row_mask.reshape(-1, num)
    else:
        # index_select copies whole rows: four times as fast as indexing with a tensor.
        context = torch.cat([each.index_select(0, chosen)
                             for each, chosen in zip(branches.contexts, classes)])
        count = torch.cat([each.index_select(0, chosen)
                           for each, chosen in zip(branches.counts, classes)])
        row_mask = torch.arange(context.shape[1], device=count.device) < count[:, None]
        context = context.to(dtype)
        rows = _rows_of_context(features, table, context, slot)
        spread = None if slot is None else Spread(features, context, slot)
    potential = problem = None
    if branches.potentials is not None:
        potential = torch.cat([each[rows] for each, rows in zip(branches.potentials, columns)])
    if slot is not None:
        problem = (slot + most * torch.arange(groups, device=slot.device)[:, None]).flatten()
    return Problems(rows[0], rows[1], row_mask, real.flatten(0, 1), potential, columns, classes,
                    problem, rows[2], rows[3], spread)


def _rows_of_batch(features: Tensor, table: Tensor,
                   slot: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cosines, S, and the features' own cosines and similarities over the batch (G, N, D)."""
    groups, num, _ = features.shape
    most = len(table) // groups
    product = _against_all(features, table)
    similarity = torch.bmm(features, features.transpose(1, 2))
    wide = similarity[:, None].expand(groups, most, num, num).reshape(-1, num, num)
    cosine = product.permute(0, 2, 3, 1).reshape(-1, table.shape[1], num)
    return cosine, wide, _pick(product, slot), similarity.flatten(0, 1)


def _rows_of_context(features: Tensor, table: Tensor, context: Tensor,
                     slot: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The same over the context (B, Q, D) of the problems."""
    across = context.transpose(1, 2)
    cosine, similarity = torch.bmm(table, across), torch.bmm(context, across)
    if slot is None:
        single = features.reshape(-1, features.shape[2], 1)
        return (cosine, similarity, torch.bmm(table, single)[:, :, 0],
                torch.bmm(context, single)[:, :, 0])
    return cosine, similarity, _pick(_against_all(features, table), slot), None


def _against_all(features: Tensor, table: Tensor) -> Tensor:
    """Products of features (G, N, D) with M tables (G * M, K, D) of their branch: (G, N, M, K)."""
    groups, num, dim = features.shape
    product = torch.bmm(features, table.view(groups, -1, dim).transpose(1, 2))
    return product.view(groups, num, -1, table.shape[1])


def _pick(products: Tensor, slot: Tensor | None) -> Tensor:
    """Takes the products (G * N, K) with the problem of each feature from (G, N, M, K)."""
    groups, num, _, columns = products.shape
    if slot is None:
        return products.diagonal(dim1=1, dim2=2).transpose(1, 2).reshape(-1, columns)
    index = slot[:, :, None, None].expand(groups, num, 1, columns)
    return products.gather(2, index).view(-1, columns)


@dataclass(frozen=True)
class Solution:
    """Result of a solver for B problems.

    Attributes:
        potential (Tensor): v, shape (B, K).
        coupling (Tensor): Z, zero on rows that take no part, shape (B, K, R).
        steps (int or Tensor): Steps that were taken, of all or of each, shape (B,).
    """
    potential: Tensor
    coupling: Tensor
    steps: int | Tensor


def plan_rows(cosine: Tensor, coupled: Tensor, potential: Tensor, col_mask: Tensor, kappa: float,
              epsilon: float, temperature: float) -> Tensor:
    """Rows of a plan, each of mass one and zero where there is no prototype.

    Args:
        cosine (Tensor): Cosines to the prototypes, shape (B, K) or (B, K, R).
        coupled (Tensor): S Z, same shape.
        potential (Tensor): v, same shape or one that broadcasts.
        col_mask (Tensor): Prototypes that exist, same shape or one that broadcasts.
        kappa (float): Weight of the structure term.
        epsilon (float): Weight of the entropy.
        temperature (float): Q = softmax(cosine / temperature).
    """
    log_q = torch.log_softmax(cosine.masked_fill(~col_mask, -torch.inf) / temperature, dim=1)
    logits = torch.addcmul(log_q, log_q.exp(), coupled, value=2 * kappa)
    return torch.softmax(logits / epsilon + potential, dim=1)


def feature_plan(problems: Problems, solution: Solution, kappa: float, epsilon: float,
                 temperature: float) -> Tensor:
    """Plan rows of the features, each of mass one, shape (G * N, K)."""
    dtype = solution.potential.dtype
    return plan_rows(problems.own_cosine.to(dtype), problems.coupled(solution.coupling),
                     problems.of_features(solution.potential),
                     problems.of_features(problems.col_mask), kappa, epsilon, temperature)
