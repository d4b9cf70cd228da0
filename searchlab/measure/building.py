"""Building programs and extracting their features in a pool of processes, and measurers that build programs so."""

from __future__ import annotations

import math
import platform
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from ..arrays import Floats
from ..errors import SearchlabError, warn
from ..machine.host import available_memory
from ..machine.scratch import ScratchFolder
from ..records import Measurement
from ..space import Config, Space
from ..target import Target, architecture_of
from ..workload import pickle_with_code
from ..workload.base import MAX_ELEMENTS, Workload
from . import messages
from .contract import MeasurementsByProgram, Measurer, RunSettings
from .messages import Built, Failed, SetUpBuilder
from .pool import JobBatch, WorkerPool
from .process import START_TIMEOUT, MeasuringWorker, WorkerDied, WorkerTimeout, failure_of, get_fork_server

FLUSHABLE_CPUS = ("x86_64", "aarch64")
"""The architectures on which TVM can remove data from a CPU's caches."""

CHUNK_SIZE = 16
"""The maximum number of configs per feature-extraction job."""


@dataclass(eq=False)
class ConfigBuild:
    """A config to build, and its result: a program, a failure, or a program that need not be compiled for it.

    Attributes:
        program_hash: The hash of its program, or "" if it has not been scheduled.
        built: Its program, if it was compiled for this config.
        failure: Its measurement, if it failed.
        is_first_in_process: Whether no candidate was in its process before it.
        is_retried: Whether it is built in a new process after a first failure.
        duplicates: The other configs with this program, if it is compiled for this config.
    """

    config: Config
    program_hash: str = ""
    built: Built | None = None
    failure: Measurement | None = None
    is_first_in_process: bool = False
    is_retried: bool = False
    duplicates: list[ConfigBuild] = field(default_factory=list)


class BuildPool(WorkerPool):
    """A pool of up to ``workers`` processes that build programs and extract their features.

    ``build_timeout`` is the time limit for scheduling a program, and separately for compiling it, in seconds.

    Attributes:
        extract_seconds: The CPU time that :meth:`extract` has used, in seconds. The time for each batch is divided by
            the number of processes that shared the work.
    """

    def __init__(self, workers: int, build_timeout: float, memory_limit_mb: int, scratch_folder: str = "") -> None:
        super().__init__(1, scratch_folder, memory_limit_mb)
        self.workers = workers
        self.build_timeout = build_timeout
        self.extract_seconds = 0.0
        self._space_and_message: tuple[Space, SetUpBuilder] | None = None
        self._has_warned = False

    def build(
        self, space: Space, configs: Sequence[Config], is_known: Callable[[str], bool] = lambda program_hash: False
    ) -> list[ConfigBuild]:
        """Build each config's program, unless ``is_known`` accepts its hash or it is built for another config.

        Raises:
            SearchlabError: If a process cannot load ``space``.
        """
        builds = [ConfigBuild(config) for config in configs]
        _BuildBatch(self, space, builds, is_known).run()
        return builds

    def extract(self, space: Space, features: str, configs: Sequence[Config]) -> list[Floats]:
        """Return each config's ``features``, of shape (d,).

        The rows do not depend on which process extracts them. A row is empty if the config has no program, kills the
        process, or exceeds ``build_timeout``. In the last two cases, a warning names the first such config.

        Raises:
            SearchlabError: If a process cannot load ``space``.
        """
        if not configs:
            return []
        batch = _ExtractionBatch(self, space, features, configs)
        batch.run()
        self.extract_seconds += batch.cpu_seconds
        if batch.failures and not self._has_warned:
            self._has_warned = True
            index, fate = batch.failures[0]
            warn(
                f"cannot extract {features} features for {configs[index].to_json()}: the process extracting them "
                f"{fate}. Other configs may be affected, too; cost models cannot learn from such configs"
            )
        return batch.rows

    def make_set_up_message(self, space: Space) -> SetUpBuilder:
        """Return the message that sets up a process for ``space``, which is pickled only once."""
        if self._space_and_message is None or self._space_and_message[0] is not space:
            self._space_and_message = space, SetUpBuilder(pickle_with_code(space), str(space))
        return self._space_and_message[1]


