"""Softmax regressions: minima against scikit-learn, scores by hand, new words, export."""
import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

from mmcluspro.models import Candidates
from mmcluspro.models.heads import Settings
from mmcluspro.models.softmax import Problems, fit


def images(count=300, width=12, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    x = rng.normal(size=(count, width)) + 0.7 * rng.normal(size=(classes, width))[labels]
    return torch.from_numpy(x / np.linalg.norm(x, axis=1, keepdims=True)), torch.from_numpy(labels)


@pytest.mark.parametrize('c', [0.1, 10.0, 1000.0])
def test_without_words_a_fit_is_scikit_learns_logistic_regression(c):
    x, labels = images()
    found = fit(Problems.single(x, labels, torch.eye(5), 1 / c), steps=500, tolerance=1e-7)
    peer = LogisticRegression(C=c, tol=1e-10, max_iter=10_000).fit(x.numpy(), labels.numpy())
    mine = (x @ found.dual[0].T + found.bias[0]).softmax(dim=1)
    np.testing.assert_allclose(mine, peer.predict_proba(x.numpy()), atol=1e-4)


def test_problems_that_are_solved_together_are_those_solved_one_by_one():
    x, labels = images()
    held = torch.arange(300) % 3 == 0
    known = torch.ones(2, 5, dtype=torch.bool)
    known[1, 4] = False
    weights = torch.stack([(~held).double(), (labels != 4).double()])
    together = fit(Problems(x, labels, weights, torch.eye(5).double().expand(2, -1, -1),
                            torch.tensor([0.05, 2.0]).double(), known), 500, 1e-7)
    for i, (keep, count) in enumerate(((~held, 5), (labels != 4, 4))):
        peer = LogisticRegression(C=(20.0, 0.5)[i], tol=1e-10, max_iter=10_000).fit(
            x[keep].numpy(), labels[keep].numpy())
        mine = (x @ together.dual[i].T + together.bias[i])[:, :count].softmax(dim=1)
        np.testing.assert_allclose(mine, peer.predict_proba(x.numpy()), atol=1e-4)


def test_a_kernel_between_classes_is_the_penalty_with_its_inverse():
    x, labels = images(80, 4, 3)
    words = torch.randn(3, 2, generator=torch.Generator().manual_seed(1)).double()
    kernel = 0.4 * torch.eye(3) + 0.6 * words @ words.T

    def value(flat):
        w = torch.from_numpy(flat[:12]).view(3, 4)
        loss = F.cross_entropy(x @ w.T + torch.from_numpy(flat[12:]), labels, reduction='sum')
        return float(loss + 0.15 * (w * torch.linalg.solve(kernel, w)).sum())

    best = minimize(value, np.zeros(15), method='BFGS', options=dict(gtol=1e-5)).x
    found = fit(Problems.single(x, labels, kernel, 0.3), 500, 1e-7)
    np.testing.assert_allclose(kernel @ found.dual[0], best[:12].reshape(3, 4), atol=2e-3)


@pytest.fixture
def fitted(zoo):
    head = zoo.head('RegressionHead', dict(type='WordTableText'), in_channels=5)
    features, samples = zoo.batch(5, size=60)
    head.fit(features.composition, head.labels(samples),
             Settings(0.02, 0.05, 0.1, words=0.5, pairs=0.3))
    return head.eval(), features


@torch.no_grad()
def test_scores_are_those_of_weights_made_name_by_name(zoo, fitted):
    head, features = fitted
    got = head.score(features, head.known_candidates)
    x = F.normalize(features.composition, dim=1)
    vectors = [head.text.encode_attributes(), head.text.encode_objects()]

    def covariance(kind, i, j):
        return 0.5 * (i == j) + 0.5 * float(vectors[kind][i] @ vectors[kind][j])

    known = zoo.space.train_pairs.tolist()
    logits = []
    for kind, name in enumerate(('attr', 'obj')):
        dual, bias = head.dual[name], head.bias[name]
        logits.append(torch.stack([
            sum(covariance(kind, i, j) * (x @ dual[j]) for j in range(len(dual))) + bias[i]
            for i in range(len(dual))], dim=1).log_softmax(dim=1))
    pair = []
    for a, o in zoo.space.pairs.tolist():
        parts = [(covariance(0, a, b), covariance(1, o, p)) for b, p in known]
        pair.append(sum((s + t + s * t) / 3 * (x @ row)
                        for (s, t), row in zip(parts, head.dual['pair'])))
    pair = torch.stack(pair, dim=1).log_softmax(dim=1)
    for j, (a, o) in enumerate(zoo.space.pairs.tolist()):
        torch.testing.assert_close(
            got.pair[:, j], 0.7 * (logits[0][:, a] + logits[1][:, o]) + 0.3 * pair[:, j],
            atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(got.object, logits[1].exp())


@torch.no_grad()
def test_a_new_word_answers_like_the_word_it_is_near_to(zoo, fitted):
    head, features = fitted
    everything = head.score(features, head.known_candidates).pair.clone()
    with pytest.warns(UserWarning, match='Not in the training data: object'):
        asked = Candidates.from_names(head.text, zoo.space, [('wet', 'fox'), ('red', 'cat')])
    fox = head.text.encode_objects()[-1]
    logit = 0.5 * (head.text.encode_objects()[:4] @ fox) @ (
        head.dual['obj'] @ F.normalize(features.composition, dim=1).T)
    weights = head.weights(asked)
    place = asked.objects.index('fox')
    got = F.normalize(features.composition, dim=1) @ head.dual['obj'].T @ weights['obj'][:, place]
    torch.testing.assert_close(got, logit)
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
