"""Assigners, the strategies of Table 4d: local-aware transport, classical transport, cosine."""
import math
import warnings

import torch
from torch import Tensor

from mmcluspro.registry import MODELS

from .local_aware import Solved, Solver, Weights, assign_branches, one_branch
from .problems import Branches, Scope
from .report import TransportReport
from .segments import finite_rows, own_cosines, unit


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
