"""The Dask executor, which uses an existing cluster or starts local processes for the duration of the study."""

from __future__ import annotations

import atexit
import logging
import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SearchlabError, first_line, needs_extra
from ..machine.host import available_cores
from ..machine.scratch import ScratchFolder
from ..options import Count
from .contract import RunExecutor, count_jobs

T = TypeVar("T")

MACHINE_RESOURCE = "machine"
"""The resource that an exclusive call requires; one worker on each host offers one unit of it."""

UNPROFILED_SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
}
"""The settings for clusters that this executor starts. By default, Dask's processes profile themselves up to a hundred
times a second for a dashboard, which makes short runs take a fifth longer."""

RECONNECT_TIMEOUT = 20.0
"""How long the connection to a scheduler may be lost."""

CLOSE_TIMEOUT = 2.0
"""How long closing a lost connection may take."""

POLL_SECONDS = 5.0
"""The time between queries about the size of the cluster."""


class DaskExecutor(RunExecutor):
    """Executes runs on a Dask cluster.

    Dask reassigns the calls of lost workers, and replaces lost workers in clusters that it has started. A worker
    performs one run at a time, so start each worker with a single thread. For runs that measure, start one worker per
    host with ``--nthreads 1 --resources machine=1``. The packages that the study uses must be installed on the workers.

    Args:
        address: The scheduler address of an existing cluster, or "" to start local processes.
        jobs: The number of local processes, or 0 for one per core.
        batch: The maximum number of short runs per call. Dask's overhead is about 20 ms per call.
    """

    one_per_machine = True

    def __init__(self, exclusive: bool, folder: Path, *, address: str = "", jobs: int = 0, batch: Count = 40) -> None:
        with needs_extra("the executor 'dask'", "dask"):
            from distributed.utils import silence_logging_cmgr
        self.batch = batch
        self._resources = {MACHINE_RESOURCE: 1} if exclusive else None
        self._exit_stack = ExitStack()
        if address and jobs:
            raise SearchlabError(f"the Dask cluster at {address} determines the number of simultaneous runs; omit jobs")
        if address:
            self._client = self._connect(address)
            if exclusive:
                self._check_machines(address)
        else:
            self._client = self._start_cluster(count_jobs(jobs, exclusive))
        # Dask logs a lost connection as a traceback.
        self._exit_stack.enter_context(silence_logging_cmgr(logging.CRITICAL))
        self._exit_stack.callback(self._client.close)
        self._executor = self._client.get_executor(pure=False, **({"resources": self._resources} if exclusive else {}))
        self._lost_since: float | None = None  # when the connection to the scheduler was lost
        self._last_check_time = float("-inf")
        self._job_count = 0

    def _connect(self, address: str) -> Any:
        """Return a client of the cluster at ``address``."""
        from distributed import Client
        from distributed.comm.addressing import parse_address, parse_host_port

        try:
            # A client that is given a wrong address keeps its threads, which would prevent this process's end.
            scheme, host_and_port = parse_address(address)
            if scheme != "inproc":  # the address of a cluster in this process
                parse_host_port(host_and_port)
            return Client(address, set_as_default=False)
        except Exception as error:  # such as a ValueError, or a TypeError for missing certificates
            raise SearchlabError(f"cannot reach a Dask scheduler at {address}: {first_line(error)}") from None

    def _start_cluster(self, count: int) -> Any:
        """Start ``count`` local processes and return a client of their cluster."""
        import dask
        from distributed import Client, LocalCluster, WorkerPlugin

        scratch_folder = ScratchFolder()
        self._exit_stack.callback(scratch_folder.cleanup)
        threads = str(max(1, available_cores() // count))
        settings = UNPROFILED_SETTINGS | {
            "temporary-directory": scratch_folder.name
        }  # these also apply to the scheduler
        with dask.config.set(settings), _close_on_error(scratch_folder):
            cluster = LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                memory_limit=0,
                resources=self._resources,
                silence_logs=logging.CRITICAL,
                env={"TVM_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
            )
            self._exit_stack.callback(cluster.close)
            client = Client(cluster, set_as_default=False)
        client.register_plugin(type("Deaf", (WorkerPlugin,), {"setup": _ignore_interrupts})())
        return client

    @property
    def jobs(self) -> int:  # type: ignore[override]  # read-only, since the cluster determines it
        """The current number of workers. Raises SearchlabError if the connection to the scheduler is lost."""
        if self._client.status == "running":
            self._lost_since = None
        elif self._lost_since is None:
            self._lost_since = time.monotonic()
        if self._client.status == "closed" or time.monotonic() - (self._lost_since or math.inf) > RECONNECT_TIMEOUT:
            raise SearchlabError(
                "the connection to the Dask scheduler is lost; restart the cluster and run this again to resume: all "
                "logged trials are kept"
            )
        if self._lost_since is None and time.monotonic() - self._last_check_time > POLL_SECONDS:
            self._last_check_time = time.monotonic()
            workers = self._list_workers()
            exclusive_count = sum(bool(worker["resources"].get(MACHINE_RESOURCE)) for worker in workers)
            self._job_count = exclusive_count if self._resources else sum(worker["nthreads"] for worker in workers)
        return max(1, self._job_count)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = self._executor.submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._client.status == "running":
            self._executor.shutdown(wait=wait and not cancel_futures)
            self._exit_stack.close()
            return
        for close in (lambda: self._client.close(timeout=CLOSE_TIMEOUT), self._exit_stack.close):
            with suppress(Exception):  # nothing answers any more
                close()

    def kill_workers(self) -> None:
        """Cancel all calls. On an existing cluster, calls that have already started are completed."""
        self.shutdown(cancel_futures=True)

    def _list_workers(self) -> list[dict[str, Any]]:
        return list(self._client.scheduler_info(n_workers=-1).get("workers", {}).values())

    def _check_machines(self, address: str) -> None:
        """Check that workers offer the resource ``machine``, at most one of them on each host."""
        worker_counts = Counter(
            worker["host"] for worker in self._list_workers() if worker["resources"].get(MACHINE_RESOURCE)
        )
        for host, count in worker_counts.items():
            if count > 1:
                raise SearchlabError(
                    "the study measures on its workers' machines, so each host may have only one worker with the "
                    f"resource 'machine', but the Dask cluster at {address} has {count} such workers on {host}; "
                    "start only one of them on each host"
                )
        if not worker_counts:
            raise SearchlabError(
                f"the study measures on its workers' machines, but no worker in the Dask cluster at {address} offers "
                f"the resource 'machine'; start one worker on each host: dask worker {address} --nthreads 1 "
                "--resources machine=1"
            )


@contextmanager
def _close_on_error(scratch_folder: ScratchFolder) -> Iterator[None]:
    """Close the cluster if starting it fails or is interrupted. Dask would close it only at exit, with tracebacks."""
    try:
        yield
    except BaseException:
        from distributed.deploy import spec

        for cluster in list(spec.SpecCluster._instances):
            with suppress(Exception):
                cluster.close(timeout=5)
        atexit.unregister(spec.close_clusters)
        scratch_folder.cleanup()
        raise


def _ignore_interrupts(plugin: object, worker: object) -> None:
    """Make the worker ignore Ctrl-C, which its parent handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
