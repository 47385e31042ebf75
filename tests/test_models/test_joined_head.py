"""Regressions joined with text paths: the mean by hand, cross-validation, new words, export."""
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation import held_out
from mmcluspro.evaluation.held_out import CrossValidation, make_folds
from mmcluspro.models import Candidates
from mmcluspro.models.heads import Settings, three_path
from mmcluspro.models.structures import Logits

TEXT = dict(type='WordVectorText', out_dim=6, hidden_dim=6, learn_vectors=True, temperature=0.1)


def build(zoo, share=0.4):
    head = zoo.head('JoinedHead', dict(TEXT), in_channels=5)
    features, samples = zoo.batch(5, size=60)
    labels = head.labels(samples)
    centres = torch.randn(2, 9, 5, generator=torch.Generator().manual_seed(0))
    x = centres[0, labels['attr']] + centres[1, labels['obj']] + 0.1 * features.composition
    head.fit(x, labels, Settings(0.02, 0.05, 0.1, share))
    return head.eval(), x, labels


@torch.no_grad()
def test_the_score_is_the_weighted_geometric_mean_of_both(zoo):
    head, x, labels = build(zoo)
    candidates = head.known_candidates
    found = head.score([x], candidates)
    head.fit(x, labels, Settings(0.02, 0.05, 0.1, 0.0))
    plain = head.score([x], candidates)
    head.fit(x, labels, Settings(0.02, 0.05, 0.1, 1.0))
    texts = head.texts(candidates)
    logits = [10 * F.normalize(head.project[path](x), dim=1) @ text.T for path, text in zip(
        ('attribute', 'object', 'composition'), texts)]
    paths = three_path.fuse(Logits(*logits), candidates)
    torch.testing.assert_close(head.score([x], candidates).pair, paths.pair.log())
    torch.testing.assert_close(found.pair, 0.6 * plain.pair + 0.4 * paths.pair.log())
    joined = plain.object ** 0.6 * paths.object ** 0.4
    torch.testing.assert_close(found.object, joined / joined.sum(dim=1, keepdim=True))


def test_text_paths_learn_and_two_fits_are_equal(zoo):
    head, x, labels = build(zoo, 1.0)
    first = head.score([x], head.train_candidates).pair.detach().clone()
    assert float((first.argmax(dim=1) == labels['pair']).float().mean()) > 0.5
    torch.manual_seed(9)
    head.fit(x, labels, Settings(0.02, 0.05, 0.1, 1.0))
    torch.testing.assert_close(head.score([x], head.train_candidates).pair.detach(), first)


def test_a_fit_for_fewer_pairs_leaves_the_head_alone(zoo):
    head, x, labels = build(zoo)
    before = {name: value.clone() for name, value in head.state_dict().items()}
    seen = torch.ones(len(head.train_candidates), dtype=torch.bool)
    seen[2] = False
    part = CompositionSpace(head.space.attributes, head.space.objects,
                            head.train_candidates.pairs, seen)
    other, keep = head.for_space(part), labels['pair'] != 2
    kept = {name: label[keep] for name, label in labels.items()}
    kept['pair'] = (seen.cumsum(0) - 1)[kept['pair']]
    other.fit(x[keep], kept, Settings(0.02, 0.05, 0.1, 0.4))
    for name, value in head.state_dict().items():
        torch.testing.assert_close(value, before[name])
    assert not torch.equal(other.project['object'].weight, head.project['object'].weight)


def test_cross_validation_weighs_the_parts_by_how_many_pairs_it_could_hold_out(zoo):
    head, x, labels = build(zoo)
    choice = CrossValidation(head, x, labels, 3).choose()
    held = int((~make_folds(labels['pair'], head.train_candidates.pairs, 3).seen).any(dim=0).sum())
    best = (choice.shares * (held + 20) - 20 * np.array([0.5, 0.25, 0.25])) / held
    np.testing.assert_allclose(best.sum(), 1)
    np.testing.assert_allclose(best * 4, np.round(best * 4), atol=1e-6)
    assert 0 < choice.best.settings.texts < 1 and choice.best.settings.means > 0
    assert choice.regressions.settings.texts == choice.regressions.settings.means == 0
    assert f'{choice.shares[2]:.0%} text paths' in str(choice)
    assert np.isfinite(choice.best.bias)


