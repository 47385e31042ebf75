"""The vectors of the names of one vocabulary, to which names can be added after training."""
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class NameTable(nn.Module):
    """One row, or a run of rows, for each name.

    Added names are not parameters: they are not trained, are not saved, and leave the shapes that a
    checkpoint expects as they are.

    Args:
        runs (Sequence[Tensor]): Vectors of each name, shape (number of its tokens, width).
        learn (bool): Train the vectors.
    """

    vectors: nn.Parameter
    added: Tensor

    def __init__(self, runs: Sequence[Tensor], learn: bool) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.cat(list(runs)), requires_grad=learn)
        self.register_buffer('added', self.vectors.detach()[:0].clone(), persistent=False)
        self.own_lengths = tuple(len(run) for run in runs)
        self.lengths = self.own_lengths

    def forward(self) -> Tensor:
        """All vectors in the order of the names, shape (sum of ``lengths``, width)."""
        return torch.cat([self.vectors, self.added]) if len(self.added) else self.vectors

    @torch.no_grad()
    def append(self, runs: Sequence[Tensor]) -> None:
        """Adds names behind those there are."""
        self.added = torch.cat([self.added, *(run.to(self.added) for run in runs)])
        self.lengths += tuple(len(run) for run in runs)

    def restore(self) -> None:
        """Forgets the added names."""
        self.added = self.added[:0].clone()
        self.lengths = self.own_lengths
