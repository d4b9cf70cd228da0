"""Verification of a log's fastest programs on this machine: their results, times and speed-ups.

The programs are rebuilt, checked on new inputs, and timed with the log's settings. This is done in worker processes, so
a program that crashes does not affect the others.
"""

from __future__ import annotations

import math
import statistics
import timeit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from ..errors import SearchlabError, warn
from ..log.format import Log
from ..log.programs import describe_program_change, get_recorded_program
from ..log.reliability import ROUNDS, measure_noise
from ..log.result import Result, load_log
from ..machine.cuda import check_can_measure, gpu_name
from ..machine.host import available_cores, cpu_model, observe_load
from ..measure.contract import CannotMeasure, RunSettings
from ..measure.local import LocalMeasurer
from ..measure.settings import LocalSettings
from ..plugins import trusts
from ..records import Failure, Trial, select_first_of_each_program
from ..space import Choose, Config, Space
from ..target import Target, resolve_target
from ..workload.fused import Fused
from ..workload.products import BatchMatmul, Gemm

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

INPUT_SEEDS = 3
"""The number of sets of inputs on which each program is checked, in addition to the one used for measuring."""

PRUNE_FACTOR = 3.0
"""The ``prune_factor`` for logs measured without one, so that a slow untuned program is not repeated in full."""

UNTUNED_TIME_LIMIT = 5.0
"""The time limit in seconds for timing programs in turn with the untuned one. If it is slow, there are few rounds."""

MAX_STEADY_RATIO = 1.25
"""NumPy's median time divided by its shortest one, above which its readings scatter too widely for a comparison."""

Readings = tuple[float, ...]
"""The execution times of a program in seconds, one reading per round."""


class SpeedUp(msgspec.Struct, frozen=True):
    """The speed-up over the untuned program: the ratio of the medians, and the quartiles of the ratios per round.

    Attributes:
        rounds: The number of rounds that timed both in turn; 0 if the untuned program is too slow.
        least: Whether the untuned program hit its time limit, which makes all three values lower bounds.
    """

    ratio: float
    low: float
    high: float
    rounds: int
    least: bool = False


class VerifiedProgram(msgspec.Struct, frozen=True):
    """A trial of the log whose program was built and run again. All times are in seconds per execution.

    Attributes:
        trial: The trial's index.
        config: The trial's config.
        logged: The readings behind the logged time, which is their median.
        failure: How the program failed, ``"another_program"`` if it differs from the measured program, or None if it is
            correct.
        message: The failure message.
        seconds: The readings from this verification, one per round.
        noise: The relative difference between the new and the logged time that noise can explain: the relative
            interquartile range of the new readings, plus that of the logged ones or the log's noise if it is larger.
        speed_up: The speed-up over the untuned program, or None if it was not timed.
    """

    trial: int
    config: dict[str, Any]
    logged: Readings
    failure: Failure | str | None = None
    message: str = ""
    seconds: Readings = ()
    noise: float | None = None
    speed_up: SpeedUp | None = None

    @property
    def can_be_timed(self) -> bool:
        """Whether the program can be timed, even if it is not the measured program."""
        return self.failure in (None, "another_program")

    @property
    def ratio(self) -> float | None:
        """The new median time divided by the logged one, or None if the program was not timed."""
        return statistics.median(self.seconds) / statistics.median(self.logged) if self.seconds else None

    @property
    def as_logged(self) -> bool | None:
        """Whether the ratio is within the noise, or None if the program was not timed."""
        return None if self.ratio is None or self.noise is None else abs(self.ratio - 1) <= self.noise


class Verification(msgspec.Struct, frozen=True, kw_only=True, rename={"uses_log_settings": "own"}):
    """The result of :func:`verify_log`.

    Attributes:
        seeds: The seeds of the inputs for the checks, in addition to seed 0 for measuring.
        untuned: The untuned program's readings; if empty, the note may state the reason.
        numpy: NumPy's own, if it has a library for the operation; else empty.
        settings: How programs were timed.
        uses_log_settings: Whether these are the settings with which the log's trials were measured.
        busy: Whether other processes kept the machine busy when the verification began.
    """

    log: Path
    workload: str
    space: str
    seeds: tuple[int, ...]
    programs: tuple[VerifiedProgram, ...]
    untuned: Readings
    note: str
    numpy: Readings
    settings: LocalSettings
    uses_log_settings: bool
    busy: bool

    @property
    def all_correct(self) -> bool:
        """Whether every program was built, matches the measured program, and always returned the correct result."""
        return all(program.failure is None for program in self.programs)

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str) | {"right": self.all_correct}
        for program, program_fields in zip(self.programs, fields["programs"], strict=True):
            program_fields |= {
                "ratio": program.ratio,
                "as_logged": program.as_logged,
                "right": program.failure is None,
            }
        return fields


