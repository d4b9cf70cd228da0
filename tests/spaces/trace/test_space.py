"""Stochastic trace functions: every sample is a knob, even if it depends on earlier choices."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import cast

import cloudpickle
import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule
from tvm_ffi import structural_equal, structural_hash

from searchlab.errors import InvalidConfig, SearchlabError, UnsupportedWorkload
from searchlab.space import Config, Knob, Value
from searchlab.target import Target, resolve_target
from searchlab.workload import gemm, parse_workload
from searchlab_spaces.trace import Trace, last_sample
from searchlab_spaces.trace.cpu import stochastic_schedule_gemm, stochastic_schedule_mm
from tests.support.spaces.programs import assert_right, fingerprints, replay_trace, valid_configs
from tests.support.spaces.targets import UNOPTIMIZED

PADDED = "conv2d:1x9x9x8x4x3x3:p1"


def dependent(sch: Schedule) -> None:
    """How j is unrolled depends on its tile, and whether k is split on a pick."""
    block = sch.get_sblock("gemm")
    _, j, k = sch.get_loops(block)
    _, j1 = sch.split(j, tile := sch.sample_perfect_tile(j, n=2, max_innermost_factor=8))
    inner = sch.get(tile[1])
    unroll = sch.sample_categorical([0, *range(1, inner + 1)], [0.0] + [1 / inner] * inner)
    sch.annotate(j1, "pragma_auto_unroll_max_step", unroll)
    if sch.get(sch.sample_categorical([0, 1], [0.5, 0.5])):
        sch.split(k, sch.sample_partitioned_tile(k, n=3, partition_pos=1, innerpart_factor=4))


def locate(sch: Schedule) -> None:
    """The pad of a convolution is computed wherever that is legal under tiles of its rows."""
    conv, pad = sch.get_sblock("conv2d"), sch.get_sblock("pad")
    y = sch.get_loops(conv)[2]
    sch.split(y, sch.sample_perfect_tile(y, n=2))
    sch.compute_at(pad, sch.sample_compute_location(pad))


def refusing(sch: Schedule) -> None:
    """TVM refuses a tile of j that does not cover it."""
    j = sch.get_loops(sch.get_sblock("gemm"))[1]
    width = sch.get(sch.sample_categorical([2, 4, 8], [0.4, 0.3, 0.3]))
    sch.split(j, [2, width])
    sch.sample_perfect_tile(sch.get_loops(sch.get_sblock("gemm"))[0], n=2)


def endless(sch: Schedule) -> None:
    """No tile of j has a last factor of 0: TVM looks for one without end."""
    block = sch.get_sblock("gemm")
    if sch.get(sch.sample_categorical([0, 1], [0.5, 0.5])):
        sch.sample_perfect_tile(sch.get_loops(block)[1], n=2, max_innermost_factor=0)


def with_decision(sch: Schedule) -> None:
    """A sample with a fixed decision is not a choice."""
    i = sch.get_loops(sch.get_sblock("gemm"))[0]
    sch.split(i, sch.sample_perfect_tile(i, n=2, decision=[4, 4]))


def steps(space: Trace, values: dict[str, Value]) -> dict[str, list[Value]]:
    """Return the choices of each knob on the way to ``values``; unspecified knobs get their first choice."""
    choices: dict[str, list[Value]] = {}

    def choose(knob: Knob) -> Value:
        choices[knob.name] = list(knob.choices)
        return values.get(knob.name, knob.choices[0])

    space.decide(choose)
    return choices


def test_the_function_is_run_only_for_choices_that_are_new(native: Target) -> None:
    runs = 0

    def counted(sch: Schedule) -> None:
        nonlocal runs
        runs += 1
        dependent(sch)

    space = Trace(gemm(16, 16, 16), native, function=counted)
    for config in (configs := list(space.enumerate())):
        assert space.decide(lambda knob, config=config: config[knob.name]) == config  # type: ignore[misc]
    runs = 0
    assert list(space.enumerate()) == configs
    assert all([knob.name for knob in space.knobs(config)] == list(config) for config in configs)
    rng = np.random.default_rng(0)
    mutants = [space.mutate(space.sample(rng), rng) for _ in range(50)]
    assert runs == 0
    copy = pickle.loads(cloudpickle.dumps(Trace(gemm(16, 16, 16), native)))
    assert copy._choice_tree is Trace(gemm(16, 16, 16), native)._choice_tree is not space._choice_tree
    fresh, rng = Trace(gemm(16, 16, 16), native, function=dependent), np.random.default_rng(0)
    assert [fresh.mutate(fresh.sample(rng), rng) for _ in range(50)] == mutants
    with pytest.raises(InvalidConfig, match="'pick_2' cannot be 2"):
        space.knobs({**configs[0], "pick_2": 2})


def test_the_rest_of_a_function_is_skipped_after_its_last_sample(native: Target) -> None:
    completed = 0

    def ordered(sch: Schedule) -> None:
        nonlocal completed
        i, j, k = sch.get_loops(sch.get_sblock("gemm"))
        tile = sch.sample_perfect_tile(j, n=2)
        last_sample(sch)
        sch.reorder(i, k, *sch.split(j, tile))
        completed += 1

    space = Trace(gemm(16, 16, 16), native, function=ordered)
    completed = 0
    configs = list(space.enumerate())
    assert len(configs) == 5
    assert completed == 0
    split = space.schedule(configs[1])
    assert completed == 1
    assert len(split.get_loops(split.get_sblock("gemm"))) == 4
    ordered(schedule := Schedule(space.workload.module, seed=1))  # as MetaSchedule calls it
    assert space.config_of(schedule) in configs


def test_a_sample_after_the_last_one_is_an_error(native: Target) -> None:
    def wrong(sch: Schedule) -> None:
        last_sample(sch)
        sch.sample_perfect_tile(sch.get_loops(sch.get_sblock("gemm"))[0], n=2)

    with pytest.raises(SearchlabError, match="must not draw another sample after calling last_sample"):
        Trace(gemm(16, 16, 16), native, function=wrong)


def test_a_function_need_not_be_hashable(native: Target) -> None:
    class Equal:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        def __call__(self, sch: Schedule) -> None:
            dependent(sch)

    space = Trace(gemm(16, 16, 16), native, function=Equal())
    assert space.sample(np.random.default_rng(0)) in space


def test_what_is_remembered_is_bounded(native: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab_spaces.choice_tree.MAX_CONFIGS", 5)
    space = Trace(gemm(16, 16, 16), native, function=dependent)
    unbounded = Trace(gemm(16, 16, 16), native, function=lambda sch: dependent(sch))
    rng, second_rng = np.random.default_rng(0), np.random.default_rng(0)
    assert [space.sample(rng) for _ in range(40)] == [unbounded.sample(second_rng) for _ in range(40)]


def test_a_function_that_does_more_than_schedule_is_found_out(native: Target) -> None:
    runs = 0

    def moody(sch: Schedule) -> None:
        nonlocal runs
        runs += 1
        i, j, _ = sch.get_loops(sch.get_sblock("gemm"))
        sch.sample_perfect_tile(i, n=2)
        sch.sample_perfect_tile(j if runs % 2 else i, n=2)

    space = Trace(gemm(16, 16, 16), native, function=moody)
    rng = np.random.default_rng(0)
    with pytest.raises(SearchlabError, match="asks for different knobs after .* {'tile"):
        for _ in range(50):
            space.sample(rng)


def test_later_choices_depend_on_earlier_ones(native: Target) -> None:
    space = Trace(gemm(16, 16, 16), native, function=dependent)
    tiles: list[Value] = [(2, 8), (4, 4), (8, 2), (16, 1)]
    assert steps(space, {"tile_j": (4, 4)}) == {"tile_j": tiles, "pick": [1, 2, 3, 4], "pick_2": [0, 1]}
    split = steps(space, {"tile_j": (8, 2), "pick_2": 1})
    assert split["pick"] == [1, 2]
    assert split["tile_p"][:3] == [(1, 1, 16), (1, 2, 8), (1, 4, 4)]
    assert all(b * c % 4 == 0 for _, b, c in cast(list[tuple[int, ...]], split["tile_p"]))
    assert space.size() == (8 + 4 + 2 + 1) * (1 + len(split["tile_p"]))
    rng = np.random.default_rng(0)
    for config in (space.sample(rng) for _ in range(20)):
        schedule = space.schedule(config)
        assert structural_equal(schedule.mod, replay_trace(schedule, space.workload).mod)
        assert space.mutate(config, rng) in space
        assert space.crossover(config, space.sample(rng), rng) in space
        assert space.canonical(config) == config
    assert Config({"tile_j": (4, 4), "pick": 5, "pick_2": 0}) not in space
    with pytest.raises(InvalidConfig, match=r"'pick' cannot be 0"):  # its probability is none
        space.schedule(Config({"tile_j": (4, 4), "pick": 0, "pick_2": 0}))


def test_compute_locations_are_legal_at_their_instruction(native: Target) -> None:
    space = Trace(parse_workload(PADDED), native, function=locate)
    tiled = steps(space, {"tile_y": (3, 3)})["location_pad"]
    assert tiled == [-2, -1, 1, 2, 3, 4]  # inlined, at the root, or at a loop: 0 is the one image
    assert steps(space, {"tile_y": (9, 1)})["location_pad"] == [-2, -1, 1, 2, 4]  # 3 goes round once
    for location in tiled:
        config = Config({"tile_y": (3, 3), "location_pad": location})
        schedule = space.schedule(config)
        decided = [schedule.trace.get_decision(inst) for inst in schedule.trace.insts]
        assert location in decided
        assert structural_equal(schedule.mod, replay_trace(schedule, space.workload).mod)
    assert_right(space.workload, schedule, native)


def test_sampling_leaves_no_other_trace(native: Target) -> None:
    space = Trace(gemm(16, 16, 16), native, function=stochastic_schedule_mm)
    schedule = space.schedule(Config({"tile_j": (4, 4)}))
    assert type(schedule) is Schedule
    plain = Schedule(space.workload.module)
    block = plain.get_sblock("gemm")
    i, j, k = plain.get_loops(block)
    j0, j1 = plain.split(j, plain.sample_perfect_tile(j, n=2, decision=[4, 4]))
    plain.reorder(i, j0, k, j1)
    plain.decompose_reduction(block, k)
    assert str(schedule.trace) == str(plain.trace)
    assert structural_equal(schedule.mod, plain.mod)


def test_choices_that_fail_are_an_invalid_config(native: Target) -> None:
    space = Trace(gemm(16, 16, 16), native, function=refusing)
    assert set(steps(space, {"pick": 2})) == {"pick"}
    assert set(steps(space, {"pick": 8})) == {"pick", "tile_i"}
    short = Config({"pick": 2})
    assert short in space
    with pytest.raises(InvalidConfig, match="refusing fails: .*product of factors"):
        space.schedule(short)
    assert space.schedule(Config({"pick": 8, "tile_i": (4, 4)}))


def test_a_decision_that_is_given_is_no_knob(native: Target) -> None:
    space = Trace(gemm(16, 16, 16), native, function=with_decision)
    assert list(space.enumerate()) == [Config()]
    assert "range(4)" in str(space.schedule(Config()).mod) or "T.grid(4, 4" in str(space.schedule(Config()).mod)


@pytest.mark.parametrize(
    "spelling",
    [
        "gemm:16x24x32",
        "gemm:7x13x5:float64",
        "gemm:8x12x9:bias:relu",
        "gemm:8x12x9:nt:bias",
        "batch-matmul:3x8x12x9:nt",
        "batch-matmul:3x8x12x9:add",
        "conv2d:1x8x8x8x4x1x1",
        "conv2d:1x1x1x1x1x1x1",
        "conv2d:1x13x11x7x5x3x3:s2:bias",
        "conv2d:2x9x12x6x4x3x3:p1x2:d2x1:s1x2:bias:relu",
        "conv2d:1x7x9x5x3x3x3:p2:d2:float64:relu",
        "conv2d:1x6x6x4x3x3x3:p1:int8",
        "conv2d:1x9x12x8x8x3x3:p1:g8",
        "conv2d:2x9x8x12x6x3x2:s2:g2:bias:relu",
    ],
)
@pytest.mark.parametrize("cores", [1, 2])
def test_shipped_functions_give_the_right_answer(spelling: str, cores: int) -> None:
    target = resolve_target({**UNOPTIMIZED, "num-cores": cores})
    space = Trace(parse_workload(spelling), target)
    rng = np.random.default_rng(cores)
    for config in (space.sample(rng) for _ in range(4)):
        schedule = space.schedule(config)
        assert ("T.parallel" in schedule.mod.script()) is (cores > 1)
        assert_right(space.workload, schedule, target)
        assert structural_equal(schedule.mod, replay_trace(schedule, space.workload).mod)


@pytest.mark.parametrize(
    "spelling", ["gemm:16x24x32", "gemm:7x13x5:float64:relu", "gemm:8x12x9:bias:relu", "gemm:1x1x1"]
)
@pytest.mark.parametrize("cores", [1, 2])
def test_tiled_gemm_gives_the_right_answer(spelling: str, cores: int) -> None:
    target = resolve_target({**UNOPTIMIZED, "num-cores": cores})
    space = Trace(parse_workload(spelling), target, function=stochastic_schedule_gemm)
    rng = np.random.default_rng(cores)
    for pick in (0, 1, 2):
        config = space.repair({**space.sample(rng), "pick": pick}, rng)
        schedule = space.schedule(config)
        assert ("T.parallel" in schedule.mod.script()) is (cores > 1)
        assert_right(space.workload, schedule, target)
        assert structural_equal(schedule.mod, replay_trace(schedule, space.workload).mod)


def test_tiled_gemm_is_few_programs_and_all_are_different(native: Target) -> None:
    space = Trace(gemm(35, 70, 105), native, function="searchlab_spaces.trace.cpu:stochastic_schedule_gemm")
    assert 800 <= (space.size() or 0) <= 3000
    small = Trace(gemm(4, 6, 4), native, function=stochastic_schedule_gemm)
    programs = [structural_hash(small.schedule(config).mod) for config in small.enumerate()]
    assert len(set(programs)) == len(programs) == small.size()


def test_how_wide_a_tile_of_the_gemm_is_depends_on_how_high(native: Target) -> None:
    space = Trace(gemm(48, 64, 40), native, function=stochastic_schedule_gemm)
    for height, widest in ((1, 64), (6, 32), (12, 16)):
        tiles = steps(space, {"tile_i": (48 // height, height)})["tile_j"]
        assert max(tile[-1] for tile in cast(list[tuple[int, ...]], tiles)) == widest
    assert max(cast(tuple[int, ...], tile)[-1] for tile in steps(space, {"pick": 0})["tile_p"]) == 10
    assert "pick_3" not in steps(space, {"pick": 1, "tile_p": (1, 40)})
    assert "pick_3" in steps(space, {"pick": 1, "tile_p": (4, 10)})


def test_conv2d_is_vectorised_and_unrolled_within_the_registers(native: Target) -> None:
    space = Trace(parse_workload("conv2d:1x28x28x32x16x3x3:p1:relu"), native)
    rng = np.random.default_rng(0)
    for config in (space.sample(rng) for _ in range(30)):
        rows, columns = config["tile_y"], config["tile_x"]
        assert rows[-1] * columns[-1] <= 16  # type: ignore[index, operator]
    wide = space.schedule(space.repair({"tile_f": (2, 16), "tile_y": (14, 2), "tile_x": (1, 7, 4)}, rng))
    assembly = tvm.compile(wide.mod, target=native.tvm).mod.inspect_source("ll")
    assert "<16 x float>" in assembly


def test_a_depthwise_convolution_is_vectorised_over_columns(native: Target) -> None:
    space = Trace(parse_workload("conv2d:1x16x16x8x8x3x3:p1:g8"), native)
    rng = np.random.default_rng(0)
    wide = space.schedule(space.repair({"tile_y": (8, 2), "tile_x": (1, 16), "pick": 1}, rng))
    assert "<16 x float>" in tvm.compile(wide.mod, target=native.tvm).mod.inspect_source("ll")


def test_same_choices_same_program_in_every_process(native: Target) -> None:
    space = Trace(parse_workload(PADDED), native)
    rng = np.random.default_rng(2)
    for config in (space.sample(rng) for _ in range(5)):
        repeated = space.decide(lambda knob, config=config: config[knob.name])  # type: ignore[misc]
        assert repeated == config and list(repeated) == list(config)
        assert structural_equal(space.schedule(config).mod, space.schedule(repeated).mod)
        assert Config({name: list(v) if isinstance(v, tuple) else v for name, v in config.items()}) in space
    assert len(fingerprints("searchlab_spaces.trace.space:Trace", PADDED)) == 1


@pytest.mark.parametrize("function", ["searchlab_spaces.trace.cpu:stochastic_schedule_mm", stochastic_schedule_mm])
def test_function_is_a_name_or_an_object(function: str | Callable[[Schedule], None], native: Target) -> None:
    space = Trace(gemm(16, 16, 16), native, function=function)
    assert [knob.name for knob in space.knobs(Config({"tile_j": (2, 8)}))] == ["tile_j"]


def test_the_default_function_of_gemm_tiles_all_its_loops(native: Target) -> None:
    space = Trace(gemm(16, 16, 16), native)
    assert space.function == "searchlab_spaces.trace.cpu:stochastic_schedule_gemm"
    assert {"tile_i", "tile_j"} <= set(space.sample(np.random.default_rng(0)))


def test_a_function_defined_anywhere_travels_to_workers(native: Target) -> None:
    factor = 4

    def local(sch: Schedule) -> None:
        sch.split(sch.get_loops(sch.get_sblock("gemm"))[0], [None, factor])
        sch.sample_categorical([1, 2], [0.5, 0.5])

    space = Trace(gemm(16, 16, 16), native, function=local)
    config = space.sample(np.random.default_rng(0))
    copy: Trace = pickle.loads(cloudpickle.dumps(space))
    assert config in copy
    assert structural_equal(copy.schedule(config).mod, space.schedule(config).mod)
    assert copy.fingerprint == space.fingerprint


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("stochastic_schedule_mm", 'must have the form "module:function"'),
        ("no_such_module:f", "cannot be loaded: No module named 'no_such_module'"),
        ("searchlab_spaces.trace.cpu:stochastic_schedule_nn", "did you mean 'stochastic_schedule_mm'"),
        ("searchlab_spaces.trace.cpu:MAX_TILE_PIXELS", "must be a function that accepts a schedule"),
        ("__main__:mine", "defined in a script or a notebook"),
        (7, "must be a function that accepts a schedule"),
    ],
)
def test_bad_function_is_refused_in_one_sentence(function: object, message: str, native: Target) -> None:
    with pytest.raises(SearchlabError, match=message) as caught:
        Trace(gemm(8, 8, 8), native, function=function)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_function_of_another_workload_is_refused(native: Target) -> None:
    with pytest.raises(UnsupportedWorkload, match="stochastic_schedule_mm' yields no program for conv2d.*block"):
        Trace(parse_workload(PADDED), native, function=stochastic_schedule_mm)
    with pytest.raises(UnsupportedWorkload, match='function = "module:function"'):
        Trace(gemm(8, 8, 8), Target({"kind": "opencl"}))


def test_an_error_of_the_choosing_function_is_raised(native: Target) -> None:
    def choose(knob: Knob) -> Value:
        raise ValueError(f"no opinion on {knob.name}")

    with pytest.raises(SearchlabError, match="space 'trace' failed in decide: ValueError: no opinion on pick"):
        Trace(gemm(8, 8, 8), native).decide(choose)


def test_a_bug_in_the_function_is_not_an_invalid_config(native: Target) -> None:
    with pytest.raises(AttributeError):
        Trace(gemm(8, 8, 8), native, function=lambda sch: sch.no_such_primitive())


def test_samples_are_valid_programs(native: Target) -> None:
    space = Trace(parse_workload("conv2d:1x28x28x64x64x3x3:p1:bias:relu"), native)
    assert len(valid_configs(space, np.random.default_rng(0), 30)) == 30


@pytest.mark.parametrize("spelling", ["gemm:64x64x64", "gemm:35x70x105", "conv2d:1x7x7x8x3x5x5:p2"])
def test_what_tvm_draws_of_a_function_of_ours_is_in_its_space(spelling: str, native: Target) -> None:
    function = f"searchlab_spaces.trace.cpu:stochastic_schedule_{spelling.partition(':')[0]}"
    space = Trace(parse_workload(spelling), native, function=function)
    configs = [space.config_of(space.draw(seed)) for seed in range(1, 20)]
    assert len(set(configs)) > 1
    assert [config for config in configs if config not in space] == []


def test_a_draw_ends_where_no_tile_is_legal(native: Target) -> None:
    space = Trace(gemm(8, 8, 8), native, function=endless)
    with pytest.raises(InvalidConfig, match="last factor of at most 0"):
        for seed in range(1, 100):
            space.draw(seed)
    with pytest.raises(InvalidConfig, match="no legal value"):
        space.schedule(Config({"pick": 1}))
