"""How much memory a device has left."""
import os

import torch


def free_bytes(device: torch.device) -> int:
    """Bytes that can still be taken: of the device, what torch keeps unused included, or the host.

    Systems that do not tell give their whole memory, or 8 GB.
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
