"""A discrete-event simulation of runs that share a fleet, event by event as the loop and the RPC measurer work.

A job makes one run after the other. For each batch it proposes, then builds all programs, then runs them, and only then
proposes again. A device runs one program at a time; the tracker lends devices in the order of the requests, and a job
requests one as soon as a program has none. A job builds with as many processes as there are cores, and talks to devices
with as many as there are devices, but with no more of either than its first batch has trials. A single job starts these
once; if there are several jobs, each starts them again for each of its runs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Literal, get_args

Phase = Literal["starting", "proposing", "building", "running"]


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """Seconds that a trial takes; a trial that neither connects nor runs needs no device."""

    propose: float  # of a core: its share of proposing its batch, training included
    build: float  # of a core
    connect: float = 0.0  # to connect to a device and to send the inputs
    run: float = 0.0  # of a device: to run the program, with its check

    @property
    def on_device(self) -> bool:
        return self.connect > 0 or self.run > 0


Batches = Sequence[Sequence[TrialTimes]]
"""A run: the trials of each of its batches."""


@dataclass(frozen=True)
class Fleet:
    """Devices of one key, and the machine that builds for them."""

    devices: int
    builders: int  # cores of that machine, which its processes share evenly
    jobs: int = 1  # concurrent runs
    start: float = 0.0  # seconds of a core that it takes to start a process


@dataclass
class Spent:
    """How long the runs took, in seconds."""

    seconds: float = 0.0  # from the beginning to the end
    waited: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(get_args(Phase), 0.0))  # summed over jobs
    devices: float = 0.0  # busy, summed
    cores: float = 0.0  # busy, summed


def simulate(runs: Sequence[Batches], fleet: Fleet) -> Spent:
    """Simulate ``runs`` on ``fleet``, in their order.

    A device is not lent again at once: handing it back takes as long as connecting to it did.
    """
    return _Simulation(runs, fleet).run()


Resume = Callable[[], None]
Process = Iterator[Callable[[Resume], None]]
"""What something does in the simulation: it yields each wait, a function that arranges for the process to resume."""


class _Pool:
    """Devices, or processes of a job, which are lent in the order of the requests."""

    def __init__(self, free: int = 0) -> None:
        self.free = free
        self.requests: deque[Resume] = deque()

    def take(self, resume: Resume) -> None:
        self.requests.append(resume)
        self._lend()

    def back(self) -> None:
        self.free += 1
        self._lend()

    def _lend(self) -> None:
        while self.free and self.requests:
            self.free -= 1
            self.requests.popleft()()


class _Simulation:
    """The clock and the events to come.

    Processes on cores advance together, each by ``given`` seconds of a core since the beginning: the next of them to
    end is the one that ends at the least ``given``, however many share the cores until then.
    """

    def __init__(self, runs: Sequence[Batches], fleet: Fleet) -> None:
        self.fleet = fleet
        self.todo = deque(runs)
        self.now = self.given = 0.0
        self.by_clock: list[tuple[float, int, Resume]] = []
        self.on_cores: list[tuple[float, int, Resume]] = []
        self.order = count()
        self.devices = _Pool(fleet.devices)
        self.spent = Spent()

    def run(self) -> Spent:
        for _ in range(min(self.fleet.jobs, len(self.todo))):
            self._go(self._job())
        while self.by_clock or self.on_cores:
            pace = min(1.0, self.fleet.builders / len(self.on_cores)) if self.on_cores else 1.0
            due = self.now + (self.on_cores[0][0] - self.given) / pace if self.on_cores else math.inf
            if self.by_clock and self.by_clock[0][0] < due:
                at, _, resume = heappop(self.by_clock)
                self.given += (at - self.now) * pace
                self.now = at
            else:
                self.given, _, resume = heappop(self.on_cores)
                self.now = due
            resume()
        return self.spent

    def _job(self) -> Process:
        started = False
        while self.todo:
            for batch in self.todo.popleft():
                yield from self._phase("proposing", [self._compute(sum(trial.propose for trial in batch))])
                if not started:
                    started, sessions, builders = True, _Pool(), _Pool(min(self.fleet.builders, len(batch)))
                    for _ in range(min(self.fleet.devices, len(batch))):
                        self._go(self._compute(self.fleet.start), sessions.back)
                    yield from self._phase("starting", [self._compute(self.fleet.start) for _ in range(builders.free)])
                built: list[TrialTimes] = []
                yield from self._phase("building", [self._build(trial, builders, built) for trial in batch])
                on_device = [self._run(trial, sessions) for trial in built if trial.on_device]
                yield from self._phase("running", on_device)
            started = started and self.fleet.jobs == 1
        self.spent.seconds = self.now

    def _build(self, trial: TrialTimes, builders: _Pool, built: list[TrialTimes]) -> Process:
        yield builders.take
        yield from self._compute(trial.build)
        built.append(trial)
        builders.back()

    def _run(self, trial: TrialTimes, sessions: _Pool) -> Process:
        yield sessions.take
        yield self.devices.take
        self.spent.devices += trial.run + 2 * trial.connect
        yield from self._sleep(trial.connect + trial.run)
        sessions.back()
        self._go(self._sleep(trial.connect), self.devices.back)

    def _compute(self, seconds: float) -> Process:
        self.spent.cores += seconds
        yield lambda resume: heappush(self.on_cores, (self.given + seconds, next(self.order), resume))

    def _sleep(self, seconds: float) -> Process:
        yield lambda resume: heappush(self.by_clock, (self.now + seconds, next(self.order), resume))

    def _phase(self, phase: Phase, processes: Sequence[Process]) -> Process:
        """Wait until all ``processes`` have ended."""
        since, left = self.now, len(processes)

        def wait(resume: Resume) -> None:
            def ended() -> None:
                nonlocal left
                left -= 1
                if not left:
                    resume()

            for process in processes:
                self._go(process, ended)

        if processes:
            yield wait
        self.spent.waited[phase] += self.now - since

    def _go(self, process: Process, ended: Resume = lambda: None) -> None:
        """Advance ``process`` to its next wait, after which it goes on; call ``ended`` at its end."""
        wait = next(process, None)
        if wait is None:
            ended()
        else:
            wait(partial(self._go, process, ended))
