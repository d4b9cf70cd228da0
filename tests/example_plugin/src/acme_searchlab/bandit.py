"""Each choice of each knob as an arm of a bandit."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from searchlab import Config, Knob, NeverTwice, Space, Trial
from searchlab.options import NonNegative, UnitInterval
from searchlab.space import Value


class Bandit(NeverTwice):
    """Takes for each knob the choice with the highest upper confidence bound.

    Source: Auer et al., "Finite-time Analysis of the Multiarmed Bandit Problem" (Machine Learning 47, 2002), UCB1. The
    reward of a trial is its speed over that of the fastest so far.

    explore: weight of the confidence radius. restart: probability that a choice is drawn at random.
    """

    def __init__(self, space: Space, *, seed: int, explore: NonNegative = 0.3, restart: UnitInterval = 0.1) -> None:
        super().__init__(space, seed=seed)
        self.explore = explore
        self.restart = restart
        self.speeds: dict[tuple[str, Value], list[float]] = defaultdict(list)
        self.fastest = 0.0

    def tell(self, trials: Sequence[Trial]) -> None:
        before = len(self.trials)
        super().tell(trials)
        for trial in self.trials[before:]:
            speed = 1 / trial.cost
            self.fastest = max(self.fastest, speed)
            for arm in trial.config.items():
                self.speeds[arm].append(speed)

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        def choose(knob: Knob) -> Value:
            bounds = [self.bound(knob.name, value) for value in knob.choices]
            greedy = self.fastest > 0 and rng.random() >= self.restart
            return knob.choices[int(np.argmax(bounds) if greedy else rng.integers(len(bounds)))]

        for _ in range(n):
            yield self.space.decide(choose)

    def bound(self, name: str, value: Value) -> float:
        """Mean reward of a choice, plus its confidence radius."""
        speeds = self.speeds.get((name, value), [])
        if not speeds or not self.fastest:
            return math.inf
        radius = math.sqrt(2 * math.log(len(self.trials)) / len(speeds))
        return sum(speeds) / len(speeds) / self.fastest + self.explore * radius
