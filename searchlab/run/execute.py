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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

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
from ..records import Trial
from .loop import search
from .plan import OnRun, OnTrial, Run, check_apart


def execute(
    runs: Sequence[Run],
    base: Path,
    on_run: OnRun,
    executor: RunExecutor | None = None,
    ready: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Run, Log]]:
    """Execute ``runs``, and yield each run with its log as soon as the log is complete.

    Either all runs have one target and one kind of measurement, or each is answered from a table. First, each existing
    log is checked against its run; programs that it holds are not measured again. base: the directory from which a
    table's relative path starts. executor: where the runs are made. They share only the measurements that the logs held
    before, so that the results do not depend on which of the runs are quick. By default they are made here, one after
    the other, and share all. ready: called once all logs that exist were found to be those of the runs.
    Raises RunsFailed at the end, if a run failed.
    """
    reasons: dict[Path, str] = {}
    first: Exception | None = None
    for run, log in _execute(runs, base, on_run, executor, ready):
        if isinstance(log, Failed):
            first = first or log.error
            reasons[run.log] = log.reason
        else:
            yield run, log
    if reasons:
        in_order = {run.log: reasons[run.log] for run in runs if run.log in reasons}
        raise RunsFailed(in_order, len(runs)) from first


def execute_one(run: Run, base: Path, on_run: OnRun) -> Log:
    """Execute ``run`` here, and give its log. Raises the SearchlabError that ends it."""
    ((_, log),) = _execute([run], base, on_run, None)
    if isinstance(log, Failed):
        raise log.error
    return log


def warn_of_more(runs: Sequence[Run], logs: Mapping[Path, Log]) -> None:
    """Warn if logs hold more trials than their runs are to have: nothing is taken from a log."""
    within = {run.log: len(run.budget.cut(logs[run.log]).records) for run in runs}
    more = [run.log for run in runs if within[run.log] < len(logs[run.log].records)]
    if more:
        first, others = more[0], f", and {len(more) - 1} other logs hold more as well" if len(more) > 1 else ""
        warnings.warn(
            f"{first} holds {len(logs[first].records)} trials, more than the {within[first]} that were asked "
            f"for{others}; the result is of all that a log holds",
            SearchlabWarning,
            stacklevel=3,
        )


def warn_of_a_busy_machine(runs: Sequence[Run]) -> None:
    """Warn if this machine is about to be measured, and other processes keep it busy."""
    if not any(run.settings.exclusive for run in runs):
        return
    if text := busy_warning(busy_cores(), os.getloadavg()[0], os.cpu_count() or 1):
        warnings.warn(text, SearchlabWarning, stacklevel=3)


def warn_of_disagreement(logs: Iterable[Log]) -> None:
    """Warn of runs whose best took another time when it was measured again."""
    doubts = [(log.path, text) for log in logs if (text := disagreement(log))]
    if doubts:
        others = f"; so did the best of {len(doubts) - 1} other runs" if len(doubts) > 1 else ""
        warnings.warn(f"{doubts[0][0]}: {doubts[0][1]}{others}", SearchlabWarning, stacklevel=3)


def _execute(
    runs: Sequence[Run],
    base: Path,
    on_run: OnRun,
    executor: RunExecutor | None,
    ready: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Run, Log | Failed]]:
    check_apart([run.warm_start for run in runs], [run.log for run in runs])
    known: KnownPrograms = {}
    with Measurers(known, base) as measurers:
        if executor is None or not runs[0].settings.exclusive:  # elsewhere there may be another machine
            measurers.of(runs[0])  # refuses wrong settings before any log is read
        held = [_recall(run, known, here=executor is None) for run in runs]
        ready()
        if executor is not None:
            measurers.close()
            unfinished = [Unfinished(run, log) for run, log in zip(runs, held, strict=True)]
            yield from Dispatch(executor, unfinished, base, known, on_run).outcomes()
            return
        for number, run in enumerate(runs, 1):
            log, held[number - 1] = held[number - 1], None
            on_trial = on_run(run, number, len(runs), 0) or _ignore
            try:
                complete: Log | Failed = search(run, measurers.of(run), on_trial, log)
            except SearchlabError as error:
                complete = Failed(str(error), error)
            yield run, complete


