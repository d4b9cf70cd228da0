"""A Gaussian process that starts where other workloads were fast, and is not misled for long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.conformance import toys
from searchlab.records import Measurement, Trial
from searchlab.space import Config
from searchlab_policies.gp_prior import GpPrior, standardise
from searchlab_policies.random import Random

Measure = Callable[[Config], Measurement]


def reverse(config: Config) -> Measurement:
    return toys.successful_measurement(1e-3 / min(toys.simulate_smooth(config).cost, 1.0))


def run_earlier(measure: Measure = toys.simulate_smooth, n: int = 128) -> list[Trial]:
    trials = toys.run_policy(Random(toys.Large(), seed=9), toys.simulate_smooth, n)
    return toys.simulate_trials([trial.config for trial in trials], measure)


def policy(*tasks: Sequence[Trial], seed: int = 0, **options: Any) -> GpPrior:
    gp_prior = GpPrior(toys.Large(), seed=seed, **{"points": 100, "neighbours": 50, **options})
    if tasks:
        gp_prior.transfer([(toys.Large(), trials) for trials in tasks])
    return gp_prior


def median_cost(trials: Sequence[Trial]) -> float:
    return float(np.median([min(toys.simulate_smooth(trial.config).cost, 1.0) for trial in trials]))


def test_what_it_has_learnt_is_faster_than_what_is_random() -> None:
    trials = toys.run_policy(policy(), toys.simulate_smooth, 48)
    assert median_cost(trials[8:]) < 0.7 * median_cost(trials[:8])


def test_other_workloads_choose_three_of_four_first_trials() -> None:
    at_random = median_cost(toys.run_policy(policy(), toys.simulate_smooth, 8))
    first = toys.run_policy(policy(run_earlier()), toys.simulate_smooth, 8)
    from_tournament, random_trials = [trial for i, trial in enumerate(first) if i % 4 < 3], first[3::4]
    assert median_cost(from_tournament) < 0.7 * at_random
    assert median_cost(random_trials) > median_cost(from_tournament)


def test_own_trials_outweigh_misleading_ones() -> None:
    misled = toys.run_policy(policy(run_earlier(reverse)), toys.simulate_smooth, 64)
    assert median_cost(misled[:8]) > median_cost(toys.run_policy(policy(), toys.simulate_smooth, 8))
    assert median_cost(misled[-16:]) < 0.7 * median_cost(misled[:8])


@pytest.mark.parametrize("n", [1, 2])
def test_few_or_failed_trials_of_other_workloads_are_fine(n: int) -> None:
    failed = toys.simulate_trials(toys.Large().probe(8), lambda config: toys.failed_measurement("crash", ""))
    assert len(toys.run_policy(policy(run_earlier(n=n), failed, []), toys.simulate_smooth, 24)) == 24
    assert len(toys.run_policy(policy([]), toys.simulate_smooth, 24)) == 24


@given(st.lists(st.floats(0, 1e6) | st.just(np.inf), min_size=2, max_size=20).filter(lambda c: min(c) < np.inf))
def test_costs_keep_their_order(costs: list[float]) -> None:
    """Failures are the slowest, and a cost of zero has a finite logarithm."""
    values = standardise(costs)
    assert np.isfinite(values).all()
    assert (np.diff(values[np.argsort(costs, kind="stable")]) >= -1e-9).all()


def test_a_failure_counts_as_three_times_the_slowest() -> None:
    assert np.allclose(standardise([1.0, 2.0, 4.0, np.inf]), standardise([1.0, 2.0, 4.0, 12.0]), atol=0.2)
