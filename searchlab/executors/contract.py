"""The contract of executors, which make the runs of a study; their entry-point group is ``searchlab.executors``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SearchlabError
from ..plugins import Plugin, PluginKind

T = TypeVar("T")


class RunExecutor(Executor, ABC):
    """A standard executor that tells a study how to use it.

    It calls ``fn(*args)`` in some worker, and the future gets the result or, if the worker is lost, an error. The
    executor replaces lost workers, and the study submits their runs again. Options are keyword arguments of the
    constructor with defaults, usually ``jobs`` and ``batch`` among them.

    Attributes:
        jobs: The number of calls at the same time. Twice as many are submitted, so that no worker waits.
        batch: The number of short runs per call. If there are few runs, each call makes fewer, so that there is a call
            for each job.
        one_per_machine: Whether it keeps exclusive calls on different machines. If not, they are submitted one by one.
        ends_workers: Whether its processes end with it. Measuring processes are then kept for the next run of the
            study.

    Example:
        >>> from concurrent.futures import Future
        >>> import searchlab
        >>> class Here(searchlab.RunExecutor):
        ...     jobs = 1
        ...     def submit(self, fn, /, *args, **kwargs):
        ...         future = Future()
        ...         future.set_result(fn(*args, **kwargs))
        ...         return future
        >>> study = searchlab.Study.from_dict(
        ...     {"suite": "v1/gemm-64x64x64-trace-1t", "policies": ["random"], "trials": 8, "seeds": 1}
        ... )
        >>> study.run("here", executor=Here(False, "here"), progress=False)
        [<Result of random on gemm:64x64x64, seed 0: 8 trials>]
    """

    jobs: int = 128
    batch: int = 1
    one_per_machine: bool = False
    ends_workers: bool = False

    def __init__(self, exclusive: bool, folder: Path) -> None:
        """Start an executor.

        Args:
            exclusive: Whether each call measures the machine that it runs on, so that a machine must not have two
                calls at the same time.
            folder: The directory of the study's logs, for files of the executor.
        """

    @abstractmethod
    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]: ...

    def kill_workers(self) -> None:
        """End all calls at once, after an interrupt. By default, calls that have started run to their end."""
        self.shutdown(wait=False, cancel_futures=True)


class PlainExecutor(RunExecutor):
    """Adapts any other executor, such as a pool of the standard library, which the caller shuts down."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._executor.submit(fn, *args, **kwargs)


EXECUTORS = PluginKind("executor", "searchlab.executors", RunExecutor, positional=2)  # type: ignore[type-abstract]


def parse_executor(text: str, options: dict[str, object] | None = None) -> Plugin:
    """Return the executor that ``name`` or ``name://address`` stands for, with ``options``."""
    name, found, address = text.partition("://")
    return Plugin(name, {**(options or {}), **({"address": address} if found else {})})


def adapted(executor: Executor) -> RunExecutor:
    """Return ``executor`` with the attributes that a study needs."""
    return executor if isinstance(executor, RunExecutor) else PlainExecutor(executor)


@contextmanager
def started(plugin: Plugin, exclusive: bool, folder: Path) -> Iterator[RunExecutor]:
    """Start an executor that ends with the context. An error or an interrupt ends all calls at once."""
    executor = EXECUTORS.make(plugin, exclusive, folder)
    try:
        yield executor
    except BaseException:
        executor.kill_workers()
        raise
    executor.shutdown()


def jobs_here(jobs: int, exclusive: bool, cores: int) -> int:
    """Return the number of calls at the same time on this machine: ``jobs``, or one per core if 0.

    Raises:
        SearchlabError: If ``jobs`` is negative, or if calls that measure the machine would disturb each other.
    """
    if jobs < 0:
        raise SearchlabError(f"jobs must be at least 1, or 0 for one per core, not {jobs}")
    if jobs > 1 and exclusive:
        raise SearchlabError(
            f"the study measures on this machine, where {jobs} jobs would disturb each other's times; leave jobs at 1, "
            f'or measure on a fleet (measure = {{ kind = "rpc", ... }}) or from a table'
        )
    return jobs or (1 if exclusive else cores)
