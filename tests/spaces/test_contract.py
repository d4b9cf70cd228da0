"""The contract of spaces, for every registered one on a range of workloads."""

from __future__ import annotations

import json
import shutil
from functools import cache
from itertools import pairwise

import cloudpickle
import numpy as np
import pytest
import tvm
from tvm_ffi import structural_equal

from searchlab.errors import InvalidConfig, UnsupportedWorkload
from searchlab.machine.cuda import COMPILER_VARIABLE
from searchlab.measure.code import compile_program
from searchlab.measure.local import LocalMeasurer
from searchlab.plugins import Plugin
from searchlab.space import SPACES, Config, Knob, ProductSpace, Space, Value
from searchlab.target import resolve_target
from searchlab.workload import parse_workload
from tests.support.spaces.programs import valid_configs
from tests.support.spaces.targets import UNOPTIMIZED

WORKLOADS = [
    "gemm:64x48x96",
    "gemm:37x53x29:bias:relu",
    "gemm:32x64x16:float64:relu",
    "gemm:1x1x1",
    "batch-matmul:3x12x20x9:nt:bias",
    "conv2d:1x9x9x16x8x3x3:p1:bias:relu",
    "conv2d:2x7x8x12x6x3x2:s2x1:p1x0:d2x1",
    "conv2d:1x5x5x32x16x1x1:relu",
    "conv2d:1x9x9x8x8x3x3:p1:g8:bias:relu",
]
SEEDS = range(3)


TARGETS = {"cpu": UNOPTIMIZED, "cuda": {"kind": "cuda", "arch": "sm_90"}}


VARIANTS = {
    "guided-conv2d-knobs": ("conv2d", Plugin("guided-conv2d", {"blocks": "knobs"})),
    "guided-conv2d-packed": ("conv2d", Plugin("guided-conv2d", {"winograd": True, "weights": "packed"})),
    "guided-gemm-packed": ("gemm", Plugin("guided-gemm", {"kc": "knob", "weights": "packed"})),
    "trace-mm": ("gemm", Plugin("trace", {"function": "searchlab_spaces.trace.cpu:stochastic_schedule_mm"})),
}
"""Spaces with options, by a name of their own: the operator that each is for, on CPUs."""


@cache
def space_of(name: str, workload: str, kind: str) -> Space | None:
    """Return the space, or None if it refuses this workload or kind of target with a hint."""
    _, plugin = VARIANTS.get(name, ("", Plugin(name)))
    try:
        return SPACES.make(plugin, parse_workload(workload), resolve_target(TARGETS[kind]))  # type: ignore[arg-type]
    except UnsupportedWorkload as error:
        assert "use" in str(error) and name in str(error)
        return None


WITH_PROGRAMS = [name for name in SPACES.entry_points_by_name() if SPACES.load(name).has_programs]
CELLS = [
    pytest.param(name, workload, kind, id=f"{name}-{workload}-{kind}")
    for name in [*WITH_PROGRAMS, *VARIANTS]
    for workload in WORKLOADS
    for kind in TARGETS
    if (name not in VARIANTS or (parse_workload(workload).op, kind) == (VARIANTS[name][0], "cpu"))
    and space_of(name, workload, kind)
]
ON_CPU = [cell for cell in CELLS if cell.values[2] == "cpu"]
ON_CUDA = [cell for cell in CELLS if cell.values[2] == "cuda"]


def test_every_workload_has_a_space_and_every_space_a_workload() -> None:
    for cells in (ON_CPU, ON_CUDA):
        assert {cell.values[1] for cell in cells} == set(WORKLOADS)
    assert {cell.values[0] for cell in ON_CPU} == {*WITH_PROGRAMS, *VARIANTS}
    assert {cell.values[0] for cell in ON_CUDA} >= {"knob-template", "sketch", "trace"}


def samples(space: Space, count: int) -> list[Config]:
    rng = np.random.default_rng(1)
    return [space.sample(rng) for _ in range(count)]


