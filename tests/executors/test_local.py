"""Calls in processes of this machine, and processes that die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import psutil
import pytest

from searchlab.errors import SearchlabError
from searchlab.executors.local import LocalExecutor
from searchlab.measure.process import WorkerDied


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    with LocalExecutor(False, tmp_path, jobs=1) as local_executor:
        yield local_executor


def test_results_and_errors_return_and_dead_workers_are_replaced(executor: LocalExecutor) -> None:
    first = executor.submit(os.getpid)
    error = executor.submit(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        error.result()
    death = executor.submit(os.kill, first.result(), signal.SIGKILL)
    after = executor.submit(os.getpid)
    with pytest.raises(WorkerDied, match="died of SIGKILL"):
        death.result()
    assert after.result() != first.result() != os.getpid()
    executor.shutdown()
    assert not psutil.pid_exists(after.result())
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(os.getpid)


def test_killing_ends_what_runs_and_cancels_what_waits(executor: LocalExecutor) -> None:
    process = executor.submit(os.getpid).result()
    runs, waits = executor.submit(time.sleep, 600), executor.submit(os.getpid)
    while not runs.running():
        time.sleep(0.01)
    executor.kill_workers()
    with pytest.raises(WorkerDied):
        runs.result()
    with pytest.raises(CancelledError):
        waits.result()
    assert not psutil.pid_exists(process)


def test_one_machine_measures_one_run_at_a_time(tmp_path: Path) -> None:
    exclusive = LocalExecutor(True, tmp_path)
    assert exclusive.jobs == 1
    exclusive.shutdown()
    with pytest.raises(SearchlabError, match="2 jobs would disturb each other's timings"):
        LocalExecutor(True, tmp_path, jobs=2)
    with pytest.raises(SearchlabError, match="jobs must be at least 1, or 0 for one per core, not -1"):
        LocalExecutor(False, tmp_path, jobs=-1)
