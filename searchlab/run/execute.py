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

from ..errors import RunsFailed, SearchlabError, SearchlabWarning, describe, warn
from ..executors.contract import EXECUTORS, RunExecutor
from ..files import write_error
from ..log.format import Log, read_existing_log, read_log, read_log_bytes
from ..log.lease import LeasedFile, LogBusy
from ..log.result import disagreement
from ..log.writer import move_aside
from ..machine.host import observe_load, this_machine
from ..machine.lock import machine_alone
from ..machine.scratch import ScratchFolder
from ..measure.contract import Conditions, MeasurementsByProgram, Measurer, conditions
from ..measure.settings import Settings
from ..plugins import trust_plugins, trusts
from ..target import Target
from ..units import VALUES
from .loop import search
from .open import open_runs
from .plan import OnChargedRun, OnChargedTrial, Run
from .progress import announce

MAX_LOSSES = 5
"""The number of times that a run may be lost without progress in its log before it counts as failed."""

POLL_SECONDS = 1.0
"""The interval at which the logs of runs on an executor are checked for new trials, in seconds."""

BUSY_LOG_SECONDS = 20.0
"""How long a run waits for another process, such as a worker presumed lost, to finish writing its log, in seconds."""

WARNING_SUFFIX = ".warning"
"""The ending of files in a study's shared folder that contain a warning from a worker."""

Outcomes = Iterator[tuple[Run, Log | SearchlabError]]
"""Each run, with either its complete log or the reason why it failed."""

MeasurementsByConditions = MutableMapping[Conditions, MeasurementsByProgram]
"""The programs that are not measured again, by the conditions under which they were measured."""


class RunTraceback(Exception):
    """The cause of an error raised in another process. Its text is that process's traceback."""


