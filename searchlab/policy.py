"""The contract of a search policy, and a base class for most policies."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from .options import ChecksOptions
from .plugins import PluginKind, PluginSpec
from .records import Trial
from .space import Config, Space


@dataclass(frozen=True)
class Origin:
    """Where a strategy comes from, and in which points it differs.

    name: what it is called there. version: of the system, or the year of the paper. source: its files, or the paper.
    kind: ``reproduction`` is that algorithm, written anew; ``original`` is its own code, called; ``relative`` has the
        idea of it, but is another algorithm: a result of one says nothing about the other.
    deviations: each a phrase that says one difference.
    """

    name: str
    version: str
    source: str
    kind: Literal["reproduction", "original", "relative"]
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True)
class OwnModel:
    """The cost model that belongs to an algorithm: a study's other cost models are not tried with it.

    An entry of a study that names a cost model for the policy takes that one instead.

    Attributes:
        cost_model: A registered name, or a :class:`~searchlab.plugins.Plugin` with its options.
        features: The features that it sees.
    """

    cost_model: PluginSpec
    features: str = "knob"


@dataclass(frozen=True)
class Traits:
    """What a policy declares of itself, by keywords of its class: ``class Grid(NeverTwice, uses_seed=False)``.

    A class inherits the traits that it does not declare.

    Attributes:
        takes_cost_model: The constructor takes ``cost_model``, a :class:`~searchlab.costmodel.BoundCostModel`: the cost
            model that the study chose, with its features. A class that declares ``own_model`` takes one as well.
        own_model: The cost model that belongs to the algorithm.
        uses_seed: False if the policy proposes the same configs for any seed, for example grid.
        needs_asks: The policy must know which ask proposed a trial, for example bandit, to credit its arms. Its state
            is then a function of the asks too. Its runs still resume, since a resumed run asks again.
        stops: The strategy may end although its space is not exhausted, for example at a local optimum.
    """

    takes_cost_model: bool = False
    own_model: OwnModel | None = None
    uses_seed: bool = True
    needs_asks: bool = False
    stops: bool = False

    def model(self, cost_model: PluginSpec | None = None, features: str | None = None) -> tuple[PluginSpec, str]:
        """The cost model and the features to search with: those given, else its own, else ``xgboost`` and ``knob``."""
        own = self.own_model or OwnModel("xgboost", "knob")
        return own.cost_model if cost_model is None else cost_model, features or own.features


class Policy(ChecksOptions, ABC):
    """A search strategy: it is asked for configs, and told their costs.

    Its state is a function of (space, options, seed, the trials told so far in order) and of nothing else:
    no clock, no global random state, no thread count. So a run is resumed by running it again.

    Options are keyword arguments of the constructor, with defaults. Keywords of the class declare its :class:`Traits`.

    Example:
        >>> import searchlab
        >>> class InOrder(searchlab.Policy, uses_seed=False):
        ...     def __init__(self, space, *, seed):
        ...         super().__init__(space, seed=seed)
        ...         self.configs = space.enumerate()
        ...     def ask(self, n):
        ...         return [config for _, config in zip(range(n), self.configs)]
        ...     def tell(self, trials):
        ...         pass
        >>> policy = InOrder(searchlab.load_log("gemm.jsonl").space, seed=0)
        >>> len(policy.ask(8))
        8
    """

    traits: ClassVar[Traits] = Traits()
    """What the class declares of itself; see :meth:`__init_subclass__`."""

    origin: ClassVar[Origin | None] = None
    """The published strategy that this one is, or is related to; None if it claims none.

    It is of the class that declares it, and not of those derived from it: see :func:`origins`.
    """

    n_startup: int = 0
    """Trials before an instance uses what it learns; up to there it goes by chance."""

    effective: Mapping[str, Any] = {}
    """Options that an instance cannot use as they are -> the values that it uses. The log and reports show them."""

    def __init_subclass__(
        cls,
        *,
        takes_cost_model: bool | None = None,
        own_model: OwnModel | None = None,
        uses_seed: bool | None = None,
        needs_asks: bool | None = None,
        stops: bool | None = None,
        **others: Any,
    ) -> None:
        """Declare the :class:`Traits` of a class; None for those of its base."""
        super().__init_subclass__(**others)
        declared: dict[str, Any] = {
            "takes_cost_model": True if own_model else takes_cost_model, "own_model": own_model,
            "uses_seed": uses_seed, "needs_asks": needs_asks, "stops": stops,
        }  # fmt: skip
        cls.traits = replace(cls.traits, **{name: value for name, value in declared.items() if value is not None})

    def __init__(self, space: Space, *, seed: int) -> None:
        self.space = space
        self.seed = seed

    @abstractmethod
    def ask(self, n: int) -> Sequence[Config]:
        """Up to ``n`` configs to measure next, none of them proposed before.

        None if the space is exhausted or the strategy has ended: the run ends then, whatever its budget.
        """

    @abstractmethod
    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from the measured trials of this run: those of the last ask, in order."""

    def warm_start(self, trials: Sequence[Trial]) -> None:
        """Learn from measured trials of other runs in this space, before the first ask.

        By default the policy is told them. Override this if :meth:`tell` relies on an ask, or counts trials as its own.
        What it is given must not be proposed again. It may hold configs that are no members of the space; they must do
        no harm.
        """
        self.tell(trials)


