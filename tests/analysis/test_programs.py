from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from searchlab import tune
from searchlab.analysis import report
from searchlab.analysis.read import read_runs
from searchlab.analysis.report import Traces, best_programs, run_programs
from searchlab.log.format import Final, Finalist, read_log
from searchlab.plugins import Plugin
from tests.support.analysis.logs import write


def again(path: Path, gflops: dict[int, float]) -> None:
    """End the log at ``path`` with its finalists, by trial from 0, at these speeds in each of 11 rounds."""
    finalists = tuple(Finalist(index, (1e-3 / speed,) * 11) for index, speed in gflops.items())
    with path.open("ab") as file:
        file.write(msgspec.json.encode(Final(trials=3, finalists=finalists)) + b"\n")


def test_the_best_program_of_each_run_and_strategy(tmp_path: Path, undrawn: None) -> None:
    """The winner where the fastest were measured again, at what it then gave; else the fastest trial."""
    write(tmp_path, "a", 0, [1, "crash", 3])
    again(write(tmp_path, "a", 1, [2, 4, 3.9]), {1: 3.5, 2: 3.7})
    again(write(tmp_path, "a", 2, [5, 4.9, 2]), {0: 3.6, 1: 3.6})
    write(tmp_path, "b", 0, [9, 1])
    write(tmp_path, "c", 0, ["crash"])
    programs = run_programs(read_runs(tmp_path))
    found = [(p.strategy, p.seed, p.trial, round(p.gflops, 6), round(p.as_trial, 6), p.tied) for p, _ in programs]
    assert found == [
        ("a", 0, 2, 3.0, 3.0, None), ("a", 1, 2, 3.7, 3.9, []), ("a", 2, 0, 3.6, 5.0, [1]), ("b", 0, 0, 9.0, 9.0, None),
    ]  # fmt: skip
    best = best_programs(programs)
    assert [(p.strategy, p.seed, p.config) for p, _ in best] == [
        ("b", 0, {"tile": [0, 1], "of": "b 0"}),
        ("a", 1, {"tile": [2, 1], "of": "a 1"}),
    ]
    assert all(p.seconds * p.gflops * 1e3 == pytest.approx(1) and run.log.path.name == p.log for p, run in programs)
    report(tmp_path, traces=0.0)
    page = (tmp_path / "report" / "report.html").read_text()
    assert "as a trial it had 3.9 GFLOPS" in page and page.count("measured again at the end") == 1


def test_a_space_that_is_not_installed_or_names_code_is_left_alone(tmp_path: Path, undrawn: None) -> None:
    write(tmp_path, "a", 0, [1.0], space=Plugin("from-another-package"))
    write(tmp_path, "b", 0, [2.0], space=Plugin("os:system"))
    write(tmp_path, "c", 0, [3.0], space=Plugin("knob-template", {"template": ["os:system"]}))
    with Traces(best_programs(run_programs(read_runs(tmp_path))), 30.0) as traces:
        assert traces._child is None, "nothing is started"
        notes = {one.strategy.split(" / ")[1]: one.note for one in traces.programs()}
    assert "'from-another-package' is not among the installed" in notes["a"]
    assert "'os:system' is not among the installed" in notes["b"]
    assert "refers to code" in notes["c"]
    report(tmp_path)
    assert "refers to code" in (tmp_path / "report" / "report.html").read_text()


def test_a_trace_is_made_or_the_reason_is_given(tmp_path: Path, undrawn: None) -> None:
    quick = {"kind": "local", "repeat": 1, "min_repeat_ms": 0, "finalists": 0}
    log = tmp_path / "ours.jsonl"
    tune("gemm:16x16x16", space="knob-template", policy="random", log=log, trials=3, batch=3, measure=quick)
    header, *lines = log.read_text().splitlines()
    other_header = json.dumps(json.loads(header) | {"fingerprint": "0", "label": "other-knobs"})
    (tmp_path / "other-knobs.jsonl").write_text("\n".join([other_header, *lines]) + "\n")
    report(tmp_path, traces=300.0)
    found = json.loads((tmp_path / "report" / "programs.json").read_text())
    other, one = sorted(found, key=lambda program: program["strategy"])
    assert "sch.split" in one["trace"] and not one["note"]
    best = min(read_log(log).trials, key=lambda trial: trial.cost)
    assert one["config"] == json.loads(json.dumps(best.config.to_json()))
    assert other["trace"] is None and "different knobs" in other["note"]
    page = (tmp_path / "report" / "report.html").read_text()
    assert "sch.split" in page and "different knobs" in page and "searchlab best other-knobs.jsonl --show trace" in page
    with Traces(run_programs(read_runs(tmp_path)), 1e-9) as traces:  # asked at once: TVM is not even imported
        assert "was not made in the time" in traces.programs()[0].note
    report(tmp_path, traces=0.0)
    assert "traces were not asked for" in (tmp_path / "report" / "report.html").read_text()
