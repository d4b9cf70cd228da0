"""AutoTVM's ``multi_filter``: the space is what a brute-force filter of the product leaves, however it is walked."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm.s_tir import Schedule

from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel
from searchlab.costmodel.features import KnobFeatures
from searchlab.errors import InvalidConfig, SearchlabError
from searchlab.policy import POLICIES
from searchlab.records import Trial
from searchlab.space import Config, Knob, ProductSpace, Value
from searchlab.target import Target
from searchlab.workload import gemm
from searchlab_costmodels.xgboost import XGBoost
from searchlab_spaces.templates import KnobTemplate, TemplateConfig
from searchlab_spaces.templates import multi_filter as rooms
from searchlab_spaces.templates.knobs import OptionKnob
from searchlab_spaces.templates.multi_filter import FilteredProduct, MultiFilter
from tests.support import policies

pytestmark = pytest.mark.usefixtures("language_model")  # which "llm" asks


class Filtered(FilteredProduct):
    """Knobs a, b, ... with the configs whose values of some knobs are in ``allowed``."""

    def __init__(self, lengths: list[int], looked_at: list[int], allowed: set[tuple[int, ...]]) -> None:
        knobs = [OptionKnob("abcdef"[i], range(length)) for i, length in enumerate(lengths)]
        super().__init__(toys.WORKLOAD, toys.TARGET, knobs)
        names = [knobs[i].name for i in looked_at]
        self.holds = lambda config: tuple(config[name] for name in names) in allowed
        self.filter = MultiFilter(knobs, lambda cfg: tuple(cfg[name].val for name in names) in allowed)  # type: ignore[union-attr]

    def schedule(self, config: Config) -> Any:
        raise NotImplementedError


@st.composite
def filtered(draw: st.DrawFn) -> Filtered:
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    looked_at = draw(st.lists(st.integers(0, len(lengths) - 1), unique=True))
    tuples = list(itertools.product(*(range(lengths[i]) for i in looked_at)))
    return Filtered(lengths, looked_at, draw(st.sets(st.sampled_from(tuples), min_size=1)))


def enumerate_by_filtering(space: Filtered) -> list[Config]:
    """Return the allowed configs of the product, in the order of their indices."""
    everything = (ProductSpace.config_at(space, index) for index in range(space.range_length))
    return [config for config in everything if space.holds(config)]


@given(filtered())
def test_enumeration_and_index_follow_the_filtered_product(space: Filtered) -> None:
    expected = enumerate_by_filtering(space)
    assert list(space.enumerate()) == expected
    assert len(space) == space.size() == len(expected)
    assert set(space.enumerate(np.random.default_rng(0))) == set(expected)
    valid = [index for index in range(space.range_length) if space.is_index_valid(index)]
    assert [space.index_of(config) for config in expected] == valid
    assert [space.config_at(index) for index in valid] == expected
    for index in set(range(space.range_length)) - set(valid):
        with pytest.raises(IndexError, match="excludes"):
            space.config_at(index)


@given(filtered())
def test_members_are_those_of_the_filtered_product(space: Filtered) -> None:
    for index in range(space.range_length):
        config = ProductSpace.config_at(space, index)
        assert (config in space) == space.holds(config)
        if config not in space:
            with pytest.raises(InvalidConfig, match="cannot be"):
                space.index_of(config)
    assert {**space.sample(np.random.default_rng(0)), "z": 1} not in space


@given(filtered(), st.integers(0, 2**32))
def test_samples_mutants_and_children_stay_inside(space: Filtered, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = space.sample(rng), space.sample(rng)
    derived = [space.mutate(a, rng), space.crossover(a, b, rng), *space.neighbours(a, rng)]
    assert all(space.holds(config) and config in space for config in [a, b, *derived])
    assert len(space.sample_new(rng, len(space), {a})) == len(space) - 1


@given(filtered(), st.data())
def test_no_choice_is_a_dead_end_and_none_is_held_back(space: Filtered, data: st.DataObject) -> None:
    configs = enumerate_by_filtering(space)
    choices: dict[str, Value] = {}

    def choose(knob: Knob) -> Value:
        possible = {c[knob.name] for c in configs if all(c[name] == value for name, value in choices.items())}
        assert set(knob.choices) == possible and len(knob.choices) == len(possible)
        choices[knob.name] = data.draw(st.sampled_from(list(knob.choices)))
        return choices[knob.name]

    assert space.decide(choose) in configs


def test_samples_are_equally_likely() -> None:
    # a = 0 goes with one b, a = 1 with four: chosen in turn and evenly, the first would come half of the time.
    space = Filtered([2, 4, 3], [0, 1], {(0, 2), (1, 0), (1, 1), (1, 2), (1, 3)})
    rng = np.random.default_rng(0)
    counts = np.bincount([space.index_of(space.sample(rng)) for _ in range(6000)], minlength=space.range_length)
    assert len(space) == 15 and np.count_nonzero(counts) == 15
    assert counts[counts > 0].min() > 320 and counts.max() < 480  # 400 each, within four standard deviations


# --- templates --------------------------------------------------------------------------------------------


def tiles(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """The example in AutoTVM's docstring of multi_filter, and a knob that the filter does not look at."""
    i, j, _ = sch.get_loops(sch.get_sblock("gemm"))
    cfg.multi_filter(filter=lambda cfg: cfg["tile_x"].size[0] + cfg["tile_y"].size[0] <= 64)
    for name, loop in (("tile_x", i), ("tile_y", j)):
        cfg.define_split(name, loop, num_outputs=2, policy="candidate", candidate=[[16, 64], [32, 32], [64, 16]])
    cfg.define_knob("unroll", [0, 1])
    cfg["tile_x"].apply(sch, i)
    cfg["tile_y"].apply(sch, j)


