"""Measures of a table's landscape: how smooth it is, how many local optima it has, and where its best configs are.

Two configs are neighbours if they differ in one knob, to whatever value: their Hamming distance is one, as in the
landscapes of Schoonhoven et al. (IEEE Trans. Evol. Comput. 2022) and in ``Searchspace.get_neighbors`` of Kernel Tuner,
and as for the policies that search neighbourhoods. A knob that only one of two configs has counts as a difference. The
fitness is the logarithm of the cost; configs that fail have none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..arrays import Array, Floats, Ints
from ..log.format import Log

NEAR = 0.05
"""Within which distance of the best throughput a local optimum is good."""

TOP = 0.01
"""The share of the working configs whose distances are compared with those of random pairs."""

PAIRS = 100
"""The number of pairs at a distance from which their correlation is computed."""

SAMPLE = 2000
"""The number of configs of which a log that contains few neighbours is sampled for pairs."""


@dataclass(frozen=True)
class Landscape:
    """Measures of a landscape. Each is None if it cannot be computed.

    Attributes:
        distance: The distance of the pairs behind ``autocorrelation``: 1, unless the log contains too few neighbours.
        autocorrelation: The correlation of the fitness of two configs at ``distance``. For neighbours, it is the
            autocorrelation r(1) of random walks over the working configs, computed from all pairs of neighbours instead
            of walks, which take every possible step equally often. Source: Weinberger, "Correlated
            and uncorrelated fitness landscapes and how to tell the difference" (Biological Cybernetics 63, 1990).
        correlation_length: The number of steps after which the autocorrelation is 1/e, if it decays exponentially:
            -distance / ln(autocorrelation). It is 0 if the autocorrelation is not positive.
        local_optima: The share of working configs none of whose neighbours is faster. Only for complete tables.
        good_optima: The share of the local optima that reach at least 95 % of the best throughput: where a local
            search ends well if it ends in each optimum equally often. Only for complete tables.
        spread: The mean distance of two configs among the best 1 %, relative to that of two working configs. It is far
            below 1 if the best configs are alike, and about 1 if they are scattered. Source: the dispersion metric of
            Lunacek and Whitley (GECCO 2006), with Hamming distances.
        failures: The share of configs that fail.
    """

    distance: int | None
    autocorrelation: float | None
    correlation_length: float | None
    local_optima: float | None
    good_optima: float | None
    spread: float | None
    failures: float

    @classmethod
    def of(cls, log: Log, *, complete: bool) -> Landscape:
        """Compute the measures from a table or another log.

        Args:
            log: The log. If it does not contain the complete space, its configs should be drawn at random, as by the
                policy ``random``; a search visits better and more similar configs.
            complete: Whether it contains the complete space.
        """
        costs = log.costs
        works = np.isfinite(costs)
        failures = float(1 - works.mean()) if len(costs) else 0.0
        if works.sum() < 2:
            return cls(None, None, None, None, None, None, failures)
        records = log.records
        codes = encoded([records[i].trial.config for i in np.flatnonzero(works).tolist()])
        fitness = np.log(costs[works])
        fitness -= fitness.mean()
        groups = list(lines(codes))
        distance, correlation = correlated(codes, fitness, groups)
        length = None
        if correlation is not None and distance is not None:
            length = -distance / math.log(correlation) if 0 < correlation < 1 else 0.0 if correlation <= 0 else math.inf
        optima = best_of_lines(fitness, groups) if complete else np.zeros(0, bool)
        good = fitness <= fitness.min() - math.log(1 - NEAR)
        found = int(optima.sum())
        return cls(
            distance, correlation, length,
            float(optima.mean()) if complete else None, float(good[optima].mean()) if found else None,
            relative_spread(codes, fitness), failures,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the measures as plain data."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def rows(self) -> dict[str, str]:
        """Return the measures in words, by title; those that could not be computed are left out."""
        found = {}
        if self.autocorrelation is not None and self.correlation_length is not None:
            steps = "neighbours" if self.distance == 1 else f"configs at distance {self.distance}"
            length = f"{self.correlation_length:.1f}" if math.isfinite(self.correlation_length) else "unlimited"
            found["autocorrelation of a random walk"] = (
                f"{self.autocorrelation:.2f} between {steps}; correlation length {length} steps"
            )
        if self.local_optima is not None:
            good = (
                "" if self.good_optima is None else f"; {100 * self.good_optima:.2g} % of them within 5 % of the best"
            )
            found["local optima"] = f"{100 * self.local_optima:.2g} % of the working configs{good}"
        if self.spread is not None:
            found["distance among the best 1 %"] = f"{self.spread:.2f} times that of random pairs"
        return found


def encoded(configs: Sequence[Any]) -> Ints:
    """Return the configs as an array of shape (configs, knobs): the number of each value, or -1 without the knob."""
    names = list(dict.fromkeys(name for config in configs for name in config))
    codes = np.full((len(configs), len(names)), -1, dtype=np.int64)
    for column, name in enumerate(names):
        numbers: dict[Any, int] = {}
        for row, config in enumerate(configs):
            if name in config:
                codes[row, column] = numbers.setdefault(config[name], len(numbers))
    return codes


def lines(codes: Ints) -> Iterator[Ints]:
    """Yield for each knob the number of each config's line, in which all configs differ in nothing but this knob."""
    rng = np.random.default_rng(0)
    keys = np.zeros(codes.shape, dtype=np.uint64)  # random numbers of 64 bits, whose sums identify configs
    for column in range(codes.shape[1]):
        drawn = rng.integers(0, 1 << 63, size=int(codes[:, column].max()) + 2, dtype=np.uint64)
        keys[:, column] = drawn[codes[:, column] + 1]
    sums = keys.sum(axis=1, dtype=np.uint64)
    for column in range(codes.shape[1]):
        yield np.unique(sums - keys[:, column], return_inverse=True)[1].astype(np.int64)


