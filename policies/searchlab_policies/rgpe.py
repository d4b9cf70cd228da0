"""Transfer from other workloads with a ranking-weighted ensemble of Gaussian processes (RGPE).

Sources: Feurer, Letham and Bakshy, "Scalable meta-learning for Bayesian optimization using ranking-weighted Gaussian
process ensembles" (AutoML workshop at ICML 2018), and its preprint, arXiv 1802.02219 (version 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from searchlab.arrays import Floats
from searchlab.options import Count
from searchlab.policy import Origin
from searchlab.records import Trial
from searchlab.space import Config, Space

from .acquisition import expected_improvement
from .gaussian_process import GaussianProcess, lognormal_prior, select_trials_to_model
from .gp_prior import FASTEST_COUNT, GpPrior, standardise

MIN_COMPARED_TRIALS = 3
"""The number of trials below which the weights are equal."""

MAX_COMPARED_TRIALS = 64
"""The maximum number of trials whose ranking is compared, because the loss takes quadratic time."""


class Rgpe(GpPrior):
    """Expected improvement under an ensemble of Gaussian processes: one for each earlier run, and one for this run.

    The ensemble's mean is the weighted sum of the processes' means, and its variance that of their variances, with
    squared weights. The weight of a process is the probability that it ranks this run's trials best: it is the fraction
    of samples in which no other process misranks fewer pairs of trials. A process of an earlier run predicts these
    trials without having seen them, so that of this run predicts each trial from the others. Processes of earlier runs
    that rank the trials much worse than that of this run get no weight.

    Each slot in a batch is filled with the candidate that has the largest expected improvement; all processes then
    treat their own predictions for this candidate as measurements. Without a warm start from other workloads, this is
    ``gp-prior`` without a prior mean.

    Args:
        n_startup: The number of random trials if there is no warm start. With one, the trials after that number are
            random until two have succeeded.
        points: The number of random candidates per batch.
        neighbours: The number of candidates per batch near the fastest trials.
        memory: The maximum number of trials to model, for each run: the fastest ones fill half, and the most recent of
            the others fill the rest.
        samples: The number of samples that determine the weights.
    """

    origin = Origin(
        "RGPE",
        "2018",
        "Feurer et al., Scalable meta-learning for Bayesian optimization, arXiv 1802.02219v1",
        "reproduction",
        (
            "the processes are those of gp-prior: logarithms of costs, typed knobs, and a prior over length scales",
            "candidates are random configs and mutations of the fastest trials",
            "the best trial is the one with the best prediction, and batches are filled by kriging believer",
            "the first three trials are selected by the processes of earlier runs alone, with equal weights",
            "the weights are determined by at most 64 trials, and each process models at most 128",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        n_startup: Count = 8,
        points: Count = 500,
        neighbours: Count = 200,
        memory: Count = 128,
        samples: Count = 256,
    ) -> None:
        super().__init__(space, seed=seed, n_startup=n_startup, points=points, neighbours=neighbours, memory=memory)
        self.samples = samples
        self._source_processes: list[GaussianProcess] = []

    def transfer(self, tasks: Sequence[tuple[Space, Sequence[Trial]]]) -> None:
        with self._threads.limit(limits=1):
            self._source_processes = [
                self._fit_process(trials) for _, trials in tasks if any(math.isfinite(trial.cost) for trial in trials)
            ]

    def _fit_process(self, trials: Sequence[Trial]) -> GaussianProcess:
        trials = select_trials_to_model(sorted(trials, key=lambda trial: trial.cost), self.memory)
        rows = self.encoding([trial.config for trial in trials])
        return GaussianProcess(
            rows, standardise([trial.cost for trial in trials]), self.encoding.length_scale_indices, lognormal_prior
        )

    def _propose_first(self, n: int, rng: np.random.Generator) -> list[Config]:
        return self._propose_batch(n, rng) if self._source_processes and len(self.trials) < self.n_startup else []

    def _propose_batch(self, n: int, rng: np.random.Generator) -> list[Config]:
        ranked = sorted(self.trials, key=lambda trial: trial.cost)
        candidates = (
            self._draw_candidates(ranked[:FASTEST_COUNT], rng)
            if ranked
            else self.space.sample_new(rng, self.points, self.seen)
        )
        success_count = sum(math.isfinite(trial.cost) for trial in ranked)
        processes, weights = self._source_processes, np.ones(len(self._source_processes))
        if not self._source_processes or (len(ranked) >= MIN_COMPARED_TRIALS and success_count >= 2):
            processes = [*self._source_processes, self._fit_process(self.trials)]
            weights = self._compute_weights(processes, rng)
        member_indices = np.flatnonzero(weights)
        weights = weights[member_indices] / weights[member_indices].sum()
        rows = self.encoding([*candidates, *(trial.config for trial in ranked)])
        posteriors = [processes[i].posterior(rows) for i in member_indices]
        means = sum(weight * posterior.mean for weight, posterior in zip(weights, posteriors, strict=True))
        best = float(means[len(candidates) :].min(initial=means.mean()))
        is_free = np.arange(len(rows)) < len(candidates)
        batch = []
        for _ in range(min(n, len(candidates))):
            deviation = np.sqrt(
                sum((weight * posterior.deviation) ** 2 for weight, posterior in zip(weights, posteriors, strict=True))
            )
            improvements = expected_improvement(means, deviation, best)
            index = int(np.argmax(np.where(is_free, improvements, -np.inf)))
            is_free[index] = False
            batch.append(candidates[index])
            best = min(best, float(means[index]))
            for posterior in posteriors:
                posterior.believe(index)
        return batch

    def _compute_weights(self, processes: Sequence[GaussianProcess], rng: np.random.Generator) -> Floats:
        """Return the probability that each process, the last of which is this run's, misranks the fewest pairs."""
        target = processes[-1]
        compared = (
            slice(None)
            if len(target.values) <= MAX_COMPARED_TRIALS
            else np.sort(rng.permutation(len(target.values))[:MAX_COMPARED_TRIALS])
        )
        rows, values = target.rows[compared], target.values[compared]
        mean, deviation = (prediction[compared] for prediction in target.leave_one_out())
        left_out_draws = mean + deviation * rng.standard_normal((self.samples, len(values)))
        losses = [
            _count_misranked(draws, draws, values)
            for draws in (process.posterior(rows).sample(self.samples, rng) for process in processes[:-1])
        ]
        losses.append(_count_misranked(left_out_draws, np.broadcast_to(values, left_out_draws.shape), values))
        return compute_ranking_weights(np.array(losses))


def _count_misranked(draws: Floats, references: Floats, values: Floats) -> Floats:
    """Return the number of pairs that each sample misranks, of shape (samples,)."""
    is_faster = draws[:, :, None] < references[:, None, :]
    counts: Floats = (is_faster ^ (values[:, None] < values)).sum(axis=(1, 2))
    return counts


def compute_ranking_weights(losses: Floats) -> Floats:
    """Return the weights of processes with the misranking ``losses``, of shape (processes, samples).

    Each sample adds to the weight of the process with the smallest loss; of several, to that of the last process, which
    is this run's, or else to that of the first. To prevent the dilution of this run's weight by many bad processes, a
    process whose median loss exceeds the 95th percentile of the last process's losses gets no weight.
    """
    losses = losses.astype(float)
    losses[np.median(losses, axis=1) > np.percentile(losses[-1], 95)] = np.inf
    losses[-1] -= 0.5
    weights: Floats = np.bincount(np.argmin(losses, axis=0), minlength=len(losses)) / losses.shape[1]
    return weights
