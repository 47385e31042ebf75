"""Rows of a table that belong to classes, and reductions inside groups of samples.

Every shape follows from the shapes of the arguments and nothing is read back from the device, so
these functions never make the host wait. Sums inside a group are products with a 0/1 matrix:
unlike ``index_add`` on a GPU (atomic additions in any order) they give the same bits on every
rank.

The transport problems of a batch as one padded block of fixed shape.

A branch with C classes and N features in the batch gives M = min(C, N) problems: one for each
class where there are few classes, else one for the class of each feature (a class that occurs
twice is solved twice, which costs less than finding out). The tables and queues of few classes are
read where they are, without a copy. The R rows of a problem are the features
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

    def columns(self, branch: int, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of a branch's prototypes (M, K) of classes (M,), and which of them exist."""
        if self.uniform(branch):
            columns = classes[:, None] * self.width + torch.arange(self.width,
                                                                   device=classes.device)
            return columns, torch.ones_like(columns, dtype=torch.bool)
        return own_columns(classes, self.offsets[branch], self.width)

    def uniform(self, branch: int) -> bool:
        """Whether every primitive of a branch has ``width`` prototypes."""
        return len(self.prototypes[branch]) == self.width * (len(self.offsets[branch]) - 1)

    def rows(self, column: Tensor) -> Tensor:
        """Rows of the prototype tables for a column (G, N) of each feature's own primitive."""
        return torch.stack([
            label * self.width + each if self.uniform(branch) else offsets[label] + each
            for branch, (each, label, offsets) in enumerate(
                zip(column, self.labels, self.offsets))])


@dataclass(frozen=True)
class Layout:
    """The M problems of one branch, and which of them its N features belong to.

    Args:
        classes (Tensor): Class of each problem, shape (M,).
        columns (Tensor): Its rows of the prototype table, shape (M, K).
        col_mask (Tensor): Which of them exist, shape (M, K).
        row_mask (Tensor): Rows that take part, shape (M, R).
        cosine (Tensor): Of prototypes and rows, shape (M, K, R).
        similarity (Tensor): Of rows and rows, shape (M, R, R).
        own_cosine (Tensor): Of features and prototypes of their class, shape (N, K).
        own_similarity (Tensor): Of features and rows of their problem, shape (N, R); None where
            ``context`` says it in fewer operations.
        slot (Tensor): Problem of each feature, shape (N,); None if M = N and each has its own.
        features (Tensor): Shape (N, D).
        context (Tensor): The rows themselves, shape (M, R, D); None where rows are the batch.
    """
    classes: Tensor
    columns: Tensor
    col_mask: Tensor
    row_mask: Tensor
    cosine: Tensor
    similarity: Tensor
    own_cosine: Tensor
    own_similarity: Tensor | None
    slot: Tensor | None
    features: Tensor
    context: Tensor | None

    def coupled(self, coupling: Tensor) -> Tensor:
        """S Z of the features, shape (N, K), for the coupling Z (M, K, R) of the problems."""
        if self.own_similarity is None:
            # With C the rows, S Z of a feature f is f^T (C^T Z): K products for each problem
            # of the branch instead of R.
            assert self.context is not None and self.slot is not None
            sums = torch.bmm(coupling, self.context.to(coupling.dtype))
            return _pick(self.features.to(coupling.dtype), sums, self.slot)
        own = coupling if self.slot is None else coupling.index_select(0, self.slot)
        return torch.bmm(own, self.own_similarity.to(coupling.dtype)[:, :, None])[:, :, 0]


