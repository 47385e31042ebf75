"""The losses of ClusPro: prototype contrast, PCL (Eq. 10), and decorrelation, PDL (Eq. 11).

PDL is the Hilbert-Schmidt independence criterion.

With RBF kernels K of x and L of y, n samples and H = I - 11^T/n, the estimators are

    biased    tr(K H L H) / (n - 1)^2                                                    [1]_
    unbiased  (tr(K~ L~) + 1'K~1 1'L~1 / ((n-1)(n-2)) - 2/(n-2) 1'K~L~1) / (n (n-3))     [2]_

with K~, L~ the kernels with zero diagonals; ``normalized`` divides by
sqrt(HSIC(x, x) HSIC(y, y)). Samples that are left out are masked, not removed: shapes stay static
and the host never waits for the device. Several pairs (x, y) are computed together.

.. [1] Gretton et al., Measuring statistical dependence with Hilbert-Schmidt norms, 2005.
.. [2] Song et al., Feature selection via dependence maximization, 2012.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmcluspro.registry import MODELS


def prototype_contrast(features: Tensor, rows: Tensor, prototypes: Tensor,
                       temperature: float) -> Tensor:
    """Mean of ``-log softmax(f . P / temperature)[row]`` over the assigned features.

    Args:
        features (Tensor): Unit-norm features, shape (N, D).
        rows (Tensor): Row of its positive prototype for each feature, -1 to leave it
            out, shape (N,).
        prototypes (Tensor): Positives and negatives, unit norm, shape (P, D).
        temperature (float): tau.

    Returns:
        Tensor: Scalar, zero (with zero gradient) if no feature is assigned.
    """
    losses = F.cross_entropy(features @ prototypes.T / temperature, rows, ignore_index=-1,
                             reduction='none')
    return losses.sum() / (rows >= 0).sum().clamp_min(1)


@MODELS.register_module()
class PCLLoss(nn.Module):
    """Pulls each feature towards its prototype and away from all others of both branches.

    Attributes and objects are one set of primitives: the K(M+N) prototypes of both
    branches form one table and the loss is the mean over the features of both branches.

    Args:
        temperature (float): tau. Defaults to 0.1.
        loss_weight (float): alpha. Defaults to 0.2.
    """

    def __init__(self, temperature: float = 0.1, loss_weight: float = 0.2) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f'loss_pcl.temperature must be positive, got {temperature}.')
        if loss_weight < 0:
            raise ValueError(f'loss_pcl.loss_weight must be at least 0, got {loss_weight}.')
        self.temperature = temperature
        self.loss_weight = loss_weight

    def forward(self, features: Sequence[Tensor], rows: Sequence[Tensor | None],
                prototypes: Sequence[Tensor | None]) -> Tensor:
        """Weighted loss; runs in float32.

        Args:
            features (Sequence[Tensor]): Features of each branch, scaled to unit norm here,
                shapes (N_i, D).
            rows (Sequence[Tensor or None]): Assignment of each branch as rows of its own
                prototypes, -1 to leave a feature out, shapes (N_i,). None for a branch without
                clustering (Table 4c).
            prototypes (Sequence[Tensor or None]): Prototypes of each branch, shapes (P_i, D).

        Returns:
            Tensor: Scalar. The prototypes get no gradient.
        """
        branches = [(f, r, p) for f, r, p in zip(features, rows, prototypes)
                    if r is not None and p is not None]
        if not branches:
            return features[0].sum() * 0.0
        with torch.autocast(features[0].device.type, enabled=False):
            first, table_rows = 0, []
            for _, row, table in branches:
                table_rows.append(torch.where(row >= 0, row + first, -1))
                first += len(table)
            loss = prototype_contrast(
                F.normalize(torch.cat([f for f, _, _ in branches]).float(), dim=1),
                torch.cat(table_rows),
                torch.cat([p for _, _, p in branches]).detach().float(), self.temperature)
        return self.loss_weight * loss


Estimator = Literal['biased', 'unbiased']
SMALLEST = dict(biased=2, unbiased=4)
SMALLEST_VARIANCE = 1e-10


def rbf_kernels(x: Tensor, sigma: float | None = None, mask: Tensor | None = None) -> Tensor:
    """``exp(-|x_i - x_j|^2 / (2 sigma^2))`` of B sets of samples, shape (B, N, N).

    Args:
        x (Tensor): Samples, shape (B, N, D) with N >= 2.
        sigma (float, optional): Width. Defaults to None, the median heuristic: sigma^2 is the
            median squared distance between different samples, as a constant. If more than
            half of the pairs coincide it is the mean, and if all do it is one.
        mask (Tensor, optional): Samples that count, shape (B, N). Defaults to all. Kernel values of
            other samples are undefined.
    """
    if mask is None:
        x = x - x.mean(dim=1, keepdim=True)
    else:
        # Not even a NaN of a sample that does not count may enter.
        x = x.masked_fill(~mask[:, :, None], 0.0)
        centre = x.sum(dim=1, keepdim=True) / mask.sum(dim=1).clamp_min(1)[:, None, None]
        x = (x - centre).masked_fill(~mask[:, :, None], 0.0)
    squares = x.square().sum(dim=2)
    distance = torch.baddbmm(squares[:, :, None] + squares[:, None], x, x.transpose(1, 2),
                             alpha=-2).clamp_min(0)
    if sigma is not None:
        return torch.exp(distance / (-2 * sigma**2))
    with torch.no_grad():
        counted = _different(x, mask)
        pairs = distance.masked_fill(~counted, torch.nan)
        median = torch.stack([each.nanmedian() for each in pairs])
        mean = pairs.nansum(dim=(1, 2)) / counted.sum(dim=(1, 2)).clamp_min(1)
        samples = x.shape[1] if mask is None else mask.sum(dim=1).clamp_min(1)
        # Below this a distance is rounding of the squares it is the difference of.
        floor = 1e-6 * squares.sum(dim=1) / samples + torch.finfo(x.dtype).tiny
        width = torch.where(median > floor, median, mean)
        width = torch.where(width > floor, width, 1.0)[:, None, None]
    return torch.exp(distance / (-2 * width))


def _different(like: Tensor, mask: Tensor | None) -> Tensor:
    """Pairs of different samples that count, shape (B, N, N) or (1, N, N)."""
    n = like.shape[1]
    different = ~torch.eye(n, dtype=torch.bool, device=like.device)[None]
    return different if mask is None else different & mask[:, :, None] & mask[:, None]


class _Kernel:
    """A kernel (B, N, N) made ready for products with others, see :func:`_covariance`."""

    def __init__(self, kernel: Tensor, counted: Tensor, n: int | Tensor,
                 estimator: Estimator) -> None:
        self.n, self.estimator = n, estimator
        if estimator == 'unbiased':
            # Zero diagonal, less its mean: a constant does not change the value, but
            # cancelling it last would cost all digits of a nearly constant kernel.
            kernel = kernel * counted
            mean = kernel.sum(dim=(1, 2), keepdim=True) / _each(n * (n - 1))
            self.kernel = (kernel - mean) * counted
            self.rows = self.kernel.sum(dim=2)
        else:
            self.kernel = kernel * counted
            rows = self.kernel.sum(dim=2, keepdim=True) / _each(n)
            mean = rows.sum(dim=1, keepdim=True) / _each(n)
            self.centred = (self.kernel - rows - rows.transpose(1, 2) + mean) * counted


def _each(n: int | Tensor) -> int | Tensor:
    """Number of samples, to divide (B, N, N) by."""
    return n if isinstance(n, int) else n[:, None, None]


def _covariance(k: _Kernel, m: _Kernel) -> Tensor:
    """HSIC of B pairs, not normalised, shape (B,)."""
    n = k.n
    if k.estimator == 'biased':
        return (k.centred * m.kernel).sum(dim=(1, 2)) / (n - 1)**2
    cross = (k.kernel * m.kernel).sum(dim=(1, 2))  # the term of the totals is zero, see above
    return (cross - 2 / (n - 2) * (k.rows * m.rows).sum(dim=1)) / (n * (n - 3))


def hsic_of_pairs(x: Tensor,
                  y: Tensor,
                  estimator: Estimator = 'unbiased',
                  normalized: bool = True,
                  sigma_x: float | None = None,
                  sigma_y: float | None = None,
                  mask: Tensor | None = None) -> Tensor:
    """:func:`hsic` of B pairs.

    Args:
        x (Tensor): Shape (B, N, D).
        y (Tensor): Shape (B, N, E).
        estimator (str): 'biased' or 'unbiased'. Defaults to 'unbiased'.
        normalized (bool): Divide by sqrt(HSIC(x, x) HSIC(y, y)). Defaults to True.
        sigma_x (float, optional): Width of x's kernel. Defaults to the median heuristic.
        sigma_y (float, optional): Width of y's kernel. Defaults to the median heuristic.
        mask (Tensor, optional): Samples that count, shape (B, N). Defaults to all.

    Returns:
        Tensor: Shape (B,); zero, with zero gradient, for fewer samples than the estimator is
        defined for (2 biased, 4 unbiased).
    """
    least = SMALLEST[estimator]
    if x.shape[1] < least:
        return (x.sum(dim=(1, 2)) + y.sum(dim=(1, 2))) * 0.0
    if x.shape == y.shape and sigma_x == sigma_y:
        both = None if mask is None else torch.cat([mask, mask])
        kernels = rbf_kernels(torch.cat([x, y]), sigma_x, both).chunk(2)
    else:
        kernels = (rbf_kernels(x, sigma_x, mask), rbf_kernels(y, sigma_y, mask))
    n: int | Tensor = x.shape[1]
    if mask is not None:
        n = mask.sum(dim=1).clamp_min(least).to(x.dtype)
    if estimator == 'unbiased':
        counted = _different(x, mask).to(x.dtype)
    elif mask is None:
        counted = x.new_ones(1, 1, 1)
    else:
        counted = (mask[:, :, None] & mask[:, None]).to(x.dtype)
    k, m = (_Kernel(kernel, counted, n, estimator) for kernel in kernels)
    value = _covariance(k, m)
    if normalized:
        variances = torch.stack([_covariance(k, k), _covariance(m, m)])
        # A constant x or y has no variance to divide by: the value is zero then, not 0/0.
        scale = variances.clamp_min(SMALLEST_VARIANCE).rsqrt().prod(dim=0)
        value = value * scale * (variances > SMALLEST_VARIANCE).all(dim=0)
    return value if mask is None else value * (mask.sum(dim=1) >= least)


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
    return hsic_of_pairs(x[None], y[None], estimator, normalized, sigma_x, sigma_y)[0]


@MODELS.register_module()
class HSICLoss(nn.Module):
    """HSIC(f_a, p_o) + HSIC(f_o, p_a): features must not reveal the other's prototype (Eq. 11).

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
        pairs = [(feature.float(), row, table.detach().float()) for feature, row, table in
                 zip(features, reversed(rows), reversed(prototypes))
                 if row is not None and table is not None]
        if not pairs:
            return features[0].float().sum() * 0.0
        with torch.autocast(features[0].device.type, enabled=False):
            row = torch.stack([each for _, each, _ in pairs])
            partners = torch.stack([table.index_select(0, each) for (_, _, table), each in
                                    zip(pairs, row.clamp_min(0))])
            values = hsic_of_pairs(
                torch.stack([feature for feature, _, _ in pairs]), partners, self.estimator,
                self.normalized, self.sigma, self.sigma, row >= 0)
            return self.loss_weight * values.sum()
