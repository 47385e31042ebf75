"""Mean, spread and paired differences over seeds."""
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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


def central_probability(angle: float, dof: int) -> float:
    """P(|T| < t) of Student's t with ``t = sqrt(dof) * tan(angle)``, in closed form.

    Abramowitz and Stegun, 26.7.3 and 26.7.4.

    Args:
        angle (float): In [0, pi / 2].
        dof (int): Degrees of freedom.

    Returns:
        float: In [0, 1].
    """
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = dof % 2
    term = cosine if odd else 1.0
    total = term if dof > 1 else 0.0
    for k in range(2 + odd, dof - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def t_quantile(level: float, dof: int) -> float:
    """Half-width, in standard errors, of a central interval of Student's t.

    Args:
        level (float): Probability inside, for example 0.95.
        dof (int): Degrees of freedom, at least 1.

    Returns:
        float: t with P(|T| < t) = ``level``.
    """
    if not 0 < level < 1:
        raise ValueError(f'level must lie between 0 and 1, got {level}.')
    if dof < 1:
        raise ValueError(f'dof must be at least 1, got {dof}.')
    low, high = 0.0, math.pi / 2
    for _ in range(200):
        middle = (low + high) / 2
        if central_probability(middle, dof) < level:
            low = middle
        else:
            high = middle
    return math.sqrt(dof) * math.tan((low + high) / 2)


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


def paired_difference(values: Mapping[int, float], reference: Mapping[int, float],
                      level: float = 0.95) -> Difference | None:
    """Differences seed by seed, which leaves out what the seeds have in common.

    Args:
        values (Mapping[int, float]): Result by seed.
        reference (Mapping[int, float]): Result of the reference by seed.
        level (float): Of the interval. Defaults to 0.95.

    Returns:
        Difference | None: None where no seed is in both.
    """
    gaps = [values[seed] - reference[seed] for seed in sorted(values.keys() & reference.keys())]
    if not gaps:
        return None
    mean, std = mean_and_std(gaps)
    if std is None:
        return Difference(mean, None, 1)
    half = t_quantile(level, len(gaps) - 1) * std / math.sqrt(len(gaps))
    return Difference(mean, half, len(gaps))
