"""Executing runs: one after the other in this process, or on an executor. A run that fails does not end the others."""

from __future__ import annotations

import errno
import itertools
import os
import pickle
import socket
import threading
import time
import traceback
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec

from ..errors import RunsFailed, SearchlabError, SearchlabWarning, described
from ..executors.contract import RunExecutor
from ..log.format import Log, read_bytes, read_held, read_log
from ..log.result import disagreement
from ..log.writer import LeasedFile, LogBusy, check_identity
from ..machine.host import busy_cores, busy_warning
from ..machine.scratch import ScratchFolder
from ..measure.contract import KnownPrograms, Measurer
from ..measure.settings import Settings
from ..plugins import trusting, trusts
from .loop import search
from .plan import OnRun, OnTrial, Run

LOSSES = 5
"""The number of losses after which a run fails, if its log has not grown in between."""

LOOK_SECONDS = 1.0
"""How often the logs of runs on an executor are read for new trials."""

PATIENCE = 20.0
"""Seconds that a run waits while another process writes its log: a worker thought lost may not have ended yet."""


Outcomes = Iterator[tuple[Run, Log | SearchlabError]]
"""Each run with its complete log, or with the reason why it failed."""


class RunTraceback(Exception):
    """The cause of an error that was raised in another process; its text is the traceback there."""


def execute(
    runs: Sequence[Run],
    base: Path,
    on_run: OnRun,
    executor: RunExecutor | None = None,
    ready: Callable[[], None] = lambda: None,
) -> dict[Path, Log]:
    """Execute ``runs``, which all have the same target and kind of measurement, or are all answered from tables.

    First, all existing logs are checked against their runs. Programs in them are not measured again.

    Args:
        runs: The runs; a log that exists is resumed.
        base: The directory that the relative path of a table starts from.
        on_run: Called when a run begins.
        executor: Where the runs are executed; None for this process, one after the other. On an executor they share
            only the measurements in existing logs, so that the results do not depend on which runs are quick.
        ready: Called when the existing logs have been checked.

    Returns:
        The complete log of each run, by path.

    Raises:
        RunsFailed: At the end, if runs failed.
    """
    logs: dict[Path, Log] = {}
    failed: dict[Path, SearchlabError] = {}
    for run, outcome in _outcomes(runs, base, on_run, executor, ready):
        if isinstance(outcome, SearchlabError):
            failed[run.log] = outcome
        else:
            logs[run.log] = outcome
    if failed:
        reasons = {run.log: str(failed[run.log]) for run in runs if run.log in failed}
        raise RunsFailed(reasons, len(runs)) from next(iter(failed.values()))
    return logs


def execute_one(run: Run, base: Path, on_run: OnRun) -> Log:
    """Execute ``run`` in this process and return its log. Raises the SearchlabError that ends it."""
    ((_, outcome),) = _outcomes([run], base, on_run, None, lambda: None)
    if isinstance(outcome, SearchlabError):
        raise outcome
    return outcome


def _outcomes(
    runs: Sequence[Run], base: Path, on_run: OnRun, executor: RunExecutor | None, ready: Callable[[], None]
) -> Outcomes:
    written = {run.log.resolve() for run in runs}
    for earlier in (earlier for run in runs for earlier in run.warm_start.runs):
        if (path := earlier.log.path).resolve() in written:
            raise SearchlabError(f"{path} is a warm start, and cannot be the log too; choose another log file")
    known: KnownPrograms = {}
    with closing(Measurers(known, base)) as measurers:
        if executor is None or not runs[0].settings.exclusive:  # elsewhere there may be another machine
            measurers.of(runs[0])  # refuses wrong settings before any log is read
        held = deque(_recall(run, known, here=executor is None) for run in runs)
        ready()
        if executor is None:
            for number, run in enumerate(runs, 1):
                log, on_trial = held.popleft(), on_run(run, number, len(runs), 0)
                try:
                    outcome: Log | SearchlabError = search(run, measurers.of(run), on_trial, log)
                except SearchlabError as error:
                    outcome = error
                yield run, outcome
            return
    unfinished = [Unfinished(run, log) for run, log in zip(runs, held, strict=True)]
    yield from Dispatch(executor, unfinished, base, known, on_run).outcomes()