def _ignore(trial: Trial, replayed: bool) -> None:
    pass


def _recall(run: Run, known: KnownPrograms, here: bool) -> Log | None:
    """The existing log of ``run``, or None; its measurements are added to ``known``.

    here: whether this machine is measured, if any is. Raises SearchlabError if the log is damaged, or of another run.
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


LOSSES = 5
"""A run fails if it is lost this many times and its log has not grown in between."""
LOOK_SECONDS = 1.0
"""How often the logs of runs that measure are looked at, for the trials that are new."""


class RunTraceback(Exception):
    """The cause of an error that arose elsewhere; the text is its traceback there."""


@dataclass(frozen=True)
class Failed:
    """Why a run failed; ``error`` is what it raised, or the traceback of that, from elsewhere."""

    reason: str
    error: Exception


@dataclass(eq=False)
class Unfinished:
    """A run, and its log as it was first, if there is one.

    losses: how many times it was lost since its log has last grown; size: its log then, in bytes. seen: its log when
    it was last looked at, in bytes.
    on_trial, job: of a run that has begun. told: the number of its trials that on_trial was called with.
    """

    run: Run
    held: Log | None
    losses: int = 0
    size: int = 0
    seen: int = 0
    on_trial: OnTrial | None = None
    job: int = -1
    told: int = 0

    @property
    def complete(self) -> bool:
        """Whether there is nothing to do: a run that measures may still have to measure its finalists again."""
        return self.held is not None and self.run.settings.replays and self.run.budget.complete(self.held)


class Dispatch:
    """Makes runs on an executor. Those that it loses are submitted again, one by one; they go on from their logs."""

    def __init__(
        self, executor: RunExecutor, runs: Sequence[Unfinished], base: Path, known: KnownPrograms, on_run: OnRun
    ) -> None:
        self._executor = executor
        self._runs = runs
        folder = Path(os.path.commonpath([one.run.log.absolute().parent for one in runs]))
        folder.mkdir(parents=True, exist_ok=True)
        self._shared = ScratchFolder(str(folder), ".shared-")
        self._around = Surroundings(
            uuid.uuid4().hex, base.absolute(), Path(self._shared.name), pickle.dumps(dict(known)), trusts(),
            executor.ends_workers,
        )  # fmt: skip
        exclusive = runs[0].run.settings.exclusive
        self._one_at_a_time = exclusive and not executor.one_per_machine
        self._batch = executor.batch if runs[0].run.settings.replays else 1
        self._waiting: deque[list[Unfinished]] = deque()
        self._pending: dict[Future[list[Outcome]], list[Unfinished]] = {}
        self._progress = _Progress(on_run, len(runs))

    def outcomes(self) -> Iterator[tuple[Run, Log | Failed]]:
        """Each run with its log, or with why it failed."""
        for one in self._runs:
            if one.complete:
                assert one.held is not None
                self._progress.end(one, one.held)
                yield one.run, one.held
        left = [one for one in self._runs if not one.complete]
        size = max(1, min(self._batch, len(left) // self._ahead()))
        self._waiting.extend(left[i : i + size] for i in range(0, len(left), size))
        try:
            while self._waiting or self._pending:
                while self._waiting and len(self._pending) < self._ahead():
                    self._submit(self._waiting.popleft())
                done, _ = wait(self._pending, LOOK_SECONDS, FIRST_COMPLETED)
                # In the order of their submission: a run that waited for the worker of another comes after it.
                for future in [future for future in self._pending if future in done]:
                    yield from self._ended(future, self._pending.pop(future))
                self._look()
        finally:
            for future in self._pending:
                future.cancel()
            self._shared.cleanup()

    def _ahead(self) -> int:
        """How many tasks to submit at a time: one more for each worker, which so need not wait for the next."""
        return 1 if self._one_at_a_time else 2 * self._jobs()

    def _jobs(self) -> int:
        """How many tasks the executor performs at the same time."""
        return max(1, self._executor.jobs)

    def _look(self) -> None:
        """Tell of the runs that go on.

        While as many of them have been told of as there are jobs, one of these has ended, and has not come back: a run
        that has begun since waits for its job.
        """
        going = [one for batch in self._pending.values() for one in batch]
        free = self._jobs() - sum(one.job >= 0 for one in going)
        for one in going:
            if one.job >= 0 or free > 0:
                free -= self._progress.look(one)

    def _submit(self, batch: list[Unfinished]) -> None:
        runs = [replace(one.run, log=one.run.log.absolute()) for one in batch]
        held = tuple(read_bytes(log) if (log := run.log).is_file() else None for run in runs)
        settings = tuple(msgspec.to_builtins(run.settings) for run in runs)
        try:
            future = self._executor.submit(perform, Task(self._around, cloudpickle.dumps(runs), settings, held))
        except (BrokenExecutor, RuntimeError) as error:
            future = Future()
            future.set_exception(error)
        self._pending[future] = batch

    def _ended(self, future: Future[list[Outcome]], batch: list[Unfinished]) -> Iterator[tuple[Run, Log | Failed]]:
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

    def _again(self, one: Unfinished, reason: str, error: Exception) -> Iterator[tuple[Run, Log | Failed]]:
        """Submit a lost run again, after all others; or give why not."""
        size = _size(one.run.log)
        one.losses = 1 if size > one.size else one.losses + 1
        one.size = size
        if one.losses < LOSSES and not isinstance(error, BrokenExecutor):
            self._waiting.append([one])
        else:
            yield one.run, self._failed(one, f"{reason}; run this again to resume, logged trials are kept", error)

    def _taken(self, one: Unfinished, outcome: Outcome) -> Log | Failed:
        """The log of a run that has ended, or why it failed."""
        try:
            if outcome.log is not None:
                _put(one.run.log, outcome.log)
            if outcome.refused:
                return self._failed(one, outcome.refused, RunTraceback(f"\n{outcome.failed}"))
            if outcome.failed:
                reason = outcome.failed.strip().splitlines()[-1]
                return self._failed(one, reason, RunTraceback(f"\n{outcome.failed}"))
            log = read_log(one.run.log)
        except SearchlabError as error:
            return self._failed(one, str(error), error)
        self._progress.end(one, log)
        return log

    def _failed(self, one: Unfinished, reason: str, error: Exception) -> Failed:
        self._progress.free(one)
        return Failed(reason, error)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _put(path: Path, data: bytes) -> None:
    """Put ``data``, the log that goes on where the log at ``path`` ends, in its place. Raises SearchlabError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = LeasedFile(path)
        try:
            held = read_bytes(path)
            if not data.startswith(held[: held.rfind(b"\n") + 1]):
                raise SearchlabError(f"{path} has changed while its run was made elsewhere; run this again")
            file.write(data, 0)
            file.sync()
        finally:
            file.close()
    except OSError as error:
        raise SearchlabError(f"cannot write the log {path}: {error.strerror}; free space and run again") from None