def test_what_cross_validation_rates_is_what_the_fits_of_its_folds_answer(zoo, monkeypatch):
    monkeypatch.setattr(held_out, 'STEPS', 500)
    monkeypatch.setattr(held_out, 'TOLERANCE', 1e-4)
    head, x, labels = build(zoo)
    validation = CrossValidation(head, x, labels, 3)
    found = validation.choose().best
    scores = []
    for train, held, seen in zip(*validation.folds):
        part = CompositionSpace(head.space.attributes, head.space.objects,
                                head.train_candidates.pairs, seen)
        other, rows = head.for_space(part), seen.cumsum(0) - 1
        kept = {name: label[train] for name, label in labels.items()}
        other.fit(F.normalize(x, dim=1)[train], dict(kept, pair=rows[kept['pair']]),
                  found.settings, 1e-4)
        scores.append(other.score([x[held]], head.train_candidates).pair.detach())
    again = validation.rated(found.settings, torch.cat(scores))
    assert again.auc == pytest.approx(found.auc, abs=1.0)
    assert again.bias == pytest.approx(found.bias, abs=0.3)


@torch.no_grad()
def test_new_words_are_answered_and_forgotten(zoo):
    head, x, _ = build(zoo)
    everything = head.score([x], head.known_candidates).pair.clone()
    with pytest.warns(UserWarning, match='Not in the training data: object'):
        asked = Candidates.from_names(head.text, zoo.space, [('wet', 'fox'), ('red', 'cat')])
    assert head.score([x], asked).pair.isfinite().all()
    head.text.restore()
    torch.testing.assert_close(head.score([x], head.known_candidates).pair, everything)


@torch.no_grad()
def test_it_scores_outside_torch(zoo):
    head, x, _ = build(zoo)
    candidates, portable = head.known_candidates, head.portable()
    texts = dict(zip(('text_a', 'text_o', 'text_c'), (
        text.numpy() for text in head.texts(candidates))))
    table = dict(portable.arrays(candidates), pairs=candidates.pairs.numpy(), **texts)
    got = portable.score(dict(composition=F.normalize(x, dim=1).numpy()), table)
    np.testing.assert_allclose(got, head.score([x], candidates).pair, atol=1e-4)


@torch.no_grad()
def test_a_new_word_has_the_weights_expected_of_its_relatives(zoo):
    head, x, _ = build(zoo, 0.0)  # the regressions alone
    with pytest.warns(UserWarning, match='Not in the training data: object'):
        asked = Candidates.from_names(head.text, zoo.space, [('wet', 'fox'), ('red', 'cat')])
    place = asked.objects.index('fox')
    vectors = F.normalize(head.obj_words, dim=1).double().numpy()
    fox = F.normalize(head.text.obj_table.added, dim=1).double().numpy()[0]
    # The mean of one of several Gaussian variables, given the others.
    covariance = 0.4 * np.eye(len(vectors)) + 0.6 * vectors @ vectors.T
    shares = 0.6 * (vectors @ fox) @ np.linalg.inv(covariance)
    got = head.weights(asked)
    for found, trained in ((got['obj'][place], head.weight['obj']),
                           (got['obj_bias'][place], head.bias['obj'])):
        np.testing.assert_allclose(found.numpy(), shares @ trained.numpy(), atol=1e-5)
    wet = zoo.space.attributes.index('wet')
    row = int((asked.pairs[:, 1] == place).nonzero())
    np.testing.assert_allclose(got['cross'][row], shares @ head.cross[wet].numpy(), atol=1e-5)
    assert np.abs(shares @ head.weight['obj'].numpy()).max() > 1e-2
