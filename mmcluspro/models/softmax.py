"""Softmax regressions, many convex fits of the same images at once.

    minimise  sum_i v_i CE(W x_i + b, y_i) + (penalty / 2) |W|^2

This is the logistic regression of every library, C = 1 / penalty.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

MEMORY = 10  # pairs of steps that L-BFGS remembers


class Problems(NamedTuple):
    """B softmax regressions of the same N images.

    Attributes:
        features (Tensor): Shape (N, D).
        labels (Tensor): Class of each image, shape (N,).
        weights (Tensor): Weight of each image in each problem, 0 for those held out, (B, N).
        penalty (Tensor): Shape (B,).
        classes (int): Number C of classes.
    """
    features: Tensor
    labels: Tensor
    weights: Tensor
    penalty: Tensor
    classes: int

    @classmethod
    def path(cls, features: Tensor, labels: Tensor, classes: int, penalties: Sequence[float]
             ) -> Problems:
        """One problem for each penalty, with all images and classes.

        Args:
            features (Tensor): Shape (N, D).
            labels (Tensor): Shape (N,).
            classes (int): Number C of classes.
            penalties (Sequence[float]): 1 / C of scikit-learn, each.
        """
        count = len(penalties)
        return cls(features, labels, features.new_ones(count, len(features)),
                   features.new_tensor(penalties), classes)


class Fits(NamedTuple):
    """Minima of B problems.

    Attributes:
        weight (Tensor): W, shape (B, C, D).
        bias (Tensor): b, of mean zero over the classes, shape (B, C).
    """
    weight: Tensor
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
    # In the basis of the singular vectors the curvature of the images is nearly diagonal, and
    # scaling by it leaves L-BFGS little to learn.
    basis, sizes = _basis(x)
    turned = x @ basis  # (N, R)
    total = problems.weights.sum(dim=1)
    count, rank = problems.classes, turned.shape[1]
    curvature = (total / len(x) / count)[:, None] * sizes ** 2 + problems.penalty[:, None]
    scale = curvature.rsqrt()[:, None]  # (B, 1, R)
    bias_scale = (total / count).rsqrt()[:, None]

    def unpack(flat: Tensor) -> tuple[Tensor, Tensor]:
        z, b = flat.split([count * rank, count], dim=1)
        return z.view(-1, count, rank) * scale, b * bias_scale

    def value(flat: Tensor) -> tuple[Tensor, Tensor]:
        z, b = unpack(flat)
        logits = turned @ z.mT + b[:, None]
        norm = logits.logsumexp(dim=2)
        picked = logits[:, rows, problems.labels]
        loss = ((norm - picked) * problems.weights).sum(dim=1)
        loss = loss + problems.penalty / 2 * z.square().sum(dim=(1, 2))
        error = (logits - norm[:, :, None]).exp_()
        error[:, rows, problems.labels] -= 1
        error *= problems.weights[:, :, None]
        slope = error.mT @ turned + problems.penalty[:, None, None] * z
        return loss, torch.cat([(slope * scale).flatten(1), error.sum(dim=1) * bias_scale], dim=1)

    start = x.new_zeros(len(total), count * rank + count)
    z, b = unpack(minimise(value, start, steps, tolerance * total.sqrt()))
    return Fits(z @ basis.T, b - b.mean(dim=1, keepdim=True))


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
