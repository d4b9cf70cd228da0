"""Optuna's samplers as policies: what a sampler is told, and how its suggestions become configs."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from searchlab.errors import InvalidConfig
from searchlab.options import whole
from searchlab.policy import NeverTwice, Origin
from searchlab.records import Trial
from searchlab.space import Config, Space, Value

from .parameters import Parameters, Part


def origin(sampler: str, *deviations: str) -> Origin:
    """The origin of a policy that calls this ``sampler`` of Optuna."""
    return Origin(
        f"Optuna's {sampler}",
        "Optuna 5",
        f"optuna.samplers.{sampler}",
        "original",
        (
            *deviations,
            "a tile is a parameter for each factor, and a number the index of its choice",
            "it is told the logarithm of the cost, and the worst that succeeded for a trial that failed",
            "a new study and sampler for every ask",
            "a suggestion that is known is mutated until it is not",
        ),
    )


class OptunaPolicy(NeverTwice):
    """Asks a sampler of Optuna, which :meth:`sampler` gives, for one config after the other.

    Each ask starts a study of its own from the trials told, and those proposed but not told yet are running in it. So
    nothing that a sampler keeps from one ask to the next decides anything, nor a suggestion that was not measured.
    A trial is told as the logarithm of its cost, one that failed as the worst that succeeded. A suggestion that is not
    new is mutated until it is. A trial of another log whose config is no member of the space is not to be proposed, and
    otherwise ignored.

    n_startup: trials to draw at random before Optuna is asked.
    memory: how many trials the sampler is told at most: the best quarter of so many, and the latest of the others.
    """

    def __init__(self, space: Space, *, seed: int, n_startup: int, memory: int) -> None:
        super().__init__(space, seed=seed)
        self.n_startup = n_startup
        self.memory = whole("memory", memory, 4)
        self.parameters = Parameters(space)
        self._known: list[Known] = []
        self._told: set[Config] = set()

    @abstractmethod
    def sampler(self, seed: int) -> BaseSampler:
        """A new sampler, for one ask."""

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        if len(self._known) < self.n_startup:
            return []
        batch: dict[Config, None] = {}
        with quiet():
            study = optuna.create_study(
                storage=optuna.storages.InMemoryStorage(), sampler=self.sampler(int(rng.integers(2**31)))
            )
            study.add_trials(self.remembered())
            study.add_trials(_running(*self.parameters.encode(c)) for c in self.seen if c not in self._told)
            for _ in range(n):
                config = self.renewed(self._suggestion(study), rng, besides=batch)
                if config not in self.seen and config not in batch:
                    batch[config] = None
                    study.add_trial(_running(*self.parameters.encode(config)))
        return list(batch)

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        for trial in trials:
            self._told.add(trial.config)
            try:
                params, distributions = self.parameters.encode(trial.config)
            except InvalidConfig:
                continue
            self._known.append(Known(trial.cost, params, distributions))
            self.learn(self._known[-1])

    def learn(self, known: Known) -> None:
        """For a sampler that has a state: called for each trial told, in order, if it is a member of the space."""

    def remembered(self) -> list[FrozenTrial]:
        """The trials of the study, in the order in which they were told."""
        known = self._known
        if len(known) > self.memory:
            ranked = sorted(range(len(known)), key=lambda i: known[i].cost)
            best = ranked[: self.memory // 4]
            latest = sorted(ranked[self.memory // 4 :])[len(best) - self.memory :]
            known = [known[i] for i in sorted(best + latest)]
        worst = max((trial.cost for trial in known if np.isfinite(trial.cost)), default=1.0)
        return [
            create_trial(
                params=trial.params, distributions=trial.distributions, value=float(np.log(min(trial.cost, worst)))
            )
            for trial in known
        ]

    def _suggestion(self, study: optuna.Study) -> Config:
        """A suggestion of Optuna, whose trial is failed at once, for a sampler to ignore: another config may be run."""
        trial = study.ask()

        def suggest(part: Part) -> Value:
            distribution = part.distribution
            if isinstance(distribution, IntDistribution):
                return part.values[trial.suggest_int(part.parameter, distribution.low, distribution.high)]
            return part.values[int(trial.suggest_categorical(part.parameter, range(len(part.values))))]

        config = self.parameters.decode(suggest)
        study.tell(trial, state=TrialState.FAIL)
        return config


@dataclass(frozen=True)
class Known:
    """A trial as a sampler is told it."""

    cost: float
    params: dict[str, int]
    distributions: dict[str, BaseDistribution]


def _running(params: dict[str, int], distributions: dict[str, BaseDistribution]) -> FrozenTrial:
    # Optuna declares the distributions invariantly.
    return create_trial(state=TrialState.RUNNING, params=dict[str, Any](params), distributions=distributions)


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna without its messages, which would mean nothing to a user of searchlab."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
