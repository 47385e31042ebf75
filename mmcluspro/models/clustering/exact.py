"""The adaptive solver (gcg.py) for the problems of a batch; it makes the host wait."""
import torch
from torch import Tensor

from .gcg import structure_aware_plan
from .problems import Problems
from .solution import Solution
from .transport import entropic_plan


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
