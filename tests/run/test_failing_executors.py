"""Executors that fail: each run's failure is one sentence, and no exception ends the study silently."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from searchlab.errors import RunsFailed, SearchlabError
from searchlab.executors.contract import RunExecutor, parse_executor
from tests.support.executing import read_deterministic_parts, table_study


class OddFuture(Future[Any]):
    def exception(self, timeout: float | None = None) -> BaseException | None:
        raise KeyError("odd")


class Fails(RunExecutor):
    """An executor that fails as specified by ``how``; its first call succeeds."""

    jobs = 1

    def __init__(self, how: str) -> None:
        self.how = how
        self.calls = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        future: Future[Any] = Future()
        if self.calls == 1:
            future.set_result(fn(*args, **kwargs))
            return future
        match self.how:
            case "raises":
                raise BaseException("no")
            case "leaves":
                raise SystemExit(0)
            case "no future":
                return 3
            case "future leaves":
                future.set_exception(SystemExit(0))
            case "future is interrupted":
                future.set_exception(KeyboardInterrupt())
            case "future is cancelled":
                future.cancel()
                future.set_running_or_notify_cancel()
            case "wrong result":
                future.set_result([None])
            case "no result":
                future.set_result(None)
            case "odd future":
                future = OddFuture()
                future.set_result([])
        return future


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", "failed in submit"),
        ("leaves", "SystemExit"),
        ("no future", "instead of a concurrent.futures.Future"),
        ("future leaves", "lost: SystemExit"),
        ("future is interrupted", "lost: KeyboardInterrupt"),
        ("future is cancelled", "lost: CancelledError"),
        ("wrong result", "did not return the result"),
        ("no result", "did not return the result"),
        ("odd future", "failed in submit: KeyError"),
    ],
)
def test_a_failing_executor_is_named_and_complete_runs_are_kept(tmp_path: Path, how: str, message: str) -> None:
    study = table_study(tmp_path)
    with pytest.raises(RunsFailed, match=f"3 of 4 runs failed.*{message}"):
        study.run(tmp_path / "out", executor=Fails(how), progress=False)
    assert len(read_deterministic_parts(tmp_path / "out")) == 1


@pytest.mark.parametrize("jobs", ["many", None])
def test_a_wrong_number_of_jobs_is_one_sentence(tmp_path: Path, jobs: Any) -> None:
    executor = Fails("")
    executor.jobs = jobs
    with pytest.raises(SearchlabError, match="Fails' failed in jobs"):
        table_study(tmp_path).run(tmp_path / "out", executor=executor, progress=False)


def test_an_empty_address_starts_no_cluster() -> None:
    with pytest.raises(SearchlabError, match="'dask://' has no address"):
        parse_executor("dask://")
