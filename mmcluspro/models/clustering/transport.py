"""Entropic optimal transport with balanced columns, for many classes at once.

For each class with N features, K prototypes and a cost M (N x K),

    min_G  <M, G> + eps * sum_nk G_nk log G_nk
    with   G 1 = 1/N,   G^T 1 = 1/K,   G >= 0,

the linear part of Eq. 7 on the polytope of Eq. 8. Total mass is one here; the plan of
Eq. 8, whose rows sum to one, is ``L^T = N * G`` (see gcg.py for what this means for kappa).

Only the column potential is a variable: with ``G_nk = softmax_k(v_k - M_nk / eps) / N``
the rows are exact, and v maximises the concave function

    phi(v) = sum_k v_k / K - 1/N sum_n logsumexp_k(v_k - M_nk / eps).

Sinkhorn's steps [1]_ come first; classes with a sharp cost, where Sinkhorn needs thousands
of steps, are finished by damped Newton steps on phi (K x K systems), annealed in epsilon.

.. [1] Cuturi, Sinkhorn distances: lightspeed computation of optimal transport, 2013.
"""
import math
from typing import NamedTuple

import torch
from torch import Tensor


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
