"""Simulated annealing: what it accepts, and when."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.policy import private_rng
from searchlab.records import Trial
from searchlab.space import Config
from searchlab_policies import annealing
from searchlab_policies.annealing import Annealing, compute_acceptance_probability
from searchlab_policies.random import Random


def configs(n: int) -> list[Config]:
    return toys.Large().sample_new(np.random.default_rng(0), n, ())


def tell_times(seconds: list[float], seed: int = 0, **options: Any) -> Annealing:
    """A policy told trials that took so long; infinite for those that failed."""
    policy = Annealing(toys.Large(), seed=seed, **options)
    policy.tell(
        [
            Trial(
                i,
                config,
                toys.successful_measurement(t) if math.isfinite(t) else toys.failed_measurement("crash", "made up"),
            )
            for i, (config, t) in enumerate(zip(configs(len(seconds)), seconds, strict=True))
        ]
    )
    return policy


def test_worse_is_accepted_early_and_not_late() -> None:
    """A config 1.2 times as slow, as the second trial and as the sixtieth, over 200 seeds."""

    def accepted(steps: int) -> float:
        # Ever faster trials, each of which is a step and a move; then the slower one.
        seconds = [0.99**i for i in range(steps)]
        seconds.append(1.2 * seconds[-1])
        runs = [tell_times(seconds, seed, chains=1, temperature=0.3, cooling=0.85) for seed in range(200)]
        return float(np.mean([policy.chains[0].trial is policy.trials[-1] for policy in runs]))

    assert abs(accepted(1) - math.exp(-math.log(1.2) / (0.3 * 0.85))) < 0.1
    assert accepted(60) == 0


def test_only_ratios_of_costs_matter() -> None:
    seconds = np.random.default_rng(0).lognormal(size=40).tolist()
    for seed in range(5):
        fast, slow = (tell_times([factor * t for t in seconds], seed) for factor in (1e-6, 1.0))
        assert [chain.trial and chain.trial.index for chain in fast.chains] == [
            chain.trial and chain.trial.index for chain in slow.chains
        ]


def test_the_metropolis_rule() -> None:
    fast, slow = (Trial(0, Config(), toys.successful_measurement(t)) for t in (1.0, 2.0))
    failed = Trial(0, Config(), toys.failed_measurement("crash", "made up"))
    assert (
        compute_acceptance_probability(fast, slow, 0.1)
        == compute_acceptance_probability(fast, fast, 0.1)
        == compute_acceptance_probability(slow, None, 0.1)
        == 1
    )
    assert compute_acceptance_probability(slow, fast, 0.5) == pytest.approx(0.25)
    assert compute_acceptance_probability(slow, fast, 0.0) == 0
    assert compute_acceptance_probability(failed, slow, 1e9) == compute_acceptance_probability(failed, None, 1e9) == 0


def test_each_chain_has_its_own_trials() -> None:
    policy = tell_times([4.0, 3.0, 2.0, 5.0, math.inf, 1.0], chains=3, temperature=0)
    assert [chain.trial and chain.trial.index for chain in policy.chains] == [0, 1, 5]


def test_a_chain_that_is_stuck_goes_to_the_best_and_is_heated() -> None:
    policy = tell_times([1.0, 0.5, *[9.0, 0.6, 9.0, 0.7, 9.0, 0.8]], chains=2, temperature=0, patience=3)
    first = policy.chains[0]
    assert first.trial is not None and first.trial.index == 1
    assert (first.step_count, first.idle_step_count) == (0, 0)


def test_proposals_are_a_knob_away_from_their_chain() -> None:
    policy = tell_times([1.0, 2.0, 3.0, 4.0], chains=4)
    for turn, config in enumerate(policy.ask(8)):
        chain = policy.chains[turn % 4]
        assert chain.trial is not None
        assert sum(config[name] != value for name, value in chain.trial.config.items()) == 1


def test_beats_random_search() -> None:
    best = [
        min(t.cost for t in toys.run_policy(Annealing(toys.Large(), seed=s), toys.simulate_smooth, 96))
        for s in range(12)
    ]
    chance = [
        min(t.cost for t in toys.run_policy(Random(toys.Large(), seed=s), toys.simulate_smooth, 96)) for s in range(12)
    ]
    assert np.median(best) < 0.85 * np.median(chance)


def test_trials_of_another_space_are_passed_over() -> None:
    policy = Annealing(toys.Large(), seed=0)
    policy.tell(toys.run_policy(Random(toys.Small(), seed=1), toys.simulate_flaky, 16))
    assert policy.best is None and all(chain.trial is None for chain in policy.chains)
    assert len(toys.run_policy(policy, toys.simulate_flaky, 24)) == 24


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"chains": 0}, "option 'chains' is 0"),
        ({"temperature": -1}, "option 'temperature' is -1"),
        ({"cooling": 1.1}, "option 'cooling' is 1.1; it must be a number from 0 to 1"),
        ({"patience": 0}, "option 'patience' is 0"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(SearchlabError, match=text):
        Annealing(toys.Small(), seed=0, **options)


def test_no_acceptance_is_drawn_from_the_stream_of_an_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one was: from ``[seed, 1, 0]``, which is ``[seed, 1]``, the stream of an ask after one trial."""
    numbers = []

    def spied(seed: int, tag: str, *counters: int) -> np.random.Generator:
        numbers.append(private_rng(seed, tag, *counters).random())
        return private_rng(seed, tag, *counters)

    monkeypatch.setattr(annealing, "private_rng", spied)
    tell_times([1e-3 * (i + 1) for i in range(20)])
    assert len(set(numbers)) == 20
    assert not set(numbers) & {np.random.default_rng([0, count]).random() for count in range(100)}
