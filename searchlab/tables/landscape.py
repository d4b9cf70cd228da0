"""Measures of a table's landscape: how smooth it is, how many local optima it has, and where its best configs are.

Two configs are neighbours if they differ in exactly one knob, whatever its values: their Hamming distance is 1. This is
the definition of Schoonhoven et al. (IEEE Trans. Evol. Comput. 2022), of ``Searchspace.get_neighbors`` in Kernel Tuner,
and of the policies that search neighbourhoods. A knob that only one of the two configs has counts as a difference. The
fitness of a config is the logarithm of its cost; a config that fails has no fitness.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from ..arrays import Array, Floats, Ints
from ..log.format import Log
from ..space import number_choices

GOOD_DISTANCE = 0.05
"""The maximum distance of a good local optimum from the best throughput, as a fraction."""

BEST_SHARE = 0.01
"""The share of the working configs that are considered the best when their spread is computed."""

MIN_PAIRS = 100
"""The minimum number of pairs at a distance for computing their correlation."""

MAX_SAMPLE = 2000
"""The maximum number of configs from which pairs are formed if a log contains few neighbours."""


class Landscape(msgspec.Struct, frozen=True, rename={"failure_share": "failures"}):
    """Measures of a landscape. Each is None if it cannot be computed.

    Attributes:
        distance: The distance of the pairs used for ``autocorrelation``: 1, unless the log has too few neighbours.
        autocorrelation: The correlation between the fitnesses of configs at ``distance``. For neighbours, it is the
            autocorrelation r(1) of random walks over the working configs, computed from all pairs of neighbours, since
            a random walk takes all steps equally often. Source: Weinberger, "Correlated and uncorrelated fitness
            landscapes and how to tell the difference" (Biological Cybernetics 63, 1990).
        correlation_length: The number of steps after which the autocorrelation is 1/e, if it decays exponentially:
            -distance / ln(autocorrelation). It is 0 if the autocorrelation is not positive.
        local_optima: The share of working configs that have no faster neighbour. Only for complete tables.
        good_optima: The share of local optima that reach at least 95 % of the best throughput. It is the probability
            that a local search succeeds if it ends in each optimum equally often. Only for complete tables.
        spread: The mean distance between two of the best 1 % of configs, relative to that between two working configs.
            It is far below 1 if the best configs are alike, and about 1 if they are scattered. Source: the dispersion
            metric of Lunacek and Whitley (GECCO 2006), with Hamming distances.
        failure_share: The share of configs that fail.
    """

    distance: int | None
    autocorrelation: float | None
    correlation_length: float | None
    local_optima: float | None
    good_optima: float | None
    spread: float | None
    failure_share: float

    @classmethod
    def from_log(cls, log: Log, *, is_exhaustive: bool) -> Landscape:
        """Compute the measures from a table or another log.

        Args:
            log: The log. If it does not contain all configs of the space, its configs should have been drawn at random,
                as by the policy ``random``, because a search visits better and more similar configs.
            is_exhaustive: Whether the log contains all configs of the space.
        """
        costs = log.costs
        is_working = np.isfinite(costs)
        failure_share = float(1 - is_working.mean()) if len(costs) else 0.0
        if is_working.sum() < 2:
            return cls(None, None, None, None, None, None, failure_share)
        records = log.records
        codes = encode_configs([records[i].trial.config for i in np.flatnonzero(is_working).tolist()])
        fitness = np.log(costs[is_working])
        fitness -= fitness.mean()
        line_numbers = list(yield_line_numbers(codes))
        distance, correlation = correlate(codes, fitness, line_numbers)
        is_optimum = find_local_optima(fitness, line_numbers) if is_exhaustive else np.zeros(0, bool)
        is_good = fitness <= fitness.min() - math.log(1 - GOOD_DISTANCE)
        optimum_count = int(is_optimum.sum())
        return cls(
            distance,
            correlation,
            compute_correlation_length(distance, correlation),
            float(is_optimum.mean()) if is_exhaustive else None,
            float(is_good[is_optimum].mean()) if optimum_count else None,
            compute_relative_spread(codes, fitness),
            failure_share,
        )

    def to_json(self) -> dict[str, Any]:
        measures: dict[str, Any] = msgspec.to_builtins(self)
        return measures

    def describe(self) -> dict[str, str]:
        """Return a description of each measure that could be computed, by title."""
        descriptions = {}
        if self.autocorrelation is not None and self.correlation_length is not None:
            neighbours_text = "neighbours" if self.distance == 1 else f"configs at distance {self.distance}"
            length_text = f"{self.correlation_length:.1f}" if math.isfinite(self.correlation_length) else "unlimited"
            descriptions["autocorrelation of a random walk"] = (
                f"{self.autocorrelation:.2f} between {neighbours_text}; correlation length {length_text} steps"
            )
        if self.local_optima is not None:
            text = f"{format_share(self.local_optima)} of the working configs"
            if self.good_optima is not None:
                text += f"; {format_share(self.good_optima)} of them within 5 % of the best"
            descriptions["local optima"] = text
        if self.spread is not None:
            descriptions["distance among the best 1 %"] = f"{self.spread:.2f} times that of random pairs"
        return descriptions


def compute_correlation_length(distance: int | None, correlation: float | None) -> float | None:
    """Return the number of steps after which a correlation at ``distance`` that decays exponentially is 1/e."""
    if distance is None or correlation is None:
        return None
    if correlation <= 0:
        return 0.0
    return -distance / math.log(correlation) if correlation < 1 else math.inf


def format_share(fraction: float) -> str:
    """Format a fraction with two significant digits, or as a whole number of percent."""
    return f"{100 * fraction:.{'0f' if fraction >= 0.1 else '2g'}} %"


def encode_configs(configs: Sequence[Any]) -> Ints:
    """Encode configs as an array of shape (configs, knobs): codes of values, and -1 for a knob that is missing."""
    names = list(dict.fromkeys(name for config in configs for name in config))
    codes = np.empty((len(configs), len(names)), dtype=np.int64)
    for column, name in enumerate(names):
        _, positions = number_choices([None, *(config.get(name) for config in configs)])
        codes[:, column] = positions[1:] - 1  # None is at position 0
    return codes


def yield_line_numbers(codes: Ints) -> Iterator[Ints]:
    """Yield, for each knob, the number of each config's line: a group of configs that differ only in this knob."""
    for knob in range(codes.shape[1]):
        line_of_config = np.zeros(len(codes), dtype=np.int64)
        for column in np.delete(codes, knob, axis=1).T:
            keys = line_of_config * (column.max() + 2) + column + 1
            line_of_config = np.unique(keys, return_inverse=True)[1].astype(np.int64)
        yield line_of_config


