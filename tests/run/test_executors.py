"""Runs on executors have the same logs as consecutive runs, even if workers are lost."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from searchlab.errors import RunsFailed, SearchlabError
from searchlab.executors.contract import RunExecutor
from searchlab.log.read import read_log
from searchlab.machine.scratch import ScratchFolder
from searchlab.run.study import Study
from tests.support.cli import searchlab
from tests.support.executing import Elsewhere, Refuses, read_deterministic_parts, table_study
from tests.support.logs import read_deterministic_part

BAD = {"name": "tests.support.failing:BadPolicy", "options": {"how": "ask"}}


@pytest.fixture
def one_by_one(tmp_path: Path) -> dict[str, Any]:
    table_study(tmp_path).run(tmp_path / "one-by-one")
    return read_deterministic_parts(tmp_path / "one-by-one")


@pytest.mark.parametrize("executor", ["local", "threads", "elsewhere"])
def test_an_executor_changes_nothing_in_a_replay(tmp_path: Path, one_by_one: dict[str, Any], executor: str) -> None:
    """A pool of threads, since any executor of the standard library is accepted."""
    executors: dict[str, Executor | None] = {
        "local": None,
        "threads": ThreadPoolExecutor(2),
        "elsewhere": Elsewhere(),
    }
    calls: list[tuple[int, int]] = []
    study, selected = table_study(tmp_path), executors[executor]
    jobs = 2 if selected is None else None
    results = study.run(
        tmp_path / "out",
        lambda run, number, *_: lambda trial, replayed: calls.append((number, trial.index)),
        jobs,
        executor=selected,
    )
    assert read_deterministic_parts(tmp_path / "out") == one_by_one and len(one_by_one) == 4
    assert [result.log.path for result in results] == [tmp_path / "out" / run.log_path for run in study.plan().runs]
    assert sorted(calls) == [(number, index) for number in (1, 2, 3, 4) for index in range(12)]
    assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.parametrize("executor", ["local", "elsewhere"])
def test_a_run_continues_from_its_log(tmp_path: Path, one_by_one: dict[str, Any], executor: str) -> None:
    """One log lacks its last batch and a half, one was torn in its header, one is complete."""
    out = shutil.copytree(tmp_path / "one-by-one", tmp_path / "out")
    cut, torn, complete, absent = sorted(out.rglob("*.jsonl"))
    cut.write_bytes(cut.read_bytes()[:-700])
    torn.write_bytes(torn.read_bytes()[:20])
    absent.unlink()
    before = complete.stat().st_mtime_ns
    replayed: list[bool] = []
    selected: Any = {"local": {"name": "local", "options": {"jobs": 2}}, "elsewhere": Elsewhere()}[executor]
    table_study(tmp_path).run(
        out, lambda run, *_: lambda trial, old: replayed.append(old) if run.log_path == cut else None, executor=selected
    )
    assert read_deterministic_parts(out) == one_by_one and complete.stat().st_mtime_ns == before
    assert replayed.count(True) + replayed.count(False) == 12 and 0 < replayed.count(True) < 12


def test_a_log_is_discarded_that_its_worker_does_not_see(tmp_path: Path) -> None:
    """The worker replays the log and finds that the policy now proposes other configs."""
    table_study(tmp_path, trials=16).run(tmp_path / "expected")
    table_study(tmp_path).run(tmp_path / "out")
    log = next((tmp_path / "out").rglob("random/seed0.jsonl"))
    lines = log.read_text().splitlines()
    lines[6] = lines[6].replace('"unroll":', '"unroll":1')
    log.write_text("\n".join(lines) + "\n")
    table_study(tmp_path, trials=16).run(tmp_path / "out", executor=Elsewhere(), discard=True)
    assert read_deterministic_parts(tmp_path / "out") == read_deterministic_parts(tmp_path / "expected")
    assert [path.name for path in log.parent.glob("*.discarded-*")] == ["seed0.jsonl.discarded-1"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_fails_does_not_end_the_others(tmp_path: Path, jobs: int) -> None:
    study = table_study(tmp_path, policies=["grid", BAD, "random"])
    with pytest.raises(RunsFailed, match=r"2 of 6 runs failed\. .*BadPolicy.*failed in ask: ValueError") as caught:
        study.run(tmp_path / "out", jobs=jobs)
    assert [log.name for log in caught.value.reasons] == ["seed0.jsonl", "seed1.jsonl"]
    assert "and 1 more: policy" in str(caught.value)
    complete = [log for log in (tmp_path / "out").rglob("*.jsonl") if len(read_log(log).records) == 12]
    assert len(complete) == 4
    contents = read_deterministic_parts(tmp_path / "out")
    with pytest.raises(RunsFailed):
        study.run(tmp_path / "out", jobs=jobs)
    assert read_deterministic_parts(tmp_path / "out") == contents


def test_the_command_line_reports_complete_runs_and_exits_with_1(tmp_path: Path) -> None:
    table_study(tmp_path)
    (tmp_path / "study.toml").write_text(
        "workloads = ['gemm:64x64x64']\nspaces = ['searchlab.conformance.toys:Small']\nseeds = 2\ntrials = 12\n"
        "policies = ['grid', { name = 'tests.support.failing:BadPolicy', options = { how = 'ask' } }]\n"
        "target = { kind = 'llvm' }\nmeasure = { kind = 'table', path = 'table.jsonl' }\n"
        "executor = { name = 'local', options = { jobs = 2 } }\n"
    )
    result = searchlab("run", tmp_path / "study.toml", "--out", tmp_path / "out")
    assert result.returncode == 1 and (tmp_path / "out" / "report" / "report.html").is_file()
    *_, line = result.stderr.splitlines()  # earlier lines report slow steps
    assert line.startswith("error: 2 of 4 runs failed.") and "failed in ask: ValueError" in line


def test_a_damaged_log_is_one_runs_failure(tmp_path: Path) -> None:
    """The log is damaged after it was checked."""

    class Damages(Elsewhere):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            if not log.exists():
                log.parent.mkdir(parents=True, exist_ok=True)
                log.write_text("no log\n")
            return super().submit(fn, *args, **kwargs)

    study = table_study(tmp_path, policies=["random"])
    log = tmp_path / "out" / study.plan().runs[1].log_path
    with pytest.raises(RunsFailed, match=r"1 of 2 runs failed\. .*seed1\.jsonl is not a searchlab log"):
        study.run(tmp_path / "out", executor=Damages())
    assert log.read_text() == "no log\n"


@pytest.mark.parametrize("shares_logs", [False, True])
def test_logs_travel_only_if_no_directory_is_shared(tmp_path: Path, shares_logs: bool) -> None:
    has_travelled: list[bool] = []

    class Direct(RunExecutor):
        def __init__(self) -> None:
            self.shares_logs = shares_logs

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            has_travelled.extend(log is not None for log in args[-1])
            future: Future[Any] = Future()
            future.set_result(fn(*args, **kwargs))
            return future

    study = table_study(tmp_path, policies=["random"], seeds=1)
    study.run(tmp_path / "out")
    log = tmp_path / "out" / study.plan().runs[0].log_path
    complete_log = read_deterministic_part(log)
    log.write_bytes(log.read_bytes()[:-700])
    study.run(tmp_path / "out", executor=Direct())
    assert has_travelled == [not shares_logs]
    assert read_deterministic_part(log) == complete_log


@pytest.mark.parametrize("executor", ["local", "elsewhere"])
def test_a_log_of_another_run_is_refused(tmp_path: Path, executor: str) -> None:
    study = table_study(tmp_path, policies=["random"], seeds=1)
    log = tmp_path / "out" / study.plan().runs[0].log_path
    log.parent.mkdir(parents=True)
    study.run(tmp_path / "out")
    changed = table_study(tmp_path, policies=["random"], seeds=1, batch=3)
    with pytest.raises(SearchlabError, match="its batch is 4, not 3"):
        changed.run(tmp_path / "out", executor=executor if executor == "local" else Elsewhere())
    assert read_log(log).header.batch == 4


def test_an_interrupt_ends_all_and_leaves_no_process(tmp_path: Path, one_by_one: dict[str, Any]) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}

    def interrupt(*_: object) -> object:
        return lambda *_: os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        table_study(tmp_path).run(tmp_path / "out", interrupt, jobs=2)  # type: ignore[arg-type]
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    table_study(tmp_path).run(tmp_path / "out")
    assert read_deterministic_parts(tmp_path / "out") == one_by_one


def test_a_process_that_is_killed_costs_its_run_a_restart(tmp_path: Path) -> None:
    study = table_study(tmp_path, policies=["random", dying_policy(tmp_path, 2)])
    study.run(tmp_path / "out", jobs=2)
    assert len(list((tmp_path / "marks").iterdir())) == 2
    study.run(tmp_path / "one-by-one")
    assert read_deterministic_parts(tmp_path / "out") == read_deterministic_parts(tmp_path / "one-by-one")


def test_a_run_that_kills_its_process_each_time_fails_alone(tmp_path: Path) -> None:
    study = table_study(tmp_path, policies=["random", dying_policy(tmp_path, 99)], seeds=1)
    with pytest.raises(RunsFailed, match=r"1 of 2 runs failed.*its worker was lost: WorkerDied: died of SIGKILL; run"):
        study.run(tmp_path / "out", jobs=2)
    assert sorted(len(read_log(log).records) for log in (tmp_path / "out").rglob("*.jsonl")) == [4, 12]


def dying_policy(folder: Path, times: int) -> dict[str, Any]:
    (folder / "marks").mkdir()
    options = {"marks": str(folder / "marks"), "times": times}
    return {"name": "tests.support.executing:Dies", "label": "dies", "options": options}


def test_runs_that_measure_are_submitted_one_at_a_time(tmp_path: Path) -> None:
    study = Study.from_dict(
        {"workloads": ["gemm:8x8x8"], "spaces": ["knob-template"], "policies": ["random"], "seeds": 4}
    )
    executor = Refuses()
    with pytest.raises(RunsFailed, match="4 of 4 runs failed"):
        study.run(tmp_path, executor=executor)
    assert executor.most == 1
    with pytest.raises(SearchlabError, match="on this machine, where 2 jobs would disturb each other"):
        study.run(tmp_path, executor="local", jobs=2)


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        ("lokal", "unknown executor 'lokal'; did you mean 'local'"),
        ({"name": "local", "options": {"job": 2}}, "executor 'local' has no option 'job'; did you mean 'jobs'"),
        ("searchlab.errors:SearchlabError", "is not a searchlab.RunExecutor"),
        ("local://here", "executor 'local' has no option 'address'"),
    ],
)
def test_a_wrong_executor_is_one_sentence(tmp_path: Path, executor: Any, message: str) -> None:
    with pytest.raises(SearchlabError, match=message):
        table_study(tmp_path).run(tmp_path / "out", executor=executor)


class Counts(RunExecutor):
    """Calls functions immediately, and counts the runs of each call."""

    jobs, batch = 1, 3

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.sizes.append(len(args[2]))
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.parametrize(("seeds", "sizes"), [(1, [1, 1]), (2, [2, 2]), (4, [3, 3, 2])])
def test_short_runs_travel_together_unless_they_are_few(tmp_path: Path, seeds: int, sizes: list[int]) -> None:
    table_study(tmp_path, seeds=seeds).run(tmp_path / "out", executor=(counts := Counts()))
    assert counts.sizes == sizes and len(read_deterministic_parts(tmp_path / "out")) == 2 * seeds


class Late(RunExecutor):
    """Executes runs immediately, one after the other, and completes 1.2 s later, after the logs have been read."""

    jobs, one_per_machine = 1, True

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        threading.Timer(1.2, future.set_result, [fn(*args, **kwargs)]).start()
        return future


def test_a_run_that_waited_for_a_job_is_reported_with_that_job(tmp_path: Path) -> None:
    """The logs of both runs exist before the first has completed."""
    study = Study.from_dict(
        {
            "workloads": ["gemm:16x16x16"],
            "spaces": ["knob-template"],
            "policies": ["random"],
            "seeds": 2,
            "trials": 1,
            "batch": 1,
            "measure": {"kind": "local", "repeat": 1},
        },
    )
    calls: list[tuple[int, int]] = []
    study.run(tmp_path, lambda run, number, count, job: calls.append((number, job)), executor=Late(True, tmp_path))
    assert calls == [(1, 0), (2, 0)]


def test_only_the_files_of_a_killed_study_are_removed(tmp_path: Path) -> None:
    dead = tmp_path / ".shared-dead"
    dead.mkdir()
    live = ScratchFolder(str(tmp_path), ".shared-")
    table_study(tmp_path).run(tmp_path, jobs=2)
    assert not dead.exists() and Path(live.name).is_dir()
    live.cleanup()
    assert not list(tmp_path.glob(".shared-*"))
