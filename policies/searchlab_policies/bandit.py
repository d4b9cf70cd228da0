"""A multi-armed bandit over other policies, which share all results, modelled on OpenTuner's meta-technique.

Sources: Ansel et al., "OpenTuner: An Extensible Framework for Program Autotuning" (PACT 2014), section 3.2, and its
``bandittechniques.py``; for the area-under-the-curve credit, Fialho et al., "Comparison-Based Adaptive Strategy
Selection with Bandits in Differential Evolution" (PPSN 2010).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from searchlab.options import Count, NonNegative
from searchlab.policy import NeverTwice, Origin
from searchlab.records import Trial
from searchlab.space import Config, Space

from .arms import make_arms

ARMS = ("evolutionary", "annealing", "droplet")
"""The default arms: built-in policies that need no cost model."""


class Bandit(NeverTwice, needs_asks=True):
    """A multi-armed bandit that chooses which of several policies proposes each config of a batch.

    Policies that recently found improvements are chosen more often; the others are chosen often enough to notice a
    change. Every arm is told every trial, so each must be able to learn from trials that it did not propose. A trial is
    credited to the arm that first proposed it; trials of a warm start are credited to none.

    Args:
        arms: A list of policies, each a registered name, ``"module:Class"``, or ``{"name": ..., "options": {...}}``. A
            policy that uses a cost model gets its own: ``{"name": "xgb"}`` is short for
            ``{"name": "xgb", "cost_model": "xgboost", "features": "knob"}``, and ``cost_model`` may also be
            ``{"name": ..., "options": {...}}``.
        exploration: The weight C of the term that favours rarely used arms.
        window: The number of latest results that are considered.
    """

    origin = Origin(
        "OpenTuner's AUCBanditMetaTechnique",
        "0.8",
        "opentuner/search/bandittechniques.py",
        "relative",
        (
            "the arms are evolutionary, annealing and droplet; OpenTuner's are differential evolution, greedy "
            "mutation and two Nelder-Mead searches",
            "an arm's places in a batch count as uses immediately, so that arms share a batch",
            "every arm is told every trial, whichever arm proposed it",
            "a proposal that is already known does not count as a use of its arm; the arm is asked again",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        arms: Sequence[str | Mapping[str, Any]] = ARMS,
        exploration: NonNegative = 0.05,
        window: Count = 500,
    ) -> None:
        super().__init__(space, seed=seed)
        self.exploration = exploration
        self.arms = make_arms(arms, space, seed)
        # (arm, whether the result was a new best) for the latest results, oldest first.
        self.history: deque[tuple[int, bool]] = deque(maxlen=window)
        self._best_cost = math.inf
        self._arms_by_config: dict[Config, int] = {}

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        batch_arms: list[int] = []
        exhausted_arms: set[int] = set()
        while len(batch_arms) < n and len(exhausted_arms) < len(self.arms):
            slot_counts = [0] * len(self.arms)
            for _ in range(n - len(batch_arms)):
                slot_counts[self.choose_arm([*batch_arms, *_list_pending_arms(slot_counts)], exhausted_arms, rng)] += 1
            for arm, slot_count in enumerate(slot_counts):
                # A config that another arm has already proposed is credited to that arm; the current arm is asked
                # again.
                batch = self.arms[arm].ask(slot_count) if slot_count else []
                if len(batch) < slot_count:
                    exhausted_arms.add(arm)
                for config in batch:
                    if config not in self.seen:
                        self._arms_by_config[config] = arm
                        batch_arms.append(arm)
                        yield config

    def choose_arm(self, pending_arms: Sequence[int], exhausted_arms: set[int], rng: np.random.Generator) -> int:
        """Return the arm with the highest score; ties are broken at random.

        Args:
            pending_arms: The arm of each place in the batch so far.
            exhausted_arms: The arms that have nothing left to propose.
            rng: The source of randomness.
        """
        candidates = [arm for arm in range(len(self.arms)) if arm not in exhausted_arms]
        scores = [self.score_arm(arm, pending_arms) for arm in candidates]
        return int(rng.choice([arm for arm, score in zip(candidates, scores, strict=True) if score == max(scores)]))

    def score_arm(self, arm: int, pending_arms: Sequence[int]) -> float:
        """Return an arm's credit plus C times its exploration term, or infinity if it was not used in the window."""
        use_count = sum(used_arm == arm for used_arm, _ in self.history) + pending_arms.count(arm)
        if not use_count:
            return math.inf
        bonus = math.sqrt(2 * math.log2(len(self.history) + len(pending_arms)) / use_count)
        return self.credit_arm(arm) + self.exploration * bonus

    def credit_arm(self, arm: int) -> float:
        """Return the share of an arm's results in the window that were a new best, weighted towards the latest.

        This is the area under a curve that rises at each new best: for V results numbered i = 1 to V from the oldest,
        2 / (V (V + 1)) times the sum of i over those that were a new best.
        """
        results = [is_improvement for used_arm, is_improvement in self.history if used_arm == arm]
        area = sum(position for position, is_improvement in enumerate(results, 1) if is_improvement)
        return area / (len(results) * (len(results) + 1) / 2) if results else 0.0

    def warm_start(self, trials: Sequence[Trial]) -> None:
        self._record_trials(trials)
        for policy in self.arms:
            policy.warm_start(trials)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._record_trials(trials)
        for policy in self.arms:
            policy.tell(trials)

    def _record_trials(self, trials: Sequence[Trial]) -> None:
        """Record which trials were a new best, for the arms that proposed them."""
        previous_count = len(self.trials)
        super().tell(trials)
        for trial in self.trials[previous_count:]:
            is_improvement = trial.cost < self._best_cost
            self._best_cost = min(self._best_cost, trial.cost)
            arm = self._arms_by_config.pop(trial.config, None)
            if arm is not None:
                self.history.append((arm, is_improvement))


def _list_pending_arms(slot_counts: Sequence[int]) -> list[int]:
    return [arm for arm, slot_count in enumerate(slot_counts) for _ in range(slot_count)]
