"""Transfer from other workloads with a Gaussian copula.

Source: Randall, Koo, Videau, Kruse, Wu, Hovland, Hall, Ge and Balaprakash, "Transfer-learning-based autotuning using
Gaussian copula" (ICS 2023, arXiv 2401.04669), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from searchlab.arrays import Floats
from searchlab.options import Count, UnitInterval
from searchlab.policy import NeverTwice, Origin
from searchlab.records import Trial
from searchlab.space import Column, Config, Knob, Space, Value, represent_config

from .model_guided import rank_successes

MAX_DRAWS_PER_SLOT = 8
"""The maximum number of draws per batch slot, because a narrow copula often repeats a config."""


class Copula(NeverTwice, transfers=True):
    """Samples from the joint distribution of the fastest configs of other workloads.

    A Gaussian copula is fitted to the fastest trials of this run and of each earlier run in the same space with other
    shapes. The size of the workload is one of its variables, and samples are conditioned on it. Each knob takes the
    legal choice that is nearest to the sample. Without a warm start, the first trials are random, and the copula then
    learns from this run alone.

    Args:
        quantile: The fraction of each run's trials to learn from.
        n_startup: The number of trials of this run after which the copula learns from them, too.
        shrinkage: The fraction by which the correlations are reduced: 0 keeps them, and 1 removes them.
        epsilon: The probability of filling a batch slot with a random config.
    """

    origin = Origin(
        "Randall et al.'s generative transfer tuning",
        "2023",
        "Transfer-learning-based autotuning using Gaussian copula, ICS 2023",
        "relative",
        (
            "tiles are described by the logarithms of their factors; the nearest legal choice is taken",
            "the size of a workload is its number of operations",
            "it also learns from the run's own trials, and some places in a batch are random",
            "correlations are shrunk, and the budget is not estimated",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        quantile: UnitInterval = 0.1,
        n_startup: Count = 32,
        shrinkage: UnitInterval = 0.1,
        epsilon: UnitInterval = 0.05,
    ) -> None:
        super().__init__(space, seed=seed)
        self.quantile = quantile
        self.n_startup = n_startup
        self.shrinkage = shrinkage
        self.epsilon = epsilon
        self._earlier_configs: list[GoodConfig] = []
        self._choice_tables: dict[Knob, ChoiceTable] = {}
        self._fitted_copula: tuple[int, ConditionedCopula | None] | None = None  # the number of trials, and the copula

    def transfer(self, tasks: Sequence[tuple[Space, Sequence[Trial]]]) -> None:
        self._earlier_configs = [
            config for space, trials in tasks for config in self._select_good_configs(space, trials)
        ]
        self._fitted_copula = None

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        copula = self._fit()
        for _ in range(MAX_DRAWS_PER_SLOT * n if copula else 0):
            assert copula is not None
            sample = copula.sample(rng)
            if rng.random() < self.epsilon:
                yield self.space.sample(rng)
            else:
                yield self.space.decide(lambda knob, sample=sample: self._choose_nearest(knob, sample, rng))  # type: ignore[misc]

    def _fit(self) -> ConditionedCopula | None:
        """Return the copula fitted to all good trials, or None if there are fewer than two."""
        if self._fitted_copula is None or self._fitted_copula[0] != len(self.trials):
            own_configs = (
                self._select_good_configs(self.space, self.trials) if len(self.trials) >= self.n_startup else []
            )
            good_configs = [*self._earlier_configs, *own_configs]
            size = _compute_size(self.space)
            copula = ConditionedCopula.fit(good_configs, size, self.shrinkage) if len(good_configs) > 1 else None
            self._fitted_copula = len(self.trials), copula
        return self._fitted_copula[1]

    def _select_good_configs(self, space: Space, trials: Sequence[Trial]) -> list[GoodConfig]:
        """Return the fastest trials of a run: at least one, unless all failed."""
        ranked = rank_successes(trials)
        best = ranked[: math.ceil(self.quantile * len(ranked))]
        return [GoodConfig(_compute_size(space), represent_config(trial.config)) for trial in best]

    def _choose_nearest(self, knob: Knob, sample: dict[Column, float], rng: np.random.Generator) -> Value:
        """Return the choice of ``knob`` that is nearest to ``sample``; ties are broken at random."""
        key = Knob(knob.name, tuple(knob.choices))
        if key not in self._choice_tables:
            self._choice_tables[key] = ChoiceTable.from_knob(key)
        return self._choice_tables[key].choose_nearest(sample, rng)


@dataclass(frozen=True)
class GoodConfig:
    """A fast config as numbers, one per part, with the size of its workload."""

    size: float
    parts: dict[Column, float]


def _compute_size(space: Space) -> float:
    return math.log2(max(1, space.workload.flops))


@dataclass(frozen=True, eq=False)
class ChoiceTable:
    """The choices of a knob as numbers, of shape (choices, parts)."""

    knob: Knob
    parts: tuple[Column, ...]
    rows: Floats

    @classmethod
    def from_knob(cls, knob: Knob) -> ChoiceTable:
        numbers = [represent_config({knob.name: choice}) for choice in knob.choices]
        parts = tuple(dict.fromkeys(part for features in numbers for part in features))
        return cls(knob, parts, np.array([[features.get(part, 0.0) for part in parts] for features in numbers]))

    def choose_nearest(self, sample: dict[Column, float], rng: np.random.Generator) -> Value:
        columns = [column for column, part in enumerate(self.parts) if part in sample]
        target = np.array([sample[self.parts[column]] for column in columns])
        distances = np.abs(self.rows[:, columns] - target).sum(axis=1)
        nearest_indices = np.flatnonzero(distances <= distances.min() + 1e-9)
        return self.knob.choices[int(nearest_indices[rng.integers(len(nearest_indices))])]


@dataclass(frozen=True, eq=False)
class ConditionedCopula:
    """A Gaussian copula, conditioned on the size of a workload.

    Attributes:
        values: The marginal distributions: sorted values of shape (parts, configs).
        mean: The mean of the normal scores, given the size, of shape (parts,).
        factor: The symmetric square root of their covariance, given the size, of shape (parts, parts).
    """

    parts: list[Column]
    values: Floats
    mean: Floats
    factor: Floats

    @classmethod
    def fit(cls, configs: Sequence[GoodConfig], size: float, shrinkage: float) -> ConditionedCopula:
        """Fit a copula to ``configs``. A part that a config lacks counts as 0."""
        parts = list(dict.fromkeys(part for config in configs for part in config.parts))
        rows = np.array([[config.size, *(config.parts.get(part, 0.0) for part in parts)] for config in configs]).T
        scores = np.array([ndtri((rankdata(row) - 0.5) / len(configs)) for row in rows])
        spread = scores.std(axis=1)
        scores = (scores - scores.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)[:, np.newaxis]
        # Constant rows have no correlation with any other.
        correlation = (1 - shrinkage) * (scores @ scores.T) / len(configs)
        np.fill_diagonal(correlation, 1.0)
        size_score = _compute_normal_score(rows[0], size)
        correlation_with_size = correlation[1:, 0]
        covariance = correlation[1:, 1:] - np.outer(correlation_with_size, correlation_with_size)
        eigenvalues, eigenvectors = np.linalg.eigh(covariance)  # the matrix may be singular
        # The signs of eigenvectors, which differ between BLAS kernels, do not affect the symmetric root.
        factor = eigenvectors * np.sqrt(np.maximum(eigenvalues, 0.0)) @ eigenvectors.T
        return cls(parts, np.sort(rows[1:], axis=1), correlation_with_size * size_score, factor)

    def sample(self, rng: np.random.Generator) -> dict[Column, float]:
        """Draw a number for each part."""
        normal_scores = self.mean + self.factor @ rng.standard_normal(len(self.parts))
        value_indices = np.minimum((ndtr(normal_scores) * self.values.shape[1]).astype(int), self.values.shape[1] - 1)
        return dict(zip(self.parts, self.values[np.arange(len(self.parts)), value_indices].tolist(), strict=True))


def _compute_normal_score(sizes: Floats, size: float) -> float:
    """Return the normal score of ``size`` among ``sizes``."""
    if (sizes == sizes[0]).all():
        return 0.0
    smaller_count, equal_count = float((sizes < size).sum()), float((sizes == size).sum())
    return float(ndtri(np.clip((smaller_count + equal_count / 2) / len(sizes), 0.5 / len(sizes), 1 - 0.5 / len(sizes))))
