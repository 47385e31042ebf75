"""Answers from seven numbers per image, against all probabilities."""
import numpy as np
import pytest
import torch

from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation import (
    Calibration,
    Chosen,
    Curve,
    Evaluation,
    PredictionMetric,
    asked_calibration,
    by_class,
    probabilities,
    reduce_answers,
)
from mmcluspro.evaluation.calibration import best_bias, fit_calibration, reduce_log_sums
from mmcluspro.evaluation.margins import PairGroups
from mmcluspro.evaluation.prediction import abstaining, accuracies

SEEN = torch.tensor([True, False, True, True, False])


def draw(num=200, link='log', seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(num, len(SEEN), generator=generator) + SEEN
    targets = torch.randint(len(SEEN), (num, ), generator=generator)
    logits[torch.arange(num), targets] += 1.5
    return logits.softmax(1) if link == 'log' else logits, targets


@pytest.mark.parametrize('link', ['log', 'identity'])
@pytest.mark.parametrize('bias', [-3.0, 0.0, 0.7, 9.0])
def test_given_is_the_best_pair_of_all_probabilities(link, bias):
    scores, targets = draw(link=link)
    calibration = Calibration(temperature=0.6, seen_bias=bias)
    pair, probability = reduce_answers(scores, targets, SEEN, 0.6, link).given(calibration)
    best = probabilities(scores, SEEN, calibration, link).max(dim=1)
    assert (pair == best.indices.numpy()).all()
    np.testing.assert_allclose(probability, best.values.numpy(), rtol=1e-5)


def test_a_world_without_unseen_pairs_has_answers():
    scores, targets = draw()
    every = torch.ones(5, dtype=torch.bool)
    pair, probability = reduce_answers(scores, targets, every).given(Calibration())
    assert (pair == scores.argmax(1).numpy()).all()
    np.testing.assert_allclose(probability, scores.amax(1).numpy(), rtol=1e-5)


def test_accuracies_and_abstaining_by_hand():
    target, pair = np.array([0, 0, 2, 1, 1, 4]), np.array([0, 2, 2, 1, 0, 0])
    numbers = accuracies(target == pair, SEEN.numpy()[target])
    assert numbers['seen'] == pytest.approx(200 / 3) and numbers['unseen'] == pytest.approx(100 / 3)
    assert numbers['hm'] == pytest.approx(400 / 9)
    right, sure = pair == target, np.array([.9, .5, .2, .6, .1, .4])
    assert abstaining(right, sure, [0.5, 0.95]) == {
        'coverage_at_0.5': 50.0, 'accuracy_at_0.5': pytest.approx(200 / 3),
        'coverage_at_0.95': 0.0}


def test_classes_come_worst_first_with_their_most_frequent_mistake():
    target, answer = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 1, 0])
    rows = by_class(target, answer, np.linspace(0, 1, 6), ['a', 'b', 'c', 'd'],
                    np.array([True, False, True, True])[target])
    assert [(row.name, row.images, row.mistaken_for) for row in rows] == [
        ('c', 1, 'a'), ('a', 3, 'b'), ('b', 2, '')]
    assert rows[1].accuracy == pytest.approx(100 / 3) and rows[2].seen is False


def test_the_preferred_biases_lie_around_the_balanced_one():
    scores, targets = draw(600)
    sums = reduce_log_sums(scores, targets, PairGroups.all_feasible(SEEN))
    is_seen = SEEN[targets].numpy()
    low, high = (best_bias(sums, is_seen, weight=weight) for weight in (0.8, 0.2))
    assert low < fit_calibration(sums, is_seen).seen_bias < high


def test_the_weighted_mean_is_the_harmonic_one_for_equal_weights():
    curve = Curve(np.arange(3.0), np.array([80.0, 60.0, 0.0]), np.array([0.0, 30.0, 50.0]))
    np.testing.assert_allclose(curve.weighted(0.5), curve.hm)
    assert curve.weighted(0.8)[1] == pytest.approx(1 / (0.8 / 60 + 0.2 / 30))


def test_a_preference_needs_a_checkpoint_that_holds_it():
    new = Chosen(0.1, None, 2.0, 0.5, 0.2, 0.9)
    assert asked_calibration(new, 'closed') == (2.0, 0.5)
    assert asked_calibration(new, 'closed', 'seen') == (2.0, 0.2)
    assert asked_calibration(new, 'closed', 'unseen') == (2.0, 0.9)
    assert asked_calibration(new, 'closed', seen_bias=3) == (2.0, 3.0)
    assert asked_calibration(Chosen(), 'closed') is None
    assert asked_calibration(Chosen(), 'closed', seen_bias=1) == (1.0, 1.0)
    old = Chosen(0.1, None, 2.0, 0.5)
    with pytest.raises(ValueError, match='holds no seen bias for .*--seen-bias X'):
        asked_calibration(old, 'closed', 'seen')
    with pytest.raises(ValueError, match='either prefer or seen_bias'):
        asked_calibration(new, 'closed', 'seen', 1.0)
    with pytest.raises(ValueError, match="must be one of .*'maybe'"):
        asked_calibration(new, 'closed', 'maybe')


def test_the_metric_reports_what_the_chosen_biases_give():
    space = CompositionSpace(['a', 'b'], ['x', 'y'], [(0, 0), (0, 1), (1, 0), (1, 1)],
                             [True, True, True, False])
    metric = PredictionMetric(thresholds=[0.5])
    metric.dataset_meta = dict(evaluation=Evaluation(
        known=space, chosen=dict(closed=Chosen(0.0, None, 1.0, 0.0, -9.0, 9.0))))
    scores = torch.tensor([[.6, .2, .1, .1], [.3, .1, .2, .4]])
    metric.process(None, [
        dict(known_score=row, attr_label=label, obj_label=label)
        for row, label in zip(scores, (0, 1))])
    numbers = metric.evaluate(2)
    assert (numbers['predict/seen'], numbers['predict/unseen']) == (100, 100)
    assert numbers['predict/unseen_prefer_seen'] == numbers['predict/seen_prefer_unseen'] == 0
    assert numbers['predict/confidence'] == pytest.approx(50)
    assert numbers['predict/coverage_at_0.5'] == 50
    assert [row.name for row in metric.tables['pairs']] == ['a x', 'b y']
    assert set(metric.tables) == {'pairs', 'attributes', 'objects'}
