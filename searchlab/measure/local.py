"""Measure in worker processes on this machine: programs are built in parallel, and then run one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar

from ..errors import SearchlabError
from ..machine.cuda import MEASURE_ELSEWHERE, check_can_measure
from ..machine.host import available_cores
from ..options import Between, Natural
from ..records import Failure, Measurement, Trial
from ..space import Space
from ..target import Target, check_runs_here
from . import messages
from .building import BuildingMeasurer
from .code import Code, CodeFolder
from .contract import CannotMeasure, MeasurementsByProgram, Remeasurer, RunSettings
from .messages import Built, Failed, Ran, SetUpRunner, Work, measurement_of
from .pool import MessageBatch
from .process import AnswerT


class LocalSettings(RunSettings, frozen=True, tag="local"):
    """Measure in worker processes on this machine.

    ``sentinel`` and ``finalists`` do not affect trials' measurements.

    Attributes:
        sentinel: The interval, in batches, at which the run's first working program is timed again, or 0 for never.
        finalists: The maximum number of fastest programs that are timed again, in turn, at the end of a run.
        programs: The folder in which to keep the compiled code of all working programs, or "" to discard it.
    """

    sentinel: Natural = 4
    finalists: Annotated[int, Between(0, 1000)] = 5
    programs: str = ""

    not_identity: ClassVar[tuple[str, ...]] = (*RunSettings.not_identity, "sentinel", "finalists", "programs")
    exclusive: ClassVar[bool] = True

    def make(self, target: Target, measurements: MeasurementsByProgram, base_dir: Path = Path()) -> LocalMeasurer:
        return LocalMeasurer(self, target, measurements, self.workers or available_cores())


def can_continue_after(target_kind: str, failure: Failure) -> bool:
    """Return whether a process can run more programs after a ``failure``, given the kind of the target.

    CUDA kernel errors are sticky: every later CUDA call in the process also fails (CUDA Runtime API). A kernel that
    computed a wrong answer may have overwritten the next kernel's inputs.
    """
    return target_kind != "cuda" and failure in ("run_error", "wrong_answer")


class LocalMeasurer(BuildingMeasurer, Remeasurer):
    """A measurer with several build processes and one run process, all of which are reused across batches.

    From its first measurement until it is closed, no other process can measure this machine.

    Raises:
        SearchlabError: If this machine cannot run programs for ``target``.
    """

    settings: LocalSettings

    def __init__(
        self, settings: LocalSettings, target: Target, measurements: MeasurementsByProgram, workers: int
    ) -> None:
        if target.kind == "cuda":
            check_can_measure(str(target.tvm.attrs["arch"]))
        elif target.kind == "llvm":
            check_runs_here(target)
        else:
            raise SearchlabError(f"cannot measure programs for {target.kind!r} on this machine; {MEASURE_ELSEWHERE}")
        # GPU memory that the driver maps into the process must not count against the limit. CUDA programs do not need
        # the CPU's cores, so all of them compute the reference result, which a new process needs after each failure.
        is_on_cpu = target.kind == "llvm"
        threads, memory_limit_mb = (target.cores, settings.memory_limit_mb) if is_on_cpu else (available_cores(), 0)
        super().__init__(settings, target, measurements, workers, not is_on_cpu, threads, memory_limit_mb)
        self.sentinel_every = settings.sentinel
        self.finalists = settings.finalists
        # The costs and code of the run's first and fastest programs, by program hash:
        self._kept_programs: dict[str, tuple[float, Code]] = {}
        self._code_folder = CodeFolder(settings.programs) if settings.programs else None

    def begin(self, seed: int) -> None:
        super().begin(seed)
        self._kept_programs = {}

    def remeasure(self, space: Space, trials: Sequence[Trial], rounds: int) -> list[tuple[float, ...]]:
        self.acquire_machine()
        program_hashes = [trial.measurement.program for trial in trials]
        code_by_program = {program: code for program in program_hashes if (code := self._find_code(program))}
        configs = [trial.config for trial in trials if trial.measurement.program not in code_by_program]
        builds = self._build_pool.build(space, configs)
        for build in builds:
            if build.failure:
                raise CannotMeasure(build.failure.message)
            if build.built:
                code_by_program[build.program_hash] = build.built.code
                self._kept_programs[build.program_hash] = (0.0, build.built.code)  # it may be remeasured often
        if absent_programs := set(program_hashes) - code_by_program.keys():
            built_programs = ", ".join(build.program_hash for build in builds)
            raise CannotMeasure(
                f"instead of {', '.join(sorted(absent_programs))}, the config now yields the program {built_programs}"
            )
        message = messages.Remeasure([code_by_program[program] for program in program_hashes], rounds)
        answer = self._request(space, message, self.settings.run_timeout * len(trials), messages.Remeasured)
        if isinstance(answer, Failed):
            raise CannotMeasure(answer.message)
        if [len(readings) for readings in answer.program_readings] != [rounds] * len(trials):
            self._run_pool.close()
            raise CannotMeasure("the running process did not send the requested times")
        return answer.program_readings

    def check(self, space: Space, program_hash: str, seed: int) -> Failed | None:
        """Run a stored program on inputs drawn from ``seed``. Return its failure, or None if its result is right."""
        code = self._find_code(program_hash)
        assert code is not None
        # With a best time of 0 s, every program counts as slow and is not repeated.
        answer = self._request(space, messages.RunProgram(code, 0.0), self.settings.run_timeout, Ran, seed)
        return answer if isinstance(answer, Failed) else None

    def _prepare_runners(self, space: Space, config_count: int) -> None:
        self.acquire_machine()
        self._run_pool.prepare_processes(self._make_set_up(space), 1)

    def _run_programs(
        self, space: Space, programs: dict[str, Built], best_cost: float
    ) -> AbstractContextManager[Callable[[str, float], Measurement]]:
        def run(program_hash: str, best_cost: float) -> Measurement:
            built = programs[program_hash]
            answer = self._request(space, messages.RunProgram(built.code, best_cost), self.settings.run_timeout, Ran)
            if isinstance(answer, Ran) and len(answer.readings) > self.settings.repeat * (1 + self.settings.confirm):
                self._run_pool.close()
                answer = Failed("crash", "the running process sent more times than requested")
            measurement = replace(
                measurement_of(answer, self.settings.statistic), build_seconds=built.cpu_seconds, program=program_hash
            )
            self._keep_code(measurement, built.code)
            return measurement

        return nullcontext(run)

    def _find_code(self, program_hash: str) -> Code | None:
        if program_hash in self._kept_programs:
            return self._kept_programs[program_hash][1]
        return self._code_folder.get(program_hash) if self._code_folder else None

    def _keep_code(self, measurement: Measurement, code: Code) -> None:
        """Keep a working program's code if :meth:`remeasure` may need it, as for the first and the fastest programs."""
        if math.isinf(measurement.cost):
            return
        if self._code_folder:
            self._code_folder[measurement.program] = code
        if self.sentinel_every or self.finalists:
            self._kept_programs[measurement.program] = (measurement.cost if self._kept_programs else 0.0, code)
            if len(self._kept_programs) > self.finalists + 2:
                del self._kept_programs[
                    max(self._kept_programs, key=lambda program_hash: self._kept_programs[program_hash][0])
                ]

    def _make_set_up(self, space: Space, seed: int = 0) -> SetUpRunner:
        settings = self.settings.for_worker()
        return SetUpRunner(space.workload, settings, self.target, space.error_factor, seed=seed)

    def _request(
        self, space: Space, message: Work, timeout: float, answer_type: type[AnswerT], seed: int = 0
    ) -> AnswerT | Failed:
        """Send ``message`` to the runner, and return its answer."""

        def can_continue(failed: Failed) -> bool:
            return can_continue_after(self.target.kind, failed.failure)

        set_up_message = self._make_set_up(space, seed)
        with MessageBatch(self._run_pool, set_up_message, 1, [message], answer_type, timeout, can_continue) as batch:
            return batch.wait_for_answer(0)
