"""Whether what a log says of its fastest programs holds here and now: right, as fast, and how much faster than untuned.

They are built again, checked on inputs that they have not been checked on, and timed as the log says that its trials
were, in worker processes: whatever a program does is its own failure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..errors import SearchlabError
from ..log.format import Header, Log, in_todays_words
from ..log.noise import ROUNDS, noise
from ..log.result import Result, load_log
from ..machine.cuda import check_can_measure, gpu_name
from ..machine.host import available_cores, cpu_model
from ..measure.contract import CannotMeasure, RunSettings
from ..measure.local import LocalMeasurer, LocalSettings
from ..records import Failure, Measurement, Trial
from ..space import Choose, Config, Space
from ..target import Target, resolve_target

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

DRAWS = 3
"""On how many inputs each program is checked, besides those of measuring."""

UNTUNED_SECONDS = 5.0
"""What timing programs in turn with the untuned one may take: where that is slow, there are fewer rounds, or none."""

PRUNE_FACTOR = 3.0
"""The default of the settings, for logs whose own setting repeats all: the untuned program is slow."""


@dataclass(frozen=True)
class SpeedUp:
    """Over the untuned program: the ratio of the medians, and the quartiles of that of each round.

    rounds: in how many both were timed in turn; 0 where the untuned one was too slow for that, and was timed as it was
    checked. least: whether it was ended at its time limit, so that all three are lower bounds.
    """

    ratio: float
    low: float
    high: float
    rounds: int
    least: bool = False


@dataclass(frozen=True)
class Verified:
    """A trial of the log, built and run again. All seconds are of one run of the program.

    failure, message: how it failed, or that it is another program than was measured (``"another_program"``); None and
    "" where it is right. logged: the repeats that its logged time is the median of. seconds: one reading a round, now.
    noise: by what share of its logged time it may differ now and be no surprise: the distance of the quartiles of the
    readings now, and of those in the log, or what is usual there, as shares of their medians.
    """

    trial: int
    config: dict[str, Any]
    logged: tuple[float, ...]
    failure: Failure | str | None = None
    message: str = ""
    seconds: tuple[float, ...] = ()
    noise: float | None = None
    speed_up: SpeedUp | None = None

    @property
    def ratio(self) -> float | None:
        """Its median time now over the logged one; None where it was not timed."""
        return statistics.median(self.seconds) / statistics.median(self.logged) if self.seconds else None

    @property
    def as_logged(self) -> bool | None:
        """Whether that is within the noise; None where it was not timed."""
        return None if self.ratio is None or self.noise is None else abs(self.ratio - 1) <= self.noise


@dataclass(frozen=True)
class Verification:
    """What :func:`verify_log` found. seeds: of the inputs that programs were checked on, besides 0, that of measuring.

    untuned: seconds of the workload's plain program, one value a reading; empty where there is none, and ``note`` says
    why. settings: how programs were timed; ``own`` whether as the trials of the log were.
    """

    log: Path
    workload: str
    space: str
    seeds: tuple[int, ...]
    programs: tuple[Verified, ...]
    untuned: tuple[float, ...]
    note: str
    settings: LocalSettings
    own: bool

    @property
    def right(self) -> bool:
        """Whether every program was built, is what was measured, and gave the right answer each time."""
        return all(one.failure is None for one in self.programs)

    def to_json(self) -> dict[str, Any]:
        programs = [
            {**asdict(one), "ratio": one.ratio, "as_logged": one.as_logged, "right": one.failure is None}
            for one in self.programs
        ]
        rest = {"log": str(self.log), "settings": msgspec.to_builtins(self.settings), "programs": programs}
        return {**asdict(self), **rest, "right": self.right}


class Untuned(Space):
    """The workload's program as it is: a space of one config, with no knob."""

    def decide(self, choose: Choose) -> Config:
        return Config({})

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        return Schedule(self.workload.module)


def verify_log(log: str | Path | Result, *, top: int = 1, seed: int = 1) -> Verification:
    """Verify the ``top`` fastest different programs of a log, on inputs drawn from ``seed`` and those that follow.

    Raises SearchlabError where there is none, or where the trials were not measured on a machine like this one.
    """
    if top < 1 or seed < 1:  # measuring draws from 0
        raise SearchlabError(f"top and seed must be at least 1, not {top} and {seed}")
    result = log if isinstance(log, Result) else load_log(log)
    trials = fastest(result, top)
    space, header = result.space, result.log.header
    settings, own = _settings(result.log)
    _check_machine(result.log, space.target)
    # One that is slow is not repeated, so that the untuned program takes no longer than it must.
    settings = msgspec.structs.replace(
        settings, check=True, prune_factor=settings.prune_factor or PRUNE_FACTOR, sentinel=0, finalists=top + 1
    )
    seeds = tuple(range(seed, seed + DRAWS))
    with LocalMeasurer(settings, space.target, {}, settings.workers or available_cores()) as measurer:
        found = _build_and_check(measurer, space, trials, seeds)
        alive = [trial for trial, failure, _ in found if failure in (None, "another_program")]
        untuned = _untuned(measurer, space, min((trial.cost for trial in alive), default=0.0))
        seconds, beside, readings = _time(measurer, space, alive, untuned)
    programs = []
    floor = noise(result.log) or 0.0
    for trial, (now, failure, message) in zip(trials, found, strict=True):
        logged = _logged(result.log, trial)
        one = Verified(trial.index, trial.config.to_json(), logged, failure, message)
        if now in alive and (times := seconds[alive.index(now)]):
            spread = _spread(times) + max(floor, _spread(logged))
            over = _speed_up(beside[alive.index(now)], readings, settings.run_timeout, untuned)
            one = replace(one, seconds=times, noise=spread, speed_up=over)
        elif now in alive and failure is None:
            one = replace(one, failure="run_error", message="it ran, and failed when it was timed again")
        programs.append(one)
    return Verification(
        result.log.path, str(space.workload), header.space.name, seeds, tuple(programs), readings,
        _note(space.target, untuned), settings, own,
    )  # fmt: skip