class _Progress:
    """Tells of the runs that go on: of short ones when they have ended, of others as their logs grow."""

    def __init__(self, on_run: OnRun, count: int) -> None:
        self._on_run = on_run
        self._count = count
        self._numbers = itertools.count(1)
        self._jobs: set[int] = set()

    def look(self, one: Unfinished) -> bool:
        """Tell of the trials of ``one`` that are new, if it measures: a table answers at once. Whether it has begun."""
        if one.run.settings.replays or (size := _size(one.run.log)) == one.seen:
            return False
        one.seen = size
        try:
            log = read_held(one.run.log)
        except SearchlabError:  # reported when the run ends
            return False
        if log is None or (one.held is not None and len(log.records) <= len(one.held.records)):
            return False
        begins = one.job < 0
        self._tell(one, log)
        return begins

    def end(self, one: Unfinished, log: Log) -> None:
        """Tell of the trials of a run that has ended."""
        self._tell(one, log)
        self.free(one)

    def free(self, one: Unfinished) -> None:
        """Another run may have the job of ``one``."""
        self._jobs.discard(one.job)

    def _tell(self, one: Unfinished, log: Log) -> None:
        if one.job < 0:
            one.job = next(job for job in itertools.count() if job not in self._jobs)
            self._jobs.add(one.job)
            one.on_trial = self._on_run(one.run, next(self._numbers), self._count, one.job)
        before = len(one.held.records) if one.held is not None else 0
        new = log.records[one.told :]
        one.told = len(log.records)
        for record in new if one.on_trial is not None else ():
            assert one.on_trial is not None
            one.on_trial(record.trial, record.index < before)


