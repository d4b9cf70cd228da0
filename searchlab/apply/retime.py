"""Programs of a log built again, checked on other inputs, and timed in turn with each other and the untuned program."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..log.result import ROUNDS
from ..measure.contract import CannotMeasure, RunSettings
from ..measure.local import LocalMeasurer
from ..records import Failure, Trial
from ..space import Choose, Config, Space
from .verified import SpeedUp

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

UNTUNED_SECONDS = 5.0
"""Most seconds for timing programs in turn with the untuned one. If that is slow, there are fewer rounds, or none."""


class Untuned(Space):
    """The workload's program as it is: a space of one config, with no knob."""

    def decide(self, choose: Choose) -> Config:
        return Config({})

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        return Schedule(self.workload.module)


@dataclass(frozen=True)
class Rebuilt:
    """A trial with its measurement of now, and how it failed; ``failure`` is None where it is right."""

    trial: Trial
    failure: Failure | str | None
    message: str

    @property
    def runs(self) -> bool:
        """Whether it can be timed: a program may run without being the one that was measured."""
        return self.failure in (None, "another_program")


@dataclass(frozen=True)
class Readings:
    """Seconds of each program, one value a round, in the order of the programs; empty where a program failed now.

    apart: in as many rounds as there can be. beside: in rounds with the untuned program. untuned: of that program in
    these rounds, or as it was first measured if it is too slow for rounds.
    """

    apart: list[tuple[float, ...]]
    beside: list[tuple[float, ...]]
    untuned: tuple[float, ...]


def rebuild(measurer: LocalMeasurer, space: Space, trials: Sequence[Trial], seeds: Sequence[int]) -> list[Rebuilt]:
    """Build and measure ``trials`` again, and check each program on the inputs of every seed."""
    rebuilt: list[Rebuilt] = []
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
                f"its config now makes the program {now.program}, but {was.program} was measured; this TVM or this "
                f"version of the space is another"
            )
        rebuilt.append(Rebuilt(replace(trial, measurement=now), failure, message))
    return rebuilt


def measure_untuned(measurer: LocalMeasurer, space: Space, best: float) -> Trial | None:
    """The workload's plain program, measured; None on a GPU, where it binds no threads, or if no program runs.

    best: seconds of the fastest program, 0 if none runs.
    """
    if space.target.kind != "llvm" or not best:
        return None
    config = Config({})
    (measurement,) = measurer.measure(Untuned(space.workload, space.target), [config], best)
    return Trial(0, config, measurement)


def time_in_turn(measurer: LocalMeasurer, space: Space, alive: Sequence[Trial], untuned: Trial | None) -> Readings:
    """Time the programs of ``alive`` in at most :data:`ROUNDS` rounds, also with the untuned one if that is quick."""
    if not alive:
        return Readings([], [], ())
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
        return Readings([()] * len(alive), [()] * len(alive), ())
    if together:
        return Readings(apart, together[:-1], together[-1])
    return Readings(apart, apart, plain.measurement.seconds if plain else ())


def _rounds(settings: RunSettings, trials: Sequence[Trial], limit: float) -> int:
    """The number of rounds, at most :data:`ROUNDS`, in which programs can be timed in turn within ``limit`` seconds.

    A reading takes one run and then ``number`` runs, or the runs that reach ``min_repeat_ms``, in steps.
    """
    least = 3e-3 * settings.min_repeat_ms
    return min(ROUNDS, int(limit / sum(trial.cost + max(least, settings.number * trial.cost) for trial in trials)))


def speed_up(
    seconds: Sequence[float], readings: Sequence[float], run_timeout: float, untuned: Trial | None
) -> SpeedUp | None:
    """The speed-up of a program, timed at ``seconds``, over the untuned one at ``readings``; None if that has none."""
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


def spread_of(seconds: Sequence[float]) -> float:
    """The distance of the quartiles, as a share of the median. Quartiles ignore the few readings that are far off."""
    low, high = _quartiles(seconds)
    return (high - low) / statistics.median(seconds)


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.percentile(values, [25, 75])
    return float(low), float(high)
