from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import beta, binom, ttest_1samp

from searchlab.arrays import Floats
from searchlab.stats.intervals import (
    Interval,
    mean_interval,
    mean_of_means_interval,
    median_interval,
)

INF = math.inf
numbers = arrays(np.float64, st.integers(2, 9), elements=st.floats(0, 1).map(lambda value: round(value, 6)))
samples = st.lists(numbers, min_size=1, max_size=4)


def array(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def get_bounds(interval: Interval) -> tuple[float, float]:
    assert interval.lower is not None and interval.upper is not None and not interval.note
    return interval.lower, interval.upper


@given(numbers)
def test_the_interval_of_a_mean_is_students(values: Floats) -> None:
    interval = mean_interval(values)
    if np.ptp(values) == 0:
        assert interval.lower is None and "same number" in interval.note
    else:
        expected = ttest_1samp(values, 0).confidence_interval(0.95)
        assert get_bounds(interval) == pytest.approx((expected.low, expected.high))
        assert interval.value == pytest.approx(values.mean())


def test_no_interval_where_none_would_cover() -> None:
    assert mean_interval(array(3)).note == "An interval for a mean needs 2 runs; there is 1."
    assert mean_interval(array()).lower is None
    assert "the same number" in mean_interval(np.full(3, 0.1) + array(0, 1e-17, 0)).note
    assert "needs 5 runs; there are 4" in median_interval(array(1, 2, 3, 4)).note


def test_medians_lie_between_order_statistics() -> None:
    assert get_bounds(median_interval(array(5, 1, 4, 2, 3))) == (1, 5)
    for runs in range(6, 40):
        lower, upper = get_bounds(median_interval(np.arange(1.0, runs + 1)))
        assert lower + upper == pytest.approx(runs + 1)
        outer = 1 - 2 * binom.cdf(math.floor(lower) - 1, runs, 0.5)
        inner = 1 - 2 * binom.cdf(math.ceil(lower) - 1, runs, 0.5)
        assert inner <= 0.95 <= outer or lower == 1


def test_a_median_may_be_censored() -> None:
    assert get_bounds(median_interval(array(1, 2, 3, 4, 5, INF))) == pytest.approx((1.357, INF), abs=1e-3)
    assert get_bounds(median_interval(np.full(9, INF))) == (INF, INF)
    assert get_bounds(median_interval(np.concatenate((np.arange(1.0, 21), np.full(10, INF)))))[1] == INF, "x_(21) is"
    assert get_bounds(median_interval(np.concatenate((np.arange(1.0, 22), np.full(9, INF)))))[1] < 21


@given(samples)
@example([np.full(3, 0.228516)])  # the mean of these three equal numbers is another number
def test_the_interval_of_a_mean_of_means(sample: list[Floats]) -> None:
    """On one workload it is that of a mean; a workload given twice narrows it."""
    interval = mean_of_means_interval(sample[:1])
    assert (interval.lower is None) == (mean_interval(sample[0]).lower is None)
    if interval.lower is not None:
        assert get_bounds(interval) == pytest.approx(get_bounds(mean_interval(sample[0])), abs=1e-9)
        twice = get_bounds(mean_of_means_interval([sample[0], sample[0]]))
        assert twice[1] - twice[0] < get_bounds(interval)[1] - get_bounds(interval)[0]


def test_ends_are_limited_to_the_possible_range() -> None:
    assert get_bounds(Interval(0.9, 0.7, 1.1).clip(0, 1)) == (0.7, 1)
    assert Interval(0.5, note="why").clip(0, 1) == Interval(0.5, None, None, "why")


Experiment = Callable[[np.random.Generator], tuple[Interval, float]]


def skewed(random: np.random.Generator, seeds: int) -> Floats:
    """Areas: most runs are good and a few are poor. Their mean is 2/3."""
    return random.beta(4, 2, seeds)


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("name", ["mean", "means", "median"])
def test_intervals_have_their_nominal_coverage(name: str, seeds: int) -> None:
    """A small version of studies/benchmarks/coverage.py, on made-up runs: 600 of each."""
    experiments: dict[str, Experiment] = {
        "mean": lambda random: (mean_interval(skewed(random, seeds)), 2 / 3),
        "means": lambda random: (mean_of_means_interval([skewed(random, seeds) for _ in range(3)]), 2 / 3),
        "median": lambda random: (median_interval(skewed(random, seeds)), float(beta(4, 2).median())),
    }
    if (name, seeds) == ("median", 3):
        pytest.skip("there is no such interval")
    random = np.random.default_rng(seeds)
    covered = [
        lower <= truth <= upper
        for _ in range(600)
        for interval, truth in [experiments[name](random)]
        for lower, upper in [get_bounds(interval)]
    ]
    assert 0.915 <= np.mean(covered) <= 0.98
