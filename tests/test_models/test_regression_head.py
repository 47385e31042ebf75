"""Regressions and class means: scikit-learn's minima and discriminants, new words, export."""
import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

from mmcluspro.models import Candidates
from mmcluspro.models.heads import Settings, regression
from mmcluspro.models.heads.regression import ClassMeans
from mmcluspro.models.softmax import Problems, fit


def images(count=300, width=12, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    x = rng.normal(size=(count, width)) + 0.7 * rng.normal(size=(classes, width))[labels]
    return torch.from_numpy(x / np.linalg.norm(x, axis=1, keepdims=True)), torch.from_numpy(labels)


@pytest.mark.parametrize('c', [0.1, 10.0, 1000.0])
def test_a_fit_is_scikit_learns_logistic_regression(c):
    x, labels = images()
    found = fit(Problems.path(x, labels, 5, [1 / c]), steps=500, tolerance=1e-7)
    peer = LogisticRegression(C=c, tol=1e-10, max_iter=10_000).fit(x.numpy(), labels.numpy())
    mine = (x @ found.weight[0].T + found.bias[0]).softmax(dim=1)
    np.testing.assert_allclose(mine, peer.predict_proba(x.numpy()), atol=1e-4)


def test_problems_that_are_solved_together_are_those_solved_one_by_one():
    x, labels = images()
    held = torch.arange(300) % 3 == 0
    weights = torch.stack([(~held).double(), (labels != 4).double()])
    together = fit(Problems(x, labels, weights, torch.tensor([0.05, 2.0]).double(), 5), 500, 1e-7)
    peer = LogisticRegression(C=20.0, tol=1e-10, max_iter=10_000).fit(
        x[~held].numpy(), labels[~held].numpy())
    mine = (x @ together.weight[0].T + together.bias[0]).softmax(dim=1)
    np.testing.assert_allclose(mine, peer.predict_proba(x.numpy()), atol=1e-4)
    alone = fit(Problems(x, labels, weights[1:], torch.tensor([2.0]).double(), 5), 500, 1e-7)
    torch.testing.assert_close(together.weight[1], alone.weight[0], atol=1e-4, rtol=1e-4)


def test_class_means_of_one_attribute_are_scikit_learns_discriminant(monkeypatch):
    x, labels = images()
    monkeypatch.setattr(regression, 'RIDGE', 1e-9)
    monkeypatch.setattr(regression, 'SHRINKAGE', 0.0)
    means = ClassMeans.fit(x, torch.zeros_like(labels), labels, (1, 5))
    got = means.logits(x, torch.tensor([[0, j] for j in range(5)])) * 300 / 295  # its covariance
    peer = LinearDiscriminantAnalysis(solver='lsqr').fit(x.numpy(), labels.numpy())
    np.testing.assert_allclose(got.softmax(dim=1), peer.predict_proba(x.numpy()), atol=1e-6)


def test_class_means_of_unseen_pairs_are_the_sum_of_their_effects():
    rng = torch.Generator().manual_seed(0)
    effects = [torch.randn(3, 6, generator=rng).double() for _ in range(2)]
    attr, obj = torch.cartesian_prod(torch.arange(3), torch.arange(3)).repeat(40, 1).T
    x = effects[0][attr] + effects[1][obj] + 0.3 * torch.randn(360, 6, generator=rng).double()
    seen = ~((attr == 2) & (obj == 2))
    means = ClassMeans.fit(x[seen], attr[seen], obj[seen], (3, 3))
    pairs = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    right = means.logits(x, pairs).argmax(dim=1) == attr * 3 + obj
    assert right[~seen].double().mean() > 0.95 and right[seen].double().mean() > 0.95


@pytest.fixture
def fitted(zoo):
    head = zoo.head('RegressionHead', dict(type='WordTableText'), in_channels=5)
    features, samples = zoo.batch(5, size=60)
    head.fit(features.composition, head.labels(samples),
             Settings((0.02, 0.2), 0.05, means=0.1))
    return head.eval(), features


@torch.no_grad()
def test_a_fit_is_the_mean_over_penalties_and_the_class_means(zoo, fitted):
    head, features = fitted
    _, samples = zoo.batch(5, size=60)
    labels = head.labels(samples)
    x = F.normalize(features.composition.double(), dim=1)
    means = ClassMeans.fit(x, labels['attr'], labels['obj'], (3, 4))
    pairs = zoo.space.pairs
    expected = 0.1 * means.logits(x, pairs)
    for column, name, strengths in ((0, 'attr', (50, 5)), (1, 'obj', (20, ))):
        peers = [LogisticRegression(C=c, tol=1e-10, max_iter=10_000).fit(
            x.numpy(), labels[name].numpy()) for c in strengths]
        logits = sum(peer.decision_function(x.numpy()) for peer in peers) / len(peers)
        expected = expected + torch.from_numpy(logits)[:, pairs[:, column]]
    got = head.score(features, head.known_candidates).pair.double()
    torch.testing.assert_close(got - got.mean(dim=1, keepdim=True),
                               expected - expected.mean(dim=1, keepdim=True),
                               atol=2e-3, rtol=1e-3)


@torch.no_grad()
def test_a_new_word_is_answered_and_forgotten(zoo, fitted):
    head, features = fitted
    everything = head.score(features, head.known_candidates).pair.clone()
    with pytest.warns(UserWarning, match='Not in the training data: object'):
        asked = Candidates.from_names(head.text, zoo.space, [('wet', 'fox'), ('red', 'cat')])
    assert head.score(features, asked).pair.isfinite().all()
    head.text.restore()
    torch.testing.assert_close(head.score(features, head.known_candidates).pair, everything)


@torch.no_grad()
def test_it_scores_outside_torch(fitted):
    head, features = fitted
    candidates, portable = head.known_candidates, head.portable()
    x = dict(composition=F.normalize(features.composition, dim=1).numpy())
    table = dict(portable.arrays(candidates), pairs=candidates.pairs.numpy())
    np.testing.assert_allclose(portable.score(x, table), head.score(features, candidates).pair,
                               atol=1e-5)


def test_the_loss_of_a_step_is_cross_entropy_over_the_seen_pairs(zoo, fitted):
    head, features = fitted
    _, samples = zoo.batch(5, size=60)
    losses = head.loss(features, samples)
    scores = head.score(features, head.train_candidates)
    labels = head.labels(samples)
    expected = -scores.attribute[torch.arange(60), labels['attr']].log().mean()
    torch.testing.assert_close(losses['attr_loss'], expected)
    assert set(losses) == {'attr_loss', 'obj_loss', 'pair_loss'}
