"""One search over the options of a policy: Optuna's tree-structured Parzen estimator over the scores of replays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from optuna.samplers import TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from ..errors import SearchlabError
from .journal import SearchLog, quiet
from .ranges import Ranges, holds, rounded
from .replays import Problem, Replays, Seeds

OnTrial = Callable[[str, int, float | None], None]
"""Called with the name of a search, the number of its trial (from 0), and the score; None if it was refused."""

N_STARTUP = 10
"""Trials drawn at random before the model is asked."""


@dataclass(frozen=True)
class Searched:
    """The best options of a search, with its score there; and how many options it tried, and were refused."""

    options: dict[str, Any]
    score: float
    trials: int
    refused: int


@dataclass(frozen=True)
class OptionSearch:
    """A search over ``ranges`` for options that score best on ``problems``, the mean over problems and seeds.

    default: the options of the policy without any search.
    """

    problems: Sequence[Problem]
    ranges: Ranges
    default: dict[str, Any]
    seeds: Seeds

    def run(self, log: SearchLog, count: int, replays: Replays, on_trial: OnTrial) -> Searched:
        """Try ``count`` sets of options, the default first if it is in the ranges. ``log`` may hold some already."""
        for number in range(count):
            if number == len(log.trials):
                self._try(self._params(number, log.trials), log, replays)
            on_trial(log.name, number, log.trials[number].value)
        return self._best(log.trials[:count])

    def _params(self, number: int, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
        default = {name: self.default[name] for name in self.ranges if name in self.default}
        in_ranges = all(name in default and holds(self.ranges[name], default[name]) for name in self.ranges)
        return default if number == 0 and in_ranges else suggest(trials, self.ranges, [self.seeds.seed, number])

    def _try(self, params: dict[str, Any], log: SearchLog, replays: Replays) -> None:
        options = self.default | params
        try:
            for problem in self.problems:
                problem.with_options(options).start()
        except SearchlabError as error:
            log.add(params, self.ranges, None, {"refused": str(error)})
            return
        scores = {
            str(problem): float(replays.scores(problem, options, self.seeds.of_search(problem)).mean())
            for problem in self.problems
        }
        log.add(params, self.ranges, float(np.mean(list(scores.values()))), {"scores": scores})

    def _best(self, trials: Sequence[FrozenTrial]) -> Searched:
        """The options with the highest score, the earliest of several. Raises SearchlabError if all were refused."""
        scored = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        if not scored:
            raise SearchlabError(
                f"the policy refused all {len(trials)} sets of options that were tried: "
                f"{trials[-1].user_attrs['refused']}; give other ranges with --option"
            )
        best = max(scored, key=lambda trial: trial.values[0])
        refused = sum(trial.state == TrialState.PRUNED for trial in trials)
        return Searched(self.default | best.params, best.values[0], len(trials), refused)


def suggest(trials: Sequence[FrozenTrial], ranges: Ranges, seed: Sequence[int]) -> dict[str, Any]:
    """The options to try after ``trials``: a function of these, the ranges and the seed, so that a search can resume.

    Numbers are rounded, so that they can be typed into a study file.

    Source: Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NeurIPS 2011), as Optuna has it.
    """
    with quiet():
        sampler = TPESampler(n_startup_trials=N_STARTUP, seed=int(np.random.SeedSequence(seed).generate_state(1)[0]))
        study = optuna.create_study(storage=InMemoryStorage(), sampler=sampler, direction="maximize")
        study.add_trials(trials)
        params = study.ask(ranges).params
    for name, distribution in ranges.items():
        if isinstance(distribution, FloatDistribution):
            params[name] = min(max(rounded(params[name]), distribution.low), distribution.high)
    return params
