"""Fixed targets and anytime performance: pure functions over hitting times and best-so-far curves.

A *hit* is the number of trials (or seconds) a run took to reach a target, infinity if it ended before that.
"""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Floats

FINEST, COARSEST = 0.01, 10.0
"""Precisions between which anytime performance is told apart; a precision is latency / lowest known latency - 1. 1 % is
about the noise of a measurement, and nearly any program that works takes at most eleven times the lowest latency."""


def expected_running_time(hits: Floats, spent: Floats) -> float:
    """ERT: what all runs spent until they hit the target or ended, over the number that hit it; inf if none did.

    hits, spent: shape (runs,); ``spent`` is the length of each run, in the unit of the hits. It estimates the time of
    a strategy that is started again with a new seed whenever a run ends without a hit (Hansen, Auger, Finck and
    Ros, "Real-parameter black-box optimization benchmarking 2009", RR-6828; Hansen et al., "COCO: a
    platform for comparing continuous optimizers in a black-box setting", Optimization Methods and Software 36(1),
    2021).
    """
    reached = np.isfinite(hits)
    return float(np.where(reached, hits, spent).sum() / reached.sum()) if reached.any() else math.inf


def penalised_average(hits: Floats, budget: float, factor: float = 10.0) -> float:
    """PAR-10: mean hit, a run that ended without one counted as ``factor`` times ``budget``: shape (runs,).

    budget: the same for all that are compared; else a strategy whose runs end sooner would be punished less (Hutter,
    Hoos, Leyton-Brown and Stuetzle, "ParamILS: an automatic algorithm configuration framework", JAIR 36, 2009).
    """
    return float(np.where(np.isfinite(hits), hits, factor * budget).mean())


def hitting_times(curves: Floats, targets: Floats) -> Floats:
    """Trials that each run took to each target, from 1; infinity where it did not reach it: shape (runs, targets).

    curves: best GFLOPS so far, shape (runs, trials), none of which ever falls. targets: GFLOPS above 0.
    """
    hits = np.array([np.searchsorted(curve, targets) + 1.0 for curve in curves]).reshape(len(curves), len(targets))
    hits[hits > curves.shape[1]] = math.inf
    return hits


def seconds_of_hits(hits: Floats, elapsed: Floats) -> Floats:
    """The seconds at which runs reached targets, infinity where they did not: the shape of ``hits``.

    hits: in trials, from 1, shape (runs, targets). elapsed: seconds charged up to the end of each trial, shape
    (runs, trials).
    """
    trials = elapsed.shape[1]
    place = np.where(np.isfinite(hits), hits, trials + 1).astype(np.int64) - 1
    padded = np.column_stack((elapsed, np.full(len(elapsed), math.inf)))
    seconds: Floats = np.take_along_axis(padded, place, axis=1)
    return seconds


def precision_targets(best: float, number: int = 51) -> Floats:
    """Targets in GFLOPS for an ECDF, from ``COARSEST`` to ``FINEST`` in equal steps of log-precision, lowest first.

    The precision of a throughput is best / throughput - 1, that of a latency over the lowest. COCO uses 51 targets
    too, between precisions that suit analytic functions.
    """
    return best / (1 + np.geomspace(COARSEST, FINEST, number))


def ecdf(hits: Floats, at: Floats) -> Floats:
    """Part of all (run, target) pairs that were hit by each of ``at`` trials or seconds: the shape of ``at``.

    hits: any shape. Also called a runtime or data profile (Hansen et al., 2021; More and Wild, "Benchmarking
    derivative-free optimization algorithms", SIAM Journal on Optimization 20(1), 2009).
    """
    ordered = np.sort(hits, axis=None)
    return np.searchsorted(ordered, at, side="right") / max(1, ordered.size)


def ecdf_area(hits: Floats, horizon: int) -> float:
    """Mean of :func:`ecdf` over 1, 2, ... ``horizon`` trials: in [0, 1], 1 if all targets are hit at once.

    As targets come closer together it becomes :func:`anytime` (Lopez-Ibanez, Vermetten, Dreo and Doerr, "Using the
    empirical attainment function for analyzing single-objective black-box optimization algorithms", IEEE Transactions
    on Evolutionary Computation, 2024).
    """
    if hits.size == 0 or horizon <= 0:
        return 0.0
    return float((np.maximum(horizon + 1 - hits, 0.0) / horizon).mean())


def anytime(so_far: Floats, best: float) -> Floats:
    """AOCC: area over the convergence curve on a logarithmic scale of precision, in [0, 1]: shape (...).

    so_far: lowest latency up to each trial, infinity while there is none, shape (..., trials). ``best``: the lowest
    known. The precision so_far / best - 1 is cut to [``FINEST``, ``COARSEST``] and its logarithm scaled to [0, 1]; this
    is one less its mean over trials (Lopez-Ibanez et al., 2024, as in IOHexperimenter, whose bounds are absolute).
    """
    precision = np.clip(so_far / best - 1, FINEST, COARSEST)
    scaled = np.log(precision / FINEST) / math.log(COARSEST / FINEST)
    area: Floats = 1 - scaled.mean(axis=-1)
    return area
