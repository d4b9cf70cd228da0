"""Execute runs, either one after the other in this process or on an executor. A failing run does not end the others."""

from __future__ import annotations

import itertools
import os
import pickle
import threading
import time
import traceback
import uuid
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec

from ..errors import RunsFailed, SearchlabError, SearchlabWarning, described
from ..executors.contract import EXECUTORS, RunExecutor
from ..files import real_path
from ..log.format import Log, read_bytes, read_existing_log, read_log
from ..log.result import disagreement
from ..log.writer import LeasedFile, LogBusy, OtherRun, check_identity, move_aside
from ..machine.host import busy_cores, busy_warning, this_machine
from ..machine.lock import machine_alone
from ..machine.scratch import ScratchFolder
from ..measure.contract import Conditions, KnownPrograms, Measurer, conditions
from ..measure.settings import Settings
from ..plugins import trusting, trusts
from ..target import Target
from .loop import search
from .plan import OnRun, OnTrial, Run

LOSSES = 5
"""The number of times that a run may be lost without progress in its log before it counts as failed."""

LOOK_SECONDS = 1.0
"""The interval at which the logs of runs on an executor are checked for new trials, in seconds."""

PATIENCE = 20.0
"""How long a run waits for another process, such as a worker presumed lost, to finish writing its log, in seconds."""


SAID = ".said"
"""The ending of files in a study's shared folder that contain a warning from a worker."""


Outcomes = Iterator[tuple[Run, Log | SearchlabError]]
"""Each run, with either its complete log or the reason why it failed."""


Known = MutableMapping[Conditions, KnownPrograms]
"""The programs that are not measured again, by the conditions under which they were measured."""


class RunTraceback(Exception):
    """The cause of an error raised in another process. Its text is that process's traceback."""


