"""Regret: how much longer than the best known program a program takes, in percent."""

from __future__ import annotations

import numpy as np

from ..stats.curves import Band, Floats

FLOOR = 0.1
"""The least regret that a picture tells apart, in percent: a tenth of the noise of a measurement."""


def regret(band: Band, best: float) -> Band:
    """The regret of a band of throughputs, against the ``best`` known; from where the median has found something.

    An upper edge that is infinite, where seeds have found nothing, becomes the largest regret of the band.
    """
    found = band.median > 0
    median, lower, upper = (regret_of(edge[found], best) for edge in (band.median, band.upper, band.lower))
    highest = max(float(edge[np.isfinite(edge)].max(initial=0.0)) for edge in (median, upper))
    return Band(band.x[found], lower, median, np.minimum(upper, highest))


def regret_of(throughput: Floats | float, best: float) -> Floats:
    """100 (best / throughput - 1), infinity for a throughput of 0. What is better, by the luck of a draw, has 0."""
    with np.errstate(divide="ignore"):
        regret: Floats = np.maximum(100 * (np.divide(best, throughput) - 1), 0.0)
    return regret
