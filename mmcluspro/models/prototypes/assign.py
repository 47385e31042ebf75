"""Assigners, the strategies of Table 4d, and the solver that trains (Eq. 7-8).

Structure-aware transport in a fixed number of steps, without host sync and with static shapes.

The objective is that of exact.py. With rows held exactly by a softmax,

    G_nk = w_n softmax_k(v_k + log Q_nk / eps + (2 kappa / eps) Q_nk [S (Q o G)]_nk),   w = 1/N,

a stationary point is a pair of a plan G and column potentials v for which the columns sum to 1/K.
S is a Gram matrix, so the structure term is concave and no line search is needed (exact.py).
Sinkhorn's steps bring v near, or v starts from where the last solve of the class ended; then each
step linearises at the current plan and takes a Newton step on v, a K x K system per class.
The damping falls with the square of the marginal error: the last steps are plain Newton steps.

At the defaults (kappa 1, eps 0.05, temperature 1) 3 + 10 steps leave a marginal error of 4e-7 and
a plan (rows of mass one) within 3e-6 of the adaptive solver's, in float32; so do 5 Newton steps
from the potentials of the last visit. Sharper or more strongly coupled problems need the
adaptive solver (:func:`suits`).

Which features make up the problem of a class (§3.3):

- ``scope='class'`` (Eq. 7-8): the features of that class, in the context or else in the batch.
- ``scope='batch'`` (Algorithm 1): all features of the batch, of which the class keeps its rows.

A class takes part in the transport if it has at least as many features as prototypes.
With fewer, equal columns contradict the data (one feature forces the plan 1/K exactly), so it
takes the nearest prototype; so does a class with a single prototype, which leaves no choice.
Features that are not finite take no part and get row -1. Where the plan has ties
(identical features), the nearest of the tied prototypes wins.
"""
from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mmcluspro.registry import MODELS

from .exact import TransportReport, exact_plan, make_report
from .problems import (
    Branches,
    Problems,
    Scope,
    Solution,
    build_problems,
    check_labels,
    feature_plan,
    finite_rows,
    make_offsets,
    own_cosines,
    unit,
)

# From nothing: Sinkhorn and Newton steps. From the potentials of the last visit: Newton steps.
SINKHORN_STEPS, COLD_STEPS, WARM_STEPS = 3, 10, 5
LONGEST_STEP, DAMPING = 4.0, 5.0
WRITTEN_OUT = 8  # largest K whose systems are eliminated row by row in a compiled step


def suits(kappa: float, epsilon: float, temperature: float) -> bool:
    """Whether the fixed number of steps is enough for these weights.

    Logits differ by at most ``2 / (temperature * epsilon)``, and the structure term adds
    at most ``2 * kappa / epsilon``.
    """
    return 2 / (temperature * epsilon) <= 50 and kappa / epsilon <= 25


