"""Rows of all ranks in one tensor, also where the ranks hold different numbers of them.

A rank whose batch is smaller than the first one (the last batch of an epoch without
``round_up``) fills up with NaN rows, which assignment, update and losses leave out. So only the
first batch asks for the sizes, and no later step makes the host wait. A run that is resumed may
begin with a small batch: ``least`` tells the size of the others.
"""
from typing import Any

import torch
from mmengine.dist import all_gather, get_rank, get_world_size
from torch import Tensor, nn


class _GatherRows(torch.autograd.Function):
    """Interleaves dimension 1 of all ranks; gradients go back to the rank a row came from."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        return torch.stack(all_gather(rows.contiguous()), dim=2).flatten(1, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        gradient = gradient.contiguous()
        torch.distributed.all_reduce(gradient)
        return gradient[:, get_rank()::get_world_size()]


class RowGatherer:
    """Gathers rows of the ranks, in the order that one process would see.

    mmengine's samplers deal images out to the ranks in turn, so rows are taken in turn again:
    the queues of the prototypes then forget the same features on any number of ranks.

    The backward pass sums what all ranks ask for. Where every rank computes the same loss from
    the gathered rows, that is the world size times too much, which is what DDP's average
    takes away again.
    """

    def __init__(self) -> None:
        self.least = 0  # rows that will come, for a run that starts with a smaller batch
        self.capacity = 0

    def _padded_size(self, rows: Tensor) -> int:
        """Rows of the largest batch, the same on every rank."""
        size = rows.shape[1]
        if not self.capacity:
            sizes = all_gather(torch.tensor([size], device=rows.device))
            self.capacity = max(int(torch.cat(sizes).max()), self.least)
        if size > self.capacity:
            raise ValueError(
                f'A batch of {size} images follows batches of {self.capacity}. With several '
                'processes the first batch of a run must be the largest one.')
        return self.capacity

    def __call__(self, rows: Tensor, fill: float = torch.nan) -> Tensor:
        """Joins the ranks' rows.

        Args:
            rows (Tensor): Rows of this rank, shape (G, N, ...).
            fill (float): What missing rows hold. Defaults to NaN.

        Returns:
            Tensor: Shape (G, world * capacity, ...), or ``rows`` itself in one process.
        """
        if get_world_size() == 1:
            return rows
        missing = self._padded_size(rows) - rows.shape[1]
        if missing:
            padding = (0, 0) * (rows.dim() - 2) + (0, missing)
            rows = nn.functional.pad(rows, padding, value=fill)
        return _GatherRows.apply(rows)

    def local(self, gathered: Tensor, size: int) -> Tensor:
        """This rank's ``size`` rows out of a gathered tensor (world * capacity, ...)."""
        if get_world_size() == 1:
            return gathered
        return gathered[get_rank()::get_world_size()][:size]
