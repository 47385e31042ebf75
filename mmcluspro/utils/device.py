"""Which device to run on."""
from __future__ import annotations

import torch


def find_device(device: str | torch.device | None = None) -> torch.device:
    """The device that was asked for, or a GPU where there is one.

    Raises:
        ValueError: There is no such device; says what there is.
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
