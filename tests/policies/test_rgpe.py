"""An ensemble of processes, whose weights depend on how well each ranks the run's own trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.records import Measurement, Trial
from searchlab.space import Config
from searchlab_policies.gaussian_process import GaussianProcess, compute_matern_kernel, compute_squared_distances
from searchlab_policies.random import Random
from searchlab_policies.rgpe import Rgpe, compute_ranking_weights


def reverse(config: Config) -> Measurement:
    return toys.successful_measurement(1e-3 / min(toys.simulate_smooth(config).cost, 1.0))


def run_earlier(measure: Callable[[Config], Measurement] = toys.simulate_smooth, n: int = 48) -> list[Trial]:
    configs = [trial.config for trial in toys.run_policy(Random(toys.Large(), seed=9), toys.simulate_smooth, n)]
    return toys.simulate_trials(configs, measure)


def policy(*tasks: Sequence[Trial], **options: Any) -> Rgpe:
    policy = Rgpe(toys.Large(), seed=0, **{"points": 100, "neighbours": 50, "memory": 48, **options})
    policy.transfer([(toys.Large(), trials) for trials in tasks])
    return policy


def median_cost(trials: Sequence[Trial]) -> float:
    return float(np.median([min(toys.simulate_smooth(trial.config).cost, 1.0) for trial in trials]))


def test_earlier_runs_select_the_first_trials() -> None:
    at_random = median_cost(toys.run_policy(policy(), toys.simulate_smooth, 8))
    assert median_cost(toys.run_policy(policy(run_earlier()), toys.simulate_smooth, 8)) < 0.7 * at_random


def test_earlier_runs_that_mislead_lose_their_weight() -> None:
    misled = toys.run_policy(policy(run_earlier(reverse), run_earlier(reverse)), toys.simulate_smooth, 48)
    assert median_cost(misled[-16:]) < 0.7 * median_cost(misled[:8])


def test_failed_or_few_trials_of_earlier_runs_are_fine() -> None:
    failed = toys.simulate_trials(toys.Large().probe(8), lambda config: toys.failed_measurement("crash", ""))
    assert len(toys.run_policy(policy(run_earlier(n=1), failed, []), toys.simulate_smooth, 16)) == 16


@pytest.mark.parametrize(
    ("losses", "weights"),
    [
        ([[1, 5, 5, 5], [5, 1, 5, 5], [3, 3, 3, 3]], [0.0, 0.0, 1.0]),  # their medians exceed the run's losses
        ([[1, 1, 1, 5], [3, 3, 3, 5], [3, 3, 3, 5]], [0.75, 0.0, 0.25]),  # the run's process takes ties
        ([[1, 1], [1, 1], [3, 3]], [1.0, 0.0, 0.0]),
        ([[3, 3]], [1.0]),
    ],
)
def test_a_weight_is_the_share_of_samples_ranked_best(losses: list[list[int]], weights: list[float]) -> None:
    assert compute_ranking_weights(np.array(losses)).tolist() == weights


def process(rows: Any, values: Any) -> GaussianProcess:
    return GaussianProcess(rows, values, np.zeros(1, dtype=int))


ROWS = np.linspace(0, 1, 9)[:, None]
VALUES = np.sin(5 * ROWS[:, 0])


def test_each_trial_is_predicted_from_the_others() -> None:
    full = process(ROWS, VALUES)
    scaled = ROWS / full.lengths
    covariance = compute_matern_kernel(compute_squared_distances(scaled, scaled))
    is_other = np.arange(len(ROWS)) != 4
    noisy = covariance[np.ix_(is_other, is_other)] + full.noise * np.eye(8)
    weights = np.linalg.solve(noisy, covariance[is_other, 4])
    mean, deviation = full.leave_one_out()
    assert mean[4] == pytest.approx(full.mean + weights @ (VALUES[is_other] - full.mean), abs=1e-6)
    variance = 1 + full.noise - weights @ covariance[is_other, 4]
    assert deviation[4] ** 2 == pytest.approx(full.variance * variance, rel=1e-3)


def test_a_belief_reduces_deviations_but_not_the_mean() -> None:
    rows = np.linspace(-1, 2, 7)[:, None]
    believer = process(ROWS, VALUES)
    posterior = believer.posterior(rows)
    believer.believe(rows[6], float(posterior.mean[6]))
    posterior.believe(6)
    mean, deviation = believer.predict(rows)
    assert np.allclose(posterior.mean, mean, atol=1e-6)
    assert np.allclose(posterior.deviation, deviation, atol=1e-6)


def test_samples_have_the_mean_and_deviation_of_the_posterior() -> None:
    posterior = process(ROWS, VALUES).posterior(np.linspace(-1, 2, 5)[:, None])
    samples = posterior.sample(4000, np.random.default_rng(0))
    assert np.allclose(samples.mean(axis=0), posterior.mean, atol=0.1)
    assert np.allclose(samples.std(axis=0), posterior.deviation, atol=0.1)
