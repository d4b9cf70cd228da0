"""The contract for executors, which perform a study's runs. Their entry-point group is ``searchlab.executors``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SearchlabError
from ..machine.host import available_cores
from ..plugins import Plugin, PluginKind

T = TypeVar("T")


class RunExecutor(Executor, ABC):
    """A standard executor with attributes that tell a study how to use it.

    :meth:`submit` calls ``fn(*args)`` in one of the executor's workers. The future receives the result or, if the
    worker is lost, an error. The executor replaces lost workers, and the study resubmits their runs. The executor's
    options are constructor keyword arguments with default values, and usually include ``jobs`` and ``batch``.

    Attributes:
        jobs: The number of simultaneous calls. Twice as many calls are submitted, so that no worker has to wait.
        batch: The maximum number of short runs per call. If a study has few runs, each call contains fewer of them, so
            that every job receives a call.
        one_per_machine: Whether exclusive calls are kept on different machines. If not, they are submitted one by one.
        ends_workers: Whether the workers end when the executor shuts down. If so, they keep their measuring processes
            for the study's next run.
        shares_logs: Whether all workers see the directory of the logs. If not, logs travel with calls and results.

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
        [<Result of random on gemm:64x64x64, seed 0: 8 trials, best ... GFLOPS>]
    """

    jobs: int = 128
    batch: int = 1
    one_per_machine: bool = False
    ends_workers: bool = False
    shares_logs: bool = False

    def __init__(self, exclusive: bool, folder: Path) -> None:
        """Start an executor.

        Args:
            exclusive: Whether each call measures the machine on which it runs. If so, no machine may run two calls at
                the same time.
            folder: The directory with the study's logs, in which the executor may create files.
        """

    @abstractmethod
    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]: ...

    def kill_workers(self) -> None:
        """End all calls after an error or interrupt. By default, calls that have already started are completed."""
        self.shutdown(wait=False, cancel_futures=True)


class PlainExecutor(RunExecutor):
    """An adapter for any other executor, such as a standard-library pool. The caller must shut down that executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._executor.submit(fn, *args, **kwargs)


EXECUTORS = PluginKind("executor", "searchlab.executors", RunExecutor, positional=2)  # type: ignore[type-abstract]


def parse_executor(text: str) -> Plugin:
    """Return the executor called ``name`` or ``name://address``. Raises SearchlabError if the address is empty."""
    name, separator, address = text.partition("://")
    if separator and not address:
        raise SearchlabError(f"{text!r} has no address; specify one, as in {name}://host:port, or use {name!r} alone")
    return Plugin(name, {"address": address} if separator else {})


def choose_executor(
    study_executor: str | Plugin | None, argument: str | Mapping[str, Any] | None, jobs: int | None
) -> Plugin | None:
    """Return the executor (``argument``, or else the study's) with ``jobs``, or None to run in this process."""
    plugin = default_plugin = parse_executor(study_executor) if isinstance(study_executor, str) else study_executor
    if isinstance(argument, Mapping):
        plugin = EXECUTORS.resolve(argument)[0]
    elif argument is not None:
        plugin = parse_executor(argument)
        if default_plugin is not None and default_plugin.name == plugin.name:
            plugin = Plugin(default_plugin.name, {**default_plugin.options, **plugin.options})
    if plugin is None:
        return Plugin("local", {"jobs": jobs}) if jobs is not None and jobs > 1 else None
    return plugin if jobs is None else Plugin(plugin.name, {**plugin.options, "jobs": jobs})


@contextmanager
def start_executor(plugin: Plugin, exclusive: bool, folder: Path) -> Iterator[RunExecutor]:
    """Start an executor, and shut it down when the context ends. An error or interrupt ends its calls immediately."""
    executor = EXECUTORS.make(plugin, exclusive, folder)
    try:
        yield executor
    except BaseException as error:
        try:
            with EXECUTORS.convert_errors(type(executor), "kill_workers"):
                executor.kill_workers()
        except SearchlabError as other:
            error.add_note(str(other))
        raise
    with EXECUTORS.convert_errors(type(executor), "shutdown"):
        executor.shutdown()


def count_jobs(jobs: int, exclusive: bool) -> int:
    """Return the number of simultaneous calls on this machine: ``jobs``, or one per core if ``jobs`` is 0.

    Raises:
        SearchlabError: If ``jobs`` is negative, or calls that measure the machine would disturb each other.
    """
    if jobs < 0:
        raise SearchlabError(f"jobs must be at least 1, or 0 for one per core, not {jobs}")
    if jobs > 1 and exclusive:
        raise SearchlabError(
            f"the study measures on this machine, where {jobs} jobs would disturb each other's timings; set jobs to 1, "
            f'or measure on a fleet (measure = {{ kind = "rpc", ... }}) or from a table'
        )
    return jobs or (1 if exclusive else available_cores())
