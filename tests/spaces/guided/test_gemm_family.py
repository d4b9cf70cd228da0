"""The family around the guided GEMM: every algorithm, variant, packing and parallel loop is right vector code."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule
from tvm_ffi import structural_equal

from searchlab.errors import SearchlabError
from searchlab.measure.local import LocalMeasurer
from searchlab.space import Config
from searchlab.target import Cache, Target, resolve_target
from searchlab.workload import gemm, parse_workload
from searchlab_spaces.guided.common import UNROLLED_STEPS, count_registers
from searchlab_spaces.guided.gemm import GuidedGemm, Variant
from searchlab_spaces.guided.gemm_algorithms import ALGORITHMS, OPERAND_INDICES, AlgorithmName
from tests.support.spaces.targets import UNOPTIMIZED

SMALL = (Cache(1 << 10, 4), Cache(4 << 10, 4), Cache(16 << 10, 8))
"""Caches so small that an awkward little problem has several blocks in every index."""

PACKINGS = [{"pack_a": a, "pack_b": b} for a in (True, False) for b in (True, False)]

X86 = "x86_64-unknown-linux-gnu"
NEOVERSE_N1 = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}
X280 = {"kind": "llvm", "mtriple": "riscv64-unknown-linux-gnu", "mcpu": "sifive-x280"}
CORTEX_M7 = {"kind": "llvm", "mtriple": "thumbv7em-none-eabihf", "mcpu": "cortex-m7"}
CORTEX_M55 = {"kind": "llvm", "mtriple": "thumbv8.1m.main-none-eabihf", "mcpu": "cortex-m55"}


def samples(space: GuidedGemm, count: int = 1) -> list[Config]:
    """So many configs at random, of small micro-tiles: a large one, all unrolled, may take 30 s to compile."""
    rng = np.random.default_rng(1)
    small = {
        knob.name: knob.choices[: len(knob.choices) // 2] for knob in space.axes if knob.name in ("mr", "nr", "kr")
    }
    configs = [space.sample(rng) for _ in range(count)]
    return [
        Config({**config, **{name: choices[int(rng.integers(len(choices)))] for name, choices in small.items()}})
        for config in configs
    ]


def assert_right(measurer: LocalMeasurer, space: GuidedGemm, count: int = 1) -> None:
    """So many programs of the space compute the reference result, and the trace of the first replays."""
    configs = samples(space, count)
    for result in measurer.measure(space, configs):
        assert result.failure is None, result.message
    schedule = space.schedule(configs[0])
    fresh = Schedule(space.workload.module)
    schedule.trace.apply_to_schedule(fresh, remove_postproc=False)
    assert structural_equal(schedule.mod, fresh.mod)


def test_the_names_say_who_is_resident_and_which_loops_there_are() -> None:
    assert set(ALGORITHMS) == {"B3A2C0", "A3B2C0", "C3B2A0", "B3C2A0", "C3A2B0", "A3C2B0"}
    for algorithm in ALGORITHMS.values():
        x, y, z = (set(OPERAND_INDICES[name]) for name in algorithm.operands)
        assert x & z == {algorithm.x} and y & z == {algorithm.y} and x & y == {algorithm.s}
        assert {algorithm.u, algorithm.v} == z
    loops = {name: (a.x, a.s, a.y) for name, a in ALGORITHMS.items()}
    assert loops["B3A2C0"] == ("j", "p", "i")  # loops 5, 4 and 3 of BLIS: jc, pc, ic
    assert loops["A3B2C0"] == ("i", "p", "j")
    assert loops["C3A2B0"] == ("j", "i", "p")


@pytest.mark.parametrize("packing", PACKINGS, ids=lambda p: "".join(n[-1] for n in p if p[n]) or "none")
@pytest.mark.parametrize("order", ["tasks", "published"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_right_however_packed(
    algorithm: str, order: str, packing: dict[str, Any], measurer: LocalMeasurer, native: Target
) -> None:
    target = replace(native, caches=SMALL)
    assert_right(measurer, GuidedGemm(gemm(37, 101, 61), target, algorithm=algorithm, order=order, **packing))


@pytest.mark.parametrize(("algorithm", "order"), [*((name, "tasks") for name in ALGORITHMS), ("B3A2C0", "published")])
@pytest.mark.parametrize(
    "workload",
    [
        "gemm:64x48x96:float64:relu",
        "gemm:23x41x19:int8:bias",
        "gemm:9x70x13:float16",
        "gemm:9x40x13:bfloat16",
        "gemm:23x41x19:int16:relu",
        "gemm:9x40x13:uint8:bias",
        "gemm:1x1x1",
        "batch-matmul:2x9x40x13:nt:relu",
    ],
)
def test_every_algorithm_is_right_in_all_dtypes_and_at_edges(
    algorithm: str, order: str, workload: str, measurer: LocalMeasurer, native: Target
) -> None:
    target = replace(native, caches=SMALL)
    assert_right(measurer, GuidedGemm(parse_workload(workload), target, algorithm=algorithm, order=order))


@pytest.mark.parametrize("workload", ["gemm:29x45x39:bias:relu", "gemm:32x64x16", "gemm:1x1x1", "gemm:9x40x13:int8"])
@pytest.mark.parametrize("variant", get_args(Variant))
def test_every_variant_is_right(variant: Variant, workload: str, measurer: LocalMeasurer, native: Target) -> None:
    assert_right(measurer, GuidedGemm(parse_workload(workload), native, variant=variant))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("loops", ["ijk", "ikj", "jik", "jki", "kij", "kji"])
def test_the_three_loops_may_be_in_any_order(loops: str, cores: int, measurer: LocalMeasurer) -> None:
    target = resolve_target({**UNOPTIMIZED, "num-cores": cores})
    space = GuidedGemm(gemm(103, 101, 107, bias=True), target, variant="basic", loops=loops)
    sch = space.schedule(space.config_at(0))
    nest = [sch.get(loop).loop_var.name for loop in sch.get_loops(sch.get_sblock("gemm_update"))]
    assert "".join(name[0] for name in nest[:3]).replace("p", "k") == loops
    assert_right(measurer, space)


@pytest.mark.parametrize("algorithm", ["A3B2C0", "C3B2A0", "A3C2B0"])
@pytest.mark.parametrize("variant", ["blocked", "packed"])
def test_variants_without_a_register_tile_follow_the_algorithm(
    variant: Variant, algorithm: AlgorithmName, measurer: LocalMeasurer, native: Target
) -> None:
    target = replace(native, caches=SMALL)
    assert_right(measurer, GuidedGemm(gemm(37, 53, 61, bias=True), target, variant=variant, algorithm=algorithm))


@pytest.mark.parametrize(
    "options",
    [
        *({"algorithm": name} for name in ALGORITHMS),
        *({"algorithm": name, "order": "published"} for name in ALGORITHMS),
        {"order": "published", "parallel": "jr"},
        *({"parallel": loop} for loop in ("ic", "jc", "ir", "jr")),
        {"algorithm": "C3B2A0", "parallel": "ir"},
        {"algorithm": "A3C2B0", "parallel": "jr", "pack_a": False},
        {"variant": "basic"},
        {"variant": "blocked", "parallel": "jc", "blocks": "knobs"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_parallel_programs_are_right_on_two_threads(options: dict[str, Any], measurer: LocalMeasurer) -> None:
    target = replace(resolve_target({**UNOPTIMIZED, "num-cores": 2}), caches=SMALL)
    space = GuidedGemm(gemm(103, 101, 107), target, **options)
    assert "T.parallel" in space.schedule(samples(space)[0]).mod.script()
    assert_right(measurer, space)


@pytest.mark.parametrize(("order", "nest"), [("tasks", ["j", "i", "p"]), ("published", ["j", "p", "i"])])
def test_published_order_packs_b_in_each_pass_over_k(order: str, nest: list[str], native: Target) -> None:
    space = GuidedGemm(gemm(103, 101, 107), replace(native, caches=SMALL), order=order)
    script = space.schedule(Config({"mr": 4, "nr": space.lanes})).mod.script()
    update = script.index('T.sblock("gemm_update")')
    nested, depth = list[str](), 10**6
    for line in reversed(script[:update].splitlines()):  # from the block outwards
        indent = len(line) - len(line.lstrip())
        if indent < depth and (loop := re.match(r" +for (\w)_0", line)):
            nested.insert(0, loop[1])
        depth = min(depth, indent)
    assert nested == nest
    assert (script.index("for p_0") < script.index('T.sblock("B_pad_global")')) == (order == "published")


def test_no_loop_is_parallel_unless_requested() -> None:
    target = resolve_target({**UNOPTIMIZED, "num-cores": 2})
    alternatives: list[dict[str, Any]] = [{}, {"variant": "basic"}, {"algorithm": "A3C2B0"}]
    for options in alternatives:
        space = GuidedGemm(gemm(512, 512, 512), target, parallel="none", **options)
        assert "T.parallel" not in space.schedule(samples(space)[0]).mod.script()


@pytest.mark.parametrize("algorithm", ["B3A2C0", "C3A2B0", "B3C2A0"])
def test_blocks_can_be_searched_too(algorithm: str, measurer: LocalMeasurer, native: Target) -> None:
    space = GuidedGemm(gemm(70, 140, 129), native, algorithm=algorithm, blocks="knobs")
    assert [knob.name for knob in space.axes][2:] == ["mc", "nc", "kc"]
    assert [knob.choices[-1] for knob in space.axes][2:] == [70, 140, 129]
    assert all(space.config_at(space.index_of(config)) == config for config in samples(space, 20))
    smallest = {**space.config_at(0), **{knob.name: knob.choices[0] for knob in space.axes[2:]}}
    uncut = {**smallest, **{knob.name: knob.choices[-1] for knob in space.axes[2:]}}
    assert not structural_equal(space.schedule(Config(smallest)).mod, space.schedule(Config(uncut)).mod)
    assert_right(measurer, space, 3)


def test_block_knobs_halve_down_to_the_largest_micro_tile() -> None:
    space = GuidedGemm(gemm(1000, 100, 1), resolve_target("skylake-avx512"), blocks="knobs")
    choices = {knob.name: knob.choices for knob in space.axes}
    assert choices["nr"][-1] == 64
    assert (choices["mc"], choices["nc"], choices["kc"]) == ((125, 250, 500, 1000), (100,), (1,))


@pytest.mark.parametrize("algorithm", ["B3A2C0", "A3C2B0"])
def test_packing_can_be_searched_too(algorithm: str, native: Target) -> None:
    workload, options = gemm(37, 101, 61), {"algorithm": algorithm}
    space = GuidedGemm(workload, native, **options, pack_a="knob", pack_b="knob", blocks="knobs")
    assert [knob.name for knob in space.axes][2:4] == ["pack_a", "pack_b"]
    (config,) = samples(space)
    for packing in PACKINGS:
        fixed = GuidedGemm(workload, native, **options, **packing, blocks="knobs")
        remaining = {name: value for name, value in config.items() if name not in packing}
        schedule = space.schedule(Config({**config, **packing}))
        assert structural_equal(schedule.mod, fixed.schedule(Config(remaining)).mod)


OPEN: dict[str, Any] = {"kc": "knob", "tiles": "fitting"}


@pytest.mark.parametrize(
    ("workload", "options", "threads"),
    [
        ("gemm:37x101x61:bias:relu", {"pack_b": "panel"}, 1),
        ("gemm:49x70x530", {"pack_a": False, "pack_b": "panel"}, 1),  # several passes, edges in every index
        ("gemm:1x1003x521:bias", {"pack_a": False, "pack_b": "places"}, 2),
        ("gemm:103x101x107", {"algorithm": "A3B2C0", "pack_a": "panel"}, 2),
        ("gemm:9x40x13:int8", {"pack_b": "panel"}, 1),
    ],
)
def test_panels_packed_by_their_task_and_passes_over_c_are_right(
    workload: str, options: dict[str, Any], threads: int, measurer: LocalMeasurer
) -> None:
    target = replace(resolve_target({**UNOPTIMIZED, "num-cores": threads}), caches=SMALL)
    assert_right(measurer, GuidedGemm(parse_workload(workload), target, **options, **OPEN))


def test_a_task_packs_the_panels_that_it_uses() -> None:
    target = resolve_target({"kind": "llvm", "mcpu": "haswell", "num-cores": 2})
    space = GuidedGemm(gemm(49, 512, 4608), target, pack_a=False, pack_b="panel", **OPEN)
    script = space.schedule(Config({"tile": "4x16", "kc": 256})).mod.script()
    assert script.count("T.parallel") == 1  # no loop that packs is shared out before
    assert script.index("T.parallel") < script.index('T.sblock("B_global")') < script.index('T.sblock("gemm_update")')


@pytest.mark.parametrize(("cpu", "mr", "nr"), [("haswell", 5, 16), ("znver4", 9, 32)])
def test_open_choices_hold_the_programs_of_the_default(cpu: str, mr: int, nr: int) -> None:
    workload, target = gemm(44, 159, 61), resolve_target(cpu)
    space, default = GuidedGemm(workload, target, pack_b="places", **OPEN), GuidedGemm(workload, target)
    config = Config({"tile": f"{mr}x{nr}", "pack_b": "block", "kc": 61})
    assert structural_equal(space.schedule(config).mod, default.schedule(Config({"mr": mr, "nr": nr})).mod)


def test_fitting_tiles_do_not_spill_and_kc_is_cut_evenly() -> None:
    def knobs(m: int, k: int, cpu: str = "haswell") -> dict[str, Any]:
        return {knob.name: knob.choices for knob in GuidedGemm(gemm(m, 512, k), resolve_target(cpu), **OPEN).axes}

    assert knobs(480, 4608)["tile"] == ("8x8", "4x16", "5x16", "6x16", "3x24", "4x24", "2x32")
    deep = knobs(49, 4608)
    # 50 rows of 512 columns at best; 54 and 56 rows, and 528 columns, are left out
    assert deep["tile"] == ("4x16", "5x16", "2x32")
    assert deep["kc"] == (256, 512, 4608)
    assert knobs(1, 2048)["tile"] == ("1x8", "1x16", "1x24", "1x32")
    assert knobs(1, 2048)["kc"] == (8, 256, 512, 2048)
    assert knobs(64, 576)["kc"] == (192, 288, 576)
    assert knobs(64, 1152)["kc"] == (192, 384, 1152)  # five passes would leave a rest
    assert knobs(64, 1153)["kc"] == (231, 385, 1153)
    assert knobs(64, 64)["kc"] == (64,)
    assert "14x32" in knobs(196, 64, "skylake-avx512")["tile"]


def test_knobs_are_those_of_the_resident_micro_tile() -> None:
    target = resolve_target("haswell")

    def knobs(**options: Any) -> dict[str, Any]:
        return {knob.name: knob.choices for knob in GuidedGemm(gemm(64, 64, 64), target, **options).axes}

    vectors, scalars = (8, 16, 24, 32), tuple(range(1, 9))
    assert knobs(algorithm="A3B2C0") == {"mr": scalars, "nr": vectors}
    assert knobs(algorithm="C3A2B0") == {"kr": scalars, "nr": vectors}
    assert knobs(algorithm="C3B2A0") == {"kr": scalars, "mr": vectors}
    assert knobs(variant="basic") == {"nr": vectors}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "packd"}, "option 'variant' cannot be 'packd'; did you mean 'packed'?"),
        ({"algorithm": "B3A2C1"}, "option 'algorithm' cannot be 'B3A2C1'; did you mean 'B3A2C0'?"),
        ({"parallel": "pc"}, "option 'parallel' cannot be 'pc'"),
        ({"parallel": "ir", "algorithm": "C3A2B0"}, "option 'parallel' cannot be 'ir'"),
        ({"parallel": "ic", "variant": "basic"}, "option 'parallel' cannot be 'ic'"),
        ({"blocks": "modell"}, "did you mean 'model'?"),
        ({"blocks": []}, "option 'blocks' cannot be []"),
        ({"pack_a": 1}, "option 'pack_a' is 1; it must be true or false, or one of"),
        ({"pack_a": "panel"}, "option 'pack_a' cannot be 'panel' with algorithm 'B3A2C0'; set it to true"),
        ({"pack_b": "places", "algorithm": "B3C2A0"}, "option 'pack_b' cannot be 'places' with algorithm 'B3C2A0'"),
        (
            {"kc": "knob", "algorithm": "C3A2B0"},
            "require an algorithm that keeps C resident, such as B3A2C0; 'C3A2B0' does not",
        ),
        ({"kc": "knob", "blocks": "knobs"}, "computed with variant='micro-kernel' and blocks='knobs'; remove 'kc'"),
        ({"tiles": "fitting", "variant": "basic"}, "variant 'basic' has no micro-tile; remove option 'tiles'"),
        ({"pack_b": "knob", "variant": "blocked"}, "variant 'blocked' does not pack; remove 'pack_b'"),
        ({"pack_b": True, "variant": "blocked"}, "variant 'blocked' does not pack; remove 'pack_b'"),
        ({"algorithm": "A3B2C0", "variant": "basic"}, "variant 'basic' has no blocks"),
        ({"blocks": "knobs", "variant": "basic"}, "variant 'basic' has no blocks"),
        ({"order": "published", "variant": "basic"}, "variant 'basic' has no blocks"),
        ({"loops": "ikj"}, "option 'loops' requires variant 'basic'"),
        ({"order": "publish"}, "option 'order' cannot be 'publish'; did you mean 'published'?"),
        ({"kc": "papre"}, "option 'kc' cannot be 'papre'; did you mean 'paper'?"),
        ({"kc": "paper", "variant": "basic"}, "computed with variant='basic' and blocks='model'; remove 'kc'"),
        ({"kc": "paper", "blocks": "knobs"}, "computed with variant='micro-kernel' and blocks='knobs'; remove 'kc'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str, native: Target) -> None:
    with pytest.raises(SearchlabError, match=re.escape(message)):
        GuidedGemm(gemm(64, 64, 64), native, **options)


CPUS = [
    ({"kind": "llvm", "mcpu": "haswell", "mtriple": X86}, 16, r"vfn?madd\d+ps\s.*%ymm", r"vfn?madd\d+ss\s"),
    ({"kind": "llvm", "mcpu": "skylake-avx512", "mtriple": X86}, 32, r"vfn?madd\d+ps\s.*%zmm", r"vfn?madd\d+ss\s"),
    (NEOVERSE_N1, 32, r"fmla\s+v\d+\.4s, v\d+\.4s, v\d+\.", r"fmadd\s"),
    # TVM uses NEON on a CPU with SVE.
    ({**NEOVERSE_N1, "mcpu": "neoverse-v1"}, 32, r"fmla\s+v\d+\.4s, v\d+\.4s, v\d+\.", r"fmadd\s|\bz\d+\.s"),
    (X280, 32, r"vfm(acc|add)\.v[fv]\s", r"\sfmadd\.s\s"),
]


@pytest.mark.parametrize(
    ("spec", "count", "fused", "scalar"), CPUS, ids=["avx2", "avx512", "neon", "neon-of-sve", "riscv-v"]
)
@pytest.mark.parametrize("options", [{}, {"pack_a": False, "pack_b": False}], ids=["packed", "in-place"])
@pytest.mark.parametrize("algorithm", ["B3A2C0", "C3A2B0", "C3B2A0"])
def test_micro_kernels_are_vector_multiply_adds_elsewhere(
    algorithm: str, options: dict[str, Any], spec: dict[str, str], count: int, fused: str, scalar: str
) -> None:
    target = resolve_target(spec)
    assert count_registers(target) == count
    space = GuidedGemm(gemm(61, 67, 71), target, algorithm=algorithm, **options)
    scalars, vectors = space.axes
    config = Config({scalars.name: 4, vectors.name: 2 * space.lanes})
    assembly = tvm.compile(space.schedule(config).mod, target=target.tvm).mod.inspect_source("asm")
    assert len(re.findall(fused, assembly)) >= 4 * 2 * UNROLLED_STEPS
    assert not re.search(scalar, assembly)


@pytest.mark.parametrize(
    ("spec", "dtype", "instruction"),
    [
        (NEOVERSE_N1, "int8", r"smlal2?\s+v\d+\.4s"),
        (NEOVERSE_N1, "uint8", r"umlal2?\s+v\d+\.4s"),
        (X280, "int8", r"vwmacc\.v[vx]\s"),
        (X280, "int16", r"vwmacc\.v[vx]\s"),
    ],
)
def test_integers_are_widened_in_vectors(spec: dict[str, str], dtype: str, instruction: str) -> None:
    space = GuidedGemm(gemm(64, 64, 64, dtype), resolve_target(spec))
    config = Config({"mr": 4, "nr": 2 * space.lanes})
    assembly = tvm.compile(space.schedule(config).mod, target=space.target.tvm).mod.inspect_source("asm")
    assert len(re.findall(instruction, assembly)) >= 4 * 2 * UNROLLED_STEPS


@pytest.mark.parametrize(
    ("spec", "lanes", "count", "instruction"),
    [(CORTEX_M7, 1, 32, r"vfma\.f32\s+s\d"), (CORTEX_M55, 4, 8, r"vfma\.f32\s+q\d")],
    ids=["scalar", "helium"],
)
def test_microcontrollers_multiply_and_add_in_registers(
    spec: dict[str, str], lanes: int, count: int, instruction: str
) -> None:
    space = GuidedGemm(gemm(61, 67, 71), resolve_target(spec))
    assert (space.lanes, count_registers(space.target)) == (lanes, count)
    config = Config({"mr": 2, "nr": 2 * lanes})
    assembly = tvm.compile(space.schedule(config).mod, target=space.target.tvm).mod.inspect_source("asm")
    assert len(re.findall(instruction, assembly)) >= 2 * 2 * UNROLLED_STEPS


@pytest.mark.parametrize(("n", "lanes"), [(1000, 8), (1024, 16), (1001, 16)])
def test_a_single_row_has_whole_vectors_of_b(n: int, lanes: int, measurer: LocalMeasurer, native: Target) -> None:
    target = resolve_target({"kind": "llvm", "mcpu": "skylake-avx512", "mtriple": X86, "num-cores": 2})
    options: dict[str, Any] = {"pack_a": False, "pack_b": False, "kc": "knob"}
    space = GuidedGemm(gemm(1, n, 2048), target, **options)
    script = space.schedule(Config({"mr": 1, "nr": 16, "kc": 8})).mod.script()
    assert f"T.vectorized({lanes})" in script and f"T.vectorized({24 - lanes})" not in script
    assert (
        "T.vectorized(16)"
        in GuidedGemm(gemm(2, n, 2048), target, **options).schedule(Config({"mr": 2, "nr": 16, "kc": 8})).mod.script()
    )
    assert_right(
        measurer, GuidedGemm(gemm(1, n, 96), replace(native, spec={**native.spec, "num-cores": 2}), **options), 2
    )
