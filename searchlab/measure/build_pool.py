"""Processes that build programs, in parallel, each with a time limit of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from ..records import Measurement
from ..space import Config, Space
from .messages import Build, Built, Compile, Failed, Scheduled, SetUpBuilder, Skip, Skipped
from .pool import Batch, Late, WorkerPool
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


class BuildPool(WorkerPool):
    """At most ``workers`` processes that build programs.

    Args:
        workers: The number of processes.
        build_timeout: Seconds that scheduling a program may take, and that compiling it may.
        memory_limit_mb: See :class:`~searchlab.measure.pool.WorkerPool`; so ``scratch``.
    """

    def __init__(self, workers: int, build_timeout: float, memory_limit_mb: int, scratch: str = "") -> None:
        super().__init__(1, scratch, memory_limit_mb)
        self.workers = workers
        self.build_timeout = build_timeout
        self._space: tuple[Space, SetUpBuilder] | None = None

    def build(self, space: Space, configs: Sequence[Config], is_known: IsKnown = lambda program: False) -> Builds:
        """Build the program of each config, unless it ``is_known`` or an earlier config makes it too.

        Raises:
            SearchlabError: If a process cannot take in ``space``.
        """
        batch = _Batch(self, space, configs, is_known)
        batch.run()
        return batch.builds

    def holding(self, space: Space) -> SetUpBuilder:
        """Return the message that sets a process up with ``space``, which is pickled once."""
        if self._space is None or self._space[0] is not space:
            self._space = space, SetUpBuilder(cloudpickle.dumps(space), str(space))
        return self._space[1]


class _Batch(Batch[int]):
    """A batch of builds; a job is the index of a config."""

    def __init__(self, pool: BuildPool, space: Space, configs: Sequence[Config], is_known: IsKnown) -> None:
        super().__init__(pool, pool.holding(space), min(pool.workers, len(configs)), range(len(configs)))
        self.timeout = pool.build_timeout
        self.configs = configs
        self.is_known = is_known
        self.builds = Builds()
        self.again: set[int] = set()
        self.first: dict[str, int] = {}  # the config that each new program is compiled for

    def offer(self) -> Sequence[Any]:
        while self.waiting and self.idle:
            index, process = self.waiting.popleft(), self.idle.pop()
            process.send(Build(self.configs[index]))
            self.begin(process, index, self.timeout)
        return ()

    def receive(self, process: MeasuringWorker, index: int) -> None:
        programs = self.builds.programs
        match process.recv(Failed, *((Built, Skipped) if index in programs else (Scheduled,))):
            case Scheduled(program):
                programs[index] = program
                self.begin(process, index, self.timeout)  # compiling has a time limit of its own
                is_new = not self.is_known(program) and self.first.setdefault(program, index) == index
                process.send(Compile() if is_new else Skip())
                return
            case Built() as built:
                self.builds.built[programs[index]] = built
            case Failed() as failed:
                self._fail(index, failed)
        self.free(process)

    def lost(self, index: int, death: WorkerDied, seconds: float) -> None:
        if isinstance(death, Spoiled) and index not in self.again:  # by the config before, perhaps
            self.again.add(index)
            self.builds.programs.pop(index, None)
            self.waiting.appendleft(index)
        elif isinstance(death, Late):
            self._fail(index, Failed("build_timeout", f"building {death}", seconds))
        else:
            self._fail(index, Failed("crash", f"the building process {death}", seconds))

    def _fail(self, index: int, failed: Failed) -> None:
        program = self.builds.programs.get(index, "")
        self.builds.failures[index] = Measurement((), failed.failure, failed.message, failed.seconds, 0.0, program)
