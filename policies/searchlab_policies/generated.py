"""The base class and the objective of optimisers that were written by a language model."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, Generic, TypeVar

import numpy as np

from searchlab.policy import NeverTwice, private_rng
from searchlab.records import SHORTEST, Trial
from searchlab.space import Config, Space

Role = TypeVar("Role")
"""The information that a step keeps about its candidate, such as the neighbourhood from which it was drawn."""


class GeneratedOptimiser(NeverTwice, Generic[Role], needs_asks=True):
    """A search in steps, each of which proposes a candidate and is completed once the candidate's cost is known.

    A known candidate uses no trial: its step is completed with the known cost, as in Kernel Tuner. After many known
    candidates in a row, the space is nearly exhausted, and a random config is proposed.

    Args:
        repaired: Whether to correct the faults of the released code.

    Attributes:
        max_repeats: The number of consecutive known candidates after which a random config is proposed.
        tag: The name of the random streams for steps that are completed by a trial; see
            :func:`~searchlab.policy.private_rng`.
    """

    max_repeats: ClassVar[int]
    tag: ClassVar[str]

    def __init__(self, space: Space, *, seed: int, repaired: bool) -> None:
        super().__init__(space, seed=seed)
        self.repaired = repaired
        self._costs: dict[Config, float] = {}
        self._pending: dict[Config, Role] = {}  # the role of each proposal without a result so far

    @abstractmethod
    def _candidates(self, rng: np.random.Generator) -> Iterator[tuple[Config, Role] | None]:
        """Yield the candidate of each step with its role, or None if a step has none."""

    @abstractmethod
    def _settle(self, config: Config, cost: float, role: Role, rng: np.random.Generator) -> None:
        """Complete the step whose candidate was ``config``."""

    def _learn(self, config: Config, cost: float) -> None:
        """Learn from a trial that no step proposed: a random config, or one of a warm start."""

    @property
    def _completes_repeated_steps(self) -> bool:
        """Whether a step with a known candidate is completed; otherwise, it is skipped."""
        return True

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        repeats = 0
        for candidate in self._candidates(rng):
            if candidate is not None and candidate[0] not in self.seen:
                config, role = candidate
                self._pending[config] = role
                repeats = 0
                yield config
                continue
            repeats += 1
            if candidate is not None and candidate[0] in self._costs and self._completes_repeated_steps:
                self._settle(candidate[0], self._costs[candidate[0]], candidate[1], rng)
            if repeats == self.max_repeats:
                return

    def tell(self, trials: Sequence[Trial]) -> None:
        before = len(self.trials)
        super().tell(trials)
        for number, trial in enumerate(self.trials[before:], before):
            cost = self._costs[trial.config] = objective(trial, self.repaired)
            if trial.config in self._pending:
                role = self._pending.pop(trial.config)
                self._settle(trial.config, cost, role, private_rng(self.seed, self.tag, number))
            else:
                self._learn(trial.config, cost)


def objective(trial: Trial, repaired: bool) -> float:
    """Return the cost that a generated optimiser minimises: in milliseconds, or its logarithm if ``repaired``."""
    if math.isinf(trial.cost):
        return math.inf if repaired else sys.float_info.max
    return math.log(max(trial.cost, SHORTEST) * 1e3) if repaired else trial.cost * 1e3
