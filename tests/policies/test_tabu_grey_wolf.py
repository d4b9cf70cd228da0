"""Adaptive Tabu Grey Wolf: held against recorded runs of the original, and what its repairs change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.records import Measurement
from searchlab.space import Config
from searchlab_policies.random import Random
from searchlab_policies.tabu_grey_wolf import TabuGreyWolf, Wolf, recombine
from tests.support.autotvm import read_recording, repeat_run


@pytest.mark.parametrize("name", ["tabu-grey-wolf-b1", "tabu-grey-wolf-cold-b1"])
def test_it_proposes_what_the_original_does(name: str) -> None:
    """In the cold runs, the temperature falls and the pack is restarted often."""
    for seed, expected in list(read_recording(name).items())[:2]:
        assert repeat_run(name, seed, 200) == expected


def test_a_batch_ends_with_the_iteration() -> None:
    policy = TabuGreyWolf(toys.Large(), seed=0)
    sizes = []
    for _ in range(6):
        batch = policy.ask(64)
        sizes.append(len(batch))
        policy.tell(toys.simulate_trials(batch, toys.simulate_smooth, sum(sizes)))
    assert sizes[0] == 8, "the first pack"
    assert max(sizes[1:]) <= 5, "the leaders have no children"


def make_stuck_policy(repaired: bool) -> TabuGreyWolf:
    """A policy whose pack consists of copies of one wolf."""
    policy = TabuGreyWolf(toys.Large(), seed=0, repaired=repaired)
    policy.tell(toys.simulate_trials(policy.ask(8), toys.simulate_smooth))
    policy._pack = [min(policy._pack, key=lambda wolf: wolf.cost)] * 8
    policy._begin_iteration()
    return policy


def test_copies_of_leaders_stand_still_unless_it_is_repaired() -> None:
    assert not make_stuck_policy(False)._waiting_indices
    assert list(make_stuck_policy(True)._waiting_indices) == [3, 4, 5, 6, 7]


def test_stagnation_replaces_the_slowest_wolves() -> None:
    policy = make_stuck_policy(False)
    policy.ask(1)
    assert not policy._is_hunting and len(policy._waiting_indices) == 2, "of three, one has been asked for"
    best = policy._pack[0]
    policy.tell(toys.simulate_trials([next(iter(policy._pending_roles))], toys.simulate_smooth, 8))
    policy.tell(toys.simulate_trials(policy.ask(8), toys.simulate_smooth, 9))
    assert best in policy._pack


def proposals(unit: float, **options: Any) -> list[Config]:
    def cost(config: Config) -> Measurement:
        return Measurement((unit * toys.simulate_smooth(config).cost,), program="made up")

    return [trial.config for trial in toys.run_policy(TabuGreyWolf(toys.Large(), seed=0, **options), cost, 96, 1)]


def test_repaired_it_does_not_depend_on_the_unit_of_time() -> None:
    assert proposals(1, repaired=True, budget=96) == proposals(1024, repaired=True, budget=96)
    assert proposals(1, budget=96) != proposals(1024, budget=96)


def test_the_temperature_falls_over_the_budget() -> None:
    heats = []
    for trials in (16, 64, 200):
        policy = TabuGreyWolf(toys.Large(), seed=0, repaired=True, budget=128)
        toys.run_policy(policy, toys.simulate_smooth, trials, 1)
        heats.append(policy._current_temperature)
    assert heats[0] > heats[1] > heats[2]
    assert heats[2] < 0.01


@pytest.mark.parametrize("space", [toys.Large(), toys.Dependent()])
def test_a_child_takes_each_knob_from_a_parent(space: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        parents = [space.sample(rng) for _ in range(4)]
        child = recombine(space, parents, rng)
        assert child in space
        if isinstance(space, toys.Large):
            assert all(child[name] in {parent[name] for parent in parents} for name in child)


def test_after_a_warm_start_the_fastest_are_the_pack() -> None:
    space = toys.Large()
    policy = TabuGreyWolf(space, seed=0)
    earlier_trials = toys.run_policy(Random(space, seed=1), toys.simulate_smooth, 32)
    policy.warm_start(earlier_trials)
    fastest = sorted(earlier_trials, key=lambda trial: trial.cost)[:8]
    assert policy._pack == [Wolf(trial.config, trial.cost * 1e3) for trial in fastest]
    assert len(policy.ask(8)) <= 5


def test_repaired_it_beats_random_search() -> None:
    def median_best(kind: Any, **options: Any) -> float:
        runs = [
            toys.run_policy(kind(toys.Large(), seed=seed, **options), toys.simulate_smooth, 96, 1) for seed in range(6)
        ]
        return float(np.median([min(trial.cost for trial in run) for run in runs]))

    assert median_best(TabuGreyWolf, repaired=True, budget=96) < median_best(Random)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"pack": 3}, "option 'pack' is 3; it must be a whole number of at least 4"),
        ({"restart": 0}, "option 'restart' is 0"),
        ({"min_temperature": 0}, "option 'min_temperature' is 0"),
    ],
)
def test_bad_options_are_named(option: dict[str, Any], message: str) -> None:
    with pytest.raises(SearchlabError, match=message):
        TabuGreyWolf(toys.Small(), seed=0, **option)
