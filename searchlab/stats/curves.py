"""Convergence curves, targets and distributions, as functions of arrays.

A *curve* is the best throughput in GFLOPS after each trial, a non-decreasing array of shape (trials,). A *hit* is the
number of trials or seconds that a run needed to reach a target, or infinity if the run did not reach it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..arrays import Floats


def compute_gflops(costs: Floats, flops: int) -> Floats:
    """Convert ``costs`` in seconds to throughput in GFLOPS, which is 0 where the cost is infinite."""
    return flops / np.asarray(costs, dtype=np.float64) / 1e9


def area_under_curve(curves: Floats, reference: float) -> Floats:
    """Return the mean over trials of the best throughput so far, as a fraction of ``reference``, in [0, 1].

    It corresponds to the area *over* the convergence curve (AOCC) in minimisation, on a linear scale (Lopez-Ibanez,
    Vermetten, Dreo and Doerr, "Using the empirical attainment function for analyzing single-objective black-box
    optimization algorithms", IEEE Transactions on Evolutionary Computation, 2024). Throughput above ``reference`` is
    due to noise, and counts as ``reference``. ``curves`` have shape (..., trials).
    """
    if reference <= 0:
        return np.zeros(curves.shape[:-1])
    return np.asarray(np.minimum(curves / reference, 1.0).mean(axis=-1))


def area_over_seconds(curves: Floats, elapsed: Floats, seconds: float, reference: float) -> Floats:
    """Return the mean over ``seconds`` of the best throughput so far, as :func:`area_under_curve` does over trials.

    The throughput is 0 until the first trial ends, and stays the same after the last one.

    Args:
        curves: The best throughput after each trial, shape (runs, trials).
        elapsed: The seconds up to the end of each trial, shape (runs, trials).
        seconds: The length of the time, more than 0.
        reference: The throughput that counts as 1.
    """
    if reference <= 0:
        return np.zeros(len(curves))
    ends = np.minimum(np.append(elapsed, np.full((len(elapsed), 1), np.inf), axis=1), seconds)
    return np.asarray((np.minimum(curves / reference, 1.0) * np.diff(ends)).sum(axis=1) / seconds)


@dataclass(frozen=True)
class Band:
    """The median and quartiles over seeds at each ``x`` (trials from 1, or seconds). All arrays have the same shape."""

    x: Floats
    lower: Floats
    median: Floats
    upper: Floats


def quartiles(values: Floats) -> Floats:
    """Return the first quartile, median and third quartile along the first axis."""
    return np.quantile(values, (0.25, 0.5, 0.75), axis=0)


def compute_band(positions: Floats, values: Floats) -> Band:
    """Return the band of the ``values`` at each distinct position. Both arrays have shape (n,), n > 0."""
    order = np.argsort(positions, kind="stable")
    x, first, counts = np.unique(positions[order], return_index=True, return_counts=True)
    edges = np.empty((3, len(x)))
    for count in set(counts.tolist()):  # all positions with this number of values at once
        mask = counts == count
        edges[:, mask] = quartiles(values[order][first[mask] + np.arange(count)[:, np.newaxis]])
    return Band(x, *edges)


def band_over_trials(curves: Floats) -> Band:
    """Return the band of ``curves``, shape (runs, trials), over trials: the fixed-budget view."""
    return Band(np.arange(1.0, curves.shape[1] + 1), *quartiles(curves))


def band_over_seconds(curves: Floats, elapsed: Floats) -> Band:
    """Return the band of ``curves`` over seconds, with a step at the end of every trial of any run.

    The throughput of a run is 0 until its first trial ends, and does not change after its last trial. ``elapsed``
    contains the seconds charged up to the end of each trial. Both arrays have shape (runs, trials).
    """
    x = np.unique(elapsed)
    steps = np.column_stack((np.zeros(len(curves)), curves))
    # The band changes only at the few trials that found a faster program.
    changes = np.unique(np.append(elapsed[np.diff(steps) != 0], x[0]))
    values = [
        step[np.searchsorted(seconds, changes, side="right")] for step, seconds in zip(steps, elapsed, strict=True)
    ]
    return Band(x, *quartiles(np.stack(values))[:, np.searchsorted(changes, x, side="right") - 1])


def find_hitting_times(curves: Floats, target: float) -> Floats:
    """Return the number of trials that each run needed to reach ``target``, in GFLOPS: shape (runs,).

    This is the fixed-target view of a run (Hansen et al., "COCO: a platform for comparing continuous optimizers in a
    black-box setting", Optimization Methods and Software 36(1), 2021).
    """
    is_reached = curves >= target
    return np.where(is_reached.any(axis=1), is_reached.argmax(axis=1) + 1.0, math.inf)


def convert_hits_to_seconds(hits: Floats, elapsed: Floats) -> Floats:
    """Convert ``hits`` in trials to seconds, given the seconds up to the end of each trial, shape (runs, trials)."""
    return np.array(
        [seconds[int(hit) - 1] if hit < math.inf else math.inf for hit, seconds in zip(hits, elapsed, strict=True)]
    )