def _recall(run: Run, known: KnownPrograms, here: bool) -> Log | None:
    """Return the existing log of ``run``, and add its measurements to ``known``.

    Raises SearchlabError if the log is damaged or belongs to another run, where only a run on this machine (``here``)
    must have the same host.
    """
    log = read_held(run.log)
    if log is None:
        return None
    header = run.header(log.header.workers)
    check_identity(run.log, log.header, header if here else msgspec.structs.replace(header, host=log.header.host))
    for record in () if run.settings.replays else log.records:  # a table answers at once
        if record.program and (record.program not in known or known[record.program].pruned):
            known[record.program] = replace(record.measurement, reused=False)
    return log


def warn_of_results(runs: Sequence[Run], logs: Mapping[Path, Log]) -> None:
    """Warn about logs with more trials than the budgets of their runs, and about doubtful times of the best programs.

    No trial is removed from a log.
    """
    within = {run.log: len(run.budget.cut(logs[run.log]).records) for run in runs}
    more = [run.log for run in runs if within[run.log] < len(logs[run.log].records)]
    if more:
        first, others = more[0], f" (so do {len(more) - 1} other logs)" if len(more) > 1 else ""
        warnings.warn(
            f"{first} has {len(logs[first].records)} trials, more than the {within[first]} requested{others}; the "
            f"result includes all trials in a log",
            SearchlabWarning,
            stacklevel=3,
        )
    doubts = [(path, text) for path, log in logs.items() if (text := disagreement(log))]
    if doubts:
        others = f"; so did the best of {len(doubts) - 1} other runs" if len(doubts) > 1 else ""
        warnings.warn(f"{doubts[0][0]}: {doubts[0][1]}{others}", SearchlabWarning, stacklevel=3)


def warn_of_a_busy_machine(runs: Sequence[Run]) -> None:
    """Warn if this machine is about to be measured, and other processes keep it busy."""
    if not any(run.settings.exclusive for run in runs):
        return
    if text := busy_warning(busy_cores(), os.getloadavg()[0], os.cpu_count() or 1):
        warnings.warn(text, SearchlabWarning, stacklevel=3)


class Measurers:
    """The measurer of each run in turn; consecutive runs with the same settings share one."""

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
        self._measurer = None


@dataclass(frozen=True)
class Surroundings:
    """What all tasks of a study share."""

    study: str  # a name that no other call of the study has
    base: Path  # the directory that relative paths start from
    shared: Path  # a folder that exists wherever the directory of the logs is shared
    known: bytes  # the pickled measurements that every run begins with
    trusts: bool  # whether logs to start from may name any code
    kept: bool  # whether measuring processes are kept for the next run, as something ends them after the last run


@dataclass(frozen=True)
class Task:
    """A few runs that an executor executes one after the other, by calling :func:`perform`."""

    around: Surroundings
    runs: bytes  # pickled, with absolute paths
    settings: tuple[Any, ...]  # of each run, as plain data: pickled, they would not keep which were left at defaults
    held: tuple[bytes | None, ...]  # the log of each run so far, for machines that do not share its directory


@dataclass(frozen=True)
class Outcome:
    """How a run ended; it is complete if ``failed`` is empty."""

    refused: str = ""  # the text of a SearchlabError
    failed: str = ""  # the traceback of any error
    busy: bool = False  # whether another process writes its log
    warned: tuple[str, ...] = ()
    log: bytes | None = None  # the content of its log now, if the directory of the logs is not shared


