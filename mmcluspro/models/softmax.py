"""Softmax regressions whose classes share what their kernel says, many convex fits at once.

Class c has the weights w_c, and these have a Gaussian prior with covariance K between classes:

    minimise  sum_i v_i CE(W x_i + b, y_i) + (penalty / 2) tr(W' K^-1 W)

With K = 1 this is the logistic regression of every library, C = 1 / penalty. With word vectors in
K, classes with related names have related weights. A class that was not trained has the weights
k(c, trained) K^-1 W.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

MEMORY = 10  # pairs of steps that L-BFGS remembers
JITTER = 1e-6


class Problems(NamedTuple):
    """B softmax regressions of the same N images.

    Attributes:
        features (Tensor): Shape (N, D).
        labels (Tensor): Class of each image, shape (N,).
        weights (Tensor): Weight of each image in each problem, 0 for those held out, (B, N).
        kernel (Tensor): Covariance K between the C classes, (B, C, C), positive semidefinite.
        penalty (Tensor): Shape (B,).
        classes (Tensor): Which classes a problem knows, (B, C); the softmax runs over them.
    """
    features: Tensor
    labels: Tensor
    weights: Tensor
    kernel: Tensor
    penalty: Tensor
    classes: Tensor

    @classmethod
    def single(cls, features: Tensor, labels: Tensor, kernel: Tensor, penalty: float) -> Problems:
        """One problem with all images and classes.

        Args:
            features (Tensor): Shape (N, D).
            labels (Tensor): Shape (N,).
            kernel (Tensor): Positive semidefinite, (C, C).
            penalty (float): 1 / C of scikit-learn.
        """
        one = features.new_ones
        return cls(features, labels, one(1, len(features)), kernel[None].to(features),
                   one(1) * penalty, one(1, len(kernel)).bool())


class Fits(NamedTuple):
    """Minima of B problems.

    Attributes:
        dual (Tensor): K^-1 W, shape (B, C, D); a class with covariances k to the C classes has
            the weights k @ dual.
        bias (Tensor): b, of mean zero over the classes, shape (B, C).
    """
    dual: Tensor
    bias: Tensor


@torch.no_grad()
def fit(problems: Problems, steps: int = 100, tolerance: float = 1e-3) -> Fits:
    """Minimises all problems together by L-BFGS, each with its own steps.

    Args:
        problems (Problems): In any precision; the fit has that of the features.
        steps (int): Most steps. Defaults to 100.
        tolerance (float): A problem is solved when no entry of its gradient, as part of the
            weight of its images and in the scaled variables, is larger. Defaults to 1e-3.
    """
    x = problems.features
    rows = torch.arange(len(x), device=x.device)
    # Two names with one word vector would leave the covariance singular.
    jitter = JITTER * torch.eye(problems.kernel.shape[-1]).to(x)
    root = torch.linalg.cholesky(problems.kernel + jitter)  # W = root @ Z, penalty on |Z|^2
    # In the basis of the singular vectors the curvature of the images is nearly diagonal, and
    # scaling by it leaves L-BFGS little to learn.
    basis, sizes = _basis(x)
    turned = x @ basis  # (N, R)
    total = problems.weights.sum(dim=1)
    used = problems.classes.sum(dim=1)
    spread = problems.kernel.diagonal(dim1=1, dim2=2).mean(dim=1)
    curvature = (total / len(x) * spread / used)[:, None] * sizes ** 2 + problems.penalty[:, None]
    scale = curvature.rsqrt()[:, None]  # (B, 1, R)
    bias_scale = (total / used).rsqrt()[:, None]
    hidden = ~problems.classes[:, None]
    count, rank = root.shape[1], turned.shape[1]

    def unpack(flat: Tensor) -> tuple[Tensor, Tensor]:
        z, b = flat.split([count * rank, count], dim=1)
        return z.view(-1, count, rank) * scale, b * bias_scale

    def value(flat: Tensor) -> tuple[Tensor, Tensor]:
        z, b = unpack(flat)
        logits = (turned @ (root @ z).mT + b[:, None]).masked_fill_(hidden, -torch.inf)
        norm = logits.logsumexp(dim=2)
        picked = logits[:, rows, problems.labels]
        # An image of a class that a problem does not know has no weight there.
        loss = (norm - picked).masked_fill(problems.weights == 0, 0).mul(problems.weights).sum(1)
        loss = loss + problems.penalty / 2 * z.square().sum(dim=(1, 2))
        error = (logits - norm[:, :, None]).exp_()
        error[:, rows, problems.labels] -= 1
        error *= problems.weights[:, :, None]
        slope = root.mT @ (error.mT @ turned) + problems.penalty[:, None, None] * z
        return loss, torch.cat([(slope * scale).flatten(1), error.sum(dim=1) * bias_scale], dim=1)

    start = x.new_zeros(len(root), count * rank + count)
    z, b = unpack(minimise(value, start, steps, tolerance * total.sqrt()))
    dual = torch.linalg.solve_triangular(root.mT, z, upper=True) @ basis.T
    mean = b.masked_fill(hidden[:, 0], 0).sum(1, keepdim=True) / used[:, None]
    return Fits(dual, (b - mean).masked_fill(hidden[:, 0], 0))


def _basis(x: Tensor) -> tuple[Tensor, Tensor]:
    """Right singular vectors (D, R) and values (R,) of x, without those that are zero."""
    sizes, vectors = torch.linalg.eigh((x.T @ x).double())
    keep = sizes > sizes[-1] * 1e-10
    return vectors[:, keep].to(x), sizes[keep].sqrt().to(x)


def minimise(value: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor, steps: int,
             tolerance: Tensor) -> Tensor:
    """L-BFGS for B convex problems at once, each with its own curvature and step length.

    Args:
        value (Callable): From points (B, n) to their values (B,) and gradients (B, n).
        start (Tensor): Shape (B, n).
        steps (int): Most steps.
        tolerance (Tensor): Norms of the gradients from which on a problem is solved, (B,).
    """
    point, (loss, slope) = start, value(start)
    moves: list[tuple[Tensor, Tensor, Tensor]] = []
    for _ in range(steps):
        open_ = slope.norm(dim=1) > tolerance
        if not open_.any():
            break
        direction = _direction(slope, moves)
        length = torch.ones_like(loss)
        if not moves:
            length = length / slope.norm(dim=1).clamp(min=1)
        along = (direction * slope).sum(1)
        waiting = open_.clone()
        for _ in range(20):  # halves the steps of the problems that rose
            new = point + (length * open_)[:, None] * direction
            new_loss, new_slope = value(new)
            waiting = open_ & ~(new_loss <= loss + 1e-4 * length * along + 1e-6 * loss.abs())
            if not waiting.any():
                break
            length = torch.where(waiting, length / 2, length)
        moved = open_ & ~waiting
        step, change = new - point, new_slope - slope
        curve = (step * change).sum(1)
        good = moved & (curve > 1e-10 * step.norm(dim=1) * change.norm(dim=1))
        moves = [*moves, (step * good[:, None], change * good[:, None],
                          torch.where(good, 1 / curve.clamp(min=1e-30), 0))][-MEMORY:]
        point = torch.where(moved[:, None], new, point)
        loss, slope = torch.where(moved, new_loss, loss), torch.where(
            moved[:, None], new_slope, slope)
        if not moved.any():
            break
    return point


def _direction(slope: Tensor, moves: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    direction, parts = -slope, []
    for step, change, inverse in reversed(moves):
        part = inverse * (step * direction).sum(1)
        direction = direction - part[:, None] * change
        parts.append(part)
    if moves:
        step, change, inverse = moves[-1]
        size = (step * change).sum(1) / change.square().sum(1).clamp(min=1e-30)
        direction = direction * torch.where(inverse > 0, size, 1)[:, None]
    for (step, change, inverse), part in zip(moves, reversed(parts)):
        direction = direction + (part - inverse * (change * direction).sum(1))[:, None] * step
    return direction
