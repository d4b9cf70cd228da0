"""Dispatch runs to an executor, whose workers execute them; lost runs continue from their logs on another worker."""

from __future__ import annotations

import itertools
import os
import pickle
import threading
import time
import traceback
import uuid
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle

from ..errors import SearchlabError, SearchlabWarning, describe, warn
from ..executors.contract import EXECUTORS, RunExecutor
from ..files import real_path, write_file
from ..log.format import Log
from ..log.lease import LogBusy, is_locked
from ..log.read import read_existing_log, read_log, read_log_bytes
from ..log.writer import move_aside
from ..machine.host import describe_machine
from ..machine.lock import lock_machine
from ..machine.scratch import ScratchFolder
from ..plugins import trust_plugins, trusts
from .loop import search
from .open import MeasurementsByConditions, MeasurerCache
from .plan import OnChargedRun, OnChargedTrial, Run

MAX_LOSSES = 5
"""The number of times that a run may be lost without progress in its log before it counts as failed."""

POLL_SECONDS = 1.0
"""The interval at which the logs of runs on an executor are checked for new trials, in seconds."""

BUSY_LOG_TIMEOUT = 20.0
"""How long a run waits for another process, such as a worker presumed lost, to finish writing its log, in seconds."""

WARNING_SUFFIX = ".warning"
"""The ending of files in a study's shared folder that contain a warning from a worker."""

Outcomes = Iterator[tuple[Run, Log | SearchlabError]]
"""Each run, with either its complete log or the reason why it failed."""


class RunTraceback(Exception):
    """The cause of an error raised in another process. Its text is that process's traceback."""


