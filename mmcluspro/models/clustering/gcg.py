"""Structure-aware optimal transport (Eq. 7-8) by generalised conditional gradient.

The adaptive solver: it looks at its own progress (which makes the host wait) and copes with any
weights. fixed.py is the one that training uses where the weights allow it; this one is its oracle.

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
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from .problems import Problems
from .report import TransportReport, has_converged
from .solution import Solution
from .transport import entropic_plan


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