class Untuned(Space):
    """A space without knobs, whose only config is a workload's unscheduled program."""

    def decide(self, choose: Choose) -> Config:
        return Config({})

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        return Schedule(self.workload.module)


def verify_log(log: str | Path | Result, *, top: int = 1, seed: int = 1) -> Verification:
    """Verify a log's fastest programs.

    Args:
        log: A log's path, or a result.
        top: The number of distinct programs to verify.
        seed: The first of the consecutive seeds for the inputs. Measuring uses seed 0.

    Raises:
        SearchlabError: If no program can be verified, or if the trials were measured on a different kind of machine.

    Warns:
        SearchlabWarning: If other processes keep this machine busy.
    """
    if top < 1 or seed < 1:
        raise SearchlabError(f"top and seed must each be at least 1; got top={top} and seed={seed}")
    result = log if isinstance(log, Result) else load_log(log)
    if not isinstance(log, Result) and result.log.computation.content and not trusts():
        raise SearchlabError(
            f"{log} contains the function that was tuned, {result.log.header.workload}, and verifying the log "
            "executes that function; if you trust this file, add --trust (in Python, use `with "
            "searchlab.trust_plugins():`)"
        )
    trials = select_fastest_trials(result, top)
    space = result.space
    settings, uses_log_settings = _choose_settings(result.log)
    _check_machine(result.log, space.target)
    if load_warning := observe_load():
        warn(load_warning)
    # Slow programs are not repeated, so the untuned one takes no longer than necessary.
    settings = msgspec.structs.replace(
        settings, check=True, prune_factor=settings.prune_factor or PRUNE_FACTOR, sentinel=0, finalists=top + 1
    )
    seeds = tuple(range(seed, seed + INPUT_SEEDS))
    with LocalMeasurer(settings, space.target, {}, settings.workers or available_cores()) as measurer:
        measurements = list(measurer.measure(space, [trial.config for trial in trials]))
        trials = [
            replace(trial, measurement=measurement) for trial, measurement in zip(trials, measurements, strict=True)
        ]
        programs = [_check_remeasured(measurer, space, result, trial, seeds) for trial in trials]
        timeable_trials = [trial for trial, program in zip(trials, programs, strict=True) if program.can_be_timed]
        untuned_trial = _measure_untuned(measurer, space, timeable_trials)
        timeable_trials = [trial for trial in timeable_trials if _can_be_timed(measurer, space, trial)]
        timings = _time_in_turn(measurer, space, timeable_trials, untuned_trial)
    return Verification(
        log=result.log.path,
        workload=str(space.workload),
        space=result.log.header.space.name,
        seeds=seeds,
        programs=tuple(_add_readings(program, timings, result.log, settings, untuned_trial) for program in programs),
        untuned=timings.untuned,
        note=_explain_missing_speed_up(space.target, untuned_trial),
        numpy=_time_numpy(space, settings) if timeable_trials else (),
        settings=settings,
        uses_log_settings=uses_log_settings,
        busy=bool(load_warning),
    )


def select_fastest_trials(result: Result, count: int) -> list[Trial]:
    """Return the fastest trial of each of a log's ``count`` fastest distinct programs, with the best trial first."""
    successful_trials = [trial for trial in result.trials if math.isfinite(trial.cost)]
    successful_trials.sort(key=lambda trial: statistics.median(_get_logged_readings(result.log, trial)))
    return select_first_of_each_program([result.best.trial, *successful_trials])[:count]


def _get_logged_readings(log: Log, trial: Trial) -> Readings:
    """Return the readings behind a trial's logged time: its final readings if it was a finalist, else its repeats."""
    finalists = log.finalist_times.finalists if log.finalist_times is not None else ()
    return next(
        (finalist.seconds for finalist in finalists if finalist.index == trial.index), trial.measurement.seconds
    )


