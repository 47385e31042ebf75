"""How well clusters inside a primitive agree with the hidden modes of Shapes."""
import torch
from torch import Tensor

from mmcluspro.models.prototypes.assign import CosineAssigner
from mmcluspro.models.prototypes.problems import make_offsets, unit
from mmcluspro.models.prototypes.start import initial_prototypes


def nearest_clusters(features: Tensor, labels: Tensor, prototypes: Tensor,
                     offsets: Tensor) -> Tensor:
    """Nearest prototype of its own primitive for each feature, (N,).

    Args:
        features (Tensor): Shape (N, D).
        labels (Tensor): Primitive of each, shape (N,).
        prototypes (Tensor): Shape (P, D).
        offsets (Tensor): Where each primitive's prototypes begin, shape (C + 1,).
    """
    return CosineAssigner()(features, labels, prototypes, offsets)


def kmeans_clusters(features: Tensor, labels: Tensor, sizes: Tensor, seed: int = 0) -> Tensor:
    """Spherical k-means inside each primitive, (N,): the reference without training.

    Args:
        features (Tensor): Shape (N, D).
        labels (Tensor): Primitive of each, shape (N,).
        sizes (Tensor): K of each primitive, shape (C,).
        seed (int): Of k-means++. Defaults to 0.
    """
    offsets = make_offsets(sizes, int(sizes.sum()), features.device)
    features = unit(features.float())
    centres = initial_prototypes(
        features, labels, offsets, torch.Generator().manual_seed(seed))
    return nearest_clusters(features, labels, centres, offsets)


def mode_agreement(clusters: Tensor, modes: Tensor, labels: Tensor) -> float:
    """Normalised mutual information of clusters and modes inside a primitive.

    Args:
        clusters (Tensor): Cluster of each image, shape (N,).
        modes (Tensor): Its hidden mode, shape (N,).
        labels (Tensor): Its primitive, shape (N,).

    Returns:
        float: Mean over the images: a primitive counts by its images.
    """
    try:
        from sklearn.metrics import normalized_mutual_info_score
    except ImportError:
        raise ImportError("Agreement with the modes needs scikit-learn: pip install "
                          "'mmcluspro[viz]'.") from None
    total = 0.0
    for label in labels.unique().tolist():
        own = labels == label
        total += int(own.sum()) * normalized_mutual_info_score(
            modes[own].tolist(), clusters[own].tolist())
    return total / len(labels)
