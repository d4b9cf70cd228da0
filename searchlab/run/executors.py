"""Executing runs: one after the other in this process, or several at the same time in processes of their own, jobs."""

from __future__ import annotations

import pickle
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self

import cloudpickle
import msgspec

from ..errors import SearchlabError, SearchlabWarning
from ..log.format import Log, read_held, read_log
from ..log.writer import check_identity
from ..machine.host import available_cores
from ..machine.scratch import ScratchFolder
from ..measure.contract import KnownPrograms, Measurer
from ..measure.isolation import die_with
from ..measure.process import Worker, WorkerDied
from ..measure.settings import Settings
from ..plugins import trusting, trusts
from ..records import Measurement, Trial
from .loop import search
from .plan import OnTrial, Run
from .warm_start import check_apart

OnRun = Callable[[Run, int, int, int], OnTrial | None]
"""Called as a run begins, with the run, its number (from 1), the number of runs, and the number of its job (from 0).

It returns the function to call with each trial, or None. The previous run of that job has ended by then.
"""


def check_jobs(jobs: int, exclusive: bool) -> None:
    """Raise SearchlabError if there cannot be ``jobs`` runs at the same time; ``exclusive`` as of settings."""
    if jobs < 1:
        raise SearchlabError(f"jobs must be at least 1, not {jobs}")
    if jobs > 1 and exclusive:
        raise SearchlabError(
            f"the study measures on this machine, where {jobs} jobs would disturb each other's times; leave jobs at 1, "
            f'or measure on a fleet (measure = {{ kind = "rpc", ... }}) or from a table'
        )


def execute(runs: Sequence[Run], base: Path, on_run: OnRun, jobs: int = 1) -> Iterator[tuple[Run, Log]]:
    """Execute ``runs``, and yield each run with its log as soon as the log is complete.

    Either all runs have one target and one kind of measurement, or each is answered from a table. First, each existing
    log is checked against its run; programs that it holds are not measured again. base: the directory from which a
    table's relative path starts. jobs: how many runs go on at the same time; these share only the measurements that the
    logs held before.
    """
    check_jobs(jobs, any(run.settings.exclusive for run in runs))
    check_apart([run.warm_start for run in runs], [run.log for run in runs])
    known: KnownPrograms = {}
    with _Measurers(known, base) as measurers:
        measurers.of(runs[0])  # says what is wrong with the settings before any log is looked at
        held = [_recall(run, known) for run in runs]
        if jobs > 1:
            yield from _in_jobs(runs, base, known, jobs, on_run)
            return
        for number, run in enumerate(runs, 1):
            log, held[number - 1] = held[number - 1], None
            yield run, search(run, measurers.of(run), on_run(run, number, len(runs), 0) or _ignore, log)


def _ignore(trial: Trial, replayed: bool) -> None:
    pass


class _Measurers:
    """The measurer of each run in turn. Runs that follow each other with the same settings share one."""

    def __init__(self, known: KnownPrograms, base: Path) -> None:
        self._known = known
        self._base = base
        self._settings: Settings | None = None
        self._measurer: Measurer | None = None

    def of(self, run: Run) -> Measurer:
        if self._measurer is None or run.settings != self._settings:
            self.close()
            self._measurer = run.settings.make(run.space.target, self._known, self._base)
            self._settings = run.settings
        return self._measurer

    def close(self) -> None:
        if self._measurer is not None:
            self._measurer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _recall(run: Run, known: KnownPrograms) -> Log | None:
    """The existing log of ``run``, or None; its measurements are added to ``known``.

    Raises SearchlabError if the log is damaged, or of another run.
    """
    log = read_held(run.log)
    if log is None:
        return None
    # Which surrogate answers is known, and checked, when it does.
    check_identity(run.log, log.header, run.header(log.header.workers, surrogate=log.header.surrogate))
    for record in () if run.settings.replays else log.records:  # a table answers at once
        if record.program and (record.program not in known or known[record.program].pruned):
            known[record.program] = replace(record.measurement, reused=False)
    return log


