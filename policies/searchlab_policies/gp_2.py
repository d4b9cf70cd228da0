"""The second version of `gp-prior`: fewer parts, and first trials from a static analysis.

Sources: Jones et al., "Efficient Global Optimization of Expensive Black-Box Functions" (1998), for the process and its
expected improvement; Ginsbourger et al., "Kriging Is Well-Suited to Parallelize Optimization" (2010), for batches by
kriging believer; Qiao et al., "Pruner: A Draft-then-Verify Exploration Mechanism to Accelerate Tensor Program Tuning"
(ASPLOS 2025), for the analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated

import numpy as np

from searchlab.arrays import Floats
from searchlab.costmodel.features import Features, make_features
from searchlab.options import Between, Count
from searchlab.space import Config, Space

from .acquisition import expected_improvement
from .gaussian_process import GaussianProcess, lognormal_prior, select_trials_to_model
from .gp_prior import FASTEST_COUNT, GpPrior, compute_logarithms
from .model_guided import MAX_SLOW_PREDICTIONS
from .pruner import SymbolAnalyzer


class Gp2(GpPrior):
    """Expected improvement under a Gaussian process that begins with programs that a static analysis selects.

    Parts of `gp-prior` that were worth nothing on the development tables are omitted: all candidates are mutations of
    the fastest trials, the costs of slow programs are not compressed, and a warm start from other workloads selects the
    first trials only. In spaces with programs, and without such a warm start, :class:`~.pruner.SymbolAnalyzer` selects
    three of four of the first trials: each is the config for which it estimates the shortest time among ``entrants``
    random configs. Nothing has been measured by then, so this only takes the time of scheduling these programs.

    Args:
        n_startup: The number of trials before the process is used.
        neighbours: The number of candidates per batch, each one or two mutations away from one of the fastest trials.
        memory: The maximum number of trials to model: the fastest ones fill half, and the most recent of the others
            fill the rest. The time to fit a process grows with the cube of this number.
        entrants: The number of random configs from which the analysis selects a trial.
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        n_startup: Count = 8,
        neighbours: Count = MAX_SLOW_PREDICTIONS,
        memory: Annotated[int, Between(2)] = 256,
        entrants: Count = 16,
    ) -> None:
        super().__init__(space, seed=seed, n_startup=n_startup, memory=memory)
        self.neighbours = min(neighbours, MAX_SLOW_PREDICTIONS) if space.builds_programs else neighbours
        self.effective = {"neighbours": self.neighbours} if self.neighbours < neighbours else {}
        self.entrants = entrants

    @cached_property
    def _features(self) -> Features:
        return make_features("per-store", self.space)

    @cached_property
    def _analyzer(self) -> SymbolAnalyzer:
        return SymbolAnalyzer(self.space.target)

    def _propose_first(self, n: int, rng: np.random.Generator) -> list[Config]:
        if self._learnt_prior is not None or not self.space.has_programs:
            return super()._propose_first(n, rng)
        return self._select_by_prediction(n, rng, self.entrants, self._estimate)

    def _estimate(self, configs: Sequence[Config]) -> Floats:
        """Return the negative reciprocals of the estimated times of ``configs``, of shape (n,); 0 without a program."""
        return -self._analyzer(self._features(configs))

    def _propose_batch(self, n: int, rng: np.random.Generator) -> list[Config]:
        trials = select_trials_to_model(sorted(self.trials, key=lambda trial: trial.cost), self.memory)
        candidates = self._draw_neighbours(trials[:FASTEST_COUNT], rng)
        rows = self.encoding([trial.config for trial in trials])
        values = compute_logarithms([trial.cost for trial in trials])
        process = GaussianProcess(rows, values, self.encoding.length_scale_indices, lognormal_prior)
        posterior = process.posterior(self.encoding(candidates))
        best = float(values.min())
        is_free = np.ones(len(candidates), dtype=bool)
        batch = []
        for _ in range(min(n, len(candidates))):
            improvements = expected_improvement(posterior.mean, posterior.deviation, best)
            index = int(np.argmax(np.where(is_free, improvements, -np.inf)))
            is_free[index] = False
            batch.append(candidates[index])
            best = min(best, float(posterior.mean[index]))
            posterior.believe(index)
        return batch
