"""The result of a solver, and the plan that follows from it for any feature.

Column potentials v and the coupling Z = w Q o L of the rows (L: plan with rows of mass one) give
the row of the plan of a feature, whether or not it is one of the rows of its class's problem:

    L_n = softmax_k(v_k + log Q_nk / eps + (2 kappa / eps) Q_nk [S_n Z]_k).
"""
from dataclasses import dataclass

import torch
from torch import Tensor

from .problems import Problems


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
