"""The fork server: its workers behave as if each had just been started on its own."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from searchlab.errors import SearchlabError
from searchlab.measure import process
from searchlab.measure.messages import Broken, SetUpBuilder, Started
from searchlab.measure.process import MeasuringWorker, WorkerDied
from tests.support.cli import run_python


class Says:
    """Unpickling it raises an error whose text is the value of ``expression``."""

    def __init__(self, expression: str) -> None:
        self.expression = f"(_ for _ in ()).throw(ValueError({expression}))"

    def __reduce__(self) -> tuple[object, ...]:
        return eval, (f"next({self.expression})",)


def evaluate(worker: MeasuringWorker, expression: str) -> str:
    worker.send(SetUpBuilder(pickle.dumps(Says(expression)), "the space"))
    answer = worker.recv(Broken)
    return answer.text.removeprefix("ValueError: ")


def start_worker(threads: int = 1, scratch: str = "") -> MeasuringWorker:
    worker = MeasuringWorker(threads, scratch)
    assert os.getpgid(worker.pid) == worker.pid  # from the start, so that it can be killed
    assert worker.recv(Started) == Started()
    return worker


@pytest.fixture
def worker() -> Iterator[MeasuringWorker]:
    worker = start_worker()
    yield worker
    worker.close()


def test_a_worker_has_the_surroundings_of_the_moment(
    worker: MeasuringWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``worker`` makes sure that the fork server is older than the changes."""
    removed = tmp_path / "gone"
    removed.mkdir()
    monkeypatch.setenv("SEARCHLAB_TEST", "new")
    monkeypatch.delenv("PATH")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "written_since.py").write_text("ANSWER = 42")
    later = start_worker(threads=2, scratch=str(tmp_path))
    names = "SEARCHLAB_TEST", "PATH", "TMPDIR", "TVM_NUM_THREADS", "OMP_NUM_THREADS"
    got = evaluate(later, f"[__import__('os').environ.get(name) for name in {names}]")
    assert got == str(["new", None, str(tmp_path), "2", "2"])
    assert evaluate(later, "__import__('os').getcwd()") == str(tmp_path)
    assert evaluate(later, "__import__('written_since').ANSWER") == "42"
    assert evaluate(later, "__import__('sys').path") == str(sys.path)
    assert evaluate(later, "__import__('os').getpgid(0) == __import__('os').getpid()") == "True"
    later.close()
    os.chdir(removed)
    removed.rmdir()
    nowhere = start_worker()
    nowhere.close()
    assert evaluate(worker, "__import__('os').environ.get('SEARCHLAB_TEST')") == "None"


def test_blas_has_as_many_threads_as_the_worker() -> None:
    threads = "max(each['num_threads'] for each in __import__('threadpoolctl').threadpool_info())"
    for number in (1, 2):
        worker = start_worker(number)
        assert evaluate(worker, threads) == str(number)
        worker.close()


def test_the_error_says_how_a_worker_ended(worker: MeasuringWorker) -> None:
    worker.send(SetUpBuilder(pickle.dumps(Says("__import__('os')._exit(7)")), "the space"))
    with pytest.raises(WorkerDied, match="ended with exit code 7"):
        worker.recv(Started)
    assert not worker.is_alive and worker._process.exit and worker._process.exit.peak_memory_mb > 10


def test_a_killed_fork_server_is_replaced_with_its_workers(worker: MeasuringWorker) -> None:
    server = psutil.Process(worker.pid).parent()
    assert server and "searchlab.measure.forks" in server.cmdline()
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="died of SIGKILL"):
        worker.recv(Started)
    assert not worker.is_alive
    again = start_worker()
    assert psutil.Process(again.pid).parent() != server
    again.close()


def test_who_asks_while_another_was_interrupted_gets_a_worker(
    worker: MeasuringWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C arrives after the message has been sent and before the answer is received."""
    send = process.socket.send_fds

    def interrupted(*words: object) -> int:
        send(*words)
        raise KeyboardInterrupt

    monkeypatch.setattr(process.socket, "send_fds", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_worker()
    monkeypatch.undo()
    first, second = start_worker(), start_worker()
    assert len({worker.pid, first.pid, second.pid}) == 3
    for each in (first, second):
        each.close()


def test_many_threads_ask_at_once() -> None:
    workers: list[MeasuringWorker] = []
    asking = [threading.Thread(target=lambda: workers.append(start_worker())) for _ in range(6)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert len({worker.pid for worker in workers}) == 6 and all(worker.is_alive for worker in workers)
    for worker in workers:
        worker.close()
        assert not psutil.pid_exists(worker.pid)


def test_a_fork_of_this_process_has_a_server_of_its_own(worker: MeasuringWorker) -> None:
    server = psutil.Process(worker.pid).parent()
    assert server
    child = os.fork()
    if child == 0:
        try:
            own_worker = start_worker()
            os._exit(psutil.Process(own_worker.pid).ppid() == server.pid)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert evaluate(worker, "1 + 1") == "2"


def test_a_broken_tvm_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "tvm.py").write_text("raise ImportError('this TVM is half a TVM')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from tests.measure.test_forks import print_refusal\nprint_refusal()"
    )
    result = run_python("-c", code)
    assert (
        result.stdout.strip()
        == "cannot start a measuring process: ImportError: this TVM is half a TVM; check your TVM installation"
    )


def print_refusal() -> None:
    try:
        MeasuringWorker(1)
    except SearchlabError as error:
        print(error)
