"""Rows of a table that belong to classes, and reductions inside groups of samples.

Every shape follows from the shapes of the arguments and nothing is read back from the device, so
these functions never make the host wait. Sums inside a group are products with a 0/1 matrix:
unlike ``index_add`` on a GPU (atomic additions in any order) they give the same bits on every
rank.
"""
import torch
from torch import Tensor

# Tables up to this many rows are multiplied whole; of larger ones only the rows of the batch.
SMALL_TABLE = 512


def unit(vectors: Tensor, eps: float = 1e-12) -> Tensor:
    """Scales rows to norm one; rows of zeros stay zeros and huge ones do not overflow."""
    tiny = torch.finfo(vectors.dtype).tiny
    vectors = vectors / vectors.abs().amax(dim=-1, keepdim=True).clamp_min(tiny)
    return vectors / vectors.norm(dim=-1, keepdim=True).clamp_min(eps)


def finite_rows(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Replaces rows with an infinity or NaN by zeros.

    Args:
        vectors (Tensor): Shape (..., N, D).

    Returns:
        tuple[Tensor, Tensor]: The vectors, and which rows were finite, shape (..., N).
    """
    finite = vectors.isfinite().all(dim=-1)
    return torch.where(finite[..., None], vectors, 0.0), finite


def own_columns(classes: Tensor, offsets: Tensor,
                width: int | None = None) -> tuple[Tensor, Tensor]:
    """Rows of the prototype table that belong to each class.

    Args:
        classes (Tensor): Shape (B,).
        offsets (Tensor): Where each class begins, shape (C + 1,).
        width (int, optional): Largest K, if it is known. Defaults to None, which reads it from
            ``offsets``.

    Returns:
        tuple[Tensor, Tensor]: Rows, shape (B, width), and which of them exist, same
        shape. Beyond a class's K its last row is repeated.
    """
    if width is None:
        width = int(offsets.diff().max())
    first, last = offsets[classes, None], offsets[classes + 1, None]
    rows = first + torch.arange(width, device=classes.device)
    return torch.minimum(rows, last - 1), rows < last


def own_cosines(features: Tensor, labels: Tensor, prototypes: Tensor, offsets: Tensor,
                width: int | None = None) -> tuple[Tensor, Tensor]:
    """Cosines between each feature and the prototypes of its own class.

    Args:
        features (Tensor): Unit-norm features, shape (N, D).
        labels (Tensor): Class of each feature in [0, C), shape (N,).
        prototypes (Tensor): Prototypes of any norm, shape (P, D).
        offsets (Tensor): Where each class begins, shape (C + 1,).
        width (int, optional): Largest K, if it is known. Defaults to None.

    Returns:
        tuple[Tensor, Tensor]: Cosines, -inf beyond a class's K, and the rows of
        ``prototypes`` they belong to, both of shape (N, max K).
    """
    rows, real = own_columns(labels, offsets, width)
    if len(prototypes) <= SMALL_TABLE:
        cosine = (features @ unit(prototypes.to(features.dtype)).T).gather(1, rows)
    else:
        own = unit(prototypes[rows].to(features.dtype))
        cosine = torch.bmm(own, features[:, :, None])[:, :, 0]
    # -inf, not a large negative: a cosine of -1 must still win inside its class.
    return cosine.masked_fill(~real, -torch.inf), rows


def make_offsets(num_prototypes: int | Tensor, total: int, device: torch.device) -> Tensor:
    """First row of each class in the table of ``total`` prototypes, shape (C + 1,).

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