def describe_verification(verification: Verification) -> list[str]:
    """Return sentences that describe the verification."""
    sentences = []
    if not verification.uses_log_settings:
        sentences.append("this log's trials come from a table, so their programs are timed with the default settings")
    for program in verification.programs:
        seeds = ", ".join(map(str, verification.seeds))
        outcome = (
            f"{program.failure}: {program.message}" if program.failure else f"correct on inputs from seeds {seeds}"
        )
        sentences.append(f"{verification.workload} in {verification.space}, trial {program.trial}: {outcome}")
        if program.ratio is not None and program.noise is not None:
            relation = "within" if program.as_logged else "beyond"
            sentences.append(
                f"  logged {_format_milliseconds(program.logged)}, now {_format_milliseconds(program.seconds)}: "
                f"{program.ratio:.3g} times as long, {relation} the repeats' noise ({100 * program.noise:.1f} %)"
            )
        if (speed_up := program.speed_up) and speed_up.least:
            untuned_time = f"over {verification.settings.run_timeout:g} s"
            sentences.append(f"  untuned {untuned_time}: more than {speed_up.low:.3g} times as long as now")
        elif speed_up:
            sentences.append(
                f"  untuned {_format_milliseconds(verification.untuned)}: {speed_up.ratio:.3g} times as long as now "
                f"(quartiles {speed_up.low:.3g} and {speed_up.high:.3g}"
                f"{'' if speed_up.rounds else ', not timed in turn'})"
            )
        if verification.numpy and program.seconds:
            sentences.append(
                f"  NumPy's {_get_blas_name()}, with as many threads, {_compare_numpy(verification, program.seconds)}"
            )
    if verification.note:
        sentences.append(verification.note)
    return sentences


def _compare_numpy(verification: Verification, seconds: Readings) -> str:
    """Compare NumPy's time with a program's, unless other processes may have prolonged NumPy's.

    Even a little other work makes BLAS's threads wait for each other, which takes far longer than the product.
    """
    shortest_seconds, median_seconds = min(verification.numpy), statistics.median(verification.numpy)
    if verification.busy or median_seconds > MAX_STEADY_RATIO * shortest_seconds:
        reason = "other processes ran at the same time" if verification.busy else "these readings scatter too widely"
        longest_seconds = max(verification.numpy)
        range_text = f"{_format_milliseconds([shortest_seconds])} to {_format_milliseconds([longest_seconds])}"
        return f"{range_text}: no comparison, because {reason}"
    ratio = shortest_seconds / statistics.median(seconds)
    return f"{_format_milliseconds([shortest_seconds])} at best: {ratio:.3g} times as long as now"


def _format_milliseconds(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.4g} ms"


# --- checking the log and the machine ---------------------------------------------------------------------------------


def _choose_settings(log: Log) -> tuple[LocalSettings, bool]:
    """Return the trials' settings and True, or, if the trials come from a table, the default settings and False."""
    kind = log.header.measure.get("kind")
    if kind == "rpc":
        raise SearchlabError(
            f"{log.path} was measured on a fleet's {log.header.measure.get('key')!r} devices, and logs do not record "
            f"the tracker's address; export the program with --to library, and run it on a device"
        )
    if kind != "local":
        return LocalSettings(), False
    try:
        return msgspec.convert(log.header.measure, LocalSettings), True
    except msgspec.ValidationError as error:
        raise SearchlabError(
            f"{log.path} was measured with settings that this version of searchlab does not support: {error}"
        ) from None


def _check_machine(log: Log, target: Target) -> None:
    """Raise SearchlabError if programs for ``target`` do not run here or were measured on different hardware."""
    log_path, log_host = log.path, log.header.host
    if target.kind == "cuda":
        check_can_measure(str(target.tvm.attrs["arch"]))
        _require_same_hardware(log, "gpu", str(gpu_name()))
        return
    if target.kind != "llvm" or target.is_foreign:
        triple = target.spec.get("mtriple", target.kind)
        raise SearchlabError(
            f"{log_path} contains programs for {triple!r}, which do not run on this machine; verify the log on a "
            f"machine where they do"
        )
    _require_same_hardware(log, "cpu", cpu_model())
    own_cpu = resolve_target("native").spec["mcpu"]
    recorded_cpu = target.spec.get("mcpu", own_cpu)
    if "cpu" not in log_host and recorded_cpu != own_cpu:
        raise SearchlabError(
            f"{log_path} contains programs for the CPU {recorded_cpu!r}, but this machine has {own_cpu!r}; verify the "
            f"log on a machine with a {recorded_cpu}"
        )
    if target.cores > available_cores():
        raise SearchlabError(
            f"{log_path} is for {target.cores} cores, but only {available_cores()} are available here; verify the log "
            f"on a machine with enough cores"
        )


