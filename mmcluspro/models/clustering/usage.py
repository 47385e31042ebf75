"""How much each prototype is used by its primitive, and how evenly."""
import torch
from torch import Tensor

from .segments import ClassBlocks


def fair_shares(offsets: Tensor) -> Tensor:
    """1/K for each prototype, shape (P,)."""
    sizes = offsets.diff()
    return (1 / sizes).repeat_interleave(sizes)


def updated_usage(usage: Tensor, rows: Tensor, labels: Tensor, offsets: Tensor,
                  decay: float) -> Tensor:
    """Running share of its primitive's features that each prototype gets.

    A primitive forgets by ``decay`` for each of its features, so that rare ones are not
    called dead for being absent.

    Args:
        usage (Tensor): Shares so far, 1/K at the start, shape (P,).
        rows (Tensor): Prototype of each feature, shape (N,).
        labels (Tensor): Primitive of each feature, shape (N,).
        offsets (Tensor): Shape (C + 1,).
        decay (float): In [0, 1].

    Returns:
        Tensor: New shares; they still sum to one inside a primitive, shape (P,).
    """
    seen = torch.bincount(labels, minlength=len(offsets) - 1).repeat_interleave(offsets.diff())
    share = torch.bincount(rows, minlength=len(usage)) / seen.clamp_min(1)
    keep = torch.pow(torch.tensor(decay, dtype=usage.dtype, device=usage.device), seen)
    return torch.where(seen > 0, keep * usage + (1 - keep) * share, usage)


def usage_balance(usage: Tensor, offsets: Tensor) -> Tensor:
    """Mean entropy of usage over its maximum log K, in primitives with K > 1 (else 1)."""
    sizes = offsets.diff()
    several = sizes > 1
    if not bool(several.any()):
        return usage.new_ones(())
    owner = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
    shares = ClassBlocks.group(owner).pad(usage)
    entropy = -torch.xlogy(shares, shares).sum(dim=1)
    return (entropy[several] / sizes[several].log()).mean()
