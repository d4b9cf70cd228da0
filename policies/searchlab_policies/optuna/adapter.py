"""Base classes for policies that use libraries such as Optuna, which search parameters of simple types."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple, Self

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from searchlab.errors import InvalidConfig
from searchlab.policy import NeverTwice, Origin
from searchlab.records import SHORTEST, Trial
from searchlab.space import Config, Space, Value

from .parameters import Parameters, Part


def make_origin(sampler: str, *deviations: str) -> Origin:
    """Return the origin of a policy that calls Optuna's ``sampler``."""
    return Origin(
        f"Optuna's {sampler}",
        "Optuna 5",
        f"optuna.samplers.{sampler}",
        "original",
        (
            *deviations,
            "a tile is represented by a parameter per factor, and a number by the index of its choice",
            "the sampler is told the logarithm of the cost; a failed trial gets the worst measured cost",
            "every ask creates a new study and sampler",
            "a known suggestion is mutated until it is new",
        ),
    )


class EncodedTrial(NamedTuple):
    """A trial that the policy was told, with its config as parameters."""

    cost: float
    params: dict[str, int]
    distributions: dict[str, BaseDistribution]


class ParameterPolicy(NeverTwice):
    """A policy that models trials by the :class:`.parameters.Parameters` of their configs.

    A warm-start trial whose config is not in the space is ignored.

    Args:
        n_startup: The number of random trials to run before the model is used.
        memory: The maximum number of trials to model: the best ones fill a quarter, and the most recent of the others
            fill the rest.
    """

    def __init__(self, space: Space, *, seed: int, n_startup: int, memory: int) -> None:
        super().__init__(space, seed=seed)
        self.n_startup = n_startup
        self.memory = memory
        self.parameters = Parameters(space)
        self._encoded_trials: list[EncodedTrial] = []
        self._told_configs: set[Config] = set()

    @property
    def has_enough_trials(self) -> bool:
        """Whether enough trials were told to use the model."""
        return len(self._encoded_trials) >= self.n_startup

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        for trial in trials:
            self._told_configs.add(trial.config)
            try:
                self._encoded_trials.append(EncodedTrial(trial.cost, *self.parameters.encode(trial.config)))
            except InvalidConfig:
                continue
            self.learn(self._encoded_trials[-1])

    def learn(self, trial: EncodedTrial) -> None:
        """Update the model's state, if any, with the next trial told whose config is in the space."""

    def trials_to_model(self) -> list[EncodedTrial]:
        """Return the trials to model, in the order told; failed ones get the worst cost of the others."""
        trials = self._encoded_trials
        if len(trials) > self.memory:
            ranked_indices = sorted(range(len(trials)), key=lambda i: trials[i].cost)
            best_indices = ranked_indices[: self.memory // 4]
            latest_indices = sorted(ranked_indices[self.memory // 4 :])[len(best_indices) - self.memory :]
            trials = [trials[i] for i in sorted(best_indices + latest_indices)]
        worst_cost = max((trial.cost for trial in trials if np.isfinite(trial.cost)), default=1.0)
        return [trial if np.isfinite(trial.cost) else trial._replace(cost=worst_cost) for trial in trials]


class OptunaPolicy(ParameterPolicy):
    """Asks one of Optuna's samplers, created by :meth:`make_sampler`, for each config of a batch.

    Each ask creates a new study from the trials told; trials that were proposed but not yet told are marked as running.
    Hence, no state of the sampler is carried over between asks. A trial's value is the logarithm of its cost; a failed
    trial gets the value of the worst successful one. A suggestion that is already known is mutated until it is new.
    """

    @abstractmethod
    def make_sampler(self, seed: int) -> BaseSampler:
        """Return a new sampler, for one ask."""

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        if not self.has_enough_trials:
            return []
        batch: dict[Config, None] = {}
        with silence_logging():
            storage = optuna.storages.InMemoryStorage()
            study = optuna.create_study(storage=storage, sampler=self.make_sampler(int(rng.integers(2**31))))
            # Not study.add_trial, which would validate each trial again.
            study_id = storage.get_study_id_from_name(study.study_name)
            trials = [
                StudyTrial(encoded.params, encoded.distributions, encoded.cost) for encoded in self.trials_to_model()
            ]
            pending = [StudyTrial(*self.parameters.encode(c)) for c in self.seen if c not in self._told_configs]
            for trial in (*trials, *pending):
                storage.create_new_trial(study_id, trial)
            for _ in range(n):
                config = self.mutate_until_new(self._suggest_config(study), rng, besides=batch)
                if config not in self.seen and config not in batch:
                    batch[config] = None
                    storage.create_new_trial(study_id, StudyTrial(*self.parameters.encode(config)))
        return list(batch)

    def _suggest_config(self, study: optuna.Study) -> Config:
        """Return Optuna's suggestion. Its trial fails at once, because a different config may be measured instead."""
        trial = study.ask()

        def suggest(part: Part) -> Value:
            distribution = part.distribution
            if isinstance(distribution, IntDistribution):
                return part.values[trial.suggest_int(part.parameter, distribution.low, distribution.high)]
            return part.values[int(trial.suggest_categorical(part.parameter, range(len(part.values))))]

        config = self.parameters.decode(suggest)
        study.tell(trial, state=TrialState.FAIL)
        return config


class StudyTrial(FrozenTrial):
    """A trial of a study. It is complete, with the logarithm of its cost as its value, or running if it has no cost.

    Optuna's storage deep-copies every trial it receives. Copies share their parameters, which never change. Samplers do
    not use the dates.
    """

    def __init__(
        self, params: dict[str, int], distributions: dict[str, BaseDistribution], cost: float | None = None
    ) -> None:
        is_running = cost is None
        super().__init__(
            number=-1,
            trial_id=-1,
            state=TrialState.RUNNING if is_running else TrialState.COMPLETE,
            value=None if cost is None else float(np.log(max(cost, SHORTEST))),
            datetime_start=datetime.min,
            datetime_complete=None if is_running else datetime.min,
            params=params,
            distributions=distributions,
            user_attrs={},
            system_attrs={},
            intermediate_values={},
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy


@contextmanager
def silence_logging() -> Iterator[None]:
    """Silence Optuna's messages, which would mean nothing to searchlab's users."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
