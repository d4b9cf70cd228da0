"""How far the times of a run can be trusted: their noise, the drift of the machine, and the winner of the final."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from ..arrays import Floats
from ..records import Trial
from .columns import Columns
from .format import Final, Finalist, Log

ROUNDS = 11
"""The number of rounds in which the finalists of a run are measured again."""

LOST_ROUNDS = 1
"""The number of rounds that a winner may lose, and still count as faster.

By the sign test, p is then (1 + 11) / 2^11 = 0.6 % for one rival, and at most 2.4 % for the four rivals by default.
"""

MARGIN = 1.1
"""A finalist takes at most this many times as long as the fastest trial."""


def noise(log: Log) -> float | None:
    """The noise floor: median over trials of (slowest - fastest) / cost; None without repeats."""
    spreads = [
        (max(record.seconds) - min(record.seconds)) / record.measurement.cost
        for record in log.records
        if len(record.seconds) > 1 and record.failure is None
    ]
    return float(np.median(spreads)) if spreads else None


def fastest(costs: Floats, final: Final | None) -> tuple[int, float, list[int] | None]:
    """The best trial of a run in which one succeeded: its index, and its seconds as they were last measured.

    costs: of all trials, in seconds. It is the winner of the finalists if there are any; third, the other finalists
    that are within its noise, None if there are no finalists.
    """
    if final is None:
        index = int(np.argmin(costs))
        return index, float(costs[index]), None
    first, tied = winner(final)
    return first.index, statistics.median(first.seconds), [finalist.index for finalist in tied]


def sentinel(trials: Sequence[Trial]) -> Trial | None:
    """The trial whose program is timed during the run: the first that succeeded."""
    return next((trial for trial in trials if math.isfinite(trial.cost)), None)


def drift(log: Log | Columns) -> list[float]:
    """Each reading of the sentinel, divided by its first measurement; all 1 on a steady machine."""
    readings = log.sentinels[~np.isnan(log.sentinels)]
    works = np.flatnonzero(np.isfinite(log.costs))
    ratios: list[float] = (readings / log.costs[works[0]]).tolist() if len(works) and len(readings) else []
    return ratios


def largest_drift(log: Log | Columns) -> float | None:
    """The ratio of :func:`drift` that is farthest from 1; None if the sentinel was not timed."""
    return max(drift(log), key=lambda ratio: abs(math.log(ratio)), default=None)


DISAGREES = 1.25
"""By which factor two times of one program may differ on a machine that does nothing else."""


def disagreement(log: Log) -> str:
    """A sentence about a run whose best took another time when it was measured again; empty if it did not."""
    if log.final is None:
        return ""
    first, _ = winner(log.final)
    trial, again = float(log.costs[first.index]), statistics.median(first.seconds)
    if not 1 / DISAGREES <= again / trial <= DISAGREES:
        return (
            f"trial {first.index}, the best, took {1e3 * trial:.4g} ms during the search and {1e3 * again:.4g} ms when "
            f"it was measured again at the end: the machine was busy or unsteady, and neither time can be trusted; "
            f"run it again into another log on a machine that does nothing else"
        )
    return ""


def sentences(log: Log) -> list[str]:
    """Sentences that tell how far the times of the run's best can be trusted."""
    facts = []
    if log.final is not None:
        first, tied = winner(log.final)
        others = len(log.final.finalists) - 1
        again = f"measured again {len(first.seconds)} times"
        if not others:
            facts.append(f"{again}; no other trial was within {100 * (MARGIN - 1):.0f} % of it")
        elif tied:
            names = ", ".join(str(finalist.index) for finalist in tied)
            facts.append(f"{again} in turn with {others} others; within the noise of it: trials {names}")
        else:
            facts.append(f"{again} in turn with {others} others, and faster than each beyond the noise")
    if doubt := disagreement(log):
        facts.append(doubt)
    if (spread := noise(log)) is not None:
        facts.append(f"the repeats of a trial spread by {100 * spread:.1f} % (median)")
    if readings := drift(log):
        facts.append(
            f"the machine drifted: its first program took {min(readings):.2f} to {max(readings):.2f} times as long "
            f"({len(readings)} readings)"
        )
    return facts


def winner(final: Final) -> tuple[Finalist, tuple[Finalist, ...]]:
    """The finalist with the least median, and the others that are within the noise of it.

    The winner beats another finalist if it was faster in all rounds but :data:`LOST_ROUNDS`.
    """
    first = min(final.finalists, key=lambda finalist: statistics.median(finalist.seconds))
    tied = tuple(
        finalist for finalist in final.finalists if finalist is not first and _lost(first, finalist) > LOST_ROUNDS
    )
    return first, tied


def _lost(first: Finalist, other: Finalist) -> int:
    """The number of rounds in which ``first`` was not faster than ``other``."""
    return sum(a >= b for a, b in zip(first.seconds, other.seconds, strict=True))