def fixed_plan(problems: Problems,
               kappa: float = 1.0,
               epsilon: float = 0.05,
               temperature: float = 1.0,
               steps: int | None = None) -> Solution:
    """Solves all problems together.

    Args:
        problems (Problems): See :func:`~.problems.build_problems`.
        kappa (float): Weight of the structure term for a class of total mass one.
        epsilon (float): Weight of the entropy.
        temperature (float): Q = softmax(cosine / temperature).
        steps (int, optional): Newton steps. Defaults to None: 10 from nothing, 5 from
            potentials.
    """
    col_mask = problems.col_mask[:, :, None]
    log_q = problems.cosine.masked_fill(~col_mask, -torch.inf)
    log_q = torch.log_softmax(log_q / temperature, dim=1)
    q, base = log_q.exp(), log_q / epsilon
    mass = problems.row_mask.to(q.dtype)
    mass = (mass / mass.sum(dim=1, keepdim=True).clamp_min(1))[:, None]
    share = col_mask.to(q.dtype)
    share = share / share.sum(dim=1, keepdim=True)
    eye = torch.eye(q.shape[1], dtype=q.dtype, device=q.device)
    # The potentials matter up to a constant: the rank-one term fixes it. The other one keeps
    # the rows of prototypes that do not exist from making the system singular.
    anchor = torch.addcmul((share == 0) * eye, share, share.transpose(1, 2), value=0.1)
    weighted = mass * q

    def linearised(plan: Tensor) -> Tensor:
        if not kappa:
            return base
        # S is symmetric, so it may stand on the right.
        return torch.addcmul(base, q, torch.bmm(weighted * plan, problems.similarity),
                             value=2 * kappa / epsilon)

    if problems.potential is None:
        potential, plan = _sinkhorn(linearised(share), mass, share)
        steps = steps or COLD_STEPS
    else:
        potential = problems.potential.to(q.dtype)[:, :, None]
        plan = torch.softmax(base + potential, dim=1)
        steps = steps or WARM_STEPS
    for _ in range(steps):
        logits = linearised(plan)
        plan = torch.softmax(logits + potential, dim=1)
        covariance = torch.bmm(mass * plan, plan.transpose(1, 2))
        sums = covariance.sum(dim=2, keepdim=True)  # the plan of a feature sums to one
        gradient = share - sums
        diagonal = torch.addcmul(sums, gradient, gradient, value=DAMPING)
        hessian = torch.addcmul(anchor, eye, diagonal) - covariance
        potential = potential + solved(hessian, gradient).clamp(-LONGEST_STEP, LONGEST_STEP)
        plan = torch.softmax(logits + potential, dim=1)
    return Solution(potential[:, :, 0], weighted * plan, steps)


def solved(matrix: Tensor, vector: Tensor) -> Tensor:
    """Solutions (B, K, 1) of B symmetric positive definite systems (B, K, K), without a wait.

    A compiler fuses elimination that is written out with what stands around it, and can capture
    it as a CUDA graph; as single calls it would cost more than LAPACK's.
    """
    size = matrix.shape[1]
    if not torch.compiler.is_compiling() or size > WRITTEN_OUT:
        return torch.linalg.solve_ex(matrix, vector)[0]  # never raises, so it never waits
    rows = list(torch.cat([matrix, vector], dim=2).unbind(1))  # (B, K + 1) each
    for i in range(size):
        rows[i] = rows[i] / rows[i][:, i:i + 1]
        rows = [row if j == i else row - row[:, i:i + 1] * rows[i] for j, row in enumerate(rows)]
    return torch.stack([row[:, size:] for row in rows], dim=1)


