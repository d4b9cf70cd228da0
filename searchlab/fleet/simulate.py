"""A discrete-event simulation of runs that share a fleet, event by event as the loop and the RPC measurer go.

A job makes one run after the other. For each batch it proposes, then builds all programs, then runs them, and only then
proposes again. A device runs one program at a time; the tracker lends devices in the order in which they are asked for,
and a job asks for one as soon as a program has none. A job builds with as many processes as there are cores, and talks
to devices with as many as there are devices, but with no more of either than its first batch has trials. One job
starts these once; if there are several jobs, each starts them again for each of its runs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Literal

Phase = Literal["starting", "proposing", "building", "running"]


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """Seconds that a trial takes.

    propose: its share of proposing its batch, training included; build: to build its program. Both of a core.
    connect: to connect to a device and to send the inputs; run: of the program there, with its check. Without either,
    the trial needs no device.
    """

    propose: float
    build: float
    connect: float = 0.0
    run: float = 0.0

    @property
    def on_device(self) -> bool:
        return self.connect > 0 or self.run > 0


Batches = Sequence[Sequence[TrialTimes]]
"""A run: the trials of each of its batches."""


@dataclass(frozen=True)
class Fleet:
    """Devices of one key, and the machine that builds for them.

    builders: its cores. If more processes work on them, as those of several jobs do, they share the cores evenly.
    jobs: how many runs go on at the same time, as `searchlab run --jobs` has it.
    start: seconds of a core that it takes to start a process.
    """

    devices: int
    builders: int
    jobs: int = 1
    start: float = 0.0


@dataclass
class Spent:
    """How long the runs took, in seconds.

    seconds: from the beginning to the end. waited: what jobs waited for, added up over the jobs. devices, cores: how
    long these were busy, added up.
    """

    seconds: float = 0.0
    waited: dict[Phase, float] = field(
        default_factory=lambda: {"starting": 0.0, "proposing": 0.0, "building": 0.0, "running": 0.0}
    )
    devices: float = 0.0
    cores: float = 0.0


def simulate(runs: Sequence[Batches], fleet: Fleet) -> Spent:
    """Make ``runs`` on ``fleet``, in their order.

    A device is not lent again at once: handing it back takes as long as connecting to it did.
    """
    return _Simulation(runs, fleet).run()


@dataclass
class _Job:
    """A job: the batches that its run has left, and the trials of its batch by where they are.

    started: whether it has processes. starting: those that build and are not ready. sessions: those for devices that
    are ready.
    """

    batches: Iterator[Sequence[TrialTimes]] = field(default_factory=lambda: iter(()))
    phase: Phase = "proposing"
    since: float = 0.0
    started: bool = False
    starting: int = 0
    sessions: int = 0
    to_build: deque[TrialTimes] = field(default_factory=deque)
    building: int = 0
    to_run: deque[TrialTimes] = field(default_factory=deque)
    requested: int = 0
    running: int = 0


class _Simulation:
    """The clock, what ends when, and who waits.

    Processes on cores advance together, each by ``given`` seconds of a core since the beginning: what ends next of them
    is what ends at the least ``given``, however many share the cores until then.
    """

    def __init__(self, runs: Sequence[Batches], fleet: Fleet) -> None:
        self.fleet = fleet
        self.todo = deque(runs)
        self.now = self.given = 0.0
        self.by_clock: list[tuple[float, int, Callable[[], None]]] = []
        self.on_cores: list[tuple[float, int, Callable[[], None]]] = []
        self.order = count()
        self.free = fleet.devices
        self.requests: deque[_Job] = deque()
        self.spent = Spent()

    def run(self) -> Spent:
        for _ in range(min(self.fleet.jobs, len(self.todo))):
            self._next_run(_Job())
        while self.by_clock or self.on_cores:
            pace = min(1.0, self.fleet.builders / len(self.on_cores)) if self.on_cores else 1.0
            due = self.now + (self.on_cores[0][0] - self.given) / pace if self.on_cores else math.inf
            if self.by_clock and self.by_clock[0][0] < due:
                at, _, happens = heappop(self.by_clock)
                self.given += (at - self.now) * pace
                self.now = at
            else:
                self.given, _, happens = heappop(self.on_cores)
                self.now = due
            happens()
        return self.spent

    def _after(self, seconds: float, happens: Callable[[], None]) -> None:
        heappush(self.by_clock, (self.now + seconds, next(self.order), happens))

    def _computed(self, seconds: float, happens: Callable[[], None]) -> None:
        self.spent.cores += seconds
        heappush(self.on_cores, (self.given + seconds, next(self.order), happens))

    def _enter(self, job: _Job, phase: Phase) -> None:
        self.spent.waited[job.phase] += self.now - job.since
        job.phase, job.since = phase, self.now

    # --- a job ----------------------------------------------------------------------------------------

    def _next_run(self, job: _Job) -> None:
        if not self.todo:
            self.spent.seconds = self.now
            return
        job.batches = iter(self.todo.popleft())
        if self.fleet.jobs > 1:
            job.started, job.sessions = False, 0
        self._next_batch(job)

    def _next_batch(self, job: _Job) -> None:
        self._enter(job, "proposing")
        batch = next(job.batches, None)
        if batch is None:
            self._next_run(job)
        else:
            self._computed(sum(trial.propose for trial in batch), partial(self._proposed, job, batch))

    def _proposed(self, job: _Job, batch: Sequence[TrialTimes]) -> None:
        job.to_build.extend(batch)
        if job.started:
            self._build_all(job)
            return
        self._enter(job, "starting")
        job.started = True
        job.starting = min(self.fleet.builders, len(batch))
        for _ in range(min(self.fleet.devices, len(batch))):
            self._computed(self.fleet.start, partial(self._session_ready, job))
        for _ in range(job.starting):
            self._computed(self.fleet.start, partial(self._builder_ready, job))

    def _session_ready(self, job: _Job) -> None:
        job.sessions += 1
        if job.phase == "running":
            self._request(job)

    def _builder_ready(self, job: _Job) -> None:
        job.starting -= 1
        if not job.starting:
            self._build_all(job)

    def _build_all(self, job: _Job) -> None:
        self._enter(job, "building")
        for _ in range(min(self.fleet.builders, len(job.to_build))):
            self._build(job)

    def _build(self, job: _Job) -> None:
        trial = job.to_build.popleft()
        job.building += 1
        self._computed(trial.build, partial(self._built, job, trial))

    def _built(self, job: _Job, trial: TrialTimes) -> None:
        job.building -= 1
        if trial.on_device:
            job.to_run.append(trial)
        if job.to_build:
            self._build(job)
        elif not job.building:
            self._enter(job, "running")
            self._request(job)

    # --- devices --------------------------------------------------------------------------------------

    def _request(self, job: _Job) -> None:
        """Ask for as many devices as the job can use; its next batch begins when it has nothing to run any more."""
        if not job.to_run and not job.running:
            self._next_batch(job)
            return
        while job.requested < len(job.to_run) and job.requested + job.running < job.sessions:
            job.requested += 1
            self.requests.append(job)
        self._lend()

    def _lend(self) -> None:
        while self.free and self.requests:
            job = self.requests.popleft()
            trial = job.to_run.popleft()
            job.requested -= 1
            job.running += 1
            self.free -= 1
            taken = trial.connect + trial.run
            self.spent.devices += taken + trial.connect
            self._after(taken, partial(self._answered, job))
            self._after(taken + trial.connect, self._back)

    def _answered(self, job: _Job) -> None:
        job.running -= 1
        self._request(job)

    def _back(self) -> None:
        self.free += 1
        self._lend()
