"""The Slurm executor, which uses submitit to run jobs on a cluster whose nodes share the directory of the logs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SearchlabError, first_line, needs_extra
from ..options import Count, NonNegative
from .contract import RunExecutor

T = TypeVar("T")


class SlurmExecutor(RunExecutor):
    """Executes runs as Slurm jobs.

    A run that measures has a node to itself. Each job's output is kept in the folder ``slurm``, next to the logs, until
    the job has succeeded.

    Args:
        jobs: The number of simultaneous jobs. About twice as many are queued.
        batch: The maximum number of runs per job for runs over tables. Each run that measures is a separate job.
        cluster: Pass ``"local"`` to use local processes instead of Slurm, or ``"debug"`` to perform calls in this
            process.
        poll_seconds: The time between two queries about the states of jobs, in seconds.
        parameters: Parameters to pass to submitit, such as ``timeout_min = 60`` (per job), ``cpus_per_task``,
            ``mem_gb``, ``slurm_partition`` and ``slurm_account``.
    """

    one_per_machine = True
    shares_logs = True

    def __init__(
        self,
        exclusive: bool,
        folder: Path,
        *,
        jobs: Count = 16,
        batch: Count = 100,
        cluster: str = "slurm",
        poll_seconds: NonNegative = 2.0,
        **parameters: Any,
    ) -> None:
        with needs_extra("the executor 'slurm'", "slurm"):
            import submitit
        self.one_per_machine = not exclusive or cluster == "slurm"
        self.jobs = jobs
        self.batch = batch
        self._poll_seconds = poll_seconds
        self._job_folder = folder.absolute() / "slurm"
        try:
            self._executor = submitit.AutoExecutor(self._job_folder, cluster=cluster)
            directives = {"slurm_exclusive": True} if exclusive else {}
            self._executor.update_parameters(**{"name": "searchlab", **directives, **parameters})
        except (ValueError, TypeError, RuntimeError, NameError, AssertionError) as error:
            raise SearchlabError(f"cannot create the Slurm executor: {first_line(error)}") from None
        self._futures_by_job: dict[Any, Future[Any]] = {}  # the futures of the jobs that are not known to have ended
        self._is_ending = False
        self._condition = threading.Condition()  # guards the two above
        self._thread = threading.Thread(target=self._watch_jobs, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        with self._condition:
            if self._is_ending:
                raise RuntimeError("cannot submit a call: the executor has been shut down")
            self._futures_by_job[self._executor.submit(fn, *args, **kwargs)] = future
            self._condition.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._condition:
            self._is_ending = True
            if cancel_futures:
                for job in self._futures_by_job:
                    job.cancel()
            self._condition.notify()
        if wait:
            self._thread.join()

    def kill_workers(self) -> None:
        """Cancel all jobs."""
        self.shutdown(cancel_futures=True)

    def _watch_jobs(self) -> None:
        """Complete each job's future once the job has ended."""
        while True:
            with self._condition:
                if self._futures_by_job:
                    self._condition.wait(self._poll_seconds)
                else:
                    self._condition.wait_for(lambda: self._futures_by_job or self._is_ending)
                futures_by_job = dict(self._futures_by_job)
            if not futures_by_job:
                return
            for job, future in futures_by_job.items():
                if job.done():
                    with self._condition:
                        del self._futures_by_job[job]
                    self._complete_future(job, future)

    def _complete_future(self, job: Any, future: Future[Any]) -> None:
        try:
            result = job.result()
        except Exception as error:  # the job's files are kept, since they contain details about the error
            future.set_exception(error)
            return
        with suppress(OSError):
            for path in self._job_folder.glob(f"{job.job_id}_*"):
                path.unlink(missing_ok=True)
        future.set_result(result)
