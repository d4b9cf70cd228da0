"""The stochastic trace functions for CUDA: right answers, dependent draws, and the limits of GPUs."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from tvm.s_tir import Schedule
from tvm_ffi import structural_equal

from searchlab.errors import InvalidConfig
from searchlab.space import Config
from searchlab.target import Target
from searchlab.workload import gemm, parse_workload
from searchlab_spaces.trace import Trace
from searchlab_spaces.trace.cuda import MAX_ACCUMULATORS, MAX_TOTAL_VTHREADS
from tests.support.spaces.cuda_on_cpu import result_on_cpu
from tests.support.spaces.programs import replay_trace, valid_configs

TARGET = Target({"kind": "cuda", "arch": "sm_90"})
LAYER = "conv2d:1x7x7x512x512x3x3:p1"

needs_gpp = pytest.mark.skipif(
    shutil.which("g++") is None, reason="g++ runs the CUDA programs on the CPU, and is missing"
)


def make_space(spelling: str, target: Target = TARGET) -> Trace:
    return Trace(parse_workload(spelling), target)


def count_inner_iterations(config: Config, *names: str) -> int:
    """Return the product of the inner parts of these tiles."""
    return math.prod(cast(tuple[int, ...], config[name])[-1] for name in names)


@needs_gpp
@pytest.mark.parametrize(
    "spelling",
    [
        "conv2d:1x7x7x32x16x3x3:p1",
        "conv2d:1x8x8x16x8x1x1:relu",
        "conv2d:2x15x13x12x6x3x3:s2:p1:bias:relu",
        "conv2d:1x9x9x8x4x3x3:d2:p2:int8",
        "conv2d:1x8x6x8x8x3x3:p1:g8:bias",
        "gemm:64x64x64",
        "gemm:31x7x5:bias",
        "gemm:48x40x36:float64:bias:relu",
        "gemm:1x1x1",
    ],
)
def test_results_match_the_reference(spelling: str, tmp_path: Path) -> None:
    space = make_space(spelling)
    rtol, atol = space.workload.tolerance()
    expected = space.workload.reference(space.workload.inputs())
    for number, config in enumerate(valid_configs(space, np.random.default_rng(0), 2)):
        (folder := tmp_path / str(number)).mkdir()
        np.testing.assert_allclose(result_on_cpu(space, config, folder), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("spelling", [LAYER, "conv2d:2x8x8x16x8x3x3:s2:p1:bias:relu", "gemm:24x40x9:relu"])
def test_program_is_one_kernel_and_its_trace_replays(spelling: str) -> None:
    space = make_space(spelling)
    for config in valid_configs(space, np.random.default_rng(1), 3):
        schedule = space.schedule(config)
        assert type(schedule) is Schedule
        assert structural_equal(schedule.mod, replay_trace(schedule, space.workload).mod)
        script = schedule.mod.script()
        assert script.count('thread="blockIdx.x"') == 1
        assert script.count('thread="threadIdx.x"') == 3  # computes, fetches twice
        assert f'"pragma_auto_unroll_max_step": {config["pick"]}' in script


def test_draws_leave_room_for_those_after_them() -> None:
    space = make_space(LAYER)
    rng = np.random.default_rng(2)
    crowded = 0
    for config in (space.sample(rng) for _ in range(60)):
        assert count_inner_iterations(config, "tile_f", "tile_y", "tile_x") <= MAX_ACCUMULATORS
        assert count_inner_iterations(config, "tile_f_0", "tile_y_0", "tile_x_0") <= 1024
        assert count_inner_iterations(config, "tile_f_0") <= 64  # threadIdx.z
        assert count_inner_iterations(config, "tile_f_0_0", "tile_y_0_0", "tile_x_0_0") <= MAX_TOTAL_VTHREADS
        crowded += count_inner_iterations(config, "tile_f_0") == 64
    assert crowded  # the limit is reached
    full = space.repair({"tile_f": (8, 64)}, rng)
    assert count_inner_iterations(full, "tile_y", "tile_x") == 1


def test_only_memory_is_left_to_be_invalid() -> None:
    space = make_space(LAYER)
    rng = np.random.default_rng(3)
    refused = []
    for config in (space.sample(rng) for _ in range(40)):
        try:
            space.schedule(config)
        except InvalidConfig as error:
            refused.append(str(error))
    assert 0 < len(refused) < 30
    assert all("bytes of shared memory, but the target allows only 49152" in text for text in refused)


def test_a_function_that_a_user_gives_is_held_to_the_limits_too() -> None:
    def wide(sch: Schedule) -> None:
        i, j, _ = sch.get_loops(sch.get_sblock("gemm"))
        threads = sch.sample_perfect_tile(j, n=2, max_innermost_factor=2048)
        outer, inside = sch.split(j, threads)
        sch.bind(sch.fuse(i, outer), "blockIdx.x")
        sch.bind(inside, "threadIdx.x")

    space = Trace(gemm(4, 2048, 4), TARGET, function=wide)
    assert space.schedule(Config({"tile_j": (2, 1024)}))
    with pytest.raises(InvalidConfig, match="a kernel binds 2048 to threadIdx.x, but at most 1024 are allowed"):
        space.schedule(Config({"tile_j": (1, 2048)}))
