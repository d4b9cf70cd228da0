"""Bayesian optimisation with Optuna's Gaussian process.

Source: Jones et al., "Efficient Global Optimization of Expensive Black-Box Functions" (Journal of Global Optimization
13, 1998); ``optuna.samplers.GPSampler``: a Matern 5/2 kernel with a length scale per parameter (words are compared by
equality), and the logarithm of the expected improvement (Ament et al., NeurIPS 2023). For the diversity of a batch, it
maximises the joint improvement of a config and those that are running (qLogEI).

The process models the parameters that all configs of the space have. The others are suggested by
:class:`optuna.samplers.TPESampler`.
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

from searchlab.errors import SearchlabError
from searchlab.options import Between, Count
from searchlab.space import Config, Space

from .adapter import OptunaPolicy, origin
from .parameters import Parameters


class Gp(OptunaPolicy):
    """Bayesian optimisation: proposes the config with the largest expected improvement under a Gaussian process.

    The process models the logarithm of the cost. It requires PyTorch (``pip install 'searchlab[gp]'``) and takes tenths
    of a second for each suggestion. Use ``batch = 1``.

    Args:
        n_startup: Random trials before the model is used.
        memory: The maximum number of trials in the model: the best quarter of this number, and the latest others. The
            time to fit the model grows with its cube.
        candidates: The number of quasi-random points at which the expected improvement is evaluated first (2048 in
            Optuna).
        local_searches: The number of these points, including the best trial, from which local search starts (10 in
            Optuna).
    """

    origin = origin(
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
        try:
            import_module("torch")
        except ImportError as error:
            raise SearchlabError(
                f"policy 'gp' needs PyTorch, which cannot be imported ({error}): pip install 'searchlab[gp]'"
            ) from error
        super().__init__(space, seed=seed, n_startup=n_startup, memory=memory)
        self.candidates = candidates
        self.local_searches = local_searches
        self._threads = ThreadpoolController()

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        # One thread makes the order of sums deterministic, and several threads of both PyTorch and numpy would make
        # this ten times slower.
        with self._threads.limit(limits=1):
            return super().propose(n, rng)

    def sampler(self, seed: int) -> BaseSampler:
        return _Sampler(self.parameters, self.candidates, self.local_searches, seed)


class _Sampler(GPSampler):
    """GPSampler over the parameters that all configs of the space share, not only those of the trials so far."""

    def __init__(self, parameters: Parameters, candidates: int, local_searches: int, seed: int) -> None:
        super().__init__(
            seed=seed,
            n_startup_trials=1,
            independent_sampler=TPESampler(n_startup_trials=1, seed=seed),
            warn_independent_sampling=False,
        )
        self._parameters = parameters
        # Optuna exposes these two as private attributes only.
        self._n_preliminary_samples = candidates
        self._n_local_search = local_searches

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(self._parameters.shared)
