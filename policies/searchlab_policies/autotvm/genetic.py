"""AutoTVM's GATuner (``python/tvm/autotvm/tuner/ga_tuner.py``, TVM 0.17)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar

import numpy as np

from searchlab.errors import SearchlabError
from searchlab.options import Between, Natural, UnitInterval
from searchlab.policy import NeverTwice, Origin, private_rng
from searchlab.records import Trial
from searchlab.space import Config, Knob, Space, Value

COST_DEVIATION = "a trial's cost is the study's statistic over its repeats; AutoTVM uses the mean"

MAX_STALE_GENERATIONS = 20
"""The number of generations without a new config, in a nearly exhausted space, after which a random one is drawn."""


class AutoTVMGenetic(NeverTwice):
    """AutoTVM's genetic algorithm, GATuner.

    Each generation is bred from the previous one and the elites; parents are chosen in proportion to their throughput.
    A child takes the knobs up to a random point from one parent and the remaining knobs from the other. Each knob is
    then redrawn with probability ``mutation_prob``. A generation may contain duplicates and configs from earlier
    generations.

    Args:
        population: The number of configs in a generation.
        elites: The number of best configs found so far that may also be parents.
        mutation_prob: The probability of redrawing each of a child's knobs.
    """

    origin: ClassVar[Origin | None] = Origin(
        name="AutoTVM's GATuner",
        version="TVM 0.17",
        source="python/tvm/autotvm/tuner/ga_tuner.py",
        kind="reproduction",
        deviations=(
            "a config that is proposed again keeps its first measurement and uses no trial; AutoTVM measures it again",
            "the last batch of a generation may therefore be smaller; AutoTVM fills it from that generation",
            COST_DEVIATION,
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        population: Annotated[int, Between(2)] = 100,
        elites: Natural = 3,
        mutation_prob: UnitInterval = 0.1,
    ) -> None:
        super().__init__(space, seed=seed)
        self.population = self.n_startup = population
        self.elites = elites
        if elites > population:
            raise SearchlabError(f"option 'elites' is {elites}; it must be at most 'population', which is {population}")
        self.mutation_prob = mutation_prob
        self._throughput_by_config: dict[Config, float] = {}
        self._elites: list[Config] = []
        self._generation_number = 0
        self._genes = space.sample_new(private_rng(seed, "autotvm-ga", 0), self.population, ())

    def ask(self, n: int) -> Sequence[Config]:
        return super().ask(min(n, len(self._unproposed_genes()) or n))  # no more than the rest of the generation

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        return self._unproposed_genes()

    def _unproposed_genes(self) -> list[Config]:
        return list(dict.fromkeys(gene for gene in self._genes if gene not in self.seen))

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        self._throughput_by_config.update((trial.config, 1 / trial.cost) for trial in trials)
        stale_count = 0
        while (
            self._genes
            and all(gene in self._throughput_by_config for gene in self._genes)
            and stale_count < MAX_STALE_GENERATIONS
        ):
            self._breed()
            stale_count += 1
        if stale_count == MAX_STALE_GENERATIONS:
            rng = private_rng(self.seed, "autotvm-ga: new", len(self.trials))
            self._genes = self.space.sample_new(rng, self.population, self.seen)

    def _breed(self) -> None:
        """Breed the next generation from the current one, all of which has been measured."""
        self._generation_number += 1
        rng = private_rng(self.seed, "autotvm-ga", self._generation_number)
        genes = [*self._genes, *self._elites]
        throughput = np.array([self._throughput_by_config[gene] for gene in genes])
        self._elites = [genes[i] for i in np.argsort(throughput, kind="stable")[len(genes) - self.elites :]]
        probabilities = throughput + 1e-8 * max(1.0, throughput.max())
        probabilities /= probabilities.sum()
        self._genes = []
        while len(self._genes) < self.population:
            a, b = rng.choice(len(genes), size=2, replace=len(genes) < 2, p=probabilities)
            self._genes.append(self._make_child(genes[a], genes[b], rng))

    def _make_child(self, a: Config, b: Config, rng: np.random.Generator) -> Config:
        names = list(a)
        names_from_a = set(names[: int(rng.integers(max(1, len(names))))])
        inherited_values = {**a, **{name: value for name, value in b.items() if name not in names_from_a}}

        def choose(knob: Knob) -> Value:
            value = inherited_values.get(knob.name)
            if value is None or value not in knob.choices or rng.random() < self.mutation_prob:
                return knob.choices[int(rng.integers(len(knob.choices)))]
            return value

        return self.space.decide(choose)
