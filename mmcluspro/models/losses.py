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
.. [3] Székely and Rizzo, Partial distance correlation with methods for dissimilarities, 2014.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmcluspro.registry import MODELS


class _Contrast(torch.autograd.Function):
    """Eq. 10 whose gradient is found with its value: tables and logits are not kept.

    The tables get no gradient, so two products with them are all there is to compute.
    """

    @staticmethod
    def forward(ctx: Any, features: Tensor, positives: Tensor, valid: Tensor, temperature: float,
                *tables: Tensor) -> Tensor:
        norm = features.norm(dim=1, keepdim=True).clamp_min(1e-12)
        units = features / norm
        scaled = units / temperature
        logits = [scaled @ table.T for table in tables]
        own = torch.linalg.vecdot(scaled, positives)
        most = reduce(torch.maximum, [each.amax(dim=1) for each in logits])
        shares = [each.sub_(most[:, None]).exp_() for each in logits]
        total = reduce(torch.add, [each.sum(dim=1) for each in shares])
        losses = total.log() + most - own
        count = valid.sum().clamp_min(1)
        pull = shares[0] @ tables[0]
        for share, table in zip(shares[1:], tables[1:]):
            pull.addmm_(share, table)
        gradient = torch.addcmul(positives.neg_(), pull, 1 / total[:, None])
        # Back through the scaling to unit norm: what points along a feature has no effect.
        gradient.addcmul_(units, torch.linalg.vecdot(units, gradient)[:, None], value=-1)
        # Not even a NaN of a feature that is left out may enter.
        weight = torch.where(valid, 1 / (norm[:, 0] * temperature * count), 0.0)
        ctx.save_for_backward(gradient.mul_(weight[:, None]).nan_to_num_(0.0))
        return torch.where(valid, losses, 0.0).sum() / count

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        gradient, = ctx.saved_tensors
        return grad * gradient, *(None for _ in ctx.needs_input_grad[1:])


def prototype_contrast(features: Sequence[Tensor], rows: Sequence[Tensor],
                       tables: Sequence[Tensor], temperature: float) -> Tensor:
    """Mean of ``-log softmax(f . P / temperature)[row]`` over the assigned features (Eq. 10).

    Args:
        features (Sequence[Tensor]): Features of each branch, scaled to unit norm here, shapes
            (N_i, D).
        rows (Sequence[Tensor]): Row of the branch's table for each feature, its positive; -1 to
            leave it out, shapes (N_i,).
        tables (Sequence[Tensor]): Prototypes of each branch, unit norm, shapes (P_i, D). Those of
            all branches are the negatives. They get no gradient.
        temperature (float): tau.

    Returns:
        Tensor: Scalar, zero (with zero gradient) if no feature is assigned.
    """
    with torch.no_grad():
        positives = torch.cat([table.index_select(0, row.clamp_min(0))
                               for table, row in zip(tables, rows)])
        valid = torch.cat(list(rows)) >= 0
    loss: Tensor = _Contrast.apply(torch.cat(list(features)), positives, valid, temperature,
                                   *(table.detach() for table in tables))
    return loss