def execute(
    runs: Sequence[Run],
    base: Path,
    on_run: OnRun,
    executor: RunExecutor | None = None,
    ready: Callable[[], None] = lambda: None,
) -> dict[Path, Log]:
    """Execute ``runs``, which must all have the same target and kind of measurement, or must all use tables.

    First, all existing logs are checked against their runs. Programs in these logs are not measured again.

    Args:
        runs: The runs. Runs with an existing log are resumed.
        base: The directory that relative paths start from.
        on_run: Called when a run begins.
        executor: Where to execute the runs, or None to execute them one after the other in this process. On an
            executor, runs share only the measurements in existing logs, so the results do not depend on which runs
            finish first.
        ready: Called when the existing logs have been checked.

    Returns:
        The complete log of each run, by path.

    Raises:
        RunsFailed: If any runs failed. It is raised at the end, when all other runs are complete.
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
    """Execute ``run`` in this process and return its log. If the run fails, its SearchlabError is raised."""
    ((_, outcome),) = _outcomes([run], base, on_run, None, lambda: None)
    if isinstance(outcome, SearchlabError):
        raise outcome
    return outcome


def _outcomes(
    runs: Sequence[Run], base: Path, on_run: OnRun, executor: RunExecutor | None, ready: Callable[[], None]
) -> Outcomes:
    written = {real_path(run.log) for run in runs}
    for earlier in (earlier for run in runs for earlier in run.warm_start.runs):
        if real_path(path := earlier.log.path) in written:
            raise SearchlabError(f"{path} is a warm start and cannot also be the log; choose a different log file")
    known: Known = defaultdict(dict)
    with closing(Measurers(known, base)) as measurers:
        if executor is None or not runs[0].settings.exclusive:  # else an executor may measure other machines
            measurers.of(runs[0])  # rejects invalid settings before any log is read
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
    unfinished = [PendingRun(run, log) for run, log in zip(runs, held, strict=True)]
    yield from Dispatch(executor, unfinished, base, known, on_run).outcomes()


def _recall(run: Run, known: Known, here: bool) -> Log | None:
    """Return the existing log of ``run``, or None, and add the log's measurements to ``known``.

    Raises SearchlabError if the log is damaged or belongs to a different run. The hosts need to match only if the run
    is executed on this machine (``here``).
    """
    log = read_existing_log(run.log)
    if log is None:
        return None
    header = run.header(log.header.workers)
    try:
        check_identity(run.log, log.header, header if here else msgspec.structs.replace(header, host=log.header.host))
    except OtherRun:
        if not run.discard:
            raise
        move_aside(run.log)
        return None
    if not run.settings.replays:  # tables answer immediately anyway
        programs = known[conditions(log.header.host, log.header.target, log.header.measure)]
        for record in log.records:
            if record.program and (record.program not in programs or programs[record.program].pruned):
                programs[record.program] = replace(record.measurement, reused=False)
    return log


def warn_of_results(runs: Sequence[Run], logs: Mapping[Path, Log]) -> None:
    """Warn about logs that contain more trials than their runs' budgets, and about unreliable times of best programs.

    No trials are removed from the logs.
    """
    within = {run.log: len(run.budget.cut(logs[run.log]).records) for run in runs}
    more = [run.log for run in runs if within[run.log] < len(logs[run.log].records)]
    if more:
        first, others = more[0], f" (and so do {len(more) - 1} other logs)" if len(more) > 1 else ""
        warnings.warn(
            f"{first} contains {len(logs[first].records)} trials, more than the {within[first]} requested{others}; "
            f"results include all trials in a log",
            SearchlabWarning,
            stacklevel=3,
        )
    doubts = [(path, text) for path, log in logs.items() if (text := disagreement(log))]
    if doubts:
        others = f"; the same happened in {len(doubts) - 1} other runs" if len(doubts) > 1 else ""
        warnings.warn(f"{doubts[0][0]}: {doubts[0][1]}{others}", SearchlabWarning, stacklevel=3)


def warn_of_a_busy_machine(runs: Sequence[Run]) -> None:
    """Warn if this machine is about to be measured while other processes keep it busy."""
    if not any(run.settings.exclusive for run in runs):
        return
    if text := busy_warning(busy_cores(), os.getloadavg()[0], os.cpu_count() or 1):
        warnings.warn(text, SearchlabWarning, stacklevel=3)


class Measurers:
    """Creates the measurer for each run in turn. Consecutive runs with the same settings and target share a measurer.

    Args:
        known: The programs that are not measured again. Each run uses only those measured under its own conditions.
        base: The directory that relative paths start from.
    """

    def __init__(self, known: Known, base: Path) -> None:
        self._known = known
        self._base = base
        self._purpose: tuple[Settings, Target | None] | None = None
        self._measurer: Measurer | None = None

    def of(self, run: Run) -> Measurer:
        purpose = run.settings, None if run.settings.replays else run.space.target
        if self._measurer is None or purpose != self._purpose:
            self.close()
            programs = {} if run.settings.replays else self._known.setdefault(run.conditions, {})
            self._measurer = run.settings.make(run.space.target, programs, self._base)
            self._purpose = purpose
        return self._measurer

    def close(self) -> None:
        if self._measurer is not None:
            self._measurer.close()
        self._measurer = None


@dataclass(frozen=True)
class StudyContext:
    """The data that all tasks in a study share."""

    study: str  # a unique name for this execution of the study
    base: Path  # the directory that relative paths start from
    shared: Path  # a folder that is visible on every machine that shares the directory of the logs
    known: bytes  # the pickled measurements with which every run begins
    trusts: bool  # whether warm-start logs may cause arbitrary modules to be imported
    kept: bool  # whether to keep measuring processes for the next run; if so, the executor ends them after the last run
    planned_on: str  # the machine on which targets such as "native" were resolved

    def say(self, text: str) -> None:
        """Pass a warning to the process of the study, at once if this machine shares its folder."""
        part = self.shared / uuid.uuid4().hex
        try:
            part.write_text(text)
            part.rename(part.with_suffix(SAID))
        except OSError:
            warnings.warn(text, SearchlabWarning, stacklevel=2)


@dataclass(frozen=True)
class Task:
    """One or more runs that an executor performs one after the other by calling :func:`perform`."""

    context: StudyContext
    runs: bytes  # pickled, with absolute paths
    settings: tuple[Any, ...]  # each run's settings as plain data, since pickling loses which values are defaults
    held: tuple[bytes | None, ...]  # each run's log so far, for machines that do not share its directory


@dataclass(frozen=True)
class Outcome:
    """How a run ended. The run is complete if ``failed`` is empty."""

    refused: str = ""  # the text of a SearchlabError
    failed: str = ""  # the traceback of any error
    busy: bool = False  # whether another process is writing its log
    warned: tuple[str, ...] = ()
    log: bytes | None = None  # the current content of its log, if the directory of the logs is not shared


@dataclass(eq=False)
class PendingRun:
    """A run that may not be complete, and its log when the study began."""

    run: Run
    held: Log | None
    losses: int = 0  # the number of losses since its log last grew
    size: int = 0  # the size of its log at the last loss, in bytes
    seen: int = 0  # the size of its log when it was last checked for new trials
    on_trial: OnTrial | None = None
    job: int = -1  # -1 until the run has begun
    told: int = 0  # the number of trials that have been passed to on_trial

    @property
    def complete(self) -> bool:
        """Whether the run is complete. Runs that measure never count as complete, since finalists may be unmeasured."""
        log = self.held
        is_complete = log is not None and self.run.settings.replays and self.run.budget.complete(log)
        return is_complete and log is not None and self.run.is_current(log)


class Dispatch:
    """Executes runs on an executor. Lost runs are resubmitted one by one, and continue from their logs."""

    def __init__(
        self, executor: RunExecutor, runs: Sequence[PendingRun], base: Path, known: Known, on_run: OnRun
    ) -> None:
        self._executor = executor
        self._runs = runs
        self._on_run = on_run
        folder = Path(os.path.commonpath([one.run.log.absolute().parent for one in runs]))
        folder.mkdir(parents=True, exist_ok=True)
        self._shared = ScratchFolder(str(folder), ".shared-")
        self._context = StudyContext(
            uuid.uuid4().hex,
            base.absolute(),
            Path(self._shared.name),
            pickle.dumps(dict(known)),
            trusts(),
            executor.ends_workers,
            this_machine(),
        )
        settings = runs[0].run.settings
        self._measures = settings.exclusive
        self._one_at_a_time = settings.exclusive and not executor.one_per_machine
        self._batch = executor.batch if settings.replays else 1
        self._waiting: deque[list[PendingRun]] = deque()
        self._pending: dict[Future[list[Outcome]], list[PendingRun]] = {}
        self._numbers = itertools.count(1)  # for numbering the runs that have begun
        self._used: set[int] = set()  # jobs

    def outcomes(self) -> Outcomes:
        """Yield each run, with either its log or the reason why it failed."""
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
                # In order of submission, so that a run is reported after the run whose worker it waited for.
                for future in [future for future in self._pending if future in done]:
                    yield from self._ended(future, self._pending.pop(future))
                self._look()
        finally:
            for future in self._pending:
                with suppress(Exception):  # the connection to a cluster may be lost
                    future.cancel()
            self._shared.cleanup()

    def _jobs(self) -> int:
        """Return the number of tasks that the executor can currently perform at the same time."""
        with EXECUTORS.blamed(type(self._executor), "jobs"):
            return max(1, int(self._executor.jobs))

    def _ahead(self) -> int:
        """Return the maximum number of pending tasks: two per worker, so that no worker has to wait for its next."""
        return 1 if self._one_at_a_time else 2 * self._jobs()

    def _submit(self, batch: list[PendingRun]) -> None:
        runs = [replace(one.run, log=one.run.log.absolute()) for one in batch]
        held = tuple(read_bytes(run.log) if run.log.is_file() else None for run in runs)
        settings = tuple(msgspec.to_builtins(run.settings) for run in runs)
        task = Task(self._context, cloudpickle.dumps(runs), settings, held)
        try:
            with EXECUTORS.blamed(type(self._executor), "submit"):
                future = self._executor.submit(perform, task)
                if not isinstance(future, Future):
                    raise TypeError(f"it returned {future!r} instead of a concurrent.futures.Future")
        except SearchlabError as error:
            future = Future()
            future.set_exception(error)
        self._pending[future] = batch

    def _result(self, future: Future[list[Outcome]], count: int) -> list[Outcome]:
        """Return the ``count`` outcomes of a future that is done. Raises SearchlabError if the call was lost.

        The future may contain any exception, and be of a class of the executor's.
        """
        with EXECUTORS.blamed(type(self._executor), "submit"):
            try:
                error = future.exception(0)
            except CancelledError as cancelled:
                error = cancelled
            outcomes: Any = None if error else future.result(0)
        if error is not None:
            raise SearchlabError(f"its worker was lost: {described(error)}") from error
        if not (isinstance(outcomes, list) and [type(one) for one in outcomes] == [Outcome] * count):
            raise SearchlabError("its executor did not return the result of the call")
        return outcomes

    def _ended(self, future: Future[list[Outcome]], batch: list[PendingRun]) -> Outcomes:
        try:
            outcomes = self._result(future, len(batch))
        except SearchlabError as loss:
            for one in batch:
                yield from self._again(one, str(loss), loss)
            return
        for one, outcome in zip(batch, outcomes, strict=True):
            for text in outcome.warned:
                warnings.warn(text, SearchlabWarning, stacklevel=2)
            if outcome.busy:
                yield from self._again(one, outcome.refused, SearchlabError(outcome.refused))
            else:
                yield one.run, self._taken(one, outcome)

    def _again(self, one: PendingRun, reason: str, error: Exception) -> Outcomes:
        """Resubmit a lost run after all others, or yield the run and the reason why it is not resubmitted."""
        size = _size(one.run.log)
        one.losses = 1 if size > one.size else one.losses + 1
        one.size = size
        if one.losses < LOSSES and not _is_broken(error):
            self._waiting.append([one])
        else:
            self._used.discard(one.job)
            failed = SearchlabError(f"{reason}; run this again to resume: logged trials are kept")
            failed.__cause__ = error
            yield one.run, failed

    def _taken(self, one: PendingRun, outcome: Outcome) -> Log | SearchlabError:
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
        """Report workers' warnings and new trials in active runs, except for runs over tables, which end immediately.

        A run that has just begun is not reported while every job is taken. In that case, one of the reported runs has
        ended, but its outcome has not been received yet.
        """
        if self._measures:
            for file in Path(self._shared.name).glob(f"*{SAID}"):
                warnings.warn(file.read_text(), SearchlabWarning, stacklevel=2)
                file.unlink()
        going = [one for batch in self._pending.values() for one in batch]
        free = self._jobs() - sum(one.job >= 0 for one in going)
        for one in going:
            if one.run.settings.replays or (one.job < 0 and free <= 0) or (size := _size(one.run.log)) == one.seen:
                continue
            one.seen = size
            try:
                log = read_existing_log(one.run.log)
            except SearchlabError:  # reported when the run ends
                continue
            if log is not None and (one.held is None or len(log.records) > len(one.held.records)):
                free -= one.job < 0
                self._tell(one, log)

    def _end(self, one: PendingRun, log: Log) -> None:
        """Report all remaining trials of a run that has ended, and free its job."""
        self._tell(one, log)
        self._used.discard(one.job)

    def _tell(self, one: PendingRun, log: Log) -> None:
        """Pass a run's new trials to ``on_trial``, after calling ``on_run`` if the run has just begun."""
        if one.job < 0:
            one.job = next(job for job in itertools.count() if job not in self._used)
            self._used.add(one.job)
            one.on_trial = self._on_run(one.run, next(self._numbers), len(self._runs), one.job)
        before = len(one.held.records) if one.held is not None else 0
        new, one.told = log.records[one.told :], len(log.records)
        if one.on_trial is not None:
            for record in new:
                one.on_trial(record.trial, record.index < before)