class _BuildBatch(JobBatch[ConfigBuild]):
    """A batch of builds.

    An earlier candidate in the same process, or the machine, may be to blame for a failure. If that is possible, the
    config is built once more, in a new process. A failure that the candidate may have caused by what it did to its
    process, such as setting limits, belongs to the config and not to the program, so it is recorded without the
    program's hash: other configs with this program are built themselves.

    Attributes:
        builds_by_program: The config for which each new program is compiled.
    """

    def __init__(
        self, pool: BuildPool, space: Space, builds: Sequence[ConfigBuild], is_known: Callable[[str], bool]
    ) -> None:
        super().__init__(pool, pool.make_set_up_message(space), min(pool.workers, len(builds)), builds)
        self.timeout = pool.build_timeout
        self.is_known = cache(is_known)
        self.builds_by_program: dict[str, ConfigBuild] = {}

    def assign_jobs(self) -> Sequence[Any]:
        while self.queue and self.idle_processes:
            process = self._choose_process(self.queue[0])
            if process is None:
                break
            self.idle_processes.remove(process)
            build = self.queue.popleft()
            build.is_first_in_process = not process.is_used
            process.send(messages.Build(build.config))
            self.mark_busy(process, build, self.timeout)
        return ()

    def _choose_process(self, build: ConfigBuild) -> MeasuringWorker | None:
        """Return an idle process that can build a config, or None if a new one must first be set up."""
        if not build.is_retried:
            return self.idle_processes[-1]
        for process in self.idle_processes:
            if not process.is_used:
                return process
        if all(assignment.job is not None for assignment in self.assignments.values()):
            self.replace_process(self.idle_processes.pop())
        return None

    def receive_answer(self, process: MeasuringWorker, build: ConfigBuild) -> None:
        answer_types = (Built, messages.Skipped) if build.program_hash else (messages.Scheduled,)
        match process.recv(Failed, *answer_types):
            case messages.Scheduled(program_hash):
                build.program_hash = program_hash
                self.mark_busy(process, build, self.timeout)  # compiling has its own time limit
                is_new = (
                    not self.is_known(program_hash) and self.builds_by_program.setdefault(program_hash, build) is build
                )
                process.send(messages.Continue(compile=is_new))
                return
            case messages.Skipped():
                if compiled_build := self.builds_by_program.get(build.program_hash):
                    compiled_build.duplicates.append(build)
                elif not self.is_known(build.program_hash):  # compiling it has failed in the meantime
                    self._schedule_again(build)
            case Built() as built:
                build.built = built
            case Failed() as failed:
                self._record_failure(build, failed, build.is_first_in_process, not process.changed_state)
        self.mark_idle(process)

    def on_worker_died(self, build: ConfigBuild, death: WorkerDied, seconds: float) -> None:
        failed = failure_of(death, "building", seconds)
        self._record_failure(build, failed, isinstance(death, WorkerTimeout) and build.is_first_in_process)

    def _record_failure(
        self, build: ConfigBuild, failed: Failed, is_config_to_blame: bool, affects_program: bool = False
    ) -> None:
        """Record a config's failure, or build the config once more unless only the config can be to blame.

        ``affects_program`` is whether every config with its program would fail.
        """
        must_retry = failed.failure != "invalid" and not is_config_to_blame and not build.is_retried
        if must_retry or not affects_program:
            if self.builds_by_program.get(build.program_hash) is build:
                del self.builds_by_program[build.program_hash]
            for duplicate in build.duplicates:
                self._schedule_again(duplicate)
            build.duplicates.clear()
            build.program_hash = ""
        if must_retry:
            build.is_retried = True
            self.queue.append(build)
        else:
            build.failure = Measurement((), failed.failure, failed.message, failed.seconds, 0.0, build.program_hash)

    def _schedule_again(self, build: ConfigBuild) -> None:
        """Schedule a config again, since compiling its program for another config has failed."""
        build.program_hash = ""
        self.queue.append(build)


