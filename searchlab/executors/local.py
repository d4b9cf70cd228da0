"""The executor that uses local processes, each of which is started as ``python -m searchlab.executors.local``."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from ..machine.host import available_cores
from ..machine.scratch import ScratchFolder
from ..measure.channel import Channel
from ..measure.isolation import die_with_parent
from ..measure.process import Environment, Worker, WorkerDied, start_module
from ..options import Count
from .contract import RunExecutor, count_jobs

T = TypeVar("T")


class LocalExecutor(RunExecutor):
    """Executes runs in local processes.

    If a call's process dies, the call fails with :class:`~searchlab.measure.process.WorkerDied`, which says how the
    process died, and the next call gets a new process. By contrast, a ``ProcessPoolExecutor`` could then no longer be
    used, and it would run the user's script again in each of its processes.

    Args:
        jobs: The number of processes, or 0 for one per core.
        batch: The maximum number of short runs per call.
    """

    ends_workers = True
    shares_logs = True

    def __init__(self, exclusive: bool, folder: Path, *, jobs: int = 0, batch: Count = 8) -> None:
        self.batch = batch
        self.jobs = count_jobs(jobs, exclusive)
        self._thread_pool = ThreadPoolExecutor(self.jobs)  # Linux kills a process when the thread that started it ends
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._idle_workers: list[Worker] = []
        self._is_killed = False
        self._scratch_folder = ScratchFolder()  # removed by this process, since workers are killed and cannot clean up

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._thread_pool.submit(self._call_in_process, pickle.dumps((fn, args, kwargs)))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._thread_pool.shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            for worker in self._workers:
                worker.close()
            self._scratch_folder.cleanup()

    def kill_workers(self) -> None:
        """Kill all processes and the calls in them."""
        self._thread_pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._is_killed = True
            for worker in self._workers:
                worker.kill()
        self.shutdown()

    def _call_in_process(self, call_bytes: bytes) -> Any:
        with self._lock:
            if self._is_killed:
                raise WorkerDied("was killed")
            if not self._idle_workers:
                self._idle_workers.append(
                    _LocalWorker(max(1, available_cores() // self.jobs), self._scratch_folder.name)
                )
                self._workers.add(self._idle_workers[-1])
            worker = self._idle_workers.pop()
        try:
            worker.send(call_bytes)
            result, error = pickle.loads(worker.recv_bytes())
        except BaseException:
            with self._lock:
                self._workers.remove(worker)
            worker.close()
            raise
        self._idle_workers.append(worker)
        if error is not None:
            raise error
        return result


class _LocalWorker(Worker):
    def _start_process(self, connection_fd: int, stderr: BinaryIO, environment: Environment) -> subprocess.Popen[bytes]:
        return start_module("searchlab.executors.local", connection_fd, stderr, environment)


def main() -> None:
    channel = Channel(int(sys.argv[1]), Worker.max_frame_bytes)
    die_with_parent(int(sys.argv[2]))
    while True:
        try:
            call_bytes: bytes = pickle.loads(channel.recv())
        except EOFError:
            return
        try:
            fn, args, kwargs = pickle.loads(call_bytes)
            answer_bytes = pickle.dumps((fn(*args, **kwargs), None))
        except Exception as error:
            try:
                pickle.loads(answer_bytes := pickle.dumps((None, error)))
            except Exception:  # an error that cannot be pickled
                answer_bytes = pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
        channel.send(answer_bytes)


if __name__ == "__main__":
    main()
