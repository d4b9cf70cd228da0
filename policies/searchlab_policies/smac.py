"""SMAC: Bayesian optimisation with a random forest.

Sources: Hutter, Hoos and Leyton-Brown, "Sequential Model-Based Optimization for General Algorithm Configuration" (LION
2011); Lindauer et al., "SMAC3: A Versatile Bayesian Optimization Package for Hyperparameter Optimization" (JMLR 23,
2022). The components are those of ``smac.HyperparameterOptimizationFacade``; ``smac.main.config_selector`` has their
order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import numpy as np
from optuna.distributions import BaseDistribution, IntDistribution

from searchlab.arrays import Floats
from searchlab.errors import needs_extra
from searchlab.options import Between, Count, UnitInterval
from searchlab.policy import Origin
from searchlab.space import Config, Space, Value

from .optuna.adapter import EncodedTrial, ParameterPolicy
from .optuna.parameters import Part

if TYPE_CHECKING:
    from ConfigSpace import Configuration, ConfigurationSpace


class Smac(ParameterPolicy):
    """SMAC3: proposes the configs with the largest expected improvement under a random forest.

    The forest models the logarithm of the cost, scaled as in SMAC. Local searches for the largest expected improvement
    start from the best trials and from the best of many random configs. Each batch slot is filled with the best
    remaining new config that these searches have found, or with a random config. SMAC trains its forest after every 8
    trials, which corresponds to ``batch = 8``. This policy requires SMAC3 (``pip install '.[smac]'``) and takes
    a few tenths of a second per batch.

    Args:
        n_startup: The number of random trials to run before the model is used.
        epsilon: The probability of filling a batch slot with a random config.
        challengers: The number of random configs for which the expected improvement is evaluated.
        searches: The number of local searches that start from the best trials. The same number of searches start from
            the best random configs.
        plateau: The number of neighbourhoods without an improvement after which a local search ends.
        trees: The number of trees in the forest.
        memory: The maximum number of trials to model: the best ones fill a quarter, and the most recent of the others
            fill the rest.
    """

    origin = Origin(
        "SMAC3's HyperparameterOptimizationFacade",
        "SMAC3 2.4",
        "smac/facade/hyperparameter_optimization_facade.py, smac/main/config_selector.py",
        "original",
        (
            "32 random trials first, instead of a Sobol sequence for a quarter of the budget",
            "the forest is trained for each batch, not after every 8 trials",
            "the number of leaves is not limited (2^20 in SMAC), which makes training 50 times as fast",
            "the starts of local searches are sorted; in SMAC, their order depends on Python's hash seed",
            "a tile is represented by a parameter per factor, and a number by the index of its choice",
            "a parameter that a config lacks has its default value; the other parameters do not depend on it",
            "a failed trial gets the worst measured cost, and at most 500 trials are modelled",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        n_startup: Count = 32,
        epsilon: UnitInterval = 0.2,
        challengers: Count = 10_000,
        searches: Count = 10,
        plateau: Count = 10,
        trees: Count = 10,
        memory: Annotated[int, Between(4)] = 500,
    ) -> None:
        with needs_extra("the policy 'smac'", "smac"):
            import_module("smac")
        super().__init__(space, seed=seed, n_startup=n_startup, memory=memory)
        self.epsilon = epsilon
        self.challengers = challengers
        self.searches = searches
        self.plateau = plateau
        self.trees = trees

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        if self.has_enough_trials and self.parameters.probed_parameters:
            for challenger in self._rank_challengers(self.trials_to_model(), rng):
                yield self._decode(challenger, rng)

    def _rank_challengers(self, trials: Sequence[EncodedTrial], rng: np.random.Generator) -> Iterator[Configuration]:
        """Return the results of the local searches, best first, interspersed with random challengers."""
        from smac.acquisition.function.expected_improvement import EI
        from smac.acquisition.maximizer.local_and_random_search import LocalAndSortedRandomSearch
        from smac.model.random_forest.random_forest import RandomForest
        from smac.random_design.probability_design import ProbabilityRandomDesign

        seeds = rng.integers(2**31, size=4).tolist()
        space = make_config_space(self.parameters.probed_parameters, seeds[0])
        configurations = [make_configuration(space, trial.params) for trial in trials]
        rows = np.array([configuration_vector.get_array() for configuration_vector in configurations])
        forest = RandomForest(
            space,
            log_y=True,
            n_trees=self.trees,
            ratio_features=1.0,
            min_samples_split=2,
            min_samples_leaf=1,
            max_leaf_nodes=None,
            n_jobs=1,
            seed=seeds[1],
        )
        forest.train(rows, log_scale(np.array([[trial.cost] for trial in trials])))
        improvement = EI(log=True)
        improvement.update(model=forest, eta=float(forest.predict_marginalized(rows)[0].min()))
        maximiser = LocalAndSortedRandomSearch(
            space,
            improvement,
            challengers=self.challengers,
            local_search_iterations=self.searches,
            n_steps_plateau_walk=self.plateau,
            seed=seeds[2],
        )
        sort_starts(maximiser)
        challengers: Iterator[Configuration] = maximiser.maximize(
            configurations, random_design=ProbabilityRandomDesign(self.epsilon, seed=seeds[3])
        )
        return challengers

    def _decode(self, challenger: Mapping[str, int], rng: np.random.Generator) -> Config:
        """Return the config that is nearest to a challenger's parameters; missing parameters are drawn at random."""

        def suggest(part: Part) -> Value:
            index = challenger.get(part.parameter, int(rng.integers(len(part.values))))
            return part.values[min(int(index), len(part.values) - 1)]

        return self.parameters.decode(suggest)