class _ExtractionBatch(JobBatch[range]):
    """A batch of feature extractions, in which each job is a range of config indices.

    A process that has not extracted these features before is first sent an empty range, so that the time for its
    imports does not count against any config.
    """

    def __init__(self, pool: BuildPool, space: Space, features: str, configs: Sequence[Config]) -> None:
        chunk_size = min(CHUNK_SIZE, -(-len(configs) // pool.workers))
        indices = range(len(configs))
        chunks = [indices[start : start + chunk_size] for start in range(0, len(configs), chunk_size)]
        self.process_count = min(pool.workers, len(chunks))
        super().__init__(pool, pool.make_set_up_message(space), self.process_count, chunks)
        self.timeout = pool.build_timeout
        self.features = features
        self.configs = configs
        self.cpu_seconds = 0.0
        self.rows = [np.empty(0)] * len(configs)
        self.failures: list[tuple[int, str]] = []

    def assign_jobs(self) -> Sequence[Any]:
        while self.queue and self.idle_processes:
            process = self.idle_processes.pop()
            is_new = self.features not in process.imported_features
            chunk = range(0) if is_new else self.queue.popleft()
            process.send(messages.Extract(self.features, [self.configs[i] for i in chunk]))
            self.mark_busy(process, chunk, START_TIMEOUT if is_new else self.timeout)
        return ()

    def receive_answer(self, process: MeasuringWorker, chunk: range) -> None:
        answer = process.recv(messages.Extracted)
        if len(answer.rows) != len(chunk) or any(len(row) % 8 for row in answer.rows):
            raise WorkerDied("sent an invalid answer: its rows do not match the configs")
        if not process.is_usable and len(chunk) > 1:  # a changed process may have affected the other rows
            raise WorkerDied(f"was left with changed {process.changed_state}")
        process.imported_features.add(self.features)
        if chunk:  # the time for an empty chunk is spent on a new process's imports
            self.cpu_seconds += answer.cpu_seconds / self.process_count
        for index, row in zip(chunk, answer.rows, strict=True):
            self.rows[index] = np.frombuffer(row, np.float64).copy()
        self.mark_idle(process)

    def on_worker_died(self, chunk: range, death: WorkerDied, seconds: float) -> None:
        """Retry the configs in ``chunk`` one by one to find the one that is at fault."""
        if not chunk:
            raise SearchlabError(f"a feature-extraction process {death} while starting; check your TVM installation")
        if len(chunk) > 1:
            self.queue.extend(chunk[i : i + 1] for i in range(len(chunk)))
        else:
            self.failures.append((chunk[0], str(death)))


def check_size(workload: Workload) -> None:
    """Raise SearchlabError if programs for ``workload`` cannot be checked and timed on this machine.

    The process that runs programs holds each input as a NumPy array and as the program's argument, and each result as
    the argument, as NumPy's result and as the content before the program has run.
    """
    arguments = workload.arguments
    for argument in arguments:
        if argument.elements > MAX_ELEMENTS:
            raise SearchlabError(
                f"{workload}: the array {argument.name} has {argument.elements:,} elements, but programs compute "
                f"indices with 32-bit integers; choose sizes with at most {MAX_ELEMENTS:,} elements"
            )
    inputs, results = arguments[: -workload.result_count], arguments[-workload.result_count :]
    required_bytes = 2 * sum(array.bytes for array in inputs) + 3 * sum(array.bytes for array in results)
    if required_bytes > (available_bytes := available_memory()):
        raise SearchlabError(
            f"{workload} needs at least {required_bytes:,} bytes of memory for its arguments, their copies and the "
            f"expected result, but this machine or this process's control group has {available_bytes:,}; choose "
            f"smaller sizes, or measure on a larger machine"
        )


def can_flush(target: Target) -> bool:
    """Return whether TVM can remove a program's arguments from the caches of ``target``."""
    return target.kind != "llvm" or _architecture_of(target) in FLUSHABLE_CPUS


def check_can_flush(target: Target) -> None:
    """Raise SearchlabError unless TVM can remove a program's arguments from the caches of ``target``."""
    if not can_flush(target):
        name = _architecture_of(target)
        raise SearchlabError(
            f"TVM cannot remove arguments from the caches of {name}, only of {' and '.join(FLUSHABLE_CPUS)}; use "
            'measure.cache = "warm"'
        )


def _architecture_of(target: Target) -> str:
    return architecture_of(str(target.spec.get("mtriple") or platform.machine()))


class BuildingMeasurer(Measurer):
    """A measurer that builds programs in ``workers`` processes. Subclasses run the programs.

    Programs in ``measurements`` are not built again, except for pruned programs that this run might not prune. New
    ones are added to ``measurements``. If ``has_scratch_folder`` is true, the processes share a folder for temporary
    files. ``thread_count`` and ``memory_limit_mb`` apply to the processes that run programs.
    """

    def __init__(
        self,
        settings: RunSettings,
        target: Target,
        measurements: MeasurementsByProgram,
        workers: int,
        has_scratch_folder: bool,
        thread_count: int = 1,
        memory_limit_mb: int = 0,
    ) -> None:
        if settings.cache == "cold":
            check_can_flush(target)
        self.settings = settings
        self.target = target
        self.measurements = measurements
        self.workers = workers
        # Linkers and nvcc write files that a killed worker leaves behind.
        self._scratch_folder = ScratchFolder() if has_scratch_folder else None
        folder_name = self._scratch_folder.name if self._scratch_folder else ""
        self._build_pool = BuildPool(workers, settings.build_timeout, settings.memory_limit_mb, folder_name)
        self._run_pool = WorkerPool(thread_count, folder_name, memory_limit_mb)

    def begin(self, seed: int) -> None:
        get_fork_server()  # it imports TVM while the first batch is proposed

    @abstractmethod
    def _prepare_runners(self, space: Space, config_count: int) -> None:
        """Start the processes that run programs. They set themselves up while the configs are being built."""

    @abstractmethod
    def _run_programs(
        self, space: Space, programs: dict[str, Built], best_cost: float
    ) -> AbstractContextManager[Callable[[str, float], Measurement]]:
        """Return a context manager within which the built ``programs`` are run.

        It yields a function that returns a program's measurement, given the program's hash and the lowest cost so far.
        """

    def measure(self, space: Space, configs: Sequence[Config], best_cost: float = math.inf) -> Iterator[Measurement]:
        check_size(space.workload)
        self._prepare_runners(space, len(configs))
        builds = self._build_pool.build(
            space, configs, lambda program_hash: self.settings.is_known(program_hash, self.measurements, best_cost)
        )
        self.measurements.update(
            {build.program_hash: build.failure for build in builds if build.failure and build.program_hash}
        )
        programs = {build.program_hash: build.built for build in builds if build.built}
        with self._run_programs(space, programs, best_cost) as run:
            for build in builds:
                program_hash = build.program_hash
                if build.failure:
                    measurement = build.failure
                elif program_hash in programs:
                    self.measurements[program_hash] = measurement = run(program_hash, best_cost)
                    del programs[program_hash]  # another config with this program reuses the measurement
                else:
                    measurement = replace(self.measurements[program_hash], reused=True)
                best_cost = min(best_cost, measurement.cost)
                yield measurement

    def program_hashes(self, space: Space, configs: Sequence[Config]) -> list[str]:
        return [build.program_hash for build in self._build_pool.build(space, configs, lambda program_hash: True)]

    def extract(self, space: Space, features: str, configs: Sequence[Config]) -> list[Floats]:
        return self._build_pool.extract(space, features, configs)

    def extract_seconds(self) -> float:
        return self._build_pool.extract_seconds

    def close(self) -> None:
        self._build_pool.close()
        self._run_pool.close()
        if self._scratch_folder:
            self._scratch_folder.cleanup()
        super().close()
