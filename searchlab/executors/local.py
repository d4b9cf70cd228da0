"""Processes of this machine; ``python -m searchlab.executors.local`` is one of them."""

from __future__ import annotations

import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from ..machine.host import available_cores
from ..machine.scratch import ScratchFolder
from ..measure.isolation import die_with
from ..measure.process import Channel, Environment, Worker, WorkerDied, start_module
from ..options import Count
from .contract import GuardedExecutor, jobs_here


class LocalExecutor(GuardedExecutor):
    """Processes of this machine.

    A call whose process dies fails with :class:`~searchlab.measure.process.WorkerDied`, which says how the process
    died; the next call gets a new process. The pool of the standard library would be broken by then, and it runs a
    user's script again in each of its processes.

    Args:
        jobs: The number of processes; one per core if 0.
        batch: The maximum number of short runs per call.
    """

    ends_workers = True

    def __init__(self, exclusive: bool, folder: Path, *, jobs: int = 0, batch: Count = 8) -> None:
        super().__init__()
        self.batch = batch
        self.jobs = jobs_here(jobs, exclusive, available_cores())
        self._calls: queue.SimpleQueue[tuple[Future[Any], bytes] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._workers: set[Worker] = set()
        self._killed = False
        self._scratch = ScratchFolder()  # workers are killed and cannot clean up

    def _submit(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.put((future, pickle.dumps((fn, args, kwargs))))
        if len(self._threads) < self.jobs:
            self._threads.append(threading.Thread(target=self._serve, daemon=True))
            self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._refuse()
        if cancel_futures:
            with suppress(queue.Empty):
                while True:
                    if call := self._calls.get_nowait():
                        call[0].cancel()
        for _ in self._threads:
            self._calls.put(None)
        if wait:
            for thread in self._threads:
                thread.join()
            self._scratch.cleanup()

    def kill_workers(self) -> None:
        """Kill all processes and everything that runs in them."""
        with self._lock:
            self._killed = True
            for worker in self._workers:
                worker.end()
        self.shutdown(cancel_futures=True)

    def _serve(self) -> None:
        """Make calls, one after the other, in one process, which ends with the thread that has started it."""
        worker: Worker | None = None
        while (call := self._calls.get()) is not None:
            future, data = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                worker = worker or self._start()
                worker.send(data)
                result, error = pickle.loads(worker.recv_bytes())
            except WorkerDied as death:
                self._drop(worker)
                worker = None
                future.set_exception(death)
            except BaseException as failure:  # no process can be started
                future.set_exception(failure)
            else:
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
        self._drop(worker)

    def _start(self) -> Worker:
        with self._lock:
            if self._killed:
                raise WorkerDied("was killed")
            worker = _Process(max(1, available_cores() // self.jobs), self._scratch.name)
            self._workers.add(worker)
        return worker

    def _drop(self, worker: Worker | None) -> None:
        if worker is not None:
            with self._lock:
                self._workers.remove(worker)
            worker.kill()


class _Process(Worker):
    def _start(self, connection: int, stderr: BinaryIO, environment: Environment) -> subprocess.Popen[bytes]:
        return start_module("searchlab.executors.local", connection, stderr, environment)


def main() -> None:
    channel = Channel(int(sys.argv[1]), Worker.longest)
    die_with(int(sys.argv[2]))
    while True:
        try:
            call: bytes = pickle.loads(channel.recv())
        except EOFError:
            return
        try:
            fn, args, kwargs = pickle.loads(call)
            answer = pickle.dumps((fn(*args, **kwargs), None))
        except Exception as error:
            try:
                pickle.loads(answer := pickle.dumps((None, error)))
            except Exception:  # an error that cannot be pickled
                answer = pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
        channel.send(answer)


if __name__ == "__main__":
    main()
