"""Nevergrad's discrete (1+1) evolution strategy with a log-normal mutation rate.

Sources: Bäck and Schütz, "Intelligent Mutation Rate Control in Canonical Genetic Algorithms" (ISMIS 1996), for the rule
that draws the rates; ``_OnePlusOne`` with ``mutation="lognormal"`` in ``nevergrad/optimization/optimizerlib.py`` and
``mutations.py`` of Nevergrad 1.0.12.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from searchlab.options import Count, NonNegative, UnitInterval
from searchlab.policy import NeverTwice, Origin, private_rng
from searchlab.records import Trial
from searchlab.space import Config, Knob, Space, Value

MAX_MUTATIONS = 256
"""The maximum number of mutations per ask. If all of them are known, a random config is proposed."""


class OnePlusOne(NeverTwice, needs_asks=True):
    """A (1+1) evolution strategy whose mutation rate adapts to successful mutations.

    The best config so far is mutated: each knob is redrawn with a probability that varies between mutations. The
    mutation becomes the parent if it is not slower. After every ``window`` mutations, the rate of the best of them
    replaces the rate around which new ones are drawn. All mutations in a batch have the same parent, and the strategy
    learns after every trial, so use ``batch = 1``. With a warm start, the parent is the fastest trial.

    Args:
        rate: The initial mutation rate: the probability of redrawing a knob.
        spread: The standard deviation of the logarithm of a mutation's odds of redrawing a knob.
        window: The number of mutations after which the rate is replaced.
    """

    origin = Origin(
        "Nevergrad's LognormalDiscreteOnePlusOne",
        "Nevergrad 1.0.12",
        "nevergrad/optimization/optimizerlib.py",
        "reproduction",
        (
            "the first config is random; Nevergrad's has the middle value of each parameter",
            "a redrawn knob always changes; in Nevergrad, it may keep its value if other parameters have more values",
            "a known mutation uses no trial, but counts in the window; Nevergrad evaluates it again",
            "costs are treated as exact; Nevergrad prefers configs that it has evaluated repeatedly",
            "a random config follows 256 known mutations in an ask",
            "if knobs depend on each other, a mutation is repaired",
        ),
    )

    def __init__(
        self, space: Space, *, seed: int, rate: UnitInterval = 0.2, spread: NonNegative = 0.22, window: Count = 12
    ) -> None:
        super().__init__(space, seed=seed)
        self.initial_rate = self.rate = rate
        self.spread = spread
        self.window = window
        self.parent = space.sample(private_rng(seed, "one-plus-one: start"))
        self._parent_cost = math.inf  # the parent's cost
        self._costs: dict[Config, float] = {}
        self._rates_by_config: dict[Config, float] = {self.parent: rate}  # the rate of each proposal
        self._recent_mutations: list[tuple[float, float]] = []  # cost and rate of each mutation in the window

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        if not self.seen:
            yield self.parent
        for _ in range(MAX_MUTATIONS):
            knobs = [knob for knob in self.space.knobs(self.parent) if len(knob.choices) > 1]
            if not knobs:
                return
            rate = self._draw_rate(len(knobs), rng)
            config = self._mutate_parent(knobs, rate, rng)
            if config in self._costs:
                self._learn_from_mutation(config, self._costs[config], rate)
            elif config not in self.seen:
                self._rates_by_config[config] = rate
                yield config

    def _draw_rate(self, dimension: int, rng: np.random.Generator) -> float:
        """Draw a mutation's rate: p' = 1 / (1 + (1 - p) / p exp(spread N(0, 1))), where p is at least 0.1 / d."""
        rate = max(0.1 / dimension, self.rate)
        return float(1 / (1 + (1 - rate) / rate * math.exp(self.spread * rng.standard_normal())))

    def _mutate_parent(self, knobs: Sequence[Knob], rate: float, rng: np.random.Generator) -> Config:
        """Redraw at least one knob, each with probability ``rate``."""
        is_redrawn = np.zeros(len(knobs), dtype=bool)
        while not is_redrawn.any():
            is_redrawn = rng.random(len(knobs)) <= rate
        redrawn_knobs = [knob for knob, is_mutated in zip(knobs, is_redrawn, strict=True) if is_mutated]
        new_values = {knob.name: redraw(knob, self.parent[knob.name], rng) for knob in redrawn_knobs}
        return self.space.repair({**self.parent, **new_values}, rng)

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        for trial in trials:
            if trial.config in self.seen and trial.config not in self._costs:
                self._costs[trial.config] = trial.cost
                self._learn_from_mutation(
                    trial.config, trial.cost, self._rates_by_config.pop(trial.config, self.initial_rate)
                )

    def _learn_from_mutation(self, config: Config, cost: float, rate: float) -> None:
        if cost <= self._parent_cost:
            self.parent, self._parent_cost = config, cost
        self._recent_mutations.append((cost, rate))
        if len(self._recent_mutations) == self.window:
            self.rate = min(self._recent_mutations, key=lambda mutation: mutation[0])[1]
            self._recent_mutations.clear()


def redraw(knob: Knob, value: Value, rng: np.random.Generator) -> Value:
    """Draw a choice other than ``value``; ``studies/fidelity`` replaces this function with Nevergrad's."""
    return knob.redraw(value, rng)
