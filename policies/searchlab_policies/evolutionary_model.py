"""Evolutionary search on the predictions of a cost model, as in Ansor and MetaSchedule.

Sources: Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning" (OSDI 2020), section 5.1;
Shao et al., "Tensor Program Optimization with Probabilistic Programs" (NeurIPS 2022), and ``evolutionary_search.cc`` in
``tvm.s_tir.meta_schedule``, whose loop and defaults are used here for any space and any cost model. :mod:`.ansor`
reproduces Ansor itself. Crossover is off by default: only Ansor's paper describes it; neither implementation has it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from searchlab.arrays import Floats
from searchlab.costmodel import BoundCostModel
from searchlab.options import Count, Natural, UnitInterval
from searchlab.policy import Origin
from searchlab.space import Config, Space

from .acquisition import AcquisitionName
from .model_guided import FailureHandling, ModelGuided, compute_selection_probabilities

MUTATION_WEIGHTS = {
    "llvm": {"tile": 0.9, "location": 0.05, "unroll": 0.03, "parallel": 0.02, "sketch": 0.0, "other": 0.1},
    "cuda": {"tile": 0.9, "unroll": 0.08, "sketch": 0.0, "other": 0.1},
}
"""The weights for choosing a knob to mutate, from TVM's ``Mutator.create``; TVM has no ``other`` knobs."""


class EvolutionaryModel(ModelGuided):
    """Evolution on the predictions of a cost model, as in Ansor and MetaSchedule, in any space.

    A population of configs evolves for a few generations, guided by predicted scores. The best new configs found on the
    way are proposed. The cost model is trained on all trials after every batch.

    Args:
        n_startup: The number of random trials to run before the cost model is used. If none of them succeeds, random
            trials continue until one does. Ignored if the model was trained on other runs (a warm start).
        population: The number of configs in a generation.
        generations: The number of generations to breed for each batch.
        measured_ratio: The maximum fraction of the first generation to fill with the best measured configs; the rest is
            random.
        mutation_prob: The probability of mutating one knob of a child. Mutating a tile moves a factor to a different
            level.
        crossover_prob: The probability that a child has two parents and takes each knob from one of them.
        epsilon: The probability of filling a batch slot with a random config.
        predictions: The maximum number of distinct configs to predict for a batch. By default, 256 if a prediction
            requires scheduling the program, which takes milliseconds, and otherwise enough for all generations. If the
            number is too small for all generations, the population is reduced.
        failures: How the search learns from failed trials. With "score", the cost model learns a score of 0 for them.
            With "model", the cost model learns only from successful trials, and its predictions are multiplied by the
            probability that a config works. A classifier (extremely randomised trees) predicts that probability from
            the knobs.
        acquisition: What the search maximises: the predicted score ("mean"), the expected improvement on the best trial
            ("ei"), the mean plus one standard deviation ("ucb"), or the prediction of a member of the model's ensemble,
            drawn for each batch ("thompson"). All but "mean" need a cost model with uncertainty: the trees of
            "random-forest" and "extra-trees" form an ensemble; for boosted trees, eight copies of the model are trained
            on bootstrap samples, which takes eight times as long.
    """

    origin = Origin(
        "MetaSchedule's EvolutionarySearch",
        "TVM 0.27",
        "src/s_tir/meta_schedule/search_strategy/evolutionary_search.cc",
        "relative",
        (
            "any cost model and features, trained on all trials after every batch",
            "the first 16 trials are random; TVM evolves on random scores until it has 100",
            "any space; knobs that TVM does not sample receive a tenth of the mutations",
            "mutations never fail, so none is retried",
            "a parent may enter the next generation unchanged more than once, as in Ansor",
            "each place of a batch is random with probability 0.05; TVM fixes their number and rounds down",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        cost_model: BoundCostModel,
        n_startup: Count = 16,
        population: Count = 512,
        generations: Natural = 4,
        measured_ratio: UnitInterval = 0.2,
        mutation_prob: UnitInterval = 0.85,
        crossover_prob: UnitInterval = 0.0,
        epsilon: UnitInterval = 0.05,
        predictions: Count | None = None,
        failures: FailureHandling = "score",
        acquisition: AcquisitionName = "mean",
    ) -> None:
        super().__init__(
            space,
            seed=seed,
            cost_model=cost_model,
            n_startup=n_startup,
            epsilon=epsilon,
            failures=failures,
            acquisition=acquisition,
        )
        self.measured_ratio = measured_ratio
        self.mutation_prob = mutation_prob
        self.crossover_prob = crossover_prob
        self.predictions = self.limit_predictions(predictions, population * (generations + 1))
        self._mutation_weights = MUTATION_WEIGHTS.get(space.target.kind, MUTATION_WEIGHTS["llvm"])
        self.population = max(1, min(population, self.predictions // (generations + 1)))
        self.generations = min(generations, self.predictions // self.population - 1)
        self.record_effective_options({"population": population, "generations": generations})

    def search(self, n: int, rng: np.random.Generator) -> list[Config]:
        """Return the ``n`` new configs with the best predictions over all generations, best first."""
        predictions: dict[Config, float] = {}
        population = self.choose_starting_configs(self.population, int(self.population * self.measured_ratio), rng)
        scores = self.predict_scores(population, predictions)
        for _ in range(self.generations):
            population = self._breed(population, scores, rng)
            scores = self.predict_scores(population, predictions)
        # nlargest is stable: among equal predictions, the first config is preferred.
        return heapq.nlargest(
            n, (config for config in predictions if config not in self.seen), key=predictions.__getitem__
        )

    def _breed(self, population: Sequence[Config], scores: Floats, rng: np.random.Generator) -> list[Config]:
        """Breed the next generation. Parents are selected in proportion to their scores; negative scores count as 0."""
        size = self.population
        parents = rng.choice(len(population), size=(size, 2), p=compute_selection_probabilities(scores))
        is_crossed = rng.random(size) < self.crossover_prob
        is_mutated = rng.random(size) < self.mutation_prob
        children = []
        for (first, second), cross, mutate in zip(parents.tolist(), is_crossed, is_mutated, strict=True):
            child = population[first]
            if cross:
                child = self.space.crossover(child, population[second], rng)
            children.append(self.space.mutate_by_role(child, rng, self._mutation_weights) if mutate else child)
        return children
