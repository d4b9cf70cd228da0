"""Sketches: right answers, limits, knobs that need no schedule, and configs read back from the programs they make."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections import Counter

import cloudpickle
import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule
from tvm_ffi import structural_equal

from searchlab.errors import InvalidConfig, UnsupportedWorkload
from searchlab.space import Config
from searchlab.target import Target, resolve_target
from searchlab.workload import Workload, gemm, parse_workload
from searchlab_spaces import decisions
from searchlab_spaces.sketch import Sketch
from searchlab_spaces.sketch.dag import print_dag
from tests.support.spaces.programs import assert_right, fingerprints, replay_trace, valid_configs
from tests.support.spaces.targets import UNOPTIMIZED

CUDA = Target({"kind": "cuda", "arch": "sm_90", "host": "llvm"})
CPU_OF_TWO = Target({"kind": "llvm", "num-cores": 2})
PADDED = "conv2d:1x9x9x8x4x3x3:p1"


def sketches(spelling: str, target: Target) -> Sketch:
    return Sketch(parse_workload(spelling), target)


@pytest.mark.parametrize(
    "spelling",
    [
        "gemm:32x32x32",
        "gemm:31x37x13",
        "gemm:16x24x8:float64",
        "gemm:20x12x30:bias:relu",
        "gemm:9x8x10:int8",
        "gemm:1x1x4096",
        "gemm:1x1x1",
        "conv2d:1x8x8x8x4x1x1",
        "conv2d:1x13x11x7x5x3x3:s2:bias:relu",
        PADDED,
        "conv2d:2x12x7x6x4x3x3:p2x1:d2x1:relu",
    ],
)
def test_programs_give_the_right_answer_and_replay(spelling: str, native: Target) -> None:
    space = sketches(spelling, native)
    rng = np.random.default_rng(0)
    for number in range(len(space.sketches)):
        config = space.repair({"sketch": number}, rng)
        assert config in space
        schedule = space.schedule(config)
        assert_right(space.workload, schedule, native)
        assert structural_equal(schedule.mod, replay_trace(schedule, space.workload).mod)


def test_a_config_is_what_the_trace_of_its_program_decides(native: Target) -> None:
    space = sketches("gemm:48x64x40", native)
    config = space.sample(np.random.default_rng(3))
    assert space.canonical(config) == config
    trace = space.schedule(config).trace
    tiles = [trace.get_decision(inst) for inst in trace.insts if inst.kind.name == "SamplePerfectTile"]
    assert [tuple(int(n) for n in tile) for tile in tiles] == [config[f"tile_{axis}"] for axis in "ijp"]


@pytest.mark.parametrize("spelling", [PADDED, "conv2d:1x7x7x4x3x3x3:s2:p1:bias"])
def test_a_location_without_a_loop_yields_the_nearest_program(spelling: str, native: Target) -> None:
    space = sketches(spelling, native)
    rng = np.random.default_rng(1)
    moved = 0
    for config in (space.sample(rng) for _ in range(20)):
        canonical = space.canonical(config)
        assert canonical in space
        assert space.canonical(canonical) == canonical
        assert {name for name in config if config[name] != canonical[name]} <= {"location_pad"}
        if canonical != config:
            moved += 1
            assert structural_equal(space.schedule(config).mod, space.schedule(canonical).mod)
    assert 0 < moved < 20


def test_sampling_makes_no_schedule_and_is_quick(native: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in (native, CUDA):
        space: Sketch = pickle.loads(pickle.dumps(sketches("conv2d:1x28x28x128x128x3x3:p1", target)))

        def refuse(self: object, *args: object, **kwargs: object) -> None:
            raise AssertionError("made a schedule")

        with monkeypatch.context() as patch:
            patch.setattr(Schedule, "__init__", refuse)
            rng = np.random.default_rng(0)
            configs = [space.sample(rng) for _ in range(1000)]
            assert all(config in space for config in configs[:100])
            assert space.mutate(configs[0], rng) in space
            assert space.crossover(configs[1], configs[2], rng) in space
        assert "_design" not in vars(space)  # TVM has not been asked for anything


def test_cpu_path_imports_no_tensor_intrinsics() -> None:
    program = (
        "import sys, numpy as np\n"
        "from searchlab.target import resolve_target\n"
        "from searchlab.workload import parse_workload\n"
        "from searchlab_spaces.sketch import Sketch\n"
        f"space = Sketch(parse_workload({PADDED!r}), resolve_target('native'))\n"
        "space.schedule(space.sample(np.random.default_rng(0)))\n"
        "assert not [name for name in sys.modules if name.startswith('tvm.s_tir.tensor_intrin')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_knobs_and_samples_are_the_same_in_every_process(native: Target) -> None:
    assert len(fingerprints("searchlab_spaces.sketch.space:Sketch", PADDED)) == 1


def test_mutation_crossover_json_and_pickle_stay_inside(native: Target) -> None:
    for target in (native, CUDA):
        space = sketches("conv2d:1x9x9x8x4x3x3:p1:relu", target)
        rng = np.random.default_rng(0)
        copy: Sketch = pickle.loads(cloudpickle.dumps(space))
        assert copy.fingerprint == space.fingerprint
        for _ in range(50):
            a, b = space.sample(rng), space.sample(rng)
            for config in (space.mutate(a, rng), space.crossover(a, b, rng)):
                assert config in space
                assert space.decide(lambda knob, config=config: config[knob.name]) == config  # type: ignore[misc]
                assert Config({name: list(v) if isinstance(v, tuple) else v for name, v in config.items()}) in copy
        valid = valid_configs(space, rng, 1)[0]
        assert structural_equal(space.schedule(valid).mod, copy.schedule(valid).mod)


def test_one_core_has_no_parallel_loop() -> None:
    for cores, parallel in ((1, False), (2, True)):
        space = sketches("gemm:64x64x64", resolve_target({**UNOPTIMIZED, "num-cores": cores}))
        config = space.repair({"sketch": 2, "tile_i": (8, 1, 2, 4)}, np.random.default_rng(0))
        assert ("T.parallel" in space.schedule(config).mod.script()) is parallel


def test_knobs_are_the_sketch_and_what_it_samples(native: Target) -> None:
    space = sketches("gemm:64x48x32", native)
    knobs = {knob.name: list(knob.choices) for knob in space.knobs(space.sample(np.random.default_rng(0)))}
    assert list(knobs) == ["sketch", "tile_i", "tile_j", "tile_p", "unroll_explicit"]
    assert knobs["sketch"] == [0, 1, 2]
    assert knobs["unroll_explicit"] == [0, 16, 64, 512]
    assert len(knobs["tile_i"]) == 84  # 2^6 into 4 factors, C(9, 3)
    assert knobs["tile_p"] == [(1, 32), (2, 16), (4, 8), (8, 4), (16, 2), (32, 1)]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="CUDA programs are compiled by nvcc, which is not on the path")
@pytest.mark.parametrize("spelling", ["gemm:64x64x64", PADDED])
def test_cuda_programs_are_compiled_by_nvcc(spelling: str) -> None:
    space = sketches(spelling, CUDA)
    for config in valid_configs(space, np.random.default_rng(0), 3 if spelling.startswith("gemm") else 1):
        built = tvm.compile(space.schedule(config).mod, target=CUDA.tvm)
        assert "__global__" in built.mod.imports[0].inspect_source()


def test_programs_over_a_gpu_limit_are_not_offered() -> None:
    space = sketches("gemm:256x256x256", CUDA)
    rng = np.random.default_rng(0)
    config = space.repair({"sketch": 0, "tile_i": (1, 1, 16, 8, 2), "tile_j": (1, 1, 16, 8, 2)}, rng)
    for tile in ({"tile_p": (1, 64, 4)}, {"tile_i": (1, 64, 4, 1, 1)}):  # too much memory, and 64 virtual threads
        with pytest.raises(InvalidConfig, match=next(iter(tile))):
            space.schedule(Config({**config, **tile}))
    valid = [_is_valid(space, space.sample(rng)) for _ in range(60)]
    assert sum(valid) > 50  # drawn without regard to shared memory, 20 were valid, and without regard to threads, 4


@pytest.mark.parametrize("spelling", ["gemm:256x192x128:float16", "conv2d:1x28x28x64x32x3x3:p1:s2"])
def test_the_shared_memory_of_tiles_is_that_of_the_program(spelling: str) -> None:
    space = sketches(spelling, CUDA)
    unlimited = sketches(spelling, Target({**CUDA.spec, "max_shared_memory_per_block": 1 << 30}))
    rng = np.random.default_rng(0)
    counts: Counter[bool] = Counter()
    for config in (unlimited.sample(rng) for _ in range(25)):
        offered = config in space
        try:
            space._postprocess(space._apply_sketch(config))
        except InvalidConfig as error:
            if "shared memory" not in str(error):  # TVM cannot pipeline a loop of one iteration, for example
                continue
            assert not offered
        else:
            assert offered
        counts[offered] += 1
    assert min(counts[True], counts[False]) > 3


def _is_valid(space: Sketch, config: Config) -> bool:
    try:
        space.schedule(config)
    except InvalidConfig as error:
        assert str(error)
        return False
    return True


def test_other_targets_are_refused() -> None:
    with pytest.raises(UnsupportedWorkload, match="llvm and cuda, not metal"):
        Sketch(gemm(8, 8, 8), Target({"kind": "metal"}))


def test_computation_is_printed_as_ansor_prints_it(native: Target) -> None:
    assert sketches("gemm:512x256x128:relu", native).dag().splitlines() == [
        "A = PLACEHOLDER [512, 128]",
        "B = PLACEHOLDER [128, 256]",
        "gemm(i, j) += (A[i, p]*B[p, j])",
        "relu(i0, i1) = max(gemm[i0, i1], 0f)",
    ]
    workload: Workload = parse_workload("conv2d:1x14x14x32x16x3x3:s2:p1:int8:bias")
    assert print_dag(workload.prim_func()).splitlines() == [
        "data = PLACEHOLDER [1, 16, 14, 14]",
        "weight = PLACEHOLDER [32, 16, 3, 3]",
        "bias_in = PLACEHOLDER [32]",
        "pad(n, c, y, x) = if_then_else(((((1 <= y) && (y < 15)) && (1 <= x)) && (x < 15)), "
        "data[n, c, (y-1), (x-1)], 0)",
        "conv2d(n, f, y, x) += (int32(pad[n, rc, ((y*2)+ry), ((x*2)+rx)])*int32(weight[f, rc, ry, rx]))",
        "bias(i0, i1, i2, i3) = (conv2d[i0, i1, i2, i3]+bias_in[i1])",
    ]


@pytest.mark.parametrize("spelling", ["conv2d:1x28x28x128x128x3x3:p1", "conv2d:1x9x9x16x8x3x3:p1:bias:relu"])
def test_what_tvm_draws_is_in_the_space(spelling: str, native: Target) -> None:
    """Compute locations too, however deep: a range found from random programs alone ended too soon."""
    space = sketches(spelling, native)
    configs = [space.config_of(space.draw(seed)) for seed in range(1, 150)]
    assert [config for config in configs if config not in space] == []


def test_a_target_need_not_say_how_many_cores_it_has() -> None:
    space = sketches("gemm:64x64x64", resolve_target({"kind": "llvm", "mcpu": "haswell"}))
    assert space.target.cores == 1
    assert valid_configs(space, np.random.default_rng(0), 2)


def test_tiles_are_all_that_tvm_may_draw() -> None:
    tiles = decisions.list_perfect_tiles(60, 3, 6)
    assert set(tiles) == {(a, b, c) for a in range(1, 61) for b in range(1, 61) for c in range(1, 7) if a * b * c == 60}
    assert (1, 10, 6) in tiles and (1, 6, 10) not in tiles
    assert len(set(tiles)) == len(tiles)
    assert decisions.list_partitioned_tiles(12, 2, 1, 3) == ((1, 12), (2, 6), (4, 3))
    assert not decisions.list_partitioned_tiles(7, 2, 1, 2)


def test_the_spaces_say_what_their_knobs_are_for() -> None:
    space = sketches("conv2d:1x8x8x8x4x3x3:p1", CPU_OF_TWO)
    rng = np.random.default_rng(0)
    roles = {knob.name: knob.role for _ in range(20) for knob in space.knobs(space.sample(rng))}
    assert roles["sketch"] == "sketch" and roles["unroll_explicit"] == "unroll"
    assert {role for name, role in roles.items() if name.startswith("tile")} == {"tile"}
    assert {role for name, role in roles.items() if name.startswith("location")} == {"location"}
    gpu = sketches("gemm:64x64x64", CUDA)
    roles = {knob.name: knob.role for knob in gpu.knobs(gpu.sample(rng))}
    assert roles["cooperative_fetch"] == "tile" and roles["unroll_explicit"] == "unroll"


def test_a_factor_moves_as_in_tvms_own_mutator() -> None:
    """Where a tile goes in one step, and how often: TVM's ``MutateTileSize`` on the trace, and ``Knob.move_factor``."""
    from tvm.s_tir.meta_schedule import _ffi_api
    from tvm.s_tir.meta_schedule.mutator import MutateTileSize

    space = sketches("gemm:1x128x1", CPU_OF_TWO)
    rng = np.random.default_rng(0)
    config = space.repair({"sketch": 0, "tile_j": (4, 1, 2, 16)}, rng)
    knob = next(knob for knob in space.knobs(config) if knob.name == "tile_j")
    trace, mutator = space._apply_sketch(config).trace, MutateTileSize()
    tiles = [inst for inst in trace.insts if inst.kind.name == decisions.PERFECT_TILE]
    (tiled,) = [inst for inst in tiles if np.prod(trace.get_decision(inst)) == 128]
    mutants = (_ffi_api.MutatorApply(mutator, trace, seed) for seed in rng.integers(1, 2**31 - 1, size=4000).tolist())
    tvm_counts = Counter(tuple(int(factor) for factor in mutant.get_decision(tiled)) for mutant in mutants)
    own_counts = Counter(knob.move_factor((4, 1, 2, 16), rng) for _ in range(4000))
    assert tvm_counts.keys() == own_counts.keys()
    assert all(
        abs(tvm_counts[tile] - own_counts[tile]) < 5 * np.sqrt(tvm_counts[tile] + own_counts[tile])
        for tile in own_counts
    )
