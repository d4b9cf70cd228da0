"""The guided GEMM: right answers at any size, vector code, the paper's block sizes, and a trace that replays."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm.s_tir import Schedule, transform
from tvm.s_tir import meta_schedule as ms
from tvm_ffi import structural_equal

from searchlab.errors import InvalidConfig, UnsupportedWorkload
from searchlab.plugins import Plugin
from searchlab.space import SPACES, Config
from searchlab.target import CPU_CACHES, GENERIC_CACHES, Cache, Target, resolve_target
from searchlab.workload import Gemm, Workload, gemm, parse_workload
from searchlab_spaces.guided.blis_model import KC, Blocking, balance_blocks, compute_blocking, kc_for, mc_for, nc_for
from searchlab_spaces.guided.common import MIN_PARALLEL_FLOPS, UNROLLED_STEPS
from searchlab_spaces.guided.gemm import GuidedGemm
from searchlab_spaces.guided.gemm_algorithms import ALGORITHMS, get_extents
from tests.support.spaces.targets import UNOPTIMIZED


def native(cores: int = 1) -> Target:
    return resolve_target({**UNOPTIMIZED, "num-cores": cores})


def tile(space: GuidedGemm, mr: int, vectors: int) -> Config:
    return Config({"mr": mr, "nr": vectors * space.lanes})


def cut_up(workload: Workload, target: Target, mr: int, nr: int, kc: str = "whole") -> Blocking:
    assert isinstance(workload, Gemm)
    return compute_blocking(
        workload, target, ALGORITHMS["B3A2C0"], {"i": mr, "j": nr, "p": UNROLLED_STEPS}, target.cores, kc=kc
    )


def assert_right(workload: Workload, target: Target, mr: int, vectors: int, **options: Any) -> None:
    space = GuidedGemm(workload, target, **options)
    module = tvm.compile(space.schedule(tile(space, mr, vectors)).mod, target=target.tvm).jit()
    inputs = workload.inputs()
    result = tvm.runtime.tensor(np.full(list(workload.shapes.values())[-1], 77, workload.out_dtype))
    module["main"](*[tvm.runtime.tensor(array) for array in inputs.values()], result)
    rtol, atol = workload.tolerance()
    np.testing.assert_allclose(result.numpy(), workload.reference(inputs), rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("spelling", "mr", "vectors"),
    [
        ("gemm:64x64x64", 4, 2),  # nothing to pad
        ("gemm:1x1x1", 8, 2),
        ("gemm:1x1x1:bias:relu", 1, 1),
        ("gemm:1x200x3", 3, 1),  # one row
        ("gemm:67x1x5:bias", 6, 4),  # one column
        ("gemm:31x37x997", 8, 2),  # primes
        ("gemm:127x131x509:bias:relu", 5, 3),
        ("gemm:64x64x32:relu", 8, 1),
        ("gemm:19x23x11:float64:bias", 7, 2),
        ("gemm:9x40x13:int8", 4, 1),
        ("gemm:9x40x13:float16", 4, 1),
        ("gemm:16x16x16", 8, 4),  # a tile wider than the matrix
        ("gemm:31x37x53:nt:bias:relu", 8, 2),
        ("batch-matmul:3x31x37x53:nt", 8, 2),
        ("batch-matmul:2x5x40x13:float64:bias:add:relu", 2, 2),
    ],
)
def test_result_matches_the_reference(spelling: str, mr: int, vectors: int) -> None:
    assert_right(parse_workload(spelling), native(), mr, vectors)


@pytest.mark.parametrize(
    "spelling",
    [
        "gemm:101x103x107",
        "gemm:3x1009x353:bias:relu",
        "gemm:509x5x419:relu",
        "batch-matmul:5x64x64x64:nt",
        "batch-matmul:1x101x103x107",
    ],
)
def test_result_is_right_on_two_threads(spelling: str) -> None:
    workload, target = parse_workload(spelling), native(2)
    space = GuidedGemm(workload, target)
    assert workload.flops >= MIN_PARALLEL_FLOPS
    assert "T.parallel" in space.schedule(tile(space, 4, 2)).mod.script()
    assert_right(workload, target, 4, 2)


@pytest.mark.parametrize("spelling", ["gemm:40x530x150", "gemm:16x512x256:float64:bias:relu"])
@pytest.mark.parametrize("cores", [1, 2])
def test_results_are_right_with_several_blocks_of_k_and_n(spelling: str, cores: int) -> None:
    small = (Cache(1 << 10, 4), Cache(4 << 10, 4), Cache(16 << 10, 8))
    workload, target = parse_workload(spelling), replace(native(cores), caches=small)
    blocking = cut_up(workload, target, 3, 2 * GuidedGemm(workload, target).lanes)
    assert blocking.kc < workload.reduction
    assert blocking.nc < workload.shapes["B"][1]
    assert_right(workload, target, 3, 2)


def test_one_core_has_no_parallel_loop() -> None:
    space = GuidedGemm(gemm(256, 256, 256), native(1))
    assert "T.parallel" not in space.schedule(space.config_at(0)).mod.script()


@pytest.mark.parametrize(
    ("cpu", "dtype", "fused"),
    [
        ("skylake-avx512", "float32", r"vfn?madd\d+ps\s.*%zmm"),
        ("skylake-avx512", "float64", r"vfn?madd\d+pd\s.*%zmm"),
        ("haswell", "float32", r"vfn?madd\d+ps\s.*%ymm"),
    ],
)
def test_micro_kernel_is_vector_multiply_adds_on_registers(cpu: str, dtype: str, fused: str) -> None:
    target = resolve_target({"kind": "llvm", "mcpu": cpu, "mtriple": "x86_64-unknown-linux-gnu"})
    space = GuidedGemm(gemm(64, 64, 64, dtype), target)
    assembly = tvm.compile(space.schedule(tile(space, 4, 2)).mod, target=target.tvm).mod.inspect_source("asm")
    assert len(re.findall(fused, assembly)) >= 4 * 2 * UNROLLED_STEPS
    assert not re.search(r"vfn?madd\d+s[sd]\s", assembly)  # no scalar left-overs


@pytest.mark.parametrize("spelling", ["gemm:61x67x71:bias:relu", "gemm:64x64x64"])
def test_trace_replays_on_a_fresh_schedule(spelling: str) -> None:
    space = GuidedGemm(parse_workload(spelling), native(2))
    schedule = space.schedule(tile(space, 6, 2))
    fresh = Schedule(space.workload.module)
    schedule.trace.apply_to_schedule(fresh, remove_postproc=False)
    assert structural_equal(schedule.mod, fresh.mod)


def test_trace_survives_a_metaschedule_database(tmp_path: Path) -> None:
    space = GuidedGemm(gemm(61, 67, 71, bias=True), native(2))
    schedule = space.schedule(tile(space, 6, 2))
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    workload = database.commit_workload(space.workload.module)
    database.commit_tuning_record(ms.database.TuningRecord(schedule.trace, workload, [1e-3], space.target.tvm))
    (record,) = ms.database.JSONDatabase(work_dir=str(tmp_path)).get_all_tuning_records()
    fresh = Schedule(space.workload.module)
    record.trace.apply_to_schedule(fresh, remove_postproc=False)
    assert structural_equal(schedule.mod, fresh.mod)


def test_space_is_a_product_of_tiles() -> None:
    space = GuidedGemm(gemm(512, 512, 512), resolve_target("skylake-avx512"))
    assert [knob.name for knob in space.axes] == ["mr", "nr"]
    assert space.axes[1].choices == (16, 32, 48, 64)
    assert len(space) == 64
    assert all(space.index_of(space.config_at(i)) == i for i in range(len(space)))
    assert len(GuidedGemm(gemm(8, 8, 8), resolve_target("haswell"))) == 32


@pytest.mark.parametrize(
    ("spelling", "options", "config"),
    [
        ("gemm:512x512x512", {}, {"mr": 14, "nr": 32}),
        ("gemm:512x512x512", {"tiles": "fitting", "kc": "knob"}, {"tile": "14x32", "kc": 512}),
        ("gemm:1x512x512", {"pack_a": "knob"}, {"mr": 1, "nr": 64, "pack_a": True}),
        ("gemm:3x20x8", {}, {"mr": 3, "nr": 32}),
    ],
)
def test_the_default_micro_tile_loads_the_least(spelling: str, options: Any, config: Any) -> None:
    """With 32 registers of 16 elements, as in BLIS, whose micro-tile for such CPUs is 14x32."""
    assert GuidedGemm(parse_workload(spelling), ZEN5, **options).default_config() == Config(config)


@pytest.mark.parametrize("values", [{"mr": 4, "nr": 5}, {"mr": 0, "nr": 64}, {"mr": 4}])
def test_config_outside_the_space_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(InvalidConfig):
        GuidedGemm(gemm(8, 8, 8), native()).schedule(Config(values))


def test_conv2d_and_gpus_are_refused_with_the_way_out() -> None:
    with pytest.raises(UnsupportedWorkload, match="knob-template"):
        SPACES.make(Plugin("guided-gemm"), parse_workload("conv2d:1x7x7x8x8x3x3"), native())
    with pytest.raises(UnsupportedWorkload, match="knob-template"):
        SPACES.make(Plugin("guided-gemm"), gemm(8, 8, 8), Target({"kind": "cuda", "arch": "sm_90"}))


@pytest.mark.parametrize(
    ("l1", "l2", "mr", "nr", "kc", "mc"),
    [  # double precision, by hand from the formulas of Low et al. (2016), section 4
        # Intel Sandy Bridge: C_Ar = floor(7 / 1.5) = 4, 4 * 4096 / (8 * 8); C_Br = 1, (8 - 2) * 32768 / (256 * 8)
        (Cache(32 << 10, 8), Cache(256 << 10, 8), 8, 4, 256, 96),
        # AMD Kaveri: C_Ar = floor(3 / 2.5) = 1, 4096 / (4 * 8); C_Br = 1, (16 - 2) * 131072 / (128 * 8)
        (Cache(16 << 10, 4), Cache(2 << 20, 16), 4, 6, 128, 1792),
        # Sandy Bridge's caches again: LLVM's Polly, which cites the paper, has the same blocks in its test
        # polly/test/ScheduleOptimizer/pattern-matching-based-opts_3.ll.
        # C_Ar = floor(7 / 3) = 2, 2 * 4096 / (4 * 8); C_Br = 1, (8 - 2) * 32768 / (256 * 8)
        (Cache(32 << 10, 8), Cache(256 << 10, 8), 4, 8, 256, 96),
        # TI C6678: C_Ar = floor(3 / 2) = 1, 8192 / (4 * 8); C_Br = 1, (4 - 2) * 131072 / (256 * 8)
        (Cache(32 << 10, 4), Cache(512 << 10, 4), 4, 4, 256, 128),
    ],
)
def test_block_sizes_are_those_of_the_paper(l1: Cache, l2: Cache, mr: int, nr: int, kc: int, mc: int) -> None:
    assert kc_for(l1, mr, nr, 8) == kc
    assert mc_for(l2, mr, nr, kc, 8) == mc


def test_nc_fills_the_ways_that_the_block_of_a_leaves() -> None:
    # W = 16 ways of 512 KiB; A_c of 96 x 256 doubles takes one: (16 - 1 - 1) * 2^19 / (256 * 8) = 3584
    assert nc_for(Cache(8 << 20, 16), 4, 256, 96, 8) == 3584


ZEN5 = Target({"kind": "llvm", "mcpu": "znver5", "num-cores": 1}, CPU_CACHES["znver5"])


@pytest.mark.parametrize(("kc", "depth"), [("whole", 2304), ("paper", 256)])
def test_kc_follows_the_paper_where_requested(kc: str, depth: int) -> None:
    # ResNet-50's gemm of 196 x 256 x 2304, in float32. The paper: C_Ar = floor(11 / (1 + 32 / 8)) = 2 ways of 4 KiB,
    # 2 * 4096 / (8 * 4) = 256, which is 9 even blocks. Whole micro-panels, 40 * 2304 * 4 bytes, stay in 1 MiB.
    blocking = cut_up(gemm(196, 256, 2304), ZEN5, 8, 32, kc)
    assert blocking.kc == depth
    assert kc_for(ZEN5.caches[0], 8, 32, 4) == 256


@given(st.integers(200, 3000), st.integers(500, 5000), st.integers(1500, 20_000), st.integers(2, 14), st.integers(1, 4))
def test_nc_is_for_the_block_of_b_that_is_packed(m: int, n: int, k: int, mr: int, vectors: int) -> None:
    nr = 16 * vectors
    blocking = cut_up(gemm(m, n, k), ZEN5, mr, nr, "paper")
    assert blocking.kc < k
    # B is packed in its whole depth. One way of the cache is left to what streams through, and one to A_c.
    l3 = ZEN5.caches[2]
    column = -(-k // blocking.kc) * blocking.kc * 4
    ways = (l3.ways - 2) * l3.size // l3.ways
    assert column * blocking.nc <= ways
    assert blocking.nc >= n or 2 * column * (blocking.nc + nr) > ways  # no narrower than it must be


def allocated_elements(schedule: Schedule) -> dict[str, int]:
    """The elements of each buffer that the program allocates, cut down to what is in use at once."""
    module = schedule.mod
    for step in ("LowerInitBlock", "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque"):
        module = getattr(transform, step)()(module)
    script = transform.CompactBufferAllocation()(module).script()
    matches = re.findall(r"(\w+) = T.sblock_alloc_buffer\(\(([\d, ]+)\)", script)
    return {name: math.prod(int(extent) for extent in shape.split(",")) for name, shape in matches}


@pytest.mark.parametrize("order", ["tasks", "published"])
@pytest.mark.parametrize("kc", get_args(KC))
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_packed_stays_in_its_cache(algorithm: str, kc: str, order: str) -> None:
    small = (Cache(1 << 10, 4), Cache(4 << 10, 4), Cache(64 << 10, 8))
    space = GuidedGemm(gemm(100, 512, 256), replace(native(), caches=small), algorithm=algorithm, kc=kc, order=order)
    scalars, vectors = space.axes
    sizes = allocated_elements(space.schedule(Config({scalars.name: 4, vectors.name: vectors.choices[0]})))
    outer, inner, _ = ALGORITHMS[algorithm].operands
    for operand, cache in ((outer, small[2]), (inner, small[1])):
        packed = sizes.get(f"{operand}_global", 0) if operand != "C" else 0
        assert packed * 4 <= cache.size - cache.size // cache.ways


@pytest.mark.parametrize("spelling", ["gemm:40x90x150", "gemm:16x64x256:float64:bias:relu"])
@pytest.mark.parametrize("cores", [1, 2])
def test_result_is_right_with_the_paper_s_kc(spelling: str, cores: int) -> None:
    small = (Cache(4 << 10, 4), *GENERIC_CACHES[1:])
    workload, target = parse_workload(spelling), replace(native(cores), caches=small)
    space = GuidedGemm(workload, target, kc="paper")
    whole_kc, paper = (cut_up(workload, target, 6, 2 * space.lanes, kc).kc for kc in get_args(KC))
    assert paper < workload.reduction <= whole_kc
    default, explicit = (GuidedGemm(workload, target, **options) for options in ({}, {"kc": "whole"}))
    assert structural_equal(default.schedule(tile(space, 6, 2)).mod, explicit.schedule(tile(space, 6, 2)).mod)
    assert default.fingerprint == explicit.fingerprint == space.fingerprint
    assert_right(workload, target, 6, 2, kc="paper")


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_even_blocks_cover_the_total_within_the_limit(total: int, limit: int) -> None:
    size = balance_blocks(total, limit)
    count = -(-total // limit)
    assert size <= limit
    assert (count - 1) * size < total <= count * size or count * (size - 1) < total <= count * size


SIZE = st.one_of(st.integers(1, 40), st.integers(1, 5000), st.sampled_from([127, 509, 997, 1024, 4099]))


@given(SIZE, SIZE, SIZE, st.integers(1, 16), st.integers(1, 4), st.integers(1, 64), st.booleans())
def test_blocks_cover_any_problem(m: int, n: int, k: int, mr: int, vectors: int, cores: int, double: bool) -> None:
    target = Target({"kind": "llvm", "mcpu": "haswell", "num-cores": cores}, GENERIC_CACHES)
    workload = gemm(m, n, k, "float64" if double else "float32")
    nr = vectors * (4 if double else 8)
    blocking = cut_up(workload, target, mr, nr)
    assert (
        blocking.mc % mr == 0
        and blocking.share % nr == 0
        and blocking.nc % blocking.share == 0
        and blocking.kc % UNROLLED_STEPS == 0
    )
    assert blocking.mc < m + mr
    passes = -(-k // blocking.kc)
    assert passes * blocking.kc - k < UNROLLED_STEPS * passes  # next to nothing is padded
    micro_panels = (mr + nr) * (blocking.kc - UNROLLED_STEPS) * (8 if double else 4)
    assert micro_panels <= GENERIC_CACHES[1].size
    assert -(-m // blocking.mc) * (blocking.nc // blocking.share) <= -(-m // mr) * -(-n // nr)


@given(
    st.sampled_from(sorted(ALGORITHMS)), SIZE, SIZE, SIZE, st.integers(1, 16), st.integers(1, 4), st.sampled_from("ij ")
)
def test_blocks_of_every_algorithm_fit_their_caches(
    name: str, m: int, n: int, k: int, scalars: int, vectors: int, dealt: str
) -> None:
    algorithm, workload, cores = ALGORITHMS[name], gemm(m, n, k, "int8"), 4
    tile = {algorithm.s: UNROLLED_STEPS, algorithm.u: scalars, algorithm.v: vectors * 8}
    blocking = compute_blocking(
        workload, Target({"kind": "llvm"}, GENERIC_CACHES), algorithm, tile, cores, dealt.strip()
    )
    extent = get_extents(workload)
    for dim in "ijp":
        assert blocking.size_of(dim) % tile[dim] == 0
        # Rounding up wastes no block, but that a block of x is whole tasks.
        assert blocking.size_of(dim) < extent[dim] + tile[dim] + (cores * blocking.share if dim == algorithm.x else 0)
    if dealt != " " and extent[dealt] >= cores**2 * tile[dealt]:
        assert -(-extent[dealt] // blocking.size_of(dealt)) >= cores - 1
    size = {"A": 1, "B": 1, "C": 4}
    for operand, dim, cache in zip(
        algorithm.operands, (algorithm.x, algorithm.y), reversed(GENERIC_CACHES), strict=False
    ):
        block, panel = (
            size[operand] * blocking.size_of(algorithm.s) * width for width in (blocking.size_of(dim), tile[dim])
        )
        assert block <= cache.size or blocking.size_of(dim) == tile[dim] or panel > cache.size
