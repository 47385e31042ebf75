"""Finds NaN and infinity in what a run saves and loads."""
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

# What holds weights; the message hub keeps numbers of the log, which may be anything.
PARTS = ('state_dict', 'ema_state_dict', 'optimizer')


def non_finite_tensors(checkpoint: Mapping[str, Any]) -> list[str]:
    """Names of the weights and optimizer states that hold NaN or infinity.

    Attention masks hold -inf by design; buffers whose name ends with ``mask`` may hold infinity.

    Args:
        checkpoint (Mapping): What ``Runner.save_checkpoint`` writes.

    Returns:
        list[str]: Such as ``state_dict.neck.weight``; empty for a good checkpoint.
    """
    found = []
    for part in PARTS:
        for name, tensor in _tensors(checkpoint.get(part), part):
            if not tensor.is_floating_point():
                continue
            bad = tensor.isnan() if name.endswith('mask') else ~tensor.isfinite()
            if bool(bad.any()):
                found.append(name)
    return found


def _tensors(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f'{name}.{key}')
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _tensors(item, f'{name}.{place}')


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
