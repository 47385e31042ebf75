"""Devices: chooses one, measures its free memory, and copies integers to it."""
from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor


def find_device(device: str | torch.device | None = None) -> torch.device:
    """The requested device, or a GPU if there is one.

    Raises:
        ValueError: The device does not exist; the message says which ones do.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device is None:
        return torch.device('cuda' if gpus else 'cpu')
    try:
        found = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device must be 'cpu', 'cuda', 'cuda:1' or 'mps', got {device!r}."
                         ) from None
    if found.type == 'cuda' and (found.index or 0) >= gpus:
        raise ValueError(
            f'--device {device}: ' + (f'this machine has {gpus} GPU{"s" * (gpus > 1)}, the first '
                                      'is cuda:0.' if gpus else
                                      'torch sees no GPU. Use --device cpu, or install a torch '
                                      'with CUDA and check nvidia-smi.'))
    if found.type == 'mps' and not torch.backends.mps.is_available():
        raise ValueError(f'--device {device}: torch sees no Apple GPU. Use --device cpu.')
    return found


def free_bytes(device: torch.device) -> int:
    """Free bytes of a device, including memory that torch has reserved but not used, or of the
    host.

    If the system does not report it, the total memory is returned, or 8 GB.
    """
    if device.type == 'cuda' and torch.cuda.is_available():
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    try:
        with open('/proc/meminfo', encoding='ascii') as file:
            for line in file:
                if line.startswith('MemAvailable:'):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return 8 * 1024**3


def reader_threads(device: torch.device, most: int = 2) -> int:
    """How many threads should read images beside the one that computes.

    A GPU leaves the processor to them. Without one they need cores that nobody uses: where there
    are none, they only get in the way of the thread that computes.

    Args:
        device (torch.device): Device that computes.
        most (int): Defaults to 2.
    """
    if device.type != 'cpu':
        return most
    try:
        free = len(os.sched_getaffinity(0)) - os.getloadavg()[0]
    except (AttributeError, OSError):  # not on Linux
        free = float(os.cpu_count() or 1)
    return max(0, min(most, round(free) - 1))


def upload(values: Any, device: torch.device) -> Tensor:
    """Integers as a tensor on a device; the host does not wait for the device.

    ``torch.tensor(values, device='cuda')`` waits until the GPU has finished all queued work. A copy
    from pinned memory is queued instead.

    Args:
        values: An integer, or nested sequences of integers.
        device (torch.device): Target device.

    Returns:
        Tensor: int64, with the shape of ``values``.
    """
    found = torch.tensor(values, dtype=torch.long)
    if device.type == 'cuda':
        found = found.pin_memory()
    return found.to(device, non_blocking=True)
