"""With ``cache = "cold"``, arguments are removed from the caches before each execution."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tvm
from tvm.script import tirx as T
from typer.testing import CliRunner

from searchlab.cli.app import app
from searchlab.errors import SearchlabError
from searchlab.log.read import read_log
from searchlab.measure.building import check_can_flush
from searchlab.measure.code import compile_program, load_objects, to_objects
from searchlab.measure.local import LocalSettings
from searchlab.measure.runner import LoadedProgram, Runner
from searchlab.run.tune import tune
from searchlab.target import Target, resolve_target
from searchlab.workload import parse_workload

LINES = 2048
CHASE = parse_workload(f"gemm:1x16x{LINES}")  # each row of its second argument is a cache line


@T.prim_func(s_tir=True)
def chase(A: T.Buffer((1, LINES), "float32"), B: T.Buffer((LINES, 16), "float32"), C: T.Buffer((1, 16), "float32")):  # type: ignore[no-untyped-def,valid-type]
    """Read the rows of B in an irregular order, in which each address depends on the previous row."""
    row = T.alloc_buffer((1,), "int32")
    row[0] = 0
    for _ in range(LINES):
        row[0] = (row[0] * 5 + 1 + T.Cast("int32", B[row[0], 0] > T.float32(1e30))) % LINES
    C[0, 0] = T.Cast("float32", row[0])


def chase_seconds(**settings: object) -> tuple[float, ...]:
    """Return the readings of :func:`chase`."""
    runner = Runner(CHASE, LocalSettings(check=False, **settings).for_worker(), tvm.cpu())  # type: ignore[arg-type]
    program = tvm.IRModule({"main": chase.with_attr("global_symbol", "main")})
    module = load_objects(to_objects(compile_program(program, resolve_target("native"))))
    return runner.timer.time(LoadedProgram(module, list(runner.timing_inputs.values()), runner.outputs), 5)


def test_cold_arguments_come_from_memory() -> None:
    warm, cold = (chase_seconds(cache=cache, min_repeat_ms=1) for cache in ("warm", "cold"))
    assert len(cold) == 5
    assert min(cold) > 2 * min(warm)  # a row takes about 5 ns from the L2 cache, and 100 ns from memory


def test_each_execution_of_a_reading_is_cold() -> None:
    """TVM itself flushes once for all executions of a reading."""
    assert min(chase_seconds(cache="cold", number=50, min_repeat_ms=0)) > 2 * min(chase_seconds(min_repeat_ms=1))


def test_a_log_records_the_state_of_the_caches(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    cold = {"repeat": 2, "min_repeat_ms": 1, "cache": "cold", "finalists": 0, "sentinel": 0}
    words = ["tune", "gemm:16x16x16", "--space", "sketch", "--policy", "random", "--trials", "2", "--log", str(log)]
    result = CliRunner().invoke(app, [*words, "--measure", json.dumps(cold)])
    assert result.exit_code == 0, result.output
    assert read_log(log).header.measure["cache"] == "cold"
    assert any(len(record.seconds) == 2 for record in read_log(log).records)
    assert all(0 < record.check_seconds < record.run_seconds for record in read_log(log).records if record.seconds)
    with pytest.raises(SearchlabError, match="its measure is"):
        tune("gemm:16x16x16", space="sketch", policy="random", trials=3, log=log, measure={**cold, "cache": "warm"})


def test_caches_that_cannot_be_flushed_are_refused() -> None:
    target = Target({"kind": "llvm", "mtriple": "riscv64-unknown-linux-gnu", "num-cores": 1})
    with pytest.raises(SearchlabError, match="from the caches of riscv64, only of x86_64 and aarch64"):
        check_can_flush(target)
