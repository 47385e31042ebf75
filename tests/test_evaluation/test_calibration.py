"""Calibration against plain loops over samples, pairs and temperatures."""
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation import Calibration, CZSLMetric, Evaluation, PairGroups
from mmcluspro.evaluation.calibration import (
    INVERSE_TEMPERATURES,
    LogSums,
    confidences,
    expected_calibration_error,
    fit_calibration,
    probabilities,
    reduce_log_sums,
)


def make_case(num=60, pairs=9, seed=0, sharp=2.0):
    """Scores like those of Eq. 13, where the seen pairs are favoured."""
    rng = np.random.default_rng(seed)
    seen = np.arange(pairs) % 3 != 0
    targets = rng.integers(pairs, size=num)
    logits = rng.normal(size=(num, pairs))
    logits[np.arange(num), targets] += 1.5
    logits = sharp * (logits + seen)
    scores = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return scores, targets, seen


def loop_probabilities(scores, seen, temperature, bias, feasible=None):
    rows = []
    for row in scores:
        z = [math.log(s) - bias * flag for s, flag in zip(row, seen)]
        weights = [math.exp((value - max(z)) / temperature) for value in z]
        if feasible is not None:
            weights = [w * keep for w, keep in zip(weights, feasible)]
        rows.append([w / sum(weights) for w in weights])
    return np.array(rows)


def loop_ece(probability, targets, num_bins=15):
    bins = [[] for _ in range(num_bins)]
    for row, target in zip(probability, targets):
        best = int(np.argmax(row))
        place = min(max(math.ceil(row[best] * num_bins) - 1, 0), num_bins - 1)
        bins[place].append((row[best], float(best == target)))
    error = 0.0
    for content in filter(None, bins):
        confidence, right = zip(*content)
        error += len(content) / len(targets) * abs(np.mean(confidence) - np.mean(right))
    return 100 * error


def reduce(scores, targets, seen, inverse=INVERSE_TEMPERATURES, groups=None):
    groups = groups or PairGroups.all_feasible(torch.tensor(seen))
    return reduce_log_sums(torch.tensor(scores), torch.tensor(targets), groups, inverse)


@pytest.mark.parametrize('temperature, bias', [(1.0, 0.0), (0.5, 1.3), (2.0, -0.7)])
def test_probabilities_equal_a_loop(temperature, bias):
    scores, _, seen = make_case()
    got = probabilities(torch.tensor(scores), torch.tensor(seen), Calibration(temperature, bias))
    np.testing.assert_allclose(got, loop_probabilities(scores, seen, temperature, bias), rtol=1e-9)


def test_without_calibration_they_are_the_scores_over_their_sum():
    scores = torch.rand(4, 7, dtype=torch.float64)
    got = probabilities(scores, torch.zeros(7, dtype=torch.bool))
    torch.testing.assert_close(got, scores / scores.sum(1, keepdim=True))


@pytest.mark.parametrize('temperature, bias', [(1.0, 0.0), (0.7, 1.1), (1.8, -0.4)])
@pytest.mark.parametrize('exact', [True, False])
def test_confidence_and_ece_equal_a_loop(temperature, bias, exact):
    scores, targets, seen = make_case(200)
    inverse = tuple(sorted({1.0, 1 / temperature})) if exact else INVERSE_TEMPERATURES
    expected = loop_probabilities(scores, seen, temperature, bias)

    confidence, right = confidences(reduce(scores, targets, seen, inverse), seen[targets],
                                    Calibration(temperature, bias), inverse=inverse)

    np.testing.assert_allclose(confidence, expected.max(1), rtol=1e-5 if exact else 0.02)
    assert right.tolist() == (expected.argmax(1) == targets).tolist()
    error = expected_calibration_error(confidence, right)
    assert error == pytest.approx(loop_ece(expected, targets), abs=1e-3 if exact else 1.5)


@pytest.mark.parametrize('sharp', [0.7, 1.0, 2.0])
def test_the_temperature_is_the_minimum_of_a_fine_search(sharp):
    scores, targets, seen = make_case(400, sharp=sharp)
    chosen = fit_calibration(reduce(scores, targets, seen), seen[targets])

    def nll(temperature):
        rows = loop_probabilities(scores, seen, temperature, chosen.seen_bias)
        return -np.log(rows[np.arange(len(targets)), targets]).mean()

    best = min(nll(t) for t in np.geomspace(0.25, 4, 120))
    assert nll(chosen.temperature) == pytest.approx(best, abs=2e-3)


