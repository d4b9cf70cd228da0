"""Planning a study on fleets, from logs with invented times."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.errors import SearchlabError
from searchlab.fleet import TrialTimes, kind_of, plan_fleet, recorded
from searchlab.log.format import Ended, Record
from searchlab.log.plan import UNLIMITED
from searchlab.log.writer import LogWriter
from searchlab.records import Measurement, Trial
from searchlab.run.plan import Run
from searchlab.run.study import Study

STUDY: dict[str, Any] = {
    "workloads": ["gemm:64x64x64"], "spaces": [{"name": "tests.support.toys:Small", "label": "small"}],
    "policies": ["random", {"name": "grid", "batch": 2}], "seeds": 3, "trials": 16, "batch": 4,
    "target": {"kind": "llvm"}, "measure": {"kind": "rpc", "tracker": "127.0.0.1:1", "key": "board"},
}  # fmt: skip

Measured = Callable[[int], Measurement]


def steady(index: int) -> Measurement:
    """Return a measurement with 1 s to build, 2 s to run and 0.25 s to connect."""
    return Measurement((1e-3,), build_seconds=1.0, run_seconds=2.0, program=str(index), connect_seconds=0.25)


def study(**given: Any) -> list[Run]:
    return Study.from_dict({**STUDY, **given}).plan()[0]


def record(
    folder: Path,
    runs: list[Run],
    count: int,
    measured: Measured = steady,
    ended: Ended | None = None,
    spread: bool = False,
) -> Path:
    """Write a log of ``count`` trials for each run, with 0.5 s to propose a trial."""
    for number, run in enumerate(runs):
        share = (0.375 + 0.25 * (number % 2)) if spread else 0.375
        writer = LogWriter(folder / run.log, run.header(2))
        for index in range(count):
            writer.append(Record.of(Trial(index, run.space.config_at(index), measured(index)), share, 0.125))  # type: ignore[attr-defined]
        if ended:
            writer.append(ended)
        writer.close()
    return folder


def test_a_plan_is_of_the_whole_study_whatever_the_logs_have(tmp_path: Path) -> None:
    runs = study()
    logs = record(tmp_path, runs[:2], 8)
    plan = plan_fleet(runs, [logs], devices=[1, 2, 4], builders=[1, 2, 4])
    assert (plan.runs, plan.trials, plan.logs) == (6, 96, 2)
    by_size = {(one.devices, one.builders): one for one in plan.outlooks}
    # Of random: 3 x 4 batches of 4; of grid: 3 x 8 batches of 2. A device is handed back in a quarter of a second.
    slowest = 12 * (2 + 4 + 4 * 2.5 - 0.25) + 24 * (1 + 2 + 2 * 2.5 - 0.25)
    assert by_size[1, 1].seconds == pytest.approx(slowest)
    fastest = 12 * (2 + 1 + 2.25) + 24 * (1 + 1 + 2.25)
    assert by_size[4, 4].seconds == pytest.approx(fastest)
    assert by_size[1, 1].waiting["proposing"] == pytest.approx(48 / slowest, rel=0.02)
    assert by_size[1, 1].builders_busy == pytest.approx((48 + 96) / slowest, rel=0.02)
    assert sum(by_size[2, 4].waiting.values()) == pytest.approx(1)
    assert (plan.knee.devices, plan.knee.builders) == (4, 2)
    assert [(one.devices, one.builders) for one in plan.by_devices][2] == (4, 2)
    assert plan == plan_fleet(runs, [logs], devices=[1, 2, 4], builders=[1, 2, 4])
    # Two processes on two cores, or four on four: 3 s more.
    later = plan_fleet(runs, [logs], devices=[2], builders=[2], start=1.5)
    assert later.knee.seconds == pytest.approx(by_size[2, 2].seconds + 3)


def test_more_jobs_keep_devices_busy_and_a_larger_batch_is_noted(tmp_path: Path) -> None:
    runs = study(policies=["random"], seeds=4)
    logs = record(tmp_path, runs[:1], 16)
    plan = plan_fleet(runs, [logs], devices=[8], builders=[16], jobs=[1, 4], batches=[4, 8])
    seconds = {(one.jobs, one.batch): one.seconds for one in plan.outlooks}
    assert seconds[4, 4] < seconds[1, 4] / 2 and plan.by_devices[0].jobs == 4
    assert any("batches of 4; proposing batches of 8" in note for note in plan.notes)


def test_a_reused_or_failed_trial_needs_no_device(tmp_path: Path) -> None:
    def measured(index: int) -> Measurement:
        failed = Measurement((), "build_error", "no", build_seconds=0.5)
        return [steady(index), replace(steady(0), reused=True), failed][index % 3]

    runs = study(policies=["random"], seeds=1)
    held = recorded(record(tmp_path, runs, 9, measured).rglob("*.jsonl"), {kind_of(runs[0])})
    (drawn,) = held.values()
    batch, *_ = drawn.draw(runs[0], 9, 1, np.random.default_rng(0))
    assert batch[:3] == [TrialTimes(0.5, 1.0, 0.25, 2.0), TrialTimes(0.5, 0.0), TrialTimes(0.5, 0.5)]
    assert [trial.on_device for trial in batch[:3]] == [True, False, False]


def test_proposing_is_taken_from_all_logs(tmp_path: Path) -> None:
    runs = study(policies=["random"], seeds=2)
    (held,) = recorded(record(tmp_path, runs, 6, spread=True).rglob("*.jsonl"), {kind_of(runs[0])}).values()
    (batch,) = held.draw(runs[0], 16, 1, np.random.default_rng(0))
    assert [trial.propose for trial in batch] == [0.625] * 16


def test_a_run_ends_where_its_budget_or_its_policy_ends_it(tmp_path: Path) -> None:
    (run,) = study(policies=["random"], seeds=1)
    rng = np.random.default_rng(0)

    def trials(log: str, run: Run, ended: Ended | None = None, builders: int = 1) -> int:
        held = recorded(record(tmp_path / log, [run], 8, ended=ended).rglob("*.jsonl"), {kind_of(run)})
        return sum(map(len, held[kind_of(run)].draw(run, run.batch, builders, rng)))

    assert trials("trials", replace(run, trials=100)) == 100 and trials("fewer", replace(run, trials=6)) == 6
    assert trials("policy", replace(run, trials=100), Ended(trials=8)) == 8
    assert trials("gain", replace(run, trials=100, stop_after=5), Ended(trials=8, stop_after=5)) == 8
    assert trials("gain of another", replace(run, trials=100, stop_after=7), Ended(trials=8, stop_after=5)) == 100
    by_time = replace(run, trials=UNLIMITED, seconds=30.0)  # a batch is charged 2 for proposing, 4 and 8
    assert trials("seconds", by_time) == 12 and trials("seconds, builders", by_time, builders=4) == 12
    assert trials("seconds, enough builders", replace(by_time, seconds=27.0), builders=4) == 12
    with pytest.raises(SearchlabError, match="nothing determines how many trials"):
        trials("nothing", replace(run, trials=UNLIMITED, stop_after=9))


def test_what_no_log_holds_is_not_invented(tmp_path: Path) -> None:
    runs = study()
    logs = record(tmp_path, runs[:1], 4)
    with pytest.raises(SearchlabError, match="gemm:64x64x64 in small by grid; record a few.*--logs"):
        plan_fleet(runs, [logs], devices=[1], builders=[1])
    with pytest.raises(SearchlabError, match="cannot read the log .*nowhere"):
        plan_fleet(runs, [tmp_path / "nowhere"], devices=[1], builders=[1])
    with pytest.raises(SearchlabError, match="by random, .* by grid; record"):
        plan_fleet(runs, [], devices=[1], builders=[1])
    other = record(tmp_path / "options", study(policies=[{"name": "evolutionary", "options": {"population": 4}}]), 4)
    with pytest.raises(SearchlabError, match="by evolutionary"):
        plan_fleet(study(policies=["evolutionary"]), [other], devices=[1], builders=[1])


def test_notes_say_what_the_logs_do_not_know(tmp_path: Path) -> None:
    here = {"kind": "local", "repeat": 9}
    there = study(policies=["random"])
    logs = record(
        tmp_path, study(policies=["random"], measure=here, target={"kind": "llvm", "num-cores": 3}), 4,
        lambda index: replace(steady(index), connect_seconds=0.0),
    )  # fmt: skip
    notes = plan_fleet(there, [logs], devices=[1], builders=[1]).notes
    assert len(notes) == 3
    assert (
        "a different target" in notes[0]
        and "do not come from a fleet" in notes[1]
        and "repeat = 9, but the study has 3" in notes[2]
    )
    own = record(tmp_path / "own", there, 4)
    assert plan_fleet(there, [own], devices=[1], builders=[1]).notes == []


def test_a_large_study_is_simulated_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = study(seeds=40)
    logs = record(tmp_path, runs[:2], 16)
    whole = plan_fleet(runs, [logs], devices=[2], builders=[2], jobs=[1, 3])
    monkeypatch.setattr("searchlab.fleet.SIMULATED", 160)
    part = plan_fleet(runs, [logs], devices=[2], builders=[2], jobs=[1, 3])
    assert part.trials == whole.trials == 40 * 2 * 16
    for one, other in zip(part.outlooks, whole.outlooks, strict=True):
        assert one.seconds == pytest.approx(other.seconds, rel=0.03)
        assert one.devices_busy == pytest.approx(other.devices_busy, rel=0.03)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from searchlab.cli.app import app

    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(
        "workloads = ['gemm:64x64x64']\nspaces = [{ name = 'tests.support.toys:Small', label = 'small' }]\n"
        "policies = ['random']\nseeds = 3\ntrials = 16\nbatch = 4\ntarget = { kind = 'llvm' }\n"
        "measure = { kind = 'rpc', tracker = '127.0.0.1:1', key = 'board' }\n"
    )
    record(tmp_path / "results" / "study", study(policies=["random"]), 8)

    def called(*words: str) -> Any:
        return CliRunner().invoke(app, ["fleet", "plan", "study.toml", *words])

    shown = called("--devices", "1..6", "--builders", "1,4")
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.output.splitlines()]
    assert [row[0] for row in rows[2:6]] == ["1", "2", "4", "6"] and "smallest fleet within 10 %" in shown.output
    monkeypatch.setattr("searchlab.fleet.start_seconds", lambda space: 1.0)
    told = json.loads(called("--json", "--devices", "2", "--builders", "2", "--batch", "4,8", "--jobs", "2").output)
    assert [one["batch"] for one in told["outlooks"]] == [4, 8] and told["knee"]["seconds"] > 0
    for wrong in ("0", "8..2", "many", "1..", "-1"):
        ended = called("--devices", wrong)
        assert isinstance(ended.exception, SearchlabError) and "--devices must be numbers" in str(ended.exception)
