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
        stream_tag: The name of the random streams for steps that are completed by a trial; see
            :func:`~searchlab.policy.private_rng`.
    """

    max_repeats: ClassVar[int]
    stream_tag: ClassVar[str]

    def __init__(self, space: Space, *, seed: int, repaired: bool) -> None:
        super().__init__(space, seed=seed)
        self.repaired = repaired
        self._costs: dict[Config, float] = {}
        self._pending_roles: dict[Config, Role] = {}  # the role of each proposal without a result so far

    @abstractmethod
    def _generate_candidates(self, rng: np.random.Generator) -> Iterator[tuple[Config, Role] | None]:
        """Yield the candidate of each step with its role, or None if a step has none."""

    @abstractmethod
    def _complete_step(self, config: Config, cost: float, role: Role, rng: np.random.Generator) -> None:
        """Complete the step whose candidate was ``config``."""

    def _learn_from_trial(self, config: Config, cost: float) -> None:
        """Learn from a trial that no step proposed: a random config, or one of a warm start."""

    @property
    def _completes_repeated_steps(self) -> bool:
        """Whether a step with a known candidate is completed; otherwise, it is skipped."""
        return True

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        repeat_count = 0
        for candidate in self._generate_candidates(rng):
            if candidate is not None and candidate[0] not in self.seen:
                config, role = candidate
                self._pending_roles[config] = role
                repeat_count = 0
                yield config
                continue
            repeat_count += 1
            if candidate is not None and candidate[0] in self._costs and self._completes_repeated_steps:
                self._complete_step(candidate[0], self._costs[candidate[0]], candidate[1], rng)
            if repeat_count == self.max_repeats:
                return

    def tell(self, trials: Sequence[Trial]) -> None:
        previous_count = len(self.trials)
        super().tell(trials)
        for trial_number, trial in enumerate(self.trials[previous_count:], previous_count):
            cost = self._costs[trial.config] = compute_objective(trial, self.repaired)
            if trial.config in self._pending_roles:
                role = self._pending_roles.pop(trial.config)
                self._complete_step(trial.config, cost, role, private_rng(self.seed, self.stream_tag, trial_number))
            else:
                self._learn_from_trial(trial.config, cost)


def compute_objective(trial: Trial, repaired: bool) -> float:
    """Return the cost that a generated optimiser minimises: in milliseconds, or its logarithm if ``repaired``."""
    if math.isinf(trial.cost):
        return math.inf if repaired else sys.float_info.max
    return math.log(max(trial.cost, SHORTEST) * 1e3) if repaired else trial.cost * 1e3
