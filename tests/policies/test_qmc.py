"""The Sobol sequence: no config is random, and the position follows from the trials alone."""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.policy import NeverTwice
from searchlab.records import Trial
from searchlab.space import Config, Space
from searchlab_policies.qmc import Qmc, count_draws_to_cover
from searchlab_policies.random import Random
from tests.support.spaces.products import Product


def tell(policy: NeverTwice, configs: list[Config]) -> None:
    policy.tell([Trial(i, config, toys.simulate_smooth(config)) for i, config in enumerate(configs)])


class Counted(Product):
    """Counts the random configs that fill batches."""

    filled = 0

    def sample_new(self, rng: np.random.Generator, n: int, seen: Container[Config]) -> list[Config]:
        self.filled += n
        return super().sample_new(rng, n, seen)


@pytest.mark.parametrize("seed", range(3))
def test_no_config_is_random(seed: int) -> None:
    """A quarter of the space, where every fourth point is a duplicate at the end; before, some twenty were random."""
    space = Counted()
    policy = Qmc(space, seed=seed)
    configs = [config for _ in range(150) for config in policy.ask(8)]
    assert len(set(configs)) == 1200
    assert space.filled == 0


def test_a_space_is_exhausted_by_the_sequence() -> None:
    space = toys.Small()
    policy = Qmc(space, seed=0)
    assert sum(len(policy.ask(8)) for _ in range(30)) == 120
    assert policy._next_index <= count_draws_to_cover(128)


@pytest.mark.parametrize("space", [Product(), toys.Small(), toys.Dependent()])
@pytest.mark.parametrize("foreign", [0, 20])
def test_the_position_follows_from_the_trials_alone(space: Space, foreign: int) -> None:
    """A policy that was only told trials continues as the one that proposed them, for any batch size."""
    original = Qmc(space, seed=1)
    seen_configs = space.sample_new(np.random.default_rng(5), foreign, ())
    tell(original, seen_configs)
    for n in (8, 1, 30):
        batch = list(original.ask(n))
        tell(original, batch)
        seen_configs += batch
    only_told = Qmc(space, seed=1)
    tell(only_told, seen_configs)
    for _ in range(4):
        assert original.ask(8) == only_told.ask(8)


def test_a_knob_without_dimension_is_random_but_reproducible() -> None:
    class Unprobed(toys.Small):
        def probe(self, count: int = 64) -> list[Config]:
            return [Config()]

        def knobs(self, config):  # type: ignore[no-untyped-def]
            return super().knobs(config) if config else []

    batches = [Qmc(Unprobed(), seed=0).ask(16) for _ in range(2)]
    assert batches[0] == batches[1]
    assert len({config["order"] for config in batches[0]}) == 3


def test_every_place_has_a_point_even_without_knobs() -> None:
    assert Qmc(toys.NoKnobs(), seed=0).ask(4) == list(toys.NoKnobs().enumerate())


def test_it_covers_a_space_sooner_than_chance() -> None:
    """How many of the pairs of choices of two knobs are met by 64 configs: about 58 of 80 at most, 44 by chance."""

    def covered_pairs(policy: NeverTwice) -> int:
        return len({(config["a"], config["b"]) for config in policy.ask(64)})

    pairs = [[covered_pairs(kind(Product(), seed=seed)) for seed in range(10)] for kind in (Qmc, Random)]
    assert np.mean(pairs[0]) > np.mean(pairs[1])
