"""Worker processes that are kept from batch to batch, and the loop that hands them jobs."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar

from .channel import answered
from .messages import SetUp
from .process import START_SECONDS, MeasuringWorker, WorkerDied

Job = TypeVar("Job")


class Late(WorkerDied):
    """The worker was ended, since its time was over."""


class WorkerPool:
    """Processes that are started when they are needed, and kept for the next batch.

    Args:
        threads: Of each process.
        scratch: Where they leave their temporary files; the system's place if "".
        memory_limit_mb: For each candidate; no limit if 0.
    """

    def __init__(self, threads: int = 1, scratch: str = "", memory_limit_mb: int = 0) -> None:
        self._arguments = threads, scratch, memory_limit_mb
        self.processes: list[MeasuringWorker] = []

    def prepare(self, message: SetUp, count: int) -> list[MeasuringWorker]:
        """Return ``count`` processes, each set up by ``message`` or told to be."""
        for process in list(self.processes):
            if not (process.alive and (process.ready or process.told == message)):
                self.discard(process)
        for process in self.processes[:count]:
            if process.told != message:
                process.tell(message)
        while len(self.processes) < count:
            self.another(message)
        return self.processes[:count]

    def ready(self, message: SetUp, count: int) -> list[MeasuringWorker]:
        """Return ``count`` processes that are set up by ``message``. Raises SearchlabError where they cannot be."""
        while True:
            processes = self.prepare(message, count)
            try:
                if all([process.set_up() for process in processes]):
                    return processes
            except BaseException:
                # A late answer of theirs must not be taken for that to another message.
                for process in processes:
                    self.discard(process)
                raise

    def another(self, message: SetUp) -> MeasuringWorker:
        """Start a process, and tell it to set itself up."""
        process = MeasuringWorker(*self._arguments)
        self.processes.append(process)
        process.tell(message)
        return process

    def discard(self, process: MeasuringWorker) -> None:
        process.kill()
        self.processes.remove(process)

    def close(self) -> None:
        for process in list(self.processes):
            self.discard(process)


class Turn(NamedTuple, Generic[Job]):
    """What a process does, since when, and how many seconds it may take.

    job: None while the process sets itself up.
    """

    job: Job | None
    since: float
    limit: float


class Batch(ABC, Generic[Job]):
    """Gives the jobs of a batch to the processes of a pool, and replaces a process that dies, is late or is spoiled.

    A context manager: when an exception ends the batch, the processes that are not idle are ended, too.

    Attributes:
        waiting: The jobs that no process has been given yet.
        idle: The processes that can take a job.
        busy: What each of the others does.
    """

    def __init__(self, pool: WorkerPool, message: SetUp, count: int, jobs: Iterable[Job]) -> None:
        processes = pool.prepare(message, count)
        self.pool = pool
        self.message = message
        self.waiting = deque(jobs)
        self.idle = [process for process in processes if process.ready]
        self.busy: dict[MeasuringWorker, Turn[Job]] = {}
        for process in processes:
            if not process.ready:
                self.begin(process, None, START_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:  # interrupted, for example: nobody wants any more what they do
            for process in [process for process in self.pool.processes if process not in self.idle]:
                self.pool.discard(process)

    longest: float = math.inf
    """Seconds that :meth:`step` waits at most."""

    @abstractmethod
    def offer(self) -> Sequence[Any]:
        """Give waiting jobs to idle processes, and return what else to wait for."""

    @abstractmethod
    def receive(self, process: MeasuringWorker, job: Job) -> None:
        """Take an answer, and :meth:`free` the process if it is the last for ``job``. May raise WorkerDied."""

    @abstractmethod
    def lost(self, job: Job, death: WorkerDied, seconds: float) -> None:
        """Go on without the process that had ``job`` for so many ``seconds``."""

    def run(self) -> None:
        """Do all jobs. No process is busy afterwards."""
        with self:
            while self.waiting or self.busy:
                self.step()

    def step(self) -> list[Any]:
        """Offer jobs, wait until something happens or is due, and return what had something to read."""
        others = self.offer()
        now = time.perf_counter()
        due = min([self.longest, *(turn.since + turn.limit - now for turn in self.busy.values())])
        there = answered([*(process.channel for process in self.busy), *others], due)
        for process, turn in list(self.busy.items()):
            taken = time.perf_counter() - turn.since
            try:
                if process.channel in there:
                    self._receive(process, turn)
                elif taken > turn.limit and not process.channel.poll():  # one that has answered waited for us
                    raise Late(f"took longer than {turn.limit:g} s")
            except WorkerDied as death:
                if turn.job is None:
                    process.excuse(death)
                self._replace(process)
                if turn.job is not None:
                    self.lost(turn.job, death, taken)
        return there

    def begin(self, process: MeasuringWorker, job: Job | None, limit: float) -> None:
        """Time ``process`` from now on."""
        self.busy[process] = Turn(job, time.perf_counter(), limit)

    def free(self, process: MeasuringWorker) -> None:
        """Make ``process`` idle, or replace it where a candidate has changed it."""
        if process.usable:
            del self.busy[process]
            self.idle.append(process)
        else:
            self._replace(process)

    def _receive(self, process: MeasuringWorker, turn: Turn[Job]) -> None:
        if turn.job is not None:
            self.receive(process, turn.job)
            return
        process.hear()
        if process.ready:
            self.free(process)
        else:
            self.begin(process, None, START_SECONDS)

    def _replace(self, process: MeasuringWorker) -> None:
        self.pool.discard(process)
        del self.busy[process]
        self.begin(self.pool.another(self.message), None, START_SECONDS)