def template_with(condition: Callable[[Mapping[str, Any]], bool]) -> Callable[[TemplateConfig, Schedule, Target], None]:
    def function(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
        for number, loop in enumerate(sch.get_loops(sch.get_sblock("gemm"))):
            cfg.define_split(f"tile_{number}", loop, num_outputs=4)
        cfg.multi_filter(condition)

    return function


def make_template_space(name: str, native: Target) -> KnobTemplate:
    return KnobTemplate(gemm(1024, 1024, 8), native, template=f"{__name__}:{name}")


def test_a_filtered_template_keeps_the_index_of_autotvm(native: Target) -> None:
    space = make_template_space("tiles", native)
    assert repr(space) == (
        "ConfigSpace (len=8, range_length=18, space_map=\n"
        "   0 tile_x: Split(policy=candidate, product=1024, num_outputs=2) len=3\n"
        "   1 tile_y: Split(policy=candidate, product=1024, num_outputs=2) len=3\n"
        "   2 unroll: OtherOption([0, 1]) len=2\n"
        ")"
    )
    # x0 + y0 <= 64 leaves 16 + 16, 32 + 16, 16 + 32 and 32 + 32, with x fastest.
    assert [space.index_of(config) for config in space.enumerate()] == [0, 1, 3, 4, 9, 10, 12, 13]
    assert space.to_entity(space.config_at(4))["index"] == 4
    space.schedule(space.config_at(13))
    with pytest.raises(InvalidConfig, match="knob 'tile_y' cannot be"):
        space.schedule(Config({"tile_x": (32, 32), "tile_y": (64, 16), "unroll": 0}))
    with pytest.raises(InvalidConfig, match="knob 'tile_x' cannot be"):
        space.from_entity({"entity": [["tile_x", "sp", [64, 16]], ["tile_y", "sp", [16, 64]], ["unroll", "ot", 0]]})


def test_a_filtered_template_is_pickled_as_its_own_space(native: Target) -> None:
    space = make_template_space("tiles", native)
    for copy in (pickle.loads(pickle.dumps(space)), cloudpickle.loads(cloudpickle.dumps(space))):
        assert copy.fingerprint == space.fingerprint and list(copy.enumerate()) == list(space.enumerate())
    unfiltered = make_template_space("tiles", native)
    unfiltered.filter = None
    assert unfiltered.fingerprint != space.fingerprint


@pytest.mark.parametrize(
    "name", [name for name in policies.policy_params() if name.values[0] not in policies.IN_SKETCH]
)
def test_every_policy_exhausts_a_filtered_template(native: Target, name: str) -> None:
    space = make_template_space("tiles", native)
    options = dict(policies.OPTIONS.get(name, {}))
    if POLICIES.load(name).traits.takes_cost_model:
        options["cost_model"] = BoundCostModel(XGBoost(seed=0, rounds=5), KnobFeatures(space))
    policy = POLICIES.load(name)(space, seed=0, **options)
    indices: list[int] = []
    while configs := policy.ask(3):
        measurements = [
            (config, toys.successful_measurement(1e-3 * (1 + space.index_of(config)))) for config in configs
        ]
        policy.tell([Trial(len(indices) + i, config, measured) for i, (config, measured) in enumerate(measurements)])
        indices += [space.index_of(config) for config in configs]
    allowed = [0, 1, 3, 4, 9, 10, 12, 13]
    assert len(set(indices)) == len(indices) and set(indices) <= set(allowed)
    assert policy.traits.stops or sorted(indices) == allowed


def test_knobs_that_the_filter_does_not_look_at_cost_nothing(native: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def condition(cfg: Mapping[str, Any]) -> bool:
        nonlocal calls
        calls += 1
        return bool(cfg["tile_2"].size[0] > 1 and cfg["tile_2"].size[3] == 2)

    monkeypatch.setattr(rooms, "MAX_COMBINATIONS", 30)
    monkeypatch.setitem(globals(), "few", template_with(condition))
    space = make_template_space("few", native)
    assert space.range_length == 286 * 286 * 20
    assert (len(space), calls) == (286 * 286 * 3, 1 + 20)  # 8 = 2 x 2 x 2: (2, 2, 1, 2), (2, 1, 2, 2), (4, 1, 1, 2)


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (lambda cfg: cfg["tile_0"].size[0] > 1024, "excludes all configs"),
        (lambda cfg: cfg["tiel_0"].size[0] > 1, "multi_filter reads an unknown knob 'tiel_0'; did you mean 'tile_0'"),
        (lambda cfg: len({split.size for split in cfg.values()}) > 1, "tile_0, tile_1, tile_2.* 1,635,920 comb"),
    ],
)
def test_filters_that_cannot_be_are_refused(
    native: Target, monkeypatch: pytest.MonkeyPatch, condition: Callable[[Mapping[str, Any]], bool], reason: str
) -> None:
    monkeypatch.setattr(rooms, "MAX_COMBINATIONS", 10**6)
    monkeypatch.setitem(globals(), "refused", template_with(condition))
    with pytest.raises(SearchlabError, match=reason):
        make_template_space("refused", native)
