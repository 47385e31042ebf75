"""Paired differences against the paired test of scipy."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from experiments import mean_and_std, paired_difference

NUMBERS = st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=2, max_size=12)


@settings(deadline=None, max_examples=50)
@given(NUMBERS, st.randoms(use_true_random=False))
def test_the_interval_is_scipys_of_the_paired_test(values, random):
    reference = [value + random.uniform(-5, 5) for value in values]

    got = paired_difference(dict(enumerate(values)), dict(enumerate(reference)))

    gaps = np.subtract(values, reference)
    low, high = stats.ttest_rel(values, reference).confidence_interval(0.95)
    assert got.num_pairs == len(values)
    assert got.mean == pytest.approx(gaps.mean(), abs=1e-9)
    assert [got.mean - got.half_width, got.mean + got.half_width] == pytest.approx([low, high])


@given(NUMBERS)
def test_mean_and_sample_standard_deviation(values):
    assert mean_and_std(values) == pytest.approx(
        (np.mean(values), np.std(values, ddof=1)), abs=1e-9)


def test_only_common_seeds_are_compared():
    got = paired_difference({0: 1.0, 1: 2.0, 5: 100.0}, {1: 1.0, 0: 1.0, 7: 50.0})
    assert (got.mean, got.num_pairs) == (0.5, 2)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


def test_a_single_pair_has_no_interval():
    got = paired_difference({3: 2.0}, {3: 1.0})
    assert (got.mean, got.half_width) == (1.0, None)
    assert mean_and_std([4.0]) == (4.0, None)


def test_no_values_have_no_mean():
    with pytest.raises(ValueError):
        mean_and_std([])
