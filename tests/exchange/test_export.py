"""Logs in the formats of Kernel Tuner, IOHprofiler, Optuna and as Parquet."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import optuna
import pandas as pd
import pytest
from typer.testing import CliRunner

from searchlab.cli.app import app
from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.exchange.exports import export_logs
from searchlab.log.format import Header
from searchlab.log.read import read_log
from tests.support.exchange import DATA, write_log
from tests.support.logs import write_table

MS = 1e3


def table(path: Path) -> Path:
    return write_table(path, toys.Small(), toys.simulate_flaky)


# --- Kernel Tuner -------------------------------------------------------------------------------------


def test_t4_results_conform_to_the_schema(tmp_path: Path) -> None:
    log = read_log(table(tmp_path / "a.jsonl"))
    export_logs([log.path], "kernel-tuner", tmp_path / "t4.json")
    content = json.loads((tmp_path / "t4.json").read_text())
    assert content["metadata"]["timeunit"] == "milliseconds"  # autotuning_methodology takes seconds where it is missing
    assert content["schema_version"] == "1.0.0" and len(content["results"]) == len(log.records)
    words = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
    for result, record in zip(content["results"], log.records, strict=True):
        assert {"configuration", "times", "invalidity", "correctness"} <= set(result)
        assert isinstance(result["timestamp"], str) and result["invalidity"] in words
        assert result["configuration"] == json.loads(msgspec.json.encode(record.config))
        assert result["times"]["runtimes"] == [MS * second for second in record.seconds]
        assert all(
            isinstance(result["times"][name], float)
            for name in ("compilation_time", "framework", "search_algorithm", "validation")
        )
        times = [measurement["value"] for measurement in result["measurements"]]
        assert times == ([] if record.failure else [MS * record.measurement.cost])
    invalidities = {
        record.failure: result["invalidity"] for record, result in zip(log.records, content["results"], strict=True)
    }
    assert invalidities == {
        None: "correct",
        "invalid": "constraints",
        "build_error": "compile",
        "run_timeout": "timeout",
        "wrong_answer": "correctness",
        "crash": "runtime",
    }


def test_a_cache_file_has_every_config_under_its_key(tmp_path: Path) -> None:
    log = read_log(table(tmp_path / "a.jsonl"))
    export_logs([log.path], "kernel-tuner-cache", tmp_path / "cache.json")
    content = json.loads((tmp_path / "cache.json").read_text())
    names = content["tune_params_keys"]
    assert names == ["tile", "unroll", "order", "pack"] and len(content["cache"]) == len(log.records) == 120
    assert content["tune_params"]["unroll"] == [0, 16, 64, 512] and "2x8" in content["tune_params"]["tile"]
    for (key, entry), record in zip(content["cache"].items(), log.records, strict=True):
        assert key == ",".join(str(entry[name]) for name in names)
        assert all(entry[name] in content["tune_params"][name] for name in names)
        failed = {"invalid": "InvalidConfig", "build_error": "CompilationFailedConfig"}
        expected = failed.get(record.failure, "RuntimeFailedConfig") if record.failure else MS * record.measurement.cost
        assert entry["time"] == expected


def test_kernel_tuner_replays_a_cache_file(tmp_path: Path) -> None:
    kernel_tuner = pytest.importorskip("kernel_tuner", reason="it is in the extra `peers`")
    log = read_log(table(tmp_path / "a.jsonl"))
    export_logs([log.path], "kernel-tuner-cache", tmp_path / "cache.json")
    params = json.loads((tmp_path / "cache.json").read_text())["tune_params"]
    results, _ = kernel_tuner.tune_kernel(
        log.header.workload,
        "",
        1,
        [],
        params,
        strategy="brute_force",
        lang="C",
        cache=str(tmp_path / "cache.json"),
        simulation_mode=True,
        quiet=True,
    )
    times = [result["time"] for result in results if isinstance(result["time"], float)]
    assert sorted(times) == sorted(MS * cost for cost in log.costs if math.isfinite(cost))


def test_a_cache_file_has_one_set_of_parameters(tmp_path: Path) -> None:
    log = write_table(tmp_path / "a.jsonl", toys.Dependent(), toys.simulate_smooth)
    with pytest.raises(SearchlabError, match="trials 2 and 0 have different knobs"):
        export_logs([log], "kernel-tuner-cache", tmp_path / "cache.json")
    export_logs([log], "kernel-tuner", tmp_path / "t4.json")


def test_a_file_of_kernel_tuner_contains_one_log_and_is_new(tmp_path: Path) -> None:
    logs = [table(tmp_path / "logs" / name) for name in ("a.jsonl", "b.jsonl")]
    with pytest.raises(SearchlabError, match="can contain only one run, but 2 logs were given"):
        export_logs(logs, "kernel-tuner", tmp_path / "t4.json")
    (tmp_path / "t4.json").write_text("mine")
    with pytest.raises(SearchlabError, match="already exists"):
        export_logs(logs[:1], "kernel-tuner", tmp_path / "t4.json")


# --- IOHprofiler --------------------------------------------------------------------------------------


def runs_of(meta: Path) -> list[tuple[dict[str, Any], list[list[float]]]]:
    """Return each run of a JSON file with its rows in the data file: evaluations, raw_y, elapsed."""
    runs = []
    for scenario in json.loads(meta.read_text())["scenarios"]:
        blocks = (meta.parent / scenario["path"]).read_text().split("evaluations raw_y elapsed\n")[1:]
        rows = [[[float(cell) for cell in line.split()] for line in block.splitlines()] for block in blocks]
        runs += list(zip(scenario["runs"], rows, strict=True))
    return runs


def test_ioh_has_a_run_for_every_log_and_a_row_for_every_trial(tmp_path: Path) -> None:
    logs = [write_log(tmp_path / "logs" / f"{seed}.jsonl", "knob-template", seed=seed) for seed in (0, 1)]
    write_log(tmp_path / "logs" / "other.jsonl", "knob-template", "gemm:32x32x32")
    write_log(tmp_path / "logs" / "empty.jsonl", "knob-template", trials=0)
    assert [note.rpartition("/")[2] for note in export_logs([tmp_path / "logs"], "ioh", tmp_path / "ioh")[1]] == [
        "empty.jsonl contains no trials and was omitted"
    ]
    metas = sorted((tmp_path / "ioh").rglob("*.json"))
    assert {json.loads(meta.read_text())["function_name"] for meta in metas} == {"gemm_64x64x64", "gemm_32x32x32"}
    (meta,) = [meta for meta in metas if "64x64x64" in meta.name]
    content = json.loads(meta.read_text())
    assert content["maximization"] is False and content["algorithm"]["name"] == "random in knob-template"
    for (run, rows), log in zip(runs_of(meta), logs, strict=True):
        assert run["instance"] == log.header.seed and run["evals"] == len(log.records)
        assert [row[0] for row in rows] == list(range(1, len(log.records) + 1))
        assert [row[1] for row in rows] == log.costs.tolist() and math.isinf(rows[1][1])
        assert [row[2] for row in rows] == pytest.approx(log.elapsed_seconds.tolist())
        assert run["best"]["y"] == log.costs.min() and rows[run["best"]["evals"] - 1][1] == log.costs.min()


def test_ioh_refuses_no_trial_and_shows_failed_runs(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", trials=0)
    with pytest.raises(SearchlabError, match="nothing to export: .* contains no trials and was omitted"):
        export_logs([log.path], "ioh", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    export_logs([write_table(tmp_path / "b.jsonl", toys.Small(), toys.simulate_invalid)], "ioh", tmp_path / "out")
    ((run, rows),) = runs_of(next((tmp_path / "out").rglob("*.json")))
    assert run["best"]["y"] > 1e300 and all(math.isinf(row[1]) for row in rows)
    with pytest.raises(SearchlabError, match="already exists"):
        export_logs([tmp_path / "b.jsonl"], "ioh", tmp_path / "out")


# --- Optuna -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["study.db", "study.log"])
def test_optuna_loads_and_continues_a_study_of_every_log(file: str, tmp_path: Path) -> None:
    logs = [write_log(tmp_path / "a.jsonl", "sketch"), read_log(table(tmp_path / "b.jsonl"))]
    path = tmp_path / "new" / file
    export_logs([log.path for log in logs], "optuna", path)
    journal = optuna.storages.journal.JournalFileBackend(str(path)) if file.endswith(".log") else None
    storage = optuna.storages.JournalStorage(journal) if journal else f"sqlite:///{path}"
    for log in logs:
        name = f"{log.header.workload} in {log.header.space_name}, {log.header.name}, seed 0"
        sampler = optuna.samplers.TPESampler(seed=0)
        study = optuna.load_study(study_name=name, storage=storage, sampler=sampler)
        assert study.direction.name == "MINIMIZE" and study.best_value == log.costs.min()
        assert msgspec.convert(study.user_attrs["searchlab"], Header) == log.header
        for trial, record in zip(study.trials, log.records, strict=True):
            value = (trial.state.name, trial.value)
            assert value == (("FAIL", None) if record.failure else ("COMPLETE", record.measurement.cost))
            decoded = {k: json.loads(v) if str(v).startswith("[") else v for k, v in trial.params.items()}
            assert decoded == json.loads(msgspec.json.encode(record.config))
            assert trial.user_attrs.get("failure") == record.failure
            assert trial.user_attrs.get("seconds", []) == list(record.seconds)
            assert trial.datetime_complete is not None and trial.datetime_start is not None
            assert trial.datetime_complete.timestamp() == pytest.approx(record.recorded_at, abs=1e-3)
            seconds = (trial.datetime_complete - trial.datetime_start).total_seconds()
            charged = record.propose_seconds + record.train_seconds + record.build_seconds + record.run_seconds
            assert seconds == pytest.approx(charged, abs=1e-5)
        first = study.trials[0].distributions
        assert set(study.ask(first).params) == set(first)


def test_an_optuna_study_is_not_added_to(tmp_path: Path) -> None:
    log = table(tmp_path / "a.jsonl")
    export_logs([log], "optuna", tmp_path / "study.db")
    with pytest.raises(SearchlabError, match=r"already contains a study 'gemm:.*, seed 0'"):
        export_logs([log], "optuna", tmp_path / "study.db")
    for name in ("text.db", "text.log"):
        (tmp_path / name).write_text("not a database, but long enough to be looked at\n" * 100)
        with pytest.raises(SearchlabError, match=rf"{name} is not an Optuna storage"):
            export_logs([log], "optuna", tmp_path / name)


# --- Parquet ------------------------------------------------------------------------------------------


def test_parquet_is_the_frame_of_all_runs(tmp_path: Path) -> None:
    logs = [write_log(tmp_path / "a.jsonl", "sketch"), read_log(table(tmp_path / "b.jsonl"))]
    export_logs([log.path for log in logs], "parquet", tmp_path / "a.parquet")
    frame = pd.read_parquet(tmp_path / "a.parquet")
    assert frame["cost"].tolist() == [cost for log in logs for cost in log.costs.tolist()]
    assert frame["space"].tolist() == [log.header.space_name for log in logs for _ in log.records]
    expected = [json.loads(msgspec.json.encode(record.config)) for log in logs for record in log.records]
    for name in {name for config in expected for name in config}:
        values = frame[f"config.{name}"].tolist()
        for value, config in zip(values, expected, strict=True):
            if name in config:
                decoded = json.loads(value) if str(value).startswith("[") and isinstance(value, str) else value
                assert (decoded.tolist() if isinstance(decoded, np.ndarray) else decoded) == config[name]
    with pytest.raises(SearchlabError, match=r"a\.parquet"):
        read_log(tmp_path / "a.parquet")


# --- all of them --------------------------------------------------------------------------------------


def test_imported_logs_are_exported(tmp_path: Path) -> None:
    from searchlab.exchange.imports import ImportOptions, import_file

    import_file(DATA / "ansor_gemm512.json", tmp_path / "a.jsonl", ImportOptions())
    export_logs([tmp_path / "a.jsonl"], "kernel-tuner", tmp_path / "t4.json")
    for format, out in (("ioh", "ioh"), ("optuna", "study.db"), ("parquet", "a.parquet")):
        export_logs([tmp_path / "a.jsonl"], format, tmp_path / out)
    with pytest.raises(SearchlabError, match="imported for analysis only; configs from ansor"):
        export_logs([tmp_path / "a.jsonl"], "metaschedule", tmp_path / "db")
    assert not (tmp_path / "db").exists()


@pytest.mark.parametrize("format", ["kernel-tuner", "kernel-tuner-cache", "optuna"])
def test_a_time_that_is_no_date_is_refused(format: str, tmp_path: Path) -> None:
    lines = table(tmp_path / "a.jsonl").read_text().splitlines()
    damaged = re.sub(r'"time":[0-9.]+', '"time":1e300', lines[3])
    (tmp_path / "b.jsonl").write_text("\n".join([*lines[:3], damaged, ""]))
    with pytest.raises(SearchlabError, match="damaged"):
        export_logs([tmp_path / "b.jsonl"], format, tmp_path / "out")


def test_import_and_export_work_on_the_command_line(tmp_path: Path) -> None:
    runner = CliRunner()

    def run(*words: object) -> str:
        result = runner.invoke(app, list(map(str, words)), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    log = tmp_path / "a.jsonl"
    output = run("import", DATA / "autotvm_matmul512.log", "--out", log, "--label", "GA", "--seed", 3)
    assert "5 trials of gemm:512x512x512, for analysis only" in output
    assert (read_log(log).header.name, read_log(log).header.seed) == ("GA", 3)
    output = run("import", DATA / "metaschedule_gemm512", "--space", "sketch", "--out", tmp_path / "b.jsonl")
    assert (
        "7 trials of gemm:512x512x512, in sketch" in output and "not in the space: 1" in output and "line 8" in output
    )
    output = run("import", DATA / "ansor_gemm512.json", "--out", tmp_path / "c.jsonl")
    assert "not carried over: hardware parameters" in output
    output = run("export", log, "--to", "kernel-tuner", "--out", tmp_path / "t4.json")
    assert "exported 1 log to" in output and "not carried over: failure messages" in output
    assert "exported 1 log to" in run("export", tmp_path / "b.jsonl", "--to", "metaschedule", "--out", tmp_path / "db")
    write_log(tmp_path / "own.jsonl", trials=3)
    run("export", tmp_path / "own.jsonl", "--to", "metaschedule", "--out", tmp_path / "own")
    assert "not carried over" not in run("import", tmp_path / "own", "--out", tmp_path / "d.jsonl")  # it is all there
    with pytest.raises(SearchlabError, match="--option sets an option of a space"):
        run("import", DATA / "autotvm_matmul512.log", "--out", log, "--option", "a=1")
    with pytest.raises(SearchlabError, match="no logs"):
        run("export", tmp_path / "db", "--to", "kernel-tuner", "--out", tmp_path / "t4.json")