def _is_broken(error: BaseException | None) -> bool:
    """Return whether ``error`` or one of its causes states that the executor accepts no more calls."""
    while error is not None and not isinstance(error, BrokenExecutor):
        error = error.__cause__
    return error is not None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _put(path: Path, data: bytes) -> None:
    """Replace the log at ``path`` with ``data``, which must continue it. Raises SearchlabError if this fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with closing(LeasedFile(path)) as file:
            held = read_bytes(path)
            if not data.startswith(held[: held.rfind(b"\n") + 1]):
                raise SearchlabError(f"{path} changed while its run continued on another machine; run this again")
            file.write(data, 0)
            file.sync(len(data))
    except OSError as error:
        raise SearchlabError(f"cannot write the log {path}: {error.strerror}; free some space and run again") from None


class _WorkerState:
    """The data that a worker process keeps between tasks, so that it reads each table only once per study."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._study = ""
        self._known: Known = {}
        self._measurers = Measurers(self._known, Path())

    def measurers(self, context: StudyContext) -> Measurers:
        if context.study != self._study:
            self._measurers.close()
            self._study, self._measurers = context.study, Measurers(self._known, context.base)
        before: Known = pickle.loads(context.known)
        for programs in self._known.values():  # which measurers may hold
            programs.clear()
        for measured, programs in before.items():
            self._known.setdefault(measured, {}).update(programs)
        return self._measurers


