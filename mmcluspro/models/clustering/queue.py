"""A short memory of recent features per primitive, as context for the transport problem."""
import torch
from torch import Tensor, nn

from .segments import ClassBlocks


class FeatureQueue(nn.Module):
    """Ring buffer of the last ``size`` features of each class.

    Args:
        num_classes (int): C.
        size (int): Features kept per class.
        dim (int): D.
    """
    features: Tensor
    pushed: Tensor

    def __init__(self, num_classes: int, size: int, dim: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer('features', torch.zeros(num_classes, size, dim))
        self.register_buffer('pushed', torch.zeros(num_classes, dtype=torch.long))

    @torch.no_grad()
    def push(self, features: Tensor, labels: Tensor) -> None:
        """Stores features, the oldest of a class first to go.

        Args:
            features (Tensor): Shape (N, D).
            labels (Tensor): Class of each, shape (N,).
        """
        if not len(labels):
            return
        groups = ClassBlocks.group(labels)
        # Of more than `size` features of a class only the last may land: a slot written twice
        # has no defined winner.
        keep = groups.slot >= groups.counts[groups.block] - self.size
        slot = (self.pushed[labels] + groups.slot) % self.size
        self.features[labels[keep], slot[keep]] = features[keep].to(self.features.dtype)
        self.pushed[groups.classes] += groups.counts

    def context(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Stored features of the classes that occur in ``labels``.

        Returns:
            tuple[Tensor, Tensor]: Features (M, D) and their classes (M,), class by class.
        """
        classes = labels.unique()
        filled = self.pushed[classes].clamp_max(self.size)
        mask = torch.arange(self.size, device=labels.device) < filled[:, None]
        return self.features[classes][mask], classes.repeat_interleave(filled)

    def clear(self) -> None:
        """Forgets everything."""
        self.features.zero_()
        self.pushed.zero_()
