"""A sequence of policies, such as random search followed by coordinate descent.

Source: Canesche, Verma and Pereira, "Explore as a Storm, Exploit as a Raindrop: On the Benefit of Fine-Tuning Kernel
Schedulers with Coordinate Descent" (arXiv 2406.20037, 2024).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from searchlab.errors import SearchlabError
from searchlab.options import Count
from searchlab.policy import NeverTwice, Origin
from searchlab.records import Trial
from searchlab.space import Config, Space

from .arms import make_arms

ARMS = ("random", "droplet")


class Chain(NeverTwice, needs_asks=True, stops=True):
    """A sequence of policies, each of which starts from all trials of its predecessors.

    A policy gives way to the next after a number of trials, after a number of trials without a new best, or once it has
    nothing left to propose. The last one continues until the run ends; if it stops at a local optimum, as ``droplet``
    does, the run stops, too. A policy receives its predecessors' trials as a warm start.

    Args:
        arms: A list of policies, each a registered name, ``"module:Class"``, or ``{"name": ..., "options": {...}}``. A
            policy that uses a cost model gets its own, as in ``bandit``. For DPAnsor, use ``["ansor", "droplet"]``
            and ``trials = 300``.
        trials: The number of trials of each policy except the last: one number for all of them, or a list.
        patience: The number of consecutive trials without a new best after which a policy gives way; None for no limit.
    """

    origin = Origin(
        "DPAnsor",
        "2024",
        "Canesche, Verma and Pereira, arXiv 2406.20037",
        "relative",
        (
            "by default, the first policy is random search, for 32 trials; DPAnsor's is Ansor, for 300",
            "the descent is AutoTVM's, over the knobs of any space; DPAnsor's is over the parameters of a sketch",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        arms: Sequence[str | Mapping[str, Any]] = ARMS,
        trials: Count | Sequence[Count] = 32,
        patience: Count | None = None,
    ) -> None:
        super().__init__(space, seed=seed)
        self.arms = make_arms(arms, space, seed)
        trial_limits = [trials] * (len(self.arms) - 1) if isinstance(trials, int) else list(trials)
        if len(trial_limits) != len(self.arms) - 1:
            raise SearchlabError(
                f"option 'trials' is {trials}; a list must contain one number for each of 'arms' except the last, so "
                f"it must have {len(self.arms) - 1} numbers"
            )
        self.trial_limits = [*trial_limits, math.inf]
        self.patience = patience
        self.current_index = 0  # the arm that proposes
        self._best_cost = math.inf
        self._idle_trial_count = 0  # the current arm's trials since the last new best
        self._proposed_configs: set[Config] = set()  # the configs that the current arm proposed
        self._trial_count = 0  # how many of these have been told

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        while True:
            if self._is_arm_finished():
                self._switch_arm()
            count = min(n, self.trial_limits[self.current_index] - len(self._proposed_configs))
            new_configs = [
                config for config in self.arms[self.current_index].ask(int(count)) if config not in self.seen
            ]
            self._proposed_configs.update(new_configs)
            yield from new_configs
            if new_configs or self.current_index == len(self.arms) - 1:
                return
            self._switch_arm()

    def _is_arm_finished(self) -> bool:
        """Return whether the current arm has used up its trials, or has gone too long without a new best."""
        if self.current_index == len(self.arms) - 1:
            return False
        is_out_of_patience = self.patience is not None and self._idle_trial_count >= self.patience
        return is_out_of_patience or self._trial_count >= self.trial_limits[self.current_index]

    def _switch_arm(self) -> None:
        self.current_index += 1
        self._proposed_configs, self._trial_count, self._idle_trial_count = set(), 0, 0
        if self.trials:
            self.arms[self.current_index].warm_start(self.trials)

    def warm_start(self, trials: Sequence[Trial]) -> None:
        self._record_trials(trials)
        self.arms[self.current_index].warm_start(trials)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._record_trials(trials)
        self.arms[self.current_index].tell(trials)

    def _record_trials(self, trials: Sequence[Trial]) -> None:
        """Count the current arm's trials, and those since the last new best."""
        previous_count = len(self.trials)
        super().tell(trials)
        for trial in self.trials[previous_count:]:
            is_improvement = trial.cost < self._best_cost
            self._best_cost = min(self._best_cost, trial.cost)
            if trial.config in self._proposed_configs:
                self._trial_count += 1
                self._idle_trial_count = 0 if is_improvement else self._idle_trial_count + 1
