"""Scripts of schedules: run in a process with TVM but without searchlab, they build the same module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm_ffi import structural_equal

from searchlab.apply.script import python_script
from searchlab.errors import SearchlabError
from searchlab.plugins import Plugin
from searchlab.space import SPACES, Config, Space
from searchlab.target import Target, resolve_target
from searchlab.workload import parse_workload
from tests.support.apply.odd import TRACES, UNWRITABLE, Odd
from tests.support.spaces.programs import valid_configs

CUDA = {"kind": "cuda", "arch": "sm_90"}
BUILT_IN = [
    (target, space, workload)
    for target, spaces in (
        ("native", ("knob-template", "guided-gemm", "guided-conv2d", "sketch", "trace")),
        ("cuda", ("knob-template", "sketch", "trace")),
    )
    for space in spaces
    for workload in ("gemm:37x48x24:bias:relu", "gemm:16x32x16:int8", "conv2d:1x8x8x16x8x3x3:p1:relu")
    if not (space == "guided-gemm" and workload.startswith("conv2d"))
    and not (space == "guided-conv2d" and workload != "conv2d:1x8x8x16x8x3x3:p1:relu")
]
CONFIGS = 2

WITHOUT_SEARCHLAB = "import sys\nsys.modules['searchlab'] = sys.modules['searchlab_spaces'] = None\n"
RUN_ALL = (
    WITHOUT_SEARCHLAB
    + """
import pathlib, tvm
for path in map(pathlib.Path, sys.argv[1:]):
    names = {}
    try:
        exec(path.read_text(), names)
        path.with_suffix(".json").write_text(tvm.ir.save_json(names["sch"].mod))
    except Exception as error:
        path.with_suffix(".error").write_text(f"{type(error).__name__}: {error}")
"""
)


def made(target: str, space: str, workload: str) -> Space:
    spec: Target = resolve_target(CUDA if target == "cuda" else "native")
    return SPACES.make(Plugin(space), parse_workload(workload), spec)


def script_of(space: Space, config: Config) -> str:
    return python_script(space.schedule(config), space.workload, space.target, "a\ntitle")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, tvm.IRModule]]:
    """Every script and the module that it must build; all have been run in one process."""
    folder = tmp_path_factory.mktemp("scripts")
    found: dict[str, tuple[Path, tvm.IRModule]] = {}

    def add(name: str, space: Space, config: Config) -> None:
        path = folder / f"{len(found)}.py"
        path.write_text(script_of(space, config))
        found[name] = path, space.schedule(config).mod

    for case in BUILT_IN:
        space = made(*case)
        for number, config in enumerate(valid_configs(space, np.random.default_rng(3), CONFIGS)):
            add(f"{case} {number}", space, config)
    odd = Odd(parse_workload("gemm:32x32x32"), resolve_target("native"))
    for trace in TRACES:
        add(trace, odd, Config({"trace": trace}))
    spoilt = folder / "spoilt.py"
    spoilt.write_text(script_of(odd, Config({"trace": "bool"})).replace(", True)", ", False)"))
    found["spoilt"] = spoilt, odd.workload.module
    paths = [str(path) for path, _ in found.values()]
    done = subprocess.run([sys.executable, "-c", RUN_ALL, *paths], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return found


def assert_made(path: Path, module: tvm.IRModule) -> None:
    error = path.with_suffix(".error")
    assert not error.exists(), error.read_text()
    assert structural_equal(tvm.ir.load_json(path.with_suffix(".json").read_text()), module)


@pytest.mark.parametrize("case", BUILT_IN, ids=lambda case: "-".join(case))
def test_of_every_built_in_space(case: tuple[str, str, str], scripts: dict[str, tuple[Path, tvm.IRModule]]) -> None:
    for number in range(CONFIGS):
        assert_made(*scripts[f"{case} {number}"])


@pytest.mark.parametrize("trace", TRACES)
def test_instructions_that_tvm_cannot_render(trace: str, scripts: dict[str, tuple[Path, tvm.IRModule]]) -> None:
    assert_made(*scripts[trace])


@pytest.mark.parametrize("trace", UNWRITABLE)
def test_schedules_without_a_script_are_rejected_with_one_sentence(trace: str) -> None:
    odd = Odd(parse_workload("gemm:32x32x32"), resolve_target("native"))
    with pytest.raises(SearchlabError, match="cannot write the schedule as Python: .*; use --show trace"):
        script_of(odd, Config({"trace": trace}))


def test_it_may_be_piped_to_python() -> None:
    space = made("native", "knob-template", "gemm:37x48x24:bias:relu")
    (config,) = valid_configs(space, np.random.default_rng(0), 1)
    script = script_of(space, config)
    assert not [line for line in script.splitlines() if "searchlab" in line and not line.startswith("#")]
    done = subprocess.run([sys.executable, "-"], input=WITHOUT_SEARCHLAB + script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert structural_equal(tvm.script.from_source(done.stdout), space.schedule(config).mod)


def test_it_notices_that_it_makes_another_program(scripts: dict[str, tuple[Path, tvm.IRModule]]) -> None:
    path, _ = scripts["spoilt"]
    assert "this TVM builds a different program" in path.with_suffix(".error").read_text()
