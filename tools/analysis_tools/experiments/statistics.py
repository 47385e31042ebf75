"""Mean, spread and paired differences over seeds."""
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats


def mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n - 1); None for a single value.

    Args:
        values (Sequence[float]): At least one.

    Returns:
        tuple: Mean and standard deviation.
    """
    if not values:
        raise ValueError('mean_and_std needs at least one value, got none.')
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


@dataclass(frozen=True)
class Difference:
    """Mean paired difference with its 95% interval.

    Attributes:
        mean (float): Mean over the common seeds.
        half_width (float | None): Of the t-interval; None with a single pair.
        num_pairs (int): Seeds that both have.
    """
    mean: float
    half_width: float | None
    num_pairs: int


def paired_difference(values: Mapping[int, float],
                      reference: Mapping[int, float]) -> Difference | None:
    """Differences seed by seed, which leaves out what the seeds have in common.

    Args:
        values (Mapping[int, float]): Result by seed.
        reference (Mapping[int, float]): Result of the reference by seed.

    Returns:
        Difference | None: None where no seed is in both.
    """
    gaps = [values[seed] - reference[seed] for seed in sorted(values.keys() & reference.keys())]
    if not gaps:
        return None
    mean, std = mean_and_std(gaps)
    if std is None:
        return Difference(mean, None, 1)
    half = float(stats.t.ppf(0.975, len(gaps) - 1)) * std / math.sqrt(len(gaps))
    return Difference(mean, half, len(gaps))