def correlated(codes: Ints, fitness: Floats, groups: Sequence[Ints]) -> tuple[int | None, float | None]:
    """Return the smallest distance at which there are enough pairs, and the correlation of the fitness of these pairs.

    Each ordered pair counts once, so that a config counts as often as it has neighbours, as in a random walk.
    """
    pairs = total = squares = product = 0.0
    for line in groups:
        degree = np.bincount(line)[line] - 1.0
        pairs += degree.sum()
        total += (degree * fitness).sum()
        squares += (degree * fitness**2).sum()
        product += (np.bincount(line, fitness) ** 2).sum() - (fitness**2).sum()
    if pairs >= 2 * PAIRS:
        mean = total / pairs
        variance = squares / pairs - mean**2
        return 1, float((product / pairs - mean**2) / variance) if variance > 0 else 1.0
    chosen = np.random.default_rng(0).permutation(len(codes))[:SAMPLE]
    some, at = codes[chosen], fitness[chosen]
    first, second = np.triu_indices(len(some), 1)
    apart = np.zeros(len(first), dtype=np.int64)
    for column in range(some.shape[1]):
        apart += some[first, column] != some[second, column]
    for distance in range(1, int(apart.max(initial=0)) + 1):
        these = apart == distance
        if these.sum() >= PAIRS:
            left, right = at[first[these]], at[second[these]]
            values = np.concatenate([left, right])
            variance = values.var()
            covariance = (left * right).mean() - values.mean() ** 2
            return distance, float(covariance / variance) if variance > 0 else 1.0
    return None, None


def best_of_lines(fitness: Floats, groups: Sequence[Ints]) -> Array:
    """Return for each config whether it has a neighbour and none of its neighbours is faster."""
    optimum, alone = np.ones(len(fitness), bool), np.ones(len(fitness), bool)
    for line in groups:
        least = np.full(int(line.max()) + 1, np.inf)
        np.minimum.at(least, line, fitness)
        optimum &= fitness <= least[line]
        alone &= np.bincount(line)[line] == 1
    return optimum & ~alone


def relative_spread(codes: Ints, fitness: Floats) -> float | None:
    """Return the mean distance among the best configs divided by that among all."""
    count = max(2, math.ceil(TOP * len(fitness)))
    everywhere = mean_distance(codes)
    return mean_distance(codes[np.argsort(fitness, kind="stable")[:count]]) / everywhere if everywhere else None


def mean_distance(codes: Ints) -> float:
    """Return the mean Hamming distance of two different rows, from how often each value occurs."""
    rows = len(codes)
    equal = sum(int((np.bincount(column + 1) ** 2).sum()) - rows for column in codes.T)
    return float(codes.shape[1] - equal / (rows * (rows - 1)))
