"""Measuring on a fleet: builds here, runs on all devices of a key that TVM's RPC tracker has, at the same time."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from ...arrays import Floats
from ...errors import SearchlabError
from ...machine.cuda import compile_mode
from ...machine.host import available_cores
from ...machine.scratch import ScratchFolder
from ...records import Failure, Measurement
from ...space import Config, Space
from ...target import Target
from ..build_pool import BuildPool
from ..channel import answered
from ..contract import KnownPrograms, Measurer, RunSettings
from ..extractor import Extractor
from ..messages import Built, Connected, Failed, Lost, Ran, RunOn, SetUpSessions, Unfit
from ..process import START_SECONDS, MeasuringWorker, WorkerDied
from .pool import SessionPool
from .tracker import Address, Tracker, answers, reachable, registered

LOOK_SECONDS = 1.0
"""How often the tracker is asked whether it has any device at all, while one is waited for."""


class RpcSettings(RunSettings, frozen=True, kw_only=True, tag="rpc"):
    """Measure on the devices that are registered as ``key`` at TVM's RPC tracker at ``tracker``, ``"host:port"``.

    A device has ``connect_timeout`` seconds to take a connection and the inputs of a program, and only then the time of
    that begins; what waits for a device is not timed. Where a device vanishes, the trial is given to another, up to
    ``retries`` times; where none has been at the tracker for ``device_timeout`` seconds, the run ends. ``cc`` is the
    compiler that links a program for a device that can only load a shared library: one of this machine if "".
    """

    tracker: str
    key: str
    connect_timeout: float = 10.0
    device_timeout: float = 60.0
    retries: int = 3
    cc: str = ""

    aside: ClassVar[tuple[str, ...]] = (
        *RunSettings.aside, "tracker", "connect_timeout", "device_timeout", "retries", "cc",
    )  # fmt: skip
    exclusive: ClassVar[Literal[False]] = False
    replays: ClassVar[Literal[False]] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(0, "retries")
        self._more_than_0_seconds("connect_timeout")
        if self.device_timeout < 0:
            raise ValueError(f"device_timeout must be at least 0 seconds, not {self.device_timeout}")
        if self.key.split() != [self.key]:
            raise ValueError(f"key must be one word, the key that the devices are registered as, not {self.key!r}")
        host, _, port = self.tracker.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"tracker must be host:port, as 10.0.0.1:9190, not {self.tracker!r}")

    def default_target(self, base: Path = Path()) -> str:
        raise SearchlabError(
            f"measuring on the devices {self.key!r} needs a target, which says what they are: an LLVM CPU as "
            f'"cortex-a72", or {{"kind": "llvm", "mtriple": ..., "mcpu": ..., "num-cores": ...}}; "native" for those '
            f"that are as this machine"
        )

    def measurable(self, base: Path = Path()) -> None:
        return None

    def machine(self, target: Target, base: Path = Path()) -> str:
        return self.key

    def make(self, target: Target, known: KnownPrograms, base: Path = Path()) -> RpcMeasurer:
        return RpcMeasurer(self, target, known, self.workers or available_cores())


@dataclass
class _Task:
    """A program to run, the devices lost over it, and whether one hung with it, perhaps by its own fault."""

    program: str
    built: Built
    lost: int = 0
    hung: bool = False


@dataclass
class _Run:
    """A task on a device: still connecting, or running, and since when; and the seconds that connecting took."""

    task: _Task
    address: Address
    since: float
    connected: bool = False
    connecting: float = 0.0

    @property
    def where(self) -> str:
        return "{}:{}".format(*self.address)


class RpcMeasurer(Measurer):
    """Builds with ``workers`` processes, and runs with one process a device, each program in a session of its own.

    A device is lost if it cannot be connected to, or if the connection ends, or the time is over, and its host takes
    no connections any more: its program goes to another device. Where the host still does, the program is to blame,
    and no other device is given it; but where the time is over and the host is silent, one other is, since the device
    may hang as well as the program. Only the last run of a program is charged.

    Raises SearchlabError where the tracker cannot be reached, or has no device of the key.
    """

    def __init__(self, settings: RpcSettings, target: Target, known: KnownPrograms, workers: int) -> None:
        if target.kind == "cuda":
            compile_mode()  # the compiler is wanted here, the GPU there
        self.settings = settings
        self.target = target
        self.known = known
        self.workers = workers
        # Linkers and nvcc work in files, which a worker that is killed leaves behind.
        self._folder = ScratchFolder()
        self._builders = BuildPool(workers, settings.build_timeout, settings.memory_limit_mb, self._folder.name)
        self._extractor = Extractor(self._builders)
        self._sessions = SessionPool(self._folder.name)
        devices = registered(settings.tracker)
        if settings.key not in devices:
            raise SearchlabError(f"{_no_device(settings, devices)}; start a server there with `searchlab fleet server`")

    def measure(self, space: Space, configs: Sequence[Config], best: float = math.inf) -> Iterator[Measurement]:
        def is_known(program: str) -> bool:
            return self.settings.is_known(program, self.known, best)

        sent = self.settings.for_worker(), self.target, self.settings.connect_timeout, self.settings.cc
        setup = SetUpSessions(space.workload, *sent, space.error_factor)
        self._sessions.prepare(min(self._devices(), len(configs)), setup)  # they get ready while programs are built
        builds = self._builders.build(space, configs, is_known)
        self.known.update(builds.failed_programs)
        tasks = [_Task(program, built) for program, built in builds.built.items()]
        runs = _run_all(self._sessions, self.settings, setup, tasks, best)
        fresh: dict[str, Measurement] = {}
        try:
            for index in range(len(configs)):
                program = builds.programs.get(index, "")
                if index in builds.failures:
                    measurement = builds.failures[index]
                elif program in builds.built:
                    while program not in fresh:
                        ended, result = next(runs)
                        self.known[ended] = fresh[ended] = result
                    del builds.built[program]  # another config of the same program makes no new measurement
                    measurement = fresh[program]
                else:
                    measurement = replace(self.known[program], reused=True)
                best = min(best, measurement.cost)
                yield measurement
        finally:
            runs.close()

    def extract(self, space: Space, features: str, configs: Sequence[Config]) -> list[Floats] | None:
        return self._extractor.extract(space, features, configs)

    def extract_seconds(self) -> float:
        return self._extractor.seconds

    def close(self) -> None:
        self._sessions.close()
        self._builders.close()
        self._folder.cleanup()

    def _devices(self) -> int:
        """How many devices the tracker has of the key; 1 where it has none, or is away: it may be back in time."""
        with contextlib.suppress(SearchlabError):
            return len(registered(self.settings.tracker).get(self.settings.key, [])) or 1
        return 1


def _no_device(settings: RpcSettings, devices: dict[str, list[str]]) -> str:
    others = ", ".join(f"{key!r} ({len(addresses)})" for key, addresses in devices.items()) or "no device at all"
    return f"the tracker at {settings.tracker} has no device of the key {settings.key!r}; it has {others}"


def _run_all(
    sessions: SessionPool, settings: RpcSettings, setup: SetUpSessions, tasks: Sequence[_Task], best: float
) -> Generator[tuple[str, Measurement]]:
    """The program and measurement of each task, as each is there."""
    if tasks:
        batch = _Batch(sessions, settings, setup, tasks, best)
        try:
            yield from batch.run()
        finally:
            batch.close()


class _Batch:
    """The runs of one batch: a queue of tasks, processes that are ready, and devices asked for, one a ready process."""

    def __init__(
        self, sessions: SessionPool, settings: RpcSettings, setup: SetUpSessions, tasks: Sequence[_Task], best: float
    ) -> None:
        self.sessions = sessions
        self.settings = settings
        self.setup = setup
        self.best = best
        self.waiting = deque(tasks)
        self.idle = [worker for worker in sessions.processes if worker.ready]
        self.starting = {worker: time.monotonic() for worker in sessions.processes if not worker.ready}
        self.running: dict[MeasuringWorker, _Run] = {}
        self.tracker: Tracker | None = None
        self.requested = 0
        self.missed: float | None = None
        """Since when there has been no device, or no tracker."""
        self.looked = time.monotonic()

    def run(self) -> Iterator[tuple[str, Measurement]]:
        while self.waiting or self.running:
            self._request()
            sources: list[Any] = [worker.channel for worker in (*self.starting, *self.running)]
            if self.tracker and self.requested:
                sources.append(self.tracker)
            there = answered(sources, self._pause())
            for worker in [worker for worker in self.starting if worker.channel in there]:
                self._started(worker)
            if any(time.monotonic() - since > START_SECONDS for since in self.starting.values()):
                raise SearchlabError(
                    f"a measuring process did not start within {START_SECONDS:g} s; check your TVM installation"
                )
            for worker in [worker for worker in self.running if worker.channel in there]:
                done = self._answered(worker)
                if done:
                    yield done
            for worker in list(self.running):
                if not worker.channel.poll() and (done := self._overdue(worker)):
                    yield done
            if self.tracker in there:
                self._lent()

    def close(self) -> None:
        if self.tracker:
            self.tracker.close()  # which gives back what was asked for
        for worker in self.running:  # interrupted: nobody wants any more what they run
            self.sessions.drop(worker)

    def _pause(self) -> float:
        """Seconds until something is due."""
        now = time.monotonic()
        ends = [run.since + self._limit(run) - now for run in self.running.values()]
        return max(0.0, min([LOOK_SECONDS, *ends]))

    def _limit(self, run: _Run) -> float:
        return self.settings.run_timeout if run.connected else self.settings.connect_timeout

    # --- devices --------------------------------------------------------------------------------------

    def _request(self) -> None:
        """Ask for as many devices as can be used at once. Raises SearchlabError where there are none for long."""
        wanted = min(len(self.waiting), len(self.idle))
        now = time.monotonic()
        if now - self.looked > LOOK_SECONDS and self.requested and not self.running:
            self.looked = now
            self._look()
        try:
            if wanted and self.tracker is None:
                self.tracker = Tracker(self.settings.tracker)
            while self.tracker and self.requested < wanted:
                self.tracker.request(self.settings.key)
                self.requested += 1
        except (OSError, SearchlabError) as error:
            self._tracker_gone(error)

    def _lent(self) -> None:
        assert self.tracker
        try:
            address = self.tracker.take()
        except OSError as error:
            self._tracker_gone(error)
            return
        self.missed = None
        self.requested -= 1
        task, worker = self.waiting.popleft(), self.idle.pop()
        worker.send(RunOn(address, task.built.objects, self.best))
        self.running[worker] = _Run(task, address, time.monotonic())

    def _look(self) -> None:
        try:
            devices = registered(self.settings.tracker)
        except (OSError, SearchlabError) as error:
            self._tracker_gone(error)
            return
        if self.settings.key in devices:
            self.missed = None
        elif self._missed_for_long():
            raise SearchlabError(
                f"{_no_device(self.settings, devices)}, and had none for {self.settings.device_timeout:g} s; start a "
                f"server there with `searchlab fleet server` and run this again: what was measured is kept"
            )

    def _tracker_gone(self, error: Exception) -> None:
        """Wait for the tracker to come back, for as long as for a device."""
        if self.tracker:
            self.tracker.close()
        self.tracker, self.requested = None, 0
        if self._missed_for_long():
            raise SearchlabError(
                f"the tracker at {self.settings.tracker} is gone ({error}); run this again when it is back: what was "
                f"measured is kept"
            )
        time.sleep(min(LOOK_SECONDS, self.settings.device_timeout))

    def _missed_for_long(self) -> bool:
        now = time.monotonic()
        if self.missed is None:
            self.missed = now
        return now - self.missed > self.settings.device_timeout

    # --- runs ---------------------------------------------------------------------------------------

    def _started(self, worker: MeasuringWorker) -> None:
        try:
            worker.hear()
        except WorkerDied as death:
            raise SearchlabError(f"a measuring process {death} while it started; check your TVM installation") from None
        if worker.ready:
            del self.starting[worker]
            self.idle.append(worker)

    def _answered(self, worker: MeasuringWorker) -> tuple[str, Measurement] | None:
        """The program and measurement of a run that has ended; None where it goes on, or another device has it now."""
        run = self.running[worker]
        try:
            answer = worker.recv(Failed, *((Ran,) if run.connected else (Connected,)), Lost, Unfit)
        except WorkerDied as death:
            return self._lost(worker, f"the process that talked to it {death}")
        match answer:
            case Connected():
                now = time.monotonic()
                run.connected, run.connecting, run.since = True, now - run.since, now
            case Lost(text):
                return self._lost(worker, text)
            case Unfit(text):
                raise SearchlabError(f"{text}; register it under another key, or choose another target")
            case Ran(seconds, pruned, run_seconds):
                how = self.settings.statistic
                measured = Measurement(seconds, None, "", run_seconds=run_seconds, pruned=pruned, statistic=how)
                return self._done(worker, measured)
            case Failed(failure, message, run_seconds):
                return self._done(worker, Measurement((), failure, message, run_seconds=run_seconds))
        return None

    def _overdue(self, worker: MeasuringWorker) -> tuple[str, Measurement] | None:
        run = self.running[worker]
        limit = self._limit(run)
        if time.monotonic() - run.since <= limit:
            return None
        worker.kill()
        if run.connected:
            return self._lost(worker, f"running took longer than {limit:g} s", "run_timeout")
        return self._lost(worker, f"it took no connection, or no inputs, within {limit:g} s")

    def _lost(self, worker: MeasuringWorker, text: str, failure: Failure = "crash") -> tuple[str, Measurement] | None:
        """End a run that has lost its device, or of which the device has lost the session."""
        run = self.running[worker]
        host, port, _ = run.address
        taken = time.monotonic() - run.since if run.connected else 0.0
        doubted = failure == "run_timeout" and not run.task.hung and not answers(host, port)
        run.task.hung |= doubted
        if run.connected and not doubted and reachable(host, port):
            said = text if failure == "run_timeout" else f"it ended the process that ran it on {run.where}: {text}"
            return self._done(worker, Measurement((), failure, said, run_seconds=taken))
        run.task.lost += 1
        if run.task.lost <= self.settings.retries:
            self.waiting.appendleft(run.task)
            self._free(worker)
            return None
        said = f"given up after {run.task.lost} devices were lost over it, {run.where} at last: {text}"
        what: Failure = failure if run.connected else "run_error"
        return self._done(worker, Measurement((), what, said, run_seconds=taken))

    def _done(self, worker: MeasuringWorker, measurement: Measurement) -> tuple[str, Measurement]:
        run = self.running[worker]
        self._free(worker)
        self.best = min(self.best, measurement.cost)
        return run.task.program, replace(
            measurement, program=run.task.program, build_seconds=run.task.built.seconds, connect_seconds=run.connecting
        )

    def _free(self, worker: MeasuringWorker) -> None:
        """Make a worker idle again, or start another in its place."""
        del self.running[worker]
        if worker.alive and worker.usable:
            self.idle.append(worker)
            return
        self.sessions.drop(worker)
        self.starting[self.sessions.another(self.setup)] = time.monotonic()
