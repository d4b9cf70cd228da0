from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from searchlab.analysis.stats.curves import Floats
from searchlab.analysis.stats.random_search import cutoff, expected_best, score, score_curve

tables = arrays(np.float64, st.integers(1, 8), elements=st.integers(1, 20) | st.just(math.inf))


@given(tables, st.integers(1, 10), st.none() | st.floats(20, 99))
def test_the_expected_best_is_the_mean_over_all_draws(costs: Floats, trials: int, failed: float | None) -> None:
    curve = expected_best(costs, trials, failed)
    assert curve.shape == (trials,)
    if not np.isfinite(costs).any():
        assert (curve == math.inf).all()
        return
    worst = costs[np.isfinite(costs)].max() if failed is None else failed
    filled = np.where(np.isfinite(costs), costs, worst)
    exact = [np.mean([min(draw) for draw in combinations(filled, min(t, len(costs)))]) for t in range(1, trials + 1)]
    np.testing.assert_allclose(curve, exact, rtol=1e-12)


@given(tables, st.integers(1, 10))
def test_the_expected_best_never_rises_and_ends_at_the_best(costs: Floats, trials: int) -> None:
    curve = expected_best(costs, trials)
    if np.isfinite(costs).any():
        assert (np.diff(curve) <= 1e-12 * curve[1:]).all() and (curve >= costs.min()).all()
        assert expected_best(costs, len(costs))[-1] == costs.min()


def test_the_expected_best_is_what_random_search_finds() -> None:
    random = np.random.default_rng(0)
    costs = random.lognormal(0, 1, 300)
    costs[:60] = math.inf
    filled = np.minimum(costs, costs[60:].max())
    runs = np.minimum.accumulate([random.permutation(filled)[:40] for _ in range(4000)], axis=1)
    error = runs.std(axis=0) / math.sqrt(len(runs))
    assert (np.abs(expected_best(costs, 40) - runs.mean(axis=0)) < 4.5 * error).all()


def test_of_a_sample_it_is_unbiased_for_the_space() -> None:
    random = np.random.default_rng(1)
    costs = random.lognormal(0, 1, 500)
    samples = np.array([expected_best(random.choice(costs, 30, replace=False), 30) for _ in range(4000)])
    error = samples.std(axis=0) / math.sqrt(len(samples))
    assert (np.abs(samples.mean(axis=0) - expected_best(costs, 30)) < 4.5 * error).all()


@pytest.mark.parametrize("trials", [1, 7, 100])
def test_a_million_configs_lose_no_digits(trials: int) -> None:
    """Of the numbers 1 to N the lowest of t is (N + 1) / (t + 1) in the mean."""
    n = 10**6
    curve = expected_best(np.arange(n, 0, -1, dtype=np.float64), trials)
    assert curve[-1] == pytest.approx((n + 1) / (trials + 1), rel=1e-11)


def test_cutoff_by_hand() -> None:
    costs = np.array([1, 2, 3, 4, 5, math.inf])
    baseline = np.array([3.0, 2.0, 1.5, 1.1, 1.0])
    assert cutoff(costs, baseline, 1, 0.95) == 4, "the median is 3: the first at or below 1.1"
    assert cutoff(costs, baseline, 1, 0.5) == 2
    assert cutoff(costs, baseline, 0.1) == 5, "the end where it is not reached"
    assert cutoff(np.array([math.inf]), baseline, 1) == 5


def test_score_by_hand() -> None:
    baseline, best = np.array([5.0, 3.0, 1.0]), 1.0
    assert score_curve(np.array([5.0, 1.0, 1.0]), baseline, best)[:2].tolist() == [0, 1]
    assert np.isnan(score_curve(np.array([1.0, 1.0, 1.0]), baseline, best)[2]), "nothing is left to gain"
    runs = np.array([[5.0, 3.0, 3.0], [1.0, 1.0, 1.0], [9.0, 5.0, 1.0]])
    assert score(runs, baseline, best).tolist() == [0, 1, -1]
    assert np.isnan(score(runs, np.ones(3), best)).all()


@given(arrays(np.float64, (3, 6), elements=st.floats(1, 9)), arrays(np.float64, 6, elements=st.floats(2, 9)))
def test_the_score_of_the_mean_run_is_the_mean_score(runs: Floats, baseline: Floats) -> None:
    assert score(runs.mean(axis=0), baseline, 1.0) == pytest.approx(score(runs, baseline, 1.0).mean())
