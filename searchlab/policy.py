"""The contract of a search policy, and a base class for most policies."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from .errors import SearchlabError
from .options import ChecksOptions
from .plugins import PluginKind, PluginSpec
from .records import Trial
from .space import Config, Space


@dataclass(frozen=True)
class Origin:
    """The published algorithm on which a strategy is based, and how the strategy differs from it.

    Attributes:
        name: The algorithm's name in the publication.
        version: The system's version or the paper's year.
        source: The source files or the paper.
        kind: ``reproduction`` is the same algorithm, reimplemented. ``original`` calls the original code. ``relative``
            shares the idea but is a different algorithm, so results for one say nothing about the other.
        deviations: The differences from the algorithm, one phrase each.
    """

    name: str
    version: str
    source: str
    kind: Literal["reproduction", "original", "relative"]
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True)
class OwnModel:
    """The cost model that is part of an algorithm, and is used instead of the cost models that a study lists.

    The policy's entry in the study can still specify a different cost model.

    Attributes:
        cost_model: A registered name, or a :class:`~searchlab.plugins.Plugin` with options.
        features: The features to train it on.
        without_programs: The features to use instead if configs have no programs; empty if there is no alternative.
    """

    cost_model: PluginSpec
    features: str = "knob"
    without_programs: str = ""


@dataclass(frozen=True)
class Traits:
    """A policy's properties, declared as class keywords: ``class Grid(NeverTwice, uses_seed=False)``.

    A class inherits the traits that it does not declare.

    Attributes:
        takes_cost_model: Whether the constructor accepts ``cost_model``, a
            :class:`~searchlab.costmodel.BoundCostModel` that combines the study's cost model with the features.
            Declaring ``own_model`` implies this.
        own_model: The cost model that belongs to the algorithm.
        uses_seed: False if the policy proposes the same configs for every seed, as a grid does.
        needs_asks: Whether the policy must know which ask proposed a trial, as does a bandit that credits its arms. Its
            state then also depends on the asks. Runs can still be resumed, because a resumed run repeats the asks.
        transfers: Whether :meth:`Policy.transfer` learns from runs of other workloads.
        stops: Whether the strategy may finish before the space is exhausted, for example at a local optimum.
    """

    takes_cost_model: bool = False
    own_model: OwnModel | None = None
    uses_seed: bool = True
    needs_asks: bool = False
    transfers: bool = False
    stops: bool = False

    def model(self, cost_model: PluginSpec | None = None, features: str | None = None) -> tuple[PluginSpec, str]:
        """Return the cost model and features to use: the arguments, the policy's own, or ``xgboost`` and ``knob``."""
        own_model = self.own_model or OwnModel("xgboost", "knob")
        return own_model.cost_model if cost_model is None else cost_model, features or own_model.features


