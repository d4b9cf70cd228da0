"""Convergence of one run, and of a strategy over its seeds: pure functions over arrays.

A *curve* is the best throughput in GFLOPS after each trial, a non-decreasing array of shape (trials,).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Floats


def best_so_far(costs: Floats) -> Floats:
    """Lowest cost in seconds up to and with each trial; infinity while every trial has failed."""
    return np.minimum.accumulate(np.asarray(costs, dtype=np.float64))


def gflops(costs: Floats, flops: int) -> Floats:
    """Throughput in GFLOPS of ``flops`` floating-point operations done in ``costs`` seconds; 0 where that is inf."""
    return flops / np.asarray(costs, dtype=np.float64) / 1e9


def trials_to_target(curves: Floats, target: float) -> Floats:
    """The number of trials that it took to reach ``target`` GFLOPS, from 1; infinity if the run ended before that.

    curves: of one run or more, shape (..., trials). Gives the shape (...).

    The fixed-target view of a run (Hansen et al., "COCO: a platform for comparing continuous optimizers in a
    black-box setting", Optimization Methods and Software 36(1), 2021). A curve that is still 0 has found
    nothing: it reaches no target, not even 0.
    """
    reached = (curves >= target) & (curves > 0)
    hits: Floats = np.where(reached, np.arange(1.0, reached.shape[-1] + 1), math.inf).min(axis=-1, initial=math.inf)
    return hits


def area_under_curve(curves: Floats, reference: float, horizon: int) -> Floats:
    """Mean over the first ``horizon`` trials of the best throughput so far, as a part of ``reference`` GFLOPS.

    In [0, 1]: 1 is a run whose first trial was as good as ``reference``; what is better, by the luck of a measurement,
    counts as that. A run
    that ended sooner keeps what it found, so its last value is held up to ``horizon``. The area is 0 for an empty run,
    and where no throughput above 0 is known.

    This is the area *over* the convergence curve (AOCC) of minimisation, turned over since throughput is
    maximised, on a linear scale between 0 and the best known (Lopez-Ibanez, Vermetten, Dreo and Doerr, "Using
    the empirical attainment function for analyzing single-objective black-box optimization algorithms", IEEE
    Transactions on Evolutionary Computation, 2024).
    """
    if curves.shape[-1] == 0 or reference <= 0 or horizon <= 0:
        return np.zeros(curves.shape[:-1])
    within = np.minimum(curves[..., :horizon] / reference, 1.0)
    area: Floats = (within.sum(axis=-1) + (horizon - within.shape[-1]) * within[..., -1]) / horizon
    return area


@dataclass(frozen=True)
class Band:
    """Median and quartiles over seeds at each ``x`` (trials from 1, or seconds), in GFLOPS: arrays of one shape."""

    x: Floats
    lower: Floats
    median: Floats
    upper: Floats


_NOTHING = Band(*(np.empty(0),) * 4)


def quartiles(values: Floats) -> Floats:
    """First quartile, median and third quartile along the first axis, linearly interpolated (numpy's default)."""
    return np.quantile(values, (0.25, 0.5, 0.75), axis=0)


def band_at(places: Floats, values: Floats) -> Band:
    """The ``values`` at each of ``places``, which may come in any order and number: both of shape (n,), n > 0."""
    order = np.argsort(places, kind="stable")
    x, first, counts = np.unique(places[order], return_index=True, return_counts=True)
    edges = np.empty((3, len(x)))
    for count in set(counts.tolist()):  # as many values at each place: all of these at once
        of_count = counts == count
        edges[:, of_count] = quartiles(values[order][first[of_count] + np.arange(count)[:, np.newaxis]])
    return Band(x, *edges)


def band_over_trials(curves: Sequence[Floats] | Floats) -> Band:
    """The curves of a strategy's seeds against trials, as far as every one of them goes: its fixed-budget view."""
    trials = min((len(curve) for curve in curves), default=0)
    if trials == 0:
        return _NOTHING
    x = np.arange(1, trials + 1, dtype=np.float64)
    return Band(x, *quartiles(np.stack([curve[:trials] for curve in curves])))


def band_over_seconds(curves: Sequence[Floats] | Floats, elapsed: Sequence[Floats] | Floats) -> Band:
    """The trials of :func:`band_over_trials` against seconds charged: a step at the end of every trial of any seed.

    A seed whose first trial has not ended stands at 0 GFLOPS. A seed that ends its trials sooner than the others keeps
    what it found.
    """
    trials = min((len(curve) for curve in curves), default=0)
    if trials == 0:
        return _NOTHING
    x = np.unique(np.concatenate([seconds[:trials] for seconds in elapsed]))
    steps = [np.concatenate(([0.0], curve[:trials])) for curve in curves]
    # Nothing changes between the trials that found something faster, which are few.
    rises = [seconds[:trials][np.diff(step) != 0] for step, seconds in zip(steps, elapsed, strict=True)]
    changes = np.unique(np.concatenate([x[:1], *rises]))
    values = [
        step[np.searchsorted(seconds[:trials], changes, side="right")]
        for step, seconds in zip(steps, elapsed, strict=True)
    ]
    edges = quartiles(np.stack(values))
    return Band(x, *edges[:, np.searchsorted(changes, x, side="right") - 1])
