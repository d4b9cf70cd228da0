"""Optuna's tree-structured Parzen estimator.

Source: Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NeurIPS 2011); Watanabe, "Tree-Structured
Parzen Estimator: Understanding Its Algorithm Components" (arXiv 2304.11127); ``optuna.samplers.TPESampler``, with
which it is multivariate over the parameters that every trial has, and keeps a batch apart by the constant liar:
trials not told of yet count among the bad ones.

How choices become Optuna's parameters matters more than its options do. A word or a switch is categorical. A number
is the index of its choice, so that near choices are near. A tile is one index a factor, innermost first, among the
factors that the ones chosen already leave possible: of a power of two that is its logarithm, so what a good inner
tile says holds whatever the outer ones are, which neither a category for each tile nor the tile's index gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from searchlab.options import whole
from searchlab.policy import NeverTwice
from searchlab.records import Trial
from searchlab.space import Config, Knob, Space, Value


class Tpe(NeverTwice):
    """Models each choice by how good trials made it and how the others did, and takes the ratio's best.

    A trial that failed is told as one that takes for ever. A suggestion that is not new is mutated until it is.

    startup: trials to draw at random before Optuna is asked.
    ei_candidates: how many suggestions are drawn from the model of the good trials to take the best of.
    """

    def __init__(self, space: Space, *, seed: int, startup: int = 16, ei_candidates: int = 24) -> None:
        super().__init__(space, seed=seed)
        self.startup = whole("startup", startup, 1)
        self.ei_candidates = whole("ei_candidates", ei_candidates, 1)
        with _quiet():
            self._study = optuna.create_study(study_name="searchlab", storage=optuna.storages.InMemoryStorage())
        self._running: dict[Config, int] = {}

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        if len(self.trials) < self.startup:
            return
        # A sampler of its own for each ask, since its random state would depend on what was asked on the way.
        self._study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=1, n_ei_candidates=self.ei_candidates, constant_liar=True, seed=int(rng.integers(2**31))
        )
        for _ in range(n):
            config = self._suggestion()
            for _ in range(2 * len(config)):
                if config not in self.seen:
                    break
                config = self.space.mutate(config, rng)
            if config not in self.seen:
                self._running[config] = self._record(config, state=TrialState.RUNNING)
                yield config

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        for trial in trials:
            number = self._running.pop(trial.config, None)
            if number is None:
                self._record(trial.config, state=TrialState.COMPLETE, value=trial.cost)
            else:
                self._study.tell(number, trial.cost)

    def _suggestion(self) -> Config:
        """What Optuna suggests. Its trial is then dropped, which the sampler ignores: it may not be what is run."""
        trial = self._study.ask()

        def suggest(name: str, values: Sequence[Value]) -> Value:
            parameter, distribution = _parameter(name, values)
            if isinstance(distribution, IntDistribution):
                return values[trial.suggest_int(parameter, distribution.low, distribution.high)]
            return values[trial.suggest_categorical(parameter, list(range(len(values))))]

        config = self.space.decide(lambda knob: choose(knob, suggest))
        self._study.tell(trial, state=TrialState.FAIL)
        return config

    def _record(self, config: Config, *, state: TrialState, value: float | None = None) -> int:
        """Add a trial of ``config`` to the study; its number there."""
        parts: dict[str, Value] = dict(config)
        for name, tile in config.items():
            if isinstance(tile, tuple):
                parts.update((f"{name}[{i}]", factor) for i, factor in enumerate(tile))
        params: dict[str, Any] = {}
        distributions: dict[str, Any] = {}

        def suggest(name: str, values: Sequence[Value]) -> Value:
            parameter, distributions[parameter] = _parameter(name, values)
            params[parameter] = values.index(parts[name])
            return parts[name]

        self.space.decide(lambda knob: choose(knob, suggest))
        self._study.add_trial(create_trial(state=state, value=value, params=params, distributions=distributions))
        return len(self._study.get_trials(deepcopy=False)) - 1


def choose(knob: Knob, suggest: Callable[[str, Sequence[Value]], Value]) -> Value:
    """One of the knob's choices, by asking for each part of it that is open: a factor of a tile, or all of a value."""
    left = [value for value in knob.choices if isinstance(value, tuple)]
    if len(left) < len(knob.choices) or len({len(tile) for tile in left}) != 1:
        return suggest(knob.name, knob.choices) if len(knob.choices) > 1 else knob.choices[0]
    for i in reversed(range(len(left[0]))):
        factors = sorted({tile[i] for tile in left})
        if len(factors) > 1:
            factor = suggest(f"{knob.name}[{i}]", factors)
            left = [tile for tile in left if tile[i] == factor]
    return left[0]


def _parameter(name: str, values: Sequence[Value]) -> tuple[str, IntDistribution | CategoricalDistribution]:
    """The name and distribution of an index of ``values``."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return name, IntDistribution(0, len(values) - 1)
    # Optuna refuses other categories under the same name, and where choices depend on others there may be such.
    return f"{name} of {list(values)}", CategoricalDistribution(list(range(len(values))))


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna without its messages, which are none of its caller's business."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
