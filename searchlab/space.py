"""The contract of a search space, and all that follows from its one primitive, :meth:`Space.decide`."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .arrays import Floats, Ints
from .config import Config as Config
from .errors import InvalidConfig, SearchlabError
from .knob import Kind as Kind
from .knob import Knob as Knob
from .knob import Value as Value
from .knob import coordinates
from .options import ChecksOptions
from .plugins import PluginKind, place_of
from .target import Target
from .workload import Workload

if TYPE_CHECKING:
    from collections.abc import Container

    from tvm.s_tir import Schedule

Choose = Callable[[Knob], Value]


class Space(ChecksOptions, ABC):
    """A search space: a program with open choices.

    A subclass implements :meth:`decide` and :meth:`schedule`; sampling, mutation, crossover, neighbours, enumeration,
    membership and Optuna's ``suggest`` follow from ``decide``. It must be picklable, since worker processes rebuild it.

    Args:
        workload: The computation.
        target: What to build for. Subclasses add options as keyword arguments.

    Raises:
        UnsupportedWorkload: If the space has no program for the workload or the target.

    Example:
        >>> import numpy as np, searchlab
        >>> space = searchlab.load_log("gemm.jsonl").space
        >>> config = space.sample(np.random.default_rng(0))
        >>> sorted(config), space.schedule(config).mod is not None
        (['pack_b', 'tile_i', 'tile_j', 'tile_k'], True)
    """

    builds_programs = False
    """Whether a decision schedules a program, which takes milliseconds and not microseconds."""

    has_programs = True
    """Whether its configs have programs. A space of configs that another tuner measured has none: a table answers."""

    error_factor = 1.0
    """How many times as far from the right result its programs may be as :meth:`Workload.tolerance` says."""

    made_with: Mapping[str, Any]
    """The options that were given; a log holds them, so that the space can be made again."""

    def __new__(cls, *args: Any, **given: Any) -> Self:
        space = super().__new__(cls)
        names = list(inspect.signature(cls).parameters)[2:] if len(args) > 2 else []
        named = {**dict(zip(names, args[2:], strict=False)), **given}
        space.made_with = {name: value for name, value in named.items() if name not in ("workload", "target")}
        return space

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if "decide" in vars(cls):
            cls.decide = _blaming(cls.decide)  # type: ignore[assignment,method-assign]

    def __init__(self, workload: Workload, target: Target) -> None:
        self.workload = workload
        self.target = target

    @abstractmethod
    def decide(self, choose: Choose) -> Config:
        """Ask ``choose`` for the value of each knob in turn; a later knob may depend on an earlier choice.

        After any choices, every later knob has a choice. The choices of a knob differ.
        """

    @abstractmethod
    def schedule(self, config: Config) -> Schedule:
        """The workload's PrimFunc, transformed as ``config`` says. Raises InvalidConfig, which says why."""

    def features(self, config: Mapping[str, Value]) -> Floats:
        """The choices of ``config`` as numbers, for a policy with a model of its own. No program is built.

        A tile is the log2 of each factor, a number is itself, and a word is a column for each word: 1 for the one that
        is chosen, else 0. These are the numbers of the features ``knob`` of cost models, in columns that are the same
        for all configs of the space.

        Args:
            config: A config of this space.

        Returns:
            An array (d,); NaN in the columns of knobs that the config does not have.

        Example:
            >>> from searchlab.conformance.toys import Small
            >>> space = Small()
            >>> space.features(next(space.enumerate())).shape
            (7,)
        """
        row = np.full(len(self._columns), np.nan)
        for name, value in config.items():
            is_word = self._kinds.get(name) == "word"
            if is_word:
                row[self._words.get(name, [])] = 0.0
            for part, number in coordinates(value, is_word):
                if (name, part) in self._columns:
                    row[self._columns[name, part]] = number
        return row

    @cached_property
    def _kinds(self) -> dict[str, Kind]:
        return {name: knob.kind for name, knob in self.knobs_of(self.probe()).items()}

    @cached_property
    def _columns(self) -> dict[tuple[str, int | str], int]:
        """The place of each part of a choice in :meth:`features`."""
        parts = [
            (name, part)
            for name, knob in self.knobs_of(self.probe()).items()
            for choice in knob.choices
            for part, _ in coordinates(choice, knob.kind == "word")
        ]
        return {part: place for place, part in enumerate(dict.fromkeys(parts))}

    @cached_property
    def _words(self) -> dict[str, list[int]]:
        """The places of the words of each knob."""
        words: dict[str, list[int]] = {}
        for (name, part), place in self._columns.items():
            if isinstance(part, str):
                words.setdefault(name, []).append(place)
        return words

    # --- everything that follows is derived from ``decide`` -----------------------------------------

    def knobs(self, config: Mapping[str, Value]) -> list[Knob]:
        """The knobs that are asked for on the way to ``config``. Raises InvalidConfig if it is no member."""
        asked: list[Knob] = []

        def choose(knob: Knob) -> Value:
            asked.append(knob)
            if knob.name not in config:
                raise InvalidConfig(f"the config has no value for knob {knob.name!r}")
            value = config[knob.name]
            if value not in knob.choices:
                raise InvalidConfig(
                    f"knob {knob.name!r} cannot be {value!r}; it has {len(knob.choices)} choices "
                    f"such as {knob.choices[0]!r} and {knob.choices[-1]!r}"
                )
            return value

        self.decide(choose)
        extra = set(config) - {knob.name for knob in asked}
        if extra:
            raise InvalidConfig(f"the config has values for {sorted(extra)}, but this space has no such knobs here")
        return asked

    def knobs_of(self, configs: Iterable[Mapping[str, Value]]) -> dict[str, Knob]:
        """The knobs of ``configs`` by name, each as it is in the first config that has it.

        Configs that are no members are skipped.
        """
        knobs: dict[str, Knob] = {}
        for config in configs:
            if any(name not in knobs for name in config):
                with suppress(InvalidConfig):
                    knobs = {**{knob.name: knob for knob in self.knobs(config)}, **knobs}
        return knobs

    def __contains__(self, config: object) -> bool:
        try:
            return isinstance(config, Mapping) and bool(self.knobs(config) or True)
        except InvalidConfig:
            return False

    def sample(self, rng: np.random.Generator) -> Config:
        """One config, each knob drawn uniformly from its choices."""
        return self.decide(lambda knob: knob.choices[int(rng.integers(len(knob.choices)))])

    def probe(self, count: int = 64) -> list[Config]:
        """``count`` fixed random configs, the same in every process: they show which knobs the space has."""
        rng = np.random.default_rng(0)
        return [self.sample(rng) for _ in range(count)]

    def sample_new(self, rng: np.random.Generator, n: int, seen: Container[Config]) -> list[Config]:
        """Up to ``n`` distinct random configs that are not in ``seen``; fewer only if the space has no more."""
        new: dict[Config, None] = {}
        misses = 0
        while len(new) < n and misses < 50 + 10 * n:
            config = self.sample(rng)
            if config in seen or config in new:
                misses += 1
            else:
                new[config] = None
        if len(new) < n:
            # The space is nearly exhausted, at least where most samples fall. So walk it in random order, skip the
            # configs that are seen, and collect enough new ones to choose from.
            others = (config for config in self.enumerate(rng) if config not in seen and config not in new)
            rest = list(islice(others, max(n, 4096)))
            new.update(dict.fromkeys(rest[i] for i in rng.permutation(len(rest))[: n - len(new)]))
        return list(new)

    def repaired(self, wanted: Mapping[str, Value], rng: np.random.Generator) -> Config:
        """The config that takes each value of ``wanted`` if it is legal, and else a random value."""

        def choose(knob: Knob) -> Value:
            value = wanted.get(knob.name)
            if value is not None and value in knob.choices:
                return value
            return knob.choices[int(rng.integers(len(knob.choices)))]

        return self.decide(choose)

    def mutate(self, config: Config, rng: np.random.Generator) -> Config:
        """``config`` with one random knob changed; later knobs that depend on it are repaired."""
        open_knobs = [knob for knob in self.knobs(config) if len(knob.choices) > 1]
        if not open_knobs:
            return config
        knob = open_knobs[int(rng.integers(len(open_knobs)))]
        wanted = dict(config.items())
        wanted[knob.name] = knob.redrawn(config[knob.name], rng)
        return self.repaired(wanted, rng)

    def mutate_by_role(self, config: Config, rng: np.random.Generator, weights: Mapping[str, float]) -> Config:
        """As :meth:`mutate`, but roles of knobs are drawn by weight, and a tile moves one factor (:meth:`Knob.moved`).

        weights: for each role, the weight of all its knobs together; ``"other"`` is for all roles without a weight.
            Roles that the config does not have are left out. If no weight is left, all its knobs are drawn alike.
        """
        roles = self.roles(config, weights)
        if not roles:
            return config
        limits = list(accumulate(weights.get(role, 0.0) for role in roles))
        if limits[-1] > 0:
            knobs = list(roles.values())[bisect_right(limits, rng.random() * limits[-1], hi=len(limits) - 1)]
        else:
            knobs = list(chain(*roles.values()))
        knob = knobs[int(rng.integers(len(knobs)))]
        wanted = dict(config.items())
        wanted[knob.name] = knob.moved(config[knob.name], rng)
        return self.repaired(wanted, rng)

    def roles(self, config: Config, weights: Mapping[str, float]) -> Mapping[str, list[Knob]]:
        """The open knobs of ``config`` by role; ``"other"`` are those whose role is not in ``weights``."""
        roles: dict[str, list[Knob]] = {}
        for knob in self.knobs(config):
            if len(knob.choices) > 1:
                role = knob.role or knob.kind
                roles.setdefault(role if role in weights else "other", []).append(knob)
        return roles

    def crossover(self, a: Config, b: Config, rng: np.random.Generator) -> Config:
        """A child that takes each knob from one parent or the other, repaired (uniform crossover)."""
        take_b = {name for name in b if name not in a or rng.random() < 0.5}
        return self.repaired({**a, **{name: b[name] for name in take_b}}, rng)

    def neighbours(self, config: Config, rng: np.random.Generator) -> Iterator[Config]:
        """Every config that differs from this one in one knob, and in the knobs that are then repaired."""
        for knob in self.knobs(config):
            for value in knob.choices:
                if value != config[knob.name]:
                    yield self.repaired({**config, knob.name: value}, rng)

    def enumerate(self, rng: np.random.Generator | None = None) -> Iterator[Config]:
        """Every config once, depth first: the last knob fastest, choices in order, or in random order with ``rng``."""
        path: list[tuple[int, Sequence[int]]] = []  # for each knob on the way: a position in the order of its choices
        depth = 0

        def choose(knob: Knob) -> Value:
            nonlocal depth
            if depth == len(path):
                count = len(knob.choices)
                path.append((0, range(count) if rng is None else rng.permutation(count).tolist()))
            position, order = path[depth]
            depth += 1
            return knob.choices[order[position]]

        while True:
            depth = 0
            yield self.decide(choose)
            while path and path[-1][0] + 1 == len(path[-1][1]):
                path.pop()
            if not path:
                return
            path[-1] = (path[-1][0] + 1, path[-1][1])

    def size(self, limit: int = 100_000) -> int | None:
        """The number of configs, or None if they must be counted and are more than ``limit``."""
        count = 0
        for count, _ in enumerate(self.enumerate(), 1):
            if count > limit:
                return None
        return count

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the space's structure: the knobs of 32 fixed random configs."""
        digest = hashlib.sha256(f"{self.workload} {self.target}".encode())
        seen: set[tuple[str, tuple[Value, ...]]] = set()
        for config in self.probe(32):
            try:
                knobs = self.knobs(config)
            except InvalidConfig as error:
                raise self._varying(config, error) from None
            for knob in knobs:
                mark = (knob.name, tuple(knob.choices))
                if mark not in seen:
                    seen.add(mark)
                    digest.update(json.dumps([knob.name, list(knob.choices)]).encode())
        return digest.hexdigest()[:16]

    def check_repeats(self) -> None:
        """Raise SearchlabError if :meth:`decide` refuses configs that it gives."""
        for config in self.probe(32):
            try:
                self.knobs(config)
            except InvalidConfig as error:
                raise self._varying(config, error) from None

    def _varying(self, config: Config, error: InvalidConfig) -> SearchlabError:
        """The error that says that ``decide`` gave ``config``, and then refused it with ``error``."""
        return SearchlabError(
            f"space {SPACES.name_of(type(self))!r} broke its contract: decide() gave the config {config.to_json()}, "
            f"and later {error} ({place_of(inspect.unwrap(type(self).decide))}); its knobs may depend on the workload, "
            f"the target, options and earlier choices only"
        )