@MODELS.register_module()
class PCLLoss(nn.Module):
    """Pulls each feature towards its prototype and away from all others of both branches.

    Attributes and objects are one set of primitives: the K(M+N) prototypes of both
    branches form one table and the loss is the mean over the features of both branches.

    Args:
        temperature (float): tau. Defaults to 0.1.
        loss_weight (float): alpha. Defaults to 0.2.

    >>> table = torch.eye(3)
    >>> near, far = (PCLLoss()([table[:1]], [torch.tensor([row])], [table]) for row in (0, 1))
    >>> bool(near < far)
    True
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
            loss = prototype_contrast([f.float() for f, _, _ in branches],
                                      [r for _, r, _ in branches],
                                      [p.float() for _, _, p in branches], self.temperature)
        return self.loss_weight * loss


Estimator = Literal['biased', 'unbiased']
SMALLEST = dict(biased=2, unbiased=4)
SMALLEST_VARIANCE = 1e-10


class _SquaredDistances(torch.autograd.Function):
    """|x_i - x_j|^2 inside B sets (B, N, D): one product forward, and one backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        gram = torch.bmm(x, x.transpose(1, 2))
        squares = gram.diagonal(dim1=1, dim2=2)
        return (squares[:, :, None] + squares[:, None]).sub_(gram, alpha=2).clamp_min_(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        x, = ctx.saved_tensors
        both = grad + grad.transpose(1, 2)
        return torch.baddbmm(both.sum(dim=2, keepdim=True) * x, both, x, alpha=-1).mul_(2)


def rbf_kernels(x: Tensor, mask: Tensor, sigma: float | None = None, blocks: int = 1) -> Tensor:
    """``exp(-|x_i - x_j|^2 / (2 sigma^2))`` of B sets of samples, shape (B, N, N).

    Args:
        x (Tensor): Finite samples, shape (B, N, D).
        mask (Tensor): Samples that count, shape (B, N).
        sigma (float, optional): Width. Defaults to None, the median heuristic: sigma^2 is the
            median squared distance between different samples, as a constant. If more than
            half of the pairs coincide it is the mean, and if all do it is one.
        blocks (int): So many neighbouring sets are parts of one, and share the mean of their
            widths. Defaults to 1.
    """
    distance: Tensor = _SquaredDistances.apply(x)
    if sigma is not None:
        return torch.exp(distance / (-2 * sigma**2))
    with torch.no_grad():
        num = x.shape[1]
        i, j = torch.triu_indices(num, num, offset=1, device=x.device)
        pairs = torch.where(mask[:, i] & mask[:, j], distance[:, i, j], torch.nan)
        median = torch.stack([each.nanmedian() for each in pairs])
        mean = pairs.nanmean(dim=1)
        # Below these a distance is rounding of the squares it is the difference of.
        width = torch.where(median > 1e-6 * mean, median, mean)
        width = torch.where(width > torch.finfo(x.dtype).tiny, width, 1.0)  # also for NaN
        if blocks > 1:
            width = width.view(-1, blocks).mean(dim=1).repeat_interleave(blocks)
    return torch.exp(distance / (-2 * width[:, None, None]))


def _doubly_centred(kernel: Tensor, counted: Tensor, n: Tensor, estimator: Estimator) -> Tensor:
    """A kernel (B, N, N) less the means of rows and columns; zero where ``counted`` is.

    With this matrix A of k and B of l, both estimators of HSIC(k, l) are sums of A * B [3]_.
    """
    n = n[:, None, None]
    each, every = (n - 2, (n - 1) * (n - 2)) if estimator == 'unbiased' else (n, n * n)
    kernel = kernel * counted
    sums = kernel.sum(dim=2, keepdim=True)
    rows = sums / each
    total = sums.sum(dim=1, keepdim=True) / every
    return (kernel - rows - rows.transpose(1, 2) + total) * counted


def hsic_of_pairs(x: Tensor,
                  y: Tensor,
                  estimator: Estimator = 'unbiased',
                  normalized: bool = True,
                  sigma_x: float | None = None,
                  sigma_y: float | None = None,
                  mask: Tensor | None = None,
                  block: int | None = None) -> Tensor:
    """:func:`hsic` of B pairs.

    Args:
        x (Tensor): Shape (B, N, D).
        y (Tensor): Shape (B, N, E).
        estimator (str): 'biased' or 'unbiased'. Defaults to 'unbiased'.
        normalized (bool): Divide by sqrt(HSIC(x, x) HSIC(y, y)). Defaults to True.
        sigma_x (float, optional): Width of x's kernel. Defaults to the median heuristic.
        sigma_y (float, optional): Width of y's kernel. Defaults to the median heuristic.
        mask (Tensor, optional): Samples that count, shape (B, N). Defaults to all.
        block (int, optional): More samples than this are divided into equal blocks in their
            order, and HSIC is the mean of those of the blocks: time and memory are then linear
            in N. Defaults to None: never.

    Returns:
        Tensor: Shape (B,); zero, with zero gradient, for fewer samples than the estimator is
        defined for (2 biased, 4 unbiased).
    """
    pairs, num, _ = x.shape
    least = SMALLEST[estimator]
    if num < least:
        return (x.sum(dim=(1, 2)) + y.sum(dim=(1, 2))) * 0.0
    if mask is None:
        mask = torch.ones(pairs, num, dtype=torch.bool, device=x.device)
    blocks = -(-num // block) if block else 1
    if blocks > 1:
        missing = -num % blocks
        x, y = (F.pad(each, (0, 0, 0, missing)).view(pairs * blocks, -1, each.shape[2])
                for each in (x, y))
        mask = F.pad(mask, (0, missing)).view(pairs * blocks, -1)
    size = mask.sum(dim=1)
    n = size.clamp_min(least).to(x.dtype)
    counted = (mask[:, :, None] & mask[:, None]).to(x.dtype)
    if estimator == 'unbiased':
        counted.diagonal(dim1=1, dim2=2).zero_()
    k, m = (_doubly_centred(rbf_kernels(_centred(each, mask, n), mask, sigma, blocks), counted, n,
                            estimator) for each, sigma in ((x, sigma_x), (y, sigma_y)))
    # Of each pair, the mean over the samples of those blocks that have enough of them.
    weight = torch.where(size >= least, n, 0.0).view(pairs, blocks)
    weight = weight / weight.sum(dim=1, keepdim=True).clamp_min(1)
    weight = weight.flatten() / (n * (n - 3) if estimator == 'unbiased' else (n - 1)**2)

    def covariance(k: Tensor, m: Tensor) -> Tensor:
        return ((k * m).sum(dim=(1, 2)) * weight).view(pairs, blocks).sum(dim=1)

    value = covariance(k, m)
    if not normalized:
        return value
    variances = torch.stack([covariance(k, k), covariance(m, m)])
    # A constant x or y has no variance to divide by: the value is zero then, not 0/0.
    scale = variances.clamp_min(SMALLEST_VARIANCE).rsqrt().prod(dim=0)
    return value * scale * (variances > SMALLEST_VARIANCE).all(dim=0)


def _centred(x: Tensor, mask: Tensor, n: Tensor) -> Tensor:
    """Samples less their mean, which no distance depends on: the mean needs no gradient."""
    # Not even a NaN of a sample that does not count may enter.
    x = x.masked_fill(~mask[:, :, None], 0.0)
    return x - x.detach().sum(dim=1, keepdim=True) / n[:, None, None]


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
        block (int, optional): A larger global batch is divided into equal blocks of at most so
            many images, and the mean of their HSIC is taken: it costs time and memory in
            proportion to the batch, not to its square (docs/clustering.md has the error). None
            never divides. Defaults to 1024.

    >>> prototypes, rows = torch.eye(4), torch.arange(12) % 4
    >>> features, noise = prototypes[rows], torch.randn(12, 4)
    >>> leak = HSICLoss(loss_weight=1.0)([features, noise], [None, rows], [None, prototypes])
    >>> round(float(leak), 3)  # the features are the other branch's prototypes
    1.0
    """

    def __init__(self,
                 estimator: Estimator = 'unbiased',
                 normalized: bool = True,
                 sigma: float | None = None,
                 loss_weight: float = 0.5,
                 block: int | None = 1024) -> None:
        super().__init__()
        if estimator not in SMALLEST:
            raise ValueError("loss_pdl.estimator must be 'biased' or 'unbiased', "
                             f'got {estimator!r}.')
        if sigma is not None and not sigma > 0:
            raise ValueError(f'loss_pdl.sigma must be positive or None, got {sigma}.')
        if loss_weight < 0:
            raise ValueError(f'loss_pdl.loss_weight must be at least 0, got {loss_weight}.')
        if block is not None and block < 8:
            raise ValueError(f'loss_pdl.block must be at least 8 or None, got {block}.')
        self.estimator: Estimator = estimator
        self.block = block
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
                self.normalized, self.sigma, self.sigma, row >= 0, self.block)
            return self.loss_weight * values.sum()
