"""Local-aware prototype assignment (§3.3, Eq. 7-8): the entry to the solvers.

Which features make up the problem of a class:

- ``scope='class'`` (Eq. 7-8): the features of that class, in the batch and in the context.
- ``scope='batch'`` (Algorithm 1): all features given, of which the class keeps its own rows.

A class takes part in the transport if it has at least as many features as prototypes.
With fewer, equal columns contradict the data (one feature forces the plan 1/K exactly), so it
takes the nearest prototype; so does a class with a single prototype, which leaves no choice.
"""
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .gcg import TransportReport, structure_aware_plan
from .segments import ClassBlocks, check_labels, make_offsets, own_columns, own_cosines, unit

Scope = Literal['class', 'batch']


@dataclass(frozen=True)
class Assignment:
    """Result of :func:`local_aware_assign`.

    Attributes:
        rows (Tensor): Row of ``prototypes`` for each feature, shape (N,).
        plan (Tensor): Plan in the units of Eq. 8: rows sum to one, column k is the k-th
            prototype of the feature's own class, zero beyond its K, shape (N, max K).
            One-hot for features that took the nearest prototype.
        solved (Tensor): True where transport decided, False where the nearest
            prototype did, shape (N,).
        report (TransportReport): How the solver did on the solved classes.
    """
    rows: Tensor
    plan: Tensor
    solved: Tensor
    report: TransportReport


@torch.no_grad()
def local_aware_assign(features: Tensor,
                       labels: Tensor,
                       prototypes: Tensor,
                       num_prototypes: int | Tensor,
                       kappa: float = 1.0,
                       epsilon: float = 0.05,
                       temperature: float = 1.0,
                       scope: Scope = 'class',
                       context: Tensor | None = None,
                       context_labels: Tensor | None = None,
                       max_iter: int = 20,
                       tol: float = 1e-8) -> Assignment:
    """Assigns each feature to a prototype of its own class (Eq. 7-8), all classes at once.

    Runs in float32 (float64 if the features are) whatever autocast says. Vectors are scaled to
    unit norm; any finite input gives a finite plan.

    Args:
        features (Tensor): Features of the batch, shape (N, D).
        labels (Tensor): Primitive of each feature in [0, C), shape (N,).
        prototypes (Tensor): Prototypes of all primitives in order, shape (P, D).
        num_prototypes (int or Tensor): K for all primitives, or one per primitive,
            shape (C,), with sum P.
        kappa (float): Weight of the structure term for a class of total mass one; Eq. 8's
            own units have kappa / N there (see gcg.py). 0 is classical transport.
            Defaults to 1.0.
        epsilon (float): Weight of the entropy. Defaults to 0.05.
        temperature (float): Q = softmax(F P^T / temperature). Defaults to 1.0, the paper.
        scope (str): 'class' or 'batch', see the top of this file. Defaults to 'class'.
        context (Tensor, optional): More features that join the problem but are not
            assigned, shape (M, D).
        context_labels (Tensor, optional): Their primitives, shape (M,).
        max_iter (int): Most conditional-gradient steps. Defaults to 20.
        tol (float): See :func:`structure_aware_plan`. Defaults to 1e-8.

    Returns:
        Assignment: Rows, plan, which were solved, and the report.
    """
    if scope not in ('class', 'batch'):
        raise ValueError(f"assigner.scope must be 'class' or 'batch', got {scope!r}.")
    offsets = make_offsets(num_prototypes, len(prototypes), prototypes.device)
    check_labels(labels, len(features), len(offsets) - 1)
    dtype = torch.promote_types(features.dtype, torch.float32)
    with torch.autocast(features.device.type, enabled=False):
        batch = unit(features.detach().to(dtype))
        everything, all_labels = batch, labels
        if context is not None and context_labels is not None:
            everything = torch.cat([batch, unit(context.detach().to(dtype))])
            all_labels = torch.cat([labels, context_labels])

        cosine, rows = own_cosines(batch, labels, prototypes, offsets)
        column = cosine.argmax(dim=1, keepdim=True)
        plan = torch.zeros_like(cosine).scatter_(1, column, 1.0)
        wanted = _classes_to_solve(labels, all_labels, offsets.diff(), scope)
        solved = wanted[labels]
        report = TransportReport.empty(batch)
        if bool(solved.any()):
            own_plan, report = _solve(everything, all_labels, wanted, int(solved.sum()), scope,
                                      prototypes, offsets, kappa, epsilon, temperature,
                                      max_iter, tol)
            plan[solved] = F.pad(own_plan, (0, plan.shape[1] - own_plan.shape[1]))
            column = plan.argmax(dim=1, keepdim=True)
    return Assignment(rows.gather(1, column)[:, 0], plan, solved, report)


def _classes_to_solve(labels: Tensor, all_labels: Tensor, sizes: Tensor, scope: Scope) -> Tensor:
    """Classes of the batch with a choice and enough features for it, shape (C,)."""
    if scope == 'class':
        available = torch.bincount(all_labels, minlength=len(sizes))
    else:
        available = torch.full_like(sizes, len(all_labels))
    in_batch = torch.zeros_like(sizes, dtype=torch.bool).index_fill_(0, labels, True)
    return in_batch & (sizes > 1) & (available >= sizes)


def _solve(everything: Tensor, all_labels: Tensor, wanted: Tensor, num_rows: int, scope: Scope,
           prototypes: Tensor, offsets: Tensor, kappa: float, epsilon: float, temperature: float,
           max_iter: int, tol: float) -> tuple[Tensor, TransportReport]:
    """Plan rows, each of mass one, of the first ``num_rows`` features of wanted classes."""
    member = wanted[all_labels]
    groups = ClassBlocks.group(all_labels[member])
    if scope == 'class':
        block, row_mask = groups.pad(everything[member]), groups.mask
        slot = groups.slot[:num_rows]
    else:
        block = everything[None]
        row_mask = torch.ones_like(groups.classes[:, None], dtype=torch.bool)
        row_mask = row_mask.expand(-1, len(everything))
        slot = member.nonzero()[:num_rows, 0]
    rows, col_mask = own_columns(groups.classes, offsets)
    table = unit(prototypes[rows].detach().to(block.dtype))
    logits = block @ table.transpose(1, 2) / temperature
    log_q = logits.masked_fill(~col_mask[:, None], -torch.inf).log_softmax(dim=2)
    similarity = block @ block.transpose(1, 2)
    # The arrays are small from here on, and the last steps gain less than float32 resolves.
    wide = torch.float32 if block.device.type == 'mps' else torch.float64
    plan, report = structure_aware_plan(log_q.to(wide), similarity.to(wide), row_mask, col_mask,
                                        kappa, epsilon, max_iter, tol)
    plan = (plan * row_mask.sum(dim=1)[:, None, None]).to(block.dtype)
    return plan[groups.block[:num_rows], slot], replace(report, classes=groups.classes)
