"""Entropic optimal transport with balanced columns, for many classes at once.

For each class with N features, K prototypes and a cost M (N x K),

    min_G  <M, G> + eps * sum_nk G_nk log G_nk
    with   G 1 = 1/N,   G^T 1 = 1/K,   G >= 0,

the linear part of Eq. 7 on the polytope of Eq. 8. Total mass is one here; the plan of
Eq. 8, whose rows sum to one, is ``L^T = N * G`` (see below for what this means for kappa).

Only the column potential is a variable: with ``G_nk = softmax_k(v_k - M_nk / eps) / N``
the rows are exact, and v maximises the concave function

    phi(v) = sum_k v_k / K - 1/N sum_n logsumexp_k(v_k - M_nk / eps).

Sinkhorn's steps [1]_ come first; classes with a sharp cost, where Sinkhorn needs thousands
of steps, are finished by damped Newton steps on phi (K x K systems), annealed in epsilon.

.. [1] Cuturi, Sinkhorn distances: lightspeed computation of optimal transport, 2013.

How a solver did on the problems of a batch.

Structure-aware optimal transport (Eq. 7-8) by generalised conditional gradient.

The adaptive solver: it looks at its own progress (which makes the host wait) and copes with any
weights. Training uses that of assign.py where the weights allow it; this one is its oracle.

For each class with N features, K prototypes, similarity Q = softmax_k(F P^T / temperature)
(N x K) and cosines S = F F^T (N x N),

    min_G  F(G) = <M, G> + eps * sum G log G - kappa * <S, (Q o G)(Q o G)^T>,   M = -log Q,
    with   G 1 = 1/N,   G^T 1 = 1/K,   G >= 0.

**Mass.** Here a class has total mass one, as in CSOT [1]_, from which the paper takes
kappa = 1. Eq. 8 gives each *feature* mass one: L^T = N G. Written in L, N * F(G) is

    <M, L^T> + eps * sum L log L - (kappa / N) * <S, (Q o L^T)(Q o L^T)^T> - eps * N log N,

so the same problem in Eq. 8's units has weight kappa / N on the structure term. With Eq. 8 read
to the letter that term grows with the square of the class's size and the others linearly;
with mass one, kappa means the same for any N.

**Solver.** From G = 1/(NK): linearise the structure term, M_i = M - 2 kappa (S (Q o G)) o Q; solve
the entropic problem with cost M_i (transport.py); move towards its solution with an Armijo
line search per class. S is a Gram matrix, so the structure term is concave and the full step
is taken; the search matters for other similarities. The problem is not convex: what is
found is a stationary point, whose first-order gap is reported.

.. [1] Chang et al., CSOT: curriculum and structure-aware optimal transport for learning with
   noisy labels, 2023; Rakotomamonjy et al., Generalized conditional gradient, 2015.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from .problems import Problems, Solution, plan_rows


class EntropicPlan(NamedTuple):
    """Solution of the entropic problem of B classes.

    Attributes:
        plan (Tensor): G, total mass one per class, shape (B, N, K).
        potential (Tensor): v, to start the next solve from, shape (B, 1, K).
        marginal_error (Tensor): Largest ``|sum_n G_nk - 1/K|``, shape (B,).
        iterations (int): Steps of the slowest class.
    """
    plan: Tensor
    potential: Tensor
    marginal_error: Tensor
    iterations: int


def entropic_plan(cost: Tensor,
                  row_mask: Tensor,
                  col_mask: Tensor,
                  epsilon: float,
                  potential: Tensor | None = None,
                  sinkhorn_steps: int = 8,
                  newton_steps: int = 100,
                  tol: float = 1e-12) -> EntropicPlan:
    """Solves the entropic problem of B classes together, in the log domain.

    Args:
        cost (Tensor): M, finite, shape (B, N, K).
        row_mask (Tensor): False on padded features, shape (B, N).
        col_mask (Tensor): False on padded prototypes, shape (B, K).
        epsilon (float): Weight of the entropy.
        potential (Tensor, optional): v to start from, shape (B, 1, K). Defaults to zeros.
        sinkhorn_steps (int): Most Sinkhorn steps. Defaults to 8.
        newton_steps (int): Most Newton steps after them, at each level of annealing.
            Defaults to 100.
        tol (float): Marginal error at which to stop, raised to what the dtype resolves. A sharp
            plan is ill-conditioned: an error of 1e-5 here can be 1e-2 in the plan.
            Defaults to 1e-12.

    Returns:
        EntropicPlan: Plan, potential, marginal error and number of steps. Rows hold to
        rounding; a marginal error above ``tol`` says that the columns did not converge.
    """
    tol = max(tol, 8 * torch.finfo(cost.dtype).eps)
    columns = col_mask[:, None, :]
    logits = (-cost / epsilon).masked_fill(~columns, -torch.inf)
    logits = logits - logits.amax(dim=2, keepdim=True)
    mass = row_mask.to(cost.dtype) / row_mask.sum(dim=1, keepdim=True)
    log_mass = mass.log()[:, :, None]
    share = columns.to(cost.dtype) / columns.sum(dim=2, keepdim=True)
    log_share = share.log()
    warm = potential is not None
    if potential is None:
        potential = cost.new_zeros(share.shape)

    steps = 0
    while True:
        log_plan = torch.log_softmax(logits + potential, dim=2) + log_mass
        log_columns = torch.logsumexp(log_plan, dim=1, keepdim=True)
        error = (log_columns.exp() - share).abs().amax(dim=2)
        if steps == sinkhorn_steps or not bool((error > tol).any()):
            break
        potential = torch.where(columns, potential + log_share - log_columns, 0.0)
        steps += 1
    hard = (error > tol).flatten().nonzero()[:, 0]
    if len(hard):
        solution = _annealed_newton(logits[hard], log_mass[hard], share[hard], potential[hard],
                                    newton_steps, tol, warm)
        log_plan = log_plan.index_copy(0, hard, solution[0])
        potential = potential.index_copy(0, hard, solution[1])
        error = error.index_copy(0, hard, solution[2])
        steps += solution[3]
    return EntropicPlan(log_plan.exp(), potential, error[:, 0], steps)


def _annealed_newton(logits: Tensor, log_mass: Tensor, share: Tensor, potential: Tensor,
                     max_steps: int, tol: float,
                     warm: bool) -> tuple[Tensor, Tensor, Tensor, int]:
    """Newton from a smooth problem (larger epsilon) to the asked one, four times sharper each.

    A warm start is first tried without the detour.
    """
    spread = float(logits.masked_fill(share == 0, 0.0).abs().max())
    deep = max(0, math.ceil(math.log(max(spread, 1.0) / 50, 4)))
    total = 0
    for levels in ((0, deep) if warm and deep else (deep, )):
        v = potential / 4**levels
        for level in range(levels, -1, -1):
            limit = 1e-3 if level else tol
            log_plan, v, error, steps = _newton(logits / 4**level, log_mass, share, v, max_steps,
                                                limit)
            v = v * 4 if level else v
            total += steps
        if not bool((error > tol).any()):
            break
    return log_plan, v, error, total


def _newton(logits: Tensor, log_mass: Tensor, share: Tensor, potential: Tensor, max_steps: int,
            tol: float) -> tuple[Tensor, Tensor, Tensor, int]:
    """Levenberg-Marquardt ascent on phi; a class only ever takes steps that improve it."""
    mass = log_mass.exp()
    # phi is blind to a constant added to v: this rank-one term fixes the constant.
    anchor = 0.1 * share.transpose(1, 2) @ share
    padding = (share == 0).to(share.dtype)
    damping = torch.full_like(share[:, :, :1], 1e-2)

    def evaluate(v: Tensor) -> tuple[Tensor, ...]:
        log_sum = torch.logsumexp(logits + v, dim=2, keepdim=True)
        phi = (share * v).sum(dim=2, keepdim=True) - (mass * log_sum).sum(dim=1, keepdim=True)
        log_plan = torch.log_softmax(logits + v, dim=2) + log_mass
        gradient = share - log_plan.exp().sum(dim=1, keepdim=True)
        return v, phi, log_plan, gradient, gradient.abs().amax(dim=2, keepdim=True)

    state = evaluate(potential)
    steps = 0
    while steps < max_steps and bool((state[4] > tol).any()):
        v, phi, log_plan, gradient, error = state
        plan = log_plan.exp()
        marginal = share - gradient
        diagonal = marginal + damping * (marginal + 0.01 * share) + padding
        covariance = plan.transpose(1, 2) @ (plan / mass.clamp_min(torch.finfo(mass.dtype).tiny))
        hessian = torch.diag_embed(diagonal[:, 0]) - covariance + anchor
        # solve_ex never raises; the non-finite step of a singular system fails the comparison.
        step = torch.linalg.solve_ex(hessian, gradient.transpose(1, 2))[0]
        trial = evaluate(v + step.transpose(1, 2))
        better = (trial[1] > phi) | (trial[4] < error)
        damping = torch.where(better, damping * 0.2, damping * 5).clamp(1e-9, 1e6)
        state = tuple(torch.where(better, new, old) for new, old in zip(trial, state))
        steps += 1
    return state[2], state[0], state[4][:, :, 0], steps


MARGINAL_LIMIT = 1e-4
GAP_LIMIT = 1e-5


@dataclass(frozen=True)
class TransportReport:
    """How the solver did, one entry per class that was solved.

    Attributes:
        classes (Tensor): The classes, shape (B,).
        iterations (Tensor): Conditional-gradient steps, shape (B,).
        objective (Tensor): F(G), total mass one, shape (B,).
        marginal_error (Tensor): Largest ``|sum_n G_nk - 1/K|``, shape (B,).
        gap (Tensor): First-order gap at the last step, zero at a stationary point, shape (B,).
        converged (Tensor): Marginal error at most 1e-4 and gap at most 1e-5 * (1 + |F|),
            shape (B,).
        trace (Tensor): Objective before the first and after each step of the adaptive solver,
            shape (T, B); else only the last.
    """
    classes: Tensor
    iterations: Tensor
    objective: Tensor
    marginal_error: Tensor
    gap: Tensor
    converged: Tensor
    trace: Tensor

    @classmethod
    def empty(cls, like: Tensor) -> TransportReport:
        """Report of a batch in which no class was solved."""
        none, index = like.new_zeros(0), like.new_zeros(0, dtype=torch.long)
        return cls(index, index, none, none, none, index.bool(), like.new_zeros(1, 0))

    def of(self, chosen: Tensor, classes: Tensor) -> TransportReport:
        """The same for some of the problems, with the names of their classes.

        Args:
            chosen (Tensor): Indices of problems, shape (R,).
            classes (Tensor): Their classes, shape (R,).
        """
        return TransportReport(
            classes, self.iterations[chosen], self.objective[chosen],
            self.marginal_error[chosen], self.gap[chosen], self.converged[chosen],
            self.trace[:, chosen])


def has_converged(marginal_error: Tensor, gap: Tensor, objective: Tensor) -> Tensor:
    """Marks the problems that count as solved, shape (B,)."""
    return (marginal_error <= MARGINAL_LIMIT) & (gap <= GAP_LIMIT * (1 + objective.abs()))


def make_report(problems: Problems, solution: Solution, kappa: float, epsilon: float,
                temperature: float) -> TransportReport:
    """Report of all problems, made afterwards from potentials and coupling.

    The gap is ``eps * sum_n w_n KL(L_n, L'_n)`` with L the plan that the solver ended with and L'
    the one of the linearisation at L for the same potentials.
    """
    dtype = solution.potential.dtype
    cosine, similarity = problems.cosine.to(dtype), problems.similarity.to(dtype)
    mass = problems.row_mask.to(dtype)
    mass = (mass / mass.sum(dim=1, keepdim=True).clamp_min(1))[:, None]
    col_mask = problems.col_mask[:, :, None]
    share = col_mask.to(dtype) / col_mask.sum(dim=1, keepdim=True)
    real = col_mask & problems.row_mask[:, None]
    log_q = torch.log_softmax(cosine.masked_fill(~col_mask, -torch.inf) / temperature, dim=1)
    q = log_q.exp()

    def following(coupling: Tensor) -> tuple[Tensor, Tensor]:
        coupled = torch.bmm(coupling, similarity)
        return coupled, plan_rows(cosine, coupled, solution.potential[:, :, None], col_mask,
                                  kappa, epsilon, temperature)

    rows = following(solution.coupling)[1]
    plan = mass * rows
    coupled, after = following(q * plan)
    cost = torch.where(real, -log_q, 0.0)
    objective = (cost * plan + epsilon * torch.xlogy(plan, plan) -
                 kappa * q * plan * coupled).sum(dim=(1, 2))
    error = (plan.sum(dim=2, keepdim=True) - share).abs().amax(dim=(1, 2))
    tiny = torch.finfo(rows.dtype).tiny
    ratio = rows.clamp_min(tiny).log() - after.clamp_min(tiny).log()
    gap = epsilon * torch.where(real, plan * ratio, 0.0).sum(dim=(1, 2)).abs()
    index = torch.arange(len(error), device=error.device)
    return TransportReport(index, torch.zeros_like(index) + solution.steps, objective, error, gap,
                           has_converged(error, gap, objective), objective[None])


def structure_aware_plan(log_q: Tensor,
                         similarity: Tensor,
                         row_mask: Tensor,
                         col_mask: Tensor,
                         kappa: float = 1.0,
                         epsilon: float = 0.05,
                         max_iter: int = 20,
                         tol: float = 1e-8) -> tuple[Tensor, TransportReport]:
    """Solves Eq. 7-8 for B classes together.

    Args:
        log_q (Tensor): log Q, finite on real columns, shape (B, N, K).
        similarity (Tensor): S, symmetric, shape (B, N, N) or (1, N, N) for all classes.
        row_mask (Tensor): False on padded features, shape (B, N).
        col_mask (Tensor): False on padded prototypes, shape (B, K).
        kappa (float): Weight of the structure term. Defaults to 1.0.
        epsilon (float): Weight of the entropy. Defaults to 0.05.
        max_iter (int): Most conditional-gradient steps. Defaults to 20.
        tol (float): A class stops when its objective falls by less than
            ``tol * (1 + |F|)``. Defaults to 1e-8.

    Returns:
        tuple[Tensor, TransportReport]: G with total mass one per class, zero on padding,
        shape (B, N, K), and the report (``classes`` counts from zero).
    """
    real = row_mask[:, :, None] & col_mask[:, None, :]
    cost = torch.where(real, -log_q, 0.0)
    q = torch.where(real, log_q.exp(), 0.0)

    def objective(g: Tensor, s_z: Tensor) -> Tensor:
        terms = cost * g + epsilon * torch.xlogy(g, g) - kappa * q * g * s_z
        return terms.sum(dim=(1, 2))

    def along(g: Tensor, d: Tensor, s_z: Tensor, s_d: Tensor, t: Tensor) -> Tensor:
        return objective(g + t * d, s_z + t * s_d)

    plan = real.to(q.dtype) / real.sum(dim=(1, 2), keepdim=True)
    s_z = similarity @ (q * plan)
    value = objective(plan, s_z)
    gap = torch.full_like(value, -torch.inf)
    active = torch.ones_like(value, dtype=torch.bool)
    iterations = torch.zeros_like(value, dtype=torch.long)
    trace, potential = [value], None
    for _ in range(max_iter):
        linear = cost - 2 * kappa * q * s_z
        inner = entropic_plan(linear, row_mask, col_mask, epsilon, potential)
        potential = inner.potential
        direction = inner.plan - plan
        fall = linear * direction + epsilon * (torch.xlogy(inner.plan, inner.plan) -
                                               torch.xlogy(plan, plan))
        gap = torch.where(active, fall.sum(dim=(1, 2)), gap)
        s_d = similarity @ (q * direction)
        step = armijo(partial(along, plan, direction, s_z, s_d), value, gap, active)
        plan, s_z = plan + step * direction, s_z + step * s_d
        new_value = torch.where(step.flatten() > 0, objective(plan, s_z), value)
        iterations += active
        active = active & (value - new_value > tol * (1 + new_value.abs()))
        value = new_value
        trace.append(value)
        if not bool(active.any()):
            break
    share = col_mask.to(q.dtype) / col_mask.sum(dim=1, keepdim=True)
    error = (plan.sum(dim=1) - share).abs().amax(dim=1)
    return plan, TransportReport(
        torch.arange(len(value), device=value.device), iterations, value, error, gap.abs(),
        has_converged(error, gap.abs(), value), torch.stack(trace))


def armijo(objective: Callable[[Tensor], Tensor], value: Tensor, slope: Tensor,
           active: Tensor, c1: float = 1e-4, max_trials: int = 12) -> Tensor:
    """Backtracks from the full step, for each class by itself.

    Args:
        objective (Callable): Objective (B,) at steps t of shape (B, 1, 1).
        value (Tensor): Objective at t = 0, shape (B,).
        slope (Tensor): Upper bound of the derivative at t = 0, shape (B,).
        active (Tensor): Classes that may move, shape (B,).
        c1 (float): Share of the promised fall that is enough. Defaults to 1e-4.
        max_trials (int): Trials before a class stays where it is. Defaults to 12.

    Returns:
        Tensor: Step of each class in [0, 1], shape (B, 1, 1). The objective never rises.
    """
    # An inexact inner solve may promise a rise; then only a fall is accepted.
    slope = slope.clamp_max(0.0)
    step = torch.ones_like(value)
    for _ in range(max_trials):
        trial = objective(step[:, None, None])
        enough = trial <= value + c1 * step * slope
        if bool((enough | ~active).all()):
            break
        # Minimum of the parabola through F(0), F'(0) and F(t), kept within [t/10, t/2].
        curvature = 2 * (trial - value - slope * step)
        parabola = -slope * step**2 / curvature.clamp_min(torch.finfo(value.dtype).tiny)
        shorter = torch.minimum(torch.maximum(parabola, step / 10), step / 2)
        step = torch.where(enough, step, shorter)
    return torch.where(enough & active, step, 0.0)[:, None, None]


def exact_plan(problems: Problems,
               enough: Tensor,
               kappa: float = 1.0,
               epsilon: float = 0.05,
               temperature: float = 1.0,
               max_iter: int = 20,
               tol: float = 1e-8) -> Solution:
    """Solves the problems that have enough rows until they converge.

    Args:
        problems (Problems): B problems.
        enough (Tensor): Which of them to solve, shape (B,).
        kappa (float): Weight of the structure term for a class of total mass one.
        epsilon (float): Weight of the entropy.
        temperature (float): Q = softmax(cosine / temperature).
        max_iter (int): Most conditional-gradient steps.
        tol (float): See :func:`~.gcg.structure_aware_plan`.
    """
    # The last steps gain less than float32 resolves.
    wide = torch.float32 if enough.device.type == 'mps' else torch.float64
    potential = torch.zeros_like(problems.col_mask, dtype=wide)
    coupling = torch.zeros_like(problems.cosine, dtype=wide)
    steps = torch.zeros_like(enough, dtype=torch.long)
    chosen = enough.nonzero()[:, 0]
    if len(chosen):
        row_mask, col_mask = problems.row_mask[chosen], problems.col_mask[chosen]
        similarity = problems.similarity[chosen].to(wide)
        log_q = problems.cosine[chosen].transpose(1, 2).to(wide) / temperature
        log_q = log_q.masked_fill(~col_mask[:, None], -torch.inf).log_softmax(dim=2)
        plan, report = structure_aware_plan(log_q, similarity, row_mask, col_mask, kappa, epsilon,
                                            max_iter, tol)
        weighted = log_q.exp() * plan
        real = row_mask[:, :, None] & col_mask[:, None]
        linear = torch.where(
            real, -log_q - 2 * kappa * log_q.exp() * torch.bmm(similarity, weighted), 0.0)
        potential[chosen] = entropic_plan(linear, row_mask, col_mask, epsilon).potential[:, 0]
        coupling[chosen] = weighted.transpose(1, 2)
        steps[chosen] = report.iterations
    return Solution(potential, coupling, steps)
