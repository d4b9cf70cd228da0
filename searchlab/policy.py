"""The contract of a search policy, and the base class that most of them want."""

from __future__ import annotations

import inspect
import zlib
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from .plugins import PluginKind
from .records import Trial
from .space import Config, Space


class Policy(ABC):
    """A search strategy, asked for configs and told what they cost.

    Its state is a function of (space, options, seed, the trials told so far in order) and of nothing else:
    no clock, no global random state, no thread count. So a run is resumed by running it again.

    Options are keyword arguments of the constructor, with defaults. A constructor that names ``cost_model``
    is given a :class:`~searchlab.costmodel.Surrogate`: the cost model that the study chose, with its features.
    """

    renamed: ClassVar[Mapping[str, str]] = {}
    """Options by the name that they had in earlier versions -> the name that they have.

    A log that holds the earlier name resumes. A user who gives the earlier name is told the new one.
    """

    uses_seed = True
    """False of a policy that proposes the same whatever the seed, as grid does."""

    needs_asks = False
    """True of a policy that must know which of its asks a trial was proposed in, as bandit does to credit its arms.

    Its state is then a function of the asks too. A run is resumed all the same, since that asks again.
    """

    def __init__(self, space: Space, *, seed: int) -> None:
        self.space = space
        self.seed = seed

    @classmethod
    def updated(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """``options`` as a log of an earlier version holds them, by the names that they have today (:attr:`renamed`).

        A policy that passes options on to others overrides this, to update those as well.
        """
        return {cls.renamed.get(name, name): value for name, value in options.items()}

    @abstractmethod
    def ask(self, n: int) -> Sequence[Config]:
        """Up to ``n`` configs to measure next, none of them ever proposed before; none when the space is done."""

    @abstractmethod
    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from measured trials: those just asked for, in order, or (before any ask) those of another log.

        Another log may hold configs that are no members of the space, which must do no harm.
        """


class NeverTwice(Policy):
    """A policy that may :meth:`propose` anything: known configs are dropped, and random new ones fill their places.

    trials: all trials told, in order, without those of configs that are no members of the space.
    seen: all configs told or proposed, in order. It is a dict, since the order of a set would depend on hashing.
    """

    def __init__(self, space: Space, *, seed: int) -> None:
        super().__init__(space, seed=seed)
        self.trials: list[Trial] = []
        self.seen: dict[Config, None] = {}
        self._exhausted = False

    @abstractmethod
    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        """Configs worth measuring next, best first; about ``n`` of them, new or not. ``n`` is at least 1.

        No more of them are taken once ``n`` are new, so there may be more, even without end. But those that are not
        new must come to an end: a space is exhausted at some time.
        """

    def ask(self, n: int) -> Sequence[Config]:
        if n < 1 or self._exhausted:
            return []
        # A stream of its own for each ask: after the same trials the same numbers, whatever was asked on the way.
        rng = np.random.default_rng([self.seed, len(self.seen)])
        batch: list[Config] = []
        for config in self.propose(n, rng):
            if config not in self.seen:
                batch.append(config)
                self.seen[config] = None
                if len(batch) == n:
                    break
        filling = self.space.sample_new(rng, n - len(batch), self.seen)
        self.seen.update(dict.fromkeys(filling))
        batch += filling
        self._exhausted = len(batch) < n
        return batch

    def renewed(self, config: Config, rng: np.random.Generator, besides: Container[Config] = ()) -> Config:
        """``config``, mutated until it is neither seen nor in ``besides``.

        After two mutations a knob it is given back as it then is: the space may have nothing new near it.
        """
        for _ in range(2 * len(config)):
            if config not in self.seen and config not in besides:
                break
            config = self.space.mutate(config, rng)
        return config

    def tell(self, trials: Sequence[Trial]) -> None:
        members = [trial for trial in trials if trial.config in self.seen or trial.config in self.space]
        self.trials += members
        self.seen.update(dict.fromkeys(trial.config for trial in members))


def private_rng(seed: int, tag: str, *counters: int) -> np.random.Generator:
    """A random stream that no ask has: one for each ``tag``, and in that one for each value of the ``counters``.

    Not ``default_rng([seed, 1, counter])``: trailing zeros do not count there, so that it may be the stream of an ask,
    ``default_rng([seed, 1])``. A spawn key is set apart from the seed, and its zeros count.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(tag.encode()), *counters)))


POLICIES = PluginKind("policy", "searchlab.policies", Policy, positional=1)  # type: ignore[type-abstract]


def takes_cost_model(policy: type[Policy]) -> bool:
    """Whether the constructor of ``policy`` names a ``cost_model``, so that it is given one."""
    return "cost_model" in inspect.signature(policy).parameters
