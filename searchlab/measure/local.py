"""Measuring in worker processes on this machine: builds in parallel, then runs alone, never both at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import wait

import cloudpickle

from ..errors import SearchlabError
from ..records import Failure, Measurement
from ..space import Config, Space
from ..target import Target
from ..workload import Workload
from . import Cache, LocalSettings, Measurer
from .process import Worker, WorkerDied

START_SECONDS = 120.0
"""How long a worker may take to import TVM, or to make a workload's inputs and reference."""


class LocalMeasurer(Measurer):
    """Measures with ``workers`` build processes and one run process, all of them kept for the next batch.

    A program that is in ``cache`` is not built again; what is measured is added to it.
    """

    def __init__(self, settings: LocalSettings, target: Target, cache: Cache, workers: int) -> None:
        if target.kind != "llvm":
            raise SearchlabError(f"programs for {target.kind!r} cannot be run here yet; choose a CPU target or a table")
        self.settings = settings
        self.target = target
        self.cache = cache
        self.workers = workers
        self._builders: list[Worker] = []
        self._runner: Worker | None = None

    def measure(self, space: Space, configs: Sequence[Config]) -> Iterator[Measurement]:
        programs, failures, code = self._build(space, configs)
        for index in range(len(configs)):
            program = programs.get(index, "")
            if index in failures:
                yield failures[index]
            elif program in self.cache:
                yield replace(self.cache[program], reused=True)
            else:
                self.cache[program] = measurement = self._run(space, program, *code[program])
                yield measurement

    def close(self) -> None:
        for worker in (*self._builders, *([self._runner] if self._runner else [])):
            worker.kill()
        self._builders, self._runner = [], None

    # --- building -----------------------------------------------------------------------------------

    def _build(
        self, space: Space, configs: Sequence[Config]
    ) -> tuple[dict[int, str], dict[int, Measurement], dict[str, tuple[bytes, float]]]:
        """Build each new program once.

        Returns the hash of each config's program, the measurement of each config that failed, and the object
        code and build seconds of each program that is not in the cache.
        """
        programs: dict[int, str] = {}
        failures: dict[int, Measurement] = {}
        code: dict[str, tuple[bytes, float]] = {}
        waiting = deque(enumerate(configs))
        busy: dict[Worker, tuple[int, float]] = {}  # -> (which config, since when)
        idle = self._ready_builders(space, min(self.workers, len(configs)))

        def fail(worker: Worker, failure: Failure, text: str, seconds: float) -> None:
            index, _ = busy[worker]
            program = programs.get(index, "")
            failures[index] = Measurement((), failure, text, seconds, 0.0, program)
            if program:
                self.cache[program] = failures[index]

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
                        is_new = rest[0] not in self.cache and rest[0] not in programs.values()
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

    def _discard(self, builder: Worker) -> None:
        builder.kill()
        self._builders.remove(builder)

    def _ready_builders(self, space: Space, count: int) -> list[Worker]:
        """``count`` build processes that hold ``space``, started where they lack."""
        while True:
            for worker in [worker for worker in self._builders if not worker.alive]:
                self._discard(worker)
            while len(self._builders) < count:
                self._builders.append(Worker(threads=1))
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

    def _ready_runner(self, workload: Workload) -> Worker:
        while True:
            if self._runner is not None and not self._runner.alive:
                self._runner.kill()
                self._runner = None
            if self._runner is None:
                self._runner = Worker(threads=self.target.cores)
            if self._runner.holds is workload:
                return self._runner
            self._runner.send(("workload", workload, self.settings))
            try:
                self._set_up(self._runner, workload)
            except BaseException:
                self._runner.kill()
                self._runner = None
                raise

    def _run(self, space: Space, program: str, code: bytes, build_seconds: float) -> Measurement:
        runner = self._ready_runner(space.workload)
        start = time.perf_counter()
        runner.send(("run", code))
        finished = False
        try:
            if runner.connection.poll(self.settings.run_timeout):
                kind, *rest = runner.recv()
                finished = True
            else:
                text = f"running took longer than {self.settings.run_timeout:g} s"
                return Measurement((), "run_timeout", text, build_seconds, time.perf_counter() - start, program)
        except WorkerDied as death:
            text = f"the running process {death}"
            return Measurement((), "crash", text, build_seconds, time.perf_counter() - start, program)
        finally:
            if not finished:
                runner.kill()
                self._runner = None
        if kind == "ran":
            return Measurement(rest[0], None, "", build_seconds, rest[1], program)
        failure, text, seconds = rest
        return Measurement((), failure, text, build_seconds, seconds, program)
