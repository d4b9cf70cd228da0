"""The result of verifying a log, and its sentences for a reader."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..measure.settings import LocalSettings
from ..records import Failure


@dataclass(frozen=True)
class SpeedUp:
    """The speed-up over the untuned program: the ratio of the medians, and the quartiles of the ratios of the rounds.

    rounds: the number of rounds in which both were timed in turn; 0 if the untuned program was too slow for that, and
    has only the readings of its check. least: whether it was ended at its time limit, so that all three are lower
    bounds.
    """

    ratio: float
    low: float
    high: float
    rounds: int
    least: bool = False


@dataclass(frozen=True)
class Verified:
    """A trial of the log, built and run again. All seconds are of one run of the program.

    failure, message: how it failed, or ``"another_program"`` if it is not the program that was measured; None and ""
    if it is right. logged: the repeats behind its logged time, their median. seconds: the readings now, one a round.
    noise: the share of the logged time by which it may differ now: the distance of the quartiles of the readings now,
    plus that of the logged readings or the noise of the log, whichever is larger, each as a share of its median.
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
        """Its median time now over the logged one; None if it was not timed."""
        return statistics.median(self.seconds) / statistics.median(self.logged) if self.seconds else None

    @property
    def as_logged(self) -> bool | None:
        """Whether the ratio is within the noise; None if it was not timed."""
        return None if self.ratio is None or self.noise is None else abs(self.ratio - 1) <= self.noise


@dataclass(frozen=True)
class Verification:
    """The result of :func:`~searchlab.apply.verify.verify_log`.

    seeds: the seeds of the inputs that programs were checked on, besides seed 0 of measuring. untuned: readings of the
    workload's plain program in seconds; empty if there is none, and ``note`` says why. settings: how programs were
    timed. own: whether these are the settings of the log's trials.
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
        """Whether every program was built, is the one that was measured, and gave the right answer each time."""
        return all(one.failure is None for one in self.programs)

    def to_json(self) -> dict[str, Any]:
        programs = [
            {**asdict(one), "ratio": one.ratio, "as_logged": one.as_logged, "right": one.failure is None}
            for one in self.programs
        ]
        rest = {"log": str(self.log), "settings": msgspec.to_builtins(self.settings), "programs": programs}
        return {**asdict(self), **rest, "right": self.right}


def sentences(verification: Verification) -> list[str]:
    """The verification in words."""
    *first, last = map(str, verification.seeds)
    said = []
    if not verification.own:
        said.append("the trials of this log come from a table, so their programs are timed with the default settings")
    for one in verification.programs:
        head = f"{verification.workload} in {verification.space}, trial {one.trial}"
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
            time = f"over {verification.settings.run_timeout:g} s" if over.least else _ms(verification.untuned)
            readings = f"from {len(verification.untuned)} of its readings, not in turn"
            rounds = f"of {over.rounds} rounds in turn" if over.rounds else readings
            much = f"more than {over.low:.3g}" if over.least else f"{over.ratio:.3g}"
            spread = "" if over.least else f" (quartiles {over.low:.3g} and {over.high:.3g}, {rounds})"
            said.append(f"  untuned {time}: {much} times as long as now{spread}")
    if verification.note:
        said.append(verification.note)
    return said


def _ms(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.4g} ms"
