"""The contract of a search policy, and the base class that most of them want."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

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

    uses_seed = True
    """False of a policy that proposes the same whatever the seed, as grid does."""

    needs_asks = False
    """True of a policy that must know which of its asks a trial was proposed in, as bandit does to credit its arms.

    Its state is then a function of the asks too. A run is resumed all the same, since that asks again.
    """

    def __init__(self, space: Space, *, seed: int) -> None:
        self.space = space
        self.seed = seed

    @abstractmethod
    def ask(self, n: int) -> Sequence[Config]:
        """Up to ``n`` configs to measure next, none of them ever proposed before; none when the space is done."""

    @abstractmethod
    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from measured trials: those just asked for, in order, or (before any ask) those of another log.

        Another log may hold configs that are no members of the space, which must do no harm.
        """


class NeverTwice(Policy):
    """A policy that may :meth:`propose` anything: what is known already is dropped, and random configs fill its place.

    trials: all that was told, in order, without those of configs that are no members of the space.
    seen: all that was told or proposed, in order (a dict for its order: a set's would depend on hashing).
    """

    def __init__(self, space: Space, *, seed: int) -> None:
        super().__init__(space, seed=seed)
        self.trials: list[Trial] = []
        self.seen: dict[Config, None] = {}
        self._exhausted = False

    @abstractmethod
    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        """Configs worth measuring next, best first; about ``n`` of them, new or not. ``n`` is at least 1."""

    def ask(self, n: int) -> Sequence[Config]:
        if n < 1 or self._exhausted:
            return []
        # A stream of its own for each ask: after the same trials the same numbers, whatever was asked on the way.
        rng = np.random.default_rng([self.seed, len(self.seen)])
        batch: list[Config] = []
        for config in self.propose(n, rng):
            if config not in self.seen and len(batch) < n:
                batch.append(config)
                self.seen[config] = None
        filling = self.space.sample_new(rng, n - len(batch), self.seen)
        self.seen.update(dict.fromkeys(filling))
        batch += filling
        self._exhausted = len(batch) < n
        return batch

    def tell(self, trials: Sequence[Trial]) -> None:
        members = [trial for trial in trials if trial.config in self.seen or trial.config in self.space]
        self.trials += members
        self.seen.update(dict.fromkeys(trial.config for trial in members))


POLICIES = PluginKind("policy", "searchlab.policies", Policy, positional=1)  # type: ignore[type-abstract]


def takes_cost_model(policy: type[Policy]) -> bool:
    return "cost_model" in inspect.signature(policy).parameters
