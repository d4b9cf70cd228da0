"""Making runs on an executor: what is submitted, what was lost, and what has come back."""

from __future__ import annotations

import itertools
import os
import pickle
import uuid
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path

import cloudpickle
import msgspec

from ..errors import SearchlabError, SearchlabWarning, described
from ..executors.contract import RunExecutor
from ..log.format import Log, read_bytes, read_held, read_log
from ..log.writer import LeasedFile
from ..machine.scratch import ScratchFolder
from ..measure.contract import KnownPrograms
from ..plugins import trusts
from .plan import OnRun, OnTrial, Run
from .task import Outcome, Surroundings, Task, perform

LOSSES = 5
"""A run fails when it was lost so many times, and its log has not grown in between."""
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
        except SearchlabError:  # it is told when the run ends
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
