"""Worlds, biases and scores that are refused, and reports with parts left out."""
import numpy as np
import pytest

from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation.calibration import Chosen, asked_calibration
from mmcluspro.evaluation.feasibility import phase_worlds, world_candidates
from mmcluspro.evaluation.margins import check_finite
from mmcluspro.evaluation.prediction import PredictionMetric, _report

SPACE = CompositionSpace(['a', 'b'], ['x', 'y'], [[0, 0], [1, 1]], [True, False])


@pytest.mark.parametrize('run, words', [
    (lambda: world_candidates(None, SPACE, 'ajar'), "world must be 'closed' or 'open', got 'ajar'"),
    (lambda: asked_calibration(Chosen(), 'closed', seen_bias=float('inf')),
     'seen_bias must be a finite number, got inf'),
    (lambda: PredictionMetric().process(None, []), 'PredictionMetric does not know the pairs: add '
     'EvaluationHook to default_hooks'),
    (lambda: check_finite(np.array([[1.0, 2.0], [np.nan, 1.0]]), ['p', 'q']),
     '1 of the 2 pair scores of sample q are NaN or infinite'),
])
def test_what_cannot_be_evaluated_is_said(run, words):
    with pytest.raises(ValueError, match=words):
        run()


def test_huge_scores_are_finite():
    check_finite(np.full((1, 4), 3e38, np.float32), ['p'])  # their sum is not


def test_the_open_world_is_there_when_it_is_asked_for():
    assert list(phase_worlds(SPACE, {'closed'})) == ['closed']
    worlds = phase_worlds(SPACE, {'open'})
    assert [len(world) for world in worlds.values()] == [2, 4]
    assert len(world_candidates(None, SPACE, 'open')) == 4


def test_the_log_leaves_out_preferences_that_validation_did_not_choose():
    numbers = dict(seen=1.0, unseen=2.0, hm=3.0, accuracy=4.0, confidence=5.0)
    text = _report(numbers, 7, ())
    assert 'default (balanced)        1.0     2.0    3.0' in text and '--prefer' not in text
    text = _report({**numbers, **{f'{name}_prefer_unseen': 6.0 for name in (
        'seen', 'unseen', 'hm')}}, 7, ())
    assert '--prefer unseen           6.0     6.0    6.0' in text and '--prefer seen' not in text
