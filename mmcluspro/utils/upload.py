"""Numbers of the host on a device."""
from typing import Any

import torch
from torch import Tensor


def upload(values: Any, device: torch.device) -> Tensor:
    """Integers as a tensor on a device; the host does not wait for the device.

    ``torch.tensor(values, device='cuda')`` waits until the GPU has done everything it was asked
    for. A copy from pinned memory takes its turn instead.

    Args:
        values: An integer, or nested sequences of integers.
        device (torch.device): Where they are needed.

    Returns:
        Tensor: int64, with the shape of ``values``.
    """
    found = torch.tensor(values, dtype=torch.long)
    if device.type == 'cuda':
        found = found.pin_memory()
    return found.to(device, non_blocking=True)
