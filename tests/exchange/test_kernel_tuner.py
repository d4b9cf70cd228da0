"""Cache files of Kernel Tuner and T4 results as tables, from real files and hostile ones."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from searchlab.analysis import report
from searchlab.errors import InvalidConfig, SearchlabError, SearchlabWarning
from searchlab.exchange.exports import export_logs
from searchlab.exchange.imports import ImportOptions, detect_format, import_file
from searchlab.log.format import Log
from searchlab.log.read import read_log
from searchlab.log.result import load_log
from searchlab.plugins import Plugin
from searchlab.run.study import Study
from searchlab.run.tune import tune
from tests.support.exchange import DATA, write_log

CACHE, T4 = DATA / "kernel_tuner" / "gemm_cache.json.gz", DATA / "kernel_tuner" / "gemm_t4.json.gz"
KERNEL = "kernel:gemm-96x96:1769472flop"


def import_table(path: Path, out: Path, **options: Any) -> tuple[Log, list[str]]:
    _, notes = import_file(path, out, ImportOptions(**options))
    return read_log(out), notes


def cache(**changes: Any) -> dict[str, Any]:
    """A small cache file: two configs that work, in milliseconds, and one that failed."""
    entries = {
        "16,a": {
            "x": 16,
            "y": "a",
            "time": 2.0,
            "times": [1.0, 3.0],
            "compile_time": 500.0,
            "benchmark_time": 4.0,
            "verification_time": 1.0,
            "framework_time": 7.0,
            "strategy_time": 8.0,
            "GFLOP/s": 3.0,
            "timestamp": "2023-12-22 09:54:05.502007+00:00",
        },
        "32,a": {"x": 32, "y": "a", "time": 1.0, "times": [1.0, 1.0], "compile_time": 250.0, "GFLOP/s": 6.0},
        "32,b": {"x": 32, "y": "b", "time": "CompilationFailedConfig", "compile_time": 125.0},
    }
    return {
        "device_name": "NVIDIA RTX A4000",
        "kernel_name": "convolution_kernel",
        "problem_size": [64, 32],
        "tune_params_keys": ["x", "y"],
        "tune_params": {"x": [16, 32], "y": ["a", "b"]},
        "objective": "time",
        "cache": entries,
        **changes,
    }


def write_json(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def t4_of(*results: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"schema_version": "1.0.0", "metadata": metadata, "results": list(results)}


def test_a_cache_file_is_a_table(tmp_path: Path) -> None:
    table, notes = import_table(write_json(tmp_path / "c.json", cache()), tmp_path / "t.jsonl")
    header, (first, second, failed) = table.header, table.records
    assert not notes
    assert header.workload == "kernel:convolution_kernel-64x32@NVIDIA_RTX_A4000:6000000flop"
    assert header.space.name == "parameters" and header.space_size == 3 and header.measure["statistic"] == "mean"
    assert header.host == {"device": "NVIDIA RTX A4000"} and header.created_at == first.recorded_at == 1703238845.502007
    assert first.config == {"x": 16, "y": "a"} and first.seconds == (1e-3, 3e-3) and first.measurement.cost == 2e-3
    assert (first.build_seconds, first.train_seconds, first.propose_seconds) == (0.5, 7e-3, 8e-3)
    assert first.run_seconds == pytest.approx(5e-3) and second.run_seconds == pytest.approx(2e-3)
    assert (failed.failure, failed.message, failed.build_seconds) == ("build_error", "CompilationFailedConfig", 0.125)
    assert table.unit == "GFLOPS" and table.flops == 6_000_000
    assert set(load_log(table.path).space.enumerate()) == {trial.config for trial in table.trials}


def test_a_rate_that_no_float_can_be_is_none(tmp_path: Path) -> None:
    content = cache()
    content["cache"]["16,a"]["GFLOP/s"] = 10**400
    table, _ = import_table(write_json(tmp_path / "c.json", content), tmp_path / "t.jsonl")
    assert table.unit == "runs/s" and len(table.records) == 3


def test_real_files_of_both_formats_hold_the_same(tmp_path: Path) -> None:
    assert (detect_format(CACHE), detect_format(T4)) == ("kernel-tuner-cache", "kernel-tuner")
    from_cache, notes = import_table(CACHE, tmp_path / "cache.jsonl.gz")
    from_t4, t4_notes = import_table(T4, tmp_path / "t4.jsonl", workload=KERNEL)
    assert not notes and not t4_notes and len(from_cache.records) == from_cache.header.space_size == 152
    assert from_cache.header.workload == KERNEL
    assert [record.config for record in from_cache.records] == [record.config for record in from_t4.records]
    assert from_cache.costs.tolist() == pytest.approx(from_t4.costs.tolist(), rel=1e-12)
    assert from_cache.elapsed_seconds.tolist() == pytest.approx(from_t4.elapsed_seconds.tolist(), rel=1e-12)


@pytest.mark.parametrize("policy", ["random", "evolutionary", "tpe", "cmaes", "qmc", "droplet", "autotvm-ga", "grid"])
def test_a_policy_searches_it_and_a_run_resumes(tmp_path: Path, policy: str) -> None:
    import_file(CACHE, tmp_path / "table.jsonl.gz", ImportOptions())
    options: dict[str, Any] = {
        "space": "parameters",
        "policy": policy,
        "log": tmp_path / "run.jsonl",
        "trials": 20,
        "batch": 4,
        "measure": {"kind": "table", "path": str(tmp_path / "table.jsonl.gz"), "statistic": "mean"},
    }
    result = tune(KERNEL, **options)
    configs = [trial.config for trial in result.trials]
    assert len(set(configs)) == len(configs) == 20 or result.log.run_end
    lines = (tmp_path / "run.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run.jsonl").write_text("".join(lines[:9]))
    assert [trial.config for trial in tune(KERNEL, **options).trials] == configs
    with pytest.raises(InvalidConfig, match="no program"):
        load_log(tmp_path / "run.jsonl").best.schedule()


def test_a_study_names_the_space_alone(tmp_path: Path) -> None:
    import_file(CACHE, tmp_path / "tables" / "one.jsonl.gz", ImportOptions())
    import_file(T4, tmp_path / "tables" / "other.jsonl", ImportOptions("kernel:gemm@other"))
    study = Study.from_dict(
        {
            "workloads": [KERNEL, "kernel:gemm@other"],
            "spaces": ["parameters"],
            "seeds": 2,
            "trials": 8,
            "policies": ["random", "grid", "metaschedule", {"name": "xgb", "features": "per-store"}],
            "measure": {"kind": "table", "path": "tables"},
        },
        tmp_path,
    )
    runs, left_out = study.plan()
    assert (
        len(runs) == 8
        and len(left_out) == 4
        and "features 'per-store' are extracted from programs" in " ".join(left_out)
    )
    study.run(tmp_path / "results")
    report(tmp_path / "results")
    options = read_log(next((tmp_path / "results").rglob("seed0.jsonl"))).header.space.options
    assert options["parameters"]["MB"] == [4, 8, 16, 32, 48, 96]
    page = (tmp_path / "results" / "report" / "report.html").read_text()
    assert "over seeds. Unit: runs/s." in page and "over seeds. Unit: GFLOPS." in page
    with pytest.raises(SearchlabError, match="has no configs for .*specify its parameters"):
        Study.from_dict(
            {"workloads": [KERNEL], "spaces": ["parameters"], "policies": ["random"], "target": "recorded"}
        ).plan()
    with pytest.raises(SearchlabError, match="no programs"):
        tune(
            KERNEL,
            space={"name": "parameters", "options": options},
            policy="random",
            log=tmp_path / "x.jsonl",
            target="recorded",
        )


def test_an_exported_log_is_imported_into_its_own_space(tmp_path: Path) -> None:
    log = write_log(tmp_path / "ours.jsonl", space="guided-gemm")
    export_logs([log.path], "kernel-tuner", tmp_path / "t4.json")
    table, _ = import_table(
        tmp_path / "t4.json",
        tmp_path / "again.jsonl",
        space=Plugin("guided-gemm"),
        target=json.dumps(log.header.target),
    )
    assert (table.header.workload, table.header.fingerprint) == (log.header.workload, log.header.fingerprint)
    assert [trial.config for trial in table.trials] == [trial.config for trial in log.trials]
    assert table.costs.tolist() == pytest.approx(log.costs.tolist(), rel=1e-12)
    listed, _ = import_table(tmp_path / "t4.json", tmp_path / "listed.jsonl")
    assert listed.header.space.name == "parameters" and listed.header.workload == log.header.workload


def test_the_first_of_two_measurements_counts(tmp_path: Path) -> None:
    result = {"configuration": {"x": 1}, "times": {"runtimes": [5.0]}, "invalidity": "correct", "correctness": 1}
    second = {**result, "times": {"runtimes": [7.0]}}
    wrong = {**result, "configuration": {"x": 2}, "correctness": 0}
    table, notes = import_table(write_json(tmp_path / "a.json", t4_of(result, second, wrong)), tmp_path / "a.jsonl")
    assert [record.seconds for record in table.records] == [(5e-3,), ()] and "already been measured" in notes[0]
    assert table.records[1].failure == "wrong_answer" and table.unit == "runs/s"


@pytest.mark.parametrize(("unit", "factor"), [("seconds", 1.0), ("miliseconds", 1e-3), ("ns", 1e-9)])
def test_a_t4_file_names_its_unit(tmp_path: Path, unit: str, factor: float) -> None:
    measured = [{"name": "time", "value": 3.0, "unit": "ms"}]
    result = {"configuration": {"x": 1}, "times": {"compilation": 2.0}, "invalidity": "correct", "correctness": 1}
    results = [result | {"measurements": measured}, {**result, "configuration": {"x": 2}, "invalidity": "timeout"}]
    table, _ = import_table(write_json(tmp_path / "a.json", t4_of(*results, timeunit=unit)), tmp_path / "a.jsonl")
    assert table.records[0].build_seconds == 2 * factor and table.records[0].seconds == pytest.approx((3e-3,))
    assert table.records[1].failure == "run_timeout"


@pytest.mark.parametrize("time", ["", "RuntimeFailedConfig", None, math.nan, math.inf, 1e20])
def test_an_invalid_time_is_a_failure(tmp_path: Path, time: Any) -> None:
    content = cache()
    content["cache"]["32,a"]["time"] = time
    table, _ = import_table(write_json(tmp_path / "c.json", content), tmp_path / "t.jsonl")
    assert table.records[1].failure == "run_error" and table.records[1].message


BAD: list[tuple[dict[str, Any], str]] = [
    ({"tune_params": {"x": [16, 32]}}, "parameter 'y' must have a list of values"),
    ({"tune_params": {"x": [16], "y": ["a", "b"]}}, "record 2 is damaged: its x is 32"),
    ({"tune_params": 3}, "is not a Kernel Tuner cache file: .*tune_params"),
    ({"tune_params_keys": []}, "no tuning parameter"),
    ({"cache": {}}, "contains no records"),
    ({"cache": {"1": 3}}, "record 1 is damaged: Expected `object`, got `int`"),
    ({"objective": "energy"}, "objective in .* is 'energy'"),
    ({"objective": ["time", "energy"]}, "objective in"),
]


@pytest.mark.parametrize(("change", "why"), BAD)
def test_a_damaged_cache_is_one_sentence(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    with pytest.raises(SearchlabError, match=why):
        import_file(write_json(tmp_path / "c.json", cache(**change)), tmp_path / "t.jsonl", ImportOptions())
    assert not (tmp_path / "t.jsonl").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("time", -1.0),
        ("time", 0),
        ("time", True),
        ("time", [1]),
        ("time", 10**400),
        ("times", 3),
        ("times", ["x"]),
        ("compile_time", "fast"),
        ("benchmark_time", -5),
        ("x", None),
        ("x", {"a": 1}),
        ("x", math.nan),
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, field: str, value: Any) -> None:
    content = cache()
    content["cache"]["32,a"][field] = value
    with pytest.raises(SearchlabError, match="record 2 is damaged"):
        import_file(write_json(tmp_path / "c.json", content), tmp_path / "t.jsonl", ImportOptions())


def test_text_that_is_no_unicode_is_one_sentence(tmp_path: Path) -> None:
    result = {"configuration": {"x": 1}, "times": "\ud800"}
    with pytest.raises(SearchlabError, match="record 1 is damaged"):
        import_file(write_json(tmp_path / "c.json", t4_of(result)), tmp_path / "t.jsonl", ImportOptions())


@given(cut=st.integers(0, 2000))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_truncated_file_yields_its_complete_records(tmp_path: Path, cut: int) -> None:
    text = gzip.decompress(CACHE.read_bytes()).decode()
    path, out = tmp_path / "c.json", tmp_path / "t.jsonl"
    start = text.index('"cache"')
    path.write_text(text[: start + cut])
    out.unlink(missing_ok=True)
    try:
        table, _ = import_table(path, out)
    except SearchlabError as error:
        assert "\n" not in str(error) and str(path) in str(error)
    else:
        assert 1 <= len(table.records) <= 1 + text[start : start + cut].count("\n")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(data=st.data())
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_anywhere_is_read_or_refused_in_a_sentence(tmp_path: Path, data: st.DataObject) -> None:
    result = {
        "configuration": {"x": 1},
        "times": {"runtimes": [5.0]},
        "measurements": [{"name": "time", "value": 5.0}],
        "invalidity": "correct",
        "correctness": 1,
        "objectives": ["time"],
    }
    content: Any = data.draw(st.sampled_from([cache(), t4_of(result)]))
    inner = content
    while True:
        key = data.draw(st.sampled_from(list(inner) if isinstance(inner, dict) else list(range(len(inner)))))
        if not isinstance(inner[key], dict | list) or not inner[key] or data.draw(st.booleans()):
            inner[key] = data.draw(JSON)
            break
        inner = inner[key]
    path, out = write_json(tmp_path / "c.json", content), tmp_path / "t.jsonl"
    out.unlink(missing_ok=True)
    try:
        table, _ = import_table(path, out)
    except SearchlabError as error:
        assert str(error)
    else:
        assert np.isfinite(table.costs).sum() == sum(not record.failure for record in table.records)


def test_a_file_that_lists_a_part_of_its_space_is_noticed(tmp_path: Path) -> None:
    """Three restrictions leave 1,885 of 4,096 configs; the file lists all of them, or half."""
    values = [1, 2, 4, 8]
    keys = list("abcdef")
    configs = [
        dict(zip(keys, row, strict=True))
        for row in itertools.product(values, repeat=len(keys))
        if row[0] * row[1] <= 16 and row[2] % row[3] == 0 and row[3] * row[4] * row[5] <= 64
    ]
    order = np.random.default_rng(0).permutation(len(configs)).tolist()
    for listed in (order, order[: len(order) // 2]):
        entries = {
            ",".join(map(str, config.values())): {**config, "time": 1.0} for config in (configs[i] for i in listed)
        }
        content = cache(tune_params_keys=keys, tune_params=dict.fromkeys(keys, values), cache=entries)
        log, notes = import_table(
            write_json(tmp_path / f"{len(listed)}.json", content), tmp_path / f"{len(listed)}.jsonl"
        )
        is_complete = len(listed) == len(configs)
        assert log.header.space_size == (len(configs) if is_complete else None)
        assert [note for note in notes if "only part of the space" in note] == ([] if is_complete else notes[:1])
        assert is_complete or f"the file lists only {len(listed):,} of the 1,7" in notes[0]


def test_autotvm_learns_from_knobs_where_there_are_no_programs(tmp_path: Path) -> None:
    import_file(CACHE, tmp_path / "table.parquet", ImportOptions())
    options: dict[str, Any] = {
        "space": "parameters",
        "trials": 6,
        "batch": 3,
        "measure": {"kind": "table", "path": str(tmp_path / "table.parquet")},
        "policy": Plugin("autotvm-xgb", {"plan_size": 3, "steps": 5}),
    }
    with pytest.warns(
        SearchlabWarning, match="autotvm-xgb uses the features 'autotvm-knob' instead of its default, 'itervar', w"
    ):
        result = tune(KERNEL, log=tmp_path / "run.jsonl", **options)
    assert result.log.header.features == "autotvm-knob"
    with pytest.raises(SearchlabError, match="features 'itervar' are extracted from programs"):
        tune(KERNEL, log=tmp_path / "other.jsonl", features="itervar", **options)
