"""The store from the command line, and its programs applied to a module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tvm import relax

from searchlab import Store, apply_history_best
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.format import read_log
from searchlab.log.writer import LogWriter
from searchlab.machine.host import cpu_model
from tests.support.apply.logs import command
from tests.support.apply.models import HERE, legal, log_of, operands, run, scheduled
from tests.support.stores import logged

GEMM = "gemm:8x12x20"


def on(path: Path, cpu: str, **header: Any) -> Path:
    """Return the log at ``path`` as if it had been measured on another machine."""
    log = read_log(path)
    path.unlink()
    with LogWriter(path, msgspec.structs.replace(log.header, host={"cpu": cpu}, **header), durable=False) as writer:
        for record in log.records:
            writer.append(record)
    return path


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GEMM on this CPU, a faster one on another CPU, and another workload on that CPU."""
    folder = tmp_path_factory.mktemp("logs")
    on(log_of(folder / "here.jsonl", GEMM, "guided-gemm"), cpu_model())
    on(log_of(folder / "there.jsonl", GEMM, "guided-gemm", seconds=1e-4, seed=1), "far away")
    on(log_of(folder / "large.jsonl", "gemm:80x12x20", "guided-gemm"), "far away")
    return folder


@pytest.fixture
def store(logs: Path, tmp_path: Path) -> Store:
    made = Store(tmp_path / "store.db")
    made.add(logs)
    return made


def product(_: Any, a: Any, b: Any) -> Any:
    return relax.op.matmul(a, b)


def test_a_module_gets_the_best_programs_for_this_place(store: Store, tmp_path: Path) -> None:
    module = legal(product, (8, 20), (20, 12))
    made = apply_history_best(module, store, HERE)
    assert scheduled(made) == {"matmul"}
    arrays = operands(module)
    np.testing.assert_array_equal(run(made, *arrays), run(module, *arrays))
    said = (
        r"no working program that computes gemm:8x12x20 for llvm num-cores=3 on .*; "
        r"for this workload, it contains only .*: 1 for llvm num-cores=2 on "
    )
    with pytest.warns(SearchlabWarning, match=said):
        assert not scheduled(apply_history_best(module, store, {**HERE, "num-cores": 3}))
    there = store.results(GEMM, machine="far")
    assert scheduled(apply_history_best(module, there)) == {"matmul"}

    large = legal(product, (9, 20), (20, 12))
    with pytest.warns(SearchlabWarning, match="no function in the module computes any of the 2 workloads in the store"):
        assert not scheduled(apply_history_best(large, store, HERE))
    with pytest.raises(SearchlabError, match="does not exist; `searchlab store add`"):
        apply_history_best(module, Store(tmp_path / "absent.db"), HERE)


def test_a_program_that_cannot_be_made_again_gives_way_to_the_next(store: Store, tmp_path: Path) -> None:
    old = log_of(tmp_path / "old.jsonl", GEMM, "guided-gemm", seconds=1e-5)
    store.add(on(old, cpu_model(), fingerprint="of another version"))
    module = legal(product, (8, 20), (20, 12))
    with pytest.warns(
        SearchlabWarning, match="cannot be rebuilt, so the next one is used: .*a different version of the"
    ):
        assert scheduled(apply_history_best(module, store, HERE)) == {"matmul"}


def test_the_commands(store: Store, logs: Path, tmp_path: Path) -> None:
    at = ("--store", store.path)
    logged(tmp_path / "new" / "a.jsonl", [1e-3, 2e-3], workload="gemm:7x7x7")
    logged(tmp_path / "new" / "table.jsonl", [1e-3], measure={"kind": "table"})
    code, said = command("store", "add", tmp_path / "new", *at)
    assert code == 0 and "skipped: " in said and "added 1 runs and 2 trials to" in said
    code, said = command("store", "add", tmp_path / "new", "--json", *at)
    assert [json.loads(said)[name] for name in ("runs", "trials", "known")] == [0, 0, 1]

    code, said = command("store", "find", *at)
    assert code == 0 and "on far away" in said and "gemm:80x12x20" in said
    code, said = command(
        "store", "find", "--workload", GEMM, "--machine", "far", "--space", "guided-gemm", "--json", *at
    )
    (held,) = json.loads(said)
    assert (held["workload"], held["machine"], held["target"]) == (GEMM, "far away", HERE)
    assert held["seconds"] == 1e-4 and held["gflops"] == pytest.approx(2 * 8 * 12 * 20 / 1e-4 / 1e9)
    assert command("store", "find", "--machine", "nobody", *at)[1].startswith(
        f"the store {store.path} contains no such measurements"
    )

    target = ("--target", json.dumps(HERE))
    code, said = command("store", "best", GEMM, *target, *at)
    assert code == 0 and "trial 0 of" in said and "here.jsonl" in said
    copy = tmp_path / "best.jsonl"
    code, said = command("store", "best", GEMM, "--json", "--show", "tir", "--log", copy, *target, *at)
    assert "T.prim_func" in json.loads(said)["tir"] and json.loads(said)["seconds"] == 1e-3
    assert copy.read_bytes() == (logs / "here.jsonl").read_bytes()
    code, said = command("store", "best", "gemm:80x12x20", *target, *at)
    assert code == 2 and "1 for llvm num-cores=2 on far away" in said
