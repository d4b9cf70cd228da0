"""Ansor's evolutionary search with its own cost model, for any space.

Sources: Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning" (OSDI 2020), section 5;
Apache TVM 0.17: ``sketch_policy.cc`` and the mutation rules in ``sketch_policy_rules.cc``
(``src/auto_scheduler/search_policy``), and the defaults in ``search_policy.py`` and the warm-up in
``cost_model/xgb_model.py`` (``python/tvm/auto_scheduler``). Ansor measures 64 programs per round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from searchlab.arrays import Floats
from searchlab.costmodel import BoundCostModel
from searchlab.options import Count, Natural, UnitInterval
from searchlab.policy import Origin, OwnModel
from searchlab.space import Config, Space

from .model_guided import BestConfigs, ModelGuided, compute_selection_probabilities

ScoreFunction = Callable[[Sequence[Config]], Floats]
"""Maps programs to their scores, of shape (n,)."""

MUTATION_WEIGHTS = {
    "llvm": {"tile": 0.9, "unroll": 0.04, "location": 0.05, "parallel": 0.01, "sketch": 0.0, "other": 0.1},
    "cuda": {"tile": 0.9, "unroll": 0.1, "sketch": 0.0, "other": 0.1},
}
"""The weights for choosing a knob to mutate, by target kind and role; Ansor's space has no ``other`` knobs."""


class Ansor(ModelGuided, own_model=OwnModel("pack-sum", "per-store")):
    """Ansor's evolutionary search with its own cost model, in any space.

    A population of programs evolves for a few generations, guided by predicted scores. The best new programs found on
    the way are proposed. Until the model is trained, the scores are random. Ansor measures 64 programs per round, so
    use ``batch = 64``.

    Args:
        n_startup: The number of programs to measure before the cost model is used (Ansor uses it after more than 100).
            Ignored if the model was trained on other runs (a warm start).
        population: The number of random programs in the initial population, and of programs in each generation.
        generations: The number of generations to breed for each batch.
        measured_ratio: The maximum number of best measured programs to add to the first generation, as a fraction of
            ``population``.
        mutation_prob: The probability of mutating one knob of a child. Mutating a tile moves a factor to a different
            level.
        epsilon: The fraction of the batch that is drawn from the first generation, rounded down.
        predictions: The maximum number of distinct configs to predict for a batch; by default, enough for all
            generations. If the number is too small for all generations, the population is reduced.
    """

    origin = Origin(
        "Ansor",
        "TVM 0.17",
        "src/auto_scheduler/search_policy/sketch_policy.cc, sketch_policy_rules.cc",
        "reproduction",
        (
            "the space is searchlab's; knobs that do not exist in Ansor's space receive a tenth of the mutations",
            "two programs are the same if their configs are; TVM compares printed states",
            "no sample or mutation fails, and a mutation always changes the config; TVM may fail or change nothing",
            "a factor moves between two levels drawn uniformly, as in MetaSchedule; TVM prefers levels longer than 1",
            "a config that yields no program still gets a prediction and may be proposed; TVM drops it",
            "random configs fill a batch that evolution cannot fill; TVM evolves once more, and then stops",
            "a trial's cost is the study's statistic over its repeats; TVM uses the mean",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        cost_model: BoundCostModel,
        n_startup: Count = 101,
        population: Count = 2048,
        generations: Natural = 4,
        measured_ratio: UnitInterval = 0.2,
        mutation_prob: UnitInterval = 0.85,
        epsilon: UnitInterval = 0.05,
        predictions: Count | None = None,
    ) -> None:
        super().__init__(space, seed=seed, cost_model=cost_model, n_startup=n_startup, epsilon=epsilon)
        self.generations = generations
        self.measured_ratio = measured_ratio
        self.mutation_prob = mutation_prob
        self.population = population
        if predictions is not None:
            affordable_population = predictions / (generations + 1 + self.measured_ratio)
            self.population = max(1, min(population, int(affordable_population)))
            first_size = self.population + int(self.population * self.measured_ratio)
            self.generations = min(generations, max(0, predictions - first_size) // self.population)
        self.record_effective_options({"population": population, "generations": generations})
        self._mutation_weights = MUTATION_WEIGHTS.get(space.target.kind, MUTATION_WEIGHTS["llvm"])

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        return self.search(n, rng)  # even before the model is trained: `search` fills the random places itself

    def search(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        """Return the batch, followed by replacements for configs that are already known (``SearchOneRound``)."""
        first_generation = self._make_first_generation(rng)
        random_count = int(n * self.epsilon)
        random_configs = [first_generation[i] for i in rng.integers(len(first_generation), size=3 * random_count)]
        best = self._evolve(first_generation, 2 * n, self.generations, self._make_score_function(rng), rng)
        return [*best[: n - random_count], *random_configs, *best[n - random_count :]]

    def _make_first_generation(self, rng: np.random.Generator) -> list[Config]:
        """Return distinct random configs and the best measured ones, with failures last (``SampleInitPopulation``)."""
        configs = dict.fromkeys(self.space.sample(rng) for _ in range(self.population))
        ranked = sorted(self.trials, key=lambda trial: trial.cost)
        return [*configs, *(trial.config for trial in ranked[: int(self.population * self.measured_ratio)])]

    def _make_score_function(self, rng: np.random.Generator) -> ScoreFunction:
        """Return the function that scores programs: the cost model or, until it is trained, random numbers."""
        predictions: dict[Config, float] = {}
        if self._is_ready():
            return lambda configs: self.predict_scores(configs, predictions)
        return lambda configs: rng.random(len(configs))

    def _evolve(
        self, population: Sequence[Config], n: int, generations: int, score: ScoreFunction, rng: np.random.Generator
    ) -> list[Config]:
        """Return the ``n`` new configs with the best scores in all generations, best first (``EvolutionarySearch``)."""
        best = BestConfigs(n, self.seen)
        for generation in range(generations + 1):
            scores = score(population)
            best.offer(population, scores)
            if generation < generations:
                population = self._breed(population, scores, rng)
        return [config for _, _, config in sorted(best.list_entries(), reverse=True)]

    def _breed(self, population: Sequence[Config], scores: Floats, rng: np.random.Generator) -> list[Config]:
        """Breed the next generation from parents selected in proportion to their scores; mutate most of them."""
        parents = rng.choice(len(population), size=self.population, p=compute_selection_probabilities(scores))
        is_mutated = rng.random(self.population) < self.mutation_prob
        return [
            self.space.mutate_by_role(population[parent], rng, self._mutation_weights) if mutate else population[parent]
            for parent, mutate in zip(parents.tolist(), is_mutated.tolist(), strict=True)
        ]
