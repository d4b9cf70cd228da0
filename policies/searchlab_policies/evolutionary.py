"""A genetic algorithm whose genes are the knobs.

Source: AutoTVM's GATuner (``tvm.autotvm.tuner.ga_tuner``, TVM up to 0.22), after Chen et al., "Learning to Optimize
Tensor Programs" (NeurIPS 2018), section 6. Crossover is uniform because the order of knobs has no meaning in most
spaces. Parents are drawn from the measured trials, so a warm start contributes parents, too, and a batch may end in the
middle of a generation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np

from searchlab.costmodel import compute_scores
from searchlab.errors import SearchlabError
from searchlab.options import Between, Natural, UnitInterval
from searchlab.policy import NeverTwice, Origin
from searchlab.records import Trial
from searchlab.space import Config, Space


class Evolutionary(NeverTwice):
    """A genetic algorithm on measured trials.

    Each config has two measured configs as parents, which are drawn with a probability proportional to throughput. A
    child inherits each knob's value from either parent.

    Args:
        population: The number of trials in a generation. The first generation is random, and parents come from the last
            complete generation, so the budget should allow several generations.
        elites: The number of best trials from all generations that may also be parents.
        mutation_prob: The probability of redrawing each of a child's knobs.
    """

    origin = Origin(
        "AutoTVM's GATuner",
        "TVM 0.17",
        "python/tvm/autotvm/tuner/ga_tuner.py",
        "relative",
        (
            "16 trials in a generation and 4 elites instead of 100 and 3",
            "uniform instead of one-point crossover",
            "parents are measured trials, including those of a warm start",
            "failed trials have a small chance of becoming parents",
            "no config is measured twice: a known child is mutated again",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        population: Annotated[int, Between(2)] = 16,
        elites: Natural = 4,
        mutation_prob: UnitInterval = 0.1,
    ) -> None:
        super().__init__(space, seed=seed)
        self.population = self.n_startup = population
        self.elites = elites
        if elites > population:
            raise SearchlabError(f"option 'elites' is {elites}; it must be at most 'population', which is {population}")
        self.mutation_prob = mutation_prob

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        parents = self.select_parents()
        if not parents:
            return
        fitness = compute_scores(parents)
        # Every parent keeps a small probability, because two parents are needed even if all trials but one failed.
        probabilities = fitness + 1e-3
        probabilities /= probabilities.sum()
        for _ in range(n):
            a, b = rng.choice(len(parents), size=2, replace=False, p=probabilities)
            yield self.make_child(parents[a].config, parents[b].config, rng)

    def select_parents(self) -> Sequence[Trial]:
        """Return the latest complete generation and the elites without duplicates; empty in the first generation."""
        completed_count = len(self.trials) // self.population * self.population
        if not completed_count:
            return []
        elites = sorted(self.trials[:completed_count], key=lambda trial: trial.cost)[: self.elites]
        generation = self.trials[completed_count - self.population : completed_count]
        distinct_trials = list({trial.config: trial for trial in [*generation, *elites]}.values())
        return distinct_trials if len(distinct_trials) > 1 else []

    def make_child(self, a: Config, b: Config, rng: np.random.Generator) -> Config:
        """Cross two configs and mutate the child until it is new, up to a limited number of attempts."""
        child = self.space.crossover(a, b, rng)
        values = {name: value for name, value in child.items() if rng.random() >= self.mutation_prob}
        return self.mutate_until_new(self.space.repair(values, rng), rng)
