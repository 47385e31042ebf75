"""CDS-CZSL: specificity, diversity and losses computed by hand, and the limit without them."""
import math

import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models.prototypes.start import spherical_kmeans
from mmcluspro.models.structures import Features

from .conftest import untouched


def images(word_batch, size=12):
    feature, samples = word_batch(size, 64)
    return Features(feature, torch.randn(size, 64), torch.randn(size, 64)), samples


def specificity(head, attr, obj):
    """s of one attribute and one object, from their texts."""
    first, _, last = head.learner
    return torch.sigmoid(last(torch.relu(first(torch.cat([attr, obj])))))[0]


def test_without_specificity_it_is_the_three_path_head(clip_head, word_batch):
    head = clip_head('CDSHead', in_channels=64, gamma=0.0, specificity_weight=0.0)
    plain = clip_head('ThreePathHead')
    plain.text = head.text
    features, samples = images(word_batch)
    torch.testing.assert_close(head(features), plain(features))
    torch.testing.assert_close(head.loss(features, samples), plain.loss(features, samples))


def test_scores_weigh_primitives_by_their_specificity(clip_head, word_batch):
    head = clip_head('CDSHead', in_channels=64, gamma=0.5)
    features, _ = images(word_batch, 3)
    got = head(features)
    texts = head.text(head.known_candidates.text_pairs)
    p = [torch.softmax(head.text.logit_scale.exp() * F.normalize(f, dim=1) @ t.T, 1) for f, t in
         zip((features.attribute, features.object, features.composition), texts)]
    for i in range(3):
        for j, (a, o) in enumerate(head.known_candidates.pairs.tolist()):
            s = specificity(head, texts[0][a], texts[1][o])
            torch.testing.assert_close(got[i, j], p[2][i, j] + s**0.5 * p[0][i, a] * p[1][i, o])


def test_losses_and_gradients(clip_head, word_batch):
    head = clip_head('CDSHead', in_channels=64, specificity_weight=0.7)
    features, samples = images(word_batch)
    labels = head.labels(samples)
    losses = head.loss(features, samples)

    attr, obj, _ = head.text(head.train_candidates.text_pairs)
    diversity, known = head.diversity(features.object, labels['attr'], len(attr))
    logits = head.text.logit_scale.exp() * F.normalize(features.attribute, dim=1) @ attr.T
    total, error, count = 0.0, 0.0, 0
    for row, a, o in zip(logits, labels['attr'].tolist(), labels['obj'].tolist()):
        s = torch.stack([specificity(head, one, obj[o]) for one in attr])
        total += F.cross_entropy((row + s.log())[None], torch.tensor([a]))
        if known[a]:
            error, count = error + (s[a] - (1 - diversity[a]))**2, count + 1
    torch.testing.assert_close(losses['attr_loss'], total / len(samples))
    torch.testing.assert_close(losses['specificity_loss'], 0.7 * error / count)
    sum(losses.values()).backward()
    assert not untouched(head) and count


def test_diversity_is_the_entropy_of_clusters(clip_head):
    head = clip_head('CDSHead', in_channels=64, num_clusters=4)
    directions = torch.eye(64)[:4]
    # Attribute 0 in all four clusters, 1 in one, 2 in two of unequal size, 3 once.
    cluster = torch.tensor([0, 1, 2, 3, 0, 0, 0, 1, 1, 1, 2, 3])
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3])
    got, known = head.diversity(directions[cluster] + 0.01 * torch.randn(12, 64), labels, 5)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(4)
    torch.testing.assert_close(got, torch.tensor([1.0, 0.0, entropy, 0.0, 0.0]))
    assert known.tolist() == [1, 1, 1, 0, 0]
    centres = spherical_kmeans(directions, 4, torch.Generator().manual_seed(0))
    assert (directions @ centres.T).amax(1).min() > 0.99  # the clusters of the example are found


def test_refusals(clip_head):
    with pytest.raises(ValueError, match=r'head\.num_clusters must be at least 2, got 1'):
        clip_head('CDSHead', in_channels=64, num_clusters=1)
    with pytest.raises(ValueError, match="head.fusion must be 'probability'"):
        clip_head('CDSHead', in_channels=64, fusion='logits')
    with pytest.raises(ValueError, match='CDSHead cannot be exported'):
        clip_head('CDSHead', in_channels=64).portable()
