from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from searchlab.analysis.stats.aggregates import (
    bootstrap,
    improvement,
    improvement_interval,
    interquartile_mean,
    mean_of_means,
    median,
    performance_profile,
    run_score_profile,
)
from searchlab.analysis.stats.curves import Floats

INF = math.inf
samples = st.lists(arrays(np.float64, st.integers(1, 8), elements=st.floats(0, 1)), min_size=1, max_size=4)


def array(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def test_aggregates_by_hand() -> None:
    sample = [array(9, 0, 1, 2), array(3, 4, 5, -7)]
    assert interquartile_mean(sample) == (1 + 2 + 3 + 4) / 4
    assert mean_of_means([array(1, 3), array(5)]) == 3.5
    assert median([array(3, 1), array(2, 9)]) == 2.5
    assert median([array(1, INF, INF)]) == median([array(1, INF)]) == INF and median([array(1, 2, INF)]) == 2
    assert interquartile_mean([np.array([[9, 0, 1, 2], [4, 4, 4, 4]])]).tolist() == [1.5, 4]


def test_improvement_by_hand() -> None:
    assert improvement([array(1, 2, 3)], [array(2)]) == 0.5
    assert improvement([array(3, 4), array(0)], [array(1, 2), array(1)]) == 0.5
    assert improvement([array(INF, 1)], [array(INF)]) == 0.25


@given(samples, samples)
def test_the_chances_of_two_strategies_add_up(one: list[Floats], other: list[Floats]) -> None:
    number = min(len(one), len(other))
    first, second = one[:number], other[:number]
    assert improvement(first, second) + improvement(second, first) == pytest.approx(1)
    assert improvement(first, first) == pytest.approx(0.5)


@given(samples, samples, st.randoms(use_true_random=False))
def test_the_interval_of_a_chance(one: list[Floats], other: list[Floats], order: random.Random) -> None:
    """It lies in [0, 1], holds 1/2 for a strategy and itself, and the order of runs does not move it."""
    number = min(len(one), len(other))
    first, second = one[:number], other[:number]
    lower, upper = improvement_interval(first, second, replicates=50)
    assert 0 <= lower <= upper <= 1 + 1e-12
    shuffled = [np.array(order.sample(runs.tolist(), len(runs))) for runs in first]
    assert improvement_interval(shuffled, second, replicates=50) == (lower, upper)
    lower, upper = improvement_interval(first, first, replicates=50)
    assert lower <= 0.5 + 1e-12 and upper >= 0.5 - 1e-12


def test_the_interval_of_a_chance_by_hand() -> None:
    assert improvement_interval([array(3, INF)], [array(1, 2)]) == (1, 1)
    assert improvement_interval([array(1)], [array(1)]) == (0.5, 0.5)
    # Each run of the one is resampled into 0, 1 or 2 of two places, and beats all of the other or none.
    assert improvement_interval([array(0, 9)], [array(5, 5, 5)]) == (0, 1)
    assert improvement_interval([array(0, 9)], [array(5, 5, 5)], level=0.4) == (0.5, 0.5)
    # One workload of two is decided, which halves the width.
    assert improvement_interval([array(0, 9), array(1)], [array(5, 5, 5), array(0)]) == (0.5, 1)


def test_the_interval_of_a_chance_covers_what_it_should() -> None:
    """That a normal variable exceeds one which is 1 less is 0.76; 15 runs each, two hundred times."""
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        lower, upper = improvement_interval(
            [generator.normal(1, 1, 15)], [generator.normal(0, 1, 15)], replicates=500, seed=3
        )
        covered += lower <= 0.7602 <= upper
    assert 0.88 <= covered / 200 <= 0.99


@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_move_an_interval(sample: list[Floats], order: random.Random) -> None:
    shuffled = [np.array(order.sample(runs.tolist(), len(runs))) for runs in sample]
    for statistic in (interquartile_mean, mean_of_means, median):
        lower, upper = bootstrap(sample, statistic, replicates=50)
        assert (lower, upper) == bootstrap(shuffled, statistic, replicates=50)
        assert lower <= upper


def test_an_interval_covers_what_it_should() -> None:
    """Of the median of 15 numbers, two hundred times; percentile intervals fall a little short of 95 %."""
    draws = np.random.default_rng(0).normal(size=(200, 15))
    covered = sum(lower <= 0 <= upper for lower, upper in (bootstrap([runs], median, replicates=500) for runs in draws))
    assert 0.88 <= covered / 200 <= 0.99


def test_an_interval_may_be_infinite_and_hangs_on_the_seed() -> None:
    lower, upper = bootstrap([array(1, 2, 3, INF, INF)], median)
    assert lower == 1 and upper == INF
    runs = np.random.default_rng(0).normal(size=30)
    assert bootstrap([runs], mean_of_means, seed=1) != bootstrap([runs], mean_of_means, seed=2)


def test_profiles_by_hand() -> None:
    assert run_score_profile([array(0, 1), array(2)], array(-1, 0, 1.5, 2)).tolist() == pytest.approx(
        [1, 2 / 3, 1 / 3, 0]
    )
    times = np.array([[1, 2], [6, 3], [INF, 5], [INF, INF]])
    assert performance_profile(times, array(1, 2, 99)).tolist() == [[0.25, 0.5, 0.5], [0.5, 0.75, 0.75]]
    instant = np.array([[0.0, 0.0], [0.0, 1.0]])
    assert performance_profile(instant, array(1, 1e9)).tolist() == [[1, 1], [0.5, 0.5]], "nothing is twice no time"