def _sinkhorn(logits: Tensor, mass: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Potentials (B, K, 1) and plan (B, K, R) after Sinkhorn's steps.

    Args:
        logits (Tensor): Shape (B, K, R).
        mass (Tensor): Shape (B, 1, R).
        share (Tensor): Shape (B, K, 1).
    """
    tiny = torch.finfo(logits.dtype).tiny
    # Where there is no prototype the quotient is one and the potential stays at zero.
    target, potential, plan = share.clamp_min(tiny), torch.zeros_like(share), logits
    for _ in range(SINKHORN_STEPS):
        plan = torch.softmax(logits + potential, dim=1)
        sums = torch.bmm(plan, mass.transpose(1, 2)).clamp_min(tiny)
        potential = potential + (target / sums).log()
    return potential, plan


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
        chosen, first = [], 0
        for layout, solved in zip(self.problems.layouts, self.solved):
            own = torch.arange(len(solved), device=solved.device)
            used = (own if layout.slot is None else layout.slot)[solved]
            # A class may have several problems, all equal: report the last.
            classes = layout.classes[used]
            order = torch.zeros(int(classes.max()) + 1 if len(classes) else 0, dtype=torch.long,
                                device=used.device).index_put_((classes, ), first + used)
            chosen.append(order[classes.unique()])
            first += len(layout.classes)
        picked = torch.cat(chosen)
        every = torch.cat([layout.classes for layout in self.problems.layouts])
        return whole.of(picked, every[picked])


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


def nearest_prototype(features: Tensor, labels: Tensor, prototypes: Tensor,
                      offsets: Tensor) -> Tensor:
    """Assigns each feature to the closest prototype of its own primitive.

    Args:
        features (Tensor): Unit-norm features, shape (N, D).
        labels (Tensor): Primitive of each feature in [0, C), shape (N,).
        prototypes (Tensor): All prototypes, unit norm, shape (P, D).
        offsets (Tensor): ``prototypes[offsets[c]:offsets[c + 1]]`` belong to
            primitive ``c``, shape (C + 1,).

    Returns:
        Tensor: Row of ``prototypes`` for each feature, shape (N,).
    """
    cosine, rows = own_cosines(features, labels, prototypes, offsets)
    return rows.gather(1, cosine.argmax(dim=1, keepdim=True))[:, 0]


@MODELS.register_module()
class CosineAssigner:
    """Assigner without transport: no balance, no coherence ("Cosine Similarity" of Table 4d).

    Args:
        min_similarity (float): Features whose best cosine is below this stay
            unassigned (-1). Defaults to -1.0, which assigns everything.
    """

    def __init__(self, min_similarity: float = -1.0) -> None:
        if not -1.0 <= min_similarity <= 1.0:
            raise ValueError('assigner.min_similarity is a cosine and must lie in [-1, 1], '
                             f'got {min_similarity}.')
        self.min_similarity = min_similarity

    @torch.no_grad()
    def __call__(self, features: Tensor, labels: Tensor, prototypes: Tensor, offsets: Tensor,
                 context: Tensor | None = None, context_count: Tensor | None = None,
                 width: int | None = None) -> Tensor:
        """Rows of ``prototypes``, shape (N,); see :func:`nearest_prototype`. Ignores context."""
        with torch.autocast(features.device.type, enabled=False):
            features, finite = finite_rows(features.float())
            cosine, rows = own_cosines(unit(features), labels, prototypes, offsets, width)
        best, column = cosine.max(dim=1, keepdim=True)
        # Rounding must not leave an opposite feature below the default of -1.
        far = (best < self.min_similarity - 1e-5) | ~finite[:, None]
        return rows.gather(1, column).masked_fill(far, -1)[:, 0]


@MODELS.register_module()
class LocalAwareOT:
    """Local-aware prototype assignment, the paper's own (Eq. 7-8, "Ours" of Table 4d).

    Args:
        kappa (float): Weight of the structure term for a class of total mass one.
            Defaults to 1.0.
        epsilon (float): Weight of the entropy, which the paper does not give.
            Defaults to 0.05.
        temperature (float): Q = softmax(F P^T / temperature). Defaults to 1.0, the paper.
        scope (str): 'class' solves over a primitive's own features, of the batch and the bank's
            queue (Eq. 7-8); 'batch' over all features of the batch (Algorithm 1).
            Defaults to 'class'.
        solver (str): 'fixed' takes the same number of steps whatever the data and never makes
            the host wait for the device; 'exact' stops by its own progress; 'auto' takes
            'fixed' where the weights are as mild as the paper's. Defaults to 'auto'.
        steps (int, optional): Newton steps of 'fixed'. Defaults to None: 10 from nothing, 5 from
            the potentials that the bank keeps of the last visit.
        max_iter (int): Most conditional-gradient steps of 'exact'. Defaults to 20.
        tol (float): Fall of the objective at which a class stops in 'exact'. Defaults to 1e-8.
    """

    def __init__(self,
                 kappa: float = 1.0,
                 epsilon: float = 0.05,
                 temperature: float = 1.0,
                 scope: Scope = 'class',
                 solver: Solver = 'auto',
                 steps: int | None = None,
                 max_iter: int = 20,
                 tol: float = 1e-8) -> None:
        if not (math.isfinite(kappa) and kappa >= 0):
            raise ValueError(f'assigner.kappa must be at least 0, got {kappa}; '
                             '0 is classical transport.')
        # Beyond these, cost / epsilon leaves the range in which float32 resolves a plan.
        if not 1e-4 <= epsilon <= 1e4:
            raise ValueError(f'assigner.epsilon must lie in [1e-4, 1e4], got {epsilon}.')
        if not 1e-3 <= temperature <= 1e4:
            raise ValueError(f'assigner.temperature must lie in [1e-3, 1e4], got {temperature}.')
        if scope not in ('class', 'batch'):
            raise ValueError(f"assigner.scope must be 'class' or 'batch', got {scope!r}.")
        if solver not in ('auto', 'fixed', 'exact'):
            raise ValueError("assigner.solver must be 'auto', 'fixed' or 'exact', "
                             f'got {solver!r}.')
        for name, value in (('steps', steps), ('max_iter', max_iter)):
            if value is not None and value < 1:
                raise ValueError(f'assigner.{name} must be at least 1, got {value}.')
        self.weights = Weights(kappa, epsilon, temperature, scope, solver, steps, max_iter, tol)
        self.last: Solved | None = None

    @property
    def queue_size(self) -> int:
        """int: Features per primitive that the problem should get beyond those of the batch."""
        return 64 if self.weights.scope == 'class' else 0

    @property
    def report(self) -> TransportReport | None:
        """TransportReport: How the last solve went; asking makes the host wait."""
        return None if self.last is None else self.last.report(self.weights)

    def __call__(self, features: Tensor, labels: Tensor, prototypes: Tensor, offsets: Tensor,
                 context: Tensor | None = None, context_count: Tensor | None = None,
                 width: int | None = None) -> Tensor:
        """Rows of ``prototypes``, -1 for features that are not finite, shape (N,).

        Args:
            features (Tensor): Shape (N, D).
            labels (Tensor): Primitive of each, shape (N,).
            prototypes (Tensor): Shape (P, D).
            offsets (Tensor): Where each primitive begins, shape (C + 1,).
            context (Tensor, optional): The queue, over which transport goes, shape (C, Q, D).
            context_count (Tensor, optional): How much of it exists, shape (C,).
            width (int, optional): Largest K, if it is known without asking the device.
        """
        width = int(offsets.diff().max()) if width is None else width
        return self.assign(one_branch(features, labels, prototypes, offsets, width, context,
                                      context_count)).rows[0]

    def assign(self, branches: Branches) -> Solved:
        """Assigns all branches in one solve; the result stays in ``self.last``."""
        self.last = assign_branches(branches, self.weights)
        return self.last

    def warn_if_unconverged(self) -> None:
        """Warns if more than a tenth of the last problems did not converge; waits for the device.

        A few are normal: the queue of a primitive may have just begun to fill. Its assignment then
        has a larger marginal error, and the next step continues from there.
        """
        report = self.report
        if report is None:
            return
        classes = report.classes[~report.converged]
        if len(classes) <= 0.1 * len(report.classes):
            return
        field = 'steps' if self.weights.fixed else 'max_iter'
        warnings.warn(
            f'{type(self).__name__} did not converge for {len(classes)} of '
            f'{len(report.classes)} primitives (first: {classes[:5].tolist()}, marginal error '
            f'{float(report.marginal_error.max()):.1e}, first-order gap '
            f'{float(report.gap.max()):.1e}). Raise assigner.epsilon or assigner.{field}.',
            stacklevel=3)


@MODELS.register_module()
class ClassicalOT(LocalAwareOT):
    """Entropic transport without the structure term ("Classical OT" of Table 4d, kappa = 0).

    Args:
        **kwargs: Fields of :class:`LocalAwareOT` other than ``kappa``.
    """

    def __init__(self, **kwargs) -> None:
        if 'kappa' in kwargs:
            raise ValueError('ClassicalOT has no assigner.kappa (it is 0), '
                             f"got {kwargs['kappa']}; use LocalAwareOT.")
        super().__init__(kappa=0.0, **kwargs)