@dataclass(eq=False)
class Unfinished:
    """A run that may not be complete, and its log when the study began."""

    run: Run
    held: Log | None
    losses: int = 0  # since its log has last grown
    size: int = 0  # of its log at the last loss, in bytes
    seen: int = 0  # size of its log when it was last read for new trials
    on_trial: OnTrial | None = None
    job: int = -1  # -1 until the run has begun
    told: int = 0  # trials that on_trial was called with

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do; a run that measures may still have to measure its finalists."""
        return self.held is not None and self.run.settings.replays and self.run.budget.complete(self.held)


class Dispatch:
    """Executes runs on an executor. Lost runs are submitted again, one by one, and go on from their logs."""

    def __init__(
        self, executor: RunExecutor, runs: Sequence[Unfinished], base: Path, known: KnownPrograms, on_run: OnRun
    ) -> None:
        self._executor = executor
        self._runs = runs
        self._on_run = on_run
        folder = Path(os.path.commonpath([one.run.log.absolute().parent for one in runs]))
        folder.mkdir(parents=True, exist_ok=True)
        self._shared = ScratchFolder(str(folder), ".shared-")
        self._around = Surroundings(
            uuid.uuid4().hex, base.absolute(), Path(self._shared.name), pickle.dumps(dict(known)), trusts(),
            executor.ends_workers,
        )  # fmt: skip
        settings = runs[0].run.settings
        self._one_at_a_time = settings.exclusive and not executor.one_per_machine
        self._batch = executor.batch if settings.replays else 1
        self._waiting: deque[list[Unfinished]] = deque()
        self._pending: dict[Future[list[Outcome]], list[Unfinished]] = {}
        self._numbers = itertools.count(1)  # of the runs that have begun
        self._used: set[int] = set()  # jobs

    def outcomes(self) -> Outcomes:
        """Yield each run with its log, or with the reason why it failed."""
        for one in self._runs:
            if one.complete:
                assert one.held is not None
                self._end(one, one.held)
                yield one.run, one.held
        left = [one for one in self._runs if not one.complete]
        size = max(1, min(self._batch, len(left) // self._ahead()))
        self._waiting.extend(left[i : i + size] for i in range(0, len(left), size))
        try:
            while self._waiting or self._pending:
                while self._waiting and len(self._pending) < self._ahead():
                    self._submit(self._waiting.popleft())
                done, _ = wait(self._pending, LOOK_SECONDS, FIRST_COMPLETED)
                # In the order of submission: a run that waited for the worker of another comes after it.
                for future in [future for future in self._pending if future in done]:
                    yield from self._ended(future, self._pending.pop(future))
                self._look()
        finally:
            for future in self._pending:
                future.cancel()
            self._shared.cleanup()

    def _jobs(self) -> int:
        """Return how many tasks the executor performs at the same time, which may change."""
        return max(1, self._executor.jobs)

    def _ahead(self) -> int:
        """Return how many tasks to submit: two for each worker, which then need not wait for the next."""
        return 1 if self._one_at_a_time else 2 * self._jobs()

    def _submit(self, batch: list[Unfinished]) -> None:
        runs = [replace(one.run, log=one.run.log.absolute()) for one in batch]
        held = tuple(read_bytes(run.log) if run.log.is_file() else None for run in runs)
        settings = tuple(msgspec.to_builtins(run.settings) for run in runs)
        try:
            future = self._executor.submit(perform, Task(self._around, cloudpickle.dumps(runs), settings, held))
        except (BrokenExecutor, RuntimeError) as error:
            future = Future()
            future.set_exception(error)
        self._pending[future] = batch

    def _ended(self, future: Future[list[Outcome]], batch: list[Unfinished]) -> Outcomes:
        try:
            outcomes = future.result()
        except Exception as loss:
            for one in batch:
                yield from self._again(one, f"its worker was lost: {described(loss)}", loss)
            return
        for one, outcome in zip(batch, outcomes, strict=True):
            for text in outcome.warned:
                warnings.warn(text, SearchlabWarning, stacklevel=2)
            if outcome.busy:
                yield from self._again(one, outcome.refused, SearchlabError(outcome.refused))
            else:
                yield one.run, self._taken(one, outcome)

    def _again(self, one: Unfinished, reason: str, error: Exception) -> Outcomes:
        """Submit a lost run again, after all others, or yield the reason why not."""
        size = _size(one.run.log)
        one.losses = 1 if size > one.size else one.losses + 1
        one.size = size
        if one.losses < LOSSES and not isinstance(error, BrokenExecutor):
            self._waiting.append([one])
        else:
            self._used.discard(one.job)
            failed = SearchlabError(f"{reason}; run this again to resume, logged trials are kept")
            failed.__cause__ = error
            yield one.run, failed

    def _taken(self, one: Unfinished, outcome: Outcome) -> Log | SearchlabError:
        """Return the log of a run that has ended, or the reason why it failed."""
        try:
            if outcome.log is not None:
                _put(one.run.log, outcome.log)
            if not outcome.failed:
                log = read_log(one.run.log)
                self._end(one, log)
                return log
            failed = SearchlabError(outcome.refused or outcome.failed.strip().splitlines()[-1])
            failed.__cause__ = RunTraceback(f"\n{outcome.failed}")
        except SearchlabError as error:
            failed = error
        self._used.discard(one.job)
        return failed

    def _look(self) -> None:
        """Report new trials of the running runs that measure: a table answers at once.

        If as many runs are shown as there are jobs, one of them has ended and has not come back yet; a run that has
        begun since waits for its job.
        """
        going = [one for batch in self._pending.values() for one in batch]
        free = self._jobs() - sum(one.job >= 0 for one in going)
        for one in going:
            if one.run.settings.replays or (one.job < 0 and free <= 0) or (size := _size(one.run.log)) == one.seen:
                continue
            one.seen = size
            try:
                log = read_held(one.run.log)
            except SearchlabError:  # reported when the run ends
                continue
            if log is not None and (one.held is None or len(log.records) > len(one.held.records)):
                free -= one.job < 0
                self._tell(one, log)

    def _end(self, one: Unfinished, log: Log) -> None:
        """Report the trials of a run that has ended, and free its job."""
        self._tell(one, log)
        self._used.discard(one.job)

    def _tell(self, one: Unfinished, log: Log) -> None:
        """Call ``on_trial`` with the new trials of a run, and ``on_run`` before the first."""
        if one.job < 0:
            one.job = next(job for job in itertools.count() if job not in self._used)
            self._used.add(one.job)
            one.on_trial = self._on_run(one.run, next(self._numbers), len(self._runs), one.job)
        before = len(one.held.records) if one.held is not None else 0
        new, one.told = log.records[one.told :], len(log.records)
        if one.on_trial is not None:
            for record in new:
                one.on_trial(record.trial, record.index < before)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _put(path: Path, data: bytes) -> None:
    """Write ``data``, which continues the log at ``path``, in its place. Raises SearchlabError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with closing(LeasedFile(path)) as file:
            held = read_bytes(path)
            if not data.startswith(held[: held.rfind(b"\n") + 1]):
                raise SearchlabError(f"{path} has changed while its run continued on another machine; run this again")
            file.write(data, 0)
            file.sync()
    except OSError as error:
        raise SearchlabError(f"cannot write the log {path}: {error.strerror}; free space and run again") from None


