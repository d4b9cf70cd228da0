"""A program that is applied runs with as many threads as its trials had, in fresh processes: TVM's pool starts once."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from searchlab.machine.host import available_cores
from tests.support.apply.logs import command, made_log

CORES = available_cores()
WORKLOAD = "gemm:192x192x192"
PARALLEL = {"tile_i": [16, 3, 4], "tile_j": [6, 1, 32], "tile_k": [48, 4], "pack_b": 0}

TIMED = """
import sys
import numpy as np, tvm
from tvm_ffi import get_global_func
how, log = sys.argv[1:]
if how == "library":
    function = tvm.runtime.load_module(log)
elif how == "script":
    names = {}
    exec(open(log).read().replace("print(", "str("), names)
    function = tvm.compile(names["sch"].mod, target=names["target"]).jit()
elif how == "apply_best":
    import searchlab
    schedule, module = searchlab.apply_best(log)
    function = tvm.compile(module, target=searchlab.load_log(log).space.target.tvm).jit()
else:
    import searchlab
    from searchlab.apply import build_best
    function = build_best(searchlab.load_log(log).best).jit()
tensors = [tvm.runtime.tensor(np.ones((192, 192), "float32")) for _ in range(3)]
timer = function.time_evaluator("main", tvm.cpu(), repeat=40, min_repeat_ms=2)
print(get_global_func("runtime.NumThreads")(), min(timer(*tensors).results))
"""
"""Prints the threads of TVM's pool, and the seconds of the fastest reading, which other work slows least."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("threads")
    target = {"kind": "native", "num-cores": CORES}
    return made_log(folder / "a.jsonl", [PARALLEL], "knob-template", WORKLOAD, target)


def timed(how: str, what: Path, **env: str) -> tuple[int, float]:
    clean = {name: value for name, value in os.environ.items() if name not in ("TVM_NUM_THREADS", "OMP_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", TIMED, how, str(what)], env=clean | env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    threads, seconds = done.stdout.split()
    return int(threads), float(seconds)


@pytest.mark.skipif(CORES < 2, reason="one core has no second thread")
def test_a_program_runs_as_fast_as_with_the_threads_of_its_trials(log: Path, tmp_path: Path) -> None:
    code, script = command("best", log, "--show", "python", "--json")
    assert code == 0
    (tmp_path / "best.py").write_text(json.loads(script)["python"])
    code, said = command("export", log, "--out", tmp_path / "best.so")
    name, _, cores = re.search(r"(TVM_NUM_THREADS)(=)(\d+)", said).groups()  # type: ignore[union-attr]
    assert int(cores) == CORES
    ways: dict[str, tuple[str, Path, dict[str, str]]] = {
        "set": ("build_best", log, {"TVM_NUM_THREADS": str(CORES)}),
        "build_best": ("build_best", log, {}),
        "apply_best": ("apply_best", log, {}),
        "script": ("script", tmp_path / "best.py", {}),
        "library": ("library", tmp_path / "best.so", {name: cores}),
    }
    fastest = dict.fromkeys(ways, math.inf)
    slow = set(ways)
    for _ in range(8):  # until each way had a moment without a neighbour
        for way in slow:
            how, what, env = ways[way]
            threads, seconds = timed(how, what, **env)
            assert threads == CORES, way
            fastest[way] = min(fastest[way], seconds)
        slow = {way for way, seconds in fastest.items() if fastest["set"] / seconds <= 0.8}
        if not slow:
            return
    pytest.fail(f"slower than with {CORES} threads: {fastest}")


@pytest.mark.skipif(CORES < 2, reason="one core has no second thread")
def test_a_pool_that_is_too_small_is_warned_of(log: Path) -> None:
    late = """
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
print(*[str(one.message) for one in caught], sep="\\n")
"""
    for what, said in (("unset", f"set TVM_NUM_THREADS={CORES} before"), ("as it is", "")):
        done = subprocess.run(
            [sys.executable, "-c", late, str(log), what], capture_output=True, text=True, check=False,
            env={name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert said in done.stdout and bool(said) == ("threads" in done.stdout)
