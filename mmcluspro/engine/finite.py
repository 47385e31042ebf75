"""Marks rows and tensors without NaN and infinity, without waiting for the device."""
from collections.abc import Sequence

import torch
from torch import Tensor


def finite_rows(tensor: Tensor) -> Tensor:
    """Marks rows without NaN and infinity, without waiting for the device.

    Args:
        tensor (Tensor): Floating point, shape (N, ...).

    Returns:
        Tensor: bool, shape (N,).
    """
    return tensor.detach().isfinite().flatten(1).all(dim=1)


def finite_each(tensors: Sequence[Tensor]) -> Tensor:
    """Marks tensors without NaN and infinity, with few kernels for any number of them.

    Args:
        tensors (Sequence[Tensor]): On one device.

    Returns:
        Tensor: bool, shape (len(tensors),).
    """
    norms = torch._foreach_norm([tensor.detach() for tensor in tensors], float('inf'))
    return torch.stack(norms).isfinite()