class _Here:
    """What a worker process keeps between tasks: a table that was read answers all runs of one study."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._study = ""
        self._known: KnownPrograms = {}
        self._measurers = Measurers(self._known, Path())

    def measurers(self, around: Surroundings) -> Measurers:
        if around.study != self._study:
            self._measurers.close()
            self._study, self._measurers = around.study, Measurers(self._known, around.base)
        self._known.clear()
        self._known.update(pickle.loads(around.known))
        return self._measurers


_HERE = _Here()


def perform(task: Task) -> list[Outcome]:
    """Execute the runs of ``task``, and return how each ended. Only a task that cannot be read raises an error.

    A process executes one run at a time, however many threads call this: libraries that a run uses may not be safe for
    threads.
    """
    with _HERE.lock:
        runs: list[Run] = pickle.loads(task.runs)
        outcomes = []
        for run, plain, held in zip(runs, task.settings, task.held, strict=True):
            run = replace(run, settings=msgspec.convert(plain, Settings))
            measurers = _HERE.measurers(task.around)
            outcomes.append(_performed(run, held, task.around, measurers))
            if outcomes[-1].failed or not (run.settings.replays or task.around.kept):
                measurers.close()
        return outcomes


def _performed(run: Run, held: bytes | None, around: Surroundings, measurers: Measurers) -> Outcome:
    with warnings.catch_warnings(record=True) as caught:
        if around.shared.exists():
            outcome = _searched(run, around, measurers)
        else:
            with ScratchFolder() as folder:
                log = Path(folder, run.log.name)
                if held is not None:
                    log.write_bytes(held)
                outcome = _searched(replace(run, log=log), around, measurers)
                outcome = replace(
                    outcome,
                    refused=outcome.refused.replace(str(log), str(run.log)),
                    log=log.read_bytes() if log.exists() else None,
                )
    return replace(outcome, warned=tuple(str(one.message) for one in caught if one.category is SearchlabWarning))


def _searched(run: Run, around: Surroundings, measurers: Measurers) -> Outcome:
    """Execute ``run``; while another process writes its log, try again for at most ``PATIENCE``."""
    try:
        with trusting(around.trusts), machine_alone(run.settings.exclusive):
            deadline = time.monotonic() + PATIENCE
            while True:
                try:
                    search(run, measurers.of(run))
                    return Outcome()
                except LogBusy:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.5)
    except SearchlabError as error:
        return Outcome(str(error), traceback.format_exc(), isinstance(error, LogBusy))
    except Exception:
        return Outcome(failed=traceback.format_exc())


@contextmanager
def machine_alone(exclusive: bool) -> Iterator[None]:
    """If ``exclusive``, wait until no other process on this machine is within this context.

    Executors should place such runs on different machines. Where two come together nevertheless, one waits.
    """
    if not exclusive:
        yield
        return
    with socket.socket(socket.AF_UNIX) as place:  # its name disappears with the process, and it leaves no file
        while True:
            try:
                place.bind("\0searchlab-measures")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            time.sleep(0.5)
        yield
