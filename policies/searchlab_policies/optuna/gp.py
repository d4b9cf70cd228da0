"""Bayesian optimisation with Optuna's Gaussian process.

Source: Jones et al., "Efficient Global Optimization of Expensive Black-Box Functions" (Journal of Global Optimization
13, 1998); ``optuna.samplers.GPSampler``: a Matern 5/2 kernel with a length scale per parameter (words are compared by
equality), and the logarithm of the expected improvement (Ament et al., NeurIPS 2023). To diversify a batch, it
maximises the joint improvement of a config and those that are running (qLogEI).

The process models the parameters that occur in every config of the space. :class:`optuna.samplers.TPESampler` suggests
the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.trial import FrozenTrial
from threadpoolctl import ThreadpoolController

from searchlab.errors import needs_extra
from searchlab.options import Between, Count
from searchlab.space import Config, Space

from .adapter import OptunaPolicy, make_origin
from .parameters import Parameters


class Gp(OptunaPolicy):
    """Bayesian optimisation: proposes the config with the largest expected improvement under a Gaussian process.

    The process models the logarithm of the cost. It requires PyTorch (``pip install '.[gp]'``) and needs tenths
    of a second per suggestion. Use ``batch = 1``.

    Args:
        n_startup: The number of random trials to run before the model is used.
        memory: The maximum number of trials to model: the best ones fill a quarter, and the most recent of the others
            fill the rest. The time to fit the process grows with the cube of this number.
        candidates: The number of quasi-random points at which the expected improvement is first evaluated (2048 in
            Optuna).
        local_searches: The number of those points from which local search starts, including the best trial (10 in
            Optuna).
    """

    origin = make_origin(
        "GPSampler",
        "16 random trials first instead of 10",
        "512 candidates and 4 local searches instead of 2048 and 10",
        "at most 256 trials are modelled",
        "TPESampler suggests parameters that do not occur in every config",
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        n_startup: Count = 16,
        memory: Annotated[int, Between(4)] = 256,
        candidates: Count = 512,
        local_searches: Annotated[int, Between(2)] = 4,
    ) -> None:
        with needs_extra("the policy 'gp'", "gp"):
            import_module("torch")
        super().__init__(space, seed=seed, n_startup=n_startup, memory=memory)
        self.candidates = candidates
        self.local_searches = local_searches
        self._threads = ThreadpoolController()

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        # With one thread, the order of sums is deterministic. Moreover, the search is ten times slower if both PyTorch
        # and numpy use several threads.
        with self._threads.limit(limits=1):
            return super().propose(n, rng)

    def make_sampler(self, seed: int) -> BaseSampler:
        return _Sampler(self.parameters, self.candidates, self.local_searches, seed)


class _Sampler(GPSampler):
    """GPSampler over the parameters shared by all configs of the space, not just by the trials so far."""

    def __init__(self, parameters: Parameters, candidates: int, local_searches: int, seed: int) -> None:
        super().__init__(
            seed=seed,
            n_startup_trials=1,
            independent_sampler=TPESampler(n_startup_trials=1, seed=seed),
            warn_independent_sampling=False,
        )
        self._parameters = parameters
        # Optuna exposes these two only as private attributes.
        self._n_preliminary_samples = candidates
        self._n_local_search = local_searches

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(self._parameters.shared_parameters)