_WORKER_STATE = _WorkerState()


def perform(task: Task) -> list[Outcome]:
    """Execute the runs in ``task``, and return how each ended. Raises an error only if the task cannot be read.

    Even if several threads call this function, a process executes only one run at a time, because runs may use
    libraries that are not thread-safe.
    """
    with _WORKER_STATE.lock:
        runs: list[Run] = pickle.loads(task.runs)
        outcomes = []
        for run, plain, held in zip(runs, task.settings, task.held, strict=True):
            run = replace(run, settings=msgspec.convert(plain, Settings))
            measurers = _WORKER_STATE.measurers(task.context)
            outcomes.append(_execute_and_collect_warnings(run, held, task.context, measurers))
            if outcomes[-1].failed or not (run.settings.replays or task.context.kept):
                measurers.close()
        return outcomes


def _execute_and_collect_warnings(run: Run, held: bytes | None, context: StudyContext, measurers: Measurers) -> Outcome:
    with warnings.catch_warnings(record=True) as caught:
        if context.shared.exists():
            outcome = _search_when_free(run, context, measurers)
        else:
            with ScratchFolder() as folder:
                log = Path(folder, run.log.name)
                if held is not None:
                    log.write_bytes(held)
                outcome = _search_when_free(replace(run, log=log), context, measurers)
                outcome = replace(
                    outcome,
                    refused=outcome.refused.replace(str(log), str(run.log)),
                    log=log.read_bytes() if log.exists() else None,
                )
    return replace(outcome, warned=tuple(str(one.message) for one in caught if one.category is SearchlabWarning))


def _search_when_free(run: Run, context: StudyContext, measurers: Measurers) -> Outcome:
    """Execute ``run``. If another process is writing the run's log, retry for up to ``PATIENCE`` seconds."""
    try:
        if run.settings.exclusive and context.planned_on != (here := this_machine()):
            context.say(
                f"runs are measured on {here}, but were planned on {context.planned_on}, where the target 'native' and "
                f"its cores and caches are resolved; unless you chose the target yourself, specify one for {here}"
            )
        with trusting(context.trusts), machine_alone(run.settings.exclusive, context.say):
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