@dataclass(frozen=True)
class StudyContext:
    """The data that all calls in a study share.

    Attributes:
        study_id: A unique name for this execution of the study.
        shared_folder: A folder that is visible on every machine that shares the directory of the logs.
        pickled_measurements: The pickled measurements with which every run begins.
        trusts_plugins: Whether warm-start logs may cause arbitrary modules to be imported.
        keeps_workers: Whether to keep measuring processes for the next run, because the executor ends its workers.
        planning_machine: The machine on which targets such as "native" were resolved.
    """

    study_id: str
    shared_folder: Path
    pickled_measurements: bytes
    trusts_plugins: bool
    keeps_workers: bool
    planning_machine: str

    def send_warning(self, text: str) -> None:
        """Pass a warning to the process of the study, at once if this machine shares its folder."""
        temporary_path = self.shared_folder / uuid.uuid4().hex
        try:
            temporary_path.write_text(text)
            temporary_path.rename(temporary_path.with_suffix(WARNING_SUFFIX))
        except OSError:
            warn(text)


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended. The run is complete if ``traceback_text`` is empty.

    Attributes:
        error_text: The text of a SearchlabError.
        traceback_text: The traceback of any error.
        is_busy: Whether another process is writing the run's log.
        log_bytes: The current content of the run's log, if the directory of the logs is not shared.
    """

    error_text: str = ""
    traceback_text: str = ""
    is_busy: bool = False
    warning_texts: tuple[str, ...] = ()
    log_bytes: bytes | None = None


@dataclass(eq=False)
class PendingRun:
    """A run that may not be complete.

    Attributes:
        loss_count: The number of losses since its log last grew.
        log_size: The size of its log when it was last checked, in bytes.
        job: The number of the run's job, or -1 until the run has begun.
        reported_trial_count: The number of trials that have been passed to on_trial.
    """

    run: Run
    loss_count: int = 0
    log_size: int = 0
    on_trial: OnChargedTrial | None = None
    job: int = -1
    reported_trial_count: int = 0

    @property
    def replayed_trial_count(self) -> int:
        """The number of trials that the log contained when the study began."""
        return len(self.run.existing_log.records) if self.run.existing_log else 0

    def check_log_size(self) -> bool:
        """Return whether its log has changed since the last check. If it has grown, earlier losses no longer count."""
        try:
            size = self.run.log_path.stat().st_size
        except OSError:
            size = 0
        if size > self.log_size:
            self.loss_count = 0
        has_changed, self.log_size = size != self.log_size, size
        return has_changed

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
        runs: Sequence[Run],
        measurements: MeasurementsByConditions,
        on_run: OnChargedRun,
    ) -> None:
        self._executor = executor
        self._settings = runs[0].settings
        self._pending_runs = [PendingRun(run) for run in runs]
        self._on_run = on_run
        folder = Path(os.path.commonpath([run.log_path.absolute().parent for run in runs]))
        folder.mkdir(parents=True, exist_ok=True)
        self._shared_folder = ScratchFolder(str(folder), ".shared-")
        self._context = StudyContext(
            uuid.uuid4().hex,
            Path(self._shared_folder.name),
            pickle.dumps(measurements),
            trusts(),
            executor.ends_workers,
            describe_machine(),
        )
        self._queue: deque[list[PendingRun]] = deque()
        self._batches_by_call: dict[Future[list[RunOutcome]], list[PendingRun]] = {}
        self._run_numbers = itertools.count(1)  # of the runs that have begun
        self._active_jobs: set[int] = set()

    def execute_runs(self) -> Outcomes:
        """Yield each run, with either its log or the reason why it failed."""
        incomplete_runs = []
        for pending_run in self._pending_runs:
            if (log := pending_run.complete_log) is None:
                incomplete_runs.append(pending_run)
            else:
                self._end_run(pending_run, log)
                yield pending_run.run, log
        max_size = self._executor.batch if self._settings.replays else 1
        size = max(1, min(max_size, len(incomplete_runs) // self._count_max_calls()))
        self._queue.extend(incomplete_runs[i : i + size] for i in range(0, len(incomplete_runs), size))
        try:
            while self._queue or self._batches_by_call:
                while self._queue and len(self._batches_by_call) < self._count_max_calls():
                    self._submit(self._queue.popleft())
                completed_calls, _ = wait(self._batches_by_call, POLL_SECONDS, FIRST_COMPLETED)
                # In order of submission, so that a run is reported after the run whose worker it waited for.
                for future in [future for future in self._batches_by_call if future in completed_calls]:
                    yield from self._collect_batch(future, self._batches_by_call.pop(future))
                self._poll_logs()
        finally:
            for future in self._batches_by_call:
                with suppress(Exception):  # the connection to a cluster may be lost
                    future.cancel()
            self._shared_folder.cleanup()

    def _count_jobs(self) -> int:
        """Return the number of tasks that the executor can currently perform at the same time."""
        with EXECUTORS.convert_errors(type(self._executor), "jobs"):
            return max(1, int(self._executor.jobs))

    def _count_max_calls(self) -> int:
        """Return the maximum number of simultaneous calls: two per worker, so that no worker has to wait."""
        is_sequential = self._settings.exclusive and not self._executor.one_per_machine
        return 1 if is_sequential else 2 * self._count_jobs()

    def _submit(self, batch: list[PendingRun]) -> None:
        runs = [pending_run.run for pending_run in batch]
        runs = [
            replace(run, log_path=run.log_path.absolute(), base_dir=run.base_dir.absolute(), existing_log=None)
            for run in runs
        ]
        logs: list[bytes | None] = [None] * len(runs)
        if not self._executor.shares_logs:
            logs = [read_log_bytes(run.log_path) if run.log_path.is_file() else None for run in runs]
        try:
            with EXECUTORS.convert_errors(type(self._executor), "submit"):
                future = self._executor.submit(execute_in_worker, self._context, cloudpickle.dumps(runs), logs)
                if not isinstance(future, Future):
                    raise TypeError(f"it returned {future!r} instead of a concurrent.futures.Future")
        except SearchlabError as error:
            future = Future()
            future.set_exception(error)
        self._batches_by_call[future] = batch

    def _receive_outcomes(self, future: Future[list[RunOutcome]], count: int) -> list[RunOutcome]:
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
            outcomes = self._receive_outcomes(future, len(batch))
        except SearchlabError as loss:
            for pending_run in batch:
                yield from self._resubmit(pending_run, loss)
            return
        for pending_run, outcome in zip(batch, outcomes, strict=True):
            for text in outcome.warning_texts:
                warn(text)
            if outcome.is_busy:
                yield from self._resubmit(pending_run, SearchlabError(outcome.error_text))
            else:
                yield pending_run.run, self._collect_outcome(pending_run, outcome)

    def _resubmit(self, pending_run: PendingRun, error: SearchlabError) -> Outcomes:
        """Resubmit a lost run after all others, or yield the run and the reason why it is not resubmitted."""
        pending_run.check_log_size()
        pending_run.loss_count += 1
        if pending_run.loss_count < MAX_LOSSES and not _is_broken(error):
            self._queue.append([pending_run])
        else:
            self._active_jobs.discard(pending_run.job)
            failure = SearchlabError(f"{error}; run this again to resume: logged trials are kept")
            failure.__cause__ = error
            yield pending_run.run, failure

    def _collect_outcome(self, pending_run: PendingRun, outcome: RunOutcome) -> Log | SearchlabError:
        try:
            if outcome.log_bytes is not None:
                _replace_log(pending_run.run, outcome.log_bytes)
            if not outcome.traceback_text:
                log = read_log(pending_run.run.log_path)
                self._end_run(pending_run, log)
                return log
            failure = SearchlabError(outcome.error_text or outcome.traceback_text.strip().splitlines()[-1])
            failure.__cause__ = RunTraceback(f"\n{outcome.traceback_text}")
        except SearchlabError as error:
            failure = error
        self._active_jobs.discard(pending_run.job)
        return failure

    def _poll_logs(self) -> None:
        """Report workers' warnings and new trials in active runs, except for runs over tables, which end immediately.

        A run that has just begun is not reported while every job is taken. In that case, one of the reported runs has
        ended, but its outcome has not been received yet.
        """
        if self._settings.exclusive:
            for file in Path(self._shared_folder.name).glob(f"*{WARNING_SUFFIX}"):
                warn(file.read_text())
                file.unlink()
        submitted_runs = [pending_run for batch in self._batches_by_call.values() for pending_run in batch]
        # Even if no run is reported, an executor whose workers cannot be reached any more raises an error here.
        free_job_count = self._count_jobs() - sum(pending_run.job >= 0 for pending_run in submitted_runs)
        if self._settings.replays:
            return
        for pending_run in submitted_runs:
            needs_job = pending_run.job < 0
            if (needs_job and free_job_count <= 0) or not pending_run.check_log_size():
                continue
            try:
                log = read_existing_log(pending_run.run.log_path)
            except SearchlabError:  # reported when the run ends
                continue
            if log is not None and (
                pending_run.run.existing_log is None or len(log.records) > pending_run.replayed_trial_count
            ):
                free_job_count -= needs_job
                self._report_trials(pending_run, log)

    def _end_run(self, pending_run: PendingRun, log: Log) -> None:
        self._report_trials(pending_run, log)
        self._active_jobs.discard(pending_run.job)

    def _report_trials(self, pending_run: PendingRun, log: Log) -> None:
        if pending_run.job < 0:
            pending_run.job = next(job for job in itertools.count() if job not in self._active_jobs)
            self._active_jobs.add(pending_run.job)
            pending_run.on_trial = self._on_run(
                pending_run.run, next(self._run_numbers), len(self._pending_runs), pending_run.job
            )
        new_records = log.records[pending_run.reported_trial_count :]
        pending_run.reported_trial_count = len(log.records)
        if pending_run.on_trial is not None:
            for record in new_records:
                replayed = record.index < pending_run.replayed_trial_count
                pending_run.on_trial(record.trial, replayed, float(log.elapsed_seconds[record.index]))


def _is_broken(error: BaseException | None) -> bool:
    """Return whether ``error`` or one of its causes states that the executor accepts no more calls."""
    while error is not None and not isinstance(error, BrokenExecutor):
        error = error.__cause__
    return error is not None


def _replace_log(run: Run, new_bytes: bytes) -> None:
    """Replace the log of ``run`` with ``new_bytes``, which continues it unless the run has discarded it."""
    path = run.log_path
    if path.exists():
        if is_locked(path):
            raise LogBusy(f"another process is writing {path}, whose run has ended on another machine; run this again")
        log_bytes = read_log_bytes(path)
        if not new_bytes.startswith(log_bytes[: log_bytes.rfind(b"\n") + 1]):
            if not run.discard:
                raise SearchlabError(f"{path} changed while its run continued on another machine; run this again")
            move_aside(path)
    write_file(real_path(path), new_bytes, durable=True)


_MEASURERS = MeasurerCache()
"""The measurers of a worker process, which keeps them between calls so that it reads each table once per study."""

_RUN_LOCK = threading.Lock()
"""Held while a worker process executes runs."""


def execute_in_worker(context: StudyContext, pickled_runs: bytes, logs: Sequence[bytes | None]) -> list[RunOutcome]:
    """Execute runs in a worker, and return how each ended. Raises an error only if they cannot be unpickled.

    Even if several threads call this function, a process executes only one run at a time, because runs may use
    libraries that are not thread-safe. ``logs`` is each run's log so far, if the machine may not share its directory.
    """
    with _RUN_LOCK:
        runs: list[Run] = pickle.loads(pickled_runs)
        outcomes = []
        for run, log in zip(runs, logs, strict=True):
            _MEASURERS.begin_run(context.study_id, pickle.loads(context.pickled_measurements))
            outcomes.append(_execute_and_collect_warnings(run, log, context, _MEASURERS))
            if outcomes[-1].traceback_text or not (run.settings.replays or context.keeps_workers):
                _MEASURERS.close()
        return outcomes


def _execute_and_collect_warnings(
    run: Run, log_bytes: bytes | None, context: StudyContext, measurers: MeasurerCache
) -> RunOutcome:
    with warnings.catch_warnings(record=True) as caught_warnings:
        if context.shared_folder.exists():
            outcome = _search_when_free(run, context, measurers)
        else:
            with ScratchFolder() as folder:
                log = Path(folder, run.log_path.name)
                if log_bytes is not None:
                    log.write_bytes(log_bytes)
                outcome = _search_when_free(replace(run, log_path=log), context, measurers)
                outcome = replace(
                    outcome,
                    error_text=outcome.error_text.replace(str(log), str(run.log_path)),
                    log_bytes=log.read_bytes() if log.exists() else None,
                )
    return replace(
        outcome,
        warning_texts=tuple(
            str(warning.message) for warning in caught_warnings if warning.category is SearchlabWarning
        ),
    )


def _search_when_free(run: Run, context: StudyContext, measurers: MeasurerCache) -> RunOutcome:
    """Execute ``run``. If another process is writing the run's log, retry for up to ``BUSY_LOG_TIMEOUT`` seconds."""
    try:
        if run.settings.exclusive and context.planning_machine != (machine := describe_machine()):
            context.send_warning(
                f"runs are measured on {machine}, but were planned on {context.planning_machine}, where the target "
                "'native' and its cores and caches are resolved; unless you chose the target yourself, specify one for "
                f"{machine}"
            )
        with trust_plugins(context.trusts_plugins), lock_machine(run.settings.exclusive, context.send_warning):
            deadline = time.monotonic() + BUSY_LOG_TIMEOUT
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
        return RunOutcome(traceback_text=traceback.format_exc())
