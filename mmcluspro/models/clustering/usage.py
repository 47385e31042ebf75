"""How much each prototype is used by its primitive, and how evenly."""
import torch
from torch import Tensor

from .segments import own_columns


def updated_usage(usage: Tensor, hits: Tensor, owner: Tensor, num_classes: int,
                  decay: float) -> Tensor:
    """Running share of its primitive's features that each prototype gets.

    A primitive forgets by ``decay`` for each of its features, so that rare ones are not
    called dead for being absent.

    Args:
        usage (Tensor): Shares so far, 1/K at the start, shape (P,).
        hits (Tensor): Features that each prototype got since then, shape (P,).
        owner (Tensor): Primitive of each prototype, shape (P,).
        num_classes (int): C.
        decay (float): In [0, 1].

    Returns:
        Tensor: New shares; they still sum to one inside a primitive, shape (P,).
    """
    # Sums of whole numbers are exact in any order, so scattered additions do no harm here.
    seen = usage.new_zeros(num_classes).scatter_add_(0, owner, hits)[owner]
    # Without features the weight is one, which leaves the old share as it is.
    return torch.lerp(hits / seen.clamp_min(1), usage, decay**seen)


def usage_balance(usage: Tensor, offsets: Tensor) -> Tensor:
    """Mean entropy of usage over its maximum log K, in primitives with K > 1 (else 1)."""
    sizes = offsets.diff()
    several = sizes > 1
    if not bool(several.any()):
        return usage.new_ones(())
    rows, real = own_columns(torch.arange(len(sizes), device=sizes.device), offsets)
    shares = torch.where(real, usage[rows], 0.0)
    entropy = -torch.xlogy(shares, shares).sum(dim=1)
    return (entropy[several] / sizes[several].log()).mean()
