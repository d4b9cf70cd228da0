"""The guided conv2d: right answers at any geometry in both lowerings, vector code, and a trace that replays."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import cloudpickle
import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm.s_tir import Schedule
from tvm_ffi import structural_equal

from searchlab.errors import InvalidConfig, SearchlabError, UnsupportedWorkload
from searchlab.measure.local import LocalMeasurer
from searchlab.plugins import Plugin
from searchlab.space import SPACES, Config
from searchlab.target import Cache, Target, resolve_target
from searchlab.workload import conv2d, gemm, parse_workload, preset_names
from searchlab_spaces.guided.common import count_registers
from searchlab_spaces.guided.conv2d import GuidedConv2d
from searchlab_spaces.guided.conv2d_common import accumulator_range, choose_even_shares
from searchlab_spaces.guided.packed import Weights
from tests.support.spaces.targets import UNOPTIMIZED

SPELLINGS = [
    "conv2d:1x8x8x32x16x3x3:p1",  # nothing to pad but the image
    "conv2d:1x1x1x1x1x1x1",
    "conv2d:4x2x1x1x2x1x1:bias",
    "conv2d:2x1x1x40x50x1x1:bias",  # one pixel
    "conv2d:1x3x3x5x3x3x3",  # a kernel as large as the image
    "conv2d:1x23x31x37x5x7x5:s3x2:p3x2:d1x2",
    "conv2d:3x13x11x37x13x3x3:p1:s2:bias",
    "conv2d:1x5x5x17x3x5x5:p4:d2:relu",
    "conv2d:1x7x40x48x33x1x3:p0x1",
    "conv2d:1x40x1x48x33x3x1",  # one column
    "conv2d:1x8x7x32x16x3x3:s2:p0x0x1x2",  # padding on two sides
    "conv2d:1x14x14x100x64x1x1:s2:p1:bias",  # a padded 1x1
    "conv2d:2x14x14x64x32x1x1:bias:relu",
    "conv2d:1x7x7x64x64x3x3:p1:bias:relu",
    "conv2d:2x9x10x24x12x3x3:p1:float64:bias",
    "conv2d:1x9x9x16x8x3x3:p1:float16",
    "conv2d:1x9x9x16x8x3x3:p1:bfloat16",
    "conv2d:1x9x9x16x8x3x3:p1:int8:relu",
    "conv2d:1x9x9x16x8x3x3:p1:uint8",
    "conv2d:1x9x9x16x8x3x3:p1:int16:bias",
]


def make_target(cores: int = 1) -> Target:
    return resolve_target({**UNOPTIMIZED, "num-cores": cores})


def sample_lowerings(space: GuidedConv2d, count: int = 2) -> list[Config]:
    """Up to ``count`` configs of each lowering."""
    configs = list(space.enumerate())
    by_lowering = {name: [c for c in configs if c["lowering"] == name] for name in ("direct", "im2row")}
    rng = np.random.default_rng(0)
    return [group[i] for group in by_lowering.values() for i in rng.permutation(len(group))[:count]]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_result_is_right(spelling: str, measurer: LocalMeasurer) -> None:
    space = GuidedConv2d(parse_workload(spelling), make_target())
    results = list(measurer.measure(space, sample_lowerings(space)))
    assert [result.failure for result in results] == [None] * len(results), [result.message for result in results]


@pytest.mark.parametrize(
    ("spelling", "cores"),
    [
        ("conv2d:1x14x14x64x64x3x3:p1:bias", 2),  # each thread has its own blocks of channels
        ("conv2d:1x28x28x20x24x3x3:p1:relu", 2),
        ("conv2d:1x20x28x16x24x3x3:p1", 5),  # rows are shared out, as there is but one block
        ("conv2d:3x15x13x40x48x3x3:p1:s2:bias", 2),
        ("conv2d:1x7x7x200x128x1x1", 2),  # more channels than pixels
        ("conv2d:2x28x28x37x64x1x1:relu", 2),  # more pixels than channels
        ("conv2d:3x6x5x130x64x3x3:p1:bias", 2),  # a block of channels goes through all images
    ],
)
def test_result_is_right_in_parallel(spelling: str, cores: int, measurer: LocalMeasurer) -> None:
    space = GuidedConv2d(parse_workload(spelling), make_target(cores))
    configs = sample_lowerings(space)
    assert all("T.parallel" in space.schedule(config).mod.script() for config in configs)
    assert {result.failure for result in measurer.measure(space, configs)} == {None}


def test_one_core_and_small_work_have_no_parallel_loop() -> None:
    for spelling, cores in (("conv2d:1x28x28x64x64x3x3:p1", 1), ("conv2d:1x4x4x8x8x3x3:p1", 8)):
        space = GuidedConv2d(parse_workload(spelling), make_target(cores))
        assert all("T.parallel" not in space.schedule(config).mod.script() for config in sample_lowerings(space))


@pytest.mark.parametrize("spelling", ["conv2d:1x13x11x37x13x3x3:p1:s2:bias:relu", "conv2d:2x14x14x64x32x1x1"])
def test_trace_replays_on_a_fresh_schedule(spelling: str) -> None:
    space = GuidedConv2d(parse_workload(spelling), make_target(2))
    copy = cloudpickle.loads(cloudpickle.dumps(space))
    for config in sample_lowerings(space):
        schedule = space.schedule(config)
        fresh = Schedule(space.workload.module)
        schedule.trace.apply_to_schedule(fresh, remove_postproc=False)
        assert structural_equal(schedule.mod, fresh.mod)
        assert structural_equal(schedule.mod, copy.schedule(config).mod)


@pytest.mark.parametrize(
    ("config", "products"),
    [
        ({"lowering": "direct", "channels": 16, "width": 4, "height": 1}, 3),
        ({"lowering": "im2row", "pixels": 16, "channels": 4}, 4),
    ],
)
def test_inner_loop_is_vector_multiply_adds_on_registers(config: dict[str, str | int], products: int) -> None:
    target = resolve_target({"kind": "llvm", "mcpu": "haswell", "mtriple": "x86_64-unknown-linux-gnu"})
    space = GuidedConv2d(conv2d(1, 8, 8, 32, 16, 3, 3, padding=1), target)
    assembly = tvm.compile(space.schedule(Config(config)).mod, target=target.tvm).mod.inspect_source("asm")
    assert len(re.findall(r"vfn?madd\d+ps\s.*%ymm", assembly)) >= 2 * 4 * products
    assert not re.search(r"vfn?madd\d+s[sd]\s", assembly)  # no scalar left-overs


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_result_is_right_where_blocks_are_searched(spelling: str, measurer: LocalMeasurer) -> None:
    space = GuidedConv2d(parse_workload(spelling), make_target(), blocks="knobs")
    results = list(measurer.measure(space, sample_lowerings(space, 1)))
    assert [result.failure for result in results] == [None] * len(results), [result.message for result in results]


@pytest.mark.parametrize(
    ("spelling", "cores"),
    [
        ("conv2d:1x14x14x64x64x3x3:p1:bias", 2),
        ("conv2d:1x20x28x16x24x3x3:p1", 5),
        ("conv2d:3x15x13x40x48x3x3:p1:s2:bias:relu", 2),
        ("conv2d:2x28x28x37x64x1x1:relu", 2),
    ],
)
def test_searched_blocks_are_right_in_parallel(spelling: str, cores: int, measurer: LocalMeasurer) -> None:
    space = GuidedConv2d(parse_workload(spelling), make_target(cores), blocks="knobs")
    configs = sample_lowerings(space)
    assert all("T.parallel" in space.schedule(config).mod.script() for config in configs)
    assert {result.failure for result in measurer.measure(space, configs)} == {None}


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    "spelling", ["conv2d:1x14x14x64x64x1x1", "conv2d:3x13x11x37x13x3x3:p1:s2:bias", "conv2d:2x5x5x80x24x3x3:p1"]
)
def test_the_model_s_blocks_are_among_those_searched(spelling: str, cores: int) -> None:
    workload, target = parse_workload(spelling), make_target(cores)
    model, open_space = GuidedConv2d(workload, target), GuidedConv2d(workload, target, blocks="knobs")
    assert model.fingerprint == GuidedConv2d(workload, target, blocks="model").fingerprint != open_space.fingerprint
    for config in sample_lowerings(model, 1):
        module = model.schedule(config).mod
        tiled = [wider for wider in open_space.enumerate() if config.items() <= wider.items()]
        deepest = [wider for wider in tiled if wider["depth"] == tiled[-1]["depth"]]
        assert sum(structural_equal(module, open_space.schedule(wider).mod) for wider in deepest) == 1


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("spelling", "weights", "cut"),
    [
        ("conv2d:2x14x14x64x64x1x1:bias", "plain", True),
        ("conv2d:1x14x14x64x32x1x1", "packed", True),
        ("conv2d:1x14x14x64x32x1x1", "plain", False),  # each block's weights are packed just before they are used
        ("conv2d:2x7x7x64x16x1x1", "plain", False),  # the image stays in L2 anyway
        ("conv2d:2x14x14x16x64x1x1", "plain", False),  # one block of channels
    ],
)
def test_blocks_of_channels_share_a_strip_of_the_image(
    spelling: str, weights: Weights, cut: bool, cores: int, measurer: LocalMeasurer
) -> None:
    small = tuple(Cache(size << 10, 8) for size in (4, 16, 64))
    target = replace(make_target(cores), caches=small)
    model, open_space = (
        GuidedConv2d(parse_workload(spelling), target, weights=weights, blocks=blocks) for blocks in ("model", "knobs")
    )
    config = next(c for c in model.enumerate() if c["lowering"] == "direct" and c["width"] in (7, 14))
    module = model.schedule(config).mod
    same = [
        wider["outer"]
        for wider in open_space.enumerate()
        if config.items() <= wider.items() and structural_equal(module, open_space.schedule(wider).mod)
    ]
    assert same == (["rows"] if cut else ["channels"])
    assert [result.failure for result in measurer.measure(model, [config])] == [None]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    "spelling",
    [
        "conv2d:1x14x14x32x32x3x3:p1",
        "conv2d:1x28x28x32x16x1x1",
        "conv2d:1x56x56x16x3x7x7:s2:p3",
        "conv2d:2x14x14x32x16x3x3:s2:p1",
    ],
)
@pytest.mark.parametrize("cpu", ["haswell", "skylake-avx512", "neoverse-n1"])
def test_searched_blocks_make_a_space_that_can_be_measured_whole(cpu: str, spelling: str, cores: int) -> None:
    triple = "aarch64-linux-gnu" if cpu == "neoverse-n1" else "x86_64-unknown-linux-gnu"
    target = resolve_target({"kind": "llvm", "mtriple": triple, "mcpu": cpu, "num-cores": cores})
    configs = list(GuidedConv2d(parse_workload(spelling), target, blocks="knobs").enumerate())
    assert 800 <= len(set(configs)) == len(configs) <= 5000
    lanes = target.simd_bytes // 4
    sums = [math.prod(int(c[name]) for name in ("channels", "width", "height", "pixels") if name in c) for c in configs]  # type: ignore[arg-type]
    computed, open_tiles = (accumulator_range(target, wide) for wide in (False, True))
    assert {elements // lanes for elements in sums} <= set(open_tiles)
    assert min(sums) // lanes < computed.start and max(sums) // lanes > count_registers(target) > computed[-1]


def test_configs_of_searched_blocks_are_different_programs() -> None:
    target = resolve_target("haswell")
    space = GuidedConv2d(parse_workload("conv2d:1x4x8x16x4x1x1"), target, blocks="knobs")
    tiles: tuple[dict[str, str | int], ...] = (
        {"lowering": "direct", "channels": 8, "width": 4, "height": 1},
        {"lowering": "im2row", "pixels": 8, "channels": 4},
    )
    for tile in tiles:
        configs = [config for config in space.enumerate() if tile.items() <= config.items()]
        programs = {tvm.compile(space.schedule(c).mod, target=target.tvm).mod.inspect_source("ll") for c in configs}
        assert len(programs) == len(configs) >= 2


@pytest.mark.parametrize("name", [name for name in preset_names() if "/conv" in name])
def test_space_is_small_and_its_tiles_fit_the_registers(name: str) -> None:
    target = resolve_target("skylake-avx512")
    space = GuidedConv2d(parse_workload(name), target)
    configs = list(space.enumerate())
    assert len(set(configs)) == len(configs) < 100
    for config in configs:
        _, first, *rest = config.values()
        assert int(np.prod([int(first) // 16, *map(int, rest)])) in accumulator_range(target)  # type: ignore[arg-type]


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 128))
def test_shares_divide_a_task_and_use_the_cores_no_worse(tasks: int, tiles: int, cores: int) -> None:
    parts = choose_even_shares(tasks, tiles, cores)
    assert tiles % parts == 0
    rounds = -(-tasks * parts // cores)
    assert rounds * tiles // parts <= -(-tasks // cores) * tiles


@pytest.mark.parametrize("values", [{"lowering": "direct"}, {"lowering": "im2row", "pixels": 5, "channels": 4}])
def test_config_outside_the_space_is_refused(values: dict[str, str | int]) -> None:
    with pytest.raises(InvalidConfig):
        GuidedConv2d(conv2d(1, 8, 8, 16, 16, 3, 3), make_target()).schedule(Config(values))


def test_wrong_option_is_refused() -> None:
    with pytest.raises(SearchlabError, match="option 'blocks' cannot be 'knob'; did you mean 'knobs'"):
        GuidedConv2d(conv2d(1, 8, 8, 16, 16, 3, 3), make_target(), blocks="knob")


def test_gemm_and_gpus_are_refused_with_the_way_out() -> None:
    plugin, cuda = Plugin("guided-conv2d"), Target({"kind": "cuda", "arch": "sm_90"})
    with pytest.raises(UnsupportedWorkload, match="guided-conv2d.*use guided-gemm or knob-template or sketch"):
        SPACES.make(plugin, gemm(8, 8, 8), make_target())
    with pytest.raises(UnsupportedWorkload, match="guided-conv2d.*use knob-template or sketch"):
        SPACES.make(plugin, conv2d(1, 8, 8, 16, 16, 3, 3), cuda)