def make_config_space(distributions: Mapping[str, BaseDistribution], seed: int) -> ConfigurationSpace:
    """Return ConfigSpace's equivalent of Optuna's distributions of indices."""
    from ConfigSpace import CategoricalHyperparameter, ConfigurationSpace, UniformIntegerHyperparameter

    space = ConfigurationSpace(seed=seed)
    for name, distribution in distributions.items():
        if isinstance(distribution, IntDistribution):
            space.add(UniformIntegerHyperparameter(name, distribution.low, distribution.high))
        else:
            space.add(CategoricalHyperparameter(name, distribution.choices))  # type: ignore[attr-defined]
    return space


def make_configuration(space: ConfigurationSpace, params: Mapping[str, int]) -> Configuration:
    """Return the point of ``space`` that is nearest to the parameters, with default values for those that are missing.

    An index may exceed its range, because probing may not show the widest range of a parameter.
    """
    from ConfigSpace import Configuration, UniformIntegerHyperparameter

    values = {}
    for name, parameter in space.items():
        index = params.get(name, parameter.default_value)
        values[name] = min(index, parameter.upper) if isinstance(parameter, UniformIntegerHyperparameter) else index
    return Configuration(space, values)


def log_scale(costs: Floats) -> Floats:
    """Scale ``costs`` linearly, such that the worst one is 1, and return their logarithms.

    Source: ``RunHistoryLogScaledEncoder`` of SMAC3. The cost that is scaled to 0 is as far below the best cost as the
    5th percentile is above it.
    """
    best, worst = costs.min(), costs.max()
    zero = best - (np.percentile(costs, 5) - best) - 1e-10
    logarithms: Floats = np.log((costs - zero) / (worst - zero))
    return logarithms


def sort_starts(maximiser: object) -> None:
    """Sort the starts of SMAC's local searches, which come from a set, so that they do not depend on hashes."""
    search = maximiser._local_search  # type: ignore[attr-defined]
    starts = search._get_init_points_from_previous_configs
    search._get_init_points_from_previous_configs = lambda *args: sorted(
        starts(*args), key=lambda start: start.get_array().tolist()
    )
