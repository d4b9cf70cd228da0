"""Makes the golden data beside it: real runs with every kind of line and field.

    python -m tests.golden.make_golden

It was run once, when the log format became 1.0. Do not run it to make a test pass: then nothing would show that old
logs can still be read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import searchlab
from searchlab.exchange.imports import ImportOptions, import_file
from searchlab.log.read import read_log
from searchlab.run.study import Study
from searchlab.tables.build import build_tables, make_table_runs, plan_tables
from tests.golden.seen import seen
from tests.support.exchange import DATA as FOREIGN
from tests.support.measure.faulty import Faulty

DATA = Path(__file__).parent / "data"
TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
GUIDED = {"name": "guided-gemm", "options": {"pack_a": "knob", "pack_b": "knob"}}


def make_changed() -> None:
    """Make a log in format 1.2 whose code changed after five trials; it is younger than the other files."""
    options: dict[str, Any] = {"space": GUIDED, "policy": "random", "target": TARGET, "seed": 4, "progress": False}
    log, table = DATA / "changed.jsonl", {"kind": "table", "path": "table.jsonl.gz"}
    searchlab.tune("gemm:64x64x64", log=log, trials=5, measure=table, **options)
    header, trials = log.read_text().split("\n", 1)
    log.write_text(re.sub(r'"policy":"[0-9a-f]{16}"', '"policy":"0123456789abcdef"', header) + "\n" + trials)
    searchlab.tune("gemm:64x64x64", log=log, trials=8, measure=table, **options)


def main() -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir()
    os.chdir(DATA)  # so that logs name the table without this machine's folders
    measured = {
        "kind": "local",
        "repeat": 3,
        "min_repeat_ms": 2,
        "prune_factor": 2.5,
        "build_timeout": 4,
        "run_timeout": 1,
        "workers": 1,
        "sentinel": 2,
        "finalists": 3,
    }
    space = Faulty(searchlab.gemm(64, 64, 64), searchlab.resolve_target(TARGET))
    searchlab.tune(
        space.workload,
        space=space,
        policy="grid",
        log=DATA / "measured.jsonl",
        trials=20,
        batch=5,
        measure=measured,
        progress=False,
    )
    entry = {"workloads": ["gemm:64x64x64"], "spaces": [GUIDED], "policies": ["random"], "target": TARGET}
    study = Study.from_dict({**entry, "measure": {"kind": "local", "repeat": 3, "min_repeat_ms": 1}})
    build_tables(make_table_runs(plan_tables(study)[0], DATA / "table.jsonl.gz", DATA, 2), 2, lambda *_: None)
    shutil.rmtree(DATA / "table.building", ignore_errors=True)
    table = {"kind": "table", "path": "table.jsonl.gz"}
    for name, trials, more in (
        ("model", 32, {"policy": {"name": "xgb", "options": {"n_startup": 8, "chains": 8, "steps": 8}}}),
        ("all", 10_000, {"policy": "random", "batch": 100}),
    ):
        searchlab.tune(
            "gemm:64x64x64",
            space=GUIDED,
            log=DATA / f"{name}.jsonl",
            trials=trials,
            measure=table,
            target=TARGET,
            seed=3,
            progress=False,
            **more,  # type: ignore[arg-type]
        )
    searchlab.tune(
        "gemm:64x64x64",
        space=GUIDED,
        policy="evolutionary",
        log=DATA / "warm.jsonl",
        trials=200,
        measure=table,
        target=TARGET,
        stop_after=24,
        warm_start=[DATA / "model.jsonl"],
        progress=False,
    )
    make_changed()
    import_file(FOREIGN / "autotvm_matmul512.log", DATA / "imported.jsonl", ImportOptions())
    logs = sorted(DATA.glob("*.jsonl*"))
    (DATA / "seen.json").write_text(json.dumps({path.name: seen(read_log(path)) for path in logs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
