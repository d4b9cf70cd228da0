"""The contract of an executor: that of the standard library, :class:`concurrent.futures.Executor`.

An executor calls ``fn(*args)`` somewhere, and its future has the result, or the error of a worker that was lost. The
study then submits the lost runs again: an executor replaces its lost workers. An executor that a study file names is
registered in the group of entry points ``searchlab.executors``. Its constructor takes two arguments and options:

    def __init__(self, exclusive: bool, folder: Path, *, jobs: int = 0, **options)

exclusive: whether each call measures the machine that it runs on, so that one machine must not have two at a time.
folder: the directory of the study's logs, for the executor's own files, if it has any. It may have these attributes:

- ``jobs``: how many calls go on at the same time; twice as many are submitted at a time.
- ``batch``: how many short runs are worth one call; of few runs each call has less, so that there is one for each job.
- ``exclusive = True``: it keeps exclusive calls on different machines. Else they are submitted one at a time.
- ``ends_workers = True``: its processes end with it. What measures in one then goes on to the next run of the study.
- ``kill_workers()``: ends at once what still runs, after an interrupt.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path

from ..errors import SearchlabError
from ..plugins import Plugin, PluginKind

EXECUTORS: PluginKind[Executor] = PluginKind("executor", "searchlab.executors", Executor, positional=2)


def parse_executor(text: str, options: dict[str, object] | None = None) -> Plugin:
    """The executor that ``name`` or ``name://address`` spells, with ``options``."""
    name, found, address = text.partition("://")
    return Plugin(name, {**(options or {}), **({"address": address} if found else {})})


@contextmanager
def started(plugin: Plugin, exclusive: bool, folder: Path) -> Iterator[Executor]:
    """A new executor, which ends with the context; an error or an interrupt ends what still runs at once."""
    executor = EXECUTORS.make(plugin, exclusive, folder)
    try:
        yield executor
    except BaseException:
        kill = getattr(executor, "kill_workers", None)
        if kill is not None:
            kill()
        else:
            executor.shutdown(wait=False, cancel_futures=True)
        raise
    executor.shutdown()


def check_jobs(jobs: int, exclusive: bool) -> None:
    """Raise SearchlabError if one machine cannot have ``jobs`` calls at the same time; ``exclusive`` as above."""
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
