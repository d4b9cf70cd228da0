"""Only one process at a time measures a machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import searchlab
from searchlab.errors import SearchlabError
from searchlab.machine import lock
from searchlab.machine.lock import LOCK_VARIABLE, MachineLock, lock_machine, lock_path

HOLDER = """
import sys
from searchlab.machine.lock import lock_machine
with lock_machine():
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(LOCK_VARIABLE, str(tmp_path / "lock"))
    monkeypatch.setattr(lock, "MACHINE", MachineLock())
    monkeypatch.setattr("searchlab.measure.contract.MACHINE", lock.MACHINE)
    monkeypatch.setattr(lock, "SILENT_WAIT_SECONDS", 0.2)
    monkeypatch.setattr(lock, "POLL_SECONDS", 0.05)
    return tmp_path / "lock"


@contextmanager
def locking_process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"locked\n"
        yield process
        process.kill()


def test_a_waiting_process_names_the_owner_of_the_lock_once() -> None:
    text: list[str] = []
    with locking_process() as process:
        threading.Timer(0.6, process.kill).start()
        with lock_machine(False, text.append):
            assert not text
        with lock_machine(True, text.append):
            assert process.wait() != 0  # a killed process no longer holds it
    assert len(text) == 1 and f"process {process.pid} of" in text[0]


def test_tune_waits_for_a_process_that_measures(tmp_path: Path) -> None:
    text: list[str] = []
    with locking_process() as process, warnings.catch_warnings():
        warnings.simplefilter("always")

        def end_holder(message: Warning | str, *_: object) -> None:
            text.append(str(message))
            if "process" in text[-1] and str(process.pid) in text[-1]:
                process.kill()

        warnings.showwarning = end_holder  # type: ignore[assignment]
        searchlab.tune(
            "gemm:8x8x8",
            space="knob-template",
            policy="random",
            log=tmp_path / "log.jsonl",
            trials=1,
            measure={"kind": "local", "repeat": 1, "min_repeat_ms": 0, "check": False},
        )
        assert process.poll() is not None
    with lock_machine(report=pytest.fail):
        pass  # the lock is free again


def test_the_lock_can_be_acquired_again_in_the_process(path: Path) -> None:
    with lock_machine(report=pytest.fail), lock_machine(report=pytest.fail):
        pass
    assert f"process {os.getpid()} of" in path.read_text()


def test_a_forked_process_does_not_hold_the_lock() -> None:
    with lock_machine():
        child = os.fork()
        if not child:
            lock.MACHINE.forget()  # as the module's own lock does
            threading.Event().wait(20)
            os._exit(0)
    try:
        with locking_process():
            pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "two names", "no directory"])
def test_only_a_regular_file_can_be_the_lock(path: Path, kind: str, tmp_path: Path) -> None:
    (target := tmp_path / "other").write_text("content")
    match kind:
        case "link":
            path.symlink_to(target)
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "two names":
            path.hardlink_to(target)
        case "no directory":
            os.environ[LOCK_VARIABLE] = str(tmp_path / "missing" / "lock")
    with pytest.raises(SearchlabError, match="cannot use .*lock"), lock_machine():
        pass
    assert target.read_text() == "content"


def test_by_default_each_user_has_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOCK_VARIABLE)
    assert str(os.getuid()) in str(lock_path()) and lock_path().parent.stat().st_mode & 0o77 == 0
    monkeypatch.setattr(os, "getuid", lambda: 12345678901)
    with pytest.raises(SearchlabError, match="another user"):
        lock_path()
    os.rmdir("/tmp/searchlab-12345678901")
