"""A number of every seed of a strategy, and what it comes to."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from .stats.aggregates import bootstrap, mean_of_means, median
from .stats.curves import Floats, quartiles
from .stats.targets import expected_running_time, penalised_average


class Spread(msgspec.Struct, frozen=True):
    """A number of every seed, in the order of the seeds, with their median and quartiles."""

    median: float
    lower: float
    upper: float
    by_seed: list[float]


class Estimate(msgspec.Struct, frozen=True):
    """A number over all runs, and its 95 % bootstrap interval."""

    value: float
    lower: float
    upper: float


class Reached(msgspec.Struct, frozen=True):
    """What it took every seed to reach the target: None for a seed whose run ended before that (censored).

    median: over all seeds, the censored ones counted as infinity; lower, upper: its 95 % bootstrap interval. Each is
    None where it is infinite, which the median is unless more than half of the seeds reached the target.
    expected: ERT (see :func:`~searchlab.analysis.stats.targets.expected_running_time`), None where no seed did. penalised:
    PAR-10, whose budget is the most that any run of the workload had.
    """

    reached: int
    median: float | None
    lower: float | None
    upper: float | None
    expected: float | None
    penalised: float
    by_seed: list[float | None]


def spread(values: list[float]) -> Spread:
    """``values`` in the order of the seeds."""
    lower, median, upper = quartiles(np.array(values)).tolist()
    return Spread(median, lower, upper, values)


def reached(values: list[float], spent: list[float], budget: float) -> Reached:
    """values: what each seed took, infinity if it ended before; spent: what it had then; budget: of PAR-10."""
    hits = np.array(values)
    lower, upper = bootstrap([hits], median)
    return Reached(
        reached=int(np.isfinite(hits).sum()),
        median=_finite(float(median([hits]))),
        lower=_finite(lower),
        upper=_finite(upper),
        expected=_finite(expected_running_time(hits, np.array(spent))),
        penalised=penalised_average(hits, budget),
        by_seed=[_finite(value) for value in values],
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def estimate(values: Floats) -> Estimate:
    """The mean of a number of every run."""
    return Estimate(float(values.mean()), *bootstrap([values], mean_of_means))
