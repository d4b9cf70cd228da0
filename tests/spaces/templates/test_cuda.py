"""The CUDA templates: right answers without a GPU, code that nvcc compiles, and the limits of GPUs."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm.s_tir import Schedule
from tvm_ffi import structural_equal

from searchlab.errors import InvalidConfig
from searchlab.space import Config
from searchlab.target import Target
from searchlab.workload import gemm, parse_workload
from searchlab_spaces.gpu_check import check_gpu
from searchlab_spaces.templates import KnobTemplate
from tests.support.spaces.cuda_on_cpu import cuda_source, result_on_cpu

TARGET = Target({"kind": "cuda", "arch": "sm_90"})

needs_gpp = pytest.mark.skipif(
    shutil.which("g++") is None, reason="g++ runs the CUDA programs on the CPU, and is missing"
)
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc, of the CUDA toolkit, is missing")


def make_space(spelling: str, target: Target = TARGET) -> KnobTemplate:
    return KnobTemplate(parse_workload(spelling), target)


def valid(space: KnobTemplate, seed: int) -> Iterator[Config]:
    """Random configs that a GPU can run, without end."""
    rng = np.random.default_rng(seed)
    while True:
        config = space.sample(rng)
        try:
            space.schedule(config)
        except InvalidConfig:
            continue
        yield config


def conv(**changes: Any) -> Config:
    """A config of conv2d:1x7x7x64x16x3x3:p1 on 56 threads, with some knobs changed."""
    tiles = {"tile_f": (4, 1, 8, 2), "tile_y": (1, 1, 7, 1), "tile_x": (1, 7, 1, 1)}
    steps = {"tile_rc": (2, 4, 2), "tile_ry": (1, 1, 3), "tile_rx": (1, 3, 1)}
    return Config({**tiles, **steps, "auto_unroll_max_step": 512, "unroll_explicit": 1, **changes})


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
    ],
)
def test_results_match_the_reference(spelling: str, tmp_path: Path) -> None:
    space = make_space(spelling)
    rtol, atol = space.workload.tolerance()
    expected = space.workload.reference(space.workload.inputs())
    for number, config in enumerate(itertools.islice(valid(space, seed=0), 2)):
        (folder := tmp_path / str(number)).mkdir()
        np.testing.assert_allclose(result_on_cpu(space, config, folder), expected, rtol=rtol, atol=atol)


@needs_nvcc
@pytest.mark.parametrize("spelling", ["conv2d:1x7x7x32x16x3x3:p1", "gemm:64x64x64", "gemm:64x64x64:float16:bias:relu"])
def test_sampled_configs_compile_for_the_gpu(spelling: str, tmp_path: Path) -> None:
    space = make_space(spelling)
    for config in itertools.islice(valid(space, seed=1), 3):
        (tmp_path / "kernel.cu").write_text(cuda_source(space, config))
        command = ["nvcc", "-w", "-arch=sm_90", "-cubin", "-o", "kernel.cubin", "kernel.cu"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, f"{config}: {result.stderr}"


def test_the_published_template_swaps_tile_ry_and_tile_rx() -> None:
    workload = parse_workload("conv2d:1x7x7x64x16x3x3:p1")
    published = KnobTemplate(workload, TARGET, template="tutorial/conv2d_no_batching")
    built_in = make_space(str(workload))
    config = conv(tile_ry=(3, 1, 1), tile_rx=(1, 1, 3))
    swapped = Config({**config, "tile_ry": config["tile_rx"], "tile_rx": config["tile_ry"]})
    assert str(published) == str(built_in)
    assert structural_equal(published.schedule(config).mod, built_in.schedule(swapped).mod)
    assert not structural_equal(published.schedule(config).mod, built_in.schedule(config).mod)


@needs_gpp
def test_the_published_template_accepts_any_kernel_size(tmp_path: Path) -> None:
    workload = parse_workload("conv2d:1x5x6x4x3x5x3:p1")
    space = KnobTemplate(workload, TARGET, template="tutorial/conv2d_no_batching")
    config = next(valid(space, 0))
    expected = workload.reference(workload.inputs())
    np.testing.assert_allclose(result_on_cpu(space, config, tmp_path), expected, rtol=1e-3, atol=1e-3)


def test_a_program_is_one_kernel_fetched_by_all_threads() -> None:
    script = make_space("conv2d:1x7x7x64x16x3x3:p1").schedule(conv()).mod.script()
    for axis, blocks, virtual, threads in [("z", 4, 1, 8), ("y", 1, 1, 7), ("x", 1, 7, 1)]:
        assert script.count(f'T.thread_binding({blocks}, thread="blockIdx.{axis}"') == 1
        assert script.count(f'T.thread_binding({virtual}, thread="vthread.{axis}")') == 1
        assert script.count(f'T.thread_binding({threads}, thread="threadIdx.{axis}")') == 3  # computes, fetches twice
    buffers = re.findall(r'(\w+) = T.sblock_alloc_buffer\(.*scope="(\w+)"', script)
    assert sorted(buffers) == [
        ("conv2d_local", "local"),
        ("pad_shared", "shared"),
        ("pad_shared_local", "local"),
        ("weight_shared", "shared"),
        ("weight_shared_local", "local"),
    ]
    assert '"pragma_auto_unroll_max_step": 512, "pragma_unroll_explicit": 1' in script


@pytest.mark.parametrize("spelling", ["conv2d:2x8x8x16x8x3x3:s2:p1:bias:relu", "gemm:24x40x9:relu"])
def test_trace_replays_on_a_fresh_schedule(spelling: str) -> None:
    space = make_space(spelling)
    for config in itertools.islice(valid(space, seed=2), 3):
        schedule, fresh = space.schedule(config), Schedule(space.workload.module)
        schedule.trace.apply_to_schedule(fresh, remove_postproc=False)
        assert structural_equal(schedule.mod, fresh.mod)


# --- limits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tile_f": (2, 1, 64, 1), "tile_x": (1, 1, 7, 1)}, "a block has 3136 threads, .* allows only 1024"),
        ({"tile_f": (1, 1, 128, 1)}, "a kernel binds 128 to threadIdx.z, but at most 64 are allowed"),
        ({"tile_f": (8, 16, 1, 1)}, "a kernel binds 16 to vthread.z, but at most 8 are allowed"),
        # 16 x 9 x 9 padded pixels and 128 x 16 x 3 x 3 weights of 4 bytes
        ({"tile_f": (1, 2, 8, 8), "tile_rc": (1, 4, 4)}, "a block uses 78912 bytes of shared .* allows only 49152"),
    ],
)
def test_more_than_a_gpu_has_is_invalid_and_says_so(changes: dict[str, Any], reason: str) -> None:
    space = make_space("conv2d:1x7x7x128x16x3x3:p1")
    space.schedule(conv(tile_f=(8, 1, 8, 2)))
    with pytest.raises(InvalidConfig, match=reason):
        space.schedule(conv(**changes))


def test_target_says_how_many_threads_and_how_much_shared_memory() -> None:
    small = Target({**TARGET.spec, "max_threads_per_block": 32})
    with pytest.raises(InvalidConfig, match="a block has 56 threads, but the target allows only 32"):
        make_space("conv2d:1x7x7x64x16x3x3:p1", small).schedule(conv())
    # 8 x 9 x 9 padded pixels and 16 x 8 x 3 x 3 weights, in bytes, each aligned to 64
    tight = Target({**TARGET.spec, "max_shared_memory_per_block": 7231})
    with pytest.raises(InvalidConfig, match="a block uses 7232 bytes of shared memory, .* allows only 7231"):
        make_space("conv2d:1x7x7x64x16x3x3:p1", tight).schedule(conv())


def test_more_registers_than_local_memory_are_refused() -> None:
    space = make_space("gemm:512x512x2")
    config = {"tile_i": (1, 1, 1, 512), "tile_j": (1, 1, 1, 512), "tile_k": (1, 1, 2)}
    with pytest.raises(InvalidConfig, match="a thread uses 10.* bytes of local memory, but only 524288 are allowed"):
        space.schedule(Config({**config, "auto_unroll_max_step": 0, "unroll_explicit": 0}))


def test_threads_that_disagree_in_one_kernel_are_refused() -> None:
    sch = Schedule(gemm(64, 64, 64, bias=True).module)
    i, j, _ = sch.get_loops(sch.get_sblock("gemm"))
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    bias = sch.get_sblock("bias")
    sch.reverse_compute_at(bias, i)
    sch.bind(sch.split(sch.get_loops(bias)[-1], [None, 32])[1], "threadIdx.x")
    with pytest.raises(InvalidConfig, match="a kernel binds both 64 and 32 to threadIdx.x; they must agree"):
        check_gpu(sch.mod, TARGET)


def test_kernels_are_counted_each_on_its_own() -> None:
    sch = Schedule(gemm(64, 512, 8, bias=True).module)
    for name, threads, blocks in [("gemm", 0, 1), ("bias", 1, 0)]:
        loops = sch.get_loops(sch.get_sblock(name))
        sch.reorder(loops[blocks], loops[threads])
        sch.bind(loops[blocks], "blockIdx.x")
        sch.bind(loops[threads], "threadIdx.x")
    check_gpu(sch.mod, TARGET)  # 64 threads in the first kernel, 512 in the second
