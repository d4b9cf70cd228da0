"""Nevergrad's (1+1) evolution strategy: held against recorded runs of the original, and how its rate adapts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.records import Trial
from searchlab.space import Config
from searchlab_policies.neighbours import hamming_distance
from searchlab_policies.one_plus_one import OnePlusOne
from searchlab_policies.random import Random
from tests.support.autotvm import read_recording, repeat_run


def test_it_proposes_what_nevergrads_does() -> None:
    """Trial by trial, with the original's random numbers, although it evaluates known configs again."""
    for seed, expected in list(read_recording("one-plus-one-b1").items())[:3]:
        assert repeat_run("one-plus-one-b1", seed, 200) == expected


def test_the_parent_is_the_best_and_of_equals_the_latest() -> None:
    policy = OnePlusOne(toys.Large(), seed=0)
    configs = toys.Large().sample_new(np.random.default_rng(0), 4, ())
    for config, seconds, parent in zip(configs, (2.0, 3.0, 2.0, 1.0), (0, 0, 2, 3), strict=True):
        policy.tell([Trial(0, config, toys.successful_measurement(seconds))])
        assert policy.parent == configs[parent]


def test_a_batch_has_one_parent() -> None:
    policy = OnePlusOne(toys.Large(), seed=0, rate=0.0)
    first = policy.ask(4)
    assert all(hamming_distance(first[0], config) <= 2 for config in first), (
        "mutations of the first at a rate of 0.1 / d"
    )


@pytest.mark.parametrize("rate", [0.2, 0.9])
def test_knobs_are_redrawn_at_the_rate(rate: float) -> None:
    policies = [OnePlusOne(toys.Large(), seed=seed, rate=rate, spread=0.0) for seed in range(200)]
    changed = [hamming_distance(*policy.ask(2)) / 6 for policy in policies]
    assert np.mean(changed) == pytest.approx(rate / (1 - (1 - rate) ** 6), abs=0.05), "at least one"


def test_the_rate_of_the_best_in_a_window_is_the_next() -> None:
    policy = OnePlusOne(toys.Large(), seed=0, window=3)
    configs = policy.ask(6)
    rates = [policy._rates_by_config[config] for config in configs]
    assert rates[0] == 0.2 and len(set(rates)) == 6, "each mutation has its own"

    def tell(seconds: float) -> None:
        i = len(policy.trials)
        policy.tell([Trial(i, configs[i], toys.successful_measurement(seconds))])

    tell(1.0), tell(3.0)  # type: ignore[func-returns-value]
    assert policy.rate == 0.2
    tell(2.0)
    assert policy.rate == rates[0]
    for seconds in (5.0, 4.0, 6.0):
        tell(seconds)
    assert policy.rate == rates[4], "the best of its window, although slower than the parent"


def test_trials_of_other_runs_have_the_initial_rate() -> None:
    policy = OnePlusOne(toys.Large(), seed=0, rate=0.3, window=4)
    earlier_trials = toys.run_policy(Random(toys.Large(), seed=1), toys.simulate_smooth, 8)
    policy.warm_start(earlier_trials)
    assert policy.rate == 0.3
    assert policy.parent == min(earlier_trials, key=lambda trial: trial.cost).config


def test_beats_random_search() -> None:
    best = [
        min(t.cost for t in toys.run_policy(OnePlusOne(toys.Large(), seed=s), toys.simulate_smooth, 96, 1))
        for s in range(8)
    ]
    chance = [
        min(t.cost for t in toys.run_policy(Random(toys.Large(), seed=s), toys.simulate_smooth, 96)) for s in range(8)
    ]
    assert np.median(best) < 0.85 * np.median(chance)


def test_knobs_may_depend_on_each_other() -> None:
    trials = toys.run_policy(OnePlusOne(toys.Dependent(), seed=0), toys.simulate_flaky, 1000, 1)
    assert len({trial.config for trial in trials}) == 192


def test_a_config_without_knobs() -> None:
    assert [trial.config for trial in toys.run_policy(OnePlusOne(toys.NoKnobs(), seed=0), toys.simulate_smooth, 4)] == [
        Config()
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rate": 1.5}, "option 'rate' is 1.5; it must be a number from 0 to 1"),
        ({"spread": -1}, "option 'spread' is -1"),
        ({"window": 0}, "option 'window' is 0"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(SearchlabError, match=text):
        OnePlusOne(toys.Small(), seed=0, **options)
