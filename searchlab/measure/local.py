"""Measuring in worker processes on this machine: builds in parallel, then runs alone, never both at once."""

from __future__ import annotations

import math
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, ClassVar, Literal

import cloudpickle

from ..cuda import INSTEAD, check_can_measure
from ..errors import SearchlabError
from ..records import Failure, Measurement, Trial
from ..space import Config, Space
from ..target import Target, available_cores
from ..workload import Workload
from .code import Objects
from .contract import Cache, CannotMeasure, Remeasurer, RunSettings
from .process import Worker, WorkerDied


class LocalSettings(RunSettings, frozen=True, tag="local"):
    """Measure in worker processes on this machine.

    The first program of a run that runs is timed again every ``sentinel`` batches, and at the end of a run the fastest
    ``finalists`` are, in turn; 0 leaves that out. Neither touches the measurements of trials.
    """

    sentinel: int = 4
    finalists: int = 5

    aside: ClassVar[tuple[str, ...]] = (*RunSettings.aside, "sentinel", "finalists")
    exclusive: ClassVar[Literal[True]] = True
    replays: ClassVar[Literal[False]] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(0, "sentinel", "finalists")

    def default_target(self, base: Path = Path()) -> str:
        return "native"

    def measurable(self, base: Path = Path()) -> None:
        return None

    def make(self, target: Target, cache: Cache, base: Path = Path()) -> LocalMeasurer:
        return LocalMeasurer(self, target, cache, self.workers or available_cores())


START_SECONDS = 120.0
"""How long a worker may take to import TVM, or to make a workload's inputs and reference."""


def survives(kind: str, failure: Failure) -> bool:
    """Whether a process that has run a program for this ``kind`` of target, and seen it fail so, can run another.

    An error of a CUDA kernel stays with the process: every later call fails too (CUDA Runtime API, "sticky" errors).
    A kernel with a wrong answer may have written to the inputs of the next.
    """
    return kind != "cuda" and failure in ("run_error", "wrong_answer")


