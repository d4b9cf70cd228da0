"""Optuna's samplers as policies: what a sampler is told, and how its suggestions become configs."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from searchlab.errors import InvalidConfig
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
            "a tile is represented by a parameter per factor, and a number by the index of its choice",
            "it is told the logarithm of the cost; a failed trial gets the worst cost that was measured",
            "every ask creates a new study and sampler",
            "a known suggestion is mutated until it is new",
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
        self.memory = memory
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
            storage = optuna.storages.InMemoryStorage()
            study = optuna.create_study(storage=storage, sampler=self.sampler(int(rng.integers(2**31))))
            # Past study.add_trial, which validates each trial: these are valid by their making.
            study_id = storage.get_study_id_from_name(study.study_name)
            pending = [StudyTrial(*self.parameters.encode(c)) for c in self.seen if c not in self._told]
            for trial in (*self.remembered(), *pending):
                storage.create_new_trial(study_id, trial)
            for _ in range(n):
                config = self.renewed(self._suggestion(study), rng, besides=batch)
                if config not in self.seen and config not in batch:
                    batch[config] = None
                    storage.create_new_trial(study_id, StudyTrial(*self.parameters.encode(config)))
        return list(batch)

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        for trial in trials:
            self._told.add(trial.config)
            try:
                params, distributions = self.parameters.encode(trial.config)
            except InvalidConfig:
                continue
            self._known.append(Known(trial.cost, params, StudyTrial(params, distributions, trial.cost)))
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
        return [trial.told if np.isfinite(trial.cost) else trial.told.at(worst) for trial in known]

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


class StudyTrial(FrozenTrial):
    """A trial of a study, complete at the logarithm of its cost; running, without one.

    A storage takes a deep copy of each trial that it is given, and only replaces what it changes. So for every study to
    share the parameters of a trial, which are never changed, it copies itself alone. Samplers look at no time.
    """

    def __init__(
        self, params: dict[str, int], distributions: dict[str, BaseDistribution], cost: float | None = None
    ) -> None:
        running = cost is None
        super().__init__(
            number=-1, trial_id=-1, state=TrialState.RUNNING if running else TrialState.COMPLETE,
            value=None if cost is None else float(np.log(cost)), datetime_start=datetime.min,
            datetime_complete=None if running else datetime.min, params=params, distributions=distributions,
            user_attrs={}, system_attrs={}, intermediate_values={},
        )  # fmt: skip

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        alone = type(self).__new__(type(self))
        alone.__dict__.update(self.__dict__)
        return alone

    def at(self, cost: float) -> StudyTrial:
        """The same trial at another cost."""
        return StudyTrial(self.params, self.distributions, cost)


@dataclass(frozen=True)
class Known:
    """A trial, and how a sampler is told it, unless it failed."""

    cost: float
    params: dict[str, int]
    told: StudyTrial


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
