import math

import pytest
import torch
from torch.nn.functional import normalize

from experiments.mode_agreement import kmeans_clusters, mode_agreement, nearest_clusters


def entropy(counts, total):
    return -sum(n / total * math.log(n / total) for n in counts if n)


def plain_nmi(first, second):
    total = len(first)
    joint = {}
    for pair in zip(first, second):
        joint[pair] = joint.get(pair, 0) + 1
    h_first = entropy([first.count(x) for x in set(first)], total)
    h_second = entropy([second.count(x) for x in set(second)], total)
    shared = h_first + h_second - entropy(joint.values(), total)
    return 2 * shared / (h_first + h_second)


def test_agreement_is_the_mean_of_each_primitives_information():
    labels = torch.tensor([0] * 6 + [1] * 3)
    modes = torch.tensor([0, 0, 0, 1, 1, 1, 0, 1, 1])
    clusters = torch.tensor([4, 4, 5, 5, 5, 5, 7, 8, 7])

    found = mode_agreement(clusters, modes, labels)

    expected = (6 * plain_nmi([0, 0, 0, 1, 1, 1], [4, 4, 5, 5, 5, 5])
                + 3 * plain_nmi([0, 1, 1], [7, 8, 7])) / 9
    assert found == pytest.approx(expected, abs=1e-9)


def test_agreement_ignores_names_of_clusters():
    modes, labels = torch.tensor([0, 1, 0, 1]), torch.zeros(4, dtype=torch.long)
    assert mode_agreement(torch.tensor([9, 2, 9, 2]), modes, labels) == pytest.approx(1.0)
    assert mode_agreement(torch.tensor([3, 3, 3, 3]), modes, labels) == pytest.approx(0.0)


def test_kmeans_finds_planted_modes_and_nearest_follows_prototypes():
    generator = torch.Generator().manual_seed(0)
    labels, modes = torch.arange(80) % 2, (torch.arange(80) // 2) % 2
    centres = normalize(torch.randn(4, 16, generator=generator), dim=1)
    features = centres[2 * labels + modes] + 0.05 * torch.randn(80, 16, generator=generator)

    clusters = kmeans_clusters(features, labels, torch.tensor([2, 2]))

    assert mode_agreement(clusters, modes, labels) == pytest.approx(1.0)
    nearest = nearest_clusters(features, labels, centres, torch.tensor([0, 2, 4]))
    assert torch.equal(nearest, 2 * labels + modes)
