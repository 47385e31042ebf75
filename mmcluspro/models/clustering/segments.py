"""Features of many classes as one padded block, so that no loop over classes is needed.

A block has shape (B, N, ...): ``B`` classes that occur, each with its features
in their order of arrival, padded to the largest class. Reductions inside a class are
then dense, which is faster than scattered ones for the small classes of a
batch and, unlike ``index_add`` on a GPU (atomic additions in any order),
gives the same bits on every rank.
"""
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ClassBlocks:
    """Where each of N features stands in a block of B classes.

    Attributes:
        classes (Tensor): The labels that occur, ascending, shape (B,).
        counts (Tensor): Features of each of them, shape (B,).
        block (Tensor): Class of each feature as an index into ``classes``, shape (N,).
        slot (Tensor): Place of each feature inside its class, shape (N,).
        width (int): Features of the largest class.
    """
    classes: Tensor
    counts: Tensor
    block: Tensor
    slot: Tensor
    width: int

    @classmethod
    def group(cls, labels: Tensor) -> 'ClassBlocks':
        """Groups features by label.

        Args:
            labels (Tensor): Any integers, shape (N,) with N >= 1.
        """
        classes, block, counts = labels.unique(return_inverse=True, return_counts=True)
        order = block.argsort(stable=True)
        first = counts.cumsum(0) - counts
        slot = torch.empty_like(block)
        slot[order] = torch.arange(len(block), device=labels.device) - first[block[order]]
        return cls(classes, counts, block, slot, int(counts.max()))

    @property
    def mask(self) -> Tensor:
        """Tensor: True where a feature stands, shape (B, width)."""
        return torch.arange(self.width, device=self.counts.device) < self.counts[:, None]

    def pad(self, values: Tensor) -> Tensor:
        """Moves per-feature values (N, ...) into a block (B, width, ...), zero elsewhere."""
        out = values.new_zeros((len(self.classes), self.width, *values.shape[1:]))
        out[self.block, self.slot] = values
        return out

    def unpad(self, block: Tensor) -> Tensor:
        """Takes the per-feature values (N, ...) out of a block (B, width, ...)."""
        return block[self.block, self.slot]


def own_columns(classes: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of the prototype table that belong to each class, padded to the largest K.

    Args:
        classes (Tensor): Class indices in [0, C), shape (B,).
        offsets (Tensor): Prototypes ``offsets[c]:offsets[c + 1]`` belong to class
            ``c``, shape (C + 1,).

    Returns:
        tuple[Tensor, Tensor]: Row indices, shape (B, K), where padding repeats the
        class's last row, and the mask of real ones, shape (B, K).
    """
    sizes = offsets.diff()[classes]
    column = torch.arange(int(sizes.max()), device=offsets.device)
    mask = column < sizes[:, None]
    return offsets[classes, None] + torch.minimum(column, sizes[:, None] - 1), mask


def unit(vectors: Tensor, eps: float = 1e-12) -> Tensor:
    """Scales rows to norm one; rows of zeros stay zeros and huge ones do not overflow."""
    tiny = torch.finfo(vectors.dtype).tiny
    vectors = vectors / vectors.abs().amax(dim=-1, keepdim=True).clamp_min(tiny)
    return vectors / vectors.norm(dim=-1, keepdim=True).clamp_min(eps)


def own_cosines(features: Tensor, labels: Tensor, prototypes: Tensor,
                offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines between each feature and the prototypes of its own class.

    Args:
        features (Tensor): Unit-norm features, shape (N, D).
        labels (Tensor): Class of each feature in [0, C), shape (N,).
        prototypes (Tensor): Prototypes of any norm, shape (P, D).
        offsets (Tensor): Where each class begins, shape (C + 1,).

    Returns:
        tuple[Tensor, Tensor]: Cosines, -inf beyond a class's K, and the rows of
        ``prototypes`` they belong to, both of shape (N, max K).
    """
    if not len(labels):
        return features.new_zeros(0, 1), labels.new_zeros(0, 1)
    groups = ClassBlocks.group(labels)
    # Only the classes of the batch: a table of thousands of rows costs more than the rest.
    rows, mask = own_columns(groups.classes, offsets)
    table = unit(prototypes[rows].to(features.dtype))
    cosine = groups.unpad(groups.pad(features) @ table.transpose(1, 2))
    # -inf, not a large negative: a cosine of -1 must still win inside its class.
    return cosine.masked_fill(~mask[groups.block], -torch.inf), rows[groups.block]


def make_offsets(num_prototypes: int | Tensor, total: int, device: torch.device) -> Tensor:
    """Where each class begins in the table of ``total`` prototypes, shape (C + 1,).

    Args:
        num_prototypes (int or Tensor): K of all classes, or of each one, shape (C,).
        total (int): Rows of the table.
        device (torch.device): Device of the result.
    """
    if isinstance(num_prototypes, int):
        if num_prototypes < 1 or total % num_prototypes:
            raise ValueError(f'num_prototypes must divide the {total} rows of prototypes, '
                             f'got {num_prototypes}.')
        return torch.arange(0, total + 1, num_prototypes, device=device)
    sizes = num_prototypes.to(device)
    if bool((sizes < 1).any()) or int(sizes.sum()) != total:
        raise ValueError(f'num_prototypes must be positive and sum to the {total} rows of '
                         f'prototypes, got {sizes.tolist()}.')
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def check_labels(labels: Tensor, num_features: int, num_classes: int) -> None:
    """Raises if there is not one label in [0, num_classes) for each feature."""
    if labels.shape != (num_features, ):
        raise ValueError(f'labels must have one entry for each of the {num_features} features, '
                         f'got shape {tuple(labels.shape)}.')
    if num_features and not bool(((labels >= 0) & (labels < num_classes)).all()):
        raise ValueError(f'labels must lie in [0, {num_classes}), got values from '
                         f'{int(labels.min())} to {int(labels.max())}.')
