"""Applied programs run with as many threads as their trials; in fresh processes, since TVM starts its pool once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from searchlab.machine.host import available_cores
from tests.support.apply.logs import invoke, write_log

CORES = available_cores()
WORKLOAD = "gemm:192x192x192"
PARALLEL = {"tile_i": [16, 3, 4], "tile_j": [6, 1, 32], "tile_k": [48, 4], "pack_b": 0}

RUN = """
import sys
import numpy as np, tvm
from tvm_ffi import get_global_func
how, log = sys.argv[1:]
if how == "library":
    function = tvm.runtime.load_module(log)
elif how == "script":
    names = {}
    exec(open(log).read().replace("print(", "str("), names)
    function = tvm.compile(names["module"], target=names["target"]).jit()
elif how == "apply_best":
    import searchlab
    schedule, module = searchlab.apply_best(log)
    function = tvm.compile(module, target=searchlab.load_log(log).space.target.tvm).jit()
else:
    import searchlab
    from searchlab.apply import build_best
    function = build_best(searchlab.load_log(log).best).jit()
tensors = [tvm.runtime.tensor(np.ones((192, 192), "float32")) for _ in range(3)]
function["main"](*tensors)
print(get_global_func("runtime.NumThreads")())
"""
"""Prints the threads of TVM's pool."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("threads")
    target = {"kind": "native", "num-cores": CORES}
    return write_log(folder / "a.jsonl", [PARALLEL], "knob-template", WORKLOAD, target)


def threads(how: str, path: Path, **env: str) -> int:
    clean = {name: value for name, value in os.environ.items() if name not in ("TVM_NUM_THREADS", "OMP_NUM_THREADS")}
    result = subprocess.run(
        [sys.executable, "-c", RUN, how, str(path)], env=clean | env, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


@pytest.mark.skipif(CORES < 2, reason="one core has no second thread")
def test_a_program_runs_with_the_threads_of_its_trials(log: Path, tmp_path: Path) -> None:
    code, script = invoke("best", log, "--show", "python", "--json")
    assert code == 0
    (tmp_path / "best.py").write_text(json.loads(script)["python"])
    code, output = invoke("export", log, "--out", tmp_path / "best.so")
    name, _, cores = re.search(r"(TVM_NUM_THREADS)(=)(\d+)", output).groups()  # type: ignore[union-attr]
    assert int(cores) == CORES
    ways: dict[str, tuple[str, Path, dict[str, str]]] = {
        "build_best": ("build_best", log, {}),
        "apply_best": ("apply_best", log, {}),
        "script": ("script", tmp_path / "best.py", {}),
        "library": ("library", tmp_path / "best.so", {name: cores}),
    }
    assert {way: threads(how, path, **env) for way, (how, path, env) in ways.items()} == dict.fromkeys(ways, CORES)


@pytest.mark.skipif(CORES < 2, reason="one core has no second thread")
def test_a_pool_that_is_too_small_is_warned_of(log: Path) -> None:
    script = """
import os, sys, warnings
os.environ["TVM_NUM_THREADS"] = "1"
from tvm_ffi import get_global_func
import tvm
get_global_func("runtime.NumThreads")()
if sys.argv[2] == "unset":
    del os.environ["TVM_NUM_THREADS"]
import searchlab
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    searchlab.apply_best(sys.argv[1])
print(*[str(one.message) for one in caught if "TVM_NUM_THREADS" in str(one.message)], sep="\\n")
"""
    for setting, message in (("unset", f"set TVM_NUM_THREADS={CORES} before"), ("as it is", "")):
        result = subprocess.run(
            [sys.executable, "-c", script, str(log), setting],
            capture_output=True,
            text=True,
            check=False,
            env={name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"},
        )
        assert result.returncode == 0, result.stderr
        assert message in result.stdout and bool(message) == bool(result.stdout.strip())


@pytest.mark.skipif(CORES < 2, reason="one core is not bound to a part of itself")
def test_the_thread_that_starts_the_pool_keeps_its_cores() -> None:
    """TVM binds it to as many cores as the pool has threads, and child processes inherit that."""
    script = (
        "import os, tvm; from searchlab.machine.host import start_tvm_threads; "
        "cores = os.sched_getaffinity(0); assert start_tvm_threads() == 1; assert os.sched_getaffinity(0) == cores"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"TVM_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
