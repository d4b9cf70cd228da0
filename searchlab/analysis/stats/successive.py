"""Random draws without replacement that some configs come up in more often than others: pure functions over arrays."""

from __future__ import annotations

import numpy as np

from .curves import Floats

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)


def expected_lowest(values: Floats, weights: Floats, trials: int) -> Floats:
    """Expected lowest value after 1, 2, ... ``trials`` draws without replacement: shape (trials,).

    values: of every config, ascending, shape (N,). weights: how often a draw gives each config, above 0 and of any sum,
    shape (N,). Each draw takes one of the configs that are left, by weight: successive sampling, as of a policy that
    draws until it has a new config. After N draws the curve stays at the lowest value.

    As in :func:`~.random_search.expected_best`, the expectation is the lowest value and, for each step to the next, its
    height times the chance that all configs below it were missed. To find this chance, let each config arrive after an
    exponential time of rate w (Rosen, "Asymptotic theory for successive sampling with varying probabilities without
    replacement", Annals of Mathematical Statistics 43(2), 1972). With W the weight of those below, the t-th of the
    others arrives before all of these with probability

        integral over s > 0 of W exp(-W s) P(at least t of the others have arrived by s) ds.

    The number of arrivals is Poisson-binomial; its distribution takes one config more at each step, the last one first.
    The integral is Gauss-Legendre's over panels of the root of s, in which arrivals have a spread of 1/2 whatever t is;
    its error is about 1e-9. Takes O(N trials) for each of some hundred nodes.
    """
    rates = weights / weights.sum()
    s, ds = _nodes(rates, trials)
    arrived = np.zeros((trials, len(s)))  # P(exactly j of the others have arrived), for j < trials
    arrived[0] = 1.0
    expected = np.full(trials, values[0])
    below = np.cumsum(rates)
    for i in range(len(rates) - 1, 0, -1):
        arriving = arrived * (1 - np.exp(-rates[i] * s))
        arrived -= arriving
        arrived[1:] += arriving[:-1]
        if values[i] == values[i - 1]:
            continue
        alone = np.exp(-below[i - 1] * s)
        density = below[i - 1] * alone * ds
        density[-1] = alone[-1]  # after the last node nothing changes but that one of those below arrives
        missed = density.sum() - np.cumsum(arrived @ density)
        expected += (values[i] - values[i - 1]) * np.clip(missed, 0.0, 1.0)
    return expected


def _nodes(rates: Floats, trials: int) -> tuple[Floats, Floats]:
    """Times from 0 until nearly certainly ``trials`` configs, or all, have arrived; and the weight of each.

    The last is the end, without a weight.
    """
    end, most = 1.0, 40 / rates.min()
    wanted = trials + 10 * np.sqrt(trials)
    while end < most and (1 - np.exp(-rates * end)).sum() < wanted:
        end *= 1.2
    edges = [0.0]
    while edges[-1] ** 2 < end:
        edges.append(edges[-1] + max(1.0, edges[-1] / np.sqrt(trials)))
    lower, upper = np.array(edges[:-1])[:, np.newaxis], np.array(edges[1:])[:, np.newaxis]
    root = ((upper + lower) / 2 + (upper - lower) / 2 * _NODES).ravel()
    step = ((upper - lower) / 2 * _WEIGHTS).ravel()
    return np.append(root**2, edges[-1] ** 2), np.append(2 * root * step, 0.0)
