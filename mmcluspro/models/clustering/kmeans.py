"""Spherical k-means, to start prototypes from features (once, before training)."""
import torch
from torch import Tensor

from .segments import unit

JITTER = 0.1


def random_directions(num: int, dim: int, generator: torch.Generator) -> Tensor:
    """Unit vectors in random directions, shape (num, dim), on the CPU."""
    return unit(torch.randn(num, dim, generator=generator))


def initial_prototypes(features: Tensor, labels: Tensor, offsets: Tensor,
                       generator: torch.Generator) -> Tensor:
    """Spherical k-means inside each class; random directions for classes without features.

    Args:
        features (Tensor): Unit-norm features, shape (N, D).
        labels (Tensor): Class of each, shape (N,).
        offsets (Tensor): Where each class begins, shape (C + 1,).
        generator (torch.Generator): Source of randomness, on the CPU.

    Returns:
        Tensor: Unit-norm prototypes, shape (offsets[-1], D).
    """
    bounds = offsets.tolist()
    prototypes = random_directions(bounds[-1], features.shape[1], generator).to(features)
    for c in labels.unique().tolist():  # once, before training
        prototypes[bounds[c]:bounds[c + 1]] = spherical_kmeans(
            features[labels == c], bounds[c + 1] - bounds[c], generator)
    return prototypes


def spherical_kmeans(features: Tensor, num_clusters: int, generator: torch.Generator,
                     steps: int = 20) -> Tensor:
    """Unit-norm centres that maximise the summed cosine to the features, k-means++ seeded.

    Centres are always distinct directions: with fewer different features than centres the
    surplus ones are features moved by a little noise.

    Args:
        features (Tensor): Unit-norm features, shape (N, D) with N >= 1.
        num_clusters (int): K.
        generator (torch.Generator): Source of randomness, on the CPU.
        steps (int): Most Lloyd steps. Defaults to 20.

    Returns:
        Tensor: Centres, shape (K, D).
    """
    centres = _plus_plus(features, num_clusters, generator)
    column = torch.arange(num_clusters, device=features.device)
    previous = None
    for _ in range(steps):
        nearest = (features @ centres.T).argmax(dim=1)
        if previous is not None and torch.equal(nearest, previous):
            break
        sums = (nearest == column[:, None]).to(features.dtype) @ features
        filled = sums.norm(dim=1, keepdim=True) > 1e-6
        centres = torch.where(filled, unit(sums), centres)
        previous = nearest
    return _make_distinct(centres, generator)


def _plus_plus(features: Tensor, num_clusters: int, generator: torch.Generator) -> Tensor:
    """Features drawn one by one, with probability growing with the distance to those drawn."""
    pick = int(torch.randint(len(features), (1, ), generator=generator))
    picks, distance = [pick], torch.full_like(features[:, 0], torch.inf)
    while len(picks) < num_clusters:
        distance = torch.minimum(distance, (1 - features @ features[picks[-1]]).clamp_min(0))
        weights = distance.cpu().double() + 1e-9
        picks.append(int(torch.multinomial(weights, 1, generator=generator)))
    return features[torch.tensor(picks, device=features.device)]


def _make_distinct(centres: Tensor, generator: torch.Generator) -> Tensor:
    """Moves centres that repeat an earlier one or, made of zero features, have no direction."""
    noise = random_directions(len(centres), centres.shape[1], generator).to(centres)
    again = ((centres @ centres.T).tril(diagonal=-1) > 1 - 1e-6).any(dim=1)
    empty = centres.norm(dim=1) < 0.5
    return unit(centres + (JITTER * again + empty)[:, None].to(centres.dtype) * noise)