# --- jobs -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Begin:
    """The first message to a job.

    known: the measurements that every run begins with. trusts: whether logs to start from may name any code.
    """

    base: Path
    known: dict[str, Measurement]
    trusts: bool


@dataclass(frozen=True)
class _Search:
    """A run to execute, pickled.

    Its settings are plain data. If they were pickled, they would forget which of them were left at their defaults, and
    the header of a log would differ.
    """

    run: bytes
    settings: Any


@dataclass(frozen=True)
class _Told:
    """A trial, as :data:`~searchlab.run.plan.OnTrial` is told of it."""

    trial: Trial
    replayed: bool


@dataclass(frozen=True)
class _Warned:
    text: str


@dataclass(frozen=True)
class _Ended:
    """The last message about a run. refused: the text of a SearchlabError; failed: the traceback of any error."""

    refused: str = ""
    failed: str = ""


class JobTraceback(Exception):
    """The cause of an error that arose in a job; the text is its traceback there."""


def _in_jobs(
    runs: Sequence[Run], base: Path, known: Mapping[str, Measurement], jobs: int, on_run: OnRun
) -> Iterator[tuple[Run, Log]]:
    """Execute ``runs``, ``jobs`` of them at a time; the first failure, or an interrupt, ends them all.

    Each run starts with ``known``, and gets no measurement of the runs beside or before it. So the results do not
    depend on which of the runs are quick.
    """
    waiting = deque(enumerate(runs, 1))
    running: dict[Worker, tuple[Run, OnTrial]] = {}
    with ExitStack() as ends:

        def start(worker: Worker, job: int) -> None:
            number, run = waiting.popleft()
            running[worker] = run, on_run(run, number, len(runs), job) or _ignore
            worker.send(_Search(cloudpickle.dumps(run), msgspec.to_builtins(run.settings)))

        # Jobs are killed, and cannot clean up; their own processes may live a moment longer.
        scratch = ends.enter_context(ScratchFolder())
        job_of: dict[Worker, int] = {}
        for job in range(min(jobs, len(runs))):
            worker = Worker(max(1, available_cores() // jobs), scratch, module="searchlab.run.job")
            ends.callback(worker.kill)
            job_of[worker] = job
            worker.send(_Begin(base, dict(known), trusts()))
            start(worker, job)
        while running:
            answered = wait([worker.connection for worker in running])
            for worker in [worker for worker in running if worker.connection in answered]:
                run, on_trial = running[worker]
                try:
                    message = worker.recv()
                except WorkerDied as death:
                    raise SearchlabError(f"a job {death}; run this again to resume; logged trials are kept") from None
                if isinstance(message, _Told):
                    on_trial(message.trial, message.replayed)
                elif isinstance(message, _Warned):
                    warnings.warn(message.text, SearchlabWarning, stacklevel=2)
                elif message.refused:
                    raise SearchlabError(message.refused) from JobTraceback(f"\n{message.failed}")
                elif message.failed:
                    raise RuntimeError(f"a job failed:\n{message.failed}")
                else:
                    del running[worker]
                    if waiting:
                        start(worker, job_of[worker])
                    yield run, read_log(run.log)


def main() -> None:
    """A job: it executes the runs that it is sent, with one measurer."""
    connection = Connection(int(sys.argv[1]))
    die_with(int(sys.argv[2]))

    def show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if category is SearchlabWarning:
            connection.send(_Warned(str(message)))

    warnings.showwarning = show_warning
    begin: _Begin = connection.recv()
    known: KnownPrograms = {}
    measurers = _Measurers(known, begin.base)
    while True:
        try:
            task: _Search = connection.recv()
        except EOFError:
            return
        known.clear()
        known.update(begin.known)
        try:
            run: Run = replace(pickle.loads(task.run), settings=msgspec.convert(task.settings, Settings))
            with trusting(begin.trusts):
                search(run, measurers.of(run), lambda *told: connection.send(_Told(*told)))
        except SearchlabError as error:
            connection.send(_Ended(refused=str(error), failed=traceback.format_exc()))
        except Exception:
            connection.send(_Ended(failed=traceback.format_exc()))
        else:
            connection.send(_Ended())
