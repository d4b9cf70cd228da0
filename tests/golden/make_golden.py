"""Makes the golden data beside it, by the searchlab that is installed: real runs, real logs, and what is said of them.

    cd tests/golden && python make_golden.py [manifest]

With ``manifest`` it makes anew only what is said of the data.
It was run once, with searchlab 0.1.0, before anything was moved or renamed. It is kept to say how the data came about.
Do not run it to make a test pass: then nothing holds any more that old files can be read.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
from today import DATA, PLUGINS, checked, command, observed, planned, run

import searchlab
from searchlab.costmodel import Surrogate, load, make_cost_model, save
from searchlab.costmodel.features import make_features
from searchlab.plugins import Plugin

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
"""One that any x86 CPU of the last ten years can run, with the caches of no machine in particular."""

QUICK = {"kind": "local", "repeat": 3, "min_repeat_ms": 2, "stop_factor": 3.0}

GUIDED = {"name": "guided-gemm", "options": {"pack_a": "knob", "pack_b": "knob"}}
STRIPES = {"name": "trace", "options": {"function": "acme_golden:stripes"}}

ON_GUIDED: dict[str, Any] = {
    "workload": "gemm:64x64x64", "space": GUIDED, "trials": 40, "cut": 27, "batch": 8, "seed": 3,
    "measure": {"kind": "table", "path": "tables/guided.jsonl"},
}  # fmt: skip
ON_STRIPES: dict[str, Any] = {
    "workload": "gemm:32x32x32", "space": STRIPES, "trials": 24, "cut": 16, "batch": 8, "seed": 5,
    "measure": {"kind": "table", "path": "tables/stripes.jsonl"},
}  # fmt: skip
ON_SKETCH: dict[str, Any] = {
    "workload": "gemm:64x64x64", "space": {"name": "sketch"}, "trials": 24, "cut": 16, "batch": 8, "seed": 7,
    "measure": {"kind": "table", "path": "tables/sketch.jsonl", "missing": "nearest"},
}  # fmt: skip
LOCAL: dict[str, Any] = {"target": TARGET, "measure": QUICK}


def policy(name: str, **options: Any) -> dict[str, Any]:
    return {"policy": {"name": name, "options": options}}


ARMS = [
    {"name": "xgb", "options": {"initial": 6, "chains": 8, "steps": 10}, "cost_model": "ridge", "features": "knob"},
    {
        "name": "evolutionary-model",
        "options": {"initial": 6, "population": 32},
        "cost_model": {"name": "random-forest", "options": {"trees": 20}},
    },
    {"name": "tpe", "options": {"startup": 6}},
    "evolutionary",
]

REPLAYED: dict[str, dict[str, Any]] = {
    "random": ON_GUIDED | policy("random"),
    "grid": ON_GUIDED | policy("grid"),
    "evolutionary": ON_GUIDED | policy("evolutionary", population=8, elites=2),
    "xgb": ON_GUIDED | policy("xgb", initial=8, chains=16, steps=20, epsilon=0.1) | {"cost_model": {
        "name": "xgboost", "options": {"objective": "rank"}}},
    "evolutionary-model": ON_GUIDED | policy("evolutionary-model", initial=8, population=64, generations=2)
    | {"cost_model": "lightgbm"},
    "tpe": ON_GUIDED | policy("tpe", startup=8),
    "cmaes": ON_GUIDED | policy("cmaes", population=6),
    "bandit": ON_GUIDED | policy("bandit", arms=ARMS, window=50),
    "metaschedule": ON_STRIPES | policy("metaschedule", warmup=8, population=32, generations=2),
    "annealing": ON_GUIDED | policy("annealing", chains=3),
    "droplet": ON_GUIDED | policy("droplet", start="random"),
    "qmc": ON_GUIDED | policy("qmc"),
    "bandit-default": ON_GUIDED | policy("bandit"),
    # the same kinds of run, in other ways
    "noise": ON_GUIDED | policy("evolutionary") | {"measure": ON_GUIDED["measure"] | {"noise": True}},
    "nearest": ON_SKETCH | policy("evolutionary"),
    "gz": ON_GUIDED | policy("random") | {"measure": {"kind": "table", "path": "tables/guided.jsonl.gz"}, "seed": 11},
    "several-tables": ON_STRIPES | policy("tpe", startup=4) | {
        "measure": {"kind": "table", "path": ["tables/stripes.jsonl", "tables/guided.jsonl"]}},
    "program-features": ON_STRIPES | policy("xgb", initial=8, chains=4, steps=8) | {
        "cost_model": "xgboost", "features": "program"},
    "warm-start": ON_GUIDED | policy("xgb", initial=8, chains=16, steps=20) | {
        "warm_start": ["runs/random.jsonl", "runs/gz.jsonl"]},
    "warm-start-transfer": ON_STRIPES | policy("evolutionary-model", initial=8, population=16, generations=1) | {
        "cost_model": "ridge", "features": "program", "warm_start": ["runs/random.jsonl", "runs/metaschedule.jsonl"],
        "trials": 12, "cut": 8},
    "policy-by-module": ON_GUIDED | policy("searchlab_policies.random:Random"),
    "policy-class": ON_GUIDED | {"policy": {"class": "evolutionary"}},
    "policy-of-user": ON_GUIDED | policy("acme_golden:HillClimb", restart=0.3),
    "space-by-module": ON_GUIDED | policy("random") | {"space": GUIDED | {
        "name": "searchlab_spaces.guided_gemm:GuidedGemm"}},
    "space-instance": ON_GUIDED | policy("tpe", startup=8) | {"space": {"instance": GUIDED}, "target": TARGET},
    "space-instance-of-function": ON_STRIPES | policy("evolutionary") | {
        "space": {"instance": STRIPES}, "target": TARGET},
}  # fmt: skip
"""Runs on tables, which need no machine."""

MEASURED: dict[str, dict[str, Any]] = {
    "faults": LOCAL | policy("grid") | {
        "workload": "gemm:96x96x96", "space": {"instance": {"name": "acme_golden:Faults"}}, "trials": 18, "batch": 3,
        "seed": 0, "measure": {
            "kind": "local", "number": 2, "repeat": 3, "min_repeat_ms": 5, "stop_factor": 2.5, "build_timeout": 4.0,
            "run_timeout": 1.0, "memory_limit_mb": 2048, "workers": 1, "sentinel": 2, "finalists": 3}},
    "template": LOCAL | policy("xgb", initial=6, chains=8, steps=8) | {
        "workload": "gemm:32x32x32", "space": {"name": "knob-template", "options": {"template": "gemm_cpu"}},
        "trials": 16, "batch": 4, "seed": 1, "measure": QUICK | {"sentinel": 2, "finalists": 2}},
    "template-of-function": LOCAL | policy("random") | {
        "workload": "gemm:32x32x32", "space": {"name": "knob-template", "options": {"template": "acme_golden:rows"}},
        "trials": 8, "batch": 4, "seed": 2},
    "conv2d": LOCAL | policy("random") | {
        "workload": "conv2d:1x8x8x16x16x3x3:p1", "space": {"name": "guided-conv2d"}, "trials": 6, "batch": 3,
        "seed": 4, "measure": QUICK | {"check": False, "finalists": 0}},
    "module-names": LOCAL | {
        "workload": "gemm:48x48x48:bias:relu",
        "space": {"instance": {"name": "guided-gemm", "options": {"variant": "packed"}}},
        "policy": {"class": "evolutionary"}, "trials": 6, "batch": 3, "seed": 6},
    "native": policy("random") | {
        "workload": "gemm:32x32x32", "space": {"name": "guided-gemm"}, "trials": 4, "batch": 2, "seed": 8,
        "target": "native", "measure": {"kind": "local", "min_repeat_ms": 1}},
}  # fmt: skip
"""Runs that were measured on a machine."""


def main() -> None:
    if sys.argv[1:] != ["manifest"]:
        make_data()
    os.chdir(DATA)
    write(Path("manifest.json"), manifest())


def make_data() -> None:
    for name in ("tables", "runs", "local", "imported", "models", "damaged", "results", "hypertune"):
        shutil.rmtree(DATA / name, ignore_errors=True)
    os.chdir(DATA)  # what tables and earlier runs are found from, as in the tests
    os.environ["PYTHONPATH"] = PLUGINS  # for the processes that build and run
    make_tables()
    for name, spec in REPLAYED.items():
        print(name, flush=True)
        run(spec, Path("runs", f"{name}.jsonl"))
    for name, spec in MEASURED.items():
        print(name, flush=True)
        run(spec, Path("local", f"{name}.jsonl"))
        without_kernel(Path("local", f"{name}.jsonl"))
    go_on_after_a_final()
    runs = REPLAYED | {f"local/{name}": spec for name, spec in MEASURED.items()}
    write(Path("runs.json"), {name: spec for name, spec in runs.items()})
    make_imports()
    make_damaged()
    make_results()


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def without_kernel(path: Path) -> None:
    """Leave out of a header which kernel the machine ran, since the data shall name no machine; no run goes by that."""
    first, rest = path.read_bytes().split(b"\n", 1)
    header = json.loads(first)
    header["machine"]["system"] = "Linux"
    path.write_bytes(json.dumps(header, separators=(",", ":")).encode() + b"\n" + rest)


TABLES: dict[str, list[str]] = {
    "guided.jsonl": ["gemm:64x64x64", "--space", "guided-gemm", "--option", "pack_a=knob", "--option", "pack_b=knob"],
    "stripes.jsonl": ["gemm:32x32x32", "--space", "trace", "--option", "function=acme_golden:stripes"],
    "sketch.jsonl": ["gemm:64x64x64", "--space", "sketch", "--limit", "40"],
    "packed.jsonl.gz": ["gemm:16x16x16", "--space", "guided-gemm", "--option", "variant=basic"],
}


def make_tables() -> None:
    for name, words in TABLES.items():
        where = ["--out", f"tables/{name}", "--target", json.dumps(TARGET), "--measure", json.dumps(QUICK)]
        subprocess.run([sys.executable, "-m", "searchlab", "table", "build", *words, *where], check=True)
        log = Path("tables", name.removesuffix(".gz"))
        if name.endswith(".gz"):
            log.write_bytes(gzip.decompress(Path("tables", name).read_bytes()))
        without_kernel(log)
        if name.endswith(".gz"):
            Path("tables", name).write_bytes(gzip.compress(log.read_bytes(), mtime=0))
            log.unlink()
    Path("tables/guided.jsonl.gz").write_bytes(gzip.compress(Path("tables/guided.jsonl").read_bytes(), mtime=0))


def go_on_after_a_final() -> None:
    """A run that ended, and was then given a larger budget: a final in the middle of its log, and one at its end."""
    spec = MEASURED["template"] | {"trials": 8, "measure": QUICK | {"finalists": 2, "sentinel": 0}} | policy("random")
    run(spec, Path("local", "extended.jsonl"))
    MEASURED["extended"] = spec | {"trials": 12}
    run(MEASURED["extended"], Path("local", "extended.jsonl"))
    without_kernel(Path("local", "extended.jsonl"))


def make_imports() -> None:
    given = Path(__file__).parent.parent / "exchange" / "data"
    for name, words in IMPORTS.items():
        file, *options = words
        assert command("import", given / file, "--out", Path("imported", f"{name}.jsonl"), *options)[0] == 0, name


IMPORTS = {
    "autotvm": ["autotvm_matmul512.log"],
    "ansor": ["ansor_gemm512.json", "--label", "Ansor", "--seed", "2"],
    "metaschedule": ["metaschedule_gemm512"],
    "metaschedule-in-sketch": ["metaschedule_gemm512", "--space", "sketch"],
}


def make_models() -> dict[str, Any]:
    """Saved cost models, and what they predict of the first configs of the table they were trained on."""
    Path("models").mkdir(exist_ok=True)
    found = {}
    for name, model, features, table in (
        ("xgboost-knob", Plugin("xgboost"), "knob", "tables/guided.jsonl"),
        ("ridge-program", Plugin("ridge"), "program", "tables/stripes.jsonl"),
        ("forest-knob", Plugin("random-forest", {"trees": 20}), "knob", "tables/stripes.jsonl"),
    ):
        result = searchlab.load_log(table)
        surrogate = Surrogate(make_cost_model(model, 3), make_features(features, result.space))
        surrogate.fit(result.trials)
        save(surrogate, f"models/{name}.npz")
        configs = [trial.config for trial in result.trials[:16]]
        predicted = load(f"models/{name}.npz", result.space).predict(configs)
        assert (predicted == surrogate.predict(configs)).all()
        found[name] = {"table": table, "predicted": predicted.tolist()}
    return found


def make_damaged() -> None:
    Path("damaged").mkdir()
    lines = Path("runs/evolutionary.jsonl").read_bytes().splitlines(keepends=True)[:21]
    header = lines[0]
    damaged = {
        "torn": [*lines[:-1], lines[-1][:60]],
        "torn-header": [header[:100]],
        "empty": [],
        "middle": [*lines[:11], lines[11][:50] + b"\x00\xff" + lines[11][52:], *lines[12:]],
        "gap": [*lines[:11], *lines[12:]],
        "twice": [*lines[:12], *lines[11:]],
        "header-workload": [header.replace(b"gemm:64x64x64", b"gemm:64x64"), *lines[1:]],
        "header-json": [header[:-30] + b"\n", *lines[1:]],
        "headless": lines[1:],
        "future": [header.replace(b'"searchlab_log":1', b'"searchlab_log":2'), *lines[1:]],
    }
    for name, parts in damaged.items():
        Path("damaged", f"{name}.jsonl").write_bytes(b"".join(parts))
    faults = Path("local/faults.jsonl").read_bytes().splitlines(keepends=True)
    assert faults[-1].startswith(b'{"final":18')
    Path("damaged/final.jsonl").write_bytes(b"".join([*faults[:-1], faults[-1].replace(b'"final":18', b'"final":99')]))
    Path("damaged/torn-final.jsonl").write_bytes(b"".join([*faults[:-1], faults[-1][:40]]))
    whole = Path("tables/guided.jsonl.gz").read_bytes()
    Path("damaged/truncated.jsonl.gz").write_bytes(whole[: len(whole) // 2])


def repaired(path: Path) -> dict[str, Any]:
    """The files that a repair of a copy makes, each as the numbers of the lines of the damaged log that it holds."""
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(shutil.copy(path, scratch))
        code, _ = command("log", "repair", copy)
        return {"exit_code": code, "files": lines_of_files(path.read_bytes(), Path(scratch))}


def lines_of_files(original: bytes, directory: Path) -> dict[str, list[int]]:
    known = original.split(b"\n")
    return {
        file.name: [known.index(line) + 1 for line in file.read_bytes().split(b"\n") if line]
        for file in sorted(directory.iterdir())
    }


def make_results() -> None:
    """The directory of a small study, as users have it, and a search of a policy's options."""
    searchlab.Study.load("studies/on_table.toml").run("results/on_table")
    code, said = command("report", "results/on_table", "--json")
    assert code == 0
    shutil.rmtree("results/on_table/report")
    write(Path("results/summary.json"), json.loads(said))
    words = ["hypertune", "studies/on_table.toml", "--policy", "tpe", "--option", "startup=2..12", *HYPERTUNE]
    code, said = command(*words, "--out", "hypertune", "--json")
    assert code == 0
    write(Path("hypertune/hypertune.json"), json.loads(said))


HYPERTUNE = ["--trials", "3", "--seeds", "2", "--fresh-seeds", "2"]


def manifest() -> dict[str, Any]:
    logs = [path for folder in ("tables", "runs", "local", "imported", "results") for path in Path(folder).rglob("*")]
    return {
        "versions": msgspec.to_builtins(searchlab.load_log("runs/random.jsonl").log.header.versions),
        "logs": {
            str(path): observed(path) | {"check": checked(path)} for path in sorted(logs) if ".jsonl" in path.name
        },
        "damaged": {
            path.name: {"reads": reads(path), "check": checked(path), "repair": repaired(path)}
            for path in sorted(Path("damaged").iterdir())
        },
        "imports": IMPORTS,
        "tables": {name: {"words": words, "target": TARGET, "measure": QUICK} for name, words in TABLES.items()},
        "models": make_models(),
        "hypertune": HYPERTUNE,
        "studies": {path.name: planned(path) for path in sorted(Path("studies").glob("*.toml"))},
    }


def reads(path: Path) -> int | None:
    """How many trials the log has for who only reads it; None where it is refused."""
    try:
        return len(searchlab.load_log(path).trials)
    except searchlab.SearchlabError:
        return None


if __name__ == "__main__":
    main()
