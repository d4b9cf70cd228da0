"""LFBO tree search: neighbours follow single trees of the forest. What it shares is tested with LFBO pattern search."""

from __future__ import annotations

import numpy as np

from searchlab.conformance import toys
from searchlab.space import Knob
from searchlab_policies.lfbo import is_tile
from searchlab_policies.lfbo_tree import LfboTree, find_choices_within
from searchlab_policies.neighbours import hamming_distance
from searchlab_policies.random import Random

FIRST = 30
"""The number of random trials."""


def start_policy() -> LfboTree:
    """A policy that has been told its random trials and its first generation."""
    policy = LfboTree(toys.Large(), seed=0, neighbours=60)
    toys.run_policy(policy, toys.simulate_smooth, FIRST, FIRST)
    policy.tell(toys.simulate_trials(policy.ask(1000), toys.simulate_smooth, FIRST))
    return policy


def test_it_beats_random_search() -> None:
    tree, chance = LfboTree(toys.Large(), seed=0), Random(toys.Large(), seed=0)
    bests = [
        min(trial.cost for trial in toys.run_policy(policy, toys.simulate_smooth, 110)) for policy in (tree, chance)
    ]
    assert bests[0] < 0.8 * bests[1]


def test_the_first_generation_is_drawn_as_in_pattern_search() -> None:
    policy = LfboTree(toys.Large(), seed=0, neighbours=60)
    toys.run_policy(policy, toys.simulate_smooth, FIRST, FIRST)
    fastest = [trial.config for trial in sorted(policy.trials, key=lambda trial: trial.cost)[:5]]
    assert all(min(hamming_distance(config, start) for start in fastest) <= 2 for config in policy.ask(1000))


def test_a_neighbour_is_at_least_as_good_to_its_tree() -> None:
    """Only knobs that the tree tests on the config's path change, and one tile."""
    policy = start_policy()
    forest = policy._train_forest()
    assert forest is not None
    config = min(policy.trials, key=lambda trial: trial.cost).config
    knobs = policy.space.knobs(config)
    rng = np.random.default_rng(0)
    changed = 0
    for tree in forest.estimators_[:20]:
        row = policy.space.features(config)
        path = policy._find_knobs_on_path(knobs, dict(config), row, tree, np.random.default_rng(0))
        tested = policy._find_knobs_on_path([k for k in knobs if not is_tile(k)], dict(config), row, tree, rng)
        assert len(path) >= len(tested) and any(is_tile(knob) for knob in path)
        neighbour = policy._improve_config(config, knobs, tree, np.random.default_rng(0))
        assert {name for name in config if config[name] != neighbour[name]} <= {knob.name for knob in path}
        rows = np.float32([policy.space.features(c) for c in (config, neighbour)])
        before, after = tree.predict_proba(rows)[:, 1]
        assert after >= before
        changed += neighbour != config
    assert changed > 10


def test_values_within_a_radius_are_in_the_order_of_distance() -> None:
    assert find_choices_within(Knob("number", [1, 2, 4, 8, 16, 32]), 8, 2) == [4, 16, 2, 32]
    assert find_choices_within(Knob("word", ["a", "b", "c"]), "b", 2) == ["a", "c"]
    assert find_choices_within(Knob("tile", [(8, 1), (4, 2), (2, 4), (1, 8)]), (8, 1), 1) == [(4, 2)]
