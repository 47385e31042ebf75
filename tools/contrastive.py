"""Shared parts of the two pre-training tools: CLIP's loss, learning rate, small vocabulary."""
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Warm-up over 200 steps, constant, linear to zero in the last quarter.

    A constant middle lets a run be ended early: resume it with fewer steps.
    """
    return peak * min((step + 1) / 200, 1.0, (steps - step) / (0.25 * steps))


def clip_loss(image: Tensor, text: Tensor, scale: Tensor, ids: Tensor) -> Tensor:
    """CLIP's symmetric loss; equal captions in a batch share the target.

    Args:
        image (Tensor): Features of the images, shape (N, D), not normalised.
        text (Tensor): Features of their captions, shape (N, D), not normalised.
        scale (Tensor): Inverse temperature.
        ids (Tensor): Tokens of the captions, shape (N, L).
    """
    logits = scale * F.normalize(image, dim=1) @ F.normalize(text, dim=1).T
    same = (ids[:, None] == ids[None]).all(dim=2).float()
    target = same / same.sum(dim=1, keepdim=True)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


class Vocabulary:
    """The tokens that captions use, as rows of a small embedding; unused ones cost no time.

    Args:
        ids (Iterable[Tensor]): Token ids, each of shape (L,).
    """

    def __init__(self, ids: Iterable[Tensor]) -> None:
        self.used = torch.stack(list(ids)).unique()

    def rows(self, ids: Tensor) -> Tensor:
        """Rows of the small embedding; they are sorted, which keeps EOS the largest."""
        return torch.searchsorted(self.used, ids)

    def shrink(self, owner: nn.Module) -> Tensor:
        """Puts the small embedding into a tower; returns the full one as it was."""
        full = owner.token_embedding.weight.detach().clone()
        owner.token_embedding = nn.Embedding.from_pretrained(full[self.used].clone(), freeze=False)
        return full

    def expand(self, full: Tensor, small: Tensor) -> Tensor:
        """The full embedding with the trained rows in their places."""
        full = full.clone()
        full[self.used] = small.detach()
        return full


def save_half(state: dict[str, Tensor], path: Path) -> None:
    """Writes a state dict in half precision."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({name: value.detach().half() if value.is_floating_point() else value
                for name, value in state.items()}, path)
