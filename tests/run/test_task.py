"""A run where another process still writes its log, or measures the same machine."""

from __future__ import annotations

import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from searchlab.errors import RunsFailed
from searchlab.run import task
from searchlab.run.task import machine_alone
from tests.support.executing import decided_in, table_study


def test_a_run_waits_for_a_process_that_still_writes_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was thought lost, and is about to end."""
    study = table_study(tmp_path)
    study.run(tmp_path / "one-by-one")
    study.run(tmp_path / "out")
    log = next((tmp_path / "out").rglob("*.jsonl"))
    log.write_bytes(log.read_bytes()[:-700])
    other = os.open(log, os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    with monkeypatch.context() as patch, pytest.raises(RunsFailed, match="1 of 4 runs failed.*another process is writ"):
        patch.setattr(task, "PATIENCE", 0.0)
        study.run(tmp_path / "out", executor=ThreadPoolExecutor(1))
    threading.Timer(1.0, os.close, (other,)).start()
    study.run(tmp_path / "out", executor=ThreadPoolExecutor(1))
    assert decided_in(tmp_path / "out") == decided_in(tmp_path / "one-by-one")


def test_one_run_measures_a_machine_at_a_time() -> None:
    entered = threading.Event()

    def enter(exclusive: bool) -> None:
        with machine_alone(exclusive):
            entered.set()

    second = threading.Thread(target=enter, args=(True,))
    with machine_alone(True):
        second.start()
        assert not entered.wait(0.3)
        enter(False)  # a table is replayed beside it
        assert entered.is_set()
        entered.clear()
    second.join()
    assert entered.is_set()
