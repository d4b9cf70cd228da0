"""Covariance matrix adaptation evolution strategy (CMA-ES).

Source: Hansen, "The CMA Evolution Strategy: A Tutorial" (arXiv 1604.00772); Nomura and Shibata, "cmaes: A Simple yet
Practical Python Library for CMA-ES" (arXiv 2402.01373). As in ``optuna.samplers.CmaEsSampler``, a choice's index is
scaled to [0, 1], and the initial distribution has mean 1/2 and standard deviation 1/6.
:class:`optuna.samplers.TPESampler` suggests parameters that are not numeric or do not occur in every config.

Optuna's sampler learns only from trials that it suggested itself. This policy drives the same optimiser but learns from
every trial told. Warm-start trials are injected solutions (Hansen, "Injecting External Solutions Into CMA-ES", arXiv
1110.4181), without his bound on the step length.
"""

from __future__ import annotations

from typing import Annotated, Any

import cmaes
import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial

from searchlab.arrays import Array
from searchlab.options import Between
from searchlab.policy import Origin
from searchlab.space import Space

from .adapter import EncodedTrial, OptunaPolicy


class CmaEs(OptunaPolicy):
    """CMA-ES: configs are drawn from a normal distribution that adapts to the best trials of each generation.

    All configs of a batch are drawn from the same distribution. Failed trials rank last. CMA-ES learns after every
    trial, so use ``batch = 1``.

    Args:
        population: The number of trials in a generation; by default 4 + 3 ln d, for d dimensions.
        sigma: The standard deviation of the first generation, as a fraction of a parameter's range.
        memory: The maximum number of trials used to model the remaining parameters, which are not numbers or do not
            occur in every config. The best ones fill a quarter, and the most recent of the others fill the rest.
    """

    origin = Origin(
        "cmaes.CMA",
        "cmaes 0.12",
        "cmaes/_cma.py",
        "original",
        (
            "it is told all trials in order, and each population of them counts as a generation, whoever proposed them",
            "a number is represented by the index of its choice, scaled to [0, 1]; a tile by one number per factor",
            "TPESampler suggests parameters that are not numbers or do not occur in every config",
            "a known suggestion is mutated until it is new",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        population: Annotated[int, Between(2)] | None = None,
        sigma: Annotated[float, Between(1e-3, 10)] = 1 / 6,
        memory: Annotated[int, Between(4)] = 1000,
    ) -> None:
        super().__init__(space, seed=seed, n_startup=0, memory=memory)
        integer_distributions = {
            name: distribution
            for name, distribution in self.parameters.shared_parameters.items()
            if isinstance(distribution, IntDistribution)
        }
        self.distribution = NormalDistribution(integer_distributions, population, sigma)

    def make_sampler(self, seed: int) -> BaseSampler:
        return _Sampler(self.distribution, seed)

    def learn(self, trial: EncodedTrial) -> None:
        self.distribution.tell(trial)


class NormalDistribution:
    """A normal distribution over integers, each scaled to [0, 1], which adapts to the trials told."""

    def __init__(self, distributions: dict[str, IntDistribution], population: int | None, sigma: float) -> None:
        self.distributions = distributions
        self._sizes = np.array([distribution.high + 1 for distribution in distributions.values()])
        self._generation: list[tuple[Array, float]] = []
        if distributions:
            dimension = len(distributions)
            bounds = np.tile([0.0, 1.0], (dimension, 1))
            self._cma = cmaes.CMA(np.full(dimension, 0.5), sigma, bounds, population_size=population)

    def ask(self, seed: int) -> dict[str, int]:
        if not self.distributions:
            return {}
        self._cma.reseed_rng(seed)
        indices = np.minimum(self._cma.ask() * self._sizes, self._sizes - 1).astype(int)
        return dict(zip(self.distributions, indices.tolist(), strict=True))

    def tell(self, trial: EncodedTrial) -> None:
        if not self.distributions or not self.distributions.keys() <= trial.params.keys():
            return
        point = (np.array([trial.params[name] for name in self.distributions]) + 0.5) / self._sizes
        self._generation.append((point, trial.cost))
        if len(self._generation) == self._cma.population_size:
            self._cma.tell(self._generation)
            self._generation = []


class _Sampler(BaseSampler):
    """Draws the parameters that ``distribution`` models; TPESampler suggests the others."""

    def __init__(self, distribution: NormalDistribution, seed: int) -> None:
        self._distribution = distribution
        self._tpe = TPESampler(constant_liar=True, seed=seed)
        self._rng = np.random.default_rng(seed)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(self._distribution.distributions)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return dict(self._distribution.ask(int(self._rng.integers(2**31))))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._tpe.sample_independent(study, trial, param_name, param_distribution)
