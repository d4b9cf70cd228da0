"""guided-conv2d's depthwise lowering: right results at any geometry, and vector code for all strides."""

from __future__ import annotations

import math
import re

import pytest
import tvm

from searchlab.errors import UnsupportedWorkload
from searchlab.measure.local import LocalMeasurer
from searchlab.plugins import Plugin
from searchlab.space import SPACES, Config
from searchlab.target import Target, resolve_target
from searchlab.workload import parse_workload
from searchlab_spaces.guided.common import count_registers
from searchlab_spaces.guided.conv2d import GuidedConv2d
from tests.support.spaces.targets import UNOPTIMIZED


def make_target(cores: int = 1) -> Target:
    return resolve_target({**UNOPTIMIZED, "num-cores": cores})


@pytest.mark.parametrize("has_block_knobs", [False, True])
@pytest.mark.parametrize(
    "spelling",
    [
        "conv2d:1x14x14x32x32x3x3:p1:g32:bias:relu",
        "conv2d:1x7x7x6x6x5x5:p2:g6",
        "conv2d:2x23x37x8x4x3x5:s2x3:p1x2:g4:bias",  # two kernels for each channel, and different strides
        "conv2d:1x17x19x4x4x3x3:s2:p0x0x1x2:g4:add",  # padding on two sides
        "conv2d:1x20x20x4x4x3x3:p4:d2x3:g4",
        "conv2d:1x21x20x4x4x3x3:p3:s2:d3:g4",
        "conv2d:1x3x3x4x4x3x3:g4",  # one pixel
        "conv2d:1x5x40x4x4x1x1:s3:g4",
        "conv2d:1x1x300x2x2x1x7:g2",
        "conv2d:1x9x9x4x4x3x3:p1:g4:float64",
        "conv2d:1x9x9x4x4x3x3:p1:g4:bfloat16",
        "conv2d:1x9x9x4x4x3x3:p1:s2:g4:int8:relu",
    ],
)
def test_result_is_right(spelling: str, has_block_knobs: bool, measurer: LocalMeasurer) -> None:
    blocks = "knobs" if has_block_knobs else "model"
    space = GuidedConv2d(parse_workload(spelling), make_target(), blocks=blocks, winograd=True, weights="packed")
    configs = list(space.enumerate())
    assert {config["lowering"] for config in configs} == {"depthwise"}
    results = list(measurer.measure(space, configs[:: math.ceil(len(configs) / 3)]))
    assert [result.failure for result in results] == [None] * len(results), [result.message for result in results]


@pytest.mark.parametrize(
    ("spelling", "cores", "shares"),
    [
        ("conv2d:1x28x28x64x64x3x3:p1:g64:bias:relu", 2, False),  # each core has channels of its own
        ("conv2d:1x224x224x3x3x3x3:s2:p1:g3", 2, True),  # three channels cannot be divided between two cores
        ("conv2d:2x112x112x8x8x5x5:p2:g8", 2, True),  # the copy of a channel would not fit into L1
    ],
)
def test_result_is_right_in_parallel(spelling: str, cores: int, shares: bool, measurer: LocalMeasurer) -> None:
    space = GuidedConv2d(parse_workload(spelling), make_target(cores))
    configs = list(space.enumerate())
    configs = configs[:: math.ceil(len(configs) / 3)]
    for config in configs:
        (tasks,) = re.findall(r"in T\.parallel\((\d+)\)", space.schedule(config).mod.script())
        assert (int(tasks) > space.workload.n * space.workload.groups) == shares
    assert {result.failure for result in measurer.measure(space, configs)} == {None}


@pytest.mark.parametrize("spelling", ["conv2d:1x28x28x8x8x3x3:p1:g8:relu", "conv2d:1x56x56x8x8x3x3:s2:p1:g8:relu"])
@pytest.mark.parametrize(("cpu", "register"), [("haswell", "ymm"), ("skylake-avx512", "zmm")])
def test_inner_loop_is_vector_multiply_adds(spelling: str, cpu: str, register: str) -> None:
    target = resolve_target({"kind": "llvm", "mcpu": cpu, "mtriple": "x86_64-unknown-linux-gnu"})
    space = GuidedConv2d(parse_workload(spelling), target)
    lanes = {"ymm": 8, "zmm": 16}[register]
    config = Config({"lowering": "depthwise", "width": 2 * lanes, "height": 2})
    assembly = tvm.compile(space.schedule(config).mod, target=target.tvm).mod.inspect_source("asm")
    assert len(re.findall(rf"vfn?madd\d+ps\s.*%{register}", assembly)) >= 9 * 2
    assert not re.search(r"vfn?madd\d+s[sd]\s|vgather|v\w+ .*{%k", assembly)  # no elements alone, no masked loads


def test_tiles_fit_the_registers() -> None:
    target = resolve_target("skylake-avx512")
    space = GuidedConv2d(parse_workload("conv2d:1x112x112x96x96x3x3:s2:p1:g96"), target)
    configs = list(space.enumerate())
    assert len(set(configs)) == len(configs) > 10
    for config in configs:
        lanes = 16 if int(config["width"]) % 16 == 0 else 8  # type: ignore[arg-type]
        vectors = int(config["width"]) // lanes * int(config["height"])  # type: ignore[arg-type]
        assert vectors <= count_registers(target) * 3 // 4


@pytest.mark.parametrize(
    ("spelling", "options", "reason"),
    [
        ("conv2d:1x8x8x16x16x3x3:g4", {}, "only those with one input channel per group, not 4; use .*knob-template"),
        (
            "conv2d:1x8x8x16x16x3x3:g16:int8",
            {"dot": True},
            "with dot = true for .*, which is a depthwise.*; use .*knob",
        ),
    ],
)
def test_other_grouped_convolutions_are_refused(spelling: str, options: dict[str, bool], reason: str) -> None:
    target = resolve_target({"kind": "llvm", "mcpu": "sapphirerapids", "mtriple": "x86_64-unknown-linux-gnu"})
    with pytest.raises(UnsupportedWorkload, match=reason):
        SPACES.make(Plugin("guided-conv2d", options), parse_workload(spelling), target)
