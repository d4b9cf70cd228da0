"""What follows from ``decide``, on toy spaces of each kind; the registered spaces are in tests/spaces."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.conformance import toys
from searchlab.errors import InvalidConfig
from searchlab.space import Choose, Config, Knob, ProductSpace, Space
from searchlab.target import Target
from searchlab.workload import Workload, gemm

SPACES = [toys.Small, toys.Large, toys.Dependent, toys.SingleChoice, toys.NoKnobs]
spaces = st.sampled_from([kind() for kind in SPACES])
seeds = st.integers(0, 2**32)


@given(spaces, seeds)
def test_samples_mutants_children_and_neighbours_are_members(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = space.sample(rng), space.sample(rng)
    for config in (a, b, space.mutate(a, rng), space.crossover(a, b, rng), *space.neighbours(a, rng)):
        assert config in space
        assert Config(json.loads(json.dumps(config.to_json()))) == config


class Biased(toys.Large):
    """A product whose samples are not uniform."""

    def sample(self, rng: np.random.Generator) -> Config:
        return self.config_at(int(rng.integers(10)))


@given(st.one_of(spaces, st.just(Biased())), seeds, st.integers(0, 20))
def test_samples_are_those_of_sample(space: Space, seed: int, count: int) -> None:
    first, second = np.random.default_rng(seed), np.random.default_rng(seed)
    assert space.samples(second, count) == [space.sample(first) for _ in range(count)]
    assert first.bit_generator.state == second.bit_generator.state


@given(spaces, seeds)
def test_a_mutant_differs_and_a_child_of_twins_does_not(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    config = space.sample(rng)
    assert space.crossover(config, config, rng) == config
    is_open = any(len(knob.choices) > 1 for knob in space.knobs(config))
    assert (space.mutate(config, rng) != config) == is_open


class Counted(toys.Dependent):
    """Counts how often a config is decided, which is the main cost of mutation in spaces with many knobs."""

    decided = 0

    def decide(self, choose: Choose) -> Config:
        self.decided += 1
        return super().decide(choose)


def test_a_walk_decides_one_config_per_step() -> None:
    space, rng = Counted(), np.random.default_rng(0)
    config = space.sample(rng)
    for _ in range(20):
        config = space.mutate(config, rng)
    assert space.decided == 22  # the sample, whose knobs are then asked for, and one for each step


def test_knobs_can_be_changed_by_the_caller() -> None:
    space = toys.Small()
    config = space.sample(np.random.default_rng(0))
    knobs = space.knobs(config)
    space.knobs(config).clear()
    assert space.knobs(config) == knobs


@pytest.mark.parametrize(("space", "knob"), [(toys.Small(), "unroll"), (toys.Dependent(), "sketch")])
def test_a_value_without_a_hash_is_refused_with_the_reason(space: Space, knob: str) -> None:
    wrong = Config({**next(space.enumerate()), knob: {"a": 1}})
    with pytest.raises(InvalidConfig, match=f"knob '{knob}' cannot be {{'a': 1}}"):
        space.knobs(wrong)


WEIGHTS = {"tile": 0.9, "other": 0.1}


@given(spaces, seeds)
def test_a_mutant_by_role_is_a_member_and_differs_where_it_can(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    config = space.sample(rng)
    is_open = any(len(knob.choices) > 1 for knob in space.knobs(config))
    for weights in (WEIGHTS, {}, {"tile": 1.0}, {"tile": 0.0, "other": 1.0}):
        mutant = space.mutate_by_role(config, rng, weights)
        assert mutant in space
        assert (mutant != config) == is_open


@given(seeds)
def test_a_mutated_tile_has_moved_one_factor_between_two_levels(seed: int) -> None:
    rng, space = np.random.default_rng(seed), toys.Large()
    config = space.sample(rng)
    mutant = space.mutate_by_role(config, rng, {"tile": 1.0})
    (name,) = [name for name in config if config[name] != mutant[name]]
    old, new = (np.array(chosen_config[name]) for chosen_config in (config, mutant))
    assert name.startswith("tile") and np.count_nonzero(old != new) == 2 and old.prod() == new.prod()


@pytest.mark.parametrize("kind", [toys.Small, toys.Dependent])
def test_mutation_by_role_reaches_every_config(kind: Callable[[], Space]) -> None:
    space, rng = kind(), np.random.default_rng(0)
    config = space.sample(rng)
    reached = {config}
    for _ in range(20_000):
        config = space.mutate_by_role(config, rng, WEIGHTS)
        reached.add(config)
    assert len(reached) == space.size()


class Open(ProductSpace):
    """The product of any knobs."""

    def __init__(self, knobs: Sequence[Knob]) -> None:
        super().__init__(toys.WORKLOAD, toys.TARGET, knobs)

    def schedule(self, config: Config) -> Any:
        raise NotImplementedError


def test_roles_are_drawn_by_weight_among_those_present() -> None:
    rng = np.random.default_rng(0)
    knobs = [Knob("t", toys.list_tiles(64, 3)), Knob("u", (0, 16, 64), role="unroll"), Knob("w", ("a", "b"))]
    space = Open(knobs)
    config = space.sample(rng)
    weights = {"tile": 0.6, "unroll": 0.3, "location": 9.0, "other": 0.1}
    changed = [space.mutate_by_role(config, rng, weights) for _ in range(3000)]
    shares = [np.mean([mutant[name] != config[name] for mutant in changed]) for name in "tuw"]
    assert np.allclose(shares, [0.6, 0.3, 0.1], atol=0.03)


def test_a_tile_that_no_factor_can_leave_is_drawn_anew() -> None:
    rng = np.random.default_rng(0)
    knob = Knob("t", [(8, 1), (4, 2), (2, 5), (3, 3)])
    assert {knob.move_factor((8, 1), rng) for _ in range(50)} == {(4, 2)}
    assert {knob.move_factor((2, 5), rng) for _ in range(50)} == {(8, 1), (4, 2), (3, 3)}
    assert {Knob("n", (1, 2, 4)).move_factor(2, rng) for _ in range(50)} == {1, 4}


def test_adjacent_choices_are_one_step_away_if_there_is_an_order() -> None:
    assert Knob("n", (8, 1, 4, 2)).adjacent(4) == [2, 8]
    assert Knob("n", (8, 1, 4, 2)).adjacent(1) == [2]
    assert Knob("n", (1, 4)).adjacent(2) == [1, 4], "of a value that is no choice"
    assert set(Knob("t", [(12, 1), (6, 2), (4, 3), (3, 4), (1, 12)]).adjacent((12, 1))) == {(6, 2), (4, 3)}
    assert Knob("t", [(8, 1), (2, 4)]).adjacent((8, 1)) == [(2, 4)], "any other, if none is one step away"
    assert Knob("w", ("a", "b", "c")).adjacent("b") == ["a", "c"]
    assert Knob("s", (False, True)).adjacent(True) == [False]


@given(spaces, seeds)
def test_children_inherit_independent_knobs_from_parents(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = space.sample(rng), space.sample(rng)
    if isinstance(space, ProductSpace):
        child = space.crossover(a, b, rng)
        assert all(child[name] in (a[name], b[name]) for name in child)


@pytest.mark.parametrize("kind", [toys.Small, toys.Dependent, toys.SingleChoice, toys.NoKnobs])
def test_enumeration_gives_every_config_once(kind: Callable[[], Space]) -> None:
    space = kind()
    listed = list(space.enumerate())
    assert len(set(listed)) == len(listed) == space.size()
    assert all(config in space for config in listed)
    rng = np.random.default_rng(0)
    assert {space.sample(rng) for _ in range(3000)} <= set(listed)


class Skewed(toys.Dependent):
    """Ten sketches, nine of which are a single config, and the tenth a billion."""

    def decide(self, choose: Choose) -> Config:
        sketch = choose(Knob("sketch", range(10)))
        digits = [(f"digit{i}", choose(Knob(f"digit{i}", range(10)))) for i in range(9 if sketch == 9 else 0)]
        return Config([("sketch", sketch), *digits])


class AskedForKnobs(toys.Large):
    """The same configs as Large, with a ``decide`` of its own: each knob is asked for."""

    def decide(self, choose: Choose) -> Config:
        return super().decide(choose)


@given(seeds)
def test_a_product_draws_the_same_choices_by_either_method(seed: int) -> None:
    def walk(space: ProductSpace) -> list[list[tuple[str, object]]]:
        rng = np.random.default_rng(seed)
        a, b = space.sample(rng), space.sample(rng)
        backwards = Config(list(reversed(list(b.items()))))
        dropped = {name: value for name, value in a.items() if rng.random() < 0.5}
        steps = [space.mutate(a, rng), space.mutate(backwards, rng), space.mutate_by_role(b, rng, WEIGHTS)]
        steps += [
            space.crossover(a, b, rng),
            space.repair({**dropped, "stranger": 1}, rng),
            *space.neighbours(a, rng),
        ]
        return [list(config.items()) for config in steps]

    assert toys.Large().independent and not AskedForKnobs().independent
    assert walk(toys.Large()) == walk(AskedForKnobs())


def test_sample_new_finds_what_is_left_of_a_skewed_space_at_once() -> None:
    space, rng = Skewed(), np.random.default_rng(0)
    seen = {Config({"sketch": i}) for i in range(9)}
    new_configs = [config for _ in range(200) for config in space.sample_new(rng, 4, seen)]
    assert len(new_configs) == 800 and not seen & set(new_configs)


def test_enumeration_in_random_order_gives_every_config_once() -> None:
    for kind in (toys.Small, toys.Dependent, toys.NoKnobs):
        listed = [list(kind().enumerate(np.random.default_rng(seed))) for seed in (0, 0, 1)]
        assert listed[0] == listed[1] and set(listed[0]) == set(kind().enumerate())
        assert len(listed[0]) == kind().size()
        assert listed[0] != listed[2] or kind is toys.NoKnobs


def test_size_is_none_beyond_its_limit() -> None:
    assert toys.Dependent().size(limit=191) is None
    assert toys.Dependent().size(limit=192) == 192


@given(st.integers(0, 10**6))
def test_a_product_space_is_indexed_first_knob_fastest(index: int) -> None:
    space = toys.Large()
    assert space.index_of(space.config_at(index)) == index
    by_hand, stride = 0, 1
    for knob, position in zip(space.axes, space.indices([space.config_at(index)])[0], strict=True):
        by_hand += int(position) * stride
        stride *= len(knob.choices)
    assert by_hand == index


def test_index_outside_and_config_outside_are_refused() -> None:
    space = toys.Small()
    with pytest.raises(IndexError, match="120"):
        space.config_at(120)
    with pytest.raises(InvalidConfig, match="unroll"):
        space.index_of({**space.config_at(0), "unroll": 3})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unroll": 3}, "knob 'unroll' cannot be 3"),
        ({"unrol": 0}, "unrol"),
        ({"tile": None}, "knob 'tile' cannot be None"),
    ],
)
def test_a_config_outside_the_space_is_refused_with_the_reason(change: dict[str, object], message: str) -> None:
    space = toys.Small()
    strange = Config({**space.config_at(7), **change})
    assert strange not in space
    with pytest.raises(InvalidConfig, match=message):
        space.knobs(strange)
    with pytest.raises(InvalidConfig, match="no value for knob"):
        space.knobs({})


@given(spaces, seeds)
def test_sample_new_gives_what_is_left_and_then_nothing(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen: set[Config] = set()
    if (size := space.size(1000)) is None or size > 1000:
        return
    while batch := space.sample_new(rng, 50, seen):
        assert len(set(batch)) == len(batch) <= 50 and not seen & set(batch)
        seen |= set(batch)
    assert len(seen) == size


def test_sampling_is_uniform_over_choices() -> None:
    space = toys.Small()
    rng = np.random.default_rng(0)
    counts = np.bincount([space.indices([space.sample(rng)])[0, 1] for _ in range(4000)])
    assert counts.min() > 900


def test_fingerprints_are_distinct_and_equal_in_every_process() -> None:
    assert toys.Small().fingerprint == toys.Small().fingerprint
    assert len({kind().fingerprint for kind in SPACES}) == len(SPACES)
    assert toys.Dependent().fingerprint == "ce2a88b9bab3f663"


class Widths(ProductSpace):
    """Its option may be a positional argument."""

    def __init__(self, workload: Workload, target: Target, width: int = 1, *, height: int = 1) -> None:
        super().__init__(workload, target, [Knob("width", range(width)), Knob("height", range(height))])

    def schedule(self, config: Config) -> Any:
        raise NotImplementedError


def test_a_space_knows_what_it_was_made_with(native: Target) -> None:
    assert Widths(gemm(8, 8, 8), native).made_with == {}
    assert Widths(target=native, workload=gemm(8, 8, 8), width=2).made_with == {"width": 2}
    space = Widths(gemm(8, 8, 8), native, 3, height=4)
    assert space.made_with == pickle.loads(pickle.dumps(space)).made_with == {"width": 3, "height": 4}


def test_a_config_is_frozen_and_a_knob_has_choices() -> None:
    config = Config({"tile": [4, 2]})
    assert config["tile"] == (4, 2) and hash(config) == hash(Config([("tile", (4, 2))]))
    with pytest.raises(TypeError):
        config["tile"] = 1  # type: ignore[index]
    with pytest.raises(InvalidConfig, match="no legal choice"):
        Knob("tile", [])


# --- large spaces, probes, and kinds of knobs ---------------------------------------------------------


class Switches(ProductSpace):
    """64 switches: more configs than Python's ``len`` can say."""

    def __init__(self) -> None:
        super().__init__(toys.WORKLOAD, toys.TARGET, [Knob(f"s{i}", (False, True)) for i in range(64)])

    def schedule(self, config: Config) -> Any:
        raise NotImplementedError