PATIENCE = 20.0
"""Seconds that a run waits for a process that still writes its log: one that is thought lost may not have ended yet."""


class Measurers:
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
        self._measurer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Surroundings:
    """What all tasks of a study share.

    study: a name that no other call of the study has. base: the directory that relative paths start from. shared: a
    folder that is there wherever the directory of the logs is shared. known: the pickled measurements that every run
    begins with. trusts: whether logs to start from may name any code. kept: whether processes that measure are kept for
    the next run: where nothing ends them after the last run, they are not.
    """

    study: str
    base: Path
    shared: Path
    known: bytes
    trusts: bool
    kept: bool


@dataclass(frozen=True)
class Task:
    """Runs that are made one after the other, in one call.

    runs: pickled, with absolute paths. settings: of each run, as plain data: pickled, they would forget which of them
    were left at their defaults, and the header of a log would differ. held: the log of each run so far, if any, for
    where the directory of the logs is not shared.
    """

    around: Surroundings
    runs: bytes
    settings: tuple[Any, ...]
    held: tuple[bytes | None, ...]


@dataclass(frozen=True)
class Outcome:
    """How a run ended; it is complete if neither text is there.

    refused: the text of a SearchlabError. failed: the traceback of any error. busy: whether another process writes its
    log. warned: its warnings. log: what its log holds now, where the directory of the logs is not shared.
    """

    refused: str = ""
    failed: str = ""
    busy: bool = False
    warned: tuple[str, ...] = ()
    log: bytes | None = None


def perform(task: Task) -> list[Outcome]:
    """Make the runs of ``task``, and say how each ended.

    A process makes one run at a time, however many threads call this: what a run asks of its libraries may not be fit
    for threads. Only a task that cannot be read raises an error.
    """
    with _HERE.lock:
        runs: list[Run] = pickle.loads(task.runs)
        settings = [msgspec.convert(plain, Settings) for plain in task.settings]
        runs = [replace(run, settings=own) for run, own in zip(runs, settings, strict=True)]
        outcomes = []
        for run, held in zip(runs, task.held, strict=True):
            measurers = _HERE.measurers(task.around)
            outcomes.append(_performed(run, held, task.around, measurers))
            if outcomes[-1].failed or not (run.settings.replays or task.around.kept):
                measurers.close()
        return outcomes


class _Here:
    """What this process keeps from task to task: a table that was read answers all runs of a study, and no other."""

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


def _performed(run: Run, held: bytes | None, around: Surroundings, measurers: Measurers) -> Outcome:
    warned: list[str] = []

    def keep(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if category is SearchlabWarning:
            warned.append(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = keep
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
    return replace(outcome, warned=tuple(warned))


def _searched(run: Run, around: Surroundings, measurers: Measurers) -> Outcome:
    try:
        with trusting(around.trusts), machine_alone(run.settings.exclusive):
            _patient(lambda: search(run, measurers.of(run)))
    except SearchlabError as error:
        return Outcome(str(error), traceback.format_exc(), isinstance(error, LogBusy))
    except Exception:
        return Outcome(failed=traceback.format_exc())
    return Outcome()


def _patient(search: Callable[[], object]) -> None:
    """Call ``search`` again while another process writes its log, for at most ``PATIENCE``."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            search()
            return
        except LogBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


@contextmanager
def machine_alone(exclusive: bool) -> Iterator[None]:
    """Within, nobody else on this machine is within it, if ``exclusive``.

    Executors are asked to place such runs on different machines. Where two come together all the same, one waits.
    """
    if not exclusive:
        yield
        return
    with socket.socket(socket.AF_UNIX) as place:  # its name is gone with the process, and no file is left
        while True:
            try:
                place.bind("\0searchlab-measures")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            time.sleep(0.5)
        yield