def correlate(codes: Ints, fitness: Floats, line_numbers: Sequence[Ints]) -> tuple[int | None, float | None]:
    """Return the smallest distance at which there are enough pairs, and the correlation of fitness within these pairs.

    Each ordered pair counts once, so a config counts once for each of its neighbours, as in a random walk.
    """
    correlation = _correlate_neighbours(fitness, line_numbers)
    return _correlate_sample(codes, fitness) if correlation is None else (1, correlation)


def _correlate_neighbours(fitness: Floats, line_numbers: Sequence[Ints]) -> float | None:
    """Return the correlation within all pairs of neighbours, or None if there are too few pairs."""
    pair_count = fitness_sum = square_sum = product_sum = 0.0
    for line in line_numbers:
        neighbour_counts = np.bincount(line)[line] - 1.0
        pair_count += neighbour_counts.sum()
        fitness_sum += (neighbour_counts * fitness).sum()
        square_sum += (neighbour_counts * fitness**2).sum()
        product_sum += (np.bincount(line, fitness) ** 2).sum() - (fitness**2).sum()
    if pair_count < 2 * MIN_PAIRS:
        return None
    mean = fitness_sum / pair_count
    variance = square_sum / pair_count - mean**2
    return float((product_sum / pair_count - mean**2) / variance) if variance > 0 else 1.0


def _correlate_sample(codes: Ints, fitness: Floats) -> tuple[int | None, float | None]:
    """Return what :func:`correlate` does, from all pairs of at most :data:`MAX_SAMPLE` configs."""
    from scipy.spatial.distance import pdist

    indices = np.random.default_rng(0).permutation(len(codes))[:MAX_SAMPLE]
    sample, fitness = codes[indices], fitness[indices]
    first, second = np.triu_indices(len(sample), 1)
    distances = np.rint(codes.shape[1] * pdist(sample, "hamming"))
    for distance in range(1, int(distances.max(initial=0)) + 1):
        at_distance = distances == distance
        if at_distance.sum() >= MIN_PAIRS:
            first_fitness, second_fitness = fitness[first[at_distance]], fitness[second[at_distance]]
            values = np.concatenate([first_fitness, second_fitness])
            variance = values.var()
            covariance = (first_fitness * second_fitness).mean() - values.mean() ** 2
            return distance, float(covariance / variance) if variance > 0 else 1.0
    return None, None


def find_local_optima(fitness: Floats, line_numbers: Sequence[Ints]) -> Array:
    """Return, for each config, whether it has neighbours, none of which is faster."""
    is_optimum, is_isolated = np.ones(len(fitness), bool), np.ones(len(fitness), bool)
    for line in line_numbers:
        fastest = np.full(int(line.max()) + 1, np.inf)
        np.minimum.at(fastest, line, fitness)
        is_optimum &= fitness <= fastest[line]
        is_isolated &= np.bincount(line)[line] == 1
    return is_optimum & ~is_isolated


def compute_relative_spread(codes: Ints, fitness: Floats) -> float | None:
    """Return the mean distance between the best configs, divided by the mean distance between all configs."""
    count = max(2, math.ceil(BEST_SHARE * len(fitness)))
    mean_distance_of_all = compute_mean_distance(codes)
    if not mean_distance_of_all:
        return None
    return compute_mean_distance(codes[np.argsort(fitness, kind="stable")[:count]]) / mean_distance_of_all


def compute_mean_distance(codes: Ints) -> float:
    """Return the mean Hamming distance between two different rows, computed from how often each value occurs."""
    row_count = len(codes)
    equal_pairs = sum(int((np.bincount(column + 1) ** 2).sum()) - row_count for column in codes.T)
    return float(codes.shape[1] - equal_pairs / (row_count * (row_count - 1)))
