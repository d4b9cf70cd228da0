"""Runs while another process still writes their log, or measures the same machine."""

from __future__ import annotations

import fcntl
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import cloudpickle
import msgspec
import pytest

from searchlab.errors import RunsFailed, SearchlabError
from searchlab.log.writer import LogWriter
from searchlab.machine.host import describe_machine
from searchlab.measure.local import LocalSettings
from searchlab.run import dispatch
from searchlab.run.dispatch import RunOutcome, StudyContext, execute_in_worker
from searchlab.run.open import MeasurerCache
from searchlab.run.plan import Run
from searchlab.run.study import Study
from tests.support.executing import read_deterministic_parts, table_study
from tests.support.logs import make_record


def test_a_run_waits_for_a_process_that_still_writes_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was thought lost, and is about to end."""
    study = table_study(tmp_path)
    study.run(tmp_path / "one-by-one")
    study.run(tmp_path / "out")
    log = next((tmp_path / "out").rglob("*.jsonl"))
    log.write_bytes(log.read_bytes()[:-700])
    descriptor = os.open(log, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with monkeypatch.context() as patch, pytest.raises(RunsFailed, match="1 of 4 runs failed.*another process is writ"):
        patch.setattr(dispatch, "BUSY_LOG_TIMEOUT", 0.0)
        study.run(tmp_path / "out", executor=ThreadPoolExecutor(1))
    threading.Timer(1.0, os.close, (descriptor,)).start()
    study.run(tmp_path / "out", executor=ThreadPoolExecutor(1))
    assert read_deterministic_parts(tmp_path / "out") == read_deterministic_parts(tmp_path / "one-by-one")


@pytest.mark.parametrize(("keeps_workers", "failing", "count"), [(False, "", 3), (True, "", 1), (True, "it failed", 3)])
def test_a_measurer_that_ends_with_its_executor_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_workers: bool, failing: str, count: int
) -> None:
    measurers: list[object] = []
    closed: list[object] = []

    class Measures:
        def __init__(self, *_: object) -> None:
            measurers.append(self)

        def close(self) -> None:
            closed.append(self)

    def end_run(run: Run, _: object, measurers: MeasurerCache) -> RunOutcome:
        measurers.for_run(run)
        return RunOutcome(traceback_text=failing)

    monkeypatch.setattr(LocalSettings, "make", Measures)
    monkeypatch.setattr(dispatch, "_search_when_free", end_run)
    (run, *_), _ = table_study(tmp_path).plan()
    runs = [replace(run, log_path=tmp_path / f"{number}.jsonl", settings=LocalSettings()) for number in range(3)]
    context = StudyContext(
        f"{keeps_workers}{failing}", tmp_path, pickle.dumps({}), False, keeps_workers, describe_machine()
    )
    for next_run in runs:
        assert execute_in_worker(context, cloudpickle.dumps([next_run]), [None]) == [RunOutcome(traceback_text=failing)]
    assert len(measurers) == count and closed == measurers[: count - (keeps_workers and not failing)]
    execute_in_worker(replace(context, study_id="the next"), cloudpickle.dumps([]), [])


@pytest.mark.parametrize("same_host", [True, False])
def test_programs_are_known_only_on_the_host_that_ran_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_host: bool
) -> None:
    """A study that goes on where another machine began it, in workers."""
    study = Study.from_dict(
        {"workloads": ["gemm:8x8x8"], "spaces": ["knob-template"], "policies": ["random"], "seeds": 2}
    )
    run = study.plan().runs[0]
    header = run.header
    header = header if same_host else msgspec.structs.replace(header, host={"cpu": "Another CPU"})
    (tmp_path / run.log_path).parent.mkdir(parents=True)
    with LogWriter(tmp_path / run.log_path, header) as writer:
        writer.append(make_record(0))
    programs: list[set[str]] = []

    def make(settings: object, target: object, measurements: dict[str, object], base: Path) -> None:
        programs.append(set(measurements))
        raise SearchlabError("nothing is measured")

    monkeypatch.setattr(LocalSettings, "make", make)
    with pytest.raises(RunsFailed):
        study.run(tmp_path, executor=ThreadPoolExecutor(1), progress=False)
    assert programs == [{"ab"} if same_host else set()] * 2