@dataclass(frozen=True)
class Problems:
    """B problems of R rows and K columns, those of G branches one after the other.

    Attributes:
        layouts (tuple[Layout, ...]): The problems by branch.
        cosine (Tensor): Of prototypes and rows, shape (B, K, R).
        similarity (Tensor): S, cosines between rows, shape (B, R, R).
        row_mask (Tensor): Rows that take part, shape (B, R).
        col_mask (Tensor): Prototypes that exist, shape (B, K).
        own_cosine (Tensor): Of features and prototypes of their class, shape (G * N, K).
        potential (Tensor): Potentials to start from, shape (B, K), or None.
    """
    layouts: tuple[Layout, ...]
    cosine: Tensor
    similarity: Tensor
    row_mask: Tensor
    col_mask: Tensor
    own_cosine: Tensor
    potential: Tensor | None = None

    def by_branch(self, values: Tensor) -> Sequence[Tensor]:
        """Divides the values (B, ...) of all problems."""
        return values.split([len(layout.classes) for layout in self.layouts])

    def of_features(self, values: Tensor) -> Tensor:
        """Takes for each feature the values (G * N, ...) of its problem (B, ...)."""
        if all(layout.slot is None for layout in self.layouts):
            return values
        return _joined([each if layout.slot is None else each.index_select(0, layout.slot)
                        for layout, each in zip(self.layouts, self.by_branch(values))])

    def coupled(self, coupling: Tensor) -> Tensor:
        """S Z of the features, shape (G * N, K), for the coupling Z (B, K, R) of the problems."""
        return _joined([layout.coupled(each) for layout, each in
                        zip(self.layouts, self.by_branch(coupling))])


def build_problems(branches: Branches, scope: Scope) -> Problems:
    """Lays out the problems of all branches.

    Args:
        branches (Branches): What to assign.
        scope (str): 'class' lets the features of its own class into a problem (Eq. 7-8),
            'batch' all features of the batch (Algorithm 1).
    """
    layouts = tuple(_lay_out(branches, branch, scope) for branch in range(len(branches.labels)))
    potential = None
    if branches.potentials is not None:
        potential = _joined([each[layout.columns]
                             for each, layout in zip(branches.potentials, layouts)])
    return Problems(
        layouts,
        _joined([layout.cosine for layout in layouts]),
        _joined([layout.similarity for layout in layouts]),
        _joined([layout.row_mask for layout in layouts]),
        _joined([layout.col_mask for layout in layouts]),
        _joined([layout.own_cosine for layout in layouts]), potential)


def _lay_out(branches: Branches, branch: int, scope: Scope) -> Layout:
    features, labels = branches.features[branch], branches.labels[branch]
    num_classes, num = len(branches.offsets[branch]) - 1, len(labels)
    every = num_classes < num  # a problem for each class, else one for each feature
    classes = torch.arange(num_classes, device=labels.device) if every else labels
    slot = labels if every else None
    columns, col_mask = branches.columns(branch, classes)
    prototypes = branches.prototypes[branch].to(features.dtype)
    if every and branches.uniform(branch):  # the table as it is, without a copy
        table = prototypes.view(num_classes, branches.width, -1)
    else:
        table = prototypes[columns]
    own_cosine = torch.bmm(table, features[:, :, None])[:, :, 0] if slot is None else _pick(
        features, table, slot)
    if branches.contexts is None or branches.counts is None:
        product = features @ table.flatten(0, 1).T
        cosine = product.view(num, *columns.shape).permute(1, 2, 0)
        own = features @ features.T
        row_mask = branches.finite[branch].expand(len(classes), num)
        if scope == 'class':
            row_mask = row_mask & (labels == classes[:, None])
        return Layout(classes, columns, col_mask, row_mask, cosine,
                      own.expand(len(classes), num, num), own_cosine, own, slot, features, None)
    context, count = branches.contexts[branch].to(features.dtype), branches.counts[branch]
    if slot is None:
        # index_select copies whole rows: four times as fast as indexing with a tensor.
        context, count = context.index_select(0, classes), count.index_select(0, classes)
    across = context.transpose(1, 2)
    row_mask = torch.arange(context.shape[1], device=count.device) < count[:, None]
    similar = torch.bmm(context, features[:, :, None])[:, :, 0] if slot is None else None
    return Layout(classes, columns, col_mask, row_mask, torch.bmm(table, across),
                  torch.bmm(context, across), own_cosine, similar, slot, features, context)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _pick(features: Tensor, tables: Tensor, slot: Tensor) -> Tensor:
    """Products of features (N, D) and those of M tables (M, K, D) that ``slot`` names, (N, K)."""
    product = (features @ tables.flatten(0, 1).T).view(len(features), *tables.shape[:2])
    return product.gather(1, slot[:, None, None].expand(-1, 1, tables.shape[1]))[:, 0]


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
