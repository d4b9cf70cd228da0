"""Processes of this machine; one that dies is replaced."""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from ..machine.host import available_cores
from ..machine.scratch import ScratchFolder
from ..measure.process import FreshWorker, Worker, WorkerDied
from ..options import Count
from .contract import RunExecutor, jobs_here

T = TypeVar("T")

_Call = tuple[Future[Any], bytes]


class LocalExecutor(RunExecutor):
    """Processes of this machine, one for each of ``jobs``, or one a core if 0. batch: the most short runs of a call.

    A call whose process dies fails with :class:`~searchlab.measure.process.WorkerDied`, which says how it died; the
    next call gets a new process. The standard library's pool is broken then, and runs a user's script again in each of
    its processes.
    """

    ends_workers = True

    def __init__(self, exclusive: bool, folder: Path, *, jobs: int = 0, batch: Count = 8) -> None:
        self.batch = batch
        self.jobs = jobs_here(jobs, exclusive, available_cores())
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._workers: set[Worker] = set()
        self._lock = threading.Lock()
        self._ends = self._killed = False
        self._cleanup = ExitStack()
        self._scratch = self._cleanup.enter_context(ScratchFolder())  # workers are killed, and cannot clean up

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self._ends:
            raise RuntimeError("the executor was shut down")
        future: Future[T] = Future()
        self._calls.put((future, pickle.dumps((fn, args, kwargs))))
        if len(self._threads) < self.jobs:
            self._threads.append(threading.Thread(target=self._serve, daemon=True))
            self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self._cancel()
        if not self._ends:
            self._ends = True
            for _ in self._threads:
                self._calls.put(None)
        if wait:
            for thread in self._threads:
                thread.join()
            self._cleanup.close()

    def kill_workers(self) -> None:
        """End all processes, and what they do, at once."""
        with self._lock:
            self._killed = True
            for worker in self._workers:
                worker.end()
        self.shutdown(cancel_futures=True)

    def _cancel(self) -> None:
        ends = 0
        with suppress(queue.Empty):
            while True:
                call = self._calls.get_nowait()
                if call is None:
                    ends += 1
                else:
                    call[0].cancel()
        for _ in range(ends):
            self._calls.put(None)

    def _serve(self) -> None:
        """Have the calls made, one after the other, by one process: it ends with the thread that has started it."""
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
                raise WorkerDied("was ended")
            threads = max(1, available_cores() // self.jobs)
            worker = FreshWorker(threads, self._scratch, module="searchlab.executors.process")
            self._workers.add(worker)
        return worker

    def _drop(self, worker: Worker | None) -> None:
        if worker is not None:
            with self._lock:
                self._workers.remove(worker)
            worker.kill()
