from __future__ import annotations

import math
import random

import pytest

from metrics.statistics import (
    bootstrap_interval,
    holm,
    mcnemar_exact,
    mean,
    mean_interval,
    paired_bootstrap,
    quantile,
    sample_deviation,
    stratified_paired_bootstrap,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),  # Newcombe 1998, table I, method 3, and R's prop.test(correct=FALSE)
        (1, 29, 0.0061, 0.1718),
        (15, 148, 0.0624, 0.1605),
        (56, 70, 0.6917, 0.8771),
        (81, 263, 0.2553, 0.3662),
        (10, 10, 0.7225, 1.0),
    ],
)
def test_wilson_matches_published_values(successes, n, low, high):
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=6e-4)


def test_wilson_refuses_nonsense():
    for args in ((0, 0), (3, 2), (-1, 5)):
        with pytest.raises(ValueError):
            wilson_interval(*args)


def test_the_interval_of_a_mean_fits_its_values():
    assert mean_interval([1, 0, True, 0.0]) == wilson_interval(2, 4)
    low, high = mean_interval([0.2, 0.4, 0.6, 0.8] * 10)
    assert 0.2 < low < 0.5 < high < 0.8
    assert mean_interval([]) is None and mean([]) is None
    assert mean_interval([0.5, 0.5]) == (0.5, 0.5)


def test_the_bootstrap_is_close_to_theory_and_repeatable():
    rng = random.Random(1)
    values = [rng.gauss(0.5, 0.2) for _ in range(400)]
    low, high = bootstrap_interval(values)
    half = 1.96 * sample_deviation(values) / math.sqrt(400)
    assert low == pytest.approx(mean(values) - half, abs=0.003)
    assert high == pytest.approx(mean(values) + half, abs=0.003)
    assert bootstrap_interval(values) == (low, high)
    assert bootstrap_interval(values, seed=1) != (low, high)


def test_pairing_cancels_what_both_find_hard():
    rng = random.Random(2)
    hard = [rng.random() for _ in range(200)]
    better = [value + 0.05 for value in hard]
    result = paired_bootstrap(hard, better)
    assert result["difference"] == pytest.approx(0.05)
    assert result["low"] == pytest.approx(0.05) and result["high"] == pytest.approx(0.05)
    assert result["n"] == 200
    with pytest.raises(ValueError):
        paired_bootstrap([1], [1, 0])
    with pytest.raises(ValueError):
        paired_bootstrap([], [])


def test_the_stratified_bootstrap_sees_the_spread_between_seeds():
    same = [([0.0] * 50, [1.0] * 25 + [0.0] * 25)] * 3
    spread = [([0.0] * 50, [1.0] * 50), ([0.0] * 50, [0.0] * 50), ([0.0] * 50, [1.0] * 25 + [0.0] * 25)]
    narrow, wide = stratified_paired_bootstrap(same), stratified_paired_bootstrap(spread)
    assert narrow["difference"] == wide["difference"] == pytest.approx(0.5)
    assert narrow["high"] - narrow["low"] < 0.2 < wide["high"] - wide["low"]
    assert (wide["n_strata"], wide["n"]) == (3, 150)
    assert stratified_paired_bootstrap(spread) == wide
    # one stratum is the ordinary paired bootstrap
    first, second = [0, 1, 0, 1] * 20, [1, 1, 0, 1] * 20
    one, plain = stratified_paired_bootstrap([(first, second)]), paired_bootstrap(first, second)
    assert one["low"] == pytest.approx(plain["low"], abs=0.02) and one["high"] == pytest.approx(plain["high"], abs=0.02)
    # strata of two seeds, each constant: replicates are 0, 1/2 or 1 with weights 1/4, 1/2, 1/4
    two = stratified_paired_bootstrap([([0.0] * 5, [0.0] * 5), ([0.0] * 5, [1.0] * 5)])
    assert (two["low"], two["difference"], two["high"]) == (0.0, 0.5, 1.0)


@pytest.mark.parametrize(
    ("only_first", "only_second", "p_value"),
    [(0, 0, 1.0), (5, 5, 1.0), (0, 1, 1.0), (0, 5, 0.0625), (1, 9, 0.021484375), (2, 12, 0.012939453125)],
)
def test_exact_mcnemar_matches_the_binomial(only_first, only_second, p_value):
    first = [1] * only_first + [0] * only_second + [1, 0]
    second = [0] * only_first + [1] * only_second + [1, 0]
    result = mcnemar_exact(first, second)
    assert (result["only_first"], result["only_second"]) == (only_first, only_second)
    assert result["p_value"] == pytest.approx(p_value)


def test_mcnemar_on_thousands_of_rows_does_not_overflow():
    assert 0 <= mcnemar_exact([1] * 3000 + [0] * 2000, [0] * 3000 + [1] * 2000)["p_value"] < 1e-40


def test_holm_steps_down():
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})  # R: p.adjust(method="holm")
    assert holm({"x": 0.9, "y": 0.8}) == pytest.approx({"x": 1.0, "y": 1.0})
    assert holm({}) == {}


def test_quantiles_and_deviation():
    assert quantile([1, 2, 3, 4], 0.5) == 2.5 and quantile([7], 0.95) == 7 and quantile([], 0.5) is None
    assert sample_deviation([1, 2, 3, 4]) == pytest.approx(1.2909944) and sample_deviation([1]) is None