@pytest.mark.parametrize(("name", "workload", "kind"), CELLS)
def test_decided_configs_are_members_and_stay_so(name: str, workload: str, kind: str) -> None:
    space = space_of(name, workload, kind)
    assert space
    rng = np.random.default_rng(0)
    configs = samples(space, 20)
    for a, b in pairwise(configs):
        for config in (a, space.mutate(a, rng), space.crossover(a, b, rng)):
            assert config in space
            assert Config(json.loads(json.dumps(config.to_json()))) == config
        replayed: list[str] = []

        def choose(knob: Knob, a: Config = a, replayed: list[str] = replayed) -> Value:
            assert len(set(knob.choices)) == len(knob.choices) > 0
            replayed.append(knob.name)
            return a[knob.name]

        assert space.decide(choose) == a and replayed == list(a)
    assert Config({**configs[0], "no such knob": 1}) not in space
    with pytest.raises(InvalidConfig, match="no such knob"):
        space.schedule(Config({**configs[0], "no such knob": 1}))


@pytest.mark.parametrize(("name", "workload", "kind"), CELLS)
def test_the_default_config_has_a_program(name: str, workload: str, kind: str) -> None:
    space = space_of(name, workload, kind)
    assert space
    space.schedule(space.default_config())


@pytest.mark.parametrize(("name", "workload", "kind"), ON_CPU)
def test_programs_build_and_compute_the_right_answer(
    name: str, workload: str, kind: str, measurer: LocalMeasurer
) -> None:
    space = space_of(name, workload, kind)
    assert space
    results = list(measurer.measure(space, samples(space, 4)))
    assert {result.failure for result in results} <= {None, "invalid"}, [result.message for result in results]
    assert any(result.seconds for result in results)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc, of the CUDA toolkit, is missing")
@pytest.mark.parametrize("name", sorted({cell.values[0] for cell in ON_CUDA}))  # type: ignore[type-var]
def test_cuda_programs_compile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program for each workload; nvcc starts once and reads CUDA's headers once, outside of their namespaces."""
    monkeypatch.setenv(COMPILER_VARIABLE, "nvcc")
    sources = ["#include <cstdint>\n#include <type_traits>\n#include <cuda.h>\n"]
    for number, cell in enumerate(cell for cell in ON_CUDA if cell.values[0] == name):
        space = space_of(*cell.values)
        assert space
        (config,) = valid_configs(space, np.random.default_rng(1), 1)
        source = compile_program(space.schedule(config).mod, space.target).mod.imports[0].inspect_source()
        sources.append(f"namespace program{number} {{\n{source.replace('main_kernel', f'main{number}_kernel')}\n}}\n")
    with resolve_target(TARGETS["cuda"]).tvm:  # as TVM does where it can also load what comes of it
        assert tvm.get_global_func("tvm_callback_cuda_compile")("".join(sources))


@pytest.mark.parametrize(("name", "workload", "kind"), CELLS)
def test_one_config_is_one_program_and_its_trace_replays(name: str, workload: str, kind: str) -> None:
    from tvm.s_tir import Schedule

    space = space_of(name, workload, kind)
    assert space
    copy = cloudpickle.loads(cloudpickle.dumps(space))
    assert copy.fingerprint == space.fingerprint
    scheduled = 0
    for config in samples(space, 30):
        if scheduled == 3:
            break
        try:
            schedule = space.schedule(config)
        except InvalidConfig as error:
            assert str(error)
            continue
        scheduled += 1
        assert structural_equal(schedule.mod, copy.schedule(config).mod)
        if schedule.trace is None:  # it is not a transformation of the workload's module
            continue
        fresh = Schedule(space.workload.module)
        schedule.trace.apply_to_schedule(fresh, remove_postproc=False)
        assert structural_equal(schedule.mod, fresh.mod)
    assert scheduled


@pytest.mark.parametrize(("name", "workload", "kind"), CELLS)
def test_a_product_space_enumerates_what_it_counts(name: str, workload: str, kind: str) -> None:
    space = space_of(name, workload, kind)
    if isinstance(space, ProductSpace):
        for index in np.random.default_rng(0).integers(space.size(), size=50).tolist():
            assert space.index_of(space.config_at(index)) == index
        if space.size() <= 2000:
            assert len(set(space.enumerate())) == space.size()