def fastest(result: Result, count: int) -> list[Trial]:
    """The best trial of a log, and then the fastest of other programs, ``count`` in all. Raises SearchlabError."""
    chosen: dict[object, Trial] = {}
    good = [trial for trial in result.trials if math.isfinite(trial.cost)]
    good.sort(key=lambda trial: statistics.median(_logged(result.log, trial)))
    for trial in (result.best.trial, *good):
        chosen.setdefault(trial.measurement.program or trial.config, trial)
    return list(chosen.values())[:count]


def sentences(found: Verification) -> list[str]:
    """What a reader should know of it."""
    *first, last = map(str, found.seeds)
    said = []
    if not found.own:
        said.append("the trials of this log were not measured for it, but recorded: it is timed by default settings")
    for one in found.programs:
        head = f"{found.workload} in {found.space}, trial {one.trial}"
        if one.failure:
            said.append(f"{head}: {one.failure}: {one.message}")
        else:
            said.append(f"{head}: right on inputs from seeds {', '.join(first)} and {last} (measuring uses 0)")
        if one.ratio is None or one.noise is None:
            continue
        within = "within" if one.as_logged else "beyond"
        said.append(
            f"  logged {_ms(one.logged)}, now {_ms(one.seconds)}: {one.ratio:.3g} times as long, {within} the noise of "
            f"the repeats ({100 * one.noise:.1f} %)"
        )
        if over := one.speed_up:
            time = f"over {found.settings.run_timeout:g} s" if over.least else _ms(found.untuned)
            readings = f"from {len(found.untuned)} of its readings, not in turn"
            rounds = f"of {over.rounds} rounds in turn" if over.rounds else readings
            much = f"more than {over.low:.3g}" if over.least else f"{over.ratio:.3g}"
            spread = "" if over.least else f" (quartiles {over.low:.3g} and {over.high:.3g}, {rounds})"
            said.append(f"  untuned {time}: {much} times as long as now{spread}")
    if found.note:
        said.append(found.note)
    return said


def _ms(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.4g} ms"


def _spread(seconds: Sequence[float]) -> float:
    """The distance of the quartiles, as a share of the median: of many readings some are always far off."""
    low, high = _quartiles(seconds)
    return (high - low) / statistics.median(seconds)


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.percentile(values, [25, 75])
    return float(low), float(high)


def _logged(log: Log, trial: Trial) -> tuple[float, ...]:
    """The readings of a trial that its time in the log is the median of: those of the end, where it was in that."""
    again = log.final.finalists if log.final is not None else ()
    return next((one.seconds for one in again if one.index == trial.index), trial.measurement.seconds)


# --- may it be verified here ----------------------------------------------------------------------------------


def _settings(log: Log) -> tuple[LocalSettings, bool]:
    """How the trials were measured, and whether that is known; the defaults where they were answered from a table."""
    kind = log.header.measure.get("kind")
    if kind == "rpc":
        raise SearchlabError(
            f"{log.path} was measured on the devices {log.header.measure.get('key')!r} of a fleet, and a log does not "
            f"hold where its tracker is; export the program with --to library, and run it there"
        )
    if kind != "local":
        return LocalSettings(), False
    try:
        return msgspec.convert(in_todays_words(log.header.measure), LocalSettings), True
    except msgspec.ValidationError as error:
        raise SearchlabError(f"{log.path} was measured in a way that this searchlab does not know: {error}") from None


def _check_machine(log: Log, target: Target) -> None:
    """Raise SearchlabError where programs for ``target`` do not run here, or their times say nothing of the logged."""
    name, host = log.path, log.header.host
    if target.kind == "cuda":
        check_can_measure(str(target.tvm.attrs["arch"]))
        _check_same(log.header, name, "gpu", str(gpu_name()))
        return
    if target.kind != "llvm" or target.is_foreign:
        there = target.spec.get("mtriple", target.kind)
        raise SearchlabError(f"{name} is of programs for {there!r}, which do not run on this machine; verify it there")
    _check_same(log.header, name, "cpu", cpu_model())
    ours = resolve_target("native")
    theirs = target.spec.get("mcpu", ours.spec["mcpu"])
    if "cpu" not in host and theirs != ours.spec["mcpu"]:
        raise SearchlabError(
            f"{name} is of programs for the CPU {theirs!r}, and this one is {ours.spec['mcpu']!r}; verify it there"
        )
    if target.cores > available_cores():
        raise SearchlabError(
            f"{name} is of programs on {target.cores} cores, and {available_cores()} may be used here; verify it where "
            f"there are as many"
        )


