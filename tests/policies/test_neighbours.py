"""Neighbourhoods: complete where knobs are independent, within constraints elsewhere, and never empty without need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.conformance import toys
from searchlab.space import Choose, Config, Knob, Space
from searchlab.workload import parse_workload
from searchlab_policies.neighbours import (
    draw_adjacent,
    draw_near,
    draw_neighbour,
    draw_neighbours,
    hamming_distance,
    perturb,
    vary_knob,
)
from searchlab_spaces.parameters import Parameters


def make_listed_space() -> Parameters:
    """Two parameters from 0 to 5 whose sum must be even, and a switch."""
    parameters = {"x": tuple(range(6)), "y": tuple(range(6)), "on": (False, True)}
    configs = [
        {"x": x, "y": y, "on": on} for x in range(6) for y in range(6) for on in (False, True) if (x + y) % 2 == 0
    ]
    options = Parameters.options_for(parameters, configs)
    return Parameters(parse_workload("kernel:toy"), toys.TARGET, **options)


SPACES: list[Callable[[], Space]] = [
    toys.Small,
    toys.Large,
    toys.Dependent,
    toys.NoKnobs,
    toys.SingleChoice,
    make_listed_space,
]


@given(st.sampled_from(SPACES), st.integers(0, 2**32))
def test_neighbours_are_members_and_differ(make: Callable[[], Space], seed: int) -> None:
    space, rng = make(), np.random.default_rng(seed)
    config = space.sample(rng)
    for knob in space.knobs(config):
        neighbours = list(vary_knob(space, config, knob, rng))
        assert len(set(neighbours)) == len(neighbours)
        assert all(changed in space and changed != config for changed in neighbours)
        changes_alone = {hamming_distance(config, changed) == 1 for changed in neighbours}
        assert len(changes_alone) <= 1, "either every neighbour along a knob keeps the other knobs, or none does"
        values = [value for value in knob.choices if value != config[knob.name]]
        exact = [changed for value in values if (changed := Config({**config, knob.name: value})) in space]
        assert not exact or neighbours == exact
        assert bool(neighbours) == bool(values)
    changed = draw_neighbour(space, config, rng)
    assert changed in space
    assert (changed == config) == all(len(knob.choices) == 1 for knob in space.knobs(config))
    assert perturb(space, config, 3, rng) in space


def test_the_values_may_be_given_in_another_order() -> None:
    space, rng = toys.Small(), np.random.default_rng(0)
    config = space.config_at(0)
    knob = space.axes[1]
    assert [changed["unroll"] for changed in vary_knob(space, config, knob, rng, [512, 0, 16])] == [512, 16]


def test_every_neighbour_is_equally_likely() -> None:
    space, rng = toys.Small(), np.random.default_rng(1)
    config = space.config_at(17)
    neighbours = [changed for knob in space.axes for changed in vary_knob(space, config, knob, rng)]
    counts = Counter(draw_neighbour(space, config, rng) for _ in range(200 * len(neighbours)))
    assert set(counts) == set(neighbours)
    assert max(counts.values()) < 2 * min(counts.values())


def test_a_constraint_excludes_neighbours() -> None:
    space, rng = make_listed_space(), np.random.default_rng(0)
    config = Config({"x": 2, "y": 2, "on": True})
    assert config in space
    x, _, on = space.knobs(config)
    assert [changed["x"] for changed in vary_knob(space, config, x, rng)] == [0, 4]
    assert [changed["on"] for changed in vary_knob(space, config, on, rng)] == [False]


def test_a_knob_that_cannot_be_changed_alone_is_repaired() -> None:
    space, rng = toys.Dependent(), np.random.default_rng(0)
    config = Config({"sketch": "packed", "tile": (2, 2, 2), "vector": 2, "pack": "a", "parallel": True})
    sketch, tile, *_ = space.knobs(config)
    assert [changed["sketch"] for changed in vary_knob(space, config, sketch, rng)] == ["plain", "tiled"]
    assert all(changed["vector"] == 2 for changed in vary_knob(space, config, tile, rng)), "these need no repair"
    assert "sketch" in {
        name
        for _ in range(200)
        for name, value in draw_neighbour(space, config, rng).items()
        if config.get(name) != value
    }


def test_a_walk_takes_as_many_steps_as_requested() -> None:
    space, rng = toys.Large(), np.random.default_rng(0)
    config = space.sample(rng)
    assert perturb(space, config, 0, rng) == config
    assert max(hamming_distance(config, perturb(space, config, 2, rng)) for _ in range(20)) == 2


class Sum(toys.Dependent):
    """Two numbers whose sum is three: neither can be changed alone."""

    def decide(self, choose: Choose) -> Config:
        a = choose(Knob("a", (0, 1, 2, 3)))
        return Config({"a": a, "b": choose(Knob("b", (3 - int(a),)))})  # type: ignore[arg-type]


def test_no_config_is_isolated_by_what_depends_on_it() -> None:
    space, rng = Sum(), np.random.default_rng(0)
    config = space.sample(rng)
    assert len(list(vary_knob(space, config, space.knobs(config)[0], rng))) == 3
    assert draw_neighbour(space, config, rng) != config


def test_the_distance_counts_differing_knobs() -> None:
    a = Config({"x": 1, "y": 2})
    assert hamming_distance(a, a) == 0
    assert hamming_distance(a, Config({"x": 1, "y": 3})) == 1
    assert hamming_distance(a, Config({"x": 1, "z": 3})) == 2


@pytest.mark.parametrize("make", [toys.NoKnobs, toys.SingleChoice])
def test_a_config_without_neighbours(make: Callable[[], Space]) -> None:
    space, rng = make(), np.random.default_rng(0)
    config = space.sample(rng)
    assert draw_neighbour(space, config, rng) == perturb(space, config, 2, rng) == config


@given(st.sampled_from(SPACES), st.integers(1, 3), st.integers(0, 2**32))
def test_near_differs_in_few_knobs_unless_repaired(make: Callable[[], Space], radius: int, seed: int) -> None:
    space, rng = make(), np.random.default_rng(seed)
    config = space.sample(rng)
    changed = draw_near(space, config, radius, rng)
    assert changed in space
    assert make in (toys.Dependent, make_listed_space) or hamming_distance(config, changed) <= radius


@given(st.sampled_from(SPACES), st.integers(0, 2**32), st.sampled_from(["strictly-adjacent", "adjacent", "Hamming"]))
def test_drawn_neighbours_are_distinct_members(make: Callable[[], Space], seed: int, kind: str) -> None:
    space, rng = make(), np.random.default_rng(seed)
    config = space.sample(rng)
    neighbours = draw_neighbours(space, config, kind, 4, rng)
    assert len(set(neighbours)) == len(neighbours) <= 4
    assert all(changed in space and changed != config for changed in neighbours)


def test_adjacent_configs_are_uniform_and_one_choice_away() -> None:
    space, rng = toys.Small(), np.random.default_rng(0)
    config = Config({knob.name: knob.choices[min(1, len(knob.choices) - 1)] for knob in space.axes})
    counts = Counter(draw_adjacent(space, config, rng) for _ in range(20_000))
    steps = space.indices(list(space.enumerate())) - space.indices([config])
    assert len(counts) == np.count_nonzero(abs(steps).max(axis=1) == 1)
    assert all(abs(space.indices([config]) - space.indices([changed])).max() == 1 for changed in counts)
    assert max(counts.values()) < 1.4 * min(counts.values())
