"""What the optimisers that a language model wrote share: how a known config is settled, and what they minimise."""

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
"""What a step must know about its candidate, such as the neighbourhood that it comes from."""


class GeneratedOptimiser(NeverTwice, Generic[Role], needs_asks=True):
    """A sequence of steps, each of which proposes a candidate and is settled once its cost is known.

    A candidate that is known uses no trial: its step is settled with the known cost, as in Kernel Tuner. A random
    config is proposed after many such candidates in a row, because the space is nearly exhausted.

    Args:
        repaired: Whether faults of the released code are corrected.

    Attributes:
        most_known: The number of known candidates in a row after which a random config is proposed.
        tag: The name of the random streams of steps that are settled by a trial; see
            :func:`~searchlab.policy.private_rng`.
    """

    most_known: ClassVar[int]
    tag: ClassVar[str]

    def __init__(self, space: Space, *, seed: int, repaired: bool) -> None:
        super().__init__(space, seed=seed)
        self.repaired = repaired
        self._costs: dict[Config, float] = {}
        self._pending: dict[Config, Role] = {}  # the role of each proposal that was not told yet

    @abstractmethod
    def _candidates(self, rng: np.random.Generator) -> Iterator[tuple[Config, Role] | None]:
        """Yield the candidate of each step with its role, or None if a step has none."""

    @abstractmethod
    def _settle(self, config: Config, cost: float, role: Role, rng: np.random.Generator) -> None:
        """Complete the step whose candidate was ``config``."""

    def _learn(self, config: Config, cost: float) -> None:
        """Learn from a trial that no step proposed: a random config, or one of a warm start."""

    @property
    def _settles_known(self) -> bool:
        """Whether a step is settled if its candidate is known; otherwise, the next step replaces it."""
        return True

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        known = 0
        for candidate in self._candidates(rng):
            if candidate is not None and candidate[0] not in self.seen:
                config, role = candidate
                self._pending[config] = role
                known = 0
                yield config
                continue
            known += 1
            if candidate is not None and candidate[0] in self._costs and self._settles_known:
                self._settle(candidate[0], self._costs[candidate[0]], candidate[1], rng)
            if known == self.most_known:
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
    """Return what a generated optimiser minimises: milliseconds, or their logarithm if it is repaired."""
    if math.isinf(trial.cost):
        return math.inf if repaired else sys.float_info.max
    return math.log(max(trial.cost, SHORTEST) * 1e3) if repaired else trial.cost * 1e3