def test_a_space_larger_than_len_allows_is_enumerated() -> None:
    space = Switches()
    assert space.size() == 2**64
    assert bool(space)
    last = space.config_at(2**64 - 1)
    assert all(last.values()) and space.index_of(last) == 2**64 - 1
    assert [space.index_of(config) for config in islice(space.enumerate(), 3)] == [0, 1, 2]
    assert len(set(islice(space.enumerate(np.random.default_rng(0)), 3))) == 3
    assert len(space.sample_new(np.random.default_rng(0), 5, ())) == 5
    with pytest.raises(IndexError, match="index 18446744073709551616 is outside"):
        space.config_at(2**64)
    with pytest.raises(OverflowError):
        len(space)


def test_a_probe_is_the_same_every_time_and_longer_ones_go_on() -> None:
    space = toys.Dependent()
    assert space.probe() == toys.Dependent().probe(64)
    assert space.probe(32) == space.probe(64)[:32]


@pytest.mark.parametrize(
    ("choices", "kind"),
    [
        ((1, 2.5), "number"),
        (range(4), "number"),
        ([(1, 4), (2, 2)], "tile"),
        ([(1,), (1, 2)], "tile"),
        (("ijk", "kji"), "word"),
        ((False, True), "word"),
        ((False, "model"), "word"),
        (("none", (1, 4)), "mixed"),
        ((0, "auto"), "mixed"),
        ((True, 2), "mixed"),
    ],
)
def test_a_knob_is_of_the_kind_of_its_choices(choices: Any, kind: str) -> None:
    assert Knob("k", choices).kind == kind


def test_knobs_are_collected_by_name_from_members_alone() -> None:
    space = toys.Dependent()
    knobs = space.knobs_of([Config({"order": (0, 1)}), *space.enumerate()])
    assert set(knobs) == {"sketch", "tile", "vector", "pack", "parallel"}
    assert knobs["sketch"].name == "sketch" and knobs["tile"].kind == "tile"
