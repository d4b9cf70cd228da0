"""Budgets of seconds and of trials without a gain: where runs end, how they are extended, and how they are reported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.analysis import report
from searchlab.conformance import toys
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.budget import Budget
from searchlab.log.forecast import RunStatus, forecast
from searchlab.log.format import Log, Record, RunEnd
from searchlab.log.read import read_log
from searchlab.log.writer import check_log
from searchlab.records import Measurement, Trial
from searchlab.run.execute import execute_run
from searchlab.run.study import Study
from searchlab.run.tune import tune
from searchlab.space import Config
from tests.support.cli import searchlab
from tests.support.logs import HEADER, read_deterministic_part, write_table

BATCH = 4


def charged_cost(config: Config) -> Measurement:
    """Building and running take much longer than the policy."""
    return replace(toys.simulate_flaky(config), build_seconds=3.0, run_seconds=2.0)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "table.jsonl", toys.Small(), charged_cost)


def run(table: Path, log: Path, **changes: Any) -> Log:
    """Return the log of a run over the toy table, where each trial is charged 5 s plus the time of the policy."""
    settings: dict[str, Any] = {"policy": "random", "batch": BATCH, "seed": 0} | changes
    tune(toys.WORKLOAD, space=toys.Small(), log=log, measure={"kind": "table", "path": str(table)}, **settings)
    return read_log(log)


def charged_seconds(table: Path, tmp_path: Path, trials: int) -> float:
    """Return the seconds of building and running charged for the first ``trials``, without the time of the policy."""
    log = run(table, tmp_path / f"measured-{trials}.jsonl", trials=trials)
    return float(log.charged_seconds[:, 2:].sum())


def trials_of(log: Path) -> list[dict[str, Any]]:
    return [line for line in read_deterministic_part(log) if "config" in line]


def test_a_run_ends_with_the_batch_that_spends_its_seconds(table: Path, tmp_path: Path) -> None:
    seconds = charged_seconds(table, tmp_path, 22)
    path = tmp_path / "a.jsonl"
    log = run(table, path, seconds=seconds)
    assert len(log.records) % BATCH == 0 and 0 < len(log.records) <= 24
    assert log.run_end == RunEnd(
        trial_count=len(log.records), recorded_at=log.run_end.recorded_at if log.run_end else 0, seconds=seconds
    )
    assert log.elapsed_seconds[-1] >= seconds > log.elapsed_seconds[-1 - BATCH]
    assert not check_log(path).problems
    before = path.read_bytes()
    replays: list[bool] = []
    for same in (seconds, seconds / 1.0001):
        run(table, path, seconds=same, on_trial=lambda trial, replayed: replays.append(replayed))
    assert path.read_bytes() == before and len(replays) == 2 * len(log.records) and all(replays), "the budget is spent"


def test_callbacks_receive_the_charged_seconds(table: Path, tmp_path: Path) -> None:
    settings = {"measure": {"kind": "table", "path": str(table)}, "trials": 10, "batch": BATCH}
    study = Study.from_dict(
        {
            "workloads": [toys.WORKLOAD],
            "spaces": ["searchlab.conformance.toys:Small"],
            "policies": ["random"],
            **settings,
        }
    )
    ((study_run,), _) = study.plan()
    for _ in ("measured", "replayed"):
        charges: list[float] = []

        def on_trial(trial: Trial, replayed: bool, charged: float, charges: list[float] = charges) -> None:
            charges.append(charged)

        log = execute_run(replace(study_run, log_path=tmp_path / "a.jsonl"), lambda *_, each=on_trial: each)
        assert charges == pytest.approx(log.elapsed_seconds.tolist())


def test_an_extended_run_ends_where_a_single_run_would(table: Path, tmp_path: Path) -> None:
    """The time of the policy is not in the table, so both runs are judged by the steps of one log."""
    for name, small, large in (
        ("stop_after", 5, 40),
        ("seconds", charged_seconds(table, tmp_path, 10), 3 * charged_seconds(table, tmp_path, 30)),
    ):
        steps, uninterrupted = tmp_path / f"{name}-steps.jsonl", tmp_path / f"{name}-whole.jsonl"
        first = run(table, steps, **{name: small})
        extended = run(table, steps, **{name: large})
        assert (
            len(extended.records) > len(first.records) and extended.run_end and getattr(extended.run_end, name) == large
        )
        assert len(trials_of(steps)) == Budget(**{name: large}).find_end(extended)[0]
        if name == "stop_after":
            run(table, uninterrupted, **{name: large})
            assert trials_of(steps) == trials_of(uninterrupted)
        assert sum(json.loads(line).get(name) == small for line in steps.read_text().splitlines()) == 1


def test_a_run_resumes_from_any_line_of_its_log(table: Path, tmp_path: Path) -> None:
    path = tmp_path / "whole.jsonl"
    run(table, path, stop_after=20)
    lines = path.read_bytes().splitlines(keepends=True)
    shortened = tmp_path / "cut.jsonl"
    for number in (1, 2, len(lines) - 2, len(lines) - 1):
        shortened.write_bytes(b"".join(lines[:number]) + lines[number][:9] if number < len(lines) else b"".join(lines))
        run(table, shortened, stop_after=20)
        assert read_deterministic_part(shortened) == read_deterministic_part(path)


def test_the_first_part_of_a_budget_that_is_spent_counts(table: Path, tmp_path: Path) -> None:
    by_trials = run(table, tmp_path / "a.jsonl", trials=6, seconds=1e6, stop_after=1000)
    assert len(by_trials.records) == 6 and by_trials.run_end is None, "only trials cut a batch"
    by_gain = run(table, tmp_path / "b.jsonl", trials=1000, seconds=1e6, stop_after=8)
    assert by_gain.run_end and by_gain.run_end.stop_after == 8
    by_space = run(table, tmp_path / "c.jsonl", seconds=1e6)
    assert by_space.run_end and by_space.run_end.by_policy and len(by_space.records) == toys.Small().size()
    assert Budget(stop_after=4).find_end(by_space)[0] < 120
    assert Budget(trials=1000).find_end(by_space) == (len(by_space.records), None)


def test_a_budget_smaller_than_the_log_warns(table: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    run(table, path, trials=100)
    before = path.read_bytes()
    for budget in ({"stop_after": 12, "trials": 120}, {"seconds": charged_seconds(table, tmp_path, 9), "trials": 120}):
        with pytest.warns(SearchlabWarning, match="contains 100 trials, more than the .. requested"):
            run(table, path, **budget)
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        ({"seconds": 0}, "'seconds' is 0; it must be a number greater than 0"),
        ({"seconds": -1.0}, "'seconds' is -1.0"),
        ({"seconds": float("nan")}, "'seconds' is nan"),
        ({"seconds": "10"}, "option 'seconds' is '10'; it must be a number"),
        ({"stop_after": 0}, "'stop_after' is 0"),
        ({"stop_after": 2.5}, "'stop_after' is 2.5"),
    ],
    ids=str,
)
def test_a_wrong_budget_is_refused(budget: dict[str, Any], says: str, table: Path, tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match=says):
        run(table, tmp_path / "a.jsonl", **budget)
    with pytest.raises(SearchlabError, match=next(iter(budget))):
        Study.from_dict({"workloads": ["gemm:8x8x8"], "spaces": ["a"], "policies": ["random"], **budget})


costs = st.one_of(st.just(None), st.floats(1e-6, 1.0))


@given(st.lists(costs, max_size=30), st.integers(1, 6), st.integers(1, 12), st.floats(0.1, 30.0))
def test_the_log_of_a_smaller_budget_is_a_prefix(
    throughputs: list[float | None], size: int, stop_after: int, seconds: float
) -> None:
    """Each trial is charged one second."""
    records = []
    for index, cost in enumerate(throughputs):
        measured = Measurement(() if cost is None else (cost,), None if cost else "crash", run_seconds=1.0)
        records.append(Record.from_trial(Trial(index, Config({"a": index}), measured), batch_number=index // size))
    log = Log(Path("a"), msgspec.structs.replace(HEADER, batch=size), tuple(records))
    for small, large in (
        (Budget(1000, seconds, None), Budget(1000, 1.5 * seconds, None)),
        (Budget(1000, None, stop_after), Budget(1000, None, stop_after + 3)),
        (Budget(1000, seconds, stop_after), Budget(1000, 2 * seconds, 2 * stop_after)),
    ):
        small_count, end = small.find_end(log)
        small_part = replace(log, records=log.records[:small_count], run_end=end)
        assert small_count <= large.find_end(log)[0] <= len(records)
        assert small.find_end(small_part) == (small_count, None)
        if small_count < len(records):
            assert small_count % size == 0 and small.is_complete(small_part)
            assert end and end.trial_count == small_count
            if end.stop_after:
                working = [cost for cost in throughputs[: end.trial_count] if cost]
                before = [cost for cost in throughputs[: end.trial_count - stop_after] if cost]
                assert not working or min(before) <= 1.01 * min(working)


def test_a_study_with_seconds_is_planned_run_and_reported(table: Path, tmp_path: Path) -> None:
    seconds = charged_seconds(table, tmp_path, 30)
    spec: dict[str, Any] = {
        "workloads": [str(toys.WORKLOAD)],
        "spaces": ["searchlab.conformance.toys:Small"],
        "seeds": 3,
        "seconds": seconds,
        "policies": ["random", {"name": "random", "label": "stops", "stop_after": 6, "batch": 2, "seconds": 1e6}],
        "target": {"kind": "llvm"},
        "measure": {"kind": "table", "path": "table.jsonl"},
        "batch": BATCH,
    }
    study = Study.from_dict(spec, tmp_path)
    first = forecast([RunStatus(run) for run in study.planned_runs() if run.strategy == "random"])
    assert [
        (item_forecast.run_count, item_forecast.complete_count, item_forecast.trial_count, item_forecast.seconds)
        for item_forecast in first
    ] == [(3, 0, None, 3 * seconds)]
    results = study.run(tmp_path / "out")
    assert all(result.log.run_end and not result.log.run_end.by_policy for result in results)
    (item,) = report(tmp_path / "out").workloads
    by_seconds, stops = item.by_strategy["random"], item.by_strategy["stops"]
    assert by_seconds.seeds == stops.seeds == [0, 1, 2] and by_seconds.interrupted == stops.interrupted == []
    assert by_seconds.complete and stops.complete and by_seconds.ended == stops.ended == 3
    notes = " ".join(item.notes)
    assert "seconds was spent" not in notes  # the longest of these runs is as long as the comparison
    assert "because 6 trials had brought no gain of more than 1 %; the best" in notes


def test_the_command_stops_without_a_gain_and_reports_it(table: Path, tmp_path: Path) -> None:
    words = [
        "tune",
        str(toys.WORKLOAD),
        "--space",
        "searchlab.conformance.toys:Small",
        "--policy",
        "random",
        "--batch",
        BATCH,
        "--target",
        '{"kind": "llvm"}',
        "--measure",
        json.dumps({"kind": "table", "path": str(table)}),
        "--log",
        tmp_path / "a.jsonl",
        "--stop-after",
        8,
    ]
    result = searchlab(*words)
    assert result.returncode == 0, result.stderr
    number = len(read_log(tmp_path / "a.jsonl").records)
    assert f"the run ended after {number} trials: 8 trials had brought no gain of more than 1 %" in result.stdout
    refused = searchlab(*words, "--seconds", "-1")
    assert refused.returncode == 2 and "'seconds' is -1.0" in refused.stderr