class LocalMeasurer(Remeasurer):
    """Measures with ``workers`` build processes and one run process, all of them kept for the next batch.

    A program that is in ``cache`` is not built again, unless it was stopped in a run whose best was faster than that of
    this one; what is measured is added to it. Raises SearchlabError where programs for ``target`` cannot be run here.
    """

    def __init__(self, settings: LocalSettings, target: Target, cache: Cache, workers: int) -> None:
        if target.kind == "cuda":
            check_can_measure(str(target.tvm.attrs["arch"]))
        elif target.kind != "llvm":
            raise SearchlabError(f"programs for {target.kind!r} cannot be measured on this machine; {INSTEAD}")
        self._begin(settings, target, cache, workers)
        self.sentinel = settings.sentinel
        self.finalists = settings.finalists

    def _begin(self, settings: RunSettings, target: Target, cache: Cache, workers: int) -> None:
        self.settings = settings
        self.target = target
        self.cache = cache
        self.workers = workers
        self._builders: list[Worker] = []
        self._runner: Worker | None = None
        self._kept: dict[str, tuple[float, Objects]] = {}  # cost and code of the run's first and fastest programs
        # nvcc works in files, which a worker that is killed leaves behind.
        self._scratch = tempfile.TemporaryDirectory(prefix="searchlab-") if target.kind == "cuda" else None

    def begin(self, seed: int) -> None:
        self._kept = {}

    def measure(self, space: Space, configs: Sequence[Config], best: float = math.inf) -> Iterator[Measurement]:
        def known(program: str) -> bool:
            return program in self.cache and not self._too_soon(self.cache[program], best)

        self._tell_runner(space.workload)  # it gets ready while programs are built
        programs, failures, code = self._build(space, configs, known)
        self.cache.update({failed.program: failed for failed in failures.values() if failed.program})
        for index in range(len(configs)):
            program = programs.get(index, "")
            if index in failures:
                measurement = failures[index]
            elif known(program):
                measurement = replace(self.cache[program], reused=True)
            else:
                self.cache[program] = measurement = self._run(space, program, *code[program], best)
                self._keep(measurement, code[program][0])
            best = min(best, measurement.cost)
            yield measurement

    def _too_soon(self, measurement: Measurement, best: float) -> bool:
        """Whether ``measurement`` was stopped and would not be now."""
        return measurement.stopped and not measurement.cost > self.settings.stop_factor * best

    def remeasure(self, space: Space, trials: Sequence[Trial], rounds: int) -> list[tuple[float, ...]]:
        programs = [trial.measurement.program for trial in trials]
        missing = [trial.config for trial in trials if trial.measurement.program not in self._kept]
        hashes, failures, code = self._build(space, missing, lambda program: False)
        for failed in failures.values():
            raise CannotMeasure(failed.message)
        built = {program: objects for program, (objects, _) in code.items()}
        if absent := set(programs) - self._kept.keys() - built.keys():
            raise CannotMeasure(f"{', '.join(sorted(absent))} is now another program: {', '.join(hashes.values())}")
        self._kept |= {program: (0.0, objects) for program, objects in built.items()}  # which may be asked for often
        runner = self._ready_runner(space.workload)
        runner.send(("remeasure", [self._kept[program][1] for program in programs], rounds))
        limit = self.settings.run_timeout * len(trials)
        kind, rest = self._answer(runner, limit)
        if kind != "ran":
            raise CannotMeasure(rest[1])
        seconds: list[tuple[float, ...]] = rest[0]
        return seconds

    def check(self, space: Space, program: str, seed: int) -> tuple[Failure, str] | None:
        """Run a program that this measurer keeps, by its hash, on inputs drawn from ``seed``: how it failed, if so."""
        runner = self._ready_runner(space.workload)
        runner.send(("check", self._kept[program][1], seed))
        kind, rest = self._answer(runner, START_SECONDS)  # its inputs and reference
        if kind == "drawn":
            kind, rest = self._answer(runner, self.settings.run_timeout)
        return (rest[0], rest[1]) if kind == "failed" else None

    def _keep(self, measurement: Measurement, objects: Objects) -> None:
        """Keep the code of what :meth:`remeasure` may be asked for: the first program that runs, and the fastest."""
        if math.isfinite(measurement.cost) and (self.sentinel or self.finalists):
            self._kept[measurement.program] = (measurement.cost if self._kept else 0.0, objects)
            if len(self._kept) > self.finalists + 2:
                del self._kept[max(self._kept, key=lambda program: self._kept[program][0])]

    def close(self) -> None:
        for worker in (*self._builders, *([self._runner] if self._runner else [])):
            worker.kill()
        self._builders, self._runner = [], None
        if self._scratch:
            self._scratch.cleanup()

    # --- building -----------------------------------------------------------------------------------

    def _build(
        self, space: Space, configs: Sequence[Config], known: Callable[[str], bool]
    ) -> tuple[dict[int, str], dict[int, Measurement], dict[str, tuple[Objects, float]]]:
        """Build each program once that is not ``known``, by its hash.

        Returns the hash of each config's program, the measurement of each config that failed, and the object
        files and build seconds of each program that was built.
        """
        programs: dict[int, str] = {}
        failures: dict[int, Measurement] = {}
        code: dict[str, tuple[Objects, float]] = {}
        waiting = deque(enumerate(configs))
        busy: dict[Worker, tuple[int, float]] = {}  # -> (which config, since when)
        idle = self._ready_builders(space, min(self.workers, len(configs)))

        def fail(worker: Worker, failure: Failure, text: str, seconds: float) -> None:
            index, _ = busy[worker]
            failures[index] = Measurement((), failure, text, seconds, 0.0, programs.get(index, ""))

        def replace_worker(worker: Worker) -> None:
            self._discard(worker)
            del busy[worker]
            ready = self._ready_builders(space, len(self._builders) + 1)
            idle.append(ready[-1])

        try:
            while waiting or busy:
                while waiting and idle:
                    index, config = waiting.popleft()
                    worker = idle.pop()
                    worker.send(("build", config))
                    busy[worker] = (index, time.perf_counter())
                first = min(since for _, since in busy.values())
                left = first + self.settings.build_timeout - time.perf_counter()
                answered = wait([worker.connection for worker in busy], timeout=max(left, 0.0))
                for worker in [worker for worker in busy if worker.connection in answered]:
                    index, since = busy[worker]
                    try:
                        kind, *rest = worker.recv()
                    except WorkerDied as death:
                        fail(worker, "crash", f"the building process {death}", time.perf_counter() - since)
                        replace_worker(worker)
                        continue
                    if kind == "scheduled":
                        is_new = not known(rest[0]) and rest[0] not in programs.values()
                        programs[index] = rest[0]
                        busy[worker] = (index, time.perf_counter())  # compiling has a time limit of its own
                        worker.send(is_new)
                        continue
                    if kind == "built":
                        code[programs[index]] = (rest[0], rest[1])
                    elif kind == "failed":
                        fail(worker, *rest)
                    del busy[worker]
                    idle.append(worker)
                for worker, (_, since) in list(busy.items()):
                    taken = time.perf_counter() - since
                    # One that has answered meanwhile is not late: it waited for us.
                    if taken > self.settings.build_timeout and not worker.connection.poll():
                        text = f"building took longer than {self.settings.build_timeout:g} s"
                        fail(worker, "build_timeout", text, taken)
                        replace_worker(worker)
        finally:
            for worker in busy:  # interrupted: what they are at is of no use any more
                self._discard(worker)
        return programs, failures, code

    def _start_builder(self) -> Worker:
        return Worker(1, self._scratch.name if self._scratch else "", self.settings.memory_limit_mb)

    def _start_runner(self) -> Worker:
        # The driver of a GPU maps the memory of that into the process, which is no business of this limit.
        limit = self.settings.memory_limit_mb if self.target.kind == "llvm" else 0
        return Worker(self.target.cores, self._scratch.name if self._scratch else "", limit)

    def _discard(self, builder: Worker) -> None:
        builder.kill()
        self._builders.remove(builder)

    def _ready_builders(self, space: Space, count: int) -> list[Worker]:
        """``count`` build processes that hold ``space``, started where they lack."""
        while True:
            for worker in [worker for worker in self._builders if not worker.alive]:
                self._discard(worker)
            while len(self._builders) < count:
                self._builders.append(self._start_builder())
            fresh = [worker for worker in self._builders[:count] if worker.holds is not space]
            data = cloudpickle.dumps(space) if fresh else b""
            for worker in fresh:
                worker.send(("space", data))
            try:
                if all([self._set_up(worker, space) for worker in fresh]):
                    return self._builders[:count]
            except BaseException:  # interrupted, or refused: what they would still answer must not be taken for later
                for worker in fresh:
                    self._discard(worker)
                raise

    def _set_up(self, worker: Worker, holds: object) -> bool:
        """Wait until ``worker`` has taken in what it was sent; False if it had been killed since it was last used."""
        is_new = worker.holds is None
        try:
            for _ in range(2 if is_new else 1):  # a new one says so itself first
                if not worker.connection.poll(START_SECONDS):
                    raise WorkerDied(f"did not answer within {START_SECONDS:g} s")
                kind, *why = worker.recv()
                if kind == "broken":
                    raise SearchlabError(f"a measuring process cannot take in {holds}: {why[0]}")
        except WorkerDied as death:
            if is_new:
                raise SearchlabError(f"a measuring process {death} while it started; is TVM whole?") from None
            worker.kill()
            return False
        worker.holds = holds
        return True

    # --- running ------------------------------------------------------------------------------------

    def _tell_runner(self, workload: Workload) -> Worker:
        """The run process, started where there is none, and told to get ready for ``workload``."""
        runner = self._runner
        if runner is not None and (not runner.alive or runner.told not in (runner.holds, workload)):
            runner.kill()
            runner = None
        if runner is None:
            runner = self._runner = self._start_runner()
        if runner.told != workload:
            runner.told = workload
            runner.send(("workload", workload, self.settings.for_worker(), self.target.kind))
        return runner

    def _ready_runner(self, workload: Workload) -> Worker:
        while True:
            runner = self._tell_runner(workload)
            try:
                if runner.holds == workload or self._set_up(runner, workload):
                    return runner
            except BaseException:
                runner.kill()
                self._runner = None
                raise

    def _run(self, space: Space, program: str, objects: Objects, build_seconds: float, best: float) -> Measurement:
        runner = self._ready_runner(space.workload)
        start = time.perf_counter()
        runner.send(("run", objects, best))
        kind, rest = self._answer(runner, self.settings.run_timeout)
        if kind == "ran":
            seconds, stopped, run_seconds = rest
            return Measurement(seconds, None, "", build_seconds, run_seconds, program, stopped=stopped)
        failure, text, *took = rest
        run_seconds = took[0] if took else time.perf_counter() - start
        return Measurement((), failure, text, build_seconds, run_seconds, program)

    def _answer(self, runner: Worker, timeout: float) -> tuple[str, list[Any]]:
        """``"failed"``, or what else ``runner`` answers, and the rest of it; it is ended where it can run no other."""
        usable = False
        try:
            if not runner.connection.poll(timeout):
                return "failed", ["run_timeout", f"running took longer than {timeout:g} s"]
            kind, *rest = runner.recv()
            usable = kind != "failed" or survives(self.target.kind, rest[0])
            return kind, rest
        except WorkerDied as death:
            return "failed", ["crash", f"the running process {death}"]
        finally:
            if not usable:
                runner.kill()
                self._runner = None
