"""Logs in the formats of Kernel Tuner."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from searchlab.cli.app import app
from searchlab.errors import SearchlabError
from searchlab.exchange.exports import export_logs
from searchlab.log.format import read_log
from tests.support import toys
from tests.support.exchange import DATA, made_log
from tests.support.logs import write_table

MS = 1e3


def table(path: Path) -> Path:
    return write_table(path, toys.Small(), toys.flaky)


# --- Kernel Tuner -------------------------------------------------------------------------------------


def test_t4_results_conform_to_the_schema(tmp_path: Path) -> None:
    log = read_log(table(tmp_path / "a.jsonl"))
    export_logs([log.path], "kernel-tuner", tmp_path / "t4.json")
    whole = json.loads((tmp_path / "t4.json").read_text())
    assert whole["metadata"]["timeunit"] == "milliseconds"  # autotuning_methodology takes seconds where it is missing
    assert whole["schema_version"] == "1.0.0" and len(whole["results"]) == len(log.records)
    words = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
    for result, record in zip(whole["results"], log.records, strict=True):
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
    met = {record.failure: result["invalidity"] for record, result in zip(log.records, whole["results"], strict=True)}
    assert met == {
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
    whole = json.loads((tmp_path / "cache.json").read_text())
    names = whole["tune_params_keys"]
    assert names == ["tile", "unroll", "order", "pack"] and len(whole["cache"]) == len(log.records) == 120
    assert whole["tune_params"]["unroll"] == [0, 16, 64, 512] and "2x8" in whole["tune_params"]["tile"]
    for (key, entry), record in zip(whole["cache"].items(), log.records, strict=True):
        assert key == ",".join(str(entry[name]) for name in names)
        assert all(entry[name] in whole["tune_params"][name] for name in names)
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
    log = write_table(tmp_path / "a.jsonl", toys.Dependent(), toys.smooth)
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


# --- all of them --------------------------------------------------------------------------------------


def test_imported_logs_are_exported(tmp_path: Path) -> None:
    from searchlab.exchange.imports import As, import_file

    import_file(DATA / "ansor_gemm512.json", tmp_path / "a.jsonl", As())
    export_logs([tmp_path / "a.jsonl"], "kernel-tuner", tmp_path / "t4.json")
    with pytest.raises(SearchlabError, match="imported for analysis only; configs from ansor"):
        export_logs([tmp_path / "a.jsonl"], "metaschedule", tmp_path / "db")
    assert not (tmp_path / "db").exists()


@pytest.mark.parametrize("format", ["kernel-tuner", "kernel-tuner-cache"])
def test_a_time_that_is_no_date_is_refused(format: str, tmp_path: Path) -> None:
    lines = table(tmp_path / "a.jsonl").read_text().splitlines()
    damaged = re.sub(r'"time":[0-9.]+', '"time":1e300', lines[3])
    (tmp_path / "b.jsonl").write_text("\n".join([*lines[:3], damaged, ""]))
    with pytest.raises(SearchlabError, match="damaged"):
        export_logs([tmp_path / "b.jsonl"], format, tmp_path / "out")


def test_the_commands(tmp_path: Path) -> None:
    runner = CliRunner()

    def run(*words: object) -> str:
        done = runner.invoke(app, list(map(str, words)), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    log = tmp_path / "a.jsonl"
    output = run("import", DATA / "autotvm_matmul512.log", "--out", log, "--label", "GA", "--seed", 3)
    assert "5 trials of gemm:512x512x512, for analysis only" in output
    assert (read_log(log).header.name, read_log(log).header.seed) == ("GA", 3)
    output = run("import", DATA / "metaschedule_gemm512", "--space", "sketch", "--out", tmp_path / "b.jsonl")
    assert (
        "7 trials of gemm:512x512x512, in sketch" in output and "not in the space: 1" in output and "line 8" in output
    )
    output = run("import", DATA / "ansor_gemm512.json", "--out", tmp_path / "c.jsonl")
    assert "not carried over: the schedule, since each step" in output
    output = run("export", log, "--to", "kernel-tuner", "--out", tmp_path / "t4.json")
    assert "exported 1 log to" in output and "not carried over: failure messages" in output
    assert "exported 1 log to" in run("export", tmp_path / "b.jsonl", "--to", "metaschedule", "--out", tmp_path / "db")
    made_log(tmp_path / "own.jsonl", trials=3)
    run("export", tmp_path / "own.jsonl", "--to", "metaschedule", "--out", tmp_path / "own")
    assert "not carried over" not in run("import", tmp_path / "own", "--out", tmp_path / "d.jsonl")  # it is all there
    with pytest.raises(SearchlabError, match="--option sets an option of a space"):
        run("import", DATA / "autotvm_matmul512.log", "--out", log, "--option", "a=1")
    with pytest.raises(SearchlabError, match="no logs"):
        run("export", tmp_path / "db", "--to", "kernel-tuner", "--out", tmp_path / "t4.json")
