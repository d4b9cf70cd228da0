"""A run whose policy stops ends before its budget is spent; its log and its report state that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from searchlab.analysis import report
from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.log.read import read_log
from searchlab.log.writer import check_log
from searchlab.run.study import Study
from searchlab.run.tune import tune
from tests.support.logs import read_deterministic_part, write_table

STOPS = "tests.support.stopping:Stops"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky)


def run(table: Path, log: Path, trials: int = 20, policy: Any = STOPS, **options: Any) -> list[str]:
    """Return the lines of the log after a run."""
    tune(
        toys.WORKLOAD,
        space=toys.Small(),
        policy=policy,
        log=log,
        trials=trials,
        batch=4,
        seed=0,
        measure={"kind": "table", "path": str(table)},
        **options,
    )
    return log.read_text().splitlines()


def test_the_log_records_once_that_the_run_ended(table: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    lines = run(table, log)
    assert json.loads(lines[-1])["trials"] == 11 and len(lines) == 1 + 11 + 1
    assert read_log(log).run_end and not check_log(log).problems
    before = log.read_bytes()
    for trials in (20, 12, 200):
        calls: list[tuple[int, bool]] = []
        run(table, log, trials, on_trial=lambda trial, replayed: calls.append((trial.index, replayed)))  # noqa: B023
        assert log.read_bytes() == before and calls == [(index, True) for index in range(11)]


def test_a_run_that_meets_its_budget_has_not_ended_by_itself(table: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    run(table, log, trials=11)
    assert len(read_log(log).records) == 11 and not read_log(log).run_end
    run(table, log, trials=12)
    assert len(read_log(log).records) == 11 and read_log(log).run_end


def test_a_run_resumes_from_any_line_of_its_log(table: Path, tmp_path: Path) -> None:
    run(table, tmp_path / "whole.jsonl")
    content = (tmp_path / "whole.jsonl").read_bytes()
    log = tmp_path / "cut.jsonl"
    for size in (len(content) // 3, len(content) - 60, len(content) - 5, len(content)):
        log.write_bytes(content[:size])
        run(table, log)
        assert read_deterministic_part(log) == read_deterministic_part(tmp_path / "whole.jsonl")


def test_an_exhausted_space_ends_a_run_too(table: Path, tmp_path: Path) -> None:
    lines = run(table, tmp_path / "a.jsonl", trials=1000, policy="random")
    size = toys.Small().size()
    assert json.loads(lines[-1])["trials"] == size == len(read_log(tmp_path / "a.jsonl").records)


def test_a_policy_that_ends_sooner_than_its_log_is_found_out(table: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    run(table, log, trials=10)
    options = f'"{STOPS}","options":{{"limit":6}}'
    log.write_text(log.read_text().replace(f'"{STOPS}"', options))
    with pytest.raises(SearchlabError, match="Trial 6 is .* the policy now has nothing more to propose"):
        run(table, log, trials=12, policy={"name": STOPS, "options": {"limit": 6}})


def test_a_study_is_reported_with_the_runs_that_ended(table: Path, tmp_path: Path) -> None:
    study = Study.from_dict(
        {
            "workloads": [str(toys.WORKLOAD)],
            "spaces": ["searchlab.conformance.toys:Small"],
            "seeds": 3,
            "trials": 30,
            "policies": ["random", {"name": STOPS, "label": "stops", "batch": 2}],
            "target": {"kind": "llvm"},
            "measure": {"kind": "table", "path": "table.jsonl"},
        },
        tmp_path,
    )
    study.run(tmp_path / "out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.jsonl")}
    calls: list[bool] = []
    study.run(tmp_path / "out", lambda *_: lambda trial, replayed: calls.append(replayed))
    assert all(calls) and before == {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.jsonl")}
    (item,) = report(tmp_path / "out").workloads
    note = "3 runs of stops ended after 11 to 13 of 30 trials, because the policy had nothing more to propose"
    stops = item.by_strategy["stops"]
    assert (stops.trials, stops.trials_by_seed, stops.ended, stops.batch) == (30, [11, 12, 13], 3, 2)
    assert any(text.startswith(note) for text in item.notes)
    assert note in (tmp_path / "out" / "report" / "report.html").read_text()
