"""Prototype-based decorrelation learning (Eq. 11) with the Hilbert-Schmidt criterion.

With RBF kernels K of x and L of y, n samples and H = I - 11^T/n, the estimators are

    biased    tr(K H L H) / (n - 1)^2                                                    [1]_
    unbiased  (tr(K~ L~) + 1'K~1 1'L~1 / ((n-1)(n-2)) - 2/(n-2) 1'K~L~1) / (n (n-3))     [2]_

with K~, L~ the kernels with zero diagonals; ``normalized`` divides by
sqrt(HSIC(x, x) HSIC(y, y)).

.. [1] Gretton et al., Measuring statistical dependence with Hilbert-Schmidt norms, 2005.
.. [2] Song et al., Feature selection via dependence maximization, 2012.
"""
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from mmcluspro.registry import MODELS

Estimator = Literal['biased', 'unbiased']
SMALLEST = dict(biased=2, unbiased=4)
SMALLEST_VARIANCE = 1e-10


def rbf_kernel(x: Tensor, sigma: float | None = None) -> Tensor:
    """``exp(-|x_i - x_j|^2 / (2 sigma^2))``, shape (N, N).

    Args:
        x (Tensor): Samples, shape (N, D) with N >= 2.
        sigma (float, optional): Width. Defaults to None, the median heuristic: sigma^2 is the
            median squared distance between different samples, as a constant. If more than
            half of the pairs coincide it is the mean, and if all do it is one.
    """
    x = x - x.mean(dim=0)
    squares = x.square().sum(dim=1)
    distance = (squares[:, None] + squares - 2 * x @ x.T).clamp_min(0)
    if sigma is not None:
        return torch.exp(-distance / (2 * sigma**2))
    with torch.no_grad():
        pairs = distance[~torch.eye(len(x), dtype=torch.bool, device=x.device)]
        # Below this a distance is rounding of the squares it is the difference of.
        floor = 1e-6 * squares.mean() + torch.finfo(x.dtype).tiny
        width = torch.where(pairs.median() > floor, pairs.median(), pairs.mean())
        width = torch.where(width > floor, width, torch.ones_like(width))
    return torch.exp(-distance / (2 * width))


def _off_diagonal(k: Tensor) -> Tensor:
    """Kernel with zero diagonal, less its mean: a constant does not change the unbiased
    value, but cancelling it last would cost all digits of a nearly constant kernel.
    """
    n = len(k)
    diagonal = torch.eye(n, dtype=torch.bool, device=k.device)
    mean = k.masked_fill(diagonal, 0).sum() / (n * (n - 1))
    return (k - mean).masked_fill(diagonal, 0)


def _covariance(k: Tensor, m: Tensor, estimator: Estimator) -> Tensor:
    n = len(k)
    if estimator == 'biased':
        centred = k - k.mean(dim=0) - k.mean(dim=1, keepdim=True) + k.mean()
        return (centred * m).sum() / (n - 1)**2
    k, m = _off_diagonal(k), _off_diagonal(m)
    cross = (k * m).sum() + k.sum() * m.sum() / ((n - 1) * (n - 2))
    return (cross - 2 / (n - 2) * (k.sum(dim=0) * m.sum(dim=0)).sum()) / (n * (n - 3))


def hsic(x: Tensor,
         y: Tensor,
         estimator: Estimator = 'unbiased',
         normalized: bool = True,
         sigma_x: float | None = None,
         sigma_y: float | None = None) -> Tensor:
    """Hilbert-Schmidt independence criterion with RBF kernels.

    Args:
        x (Tensor): Shape (N, D).
        y (Tensor): Shape (N, E).
        estimator (str): 'biased' or 'unbiased'. Defaults to 'unbiased'.
        normalized (bool): Divide by sqrt(HSIC(x, x) HSIC(y, y)). Defaults to True.
        sigma_x (float, optional): Width of x's kernel. Defaults to the median heuristic.
        sigma_y (float, optional): Width of y's kernel. Defaults to the median heuristic.

    Returns:
        Tensor: Scalar; zero, with zero gradient, for fewer samples than the estimator is
        defined for (2 biased, 4 unbiased).
    """
    if len(x) < SMALLEST[estimator]:
        return (x.sum() + y.sum()) * 0.0
    k, m = rbf_kernel(x, sigma_x), rbf_kernel(y, sigma_y)
    value = _covariance(k, m, estimator)
    if not normalized:
        return value
    variances = torch.stack([_covariance(k, k, estimator), _covariance(m, m, estimator)])
    # A constant x or y has no variance to divide by: the value is zero then, not 0/0.
    scale = variances.clamp_min(SMALLEST_VARIANCE).rsqrt().prod()
    return value * scale * (variances > SMALLEST_VARIANCE).all()


@MODELS.register_module()
class HSICLoss(nn.Module):
    """HSIC(f_a, p_o) + HSIC(f_o, p_a): no branch may tell the other's prototype (Eq. 11).

    Args:
        estimator (str): 'biased' or 'unbiased'. Defaults to 'unbiased'.
        normalized (bool): Divide by sqrt(HSIC(x, x) HSIC(y, y)), so that beta does not
            depend on feature size and kernel width. Defaults to True.
        sigma (float, optional): Width of both kernels. Defaults to None, the median heuristic.
        loss_weight (float): beta. Defaults to 0.5.
    """

    def __init__(self,
                 estimator: Estimator = 'unbiased',
                 normalized: bool = True,
                 sigma: float | None = None,
                 loss_weight: float = 0.5) -> None:
        super().__init__()
        if estimator not in SMALLEST:
            raise ValueError("loss_pdl.estimator must be 'biased' or 'unbiased', "
                             f'got {estimator!r}.')
        if sigma is not None and not sigma > 0:
            raise ValueError(f'loss_pdl.sigma must be positive or None, got {sigma}.')
        if loss_weight < 0:
            raise ValueError(f'loss_pdl.loss_weight must be at least 0, got {loss_weight}.')
        self.estimator: Estimator = estimator
        self.normalized = normalized
        self.sigma = sigma
        self.loss_weight = loss_weight

    def forward(self, features: Sequence[Tensor], rows: Sequence[Tensor | None],
                prototypes: Sequence[Tensor | None]) -> Tensor:
        """Weighted loss; runs in float32.

        Args:
            features (Sequence[Tensor]): Attribute and object features of the same images,
                two of shape (N, D).
            rows (Sequence[Tensor or None]): Assignment of each branch as rows of its
                prototypes, -1 to leave an image out, shapes (N,). None for a branch without
                clustering, whose prototypes then decorrelate nothing (Table 4c).
            prototypes (Sequence[Tensor or None]): Prototypes of each branch, shapes (P_i, D).

        Returns:
            Tensor: Scalar. The prototypes get no gradient.
        """
        with torch.autocast(features[0].device.type, enabled=False):
            loss = features[0].float().sum() * 0.0
            for feature, row, table in zip(features, reversed(rows), reversed(prototypes)):
                if row is not None and table is not None:
                    known = row >= 0
                    partner = table.detach().float()[row[known]]
                    loss = loss + hsic(feature.float()[known], partner, self.estimator,
                                       self.normalized, self.sigma, self.sigma)
        return self.loss_weight * loss
