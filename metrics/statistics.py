"""Intervals and tests for scores: Wilson, bootstrap, paired and stratified bootstrap, exact McNemar, Holm.

Every resampling is seeded and reproducible (numpy's frozen `RandomState` stream), so a report made twice from
the same rows shows the same numbers. Scores are fractions between 0 and 1; intervals are two-sided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

CONFIDENCE = 0.95
REPLICATES = 10_000
_CELLS = 4_000_000  # resampled values held at a time, to bound memory


def mean(values: Sequence[float]) -> float | None:
    """The mean with exact summation, None of nothing."""
    return math.fsum(values) / len(values) if values else None


def mean_interval(
    values: Sequence[float], *, confidence: float = CONFIDENCE, replicates: int = REPLICATES, seed: int = 0
) -> tuple[float, float] | None:
    """The interval of a mean: Wilson's when all values are 0 or 1, else the percentile bootstrap; None of nothing."""
    if not values:
        return None
    if all(value in (0, 1) for value in values):
        return wilson_interval(int(sum(values)), len(values), confidence=confidence)
    return bootstrap_interval(values, confidence=confidence, replicates=replicates, seed=seed)


def wilson_interval(successes: int, n: int, *, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's score interval of a proportion (Wilson 1927), without continuity correction. ValueError for n < 1."""
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"wilson_interval needs 0 <= successes <= n and n >= 1, got {successes} of {n}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / n
    centre = share + z * z / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if successes == 0 else max(0.0, (centre - spread) / scale)
    high = 1.0 if successes == n else min(1.0, (centre + spread) / scale)
    return low, high


def bootstrap_interval(
    values: Sequence[float], *, confidence: float = CONFIDENCE, replicates: int = REPLICATES, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean (Efron 1979). ValueError for no values."""
    if not values:
        raise ValueError("bootstrap_interval needs at least one value")
    means = _resampled_means(values, replicates, _random(seed))
    return _percentiles(means, confidence)


def paired_bootstrap(
    first: Sequence[float],
    second: Sequence[float],
    *,
    confidence: float = CONFIDENCE,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> dict[str, Any]:
    """`second - first` on the same rows, with its percentile bootstrap interval over rows.

    Returns `difference`, `low`, `high`, `n`. Resampling rows keeps the pairing, so what both runs find easy or
    hard cancels out. ValueError for no rows or unequal lengths.
    """
    differences = _differences(first, second)
    low, high = _percentiles(_resampled_means(differences, replicates, _random(seed)), confidence)
    return {"difference": mean(differences), "low": low, "high": high, "n": len(differences)}


def stratified_paired_bootstrap(
    strata: Sequence[tuple[Sequence[float], Sequence[float]]],
    *,
    confidence: float = CONFIDENCE,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> dict[str, Any]:
    """`second - first` over several repetitions (one `(first, second)` pair of score lists per optimizer seed).

    Each replicate draws repetitions with replacement, then rows with replacement within each drawn one, and
    takes the mean of the repetitions' mean differences; the percentile interval of these is returned as
    `difference`, `low`, `high`, `n_strata`, `n`. So both the spread between seeds and the spread between rows
    are in the interval. ValueError for no repetition or an empty one.
    """
    if not strata:
        raise ValueError("stratified_paired_bootstrap needs at least one stratum")
    import numpy

    rows = [_differences(first, second) for first, second in strata]
    random = _random(seed)
    k = len(rows)
    drawn = random.randint(0, k, size=(replicates, k))
    totals = numpy.zeros(replicates)
    for index, differences in enumerate(rows):
        # a stratum drawn c times in a replicate contributes c independent resamples of its rows
        times = (drawn == index).sum(axis=1)
        means = _resampled_means(differences, int(times.sum()), random)
        owners = numpy.repeat(numpy.arange(replicates), times)
        totals += numpy.bincount(owners, weights=means, minlength=replicates)
    low, high = _percentiles(totals / k, confidence)
    estimate = mean([mean(differences) or 0.0 for differences in rows])
    return {"difference": estimate, "low": low, "high": high, "n_strata": k, "n": sum(map(len, rows))}


def mcnemar_exact(first: Sequence[Any], second: Sequence[Any]) -> dict[str, Any]:
    """Exact two-sided McNemar test of two runs on the same rows (binomial on the discordant pairs, no mid-p).

    Values are right or wrong (truthiness). Returns `only_first`, `only_second` (rows that only one run has
    right), `p_value`. ValueError for unequal lengths.
    """
    if len(first) != len(second):
        raise ValueError(f"paired rows needed, got {len(first)} and {len(second)}")
    only_first = sum(bool(a) and not b for a, b in zip(first, second, strict=True))
    only_second = sum(bool(b) and not a for a, b in zip(first, second, strict=True))
    n, k = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(n, i) for i in range(k + 1))
    p_value = min(1.0, (2 * tail) / (1 << n)) if n else 1.0  # whole numbers, so exact for any n
    return {"only_first": only_first, "only_second": only_second, "p_value": p_value}


def holm(p_values: Mapping[Any, float]) -> dict[Any, float]:
    """Holm's step-down adjustment (Holm 1979) of one family of p values; keys are kept, ties get equal values."""
    ordered = sorted(p_values.items(), key=lambda item: item[1])
    adjusted: dict[Any, float] = {}
    running = 0.0
    for rank, (key, p_value) in enumerate(ordered):
        running = max(running, min(1.0, (len(ordered) - rank) * p_value))
        adjusted[key] = running
    return {key: adjusted[key] for key in p_values}


def sample_deviation(values: Sequence[float]) -> float | None:
    """Sample standard deviation (n - 1), None below two values."""
    if len(values) < 2:
        return None
    centre = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def quantile(values: Sequence[float], share: float) -> float | None:
    """The quantile by linear interpolation between order statistics (type 7), None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    if len(first) != len(second) or not first:
        raise ValueError(f"paired rows needed, got {len(first)} and {len(second)}")
    return [float(b) - float(a) for a, b in zip(first, second, strict=True)]


def _random(seed: int) -> Any:
    import numpy

    return numpy.random.RandomState(seed & 0xFFFFFFFF)


def _resampled_means(values: Sequence[float], replicates: int, random: Any) -> Any:
    """Means of `replicates` resamples with replacement, as a numpy array; memory stays bounded."""
    import numpy

    data = numpy.asarray(values, dtype=float)
    means = numpy.empty(replicates)
    step = max(1, _CELLS // len(data))
    for start in range(0, replicates, step):
        size = min(step, replicates - start)
        means[start : start + size] = data[random.randint(0, len(data), size=(size, len(data)))].mean(axis=1)
    return means


def _percentiles(means: Any, confidence: float) -> tuple[float, float]:
    import numpy

    edge = 100 * (1 - confidence) / 2
    low, high = numpy.percentile(means, [edge, 100 - edge])
    return float(low), float(high)
