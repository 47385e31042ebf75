"""Local-aware prototype assignment (§3.3, Eq. 7-8): the entry to the solvers.

Which features make up the problem of a class:

- ``scope='class'`` (Eq. 7-8): the features of that class, in the context or else in the batch.
- ``scope='batch'`` (Algorithm 1): all features of the batch, of which the class keeps its rows.

A class takes part in the transport if it has at least as many features as prototypes.
With fewer, equal columns contradict the data (one feature forces the plan 1/K exactly), so it
takes the nearest prototype; so does a class with a single prototype, which leaves no choice.
Features that are not finite take no part and get row -1. Where the plan has ties
(identical features), the nearest of the tied prototypes wins.
"""
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .fixed import fixed_plan, suits
from .gcg import exact_plan
from .problems import Branches, Problems, Scope, build_problems
from .report import TransportReport, make_report
from .segments import check_labels, finite_rows, make_offsets, unit
from .solution import Solution, feature_plan

Solver = Literal['auto', 'fixed', 'exact']
# Entries of a plan (rows of mass one) this close to the largest count as equal to it.
TIE = 1e-4


@dataclass(frozen=True)
class Weights:
    """Settings of the solvers, see :class:`~.assigners.LocalAwareOT`."""
    kappa: float = 1.0
    epsilon: float = 0.05
    temperature: float = 1.0
    scope: Scope = 'class'
    solver: Solver = 'auto'
    steps: int | None = None
    max_iter: int = 20
    tol: float = 1e-8

    @property
    def fixed(self) -> bool:
        """bool: Whether the solver with a fixed number of steps is used."""
        if self.solver == 'auto':
            return suits(self.kappa, self.epsilon, self.temperature)
        return self.solver == 'fixed'

    @property
    def energy(self) -> tuple[float, float, float]:
        """tuple: kappa, epsilon, temperature."""
        return self.kappa, self.epsilon, self.temperature


@dataclass(frozen=True)
class Solved:
    """Assignment of G branches with N features each.

    Attributes:
        rows (Tensor): Row of its branch's prototypes for each feature, -1 if it is not finite,
            shape (G, N).
        solved (Tensor): True where transport decided, False where the nearest
            prototype did, shape (G, N).
        column (Tensor): Prototype of each feature, counted inside its class, shape (G * N,).
        plan (Tensor): Plan rows of the features, meaningless where not solved, (G * N, K).
        problems (Problems): What was solved.
        solution (Solution): Potentials and coupling.
    """
    rows: Tensor
    solved: Tensor
    column: Tensor
    plan: Tensor
    problems: Problems
    solution: Solution

    def report(self, weights: Weights) -> TransportReport:
        """How the solver did on the classes that transport decided; waits for the device."""
        whole = make_report(self.problems, self.solution, *weights.energy)
        groups, most = self.problems.classes.shape
        problem = self.problems.of_features(
            torch.arange(groups * most, device=whole.classes.device)).view(groups, -1)
        chosen = []
        for branch in range(groups):
            used = problem[branch][self.solved[branch]]
            classes = self.problems.classes.flatten()[used]
            # A class may have several problems, all equal: report the last.
            order = torch.zeros(int(classes.max()) + 1 if len(classes) else 0, dtype=torch.long,
                                device=used.device).index_put_((classes, ), used)
            chosen.append(order[classes.unique()])
        picked = torch.cat(chosen)
        return whole.of(picked, self.problems.classes.flatten()[picked])


