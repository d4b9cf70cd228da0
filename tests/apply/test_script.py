"""Scripts of programs: run in a process with TVM but without searchlab, they define the same module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm_ffi import structural_equal

from searchlab.apply.best import python_script
from searchlab.errors import SearchlabError
from searchlab.plugins import Plugin
from searchlab.space import SPACES, Config, Space
from searchlab.target import Target, resolve_target
from searchlab.workload import parse_workload
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

WITHOUT_SEARCHLAB = "import sys\nsys.modules['searchlab'] = sys.modules['searchlab_spaces'] = None\n"
RUN_ALL = (
    WITHOUT_SEARCHLAB
    + """
import pathlib
for path in map(pathlib.Path, sys.argv[1:]):
    names = {}
    exec(path.read_text(), names)
    path.with_suffix(".json").write_text(names["tvm"].ir.save_json(names["module"]))
"""
)


def make_space(target: str, space: str, workload: str) -> Space:
    spec: Target = resolve_target(CUDA if target == "cuda" else "native")
    return SPACES.make(Plugin(space), parse_workload(workload), spec)


def script_of(space: Space, config: Config) -> str:
    return python_script(space.schedule(config).mod, space.target, "a\ntitle")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, tvm.IRModule]]:
    """Every script and the module that it must define; all have been run in one process."""
    folder = tmp_path_factory.mktemp("scripts")
    modules: dict[str, tuple[Path, tvm.IRModule]] = {}
    for case in BUILT_IN:
        space = make_space(*case)
        (config,) = valid_configs(space, np.random.default_rng(3), 1)
        path = folder / f"{len(modules)}.py"
        path.write_text(script_of(space, config))
        modules[str(case)] = path, space.schedule(config).mod
    paths = [str(path) for path, _ in modules.values()]
    result = subprocess.run([sys.executable, "-c", RUN_ALL, *paths], capture_output=True, text=True, cwd=folder)
    assert result.returncode == 0, result.stderr
    return modules


@pytest.mark.parametrize("case", BUILT_IN, ids=lambda case: "-".join(case))
def test_a_script_defines_the_module_of_its_config(
    case: tuple[str, str, str], scripts: dict[str, tuple[Path, tvm.IRModule]]
) -> None:
    path, module = scripts[str(case)]
    assert structural_equal(tvm.ir.load_json(path.with_suffix(".json").read_text()), module)


def test_the_target_and_the_threads_are_those_of_the_trials() -> None:
    space = make_space("native", "knob-template", "gemm:37x48x24:bias:relu")
    (config,) = valid_configs(space, np.random.default_rng(0), 1)
    cores = "print(os.environ['TVM_NUM_THREADS'], target.attrs['num-cores'])"
    result = subprocess.run(
        [sys.executable, "-"],
        input=WITHOUT_SEARCHLAB + script_of(space, config) + cores,
        capture_output=True,
        text=True,
        env={"PATH": ""},
    )
    assert result.stdout.split() == [str(space.target.cores)] * 2, result.stderr


def test_a_program_that_tvm_cannot_read_back_is_refused() -> None:
    target = resolve_target({"kind": "llvm", "mcpu": "sapphirerapids", "num-cores": 2})
    space = SPACES.make(Plugin("guided-gemm", {"dot": True}), parse_workload("gemm:64x64x64:int8"), target)
    (config,) = valid_configs(space, np.random.default_rng(0), 1)
    with pytest.raises(SearchlabError, match="cannot read this program back from Python; use --show tir"):
        script_of(space, config)
