"""Structure-aware transport (Eq. 7-8) in a fixed number of steps: no host sync, static shapes.

The objective is that of gcg.py. With rows held exactly by a softmax,

    G_nk = w_n softmax_k(v_k + log Q_nk / eps + (2 kappa / eps) Q_nk [S (Q o G)]_nk),   w = 1/N,

a stationary point is a pair of a plan G and column potentials v for which the columns sum to 1/K.
S is a Gram matrix, so the structure term is concave and no line search is needed (gcg.py).
Sinkhorn's steps bring v near, or v starts from where the last solve of the class ended; then each
step linearises at the current plan and takes a Newton step on v, a K x K system per class.
The damping falls with the square of the marginal error: the last steps are plain Newton steps.

At the defaults (kappa 1, eps 0.05, temperature 1) 3 + 10 steps leave a marginal error of 4e-7 and
a plan (rows of mass one) within 3e-6 of the adaptive solver's, in float32; so do 5 Newton steps
from the potentials of the last visit. Sharper or more strongly coupled problems need the
adaptive solver (:func:`suits`).
"""
import torch
from torch import Tensor

from .problems import Problems
from .solution import Solution

# From nothing: Sinkhorn and Newton steps. From the potentials of the last visit: Newton steps.
SINKHORN_STEPS, COLD_STEPS, WARM_STEPS = 3, 10, 5
LONGEST_STEP, DAMPING = 4.0, 5.0


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
        # solve_ex never raises and so never waits for the device.
        step = torch.linalg.solve_ex(hessian, gradient)[0]
        potential = potential + step.clamp(-LONGEST_STEP, LONGEST_STEP)
        plan = torch.softmax(logits + potential, dim=1)
    return Solution(potential[:, :, 0], weighted * plan, steps)


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
