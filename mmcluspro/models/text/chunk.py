"""How many prompts run together."""
import torch

from mmcluspro.utils.device import free_bytes

LARGEST = 1024  # more makes no device faster that we know of
SHARE = 0.25  # of the free memory
FLOATS = 16  # per token, layer and channel; measured, see tests/test_models/test_text_chunk.py


def prompt_bytes(tokens: int, width: int, layers: int, keeps: bool) -> int:
    """Bytes that a prompt needs while its chunk runs.

    Args:
        tokens (int): Of the segment that is run for each prompt.
        width (int): Of the tower.
        layers (int): Of the tower.
        keeps (bool): Whether the activations of all layers are kept for backward.
    """
    return 4 * FLOATS * width * tokens * (layers if keeps else 1)


def fitting_chunk(bytes_per_prompt: int, device: torch.device) -> int:
    """The largest power of two, at most :data:`LARGEST`, that fits a share of the free memory.

    Powers of two, because other sizes may round differently: the same machine should choose the
    same size again.
    """
    fits = int(SHARE * free_bytes(device)) // max(bytes_per_prompt, 1)
    return min(LARGEST, 1 << max(fits, 1).bit_length() - 1)