class Policy(ChecksOptions, ABC):
    """A search algorithm that proposes configs and learns from their measurements.

    Its state is a function of the space, the options, the seed and the trials told so far, in order. The state must not
    depend on a clock, a global random state or the number of threads, because an interrupted run is resumed by
    repeating its trials. Options are keyword arguments of the constructor, with defaults. Class keywords declare the
    policy's :class:`Traits`. Most policies derive from :class:`NeverTwice`, which is simpler to implement.

    Args:
        space: The space to search.
        seed: The seed for all random decisions.

    Attributes:
        traits: The properties that the class declares.
        origin: The published algorithm that this class implements or resembles. Subclasses do not inherit it.
        n_startup: The number of trials before an instance uses what it has learned; until then, it proposes random
            configs.
        fill_ins: The configs in the last batch that were drawn at random because the policy had proposed too few. Logs
            and reports show them.
        effective: A mapping from each option that an instance cannot use as passed to the value used instead. Logs and
            reports show it.

    Example:
        >>> from itertools import islice
        >>> import searchlab
        >>> class InOrder(searchlab.Policy, uses_seed=False):
        ...     def __init__(self, space, *, seed):
        ...         super().__init__(space, seed=seed)
        ...         self.told = set()
        ...         self.new = (config for config in space.enumerate() if config not in self.told)
        ...     def ask(self, n):
        ...         return list(islice(self.new, n))
        ...     def tell(self, trials):  # also called with the trials of earlier runs
        ...         self.told.update(trial.config for trial in trials)
        >>> policy = InOrder(searchlab.load_log("gemm.jsonl").space, seed=0)
        >>> len(policy.ask(8))
        8
    """

    traits: ClassVar[Traits] = Traits()
    origin: ClassVar[Origin | None] = None
    n_startup: int = 0
    fill_ins: Container[Config] = ()
    effective: Mapping[str, Any] = {}

    def __init_subclass__(cls, **traits: Any) -> None:
        """Declare the :class:`Traits` of a class, which inherits all others."""
        super().__init_subclass__()
        if traits.get("own_model"):
            traits["takes_cost_model"] = True
        cls.traits = replace(cls.traits, **traits)

    def __init__(self, space: Space, *, seed: int) -> None:
        self.space = space
        self.seed = seed

    @abstractmethod
    def ask(self, n: int) -> Sequence[Config]:
        """Propose the configs to measure next.

        Args:
            n: The maximum number of configs to propose, >= 0.

        Returns:
            At most ``n`` members of the space, none of which has been proposed or told before. An empty list ends the
            run: the space is exhausted or the strategy has finished.
        """

    @abstractmethod
    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from the measurements of the configs that the last :meth:`ask` proposed.

        Args:
            trials: The trials, in the order in which they were proposed. Failures have infinite cost. The sequence
                must not be modified.
        """

    def warm_start(self, trials: Sequence[Trial]) -> None:
        """Learn from trials of earlier runs before the first :meth:`ask`. By default, this calls :meth:`tell`.

        Override it if :meth:`tell` depends on a preceding ask or counts trials.

        Args:
            trials: Measured trials, whose configs must not be proposed again. Some may be outside the space.
        """
        self.tell(trials)

    def transfer(self, tasks: Sequence[tuple[Space, Sequence[Trial]]]) -> None:
        """Learn from runs of other workloads, before :meth:`warm_start` and the first :meth:`ask`.

        It is called only if the class declares ``transfers=True`` and there are such runs.

        Args:
            tasks: The space and the measured trials of each run. The spaces have the same plug-in, operator and knobs
                as this policy's space, but knobs may have different choices.
        """


class NeverTwice(Policy):
    """A base class for policies whose :meth:`propose` may repeat configs: random new configs replace those seen before.

    Attributes:
        trials: All trials told so far, in order, except those whose config is not in the space.
        seen: All configs told or proposed so far, in order (a dict, because a set's order depends on hashing).

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
        """Propose configs, best first. They may include configs that were seen before.

        A generator may be endless, because iteration stops after ``n`` new configs. It must end, however, once it can
        only repeat configs, since any space can be exhausted. If fewer than ``n`` configs are new, random configs fill
        the batch. For a policy that declares ``stops``, the batch is not filled, and the run ends if no config is new.

        Args:
            n: The number of new configs requested, >= 1.
            rng: The random stream for this ask, which depends only on the seed and the number of configs seen.
        """

    def ask(self, n: int) -> Sequence[Config]:
        if n < 1 or self._exhausted:
            return []
        # Each ask has its own stream, which depends on how many configs were seen but not on how they were batched.
        rng = np.random.default_rng([self.seed, len(self.seen)])
        batch: list[Config] = []
        for config in self.propose(n, rng):
            if not isinstance(config, Config):
                raise SearchlabError(
                    f"{type(self).__name__}.propose yields {config!r}, which is not a config; use a method of the "
                    f"space, such as space.repair(values, rng), or searchlab.Config"
                )
            if config not in self.seen:
                batch.append(config)
                self.seen[config] = None
                if len(batch) == n:
                    break
        if self.traits.stops:
            return batch
        fill_ins = self.fill_ins = self.space.sample_new(rng, n - len(batch), self.seen)
        self.seen.update(dict.fromkeys(fill_ins))
        batch += fill_ins
        self._exhausted = len(batch) < n
        return batch

    def mutate_until_new(self, config: Config, rng: np.random.Generator, besides: Container[Config] = ()) -> Config:
        """Mutate ``config`` until it is neither seen nor in ``besides``, but give up after two mutations per knob."""
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
    """Return a random stream that no ask uses, distinct for each ``tag`` and each combination of ``counters``.

    ``default_rng([seed, 1, 0])`` would be an ask's stream, ``default_rng([seed, 1])``, because trailing zeros are
    ignored. A spawn key is separate from the seed, and its zeros are significant.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(tag.encode()), *counters)))


POLICIES = PluginKind("policy", "searchlab.policies", Policy, positional=1)  # type: ignore[type-abstract]


def origins(names: Container[str] | None = None) -> dict[str, Origin]:
    """Return the origin of each registered policy in ``names`` whose own class declares one, by name.

    This imports these policies, by default all. A policy that cannot be imported is skipped; the error is reported when
    it is used.
    """
    result: dict[str, Origin] = {}
    for name in POLICIES.entry_points_by_name():
        if names is not None and name not in names:
            continue
        try:
            origin = vars(POLICIES.load(name)).get("origin")
        except Exception:  # a plug-in may raise anything
            continue
        if isinstance(origin, Origin):
            result[name] = origin
    return result
