from __future__ import annotations

import json
from pathlib import Path

import msgspec

from searchlab import tune
from searchlab.analysis import report
from searchlab.analysis.cells import read_cells
from searchlab.analysis.programs import Traces, best_programs
from searchlab.log import Final, Finalist, Plugin, read_log

from .logs import write


def test_the_fastest_trial_of_each_strategy_over_its_seeds(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1, "crash", 3])
    path = write(tmp_path, "a", 1, [2, 4, 4])
    write(tmp_path, "b", 0, [9, 1])
    write(tmp_path, "c", 0, ["crash"])
    final = Final(final=3, finalists=(Finalist(1, (1e-3 / 5,) * 3), Finalist(2, (1e-3 / 6,) * 3)))
    with path.open("ab") as file:
        file.write(msgspec.json.encode(final) + b"\n")
    programs = [one for one, _ in best_programs(read_cells(tmp_path))]
    found = [(p.strategy, p.seed, p.trial, round(p.gflops, 6), p.config) for p in programs]
    assert found == [("b", 0, 1, 9.0, {"tile": [0, 1]}), ("a", 1, 2, 4.0, {"tile": [1, 1]})]
    assert programs[0].again is None and programs[1].again is not None and round(programs[1].again, 6) == 5.0


def test_a_space_that_is_not_installed_or_names_code_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1.0], space=Plugin("from-another-package"))
    write(tmp_path, "b", 0, [2.0], space=Plugin("os:system"))
    write(tmp_path, "c", 0, [3.0], space=Plugin("knob-template", {"template": ["os:system"]}))
    with Traces(read_cells(tmp_path), 30.0) as traces:
        assert traces._child is None, "nothing is started"
        notes = {one.strategy.split(" / ")[1]: one.note for one in traces.programs()}
    assert "'from-another-package' is not among the installed" in notes["a"]
    assert "'os:system' is not among the installed" in notes["b"]
    assert "names code" in notes["c"]
    report(tmp_path)
    assert "names code" in (tmp_path / "report" / "report.html").read_text()


def test_a_trace_is_made_or_the_reason_is_given(tmp_path: Path) -> None:
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
    assert other["trace"] is None and "knobs differ" in other["note"]
    page = (tmp_path / "report" / "report.html").read_text()
    assert "sch.split" in page and "knobs differ" in page and "searchlab best other-knobs.jsonl --show trace" in page
    with Traces(read_cells(tmp_path), 1e-9) as traces:  # asked at once: the child has not even imported TVM
        assert "was not made in the time" in traces.programs()[0].note
    report(tmp_path, traces=0.0)
    assert "traces were not asked for" in (tmp_path / "report" / "report.html").read_text()
