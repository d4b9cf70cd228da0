"""Simulated annealing on measured costs.

Source: Kirkpatrick, Gelatt and Vecchi, "Optimization by Simulated Annealing" (Science 220, 1983), after Metropolis et
al. (1953). Costs are compared on a logarithmic scale, so the temperature is a relative slowdown that does not depend on
the workload. Several chains run in parallel, so a batch does not come from a single neighbourhood.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from searchlab.options import Count, NonNegative, UnitInterval
from searchlab.policy import NeverTwice, Origin, private_rng
from searchlab.records import SHORTEST, Trial
from searchlab.space import Config, Space


@dataclass
class AnnealingChain:
    """The state of one chain.

    Attributes:
        trial: The current position; None until one of the chain's trials succeeds.
        step_count: The number of cooling steps so far.
        idle_step_count: The number of steps since the last move.
    """

    trial: Trial | None = None
    step_count: int = 0
    idle_step_count: int = 0


class Annealing(NeverTwice):
    """Simulated annealing on measured times.

    Several chains walk through the space in parallel. Each chain proposes a mutation of its current config. If the
    mutation is faster, the chain moves to it; if it is slower, the chain moves with a probability that falls with the
    temperature (the Metropolis rule). Trials, including those of a warm start, are assigned to the chains in turn.

    Args:
        chains: The number of chains that run in parallel.
        temperature: A chain's initial temperature, as a difference in log cost: a config that takes exp(temperature)
            times as long is accepted with probability 1/e.
        cooling: The factor by which a chain's temperature is multiplied after each step.
        patience: The number of steps without a move after which a chain restarts from the best trial so far, at the
            initial temperature.
    """

    origin = Origin(
        "simulated annealing",
        "1983",
        "Kirkpatrick, Gelatt and Vecchi, Science 220; Metropolis et al., 1953",
        "relative",
        (
            "four chains run in parallel",
            "the temperature falls with every trial, and is a difference in log cost",
            "a chain that has not moved for 16 steps restarts from the best trial, at the initial temperature",
            "no config is measured twice: a known proposal is mutated again",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        chains: Count = 4,
        temperature: NonNegative = 0.3,
        cooling: UnitInterval = 0.85,
        patience: Count = 16,
    ) -> None:
        super().__init__(space, seed=seed)
        self.temperature = temperature
        self.cooling = cooling
        self.patience = patience
        self.chains = [AnnealingChain() for _ in range(chains)]
        self.best: Trial | None = None
        self._measured: set[Config] = set()

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        for _ in range(n):
            # The chain that this trial will be assigned to once it has been measured.
            chain = self.chains[len(self.seen) % len(self.chains)]
            config = self.space.sample(rng) if chain.trial is None else chain.trial.config
            yield self.mutate_until_new(config, rng)

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        for trial in trials:
            if trial.config in self._measured:
                continue
            trial_number = len(self._measured)
            self._measured.add(trial.config)
            if trial.config in self.space:
                if math.isfinite(trial.cost) and (self.best is None or trial.cost < self.best.cost):
                    self.best = trial
                self._anneal(self.chains[trial_number % len(self.chains)], trial, trial_number)

    def _anneal(self, chain: AnnealingChain, trial: Trial, trial_number: int) -> None:
        rng = private_rng(self.seed, "annealing", trial_number)
        temperature = self.temperature * self.cooling**chain.step_count
        chain.step_count += 1
        if rng.random() < compute_acceptance_probability(trial, chain.trial, temperature):
            chain.trial, chain.idle_step_count = trial, 0
            return
        chain.idle_step_count += 1
        if chain.idle_step_count == self.patience:
            chain.trial, chain.step_count, chain.idle_step_count = self.best, 0, 0


def compute_acceptance_probability(new: Trial, old: Trial | None, temperature: float) -> float:
    """Return the probability of a move: min(1, exp(-(log new - log old) / T)), or 0 if ``new`` failed."""
    if math.isinf(new.cost):
        return 0.0
    if old is None or new.cost <= old.cost:
        return 1.0
    return math.exp(-math.log(new.cost / max(old.cost, SHORTEST)) / temperature) if temperature > 0 else 0.0
