"""Measuring programs of a run again: the first one during the run, and the fastest ones at its end."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Sequence

from ..errors import SearchlabWarning
from ..log.format import Final, Finalist
from ..log.noise import MARGIN, ROUNDS
from ..log.writer import LogWriter
from ..measure.contract import CannotMeasure, Measurer, Remeasurer
from ..records import Trial
from ..space import Space

SENTINEL_ROUNDS = 3
"""How many times the sentinel is timed at a reading."""


def time_sentinel(measurer: Remeasurer, space: Space, trial: Trial) -> float | None:
    """Seconds that the program of ``trial`` takes now; None if it fails now."""
    try:
        return statistics.median(measurer.remeasure(space, [trial], SENTINEL_ROUNDS)[0])
    except CannotMeasure:
        return None


def measure_finalists(measurer: Remeasurer, space: Space, trials: Sequence[Trial]) -> Final | None:
    """Measure the fastest programs of ``trials`` again; None if there is none, or (with a warning) if one fails now."""
    fastest: dict[str, Trial] = {}
    for trial in sorted(trials, key=lambda trial: trial.cost):  # stable: the first of equal trials
        if math.isfinite(trial.cost) and not trial.measurement.pruned:
            fastest.setdefault(trial.measurement.program, trial)
    close = [trial for trial in fastest.values() if trial.cost <= MARGIN * next(iter(fastest.values())).cost]
    chosen = close[: measurer.finalists]
    if not chosen:
        return None
    try:
        seconds = measurer.remeasure(space, chosen, ROUNDS)
    except CannotMeasure as error:
        warnings.warn(
            f"the fastest trials could not be measured again ({error}); run this again to try once more",
            SearchlabWarning,
            stacklevel=2,
        )
        return None
    finalists = tuple(Finalist(trial.index, values) for trial, values in zip(chosen, seconds, strict=True))
    return Final(trials=len(trials), finalists=finalists, time=round(time.time(), 3))


def finish(space: Space, measurer: Measurer, log: LogWriter, trials: Sequence[Trial]) -> None:
    """End a run: measure its finalists again and log them, if the measurer can and the log has none yet."""
    has_final = log.final is not None and log.final.trials == len(trials)
    if isinstance(measurer, Remeasurer) and measurer.finalists and not has_final:
        final = measure_finalists(measurer, space, trials)
        if final is not None:
            log.append(final)
            log.sync()