def test_the_bias_has_the_best_harmonic_mean_in_log_scores():
    scores, targets, seen = make_case(150)
    chosen = fit_calibration(reduce(scores, targets, seen), seen[targets])

    def harmonic(bias):
        right = (np.log(scores) - bias * seen).argmax(1) == targets
        low, high = right[seen[targets]].mean(), right[~seen[targets]].mean()
        return 2 * low * high / max(low + high, 1e-9)

    assert harmonic(chosen.seen_bias) == max(
        harmonic(chosen.seen_bias), *(harmonic(bias) for bias in np.linspace(-6, 8, 700)))
    assert chosen.seen_bias > 0  # the scores favour the seen pairs


def test_calibration_mends_scores_that_are_too_sharp():
    scores, targets, seen = make_case(2000, sharp=3.0)
    sums = reduce(scores, targets, seen)
    chosen = fit_calibration(sums, seen[targets])
    before, after = (expected_calibration_error(*confidences(sums, seen[targets], which))
                     for which in (Calibration(), chosen))
    assert chosen.temperature > 1.5
    assert after < before / 2


@pytest.mark.parametrize('threshold', [0, 1, 2])
def test_infeasible_pairs_get_no_probability(threshold):
    scores, targets, seen = make_case(80)
    rho = torch.linspace(-1, 1, len(seen))
    levels = torch.tensor([-0.5, 0.0, 0.6])
    groups = PairGroups.from_thresholds(rho, torch.tensor(seen), levels)
    feasible = seen | (rho > levels[threshold]).numpy()
    expected = loop_probabilities(scores, seen, 1.0, 0.4, feasible)

    sums = reduce(scores, targets, seen, groups=groups)
    confidence, right = confidences(sums, seen[targets], Calibration(1.0, 0.4), threshold)

    np.testing.assert_allclose(confidence, expected.max(1), rtol=1e-5)
    assert right.tolist() == (expected.argmax(1) == targets).tolist()
    assert ((sums.status[:, threshold] == -1) == ~feasible[targets]).all()


@pytest.mark.parametrize('side', ['seen', 'unseen'])
def test_one_side_alone_leaves_the_bias_at_zero(side):
    scores, targets, seen = make_case(40)
    keep = seen[targets] == (side == 'seen')
    chosen = fit_calibration(
        reduce(scores[keep], targets[keep], seen), seen[targets][keep])
    assert chosen.seen_bias == 0 and math.isfinite(chosen.temperature)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=50))
def test_ece_equals_a_loop_for_any_confidence(samples):
    confidence, right = map(np.array, zip(*samples))
    table = np.stack([confidence, -np.ones(len(confidence))], axis=1)  # class 0 always wins
    expected = loop_ece(table, np.where(right, 0, 1))
    assert expected_calibration_error(confidence, right) == pytest.approx(expected, abs=1e-9)


def test_rows_return_as_they_were():
    scores, targets, seen = make_case(5)
    sums = reduce(scores, targets, seen)
    table = np.stack(sums.to_rows())
    assert table.shape[1] == LogSums.width(1, len(INVERSE_TEMPERATURES))
    for one, other in zip(sums, LogSums.from_rows(table, 1, len(INVERSE_TEMPERATURES))):
        np.testing.assert_array_equal(one, other)


def evaluate(metric, scores, targets, seen, chosen):
    space = CompositionSpace.from_pairs(
        'abc', 'xyz', [(a, o) for a in 'abc' for o in 'xyz'], list(seen))
    metric.dataset_meta = {'space': space.to_dict(), 'evaluation': Evaluation(chosen=chosen)}
    for start in range(0, len(targets), 32):
        metric.process(None, [
            {'closed_score': torch.tensor(row), 'attr_label': int(target) // 3,
             'obj_label': int(target) % 3}
            for row, target in zip(scores[start:start + 32], targets[start:start + 32])])
    return metric.evaluate(len(targets))


def test_the_metric_chooses_on_one_set_and_reports_on_another():
    scores, targets, seen = make_case(300, seed=1)
    metric = CZSLMetric()
    val = evaluate(metric, scores, targets, seen, None)
    assert val['czsl/ece'] == pytest.approx(
        loop_ece(loop_probabilities(scores, seen, 1.0, 0.0), targets), abs=1e-3)
    chosen = metric.chosen.calibration

    scores, targets, seen = make_case(300, seed=2)
    test = evaluate(CZSLMetric(), scores, targets, seen, dict(closed=metric.chosen))
    assert test['czsl/ece_calibrated'] == pytest.approx(
        loop_ece(loop_probabilities(scores, seen, *chosen), targets), abs=1e-3)
    plain = evaluate(CZSLMetric(), scores, targets, seen, {})
    assert {name: test[name] for name in plain} == plain
    assert set(test) - set(plain) == {
        f'czsl/{name}' for name in ('ece', 'ece_calibrated', 'temperature', 'seen_bias')}


def test_a_wrong_link_is_named():
    with pytest.raises(ValueError, match="link must be one of .* got 'exp'"):
        probabilities(torch.ones(1, 2), torch.ones(2, dtype=torch.bool), link='exp')