def execute(
    runs: Sequence[Run],
    base: Path,
    on_run: OnChargedRun,
    executor: RunExecutor | None = None,
    on_ready: Callable[[], None] = lambda: None,
    study: Sequence[Run] = (),
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
        on_ready: Called when the existing logs have been checked.
        study: All runs of the study, if ``runs`` are only a part of them.

    Returns:
        The complete log of each run, by path.

    Raises:
        RunsFailed: If any runs failed. It is raised at the end, when all other runs are complete.
    """
    logs: dict[Path, Log] = {}
    failed: dict[Path, SearchlabError] = {}
    measurements: MeasurementsByConditions = defaultdict(dict)
    with closing(MeasurerCache(measurements, base)) as measurers:
        if executor is None or not runs[0].settings.exclusive:  # else an executor may measure other machines
            measurers.for_run(runs[0])  # rejects invalid settings before any log is read
        runs = open_runs(runs, study or runs, on_this_machine=executor is None)
        for run in runs:
            _add_measurements(run, measurements)
        _announce_logs(runs)
        on_ready()
        if executor is None:
            outcomes = _search_each(runs, measurers, on_run)
        else:
            measurers.close()
            outcomes = Dispatch(executor, [PendingRun(run) for run in runs], base, measurements, on_run).outcomes()
        for run, outcome in outcomes:
            if isinstance(outcome, SearchlabError):
                failed[run.log] = outcome
            else:
                logs[run.log] = outcome
    if failed:
        reasons = {run.log: str(failed[run.log]) for run in runs if run.log in failed}
        raise RunsFailed(reasons, len(runs)) from next(iter(failed.values()))
    return logs


def execute_one(run: Run, base: Path, on_run: OnChargedRun) -> Log:
    """Execute ``run`` in this process and return its log. If the run fails, its SearchlabError is raised."""
    try:
        return execute([run], base, on_run)[run.log]
    except RunsFailed as failed:
        assert failed.__cause__ is not None
        error = failed.__cause__
    raise error


def _search_each(runs: Sequence[Run], measurers: MeasurerCache, on_run: OnChargedRun) -> Outcomes:
    for number, run in enumerate(runs, 1):
        on_trial = on_run(run, number, len(runs), 0)
        try:
            outcome: Log | SearchlabError = search(run, measurers.for_run(run), on_trial)
        except SearchlabError as error:
            outcome = error
        yield run, outcome


def _announce_logs(runs: Sequence[Run]) -> None:
    """Announce how many trials are in existing logs, so that they are not measured again."""
    logs = [run.existing_log for run in runs if run.existing_log and run.existing_log.records]
    trials = sum(len(log.records) for log in logs)
    complete = sum(bool(run.existing_log and run.budget.is_complete(run.existing_log)) for run in runs)
    if len(runs) == 1 and logs:
        announce(f"{runs[0].log} {'is complete' if complete else 'continues'} after {trials} trials")
    elif logs:
        announce(f"{trials:,} trials are already logged; {complete:,} of {len(runs):,} runs are complete")


def _add_measurements(run: Run, measurements_by_conditions: MeasurementsByConditions) -> None:
    """Add the measurements in the run's log to ``measurements_by_conditions``, except those from tables."""
    if run.existing_log is None or run.settings.replays:
        return
    header = run.existing_log.header
    measurements = measurements_by_conditions[conditions(header.host, header.target, header.measure)]
    for record in run.existing_log.records:
        if record.program and (record.program not in measurements or measurements[record.program].pruned):
            measurements[record.program] = replace(record.measurement, reused=False)


def warn_of_results(runs: Sequence[Run], logs: Mapping[Path, Log]) -> None:
    """Warn about logs that contain more trials than their runs' budgets, and about unreliable times of best programs.

    No trials are removed from the logs.
    """
    within_budget = {run.log: len(run.budget.truncate(logs[run.log]).records) for run in runs}
    over_budget = [run.log for run in runs if within_budget[run.log] < len(logs[run.log].records)]
    if over_budget:
        first = over_budget[0]
        others = f" (and so do {len(over_budget) - 1} other logs)" if len(over_budget) > 1 else ""
        warn(
            f"{first} contains {len(logs[first].records)} trials, more than the {within_budget[first]} requested"
            f"{others}; results include all trials in a log"
        )
    doubts = [(path, text) for path, log in logs.items() if (text := disagreement(log))]
    if doubts:
        others = f"; the same happened in {len(doubts) - 1} other runs" if len(doubts) > 1 else ""
        warn(f"{doubts[0][0]}: {doubts[0][1]}{others}")


def warn_of_a_busy_machine(runs: Sequence[Run]) -> None:
    """Warn if this machine is about to be measured while other processes keep it busy."""
    if not any(run.settings.exclusive and run.space.workload.unit not in VALUES for run in runs):
        return  # the value of a function is the same on a busy machine
    if text := observe_load():
        warn(text)


class MeasurerCache:
    """Creates the measurer for each run in turn. Consecutive runs with the same settings and target share a measurer.

    Args:
        measurements: The measurements of programs that are not measured again. Each run uses only those under its own
            conditions.
        base: The directory that relative paths start from.
    """

    def __init__(self, measurements: MeasurementsByConditions, base: Path) -> None:
        self._measurements = measurements
        self._base = base
        self._purpose: tuple[Settings, Target | None] | None = None
        self._measurer: Measurer | None = None

    def for_run(self, run: Run) -> Measurer:
        purpose = run.settings, None if run.settings.replays else run.space.target
        if self._measurer is None or purpose != self._purpose:
            self.close()
            measurements = {} if run.settings.replays else self._measurements.setdefault(run.conditions, {})
            self._measurer = run.settings.make(run.space.target, measurements, self._base)
            self._purpose = purpose
        return self._measurer

    def close(self) -> None:
        if self._measurer is not None:
            self._measurer.close()
        self._measurer = None


@dataclass(frozen=True)
class StudyContext:
    """The data that all calls in a study share.

    Attributes:
        study: A unique name for this execution of the study.
        base: The directory that relative paths start from.
        shared_folder: A folder that is visible on every machine that shares the directory of the logs.
        measurements: The pickled measurements with which every run begins.
        trusts_plugins: Whether warm-start logs may cause arbitrary modules to be imported.
        keep_workers: Whether to keep measuring processes for the next run, because the executor ends its workers.
        planning_machine: The machine on which targets such as "native" were resolved.
    """

    study: str
    base: Path
    shared_folder: Path
    measurements: bytes
    trusts_plugins: bool
    keep_workers: bool
    planning_machine: str

    def send_warning(self, text: str) -> None:
        """Pass a warning to the process of the study, at once if this machine shares its folder."""
        part = self.shared_folder / uuid.uuid4().hex
        try:
            part.write_text(text)
            part.rename(part.with_suffix(WARNING_SUFFIX))
        except OSError:
            warn(text)


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended. The run is complete if ``traceback`` is empty.

    Attributes:
        error: The text of a SearchlabError.
        traceback: The traceback of any error.
        is_busy: Whether another process is writing the run's log.
        log: The current content of the run's log, if the directory of the logs is not shared.
    """

    error: str = ""
    traceback: str = ""
    is_busy: bool = False
    warnings: tuple[str, ...] = ()
    log: bytes | None = None


@dataclass(eq=False)
class PendingRun:
    """A run that may not be complete.

    Attributes:
        losses: The number of losses since its log last grew.
        size_at_loss: The size of its log at the last loss, in bytes.
        checked_size: The size of its log when it was last checked for new trials.
        job: The number of the run's job, or -1 until the run has begun.
        reported_trials: The number of trials that have been passed to on_trial.
    """

    run: Run
    losses: int = 0
    size_at_loss: int = 0
    checked_size: int = 0
    on_trial: OnChargedTrial | None = None
    job: int = -1
    reported_trials: int = 0

    @property
    def replayed_trials(self) -> int:
        """The number of trials that the log contained when the study began."""
        return len(self.run.existing_log.records) if self.run.existing_log else 0

    @property
    def complete_log(self) -> Log | None:
        """The log if the run is complete, or None. Runs that measure never are, since finalists may be unmeasured."""
        run, log = self.run, self.run.existing_log
        if log is None or not (run.settings.replays and run.budget.is_complete(log) and run.is_current(log)):
            return None
        return log


class Dispatch:
    """Executes runs on an executor. Lost runs are resubmitted one by one, and continue from their logs."""

    def __init__(
        self,
        executor: RunExecutor,
        runs: Sequence[PendingRun],
        base: Path,
        measurements: MeasurementsByConditions,
        on_run: OnChargedRun,
    ) -> None:
        self._executor = executor
        self._runs = runs
        self._on_run = on_run
        folder = Path(os.path.commonpath([pending.run.log.absolute().parent for pending in runs]))
        folder.mkdir(parents=True, exist_ok=True)
        self._shared_folder = ScratchFolder(str(folder), ".shared-")
        self._context = StudyContext(
            uuid.uuid4().hex,
            base.absolute(),
            Path(self._shared_folder.name),
            pickle.dumps(dict(measurements)),
            trusts(),
            executor.ends_workers,
            this_machine(),
        )
        settings = runs[0].run.settings
        self._measures = settings.exclusive
        self._one_at_a_time = settings.exclusive and not executor.one_per_machine
        self._batch = executor.batch if settings.replays else 1
        self._waiting: deque[list[PendingRun]] = deque()
        self._pending: dict[Future[list[RunOutcome]], list[PendingRun]] = {}
        self._numbers = itertools.count(1)  # for numbering the runs that have begun
        self._used_jobs: set[int] = set()  # jobs

    def outcomes(self) -> Outcomes:
        """Yield each run, with either its log or the reason why it failed."""
        unfinished = []
        for pending in self._runs:
            if (log := pending.complete_log) is None:
                unfinished.append(pending)
            else:
                self._end(pending, log)
                yield pending.run, log
        size = max(1, min(self._batch, len(unfinished) // self._pending_limit()))
        self._waiting.extend(unfinished[i : i + size] for i in range(0, len(unfinished), size))
        try:
            while self._waiting or self._pending:
                while self._waiting and len(self._pending) < self._pending_limit():
                    self._submit(self._waiting.popleft())
                done, _ = wait(self._pending, POLL_SECONDS, FIRST_COMPLETED)
                # In order of submission, so that a run is reported after the run whose worker it waited for.
                for future in [future for future in self._pending if future in done]:
                    yield from self._collect_batch(future, self._pending.pop(future))
                self._poll_logs()
        finally:
            for future in self._pending:
                with suppress(Exception):  # the connection to a cluster may be lost
                    future.cancel()
            self._shared_folder.cleanup()

    def _jobs(self) -> int:
        """Return the number of tasks that the executor can currently perform at the same time."""
        with EXECUTORS.convert_errors(type(self._executor), "jobs"):
            return max(1, int(self._executor.jobs))

    def _pending_limit(self) -> int:
        """Return the maximum number of pending tasks: two per worker, so that no worker has to wait."""
        return 1 if self._one_at_a_time else 2 * self._jobs()

    def _submit(self, batch: list[PendingRun]) -> None:
        runs = [replace(pending.run, log=pending.run.log.absolute(), existing_log=None) for pending in batch]
        logs = [read_log_bytes(run.log) if run.log.is_file() else None for run in runs]
        try:
            with EXECUTORS.convert_errors(type(self._executor), "submit"):
                future = self._executor.submit(execute_in_worker, self._context, cloudpickle.dumps(runs), logs)
                if not isinstance(future, Future):
                    raise TypeError(f"it returned {future!r} instead of a concurrent.futures.Future")
        except SearchlabError as error:
            future = Future()
            future.set_exception(error)
        self._pending[future] = batch

    def _result(self, future: Future[list[RunOutcome]], count: int) -> list[RunOutcome]:
        """Return the ``count`` outcomes of a future that is done. Raises SearchlabError if the call was lost.

        The future may contain any exception, and be of a class of the executor's.
        """
        with EXECUTORS.convert_errors(type(self._executor), "submit"):
            try:
                error = future.exception(0)
            except CancelledError as cancelled:
                error = cancelled
            outcomes: Any = None if error else future.result(0)
        if error is not None:
            raise SearchlabError(f"its worker was lost: {describe(error)}") from error
        if not (isinstance(outcomes, list) and [type(outcome) for outcome in outcomes] == [RunOutcome] * count):
            raise SearchlabError("its executor did not return the result of the call")
        return outcomes

    def _collect_batch(self, future: Future[list[RunOutcome]], batch: list[PendingRun]) -> Outcomes:
        try:
            outcomes = self._result(future, len(batch))
        except SearchlabError as loss:
            for pending in batch:
                yield from self._resubmit(pending, loss)
            return
        for pending, outcome in zip(batch, outcomes, strict=True):
            for text in outcome.warnings:
                warn(text)
            if outcome.is_busy:
                yield from self._resubmit(pending, SearchlabError(outcome.error))
            else:
                yield pending.run, self._collect(pending, outcome)

    def _resubmit(self, pending: PendingRun, error: SearchlabError) -> Outcomes:
        """Resubmit a lost run after all others, or yield the run and the reason why it is not resubmitted."""
        size = _size(pending.run.log)
        pending.losses = 1 if size > pending.size_at_loss else pending.losses + 1
        pending.size_at_loss = size
        if pending.losses < MAX_LOSSES and not _is_broken(error):
            self._waiting.append([pending])
        else:
            self._used_jobs.discard(pending.job)
            failed = SearchlabError(f"{error}; run this again to resume: logged trials are kept")
            failed.__cause__ = error
            yield pending.run, failed

    def _collect(self, pending: PendingRun, outcome: RunOutcome) -> Log | SearchlabError:
        try:
            if outcome.log is not None:
                _replace_log(pending.run, outcome.log)
            if not outcome.traceback:
                log = read_log(pending.run.log)
                self._end(pending, log)
                return log
            failed = SearchlabError(outcome.error or outcome.traceback.strip().splitlines()[-1])
            failed.__cause__ = RunTraceback(f"\n{outcome.traceback}")
        except SearchlabError as error:
            failed = error
        self._used_jobs.discard(pending.job)
        return failed

    def _poll_logs(self) -> None:
        """Report workers' warnings and new trials in active runs, except for runs over tables, which end immediately.

        A run that has just begun is not reported while every job is taken. In that case, one of the reported runs has
        ended, but its outcome has not been received yet.
        """
        if self._measures:
            for file in Path(self._shared_folder.name).glob(f"*{WARNING_SUFFIX}"):
                warn(file.read_text())
                file.unlink()
        submitted = [pending for batch in self._pending.values() for pending in batch]
        free = self._jobs() - sum(pending.job >= 0 for pending in submitted)
        for pending in submitted:
            if (
                pending.run.settings.replays
                or (pending.job < 0 and free <= 0)
                or (size := _size(pending.run.log)) == pending.checked_size
            ):
                continue
            pending.checked_size = size
            try:
                log = read_existing_log(pending.run.log)
            except SearchlabError:  # reported when the run ends
                continue
            if log is not None and (pending.run.existing_log is None or len(log.records) > pending.replayed_trials):
                free -= pending.job < 0
                self._report_trials(pending, log)

    def _end(self, pending: PendingRun, log: Log) -> None:
        self._report_trials(pending, log)
        self._used_jobs.discard(pending.job)

    def _report_trials(self, pending: PendingRun, log: Log) -> None:
        if pending.job < 0:
            pending.job = next(job for job in itertools.count() if job not in self._used_jobs)
            self._used_jobs.add(pending.job)
            pending.on_trial = self._on_run(pending.run, next(self._numbers), len(self._runs), pending.job)
        new, pending.reported_trials = log.records[pending.reported_trials :], len(log.records)
        if pending.on_trial is not None:
            for record in new:
                pending.on_trial(record.trial, record.index < pending.replayed_trials, float(log.elapsed[record.index]))


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


def _continues_log(path: Path, data: bytes) -> bool:
    """Return whether ``data`` begins with the complete lines of the log at ``path``."""
    existing = read_log_bytes(path)
    return data.startswith(existing[: existing.rfind(b"\n") + 1])


def _replace_log(run: Run, data: bytes) -> None:
    """Replace the log of ``run`` with ``data``, which continues it unless the run has discarded it."""
    path = run.log
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if run.discard and path.exists() and not _continues_log(path, data):
            move_aside(path)
        with closing(LeasedFile(path)) as file:
            if not _continues_log(path, data):
                raise SearchlabError(f"{path} changed while its run continued on another machine; run this again")
            file.write(data, 0)
            file.sync(len(data))
    except OSError as error:
        raise write_error(path, error) from None


class _WorkerState:
    """The data that a worker process keeps between tasks, so that it reads each table only once per study."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._study = ""
        self._measurements: MeasurementsByConditions = {}
        self._measurers = MeasurerCache(self._measurements, Path())

    def measurers(self, context: StudyContext) -> MeasurerCache:
        if context.study != self._study:
            self._measurers.close()
            self._study, self._measurers = context.study, MeasurerCache(self._measurements, context.base)
        before: MeasurementsByConditions = pickle.loads(context.measurements)
        for measurements in self._measurements.values():  # which measurers may hold
            measurements.clear()
        for measured, measurements in before.items():
            self._measurements.setdefault(measured, {}).update(measurements)
        return self._measurers


_WORKER_STATE = _WorkerState()


def execute_in_worker(context: StudyContext, pickled_runs: bytes, logs: Sequence[bytes | None]) -> list[RunOutcome]:
    """Execute runs in a worker, and return how each ended. Raises an error only if they cannot be unpickled.

    Even if several threads call this function, a process executes only one run at a time, because runs may use
    libraries that are not thread-safe. ``logs`` is each run's log so far, for machines that do not share its directory.
    """
    with _WORKER_STATE.lock:
        runs: list[Run] = pickle.loads(pickled_runs)
        outcomes = []
        for run, log in zip(runs, logs, strict=True):
            measurers = _WORKER_STATE.measurers(context)
            outcomes.append(_execute_and_collect_warnings(run, log, context, measurers))
            if outcomes[-1].traceback or not (run.settings.replays or context.keep_workers):
                measurers.close()
        return outcomes


def _execute_and_collect_warnings(
    run: Run, log_bytes: bytes | None, context: StudyContext, measurers: MeasurerCache
) -> RunOutcome:
    with warnings.catch_warnings(record=True) as caught_warnings:
        if context.shared_folder.exists():
            outcome = _search_when_free(run, context, measurers)
        else:
            with ScratchFolder() as folder:
                log = Path(folder, run.log.name)
                if log_bytes is not None:
                    log.write_bytes(log_bytes)
                outcome = _search_when_free(replace(run, log=log), context, measurers)
                outcome = replace(
                    outcome,
                    error=outcome.error.replace(str(log), str(run.log)),
                    log=log.read_bytes() if log.exists() else None,
                )
    return replace(
        outcome,
        warnings=tuple(str(warning.message) for warning in caught_warnings if warning.category is SearchlabWarning),
    )


def _search_when_free(run: Run, context: StudyContext, measurers: MeasurerCache) -> RunOutcome:
    """Execute ``run``. If another process is writing the run's log, retry for up to ``BUSY_LOG_SECONDS`` seconds."""
    try:
        if run.settings.exclusive and context.planning_machine != (machine := this_machine()):
            context.send_warning(
                f"runs are measured on {machine}, but were planned on {context.planning_machine}, where the target "
                "'native' and its cores and caches are resolved; unless you chose the target yourself, specify one for "
                f"{machine}"
            )
        with trust_plugins(context.trusts_plugins), machine_alone(run.settings.exclusive, context.send_warning):
            deadline = time.monotonic() + BUSY_LOG_SECONDS
            while True:
                try:
                    search(run, measurers.for_run(run))
                    return RunOutcome()
                except LogBusy:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.5)
    except SearchlabError as error:
        return RunOutcome(str(error), traceback.format_exc(), isinstance(error, LogBusy))
    except Exception:
        return RunOutcome(traceback=traceback.format_exc())