class NeverTwice(Policy):
    """A policy that may :meth:`propose` any config: those seen before are replaced by random new ones.

    Attributes:
        trials: All trials told, in order, except those whose config is not in the space.
        seen: All configs told or proposed, in order. A dict, since the order of a set would depend on hashing.

    Example:
        >>> import searchlab
        >>> class HillClimb(searchlab.NeverTwice):
        ...     def propose(self, n, rng):
        ...         best = min(self.trials, key=lambda trial: trial.cost, default=None)
        ...         return [self.space.mutate(best.config, rng) for _ in range(n)] if best else []
        >>> policy = HillClimb(searchlab.load_log("gemm.jsonl").space, seed=0)
        >>> configs = policy.ask(4)
        >>> policy.tell([searchlab.Trial(i, c, searchlab.Measurement((1e-6,))) for i, c in enumerate(configs)])
        >>> len(set(policy.ask(4)) - set(configs))
        4
    """

    def __init__(self, space: Space, *, seed: int) -> None:
        super().__init__(space, seed=seed)
        self.trials: list[Trial] = []
        self.seen: dict[Config, None] = {}
        self._exhausted = False

    @abstractmethod
    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        """Configs worth measuring next, best first; about ``n`` of them, new or not. ``n`` is at least 1.

        No more are taken once ``n`` are new, so the number of configs may be infinite. But if only seen configs remain,
        it must end: any space may be exhausted. A policy that declares ``stops`` ends where none of them is new; no
        random configs fill its batches.
        """

    def ask(self, n: int) -> Sequence[Config]:
        if n < 1 or self._exhausted:
            return []
        # Each ask has its own stream: the same trials give the same numbers, however they were asked for.
        rng = np.random.default_rng([self.seed, len(self.seen)])
        batch: list[Config] = []
        for config in self.propose(n, rng):
            if config not in self.seen:
                batch.append(config)
                self.seen[config] = None
                if len(batch) == n:
                    break
        if self.traits.stops:
            return batch
        filling = self.space.sample_new(rng, n - len(batch), self.seen)
        self.seen.update(dict.fromkeys(filling))
        batch += filling
        self._exhausted = len(batch) < n
        return batch

    def renewed(self, config: Config, rng: np.random.Generator, besides: Container[Config] = ()) -> Config:
        """``config``, mutated until it is neither seen nor in ``besides``.

        The mutations end after two for each knob, even at a seen config: there may be no new config near it.
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
    """A random stream that no ask uses: one for each ``tag`` and each value of the ``counters``.

    ``default_rng([seed, 1, counter])`` could be the stream of an ask, ``default_rng([seed, 1])``, since it ignores
    trailing zeros. A spawn key is kept apart from the seed, and its zeros count.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(tag.encode()), *counters)))


POLICIES = PluginKind("policy", "searchlab.policies", Policy, positional=1)  # type: ignore[type-abstract]


def origins() -> dict[str, Origin]:
    """The origin of each registered policy whose class itself declares one, by name. All of them are imported.

    A policy that cannot be imported is left out: it is told when it is used.
    """
    declared: dict[str, Origin] = {}
    for name in POLICIES.installed():
        try:
            origin = vars(POLICIES.load(name)).get("origin")
        except Exception:  # whatever a plug-in raises
            continue
        if isinstance(origin, Origin):
            declared[name] = origin
    return declared