def _require_same_hardware(log: Log, field: str, current: str) -> None:
    original = log.header.host.get(field, current)
    if original != current:
        raise SearchlabError(
            f"{log.path} was measured on {original!r}, but this machine has {current!r}, so the times cannot be "
            f"compared; verify the log on the machine where it was measured"
        )


def _explain_missing_speed_up(target: Target, untuned_trial: Trial | None) -> str:
    """Return the reason why there is no comparison with the untuned program, or an empty string if there is one."""
    if target.kind != "llvm":
        return "no comparison with the untuned program: it binds no threads, so it cannot run on a GPU"
    if untuned_trial is None or untuned_trial.measurement.failure in (None, "run_timeout"):
        return ""
    measurement = untuned_trial.measurement
    return f"the untuned program was not timed: {measurement.failure}: {measurement.message}"


# --- measuring --------------------------------------------------------------------------------------------------------


def _check_remeasured(
    measurer: LocalMeasurer, space: Space, result: Result, trial: Trial, seeds: Sequence[int]
) -> VerifiedProgram:
    """Check a remeasured trial on the inputs of every seed, and compare its program with the one measured before."""
    measurement = trial.measurement
    program = VerifiedProgram(
        trial.index,
        trial.config.to_json(),
        _get_logged_readings(result.log, result.trials[trial.index]),
        measurement.failure,
        measurement.message,
    )
    if measurement.failure is not None:
        inputs_text = " (inputs from seed 0)" if measurement.failure == "wrong_answer" else ""
        return msgspec.structs.replace(program, message=f"{measurement.message}{inputs_text}")
    for seed in seeds:
        if failed_measurement := measurer.check(space, measurement.program, seed):
            message = f"{failed_measurement.message} (inputs from seed {seed})"
            return msgspec.structs.replace(program, failure=failed_measurement.failure, message=message)
    original_program = get_recorded_program(result.trials[trial.index])
    if original_program and original_program != measurement.program:
        message = describe_program_change(original_program, measurement.program, result.log.versions)
        return msgspec.structs.replace(program, failure="another_program", message=message)
    return program


def _measure_untuned(measurer: LocalMeasurer, space: Space, trials: Sequence[Trial]) -> Trial | None:
    """Measure the untuned program, or return None if there is nothing to compare it with, or if it is for a GPU.

    An untuned program binds no threads, so it cannot run on a GPU.
    """
    if not trials or space.target.kind != "llvm":
        return None
    untuned_space = Untuned(space.workload, space.target)
    (measurement,) = measurer.measure(untuned_space, [Config({})], min(trial.cost for trial in trials))
    return Trial(0, Config({}), measurement)


@dataclass(frozen=True)
class _Timings:
    """The readings of programs that were timed in turn.

    Attributes:
        programs: Each program's readings in as many rounds as possible, by the index of its trial.
        with_untuned: Each program's readings in the rounds with the untuned program; empty if there were none.
        untuned: The untuned program's readings in these rounds, or else the first ones; empty if it cannot be timed.
    """

    programs: Mapping[int, Readings]
    with_untuned: Mapping[int, Readings]
    untuned: Readings = ()


def _time_in_turn(
    measurer: LocalMeasurer, space: Space, trials: Sequence[Trial], untuned_trial: Trial | None
) -> _Timings:
    """Time programs in turn, in at most :data:`ROUNDS` rounds, together with the untuned program if it can be timed.

    Raises:
        SearchlabError: If a program that could be timed alone fails.
    """
    if not trials:
        return _Timings({}, {})
    settings = measurer.settings
    own_rounds = max(1, _count_rounds(settings, trials, 0.8 * settings.run_timeout * len(trials)))
    with_untuned: list[Readings] = []
    untuned_readings: Readings = ()
    try:
        if untuned_trial is not None and untuned_trial.measurement.failure is None:
            rounds = _count_rounds(settings, [*trials, untuned_trial], UNTUNED_TIME_LIMIT)
            if not rounds:
                untuned_readings = untuned_trial.measurement.seconds
            elif _can_be_timed(measurer, space, untuned_trial):
                *with_untuned, untuned_readings = measurer.remeasure(space, [*trials, untuned_trial], rounds)
        if with_untuned and len(untuned_readings) >= own_rounds:
            readings = with_untuned
        else:
            readings = measurer.remeasure(space, trials, own_rounds)
    except CannotMeasure as error:
        raise SearchlabError(
            f"each program can be timed alone, but not in turn with the others: {error}; verify fewer of them (--top)"
        ) from None
    indices = [trial.index for trial in trials]
    return _Timings(
        dict(zip(indices, readings, strict=True)), dict(zip(indices, with_untuned, strict=False)), untuned_readings
    )