def _blaming(decide: Callable[[Any, Choose], Config]) -> Callable[[Any, Choose], Config]:
    """``decide`` of a space, with the space named in whatever it raises."""

    @functools.wraps(decide)
    def blaming(self: Space, choose: Choose) -> Config:
        try:
            return decide(self, choose)
        except SearchlabError:
            raise
        except Exception as error:
            raise SPACES.failure(type(self), "decide", error) from error

    return blaming


class ProductSpace(Space):
    """A space with independent knobs: the product of their choices, indexed with the first knob fastest.

    Args:
        workload: The computation.
        target: What to build for.
        knobs: The knobs.

    Example:
        >>> import searchlab
        >>> knobs = [searchlab.Knob("a", [1, 2, 3]), searchlab.Knob("b", ["x", "y"])]
        >>> target = searchlab.resolve_target("znver4")
        >>> class Toy(searchlab.ProductSpace):
        ...     def schedule(self, config):
        ...         raise NotImplementedError
        >>> space = Toy(searchlab.gemm(8, 8, 8), target, knobs)
        >>> space.size(), space.config_at(4)
        (6, Config({'a': 2, 'b': 'y'}))
    """

    def __init__(self, workload: Workload, target: Target, knobs: Sequence[Knob]) -> None:
        super().__init__(workload, target)
        self.axes = tuple(knobs)

    @property
    def independent(self) -> bool:
        """Whether every choice goes with all others; a subclass with a ``decide`` of its own may leave some out."""
        return type(self).decide is ProductSpace.decide

    def decide(self, choose: Choose) -> Config:
        return Config([(knob.name, choose(knob)) for knob in self.axes])

    def repaired(self, wanted: Mapping[str, Value], rng: np.random.Generator) -> Config:
        if not self.independent:
            return super().repaired(wanted, rng)
        if self._holds(wanted):
            return Config.of({name: wanted[name] for name in self._names})
        values: dict[str, Value] = {}
        for knob, position in zip(self.axes, self._positions, strict=True):
            value = wanted.get(knob.name)
            if value is None or value not in position:
                value = knob.choices[int(rng.integers(len(knob.choices)))]
            values[knob.name] = value
        return Config.of(values)

    def mutate(self, config: Config, rng: np.random.Generator) -> Config:
        if not self.independent:
            return super().mutate(config, rng)
        self.knobs(config)  # says which knob is wrong
        if not self._open:
            return config
        knob = self._open[int(rng.integers(len(self._open)))]
        changed = knob.redrawn(config[knob.name], rng)
        return Config.of({name: changed if name == knob.name else config[name] for name in self._names})

    @cached_property
    def _open(self) -> list[Knob]:
        """The knobs that have more than one choice."""
        return [knob for knob in self.axes if len(knob.choices) > 1]

    def roles(self, config: Config, weights: Mapping[str, float]) -> Mapping[str, list[Knob]]:
        if not self.independent:
            return super().roles(config, weights)
        self.knobs(config)  # says which knob is wrong
        names = tuple(weights)
        if names not in self._roles:
            self._roles[names] = super().roles(config, weights)
        return self._roles[names]

    @cached_property
    def _roles(self) -> dict[tuple[str, ...], Mapping[str, list[Knob]]]:
        """The knobs by role, for the roles that have weights."""
        return {}

    def __len__(self) -> int:
        """The same as :meth:`size`; for more than 2^63 - 1, Python raises OverflowError."""
        return self.size()

    def __bool__(self) -> bool:
        return True  # every knob has a choice; Python would ask for the length, which may be too large

    @property
    def range_length(self) -> int:
        """How far indices go: the size, unless a subclass leaves some configs out."""
        return math.prod(len(knob.choices) for knob in self.axes)

    def size(self, limit: int = 0) -> int:
        return self.range_length

    def config_at(self, index: int) -> Config:
        """The config with this index, in [0, range_length)."""
        if not 0 <= index < self.range_length:
            raise IndexError(f"index {index} is outside [0, {self.range_length})")
        items = []
        for knob in self.axes:
            index, choice = divmod(index, len(knob.choices))
            items.append((knob.name, knob.choices[choice]))
        return Config(items)

    @cached_property
    def _positions(self) -> list[dict[Value, int]]:
        return [{value: i for i, value in enumerate(knob.choices)} for knob in self.axes]

    def index_of(self, config: Mapping[str, Value]) -> int:
        """The inverse of :meth:`config_at`. Raises InvalidConfig if ``config`` is no member."""
        index, stride = 0, 1
        try:
            for knob, position in zip(self.axes, self._positions, strict=True):
                index += stride * position[config[knob.name]]
                stride *= len(knob.choices)
        except KeyError:
            self.knobs(config)  # says which knob is wrong
            raise
        return index

    def enumerate(self, rng: np.random.Generator | None = None) -> Iterator[Config]:
        """Every config once, the first knob fastest, or in random order with ``rng``."""
        return super().enumerate(rng) if rng else (self.config_at(i) for i in range(self.size()))

    def knobs(self, config: Mapping[str, Value]) -> list[Knob]:
        return list(self.axes) if self._holds(config) else super().knobs(config)

    def _holds(self, config: Mapping[str, Value]) -> bool:
        """Whether ``config`` is in the product."""
        return len(config) == len(self.axes) and config.items() <= self._choices

    @cached_property
    def _names(self) -> list[str]:
        return [knob.name for knob in self.axes]

    @cached_property
    def _choices(self) -> frozenset[tuple[str, Value]]:
        return frozenset((knob.name, value) for knob in self.axes for value in knob.choices)

    def indices(self, configs: Sequence[Config]) -> Ints:
        """The positions of the choices: an int array of shape (len(configs), number of knobs)."""
        return np.array(
            [[position[c[k.name]] for k, position in zip(self.axes, self._positions, strict=True)] for c in configs],
            dtype=np.int64,
        ).reshape(len(configs), len(self.axes))


SPACES = PluginKind("space", "searchlab.spaces", Space, positional=2)  # type: ignore[type-abstract]
