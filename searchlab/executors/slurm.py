"""Slurm, through submitit: the jobs of a cluster, which sees the directory of the logs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SearchlabError, first_line
from ..options import Count, NonNegative
from .contract import RunExecutor

T = TypeVar("T")


class SlurmExecutor(RunExecutor):
    """Jobs of Slurm: at most about twice ``jobs`` are queued at a time, each for ``batch`` runs from tables, or one.

    cluster: ``"local"`` for processes of this machine in place of Slurm, ``"debug"`` for calls in this process.
    poll_seconds: how often jobs are asked after. parameters: those of submitit, as ``timeout_min = 60`` (of a job),
    ``cpus_per_task``, ``mem_gb``, ``slurm_partition``, ``slurm_account``. Runs that measure have a node to themselves.
    What a job prints is in the folder ``slurm`` beside the logs until it has succeeded.
    """

    one_per_machine = True

    def __init__(
        self, exclusive: bool, folder: Path, *, jobs: Count = 16, batch: Count = 100, cluster: str = "slurm",
        poll_seconds: NonNegative = 2.0, **parameters: Any,
    ) -> None:  # fmt: skip
        try:
            import submitit
        except ImportError:
            raise SearchlabError("the executor 'slurm' needs submitit: pip install 'searchlab[slurm]'") from None
        self.one_per_machine = not exclusive or cluster == "slurm"
        self.jobs = jobs
        self.batch = batch
        self._poll_seconds = poll_seconds
        self._folder = folder.absolute() / "slurm"
        try:
            self._executor = submitit.AutoExecutor(self._folder, cluster=cluster)
            alone = {"slurm_exclusive": True} if exclusive else {}
            self._executor.update_parameters(**{"name": "searchlab", **alone, **parameters})
        except (ValueError, TypeError, RuntimeError, NameError, AssertionError) as error:
            raise SearchlabError(f"cannot create the Slurm executor: {first_line(error)}") from None
        self._left: dict[Any, Future[Any]] = {}
        self._lock = threading.Lock()
        self._new = threading.Event()
        self._ends = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self._ends:
            raise RuntimeError("the executor was shut down")
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        job = self._executor.submit(fn, *args, **kwargs)
        with self._lock:
            self._left[job] = future
        self._new.set()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            with self._lock:
                for job in self._left:
                    job.cancel()
        self._ends = True
        self._new.set()
        if wait:
            self._thread.join()

    def kill_workers(self) -> None:
        """Cancel all jobs."""
        self.shutdown(cancel_futures=True)

    def _watch(self) -> None:
        """Give the future of each job its result when the job has ended."""
        while self._left or not self._ends:
            with self._lock:
                jobs = dict(self._left)
            for job, future in jobs.items():
                if job.done():
                    with self._lock:
                        del self._left[job]
                    self._end(job, future)
            self._new.wait(self._poll_seconds if self._left else None)
            self._new.clear()

    def _end(self, job: Any, future: Future[Any]) -> None:
        try:
            result = job.result()
        except Exception as error:  # the job's files stay: they say more
            future.set_exception(error)
            return
        for file in self._folder.glob(f"{job.job_id}_*"):
            file.unlink(missing_ok=True)
        future.set_result(result)
