"""Optuna's samplers as policies: how a config becomes parameters, and what a sampler is told.

How choices become Optuna's parameters matters more than a sampler's options do. A word or a switch is categorical. A
number is the index of its choice, so that near choices are near. A tile is one index a factor, innermost first, into
all factors that this part of it can have: of a power of two that is its logarithm, so what a good inner tile says
holds whatever the outer ones are, which neither a category for each tile nor the tile's index gives. A factor that
those chosen already leave impossible becomes the nearest possible one. So a knob whose choices do not depend on others
is always the same parameters, and a sampler that models only what all trials have in common models all of it.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from searchlab.errors import InvalidConfig
from searchlab.options import whole
from searchlab.policy import NeverTwice
from searchlab.records import Trial
from searchlab.space import Config, Knob, Space, Value


class OptunaPolicy(NeverTwice):
    """Asks a sampler of Optuna, which :meth:`sampler` gives, for one config after the other.

    Each ask starts a study of its own from the trials told, and those proposed but not told yet are running in it. So
    nothing that a sampler keeps from one ask to the next, and no suggestion that was not measured, decides anything.
    A trial is told as the logarithm of its cost, one that failed as the worst that succeeded. A suggestion that is not
    new is mutated until it is. A trial of another log whose config is no member of the space is not to be proposed, and
    otherwise ignored.

    startup: trials to draw at random before Optuna is asked.
    memory: how many trials the sampler is told at most: the best quarter of so many, and the latest of the others.
    """

    def __init__(self, space: Space, *, seed: int, startup: int, memory: int) -> None:
        super().__init__(space, seed=seed)
        self.startup = startup
        self.memory = whole("memory", memory, 4)
        self.parameters = Parameters(space)
        self._known: list[Known] = []
        self._told: set[Config] = set()

    @abstractmethod
    def sampler(self, seed: int) -> BaseSampler:
        """A new sampler, for one ask."""

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        if len(self._known) < self.startup:
            return []
        batch: dict[Config, None] = {}
        with quiet():
            study = optuna.create_study(
                storage=optuna.storages.InMemoryStorage(), sampler=self.sampler(int(rng.integers(2**31)))
            )
            study.add_trials(self.remembered())
            study.add_trials(_running(*self.parameters.encode(c)) for c in self.seen if c not in self._told)
            for _ in range(n):
                config = self._suggestion(study)
                for _ in range(2 * len(config)):
                    if config not in self.seen and config not in batch:
                        break
                    config = self.space.mutate(config, rng)
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
        worst = max((one.cost for one in known if np.isfinite(one.cost)), default=1.0)
        return [
            create_trial(params=one.params, distributions=one.distributions, value=float(np.log(min(one.cost, worst))))
            for one in known
        ]

    def _suggestion(self, study: optuna.Study) -> Config:
        """What Optuna suggests. Its trial is then dropped, which a sampler ignores: it may not be what is run."""
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


@dataclass(frozen=True)
class Part:
    """What is one parameter: all of a knob's value, or (``at`` not None) a factor of a tile; with all it can be."""

    name: str
    at: int | None
    values: Sequence[Value]

    def of(self, value: Value) -> Value:
        return value[self.at] if self.at is not None and isinstance(value, tuple) else value

    @cached_property
    def distribution(self) -> IntDistribution | CategoricalDistribution:
        """Of the index of a value."""
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values):
            return IntDistribution(0, len(self.values) - 1)
        return CategoricalDistribution(range(len(self.values)))

    @cached_property
    def parameter(self) -> str:
        if isinstance(self.distribution, IntDistribution):
            return self.name
        # Optuna refuses other categories under the same name, and where choices depend on others there may be such.
        return f"{self.name} of {list(self.values)}"


class Parameters:
    """The configs of a space as values of Optuna's parameters, and back."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._parts: dict[str, tuple[Sequence[Value], list[Part]]] = {}

    def encode(self, config: Config) -> tuple[dict[str, int], dict[str, BaseDistribution]]:
        """Its parameters and their distributions. Raises InvalidConfig for a config that is no member of the space."""
        params: dict[str, int] = {}
        distributions: dict[str, BaseDistribution] = {}
        for knob in self.space.knobs(config):
            for part in self.parts(knob):
                params[part.parameter] = part.values.index(part.of(config[knob.name]))
                distributions[part.parameter] = part.distribution
        return params, distributions

    def decode(self, suggest: Callable[[Part], Value]) -> Config:
        return self.space.decide(lambda knob: choose(knob, self.parts(knob), suggest))

    def parts(self, knob: Knob) -> list[Part]:
        """:func:`parts_of` the knob, which takes longer than all else, worked out once while its choices stay."""
        choices, parts = self._parts.get(knob.name, ((), []))
        if choices is not knob.choices and choices != knob.choices:
            parts = parts_of(knob)
            self._parts[knob.name] = knob.choices, parts
        return parts

    @cached_property
    def shared(self) -> Mapping[str, BaseDistribution]:
        """The parameters that every config has, alike, as far as 64 fixed random ones tell."""
        rng = np.random.default_rng(0)
        shared: dict[str, BaseDistribution] | None = None
        for _ in range(64):
            _, met = self.encode(self.space.sample(rng))
            shared = met if shared is None else {name: d for name, d in shared.items() if met.get(name) == d}
        return shared or {}


def parts_of(knob: Knob) -> list[Part]:
    """What is open in a knob: its value or, innermost first, each factor of a tile that those inside leave open."""
    tiles = [value for value in knob.choices if isinstance(value, tuple)]
    if len(knob.choices) < 2:
        return []
    if len(tiles) < len(knob.choices) or len({len(tile) for tile in tiles}) != 1:
        return [Part(knob.name, None, knob.choices)]
    parts = []
    for i in reversed(range(len(tiles[0]))):
        if len({tile[i:] for tile in tiles}) > len({tile[i + 1 :] for tile in tiles}):
            parts.append(Part(f"{knob.name}[{i}]", i, sorted({tile[i] for tile in tiles})))
    return parts


def choose(knob: Knob, parts: Sequence[Part], suggest: Callable[[Part], Value]) -> Value:
    """The knob's choice whose parts are what is suggested, each replaced by the nearest that those before it leave."""
    left = list(knob.choices)
    for part in parts:
        wanted = part.values.index(suggest(part))
        possible = {part.of(value) for value in left}
        near = min(range(len(part.values)), key=lambda i: (part.values[i] not in possible, abs(i - wanted)))
        left = [value for value in left if part.of(value) == part.values[near]]
    return left[0]


def _running(params: dict[str, int], distributions: dict[str, BaseDistribution]) -> FrozenTrial:
    # Optuna declares the distributions invariantly.
    return create_trial(state=TrialState.RUNNING, params=dict[str, Any](params), distributions=distributions)


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna without its messages, which are none of its caller's business."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
