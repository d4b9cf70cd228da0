"""The second version of `gp-prior`: fewer parts, and first trials from a static analysis.

Sources: as for :mod:`.gp_prior`; Qiao et al., "Pruner: A Draft-then-Verify Exploration Mechanism to Accelerate Tensor
Program Tuning" (ASPLOS 2025), for the analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated

import numpy as np

from searchlab.arrays import Floats
from searchlab.costmodel.features import Features, make_features
from searchlab.options import Between, Count
from searchlab.records import Trial
from searchlab.space import Config, Space

from .gp_prior import GpPrior, standardise
from .model_guided import MAX_SLOW_PREDICTIONS
from .pruner import SymbolAnalyzer


class Gp2(GpPrior):
    """Expected improvement under a Gaussian process that begins with programs that a static analysis selects.

    Parts of `gp-prior` that were worth nothing on the development tables are omitted: all candidates are mutations of
    the fastest trials, and the costs of slow programs are not compressed. In spaces with programs, and without a warm
    start from other workloads, :class:`~.pruner.SymbolAnalyzer` selects three of four of the first trials: each is the
    config for which it estimates the shortest time among ``entrants`` random configs. Nothing has been measured by
    then, so this only takes the time of scheduling these programs.

    Args:
        n_startup: The number of trials before the processes are used.
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

    def _standardise(self, costs: Sequence[float]) -> Floats:
        return standardise(costs, compress=False)

    def _draw_candidates(self, fastest_trials: Sequence[Trial], rng: np.random.Generator) -> list[Config]:
        return self._draw_neighbours(fastest_trials, rng)
