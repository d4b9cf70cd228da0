"""Processes that build programs, in parallel, each with a time limit of its own."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import cloudpickle

from ..records import Measurement
from ..space import Config, Space
from .channel import answered
from .messages import Build, Built, Compile, Failed, Scheduled, SetUpBuilder, Skip, Skipped
from .process import MeasuringWorker, Spoiled, WorkerDied

IsKnown = Callable[[str], bool]
"""Whether the program of this hash need not be built."""


@dataclass
class Builds:
    """What came of building a batch; configs are counted from 0.

    programs: the hash of each config's program, where it could be scheduled.
    failures: the measurement of each config that failed.
    built: each program that was built, by its hash.
    """

    programs: dict[int, str] = field(default_factory=dict)
    failures: dict[int, Measurement] = field(default_factory=dict)
    built: dict[str, Built] = field(default_factory=dict)

    @property
    def failed_programs(self) -> dict[str, Measurement]:
        """The failures that belong to a program, by its hash."""
        return {failed.program: failed for failed in self.failures.values() if failed.program}


class BuildPool:
    """At most ``workers`` processes that build programs, started when they are needed and kept for the next batch.

    build_timeout: seconds that scheduling a program may take, and that compiling it may.
    scratch: where processes leave their temporary files; the system's place if "".
    """

    def __init__(self, workers: int, build_timeout: float, memory_limit_mb: int, scratch: str = "") -> None:
        self.workers = workers
        self.build_timeout = build_timeout
        self.memory_limit_mb = memory_limit_mb
        self.scratch = scratch
        self.processes: list[MeasuringWorker] = []

    def build(self, space: Space, configs: Sequence[Config], is_known: IsKnown = lambda program: False) -> Builds:
        """Build the program of each config, unless it ``is_known`` or an earlier config makes it too."""
        return _Batch(self, space, configs, is_known).run()

    def close(self) -> None:
        for process in list(self.processes):
            self.discard(process)

    def discard(self, process: MeasuringWorker) -> None:
        process.kill()
        self.processes.remove(process)

    def ready(self, space: Space, count: int) -> list[MeasuringWorker]:
        """``count`` processes that hold ``space``. Raises SearchlabError where they cannot take it in."""
        while True:
            for process in [process for process in self.processes if not process.alive]:
                self.discard(process)
            while len(self.processes) < count:
                self.processes.append(MeasuringWorker(1, self.scratch, self.memory_limit_mb))
            if self._set_up([process for process in self.processes[:count] if process.holds is not space], space):
                return self.processes[:count]

    def another(self, space: Space) -> MeasuringWorker:
        """A new process that holds ``space``. Raises SearchlabError where it cannot take it in."""
        process = MeasuringWorker(1, self.scratch, self.memory_limit_mb)
        self.processes.append(process)
        self._set_up([process], space)
        return process

    def _set_up(self, processes: Sequence[MeasuringWorker], space: Space) -> bool:
        """Have ``processes`` take in ``space``; False where one of them had been killed since it was last used."""
        if not processes:
            return True
        message = SetUpBuilder(cloudpickle.dumps(space))
        for process in processes:
            process.tell(space, message)
        try:
            return all([process.set_up() for process in processes])
        except BaseException:
            # Interrupted, or refused: a late answer of theirs must not be taken for that to another message.
            for process in processes:
                self.discard(process)
            raise


class _Batch:
    """One batch: configs that wait, idle processes, and busy ones with the config that each builds and since when."""

    def __init__(self, pool: BuildPool, space: Space, configs: Sequence[Config], is_known: IsKnown) -> None:
        self.pool = pool
        self.space = space
        self.is_known = is_known
        self.configs = configs
        self.waiting = deque(enumerate(configs))
        self.again: set[int] = set()
        self.idle = pool.ready(space, min(pool.workers, len(configs)))
        self.busy: dict[MeasuringWorker, tuple[int, float]] = {}
        self.scheduled: set[MeasuringWorker] = set()
        self.builds = Builds()

    def run(self) -> Builds:
        try:
            while self.waiting or self.busy:
                while self.waiting and self.idle:
                    self._start(*self.waiting.popleft())
                due = min(since for _, since in self.busy.values()) + self.pool.build_timeout
                there = answered([worker.channel for worker in self.busy], due - time.perf_counter())
                for worker in [worker for worker in self.busy if worker.channel in there]:
                    self._answered(worker)
                for worker in list(self.busy):
                    self._end_if_late(worker)
        finally:
            for worker in self.busy:  # interrupted: nobody wants any more what they build
                self.pool.discard(worker)
        return self.builds

    def _start(self, index: int, config: Config) -> None:
        worker = self.idle.pop()
        worker.send(Build(config))
        self.busy[worker] = (index, time.perf_counter())

    def _answered(self, worker: MeasuringWorker) -> None:
        index, since = self.busy[worker]
        programs = self.builds.programs
        has_scheduled = worker in self.scheduled
        try:
            answer = worker.recv(Failed, *((Built, Skipped) if has_scheduled else (Scheduled,)))
        except WorkerDied as death:
            if isinstance(death, Spoiled) and index not in self.again:  # by the config before, perhaps
                self.again.add(index)
                self.waiting.appendleft((index, self.configs[index]))
            else:
                self._fail(index, Failed("crash", f"the building process {death}", time.perf_counter() - since))
            self._replace(worker)
            return
        match answer:
            case Scheduled(program):
                is_new = not self.is_known(program) and program not in programs.values()
                programs[index] = program
                self.scheduled.add(worker)
                self.busy[worker] = (index, time.perf_counter())  # compiling has a time limit of its own
                worker.send(Compile() if is_new else Skip())
                return
            case Built():
                self.builds.built[programs[index]] = answer
            case Failed():
                self._fail(index, answer)
        if worker.usable:
            del self.busy[worker]
            self.scheduled.discard(worker)
            self.idle.append(worker)
        else:
            self._replace(worker)

    def _end_if_late(self, worker: MeasuringWorker) -> None:
        index, since = self.busy[worker]
        taken = time.perf_counter() - since
        # A worker that has answered meanwhile is not late: it waited for us.
        if taken > self.pool.build_timeout and not worker.channel.poll():
            text = f"building took longer than {self.pool.build_timeout:g} s"
            self._fail(index, Failed("build_timeout", text, taken))
            self._replace(worker)

    def _fail(self, index: int, failed: Failed) -> None:
        program = self.builds.programs.get(index, "")
        self.builds.failures[index] = Measurement((), failed.failure, failed.message, failed.seconds, 0.0, program)

    def _replace(self, worker: MeasuringWorker) -> None:
        self.pool.discard(worker)
        del self.busy[worker]
        self.scheduled.discard(worker)
        self.idle.append(self.pool.another(self.space))
