"""How a solver did on the problems of a batch."""
from dataclasses import dataclass

import torch
from torch import Tensor

from .problems import Problems
from .solution import Solution, plan_rows

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
    def empty(cls, like: Tensor) -> 'TransportReport':
        """Report of a batch in which no class was solved."""
        none, index = like.new_zeros(0), like.new_zeros(0, dtype=torch.long)
        return cls(index, index, none, none, none, index.bool(), like.new_zeros(1, 0))

    def of(self, chosen: Tensor, classes: Tensor) -> 'TransportReport':
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
