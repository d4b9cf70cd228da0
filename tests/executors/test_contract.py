"""The contract of RunExecutor, for the executor that needs no cluster; files of the others run studies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from searchlab import RunExecutor, Study
from searchlab.executors.contract import EXECUTORS, start_executor
from searchlab.plugins import Plugin

STUDY = {"suite": "v1/gemm-64x64x64-trace-1t", "policies": ["random"], "trials": 8, "seeds": 2}
"""A study over a recorded table, which measures nothing."""


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunExecutor]:
    with start_executor(Plugin("local", {"jobs": 2}), False, tmp_path_factory.mktemp("executor")) as executor:
        yield executor


def join(number: int, *, word: str) -> str:
    return f"{number} {word}"


def fail(text: str) -> None:
    raise LookupError(text)


def test_its_attributes_are_valid(executor: RunExecutor) -> None:
    assert type(executor.jobs) is int and executor.jobs == 2
    assert type(executor.batch) is int and executor.batch >= 1
    for flag in (executor.one_per_machine, executor.ends_workers, executor.shares_logs):
        assert type(flag) is bool


def test_each_future_gets_the_result_of_its_call(executor: RunExecutor) -> None:
    futures: list[Future[str]] = [executor.submit(join, number, word="a") for number in range(6)]
    assert [future.result(60) for future in futures] == [join(number, word="a") for number in range(6)]


def test_an_error_ends_only_its_own_call(executor: RunExecutor) -> None:
    failed = executor.submit(fail, "why")
    with pytest.raises(LookupError, match="why"):
        failed.result(60)
    assert executor.submit(join, 1, word="a").result(60) == "1 a"


def test_a_lost_worker_ends_only_its_own_call(executor: RunExecutor) -> None:
    with pytest.raises(Exception, match="exit"):
        executor.submit(os._exit, 3).result(60)
    assert executor.submit(join, 1, word="a").result(60) == "1 a"


def test_shutdown_waits_for_all_calls(tmp_path: Path) -> None:
    executor = EXECUTORS.make(Plugin("local", {"jobs": 1}), False, tmp_path)
    futures = [executor.submit(time.sleep, 0.1) for _ in range(2)]
    executor.shutdown()
    assert all(future.done() and future.exception() is None for future in futures)
    with pytest.raises(RuntimeError):
        executor.submit(time.sleep, 0.1)


def test_killing_workers_leaves_no_call_pending(tmp_path: Path) -> None:
    executor = EXECUTORS.make(Plugin("local", {"jobs": 1}), False, tmp_path)
    futures = [executor.submit(time.sleep, 30) for _ in range(3)]
    executor.kill_workers()
    deadline = time.monotonic() + 8
    while not all(future.done() for future in futures) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(future.done() for future in futures)


def test_a_study_has_the_same_trials_with_an_executor(executor: RunExecutor, tmp_path: Path) -> None:
    study = Study.from_dict(STUDY)
    in_process = study.run(tmp_path / "in-process", progress=False)
    on_executor = study.run(tmp_path / "on-executor", executor=executor, progress=False)
    for expected_run, run in zip(in_process, on_executor, strict=True):
        assert [(trial.config, trial.cost) for trial in expected_run.trials] == [
            (trial.config, trial.cost) for trial in run.trials
        ]
