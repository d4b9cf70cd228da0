"""Kernel Tuner's iterated local search: held against recorded runs of the original, and what batches change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.records import Trial
from searchlab.space import Config
from searchlab_policies.greedy_ils import GreedyIls
from searchlab_policies.neighbours import hamming_distance
from searchlab_policies.random import Random
from tests.support.autotvm import read_recording, repeat_run


@pytest.mark.parametrize("name", ["greedy-ils-b1", "greedy-ils-restarts-b1"])
def test_it_proposes_what_kernel_tuners_does(name: str) -> None:
    """Trial by trial, with the original's random numbers; the second recording restarts often and walks two steps."""
    for seed, expected in list(read_recording(name).items())[:10]:
        assert repeat_run(name, seed, 200) == expected


def search(
    batch: int, cost: toys.SimulateFunction, seed: int, trials: int = 48
) -> tuple[list[Trial], dict[int, Config]]:
    """A run's trials, and the config from which each of its scans started."""
    policy = GreedyIls(toys.Dependent() if seed % 2 else toys.Large(), seed=seed)
    trials_so_far: list[Trial] = []
    bases = {}
    while len(trials_so_far) < trials and (configs := policy.ask(batch)):
        bases[policy._scan.number] = policy._scan.centre
        batch_trials = [Trial(len(trials_so_far) + i, config, cost(config)) for i, config in enumerate(configs)]
        policy.tell(batch_trials)
        trials_so_far += batch_trials
    return trials_so_far, bases


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 9))
def test_a_batch_holds_what_comes_next_unless_something_improves(seed: int, batch: int) -> None:
    """Where nothing ever improves, batches change nothing."""
    (single, _), (batched, _) = (search(size, toys.simulate_equal, seed) for size in (1, batch))
    assert [trial.config for trial in batched][:48] == [trial.config for trial in single]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 9))
def test_every_batch_size_takes_the_same_path(seed: int, batch: int) -> None:
    """Batches cost trials that a climb would not have needed, but it makes the same moves."""
    (_, single), (_, batched) = (search(size, toys.simulate_flaky, seed) for size in (1, batch))
    common = single.keys() & batched.keys()
    assert {number: single[number] for number in common} == {number: batched[number] for number in common}
    assert 0 in common


def test_it_moves_at_the_first_improvement() -> None:
    policy = GreedyIls(toys.Large(), seed=0)
    (first,) = policy.ask(1)
    policy.tell(toys.simulate_trials([first], lambda config: toys.successful_measurement(3.0)))
    (second,) = policy.ask(1)
    assert hamming_distance(first, second) == 1
    policy.tell(toys.simulate_trials([second], lambda config: toys.successful_measurement(3.0)))
    third, _ = policy.ask(2)
    assert hamming_distance(first, third) == 1, "the second is not faster"
    policy.tell(toys.simulate_trials([third], lambda config: toys.successful_measurement(2.0)))
    proposals = policy.ask(4)
    assert all(hamming_distance(third, config) == 1 for config in proposals)


def test_with_a_warm_start_it_begins_at_the_fastest() -> None:
    earlier_trials = toys.run_policy(Random(toys.Large(), seed=1), toys.simulate_smooth, 24)
    policy = GreedyIls(toys.Large(), seed=0)
    policy.warm_start(earlier_trials)
    best = min(earlier_trials, key=lambda trial: trial.cost).config
    assert all(hamming_distance(best, config) == 1 for config in policy.ask(8))


def test_beats_random_search() -> None:
    best = [
        min(t.cost for t in toys.run_policy(GreedyIls(toys.Large(), seed=s), toys.simulate_smooth, 96, 1))
        for s in range(8)
    ]
    chance = [
        min(t.cost for t in toys.run_policy(Random(toys.Large(), seed=s), toys.simulate_smooth, 96)) for s in range(8)
    ]
    assert np.median(best) < 0.85 * np.median(chance)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"no_improvement": 0}, "option 'no_improvement' is 0; it must be a whole number of at least 1"),
        ({"random_walk": 2}, "option 'random_walk' is 2; it must be a number from 0 to 1"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(SearchlabError, match=text):
        GreedyIls(toys.Small(), seed=0, **options)
