"""The contract of an executor: where the runs of a study are made.

An executor that a study file names is registered in the group of entry points ``searchlab.executors``.
"""

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
    """A standard executor that says how a study should use it.

    It calls ``fn(*args)`` somewhere, and the future has the result, or the error of a worker that was lost. The study
    then submits the lost runs again: an executor replaces its lost workers. Options are keyword arguments of the
    constructor, with defaults; ``jobs`` and ``batch`` usually are two of them.

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
    """How many calls go on at the same time; twice as many are submitted at a time."""

    batch: int = 1
    """How many short runs are worth one call; of few runs each call has less, so that there is one for each job."""

    one_per_machine: bool = False
    """Whether it keeps exclusive calls on different machines. Else they are submitted one at a time."""

    ends_workers: bool = False
    """Whether its processes end with it. What measures in one then goes on to the next run of the study."""

    def __init__(self, exclusive: bool, folder: Path) -> None:
        """Start an executor.

        Args:
            exclusive: Whether each call measures the machine that it runs on, so that one machine must not have two
                calls at a time.
            folder: The directory of the study's logs, for the executor's own files, if it has any.
        """

    @abstractmethod
    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]: ...

    def kill_workers(self) -> None:
        """End what still runs at once, after an interrupt. By default what runs already goes on to its end."""
        self.shutdown(wait=False, cancel_futures=True)


class PlainExecutor(RunExecutor):
    """Any other executor, such as a pool of the standard library. Whoever started it shuts it down.

    It says nothing of itself, so exclusive calls are submitted one at a time.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._executor.submit(fn, *args, **kwargs)


EXECUTORS = PluginKind("executor", "searchlab.executors", RunExecutor, positional=2)  # type: ignore[type-abstract]


def parse_executor(text: str, options: dict[str, object] | None = None) -> Plugin:
    """The executor that ``name`` or ``name://address`` spells, with ``options``."""
    name, found, address = text.partition("://")
    return Plugin(name, {**(options or {}), **({"address": address} if found else {})})


def adapted(executor: Executor) -> RunExecutor:
    """``executor`` as a study uses it."""
    return executor if isinstance(executor, RunExecutor) else PlainExecutor(executor)


@contextmanager
def started(plugin: Plugin, exclusive: bool, folder: Path) -> Iterator[RunExecutor]:
    """A new executor, which ends with the context; an error or an interrupt ends what still runs at once."""
    executor = EXECUTORS.make(plugin, exclusive, folder)
    try:
        yield executor
    except BaseException:
        executor.kill_workers()
        raise
    executor.shutdown()


def check_jobs(jobs: int, exclusive: bool) -> None:
    """Raise SearchlabError if one machine cannot have ``jobs`` calls at the same time.

    exclusive: whether each call measures the machine.
    """
    if jobs < 0:
        raise SearchlabError(f"jobs must be at least 1, or 0 for one a core, not {jobs}")
    if jobs > 1 and exclusive:
        raise SearchlabError(
            f"the study measures on this machine, where {jobs} jobs would disturb each other's times; leave jobs at 1, "
            f'or measure on a fleet (measure = {{ kind = "rpc", ... }}) or from a table'
        )


def jobs_here(jobs: int, exclusive: bool, cores: int) -> int:
    """The number of calls at the same time on one machine: ``jobs``, or one a core if 0. Raises as check_jobs."""
    check_jobs(jobs, exclusive)
    return jobs or (1 if exclusive else cores)
