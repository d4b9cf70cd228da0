"""A Gaussian process whose prior mean can be learnt from other workloads.

Sources: Jones et al., "Efficient Global Optimization of Expensive Black-Box Functions" (1998), for the process and its
expected improvement; Ginsbourger et al., "Kriging Is Well-Suited to Parallelize Optimization" (2010), for batches by
kriging believer; Geurts et al., "Extremely Randomized Trees" (2006), for the prior mean. Averaging the processes with
and without the prior mean, by how well each explains the trials, is Bayesian model averaging (Hoeting et al., 1999).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Annotated

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata
from sklearn.ensemble import ExtraTreesRegressor
from threadpoolctl import ThreadpoolController

from searchlab.arrays import Floats
from searchlab.options import Between, Count, to_library_seed
from searchlab.policy import NeverTwice
from searchlab.records import SHORTEST, Trial
from searchlab.space import Config, Space, represent_config

from .acquisition import expected_improvement
from .gaussian_process import Encoding, GaussianProcess, lognormal_prior, select_trials_to_model
from .model_guided import MAX_SLOW_PREDICTIONS

FAILURE_SLOWDOWN = 3.0
"""The cost of a failed trial, relative to the slowest trial that succeeded."""

TOURNAMENT_SIZE = 256
"""The number of random configs from which the one with the best prior mean is chosen, for each of the first trials."""

RANDOM_INTERVAL = 4
"""The interval at which one of the first trials is random, in case the prior mean is misleading."""

FASTEST_COUNT = 4
"""The number of fastest trials whose neighbours are candidates."""

RIDGE_STRENGTH = 4.0
"""The strength of the ridge penalty that keeps the multiple of the prior mean close to 1 in :class:`ShiftedProcess`."""

PRIOR_LOG_ODDS = 2.0
"""The logarithm of the prior odds that the process with the prior mean is the better one."""


class GpPrior(NeverTwice, transfers=True):
    """Expected improvement under a Gaussian process whose prior mean may be learnt from other workloads.

    The process models the logarithm of the cost, with a length scale for each knob. The candidates for a batch are
    random configs and mutations of the fastest trials. Each batch slot is filled with the candidate that has
    the largest expected improvement; the process then treats its own prediction for this candidate as a measurement.

    With a warm start from other workloads, an ensemble of trees learns to predict how a config ranks within a workload.
    The first trials are selected by this prediction, and a multiple of it is the prior mean of a second process. The
    expected improvement is averaged over both processes, weighted by their posterior probabilities.

    Args:
        n_startup: The number of trials before the processes are used.
        points: The number of random candidates per batch.
        neighbours: The number of candidates per batch near the fastest trials.
        memory: The maximum number of trials to model: the fastest ones fill half, and the most recent of the others
            fill the rest. The time to fit a process grows with the cube of this number.
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        n_startup: Count = 8,
        points: Count = 500,
        neighbours: Count = 200,
        memory: Annotated[int, Between(2)] = 256,
    ) -> None:
        super().__init__(space, seed=seed)
        self.n_startup = n_startup
        self.memory = memory
        point_fraction = MAX_SLOW_PREDICTIONS / (points + neighbours) if space.builds_programs else 1.0
        self.points, self.neighbours = (max(1, int(min(1.0, point_fraction) * n)) for n in (points, neighbours))
        if (self.points, self.neighbours) != (points, neighbours):
            self.effective = {"points": self.points, "neighbours": self.neighbours}
        self._learnt_prior: LearntPrior | None = None
        self._threads = ThreadpoolController()

    def transfer(self, tasks: Sequence[tuple[Space, Sequence[Trial]]]) -> None:
        nonempty_tasks = [(space, trials) for space, trials in tasks if trials]
        self._learnt_prior = LearntPrior(nonempty_tasks, self.seed) if nonempty_tasks else None

    @cached_property
    def encoding(self) -> Encoding:
        return Encoding(self.space)

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        success_count = sum(math.isfinite(trial.cost) for trial in self.trials)
        with self._threads.limit(limits=1):  # one thread adds in a deterministic order
            if len(self.trials) < self.n_startup or success_count < 2:
                return self._propose_first(n, rng)
            return self._propose_batch(n, rng)

    def _propose_first(self, n: int, rng: np.random.Generator) -> list[Config]:
        """Return configs selected by the prior mean; empty if there is no prior mean."""
        if self._learnt_prior is None:
            return []
        return self._select_by_prediction(n, rng, TOURNAMENT_SIZE, partial(self._learnt_prior, self.space))

    def _select_by_prediction(
        self, n: int, rng: np.random.Generator, entrants: int, predict: Callable[[Sequence[Config]], Floats]
    ) -> list[Config]:
        """Return configs, each with the lowest prediction among as many random ``entrants``, and random configs."""
        batch: list[Config] = []
        for index in range(len(self.trials), len(self.trials) + n):
            count = 1 if index % RANDOM_INTERVAL == RANDOM_INTERVAL - 1 else entrants
            candidates = [config for config in self.space.sample_new(rng, count, self.seen) if config not in batch]
            if candidates:
                batch.append(candidates[int(np.argmin(predict(candidates)))])
        return batch

    def _propose_batch(self, n: int, rng: np.random.Generator) -> list[Config]:
        trials = select_trials_to_model(sorted(self.trials, key=lambda trial: trial.cost), self.memory)
        candidates = self._draw_candidates(trials[:FASTEST_COUNT], rng)
        if not candidates:
            return []
        rows, values = self.encoding([trial.config for trial in trials]), self._standardise([t.cost for t in trials])
        processes = [ShiftedProcess(rows, values, self.encoding)]
        candidate_prior_means = np.zeros(len(candidates))
        if self._learnt_prior is not None:
            prior_means = self._learnt_prior(self.space, [trial.config for trial in trials])
            candidate_prior_means = self._learnt_prior(self.space, candidates)
            processes.append(ShiftedProcess(rows, values, self.encoding, prior_means))
        losses = np.array([process.loss for process in processes]) - PRIOR_LOG_ODDS * np.arange(len(processes))
        weights = np.exp(losses.min() - losses)
        weights /= weights.sum()
        candidate_rows = self.encoding(candidates)
        best_value = float(values.min())
        is_free = np.ones(len(candidates), dtype=bool)
        batch = []
        for _ in range(min(n, len(candidates))):
            predictions = [process.predict(candidate_rows, candidate_prior_means) for process in processes]
            improvements = sum(
                weight * expected_improvement(*prediction, best_value)
                for weight, prediction in zip(weights, predictions, strict=True)
            )
            index = int(np.argmax(np.where(is_free, improvements, -np.inf)))
            is_free[index] = False
            batch.append(candidates[index])
            value = float(sum(weight * mean[index] for weight, (mean, _) in zip(weights, predictions, strict=True)))
            for process in processes:
                process.believe(candidate_rows[index], value, candidate_prior_means[index])
            best_value = min(best_value, value)
        return batch

    def _standardise(self, costs: Sequence[float]) -> Floats:
        return standardise(costs)

    def _draw_candidates(self, fastest_trials: Sequence[Trial], rng: np.random.Generator) -> list[Config]:
        """Return new configs: some that are one or two mutations away from the fastest trials, and random ones."""
        candidates = dict.fromkeys(self._draw_neighbours(fastest_trials, rng))
        candidates.update(dict.fromkeys(self.space.sample_new(rng, self.points, self.seen)))
        return list(candidates)

    def _draw_neighbours(self, fastest_trials: Sequence[Trial], rng: np.random.Generator) -> list[Config]:
        """Return at most ``neighbours`` new configs that are one or two mutations away from the fastest trials."""
        candidates: dict[Config, None] = {}
        for i in range(self.neighbours):
            config = self.space.mutate(fastest_trials[i % len(fastest_trials)].config, rng)
            if rng.random() < 0.4:
                config = self.space.mutate(config, rng)
            if config not in self.seen:
                candidates[config] = None
        return list(candidates)


