"""The reliability of a run's times: the noise of repeats, the finalists, and the drift of the machine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from ..records import Trial
from .columns import LogColumns
from .format import Finalist, FinalistTimes, Log

ROUNDS = 11
"""The number of rounds in which a run's finalists are measured again."""

LOST_ROUNDS = 1
"""The number of rounds that a winner may lose and still count as faster.

According to the sign test, p is then (1 + 11) / 2^11 = 0.6 % for one rival, and at most 2.4 % for four (the default).
"""

MARGIN = 1.1
"""The maximum ratio of a finalist's time to that of the fastest trial."""

MAX_TIME_RATIO = 1.25
"""The largest factor by which two times of the same program should differ on an idle machine."""


def measure_noise(log: Log) -> float | None:
    """Return the noise floor: the median of (slowest - fastest) / cost over repeated trials, or None if none are."""
    spreads = [
        (max(record.seconds) - min(record.seconds)) / record.cost
        for record in log.records
        if len(record.seconds) > 1 and record.failure is None
    ]
    return float(np.median(spreads)) if spreads else None


def find_best_trial(log: Log | LogColumns) -> tuple[int, float, list[int] | None]:
    """Return the best trial of a run with at least one success: its index, its latest time in seconds, and its rivals.

    If the run has finalists, these are the winner and the other finalists within its noise; see :func:`find_winner`.
    Otherwise, the rivals are None.
    """
    if log.finalist_times is None:
        index = int(np.argmin(log.costs))
        return index, float(log.costs[index]), None
    best, tied = find_winner(log.finalist_times)
    return best.index, statistics.median(best.seconds), [finalist.index for finalist in tied]


def find_winner(final: FinalistTimes) -> tuple[Finalist, tuple[Finalist, ...]]:
    """Return the finalist with the lowest median, and the other finalists within its noise.

    A finalist is outside this noise if the winner was faster in all rounds, except for at most :data:`LOST_ROUNDS`.
    """

    best = min(final.finalists, key=lambda finalist: statistics.median(finalist.seconds))
    tied = []
    for rival in final.finalists:
        lost_rounds = sum(a >= b for a, b in zip(best.seconds, rival.seconds, strict=True))
        if rival is not best and lost_rounds > LOST_ROUNDS:
            tied.append(rival)
    return best, tuple(tied)


def find_sentinel_trial(trials: Sequence[Trial]) -> Trial | None:
    """Return the first successful trial, whose program is timed again throughout a run."""
    return next((trial for trial in trials if math.isfinite(trial.cost)), None)


def measure_drift(log: Log | LogColumns) -> list[float]:
    """Return each reading of the sentinel divided by its time as a trial. On a steady machine, ratios are near 1."""
    readings = log.sentinels[~np.isnan(log.sentinels)]
    successes = np.flatnonzero(np.isfinite(log.costs))
    has_sentinel = len(successes) and len(readings)
    ratios: list[float] = (readings / log.costs[successes[0]]).tolist() if has_sentinel else []
    return ratios


def find_largest_drift(log: Log | LogColumns) -> float | None:
    """Return the :func:`measure_drift` ratio farthest from 1, or None if the sentinel was not timed."""
    return max(measure_drift(log), key=lambda ratio: abs(math.log(ratio)), default=None)


def describe_disagreement(log: Log) -> str:
    """Return a warning if the best trial's time differed when it was measured again, or "" if it did not."""
    if log.finalist_times is None:
        return ""
    best, _ = find_winner(log.finalist_times)
    seconds, retimed_seconds = float(log.costs[best.index]), statistics.median(best.seconds)
    if 1 / MAX_TIME_RATIO <= retimed_seconds / seconds <= MAX_TIME_RATIO:
        return ""
    return (
        f"trial {best.index}, the best, took {1e3 * seconds:.4g} ms during the search but "
        f"{1e3 * retimed_seconds:.4g} ms when it was measured again at the end: the machine was busy or unsteady, so "
        f"neither time is reliable; repeat the run on an idle machine, with a new log"
    )


def describe_reliability(log: Log) -> list[str]:
    """Return sentences that describe the reliability of the best trial's times."""
    noise, drift = measure_noise(log), measure_drift(log)
    sentences = [
        _describe_finalists(log.finalist_times) if log.finalist_times else "",
        describe_disagreement(log),
        f"the repeats of a trial spread by {100 * noise:.1f} % (median)" if noise is not None else "",
        _describe_drift(drift) if drift else "",
    ]
    return [sentence for sentence in sentences if sentence]


def _describe_finalists(final: FinalistTimes) -> str:
    best, tied = find_winner(final)
    retiming = f"measured again {len(best.seconds)} times"
    rival_count = len(final.finalists) - 1
    if not rival_count:
        return f"{retiming}; no other trial was within {100 * (MARGIN - 1):.0f} % of it"
    if tied:
        trials = ", ".join(str(finalist.index) for finalist in tied)
        return f"{retiming} in turn with {rival_count} others; equally fast within the noise: trials {trials}"
    return f"{retiming} in turn with {rival_count} others, and faster than each of them by more than the noise"


def _describe_drift(ratios: Sequence[float]) -> str:
    extremes = " to ".join(sorted({f"{ratio:.2f}" for ratio in (min(ratios), max(ratios))}, key=float))
    readings = "1 reading" if len(ratios) == 1 else f"{len(ratios)} readings"
    return f"the machine drifted: its first program took {extremes} times as long ({readings})"
