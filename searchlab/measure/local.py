"""Measuring in worker processes on this machine: builds in parallel, then runs alone, never both at once."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

from ..arrays import Floats
from ..errors import SearchlabError
from ..machine.cuda import INSTEAD, check_can_measure
from ..machine.host import available_cores, host_model
from ..machine.scratch import ScratchFolder
from ..records import Failure, Measurement, Trial
from ..space import Config, Space
from ..target import Target
from .build_pool import BuildPool
from .code import Objects, Programs
from .contract import CannotMeasure, KnownPrograms, Remeasurer, RunSettings
from .extractor import Extractor
from .messages import (
    Built,
    CheckProgram,
    Drawn,
    Failed,
    Ran,
    Remeasure,
    Remeasured,
    Right,
    RunProgram,
    SetUpRunner,
)
from .pool import WorkerPool
from .process import START_SECONDS, AnswerT, MeasuringWorker, Spoiled, WorkerDied


class LocalSettings(RunSettings, frozen=True, tag="local"):
    """Measure in worker processes on this machine.

    The first program of a run that runs is timed again every ``sentinel`` batches, and at the end of a run the fastest
    ``finalists`` are, in turn; 0 leaves that out. Neither touches the measurements of trials. The code of all programs
    that run is kept in the folder ``programs``, if one is named.
    """

    sentinel: int = 4
    finalists: int = 5
    programs: str = ""

    aside: ClassVar[tuple[str, ...]] = (*RunSettings.aside, "sentinel", "finalists", "programs")
    exclusive: ClassVar[Literal[True]] = True
    replays: ClassVar[Literal[False]] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(0, "sentinel", "finalists")

    def default_target(self, base: Path = Path()) -> str:
        return "native"

    def measurable(self, base: Path = Path()) -> None:
        return None

    def machine(self, target: Target, base: Path = Path()) -> str:
        return ", ".join(host_model(target.kind).values())

    def make(self, target: Target, known: KnownPrograms, base: Path = Path()) -> LocalMeasurer:
        return LocalMeasurer(self, target, known, self.workers or available_cores())


def survives(kind: str, failure: Failure) -> bool:
    """Whether a process that has run a program for this ``kind`` of target, and seen it fail so, can run another.

    An error of a CUDA kernel stays with the process: every later call fails too (CUDA Runtime API, "sticky" errors).
    A kernel with a wrong answer may have written to the inputs of the next.
    """
    return kind != "cuda" and failure in ("run_error", "wrong_answer")


class LocalMeasurer(Remeasurer):
    """Measures with ``workers`` build processes and one run process, all of them kept for the next batch.

    A program that is in ``known`` is not built again, unless it was pruned in a run whose best was faster than that of
    this one; new measurements are added to it. Raises SearchlabError where programs for ``target`` cannot be run here.
    """

    def __init__(self, settings: LocalSettings, target: Target, known: KnownPrograms, workers: int) -> None:
        if target.kind == "cuda":
            check_can_measure(str(target.tvm.attrs["arch"]))
        elif target.kind != "llvm":
            raise SearchlabError(f"programs for {target.kind!r} cannot be measured on this machine; {INSTEAD}")
        self.settings = settings
        self.target = target
        self.known = known
        self.workers = workers
        self.sentinel = settings.sentinel
        self.finalists = settings.finalists
        # nvcc works in files, which a worker that is killed leaves behind.
        self._folder = ScratchFolder() if target.kind == "cuda" else None
        scratch = self._folder.name if self._folder else ""
        self._builders = BuildPool(workers, settings.build_timeout, settings.memory_limit_mb, scratch)
        self._extractor = Extractor(self._builders)
        # The driver of a GPU maps the GPU's memory into the process, and that is not what the limit is for. The
        # reference is computed on all cores: no program runs on them, and each failure starts a process anew.
        on_cpu = target.kind == "llvm"
        threads, limit = (target.cores, settings.memory_limit_mb) if on_cpu else (available_cores(), 0)
        self._runners = WorkerPool(threads, scratch, limit)
        self._kept: dict[str, tuple[float, Objects]] = {}  # cost and code of the run's first and fastest programs
        self._programs = Programs(settings.programs) if settings.programs else None

    def begin(self, seed: int) -> None:
        self._kept = {}

    def measure(self, space: Space, configs: Sequence[Config], best: float = math.inf) -> Iterator[Measurement]:
        def is_known(program: str) -> bool:
            return self.settings.is_known(program, self.known, best)

        self._runners.prepare(self._setup(space), 1)  # it gets ready while programs are built
        builds = self._builders.build(space, configs, is_known)
        self.known.update(builds.failed_programs)
        for index in range(len(configs)):
            program = builds.programs.get(index, "")
            if index in builds.failures:
                measurement = builds.failures[index]
            elif is_known(program):
                measurement = replace(self.known[program], reused=True)
            else:
                built = builds.built[program]
                self.known[program] = measurement = self._run(space, program, built, best)
                self._keep(measurement, built.objects)
            best = min(best, measurement.cost)
            yield measurement

    def remeasure(self, space: Space, trials: Sequence[Trial], rounds: int) -> list[tuple[float, ...]]:
        programs = [trial.measurement.program for trial in trials]
        builds = self._builders.build(space, [trial.config for trial in trials if not self._keeps(trial)])
        for failed in builds.failures.values():
            raise CannotMeasure(failed.message)
        if absent := {p for t, p in zip(trials, programs, strict=True) if not self._keeps(t)} - builds.built.keys():
            now = ", ".join(builds.programs.values())
            raise CannotMeasure(f"{', '.join(sorted(absent))} is now another program: {now}")
        # Their code is kept, since they may be asked for often.
        self._kept |= {program: (0.0, built.objects) for program, built in builds.built.items()}
        runner = self._ready_runner(space)
        code = {program: self._code(program) for program in set(programs)}  # one that comes twice is sent once
        runner.send(Remeasure([code[program] for program in programs], rounds))
        answer = self._answer(runner, self.settings.run_timeout * len(trials), Remeasured)
        if isinstance(answer, Failed):
            raise CannotMeasure(answer.message)
        if [len(own) for own in answer.seconds] != [rounds] * len(trials):
            self._runners.close()
            raise CannotMeasure("the running process sent other times than it was asked for")
        return answer.seconds

    def check(self, space: Space, program: str, seed: int) -> tuple[Failure, str] | None:
        """Run a program that this measurer keeps, by its hash, on inputs drawn from ``seed``: how it failed, if so."""
        runner = self._ready_runner(space)
        runner.send(CheckProgram(self._code(program), seed))
        answer: Drawn | Right | Failed = self._answer(runner, START_SECONDS, Drawn)  # the inputs and the reference
        if isinstance(answer, Drawn):
            answer = self._answer(runner, self.settings.run_timeout, Right)
        return (answer.failure, answer.message) if isinstance(answer, Failed) else None

    def extract(self, space: Space, features: str, configs: Sequence[Config]) -> list[Floats] | None:
        return self._extractor.extract(space, features, configs)

    def extract_seconds(self) -> float:
        return self._extractor.seconds

    def close(self) -> None:
        self._builders.close()
        self._runners.close()
        if self._folder:
            self._folder.cleanup()

    # --- kept programs --------------------------------------------------------------------------------

    def _keeps(self, trial: Trial) -> bool:
        return trial.measurement.program in self._kept or (
            self._programs is not None and trial.measurement.program in self._programs
        )

    def _code(self, program: str) -> Objects:
        if program in self._kept or self._programs is None:
            return self._kept[program][1]
        return self._programs[program]

    def _keep(self, measurement: Measurement, objects: Objects) -> None:
        """Keep the code that :meth:`remeasure` may be asked for: of the first program that runs, and the fastest."""
        if math.isfinite(measurement.cost) and self._programs is not None:
            self._programs[measurement.program] = objects
        if math.isfinite(measurement.cost) and (self.sentinel or self.finalists):
            self._kept[measurement.program] = (measurement.cost if self._kept else 0.0, objects)
            if len(self._kept) > self.finalists + 2:
                del self._kept[max(self._kept, key=lambda program: self._kept[program][0])]

    # --- running --------------------------------------------------------------------------------------

    def _setup(self, space: Space) -> SetUpRunner:
        return SetUpRunner(space.workload, self.settings.for_worker(), self.target.kind, space.error_factor)

    def _ready_runner(self, space: Space) -> MeasuringWorker:
        (runner,) = self._runners.ready(self._setup(space), 1)
        return runner

    def _run(self, space: Space, program: str, built: Built, best: float) -> Measurement:
        try:
            answer = self._asked(space, built, best)
        except Spoiled:  # by the program before, perhaps
            try:
                answer = self._asked(space, built, best)
            except Spoiled as death:
                answer = Failed("crash", f"the running process {death}")
        match answer:
            case Ran(seconds, pruned, run_seconds) if len(seconds) <= self.settings.repeat:
                return Measurement(
                    seconds, None, "", built.seconds, run_seconds, program, pruned=pruned,
                    statistic=self.settings.statistic,
                )  # fmt: skip
            case Failed(failure, message, run_seconds):
                return Measurement((), failure, message, built.seconds, run_seconds, program)
        self._runners.close()
        text = "the running process sent more times than it was asked for"
        return Measurement((), "crash", text, built.seconds, 0.0, program)

    def _asked(self, space: Space, built: Built, best: float) -> Ran | Failed:
        runner = self._ready_runner(space)
        runner.send(RunProgram(built.objects, best))
        return self._answer(runner, self.settings.run_timeout, Ran)

    def _answer(self, runner: MeasuringWorker, timeout: float, expected: type[AnswerT]) -> AnswerT | Failed:
        """The next answer of ``runner``, or Failed where none comes; ``runner`` is ended where it can run no other."""
        start = time.perf_counter()
        usable = False
        try:
            if not runner.channel.poll(timeout):
                return Failed("run_timeout", f"running took longer than {timeout:g} s", time.perf_counter() - start)
            answer: AnswerT | Failed = runner.recv(expected, Failed)
            # Drawn is only the first of two answers, which may both be there.
            usable = isinstance(answer, Drawn) or (
                runner.usable and (not isinstance(answer, Failed) or survives(self.target.kind, answer.failure))
            )
            return answer
        except Spoiled:
            raise
        except WorkerDied as death:
            return Failed("crash", f"the running process {death}", time.perf_counter() - start)
        finally:
            if not usable:
                self._runners.close()