def _check_same(header: Header, name: Path, what: str, here: str) -> None:
    there = header.host.get(what, here)
    if there != here:
        raise SearchlabError(
            f"{name} was measured on {there!r}, and this is {here!r}: its times say nothing here; verify it there"
        )


# --- building, checking and timing ----------------------------------------------------------------------------

Found = tuple[Trial, Failure | str | None, str]
"""A trial with its measurement of now, how it failed, and what is said of that."""


def _build_and_check(
    measurer: LocalMeasurer, space: Space, trials: Sequence[Trial], seeds: Sequence[int]
) -> list[Found]:
    found: list[Found] = []
    for trial, now in zip(trials, list(measurer.measure(space, [one.config for one in trials])), strict=True):
        failure: Failure | str | None = now.failure
        message, was = now.message, trial.measurement
        if now.failure is not None:
            message = f"{message} (inputs from seed 0)" if now.failure == "wrong_answer" else message
        else:
            for seed in seeds:
                if failed := measurer.check(space, now.program, seed):
                    failure, message = failed[0], f"{failed[1]} (inputs from seed {seed})"
                    break
        if failure is None and was.program and not was.nearest and was.program != now.program:
            failure = "another_program"
            message = (
                f"its config now makes {now.program}, and {was.program} was measured; another TVM, or another space"
            )
        found.append((replace(trial, measurement=now), failure, message))
    return found


def _untuned(measurer: LocalMeasurer, space: Space, best: float) -> Trial | None:
    """The workload's plain program, measured; None on a GPU, for which it binds no threads, or beside nothing."""
    if space.target.kind != "llvm" or not best:
        return None
    config = Config({})
    (measurement,) = measurer.measure(Untuned(space.workload, space.target), [config], best)
    return Trial(0, config, measurement)


def _time(
    measurer: LocalMeasurer, space: Space, alive: Sequence[Trial], untuned: Trial | None
) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]], tuple[float, ...]]:
    """Seconds of each program in :data:`ROUNDS` rounds; and those, with the untuned program's, of rounds with that.

    Those of a program are empty where it failed now. Where the untuned one is too slow for rounds, its seconds are as
    it was measured.
    """
    if not alive:
        return [], [], ()
    settings = measurer.settings
    plain = untuned if untuned and untuned.measurement.failure is None else None
    rounds = _rounds(settings, [*alive, plain], UNTUNED_SECONDS) if plain else 0
    own_rounds = max(1, _rounds(settings, alive, 0.8 * settings.run_timeout * len(alive)))
    together: list[tuple[float, ...]] = []
    try:
        if plain and rounds:
            together = measurer.remeasure(space, [*alive, plain], rounds)
        apart = together[:-1] if rounds >= own_rounds else measurer.remeasure(space, alive, own_rounds)
    except CannotMeasure:
        return [()] * len(alive), [()] * len(alive), ()
    if together:
        return apart, together[:-1], together[-1]
    return apart, apart, plain.measurement.seconds if plain else ()


def _rounds(settings: RunSettings, trials: Sequence[Trial], limit: float) -> int:
    """In how many rounds, at most :data:`ROUNDS`, programs can be timed in turn within ``limit`` seconds.

    A reading takes ``number`` runs and one before them, or what it takes to reach ``min_repeat_ms``, in steps.
    """
    least = 3e-3 * settings.min_repeat_ms
    return min(ROUNDS, int(limit / sum(trial.cost + max(least, settings.number * trial.cost) for trial in trials)))


def _speed_up(
    seconds: Sequence[float], readings: Sequence[float], run_timeout: float, untuned: Trial | None
) -> SpeedUp | None:
    if untuned and untuned.measurement.failure == "run_timeout":
        ratio = run_timeout / statistics.median(seconds)
        return SpeedUp(ratio, run_timeout / _quartiles(seconds)[1], ratio, rounds=0, least=True)
    if not readings:
        return None
    ratio = statistics.median(readings) / statistics.median(seconds)
    if len(readings) == len(seconds):
        each = [slow / fast for slow, fast in zip(readings, seconds, strict=True)]
        return SpeedUp(ratio, *_quartiles(each), rounds=len(each))
    low, high = _quartiles(seconds)
    return SpeedUp(ratio, min(readings) / high, max(readings) / low, rounds=0)


def _note(target: Target, untuned: Trial | None) -> str:
    if target.kind != "llvm":
        return "there is no untuned program to compare with: on a GPU the plain one cannot run, as it binds no threads"
    if untuned is None:
        return ""
    measured: Measurement = untuned.measurement
    if measured.failure in (None, "run_timeout"):
        return ""
    return f"the untuned program was not timed: {measured.failure}: {measured.message}"
