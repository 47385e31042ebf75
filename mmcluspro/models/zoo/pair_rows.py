"""Finds pairs in a list of pairs, and images of a batch that share a name."""
import torch
from torch import Tensor


def pair_rows(known: Tensor, asked: Tensor, objects: int) -> Tensor:
    """Place of pairs in a sorted list.

    Args:
        known (Tensor): Attribute and object of each, sorted by both, shape (N, 2).
        asked (Tensor): The pairs to look for, shape (P, 2).
        objects (int): Number of objects.

    Returns:
        Tensor: Rows of ``known``, -1 for pairs that are not there, shape (P,).
    """
    if not len(known):
        return torch.full_like(asked[:, 0], -1)
    keys, wanted = (pairs[:, 0] * objects + pairs[:, 1] for pairs in (known, asked))
    places = torch.searchsorted(keys, wanted.contiguous()).clamp_max(len(keys) - 1)
    return torch.where(keys[places] == wanted, places, -1)


def sharing(same: Tensor, other: Tensor) -> Tensor:
    """Marks images of a batch with one label in common that differ in the other, shape (B, B).

    Args:
        same (Tensor): The label to share, shape (B,).
        other (Tensor): The label to differ in, shape (B,).
    """
    return (same[:, None] == same) & (other[:, None] != other)


def draw(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Draws one of the allowed images for each image.

    Args:
        allowed (Tensor): Flags, shape (B, B).

    Returns:
        tuple[Tensor, Tensor]: Which image, and whether there is one, shape (B,) each.
    """
    chance = torch.rand(allowed.shape, device=allowed.device).masked_fill_(~allowed, -1)
    return chance.argmax(dim=1), allowed.any(dim=1)
