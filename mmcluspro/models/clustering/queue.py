"""A short memory of recent features per primitive, over which transport goes."""
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..state import declare_training_only


class FeatureQueue(nn.Module):
    """Ring buffer of the last ``size`` features of each class.

    The first row takes what is not to be kept, so that writing needs no selection; it always
    holds zeros.

    Args:
        num_classes (int): C.
        size (int): Features kept per class.
        dim (int): D.
    """
    features: Tensor
    pushed: Tensor

    def __init__(self, num_classes: int, size: int, dim: int) -> None:
        super().__init__()
        self.num_classes, self.size = num_classes, size
        self.register_buffer('features', torch.zeros(1 + num_classes * size, dim))
        self.register_buffer('pushed', torch.zeros(num_classes, dtype=torch.long))
        # A head that scores with prototypes keeps them in a file, and needs no queue for that.
        declare_training_only(self)

    def push(self, features: Tensor, labels: Tensor, valid: Tensor | None = None) -> None:
        """Stores features, the oldest of a class first to go.

        Args:
            features (Tensor): Shape (N, D).
            labels (Tensor): Class of each, shape (N,).
            valid (Tensor, optional): Which of them to store, shape (N,). Defaults to all.
        """
        if valid is None:
            valid = torch.ones_like(labels, dtype=torch.bool)
        push_together([self], features[None], labels[None], valid[None])

    def context(self) -> tuple[Tensor, Tensor]:
        """The stored features of all classes.

        Returns:
            tuple[Tensor, Tensor]: Features (C, size, D), a view, and how often each class was
            pushed, shape (C,): that many exist, at most ``size``.
        """
        return self.features[1:].view(self.num_classes, self.size, -1), self.pushed

    def clear(self) -> None:
        """Forgets everything."""
        self.features.zero_()
        self.pushed.zero_()


@torch.no_grad()
def push_together(queues: Sequence[FeatureQueue], features: Tensor, labels: Tensor,
                  valid: Tensor) -> None:
    """:meth:`FeatureQueue.push` of G queues of the same size.

    Args:
        queues (Sequence[FeatureQueue]): The queues.
        features (Tensor): Finite features, shape (G, N, D).
        labels (Tensor): Class of each, shape (G, N).
        valid (Tensor): Which of them to store, shape (G, N).
    """
    size = queues[0].size
    same = (labels[:, :, None] == labels[:, None]) & valid[:, None]
    count = same.sum(dim=2)
    earlier = same.tril(-1).sum(dim=2)
    pushed = torch.stack([queue.pushed[label] for queue, label in zip(queues, labels)])
    # Of more than `size` features of a class only the last may land: a slot written twice
    # has no defined winner.
    keep = valid & (earlier >= count - size)
    slots = torch.where(keep, labels * size + (pushed + earlier) % size + 1, 0)
    values = torch.where(keep[:, :, None], features, 0.0).to(queues[0].features.dtype)
    for queue, *each in zip(queues, slots, values, labels, pushed + count):
        queue.features.index_copy_(0, each[0], each[1])
        queue.pushed.index_copy_(0, each[2], each[3])
