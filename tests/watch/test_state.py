"""The state of a study while it runs, and after."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from searchlab.errors import SearchlabError
from searchlab.log.plan import PLAN
from searchlab.log.writer import LogWriter
from searchlab.records import Trial
from searchlab.run.study import Study
from searchlab.watch import state as module
from searchlab.watch.state import State, Watched
from tests.support import toys
from tests.support.logs import HEADER, trial, write_table


@pytest.fixture(autouse=True)
def always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN", -1.0)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return planned(tmp_path)


def planned(tmp_path: Path, **changes: Any) -> Study:
    if not (tmp_path / "table.jsonl").exists():
        write_table(tmp_path / "table.jsonl", toys.Small(), toys.flaky)
    spec = {
        "workloads": [str(toys.WORKLOAD)],
        "spaces": ["tests.support.toys:Small"],
        "seeds": 2,
        "trials": 12,
        "policies": ["random", {"name": "random", "label": "stops", "stop_after": 4}],
        "batch": 4,
        "target": {"kind": "llvm"},
        "measure": {"kind": "table", "path": "table.jsonl"},
    }
    return Study.from_dict({**spec, **changes}, tmp_path)


def statuses(state: State) -> list[str]:
    return [row.status for row in state.rows]


def test_a_study_is_watched_from_its_first_run_to_its_last(study: Study, tmp_path: Path) -> None:
    out = tmp_path / "out"
    seen: list[State] = []

    def on_run(run: Any, number: int, count: int, job: int) -> Any:
        watched = Watched(out)  # like another process, it has its own descriptor

        def on_trial(one: Trial, replayed: bool) -> None:
            if one.index == 5:
                seen.append(watched.state())

        return on_trial

    study.run(out, on_run)
    assert [statuses(state) for state in seen[:2]] == [
        ["running", "waiting", "waiting", "waiting"],
        ["done", "running", "waiting", "waiting"],
    ]
    first = seen[0]
    assert first.says == "The study is running: 0 of 4 runs are done, 1 is running, 3 are yet to start."
    assert (first.rows[0].trials, first.rows[0].wanted, first.rows[0].strategy) == (4, 12, "random"), (
        "a batch is written"
    )
    assert first.left is not None and first.at_most and first.share == pytest.approx(4 / 12 / 4)
    after = Watched(out).state()
    assert statuses(after) == ["done"] * 4 and after.share == 1 and after.left is None
    assert after.says == "The study is done: all 4 runs are complete."
    assert after.rows[1].problem in ("", "4 trials had brought no gain of more than 1 %") and after.rows[0].best


def test_only_rows_that_changed_are_told_again(study: Study, tmp_path: Path) -> None:
    out = tmp_path / "out"
    study.run(out)
    path = out / study.plan()[0][2].log
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:7]) + lines[7][:20])
    watched = Watched(out)
    first = watched.state()
    assert statuses(first) == ["done", "done", "stopped", "done"] and first.rows[2].trials == 6
    assert first.says == "The study is not running: 3 of 4 runs are done, 1 is stopped."
    assert watched.state(first.version, first.look).rows == []
    path.write_bytes(b"".join(lines))
    then = watched.state(first.version, first.look)
    assert [(row.number, row.status) for row in then.rows] == [(2, "done")] and then.look > first.look
    assert len(watched.state(first.version + 1, then.look).rows) == 4, "of another version, all"


def test_a_study_that_changes_is_followed(study: Study, tmp_path: Path) -> None:
    out = tmp_path / "out"
    study.run(out)
    watched = Watched(out)
    before = watched.state()
    planned(tmp_path, seeds=1, trials=8).run(out)
    now = watched.state(before.version, before.look)
    assert now.version > before.version and now.runs == 2 and statuses(now) == ["done", "done"]
    (out / PLAN).write_text("[]")
    assert "plan.json is damaged" in watched.state().notes[0]


def test_logs_without_a_plan_and_damaged_logs(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "a.jsonl", HEADER) as writer:
        for index in range(3):
            writer.append(trial(index))
        watched = Watched(tmp_path)
        (tmp_path / "b.jsonl").write_text("no log\n")
        state = watched.state()
        assert statuses(state) == ["running", "damaged"] and state.share is None and state.left is None
        assert (state.rows[0].workload, state.rows[0].trials, state.rows[0].wanted) == ("gemm:64x64x64", 3, None)
        assert state.says == "The study is running: 2 logs, 1 is running, 1 is damaged."
        assert "The directory contains no plan (plan.json)" in state.notes[0]
        assert msgspec.json.encode(state)
    (tmp_path / "b.jsonl").unlink()
    after = watched.state(state.version, state.look)
    assert statuses(after) == ["stopped"] and after.runs == 1


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match="does not exist; pass the directory that contains a study's logs"):
        Watched(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(SearchlabError, match="is not a directory"):
        Watched(tmp_path / "file")


def test_a_run_may_begin_while_its_log_is_looked_at(tmp_path: Path) -> None:
    """Checking a lock means holding it for a moment, for which a writer waits."""
    path = tmp_path / "a.jsonl"
    LogWriter(path, HEADER).close()
    for _ in range(50):
        assert not module.is_locked(path)
        with LogWriter(path, HEADER):
            assert module.is_locked(path)


def test_a_thousand_logs_are_looked_at_again_at_once(tmp_path: Path) -> None:
    data = None
    for number in range(1000):
        path = tmp_path / f"{number % 20}" / f"{number}.jsonl"
        path.parent.mkdir(exist_ok=True)
        if data is None:
            with LogWriter(path, HEADER) as writer:
                for index in range(20):
                    writer.append(trial(index))
            data = path.read_bytes()
        path.write_bytes(data)
    watched = Watched(tmp_path)
    assert watched.state().runs == 1000
    spent = []
    for _ in range(3):  # the machine may be busy
        start = time.process_time()
        assert watched.state(1, 1).rows == []
        spent.append(time.process_time() - start)
    assert min(spent) < 1.0
