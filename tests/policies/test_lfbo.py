"""LFBO pattern search: what its forest learns, what it selects, and the four faults of the original."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.policy import NeverTwice
from searchlab.records import Measurement, Trial
from searchlab.space import Config
from searchlab_policies.lfbo import Copy, Lfbo
from searchlab_policies.neighbours import hamming_distance
from searchlab_policies.random import Random

FIRST = 30
"""The number of random trials."""


def start_policy(cost: toys.SimulateFunction = toys.simulate_smooth, seed: int = 0, **options: Any) -> Lfbo:
    """A policy that has been told its random trials."""
    policy = Lfbo(toys.Large(), seed=seed, **options)
    toys.run_policy(policy, cost, FIRST, FIRST)
    return policy


def copies(policy: Lfbo) -> list[Copy]:
    assert policy._copies is not None
    return policy._copies


def best(policy: NeverTwice, batch: int) -> float:
    return min(trial.cost for trial in toys.run_policy(policy, toys.simulate_smooth, 120, batch))


@pytest.mark.parametrize("variant", ["fixed", "original"])
def test_it_beats_random_search(variant: Any) -> None:
    bests = [best(Lfbo(toys.Large(), seed=seed, variant=variant), 8) for seed in range(2)]
    chance = [best(Random(toys.Large(), seed=seed), 8) for seed in range(2)]
    assert np.mean(bests) < 0.8 * np.mean(chance)


@pytest.mark.parametrize("variant", ["fixed", "original"])
def test_the_batch_size_does_not_matter(variant: Any) -> None:
    small, large = (Lfbo(toys.Large(), seed=0, neighbours=60, variant=variant) for _ in range(2))
    assert toys.run_policy(small, toys.simulate_smooth, 90, 7) == toys.run_policy(large, toys.simulate_smooth, 90, 64)


def test_a_generation_is_a_tenth_of_the_bests_neighbours() -> None:
    policy = start_policy()
    fastest = {t.config for t in sorted(policy.trials, key=lambda t: t.cost)[:5]}
    generation = policy.ask(1000)
    assert {copy.current.config for copy in copies(policy)} == fastest
    assert 5 * 5 < len(generation) <= 5 * 30
    assert all(min(hamming_distance(config, start) for start in fastest) <= 2 for config in generation)


def test_what_is_good_and_how_much_it_weighs() -> None:
    """The fastest tenth is good, failures are not, and the forest prefers the good configs."""
    policy = start_policy(toys.simulate_flaky)
    forest = policy._train_forest()
    assert forest is not None
    rows = np.array([policy.space.features(trial.config) for trial in policy.trials], dtype=np.float32)
    good = forest.predict_proba(rows)[:, 1] > 0.5
    costs = np.array([trial.cost for trial in policy.trials])
    threshold = np.quantile(costs[np.isfinite(costs)], policy.quantile)
    assert set(np.flatnonzero(good)) <= set(np.flatnonzero(costs <= threshold))
    assert good[int(np.argmin(costs))], "the fastest has the largest weight"


def test_similar_configs_are_selected_only_if_similarity_is_free() -> None:
    policy = start_policy()
    forest = policy._train_forest()
    assert forest is not None
    configs = policy.space.sample_new(np.random.default_rng(1), 200, policy.seen)
    rows = np.array([policy.space.features(config) for config in configs], dtype=np.float32)
    probabilities = dict(zip(configs, forest.predict_proba(rows)[:, 1], strict=True))
    policy.similarity = 0.0
    by_probability = policy._select_best(configs, 10, forest, np.random.default_rng(0))
    assert [probabilities[c] for c in by_probability] == sorted(probabilities.values(), reverse=True)[:10]
    policy.similarity = 1.0
    diverse = policy._select_best(configs, 10, forest, np.random.default_rng(0))
    assert diverse[0] == by_probability[0]
    assert sum(map(probabilities.__getitem__, diverse)) < sum(map(probabilities.__getitem__, by_probability))


def test_rejected_neighbours_are_lost_only_in_the_original() -> None:
    for variant, lost in (("fixed", False), ("original", True)):
        policy = start_policy(variant=variant)
        generation = policy.ask(1000)
        assert (len(policy._visited) > FIRST + len(generation)) == lost


def test_only_the_original_ends_a_copy_with_few_neighbours() -> None:
    for variant, ends in (("fixed", False), ("original", True)):
        policy = start_policy(variant=variant, neighbours=5, polish=0)
        assert (policy.ask(8) == []) == ends


@pytest.mark.parametrize(("variant", "slower"), [("fixed", False), ("original", True)])
def test_a_copy_moves_to_a_slower_config_only_in_the_original(variant: Any, slower: bool) -> None:
    """Everything in the first generation is slower than where the copies started."""
    policy = start_policy(variant=variant)
    generation = policy.ask(1000)
    before = {id(copy): copy.current.cost for copy in copies(policy)}
    policy.tell(toys.simulate_trials(generation, lambda _: toys.successful_measurement(1.0), FIRST))
    policy.ask(8)
    assert any(copy.current.cost > before[id(copy)] for copy in copies(policy)) == slower


def test_the_original_learns_from_the_first_repeat() -> None:
    trial = Trial(0, Config({}), Measurement(seconds=(3.0, 1.0, 1.0), program="made up"))
    crashed = Trial(0, Config({}), toys.failed_measurement("crash", "made up"))
    assert [start_policy(variant=v)._choose_label(trial) for v in ("fixed", "original")] == [1.0, 3.0]
    assert [start_policy(variant=v)._choose_label(crashed) for v in ("fixed", "original")] == [math.inf, math.inf]


def test_the_descent_ends_at_a_config_without_a_faster_neighbour() -> None:
    """In a space whose copies end soon: no copy may draw a neighbour."""
    policy = Lfbo(toys.Small(), seed=0, n_startup=4, copies=1, neighbours=1, patience=0)
    trials = toys.run_policy(policy, toys.simulate_smooth, 120)
    assert len(trials) < 120, "it stops"
    fastest = min(trials, key=lambda trial: trial.cost)
    neighbours = set(policy._generate_step_neighbours(fastest.config, np.random.default_rng(0)))
    assert neighbours <= policy.seen.keys()
    assert len(
        toys.run_policy(
            Lfbo(toys.Small(), seed=0, n_startup=4, copies=1, neighbours=1, patience=0, polish=0),
            toys.simulate_smooth,
            120,
        )
    ) < len(trials)