@torch.no_grad()
def assign_branches(branches: Branches, weights: Weights) -> Solved:
    """Assigns the features of all branches to prototypes, in one solve.

    Runs in the features' precision whatever autocast says. With the fixed solver nothing makes
    the host wait and all shapes are static.

    Args:
        branches (Branches): Features, prototypes and context.
        weights (Weights): What to solve, and how.
    """
    with torch.autocast(branches.features.device.type, enabled=False):
        problems = build_problems(branches, weights.scope)
        size = problems.col_mask.sum(dim=1)
        enough = (size > 1) & (problems.row_mask.sum(dim=1) >= size)
        if weights.fixed:
            solution = fixed_plan(problems, *weights.energy, weights.steps)
        else:
            solution = exact_plan(problems, enough, *weights.energy, weights.max_iter, weights.tol)
        solved = problems.of_features(enough)
        plan = feature_plan(problems, solution, *weights.energy)
        tied = (plan >= plan.amax(dim=1, keepdim=True) - TIE) | ~solved[:, None]
        allowed = tied & problems.of_features(problems.col_mask)
        column = problems.own_cosine.masked_fill(~allowed, -torch.inf).argmax(dim=1)
    shape = branches.finite.shape
    rows = torch.where(branches.finite, branches.rows(column.view(shape)), -1)
    return Solved(rows, solved.view(shape) & branches.finite, column, plan, problems, solution)


@dataclass(frozen=True)
class Assignment:
    """Result of :func:`local_aware_assign`.

    Attributes:
        rows (Tensor): Row of ``prototypes`` for each feature, -1 if it is not finite, shape (N,).
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


def local_aware_assign(features: Tensor,
                       labels: Tensor,
                       prototypes: Tensor,
                       num_prototypes: int | Tensor,
                       context: Tensor | None = None,
                       context_count: Tensor | None = None,
                       **weights) -> Assignment:
    """Assigns each feature of one branch (Eq. 7-8), and says how the solver did.

    For a look at single batches: it checks its arguments and waits for the device. Training goes
    through :func:`assign_branches`.

    Args:
        features (Tensor): Features of the batch, shape (N, D).
        labels (Tensor): Primitive of each feature in [0, C), shape (N,).
        prototypes (Tensor): Prototypes of all primitives in order, shape (P, D).
        num_prototypes (int or Tensor): K for all primitives, or one per primitive,
            shape (C,), with sum P.
        context (Tensor, optional): Features of each primitive, over which transport then goes
            instead of the batch, shape (C, Q, D).
        context_count (Tensor, optional): How many of them exist, the first ones, shape (C,).
            Defaults to all.
        **weights: Fields of :class:`~.assigners.LocalAwareOT`.

    Returns:
        Assignment: Rows, plan, which were solved, and the report.
    """
    chosen = Weights(**weights)
    if chosen.scope not in ('class', 'batch'):
        raise ValueError(f"assigner.scope must be 'class' or 'batch', got {chosen.scope!r}.")
    offsets = make_offsets(num_prototypes, len(prototypes), prototypes.device)
    check_labels(labels, len(features), len(offsets) - 1)
    width = int(offsets.diff().max())
    if not len(labels):
        none = torch.zeros(0, width, device=labels.device)
        return Assignment(labels.clone(), none, labels.bool(), TransportReport.empty(none))
    branches = one_branch(features, labels, prototypes, offsets, width, context, context_count)
    result = assign_branches(branches, chosen)
    solved = result.solved[0]
    nearest = torch.zeros_like(result.plan).scatter_(1, result.column[:, None], 1.0)
    plan = torch.where(solved[:, None], result.plan, nearest).to(branches.features.dtype)
    return Assignment(result.rows[0], plan, solved, result.report(chosen))


def one_branch(features: Tensor, labels: Tensor, prototypes: Tensor, offsets: Tensor, width: int,
               context: Tensor | None = None, count: Tensor | None = None) -> Branches:
    """A branch by itself, from vectors of any norm; float32, or float64 if the features are."""
    dtype = torch.promote_types(features.dtype, torch.float32)
    vectors, finite = finite_rows(features.detach().to(dtype))
    if context is not None:
        context = unit(context.detach().to(dtype))
        if count is None:
            count = torch.full_like(offsets[1:], context.shape[1])
    return Branches(unit(vectors)[None], finite[None], labels[None],
                    [unit(prototypes.detach().to(dtype))], [offsets], width,
                    None if context is None else [context], None if count is None else [count])
