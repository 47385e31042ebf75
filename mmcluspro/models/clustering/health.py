"""How the prototypes of a bank are doing: how much each is used, and numbers for the log."""
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .assigners import LocalAwareOT
from .segments import own_columns, unit

if TYPE_CHECKING:
    from .prototypes import PrototypeBank


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


@torch.no_grad()
def bank_health(bank: 'PrototypeBank') -> dict[str, float]:
    """Numbers to log; reading them makes the host wait. Warns if a solve did not converge.

    Returns:
        dict[str, float]: ``used``, the share of prototypes that are not dead; ``balance``,
        the mean entropy of usage in primitives with K > 1 over its maximum log K;
        ``drift``, the mean 1 - cosine of the last update; ``lag``, the mean 1 - cosine
        between a prototype and the mean of its features (those in the queue that are nearest
        to it or, without a queue, those of the last batch); ``transport``, the share of
        features since the last call that transport decided.
    """
    if isinstance(bank.assigner, LocalAwareOT):
        bank.assigner.warn_if_unconverged()
    transport = int(bank.transported) / max(int(bank.assigned), 1)
    bank.transported.zero_()
    bank.assigned.zero_()
    drift, lag = _distances(bank)
    return dict(
        used=1 - float(bank.dead().float().mean()),
        balance=float(usage_balance(bank.count_usage(), bank.offsets)),
        drift=drift, lag=lag, transport=transport)


def _distances(bank: 'PrototypeBank') -> tuple[float, float]:
    """Drift and lag."""
    drift = lag = torch.zeros(())
    if bank.last_move:
        old, new, means, moving = (each[bank.last_move[4]] for each in bank.last_move[:4])
        if bool(moving.any()):
            drift = (1 - (old * new).sum(dim=1))[moving].mean()
            lag = (1 - (new * unit(means)).sum(dim=1))[moving].mean()
    if bank.queue is not None:
        means, used = queue_means(bank)
        lag = (1 - (bank.prototypes * unit(means)).sum(dim=1))[used].mean()
    return float(drift), float(lag)


def queue_means(bank: 'PrototypeBank') -> tuple[Tensor, Tensor]:
    """Mean of the features in the queue that are nearest to each prototype.

    Returns:
        tuple[Tensor, Tensor]: Means, zero where there is none, shape (P, D), and which prototypes
        have one, shape (P,).
    """
    features, pushed = bank.context()
    assert features is not None and pushed is not None
    held = torch.arange(features.shape[1], device=pushed.device) < pushed[:, None]
    columns, real = own_columns(torch.arange(bank.num_classes, device=pushed.device),
                                bank.offsets, bank.width)
    cosine = features @ bank.prototypes[columns].transpose(1, 2)
    nearest = cosine.masked_fill(~real[:, None], -torch.inf).argmax(dim=2)
    member = (nearest[:, None] == torch.arange(bank.width, device=pushed.device)[:, None])
    member = member & held[:, None]
    count = member.sum(dim=2)
    means = member.to(features.dtype) @ features / count.clamp_min(1)[:, :, None]
    return means[real], count[real] > 0