def standardise(costs: Sequence[float], *, compress: bool = True) -> Floats:
    """Return the logarithms of ``costs``, with mean 0 and standard deviation 1, of shape (n,).

    A failure counts as three times as slow as the slowest success. If ``compress`` is true, values above the median are
    moved halfway towards it, because the differences between slow programs say little about where the fast ones are.
    """
    is_finite = np.isfinite(costs)
    slowest = float(np.max(np.asarray(costs)[is_finite]))
    values = np.log(np.maximum(np.where(is_finite, costs, FAILURE_SLOWDOWN * slowest), SHORTEST))
    if compress:
        median = float(np.median(values[is_finite]))
        values = np.where(values > median, (values + median) / 2, values)
    centred: Floats = values - values.mean()
    return centred / (centred.std() or 1.0)


class ShiftedProcess:
    """A Gaussian process over the residuals of the costs from a multiple of the prior mean.

    The multiple is found by ridge regression, which keeps it close to 1 unless the trials contradict that.

    Args:
        rows: The rows of the trials, of shape (n, columns).
        values: Their standardised costs, of shape (n,).
        encoding: The encoding that produced the rows.
        prior_means: The prior mean of the trials, of shape (n,); None for a process without one.

    Attributes:
        loss: See :class:`.gaussian_process.GaussianProcess`.
    """

    def __init__(self, rows: Floats, values: Floats, encoding: Encoding, prior_means: Floats | None = None) -> None:
        self._slope = 0.0
        if prior_means is not None:
            centred = prior_means - prior_means.mean()
            self._slope = max(0.0, float(centred @ values + RIDGE_STRENGTH) / float(centred @ centred + RIDGE_STRENGTH))
            values = values - self._slope * prior_means
        self._process = GaussianProcess(rows, values, encoding.length_scale_indices, lognormal_prior)
        self.loss = self._process.loss

    def predict(self, rows: Floats, prior_means: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the standard deviation at ``rows``, whose prior mean is ``prior_means``; both (n,)."""
        mean, deviation = self._process.predict(rows)
        return mean + self._slope * prior_means, deviation

    def believe(self, row: Floats, value: float, prior_mean: float) -> None:
        """Add an observation without changing the hyperparameters."""
        self._process.believe(row, value - self._slope * prior_mean)


class LearntPrior:
    """Predicts how configs rank within a workload, from trials of other workloads.

    Ranks are normal scores, from about -3 for the fastest to 3 for the slowest. A config is described by its numbers,
    and by the distance of each number from the largest that its knob offers.

    Args:
        tasks: The space and the trials of each workload.
        seed: The seed of the trees.
    """

    def __init__(self, tasks: Sequence[tuple[Space, Sequence[Trial]]], seed: int) -> None:
        descriptions = [_describe_configs(space, [trial.config for trial in trials]) for space, trials in tasks]
        self._columns = list(dict.fromkeys(column for rows in descriptions for row in rows for column in row))
        normal_scores = [ndtri((rankdata([trial.cost for trial in trials]) - 0.5) / len(trials)) for _, trials in tasks]
        self._trees = ExtraTreesRegressor(
            200, min_samples_leaf=2, max_features=0.5, random_state=to_library_seed(seed), n_jobs=1
        )
        self._trees.fit(np.vstack([self._make_rows(rows) for rows in descriptions]), np.concatenate(normal_scores))

    def __call__(self, space: Space, configs: Sequence[Config]) -> Floats:
        """Return the predicted normal scores of ``configs``, of shape (n,); the lowest are the fastest."""
        predictions: Floats = self._trees.predict(self._make_rows(_describe_configs(space, configs)))
        return predictions

    def _make_rows(self, descriptions: Sequence[Mapping[object, float]]) -> Floats:
        return np.array([[row.get(column, -8.0) for column in self._columns] for row in descriptions])


def _describe_configs(space: Space, configs: Sequence[Config]) -> list[dict[object, float]]:
    """Return the numbers that represent each config, and by how much each is below its largest choice in the space."""
    largest_numbers: dict[object, float] = {}
    for name, knob in space.knobs_of(space.probe()).items():
        for choice in knob.choices:
            for column, number in represent_config({name: choice}).items():
                largest_numbers[column] = max(number, largest_numbers.get(column, number))
    rows: list[dict[object, float]] = []
    for config in configs:
        row: dict[object, float] = {}
        for column, number in represent_config(config).items():
            row[column] = number
            row[column, "below"] = number - largest_numbers.get(column, number)
        rows.append(row)
    return rows
