from __future__ import annotations

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from searchlab.arrays import Floats
from searchlab.stats.random_search import (
    RandomDraws,
    RandomSearch,
    expected_best,
    find_cutoff,
    mean_score,
    score_curve,
    weighted_median,
)

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


@given(tables, st.integers(1, 10), st.data())
def test_unequal_draws_are_the_mean_over_all_orders(costs: Floats, trials: int, data: st.DataObject) -> None:
    """Once, all configs were assumed to be equally likely, even in spaces whose knobs depend on each other."""
    costs = costs[:5]
    weights = np.array(data.draw(st.lists(st.floats(0.01, 9), min_size=len(costs), max_size=len(costs))))
    if not np.isfinite(costs).any():
        return
    filled = np.where(np.isfinite(costs), costs, costs[np.isfinite(costs)].max())
    exact = np.zeros(trials)
    for order in permutations(range(len(costs))):
        remaining = weights[list(order)][::-1].cumsum()[::-1]
        chance = float(np.prod(weights[list(order)] / remaining))
        lowest = np.minimum.accumulate(filled[list(order)])
        exact += chance * np.pad(lowest, (0, trials), "edge")[:trials]
    np.testing.assert_allclose(expected_best(costs, trials, weights=weights), exact, atol=1e-6)


def test_unequal_draws_are_what_successive_sampling_finds() -> None:
    random = np.random.default_rng(0)
    costs = random.lognormal(0, 1, 400)
    weights = random.lognormal(0, 1, 400) / costs
    keys = random.exponential(size=(4000, 400)) / weights
    runs = np.minimum.accumulate(costs[np.argsort(keys, axis=1)[:, :60]], axis=1)
    error = runs.std(axis=0) / math.sqrt(len(runs))
    assert (np.abs(expected_best(costs, 60, weights=weights) - runs.mean(axis=0)) < 4.5 * error).all()
    assert expected_best(costs, 60)[-1] != pytest.approx(runs.mean(axis=0)[-1], rel=0.05), "it matters"


@pytest.mark.parametrize("configs", [30, 3000])
def test_nearly_equal_draws_are_nearly_those_without_weights(configs: int) -> None:
    costs = np.random.default_rng(1).lognormal(0, 1, configs)
    weights = np.ones(configs)
    weights[0] += 1e-9
    np.testing.assert_allclose(expected_best(costs, 100, weights=weights), expected_best(costs, 100), rtol=1e-6)


def test_cutoff_by_hand() -> None:
    baseline = np.array([3.0, 2.0, 1.5, 1.1, 1.0])
    assert find_cutoff(3, baseline, 1, 0.95) == 4, "the first at or below 1.1"
    assert find_cutoff(3, baseline, 1, 0.5) == 2
    assert find_cutoff(3, baseline, 0.1, 0.95) == 5, "the end where it is not reached"


@pytest.mark.parametrize(
    ("values", "weights", "expected"),
    [
        ([3, 1, 2], [1, 1, 1], 2),
        ([4, 1, 3, 2], [1, 1, 1, 1], 2.5),
        ([1, 2, 3], [5, 1, 1], 1),
        ([1, 2], [1, 1], 1.5),
        ([7], [2], 7),
        ([1, 2, 3], [1, 1, 2], 2.5),
    ],
)
def test_weighted_median(values: list[float], weights: list[float], expected: float) -> None:
    assert weighted_median(np.array(values, float), np.array(weights, float)) == expected


def test_a_score_covers_as_many_trials_as_random_search_takes() -> None:
    costs = np.exp(np.arange(100.0))
    draws = RandomDraws.from_costs(costs, 60)
    assert draws.median == pytest.approx(49.5) and draws.expected[0] == pytest.approx(49.5)
    from_start = RandomSearch.from_draws(draws, 1.0, 60)
    assert (from_start.first, from_start.last) == (1, 33), "the first t with 101 / (t + 1) - 1 <= 0.04 * 49.5"
    late = RandomSearch.from_draws(draws, 1.0, 60, start=8)
    assert (late.first, late.last) == (9, 41)
    assert RandomSearch.from_draws(draws, 1.0, 36, start=8).last == 36, "at most the budget"
    assert RandomSearch.from_draws(draws, 1.0, 8, start=8).first == 1, "all of it is the start"
    run = np.full((1, 60), math.e**5)
    run[0, 8:] = 1.0
    assert late.scores(run) == pytest.approx([1])


def test_one_run_without_success_does_not_outweigh_the_others() -> None:
    """In latency, whose tail is heavy, one dead run in ten gave a mean score of -46."""
    costs = np.concatenate((np.random.default_rng(0).lognormal(0, 0.3, 200), [1e3, np.inf]))
    search = RandomSearch.from_draws(RandomDraws.from_costs(costs, 50), float(costs.min()), 50)
    dead, good = np.full((1, 50), np.inf), np.full((9, 50), costs.min())
    scores = search.scores(np.concatenate((dead, good)))
    assert scores is not None and scores[1:] == pytest.approx([1] * 9) and -100 < scores[0] < 0


def score(so_far: Floats, baseline: Floats, best: float) -> Floats:
    return mean_score(score_curve(so_far, baseline, best), baseline, best)


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
