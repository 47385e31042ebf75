"""Assigners, the strategies of Table 4d: local-aware transport, classical transport, cosine."""
import math
import warnings

import torch
from torch import Tensor

from mmcluspro.registry import MODELS

from .gcg import TransportReport
from .local_aware import Scope, local_aware_assign
from .segments import own_cosines, unit


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
                 context: Tensor | None = None, context_labels: Tensor | None = None) -> Tensor:
        """Rows of ``prototypes``, shape (N,); see :func:`nearest_prototype`. Ignores context."""
        with torch.autocast(features.device.type, enabled=False):
            cosine, rows = own_cosines(unit(features.float()), labels, prototypes, offsets)
        best, column = cosine.max(dim=1, keepdim=True)
        # Rounding must not leave an opposite feature below the default of -1.
        return rows.gather(1, column).masked_fill(best < self.min_similarity - 1e-5, -1)[:, 0]


@MODELS.register_module()
class LocalAwareOT:
    """Local-aware prototype assignment, the paper's own (Eq. 7-8, "Ours" of Table 4d).

    Args:
        kappa (float): Weight of the structure term for a class of total mass one.
            Defaults to 1.0.
        epsilon (float): Weight of the entropy, which the paper does not give.
            Defaults to 0.05.
        temperature (float): Q = softmax(F P^T / temperature). Defaults to 1.0, the paper.
        scope (str): 'class' solves over a primitive's own features (Eq. 7-8), 'batch' over
            all of them (Algorithm 1). Defaults to 'class'.
        max_iter (int): Most conditional-gradient steps. Defaults to 20.
        tol (float): Fall of the objective at which a class stops. Defaults to 1e-8.
        warn (bool): Warn when a class did not converge. Defaults to True.
    """

    def __init__(self,
                 kappa: float = 1.0,
                 epsilon: float = 0.05,
                 temperature: float = 1.0,
                 scope: Scope = 'class',
                 max_iter: int = 20,
                 tol: float = 1e-8,
                 warn: bool = True) -> None:
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
        if max_iter < 1:
            raise ValueError(f'assigner.max_iter must be at least 1, got {max_iter}.')
        self.kappa = kappa
        self.epsilon = epsilon
        self.temperature = temperature
        self.scope: Scope = scope
        self.max_iter = max_iter
        self.tol = tol
        self.warn = warn
        self.report: TransportReport | None = None

    def __call__(self, features: Tensor, labels: Tensor, prototypes: Tensor, offsets: Tensor,
                 context: Tensor | None = None, context_labels: Tensor | None = None) -> Tensor:
        """Rows of ``prototypes``, shape (N,); see :func:`local_aware_assign`.

        The solver's report is kept in ``self.report``.
        """
        result = local_aware_assign(
            features, labels, prototypes, offsets.diff(), self.kappa, self.epsilon,
            self.temperature, self.scope, context, context_labels, self.max_iter, self.tol)
        self.report = result.report
        if self.warn and not bool(result.report.converged.all()):
            self._warn(result.report)
        return result.rows

    def _warn(self, report: TransportReport) -> None:
        classes = report.classes[~report.converged]
        warnings.warn(
            f'{type(self).__name__} did not converge for {len(classes)} of '
            f'{len(report.classes)} primitives (first: {classes[:5].tolist()}, marginal error '
            f'{float(report.marginal_error.max()):.1e}, first-order gap '
            f'{float(report.gap.max()):.1e}). Raise assigner.epsilon or assigner.max_iter.',
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
