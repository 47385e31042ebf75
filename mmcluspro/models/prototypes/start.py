"""The start of prototypes: how many each primitive gets, and k-means inside each of them."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .problems import unit

JITTER = 0.1


def balanced_sample(labels: Sequence[Tensor], count: int) -> Tensor:
    """Chooses images so that every primitive has as many as possible, or all that it has.

    An image counts as early as the primitive that needs it more: of its attribute and its object,
    the one in which it has the lower place. Places are dealt out evenly over the list.

    Args:
        labels (Sequence[Tensor]): Primitive of each image in each branch, shapes (N,).
        count (int): Images to choose.

    Returns:
        Tensor: Their indices in order, shape (min(count, N),).

    >>> common, rare = torch.zeros(6, dtype=torch.long), torch.tensor([0, 0, 0, 1, 0, 0])
    >>> balanced_sample([common, rare], 2)
    tensor([0, 3])
    """
    num = len(labels[0])
    if count >= num:
        return torch.arange(num)
    # Golden-section steps: any beginning of this order is spread evenly over the list.
    spread = (torch.arange(num, dtype=torch.float64) * 0.6180339887498949 % 1).argsort(stable=True)
    place = torch.full((num, ), num)
    for label in labels:
        order = spread[label[spread].argsort(stable=True)]
        size = torch.bincount(label)
        start = size.cumsum(0) - size
        rank = torch.empty_like(order)
        rank[order] = torch.arange(num) - start[label[order]]
        place = torch.minimum(place, rank)
    return spread[place[spread].argsort(stable=True)[:count]].sort()[0]


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


def choose_sizes(rule: int | str, features: Tensor, labels: Tensor, counts: Tensor,
                 max_prototypes: int, generator: torch.Generator) -> Tensor:
    """K of each primitive, shape (C,).

    Args:
        rule (int or str): A number, 'share' (:func:`share_rule`) or 'auto'
            (:func:`held_out_rule`).
        features (Tensor): Unit-norm features, shape (N, D).
        labels (Tensor): Primitive of each, shape (N,).
        counts (Tensor): Training samples of each primitive, shape (C,).
        max_prototypes (int): Largest K of 'auto'.
        generator (torch.Generator): Source of randomness, on the CPU.
    """
    if rule == 'share':
        return share_rule(counts)
    if rule == 'auto':
        return held_out_rule(features, labels, len(counts), generator, max_prototypes)
    return torch.full((len(counts), ), int(rule))


def share_rule(counts: Tensor) -> Tensor:
    """Table 11: one prototype up to 5% of the training samples, one more for each further
    5%, five above 20%.

    Args:
        counts (Tensor): Training samples of each primitive, shape (C,).

    Returns:
        Tensor: K of each primitive, 1 to 5, shape (C,).
    """
    total = counts.sum().clamp_min(1)
    # ceil(20 * counts / total) in integers: a share of exactly 5% must give 1.
    return torch.div(20 * counts + total - 1, total, rounding_mode='floor').clamp(1, 5)


def held_out_rule(features: Tensor,
                  labels: Tensor,
                  num_classes: int,
                  generator: torch.Generator,
                  max_prototypes: int = 5,
                  min_gain: float = 0.1,
                  min_samples: int = 8) -> Tensor:
    """Data-driven K: as many prototypes as pay on samples they were not fitted to.

    The samples of a primitive are split in two; spherical k-means is fitted on each half for
    K = 1, 2, ... and scored on the other by D(K) = mean(1 - cosine to the nearest centre).
    More centres than there are modes are fitted to noise, and D stops falling.
    The smallest K with ``D(K) <= min_j D(j) + min_gain * D(1)`` is taken.

    Args:
        features (Tensor): Unit-norm features of the training set, shape (N, D).
        labels (Tensor): Primitive of each, shape (N,).
        num_classes (int): C.
        generator (torch.Generator): Source of randomness, on the CPU.
        max_prototypes (int): Largest K. Defaults to 5.
        min_gain (float): What counts as a gain, as a share of D(1). Defaults to 0.1.
        min_samples (int): Samples a prototype must have at least: K is at most the
            primitive's samples divided by this. Defaults to 8.

    Returns:
        Tensor: K of each primitive, shape (C,).
    """
    sizes = torch.ones(num_classes, dtype=torch.long)
    order = torch.randperm(len(labels), generator=generator).to(labels.device)
    features, labels = features[order], labels[order]
    for c in range(num_classes):  # once, before training
        own = features[labels == c]
        candidates = range(1, min(max_prototypes, len(own) // min_samples) + 1)
        if len(candidates) > 1:
            scores = torch.tensor([_held_out_distance(own, k, generator) for k in candidates])
            good = scores <= scores.min() + min_gain * scores[0]
            sizes[c] = candidates[int(good.int().argmax())]
    return sizes


def _held_out_distance(features: Tensor, num_clusters: int, generator: torch.Generator) -> float:
    halves = features[0::2], features[1::2]
    total = 0.0
    for fit, held_out in (halves, halves[::-1]):
        centres = spherical_kmeans(fit, num_clusters, generator)
        total += float((1 - (held_out @ centres.T).amax(dim=1)).mean())
    return total / 2