def _time_numpy(space: Space, settings: LocalSettings) -> Readings:
    """Time NumPy's BLAS with as many threads as the programs, for a matrix product on the CPU."""
    workload = space.workload
    if space.target.kind != "llvm" or not isinstance(workload, Gemm | BatchMatmul) or settings.cache == "cold":
        return ()
    if workload.dtype not in ("float32", "float64") or isinstance(workload, Fused):
        return ()
    inputs = workload.inputs(0)
    timer = timeit.Timer(lambda: workload.reference(inputs))
    with threadpool_limits(space.target.cores, "blas"):
        shortest_seconds = min(timer.repeat(3, 1))  # threads wake up during the first calls
        call_count = max(1, math.ceil(1e-3 * settings.min_repeat_ms / shortest_seconds))
        return tuple(seconds / call_count for seconds in timer.repeat(ROUNDS, call_count))


def _get_blas_name() -> str:
    """Return the name of the library that computes NumPy's matrix products, such as ``"openblas"``."""
    return next((info["internal_api"] for info in threadpool_info() if info["user_api"] == "blas"), "BLAS")


def _can_be_timed(measurer: LocalMeasurer, space: Space, trial: Trial) -> bool:
    try:
        measurer.remeasure(space, [trial], rounds=1)
    except CannotMeasure:
        return False
    return True


def _count_rounds(settings: RunSettings, trials: Sequence[Trial], time_limit: float) -> int:
    """Return the number of rounds, at most :data:`ROUNDS`, that fit into ``time_limit`` seconds.

    A reading takes one execution, followed by ``number`` executions or as many as are needed to reach
    ``min_repeat_ms``, increasing in steps.
    """
    min_seconds = 3e-3 * settings.min_repeat_ms
    return min(
        ROUNDS, int(time_limit / sum(trial.cost + max(min_seconds, settings.number * trial.cost) for trial in trials))
    )


def _add_readings(
    program: VerifiedProgram, timings: _Timings, log: Log, settings: LocalSettings, untuned_trial: Trial | None
) -> VerifiedProgram:
    """Return ``program`` with its readings in ``timings``, or with a failure if it could not be timed."""
    if program.trial in timings.programs:
        seconds = timings.programs[program.trial]
        spread = spread_of(seconds) + max(measure_noise(log) or 0.0, spread_of(program.logged))
        speed_up = _compute_speed_up(timings, program.trial, settings.run_timeout, untuned_trial)
        return msgspec.structs.replace(program, seconds=seconds, noise=spread, speed_up=speed_up)
    if program.failure is None:
        return msgspec.structs.replace(program, failure="run_error", message="it ran, but failed when it was timed")
    return program


def _compute_speed_up(timings: _Timings, trial: int, run_timeout: float, untuned_trial: Trial | None) -> SpeedUp | None:
    """Return the speed-up of a trial's program in ``timings``, or None if the untuned program has no readings."""
    seconds, readings = timings.programs[trial], timings.untuned
    if untuned_trial and untuned_trial.measurement.failure == "run_timeout":
        ratio = run_timeout / statistics.median(seconds)
        return SpeedUp(ratio, run_timeout / _compute_quartiles(seconds)[1], ratio, rounds=0, least=True)
    if not readings:
        return None
    if timings.with_untuned:
        seconds = timings.with_untuned[trial]
        ratios = [slow / fast for slow, fast in zip(readings, seconds, strict=True)]
        low, high = _compute_quartiles(ratios)
    else:
        ratios = []
        fast, slow = _compute_quartiles(seconds)
        low, high = min(readings) / slow, max(readings) / fast
    return SpeedUp(statistics.median(readings) / statistics.median(seconds), low, high, rounds=len(ratios))


def spread_of(seconds: Readings) -> float:
    """Return the interquartile range divided by the median, a measure that a few outliers do not affect."""
    low, high = _compute_quartiles(seconds)
    return (high - low) / statistics.median(seconds)


def _compute_quartiles(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.percentile(values, [25, 75])
    return float(low), float(high)
