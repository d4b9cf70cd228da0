"""The contract of a search space, and the operations derived from its only primitive, :meth:`Space.decide`."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Container, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from weakref import WeakKeyDictionary

import numpy as np

from .arrays import Floats, Ints
from .errors import InvalidConfig, SearchlabError, UnsupportedWorkload, first_line
from .options import ChecksOptions, is_numpy, plain
from .plugins import Plugin, PluginKind, defined_at
from .target import Target
from .workload import Kernel, Workload

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

Value = bool | int | float | str | tuple[int, ...]
"""A choice: a number, a word, or a tile (a loop's factors, outermost first)."""

Kind = Literal["number", "tile", "word", "mixed"]
"""The kinds of knobs; see :attr:`Knob.kind`."""


@dataclass(frozen=True)
class Knob:
    """One open choice of a program.

    Attributes:
        name: The name, unique within a config.
        choices: The possible values: at least one, all different. Their order defines each choice's index.
        role: The purpose of the choice, if known: ``unroll``, ``location`` (where a stage is computed), ``parallel``,
            ``sketch`` or ``tile``. It is used by :meth:`Space.mutate_by_role`.

    Raises:
        InvalidConfig: If ``choices`` is empty.

    Example:
        >>> from searchlab import Knob
        >>> Knob("tile", [(1, 64), (8, 8), (64, 1)]).kind
        'tile'
    """

    name: str
    choices: Sequence[Value]
    role: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if type(self.choices) not in (list, tuple, range) and not (
            is_numpy(self.choices) or isinstance(self.choices, Sequence)
        ):
            raise SearchlabError(f"the choices of knob {self.name!r} must be a sequence, not {self.choices!r:.200}")
        if is_numpy(self.choices) or (len(self.choices) > 0 and is_numpy(self.choices[0])):
            plain_choices = [tuple(value) if isinstance(value, list) else value for value in plain(list(self.choices))]
            object.__setattr__(self, "choices", plain_choices)
        if not self.choices:
            raise InvalidConfig(f"knob {self.name!r} has no legal choice left")

    @cached_property
    def kind(self) -> Kind:
        """How the choices are compared.

        A ``number`` is compared by value, and a ``tile`` by the logarithms of its factors. Choices of kind ``word``,
        such as strings and booleans, are compared only for equality. A ``mixed`` knob has choices of several kinds. A
        subclass whose tuples are not tiles but, for example, permutations should return ``word``.
        """
        kinds = {_kind(value) for value in self.choices}
        return kinds.pop() if len(kinds) == 1 else "mixed"

    @property
    def default(self) -> Value:
        """The choice in the default config: the middle one, or the first if they have no order, as in ConfigSpace."""
        return self.choices[0 if self.kind == "word" else len(self.choices) // 2]

    def redraw(self, value: Value, rng: np.random.Generator) -> Value:
        """Draw a choice other than ``value``; the knob must have at least one other choice."""
        choices = self.choices
        if value not in choices:
            return choices[int(rng.integers(len(choices)))]
        index = int(rng.integers(len(choices) - 1))  # among the other choices
        return choices[index + (index >= choices.index(value))]

    def move_factor(self, value: Value, rng: np.random.Generator) -> Value:
        """Move a factor (prime or composite) between two levels of the tile ``value``, so that the result is a choice.

        A pair of levels for which this is possible is drawn first, and then the factor. If there is no such pair, or if
        the knob is not a tile, the value is :meth:`redraw`. Source: MetaSchedule's ``mutate_tile_size.cc``.
        """
        if self.kind == "tile" and isinstance(value, tuple):
            pairs = _level_pairs(value)
            while pairs:
                x, y = pairs.pop(int(rng.integers(len(pairs))))
                if (value, x, y) not in self._moves:
                    moves = (_move_factor(value, x, y, factor) for factor in _divisors(value[x])[1:])
                    self._moves[value, x, y] = [tile for tile in moves if tile in self.choices]
                if tiles := self._moves[value, x, y]:
                    return tiles[int(rng.integers(len(tiles)))]
        return self.redraw(value, rng)

    def adjacent(self, value: Value) -> Sequence[Value]:
        """Return the choices that are one step away from ``value``, or all other choices if they have no order.

        A step changes a number to the next smaller or larger choice, or moves a prime factor between two levels of a
        tile. If no choice is one step away from a tile, all other choices are returned.
        """
        if value not in self._adjacent:
            other_choices: list[Any] = [choice for choice in self.choices if choice != value]
            neighbours: list[Value] = other_choices
            if self.kind == "number":
                neighbours = [
                    *sorted(number for number in other_choices if number < value)[-1:],
                    *sorted(number for number in other_choices if number > value)[:1],
                ]
            elif self.kind == "tile" and isinstance(value, tuple):
                moves = [
                    _move_factor(value, x, y, divisor)
                    for x, y in _level_pairs(value)
                    for divisor in _divisors(value[x])
                    if len(_divisors(divisor)) == 2  # a prime
                ]
                neighbours = [tile for tile in moves if tile in self.choices] or other_choices
            self._adjacent[value] = neighbours
        return self._adjacent[value]

    @cached_property
    def _adjacent(self) -> dict[Value, Sequence[Value]]:
        return {}  # filled by adjacent()

    @cached_property
    def _moves(self) -> dict[tuple[Value, int, int], list[tuple[int, ...]]]:
        return {}  # filled by move_factor(), by tile and levels


def _kind(value: Value) -> Kind:
    if isinstance(value, bool | str):
        return "word"
    return "tile" if isinstance(value, tuple) else "number"


def _level_pairs(tile: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the pairs of levels between which a factor can be moved."""
    return [(x, y) for x, factor in enumerate(tile) if factor > 1 for y in range(len(tile)) if y != x]


def _move_factor(tile: tuple[int, ...], x: int, y: int, factor: int) -> tuple[int, ...]:
    levels = list(tile)
    levels[x] //= factor
    levels[y] *= factor
    return tuple(levels)


@lru_cache(maxsize=4096)
def _divisors(n: int) -> list[int]:
    return [divisor for divisor in range(1, n + 1) if n % divisor == 0]


def coordinates(value: Value, is_word: bool = False) -> list[tuple[int | str, float]]:
    """Represent a choice by pairs (part, number); a part is the index of a factor, 0 for a plain number, or the word.

    Args:
        value: The choice.
        is_word: Whether the knob's kind is ``word``, in which case a tuple is not a tile.
    """
    if is_word and isinstance(value, tuple):
        value = ",".join(map(str, value))
    if isinstance(value, tuple):
        return [(i, math.log2(factor) if factor > 0 else -1.0) for i, factor in enumerate(value)]
    return [(value, 1.0)] if isinstance(value, str) else [(0, float(value))]


class Encoding:
    """Converts configs to rows of numbers: the log2 of each factor in a tile, numbers, and one-hot encoded words.

    Args:
        columns: The knob of each column, and the part of its value; see :func:`coordinates`. Repetitions are ignored.
        represent: A function that replaces :func:`coordinates`.
    """

    def __init__(
        self,
        columns: Iterable[tuple[str, int | str]],
        represent: Callable[[Value, bool], list[tuple[int | str, float]]] = coordinates,
    ) -> None:
        self._columns = {column: i for i, column in enumerate(dict.fromkeys(columns))}
        self._represent = represent
        self._words: dict[str, list[int]] = {}  # for each knob, the columns of its words
        for (name, part), i in self._columns.items():
            if isinstance(part, str):
                self._words.setdefault(name, []).append(i)
        self._cells: dict[tuple[str, Value], tuple[list[int], list[float]]] = {}

    def __call__(self, configs: Sequence[Mapping[str, Value]]) -> Floats:
        """Return an array of shape (n, columns), with NaN in the columns of knobs that a config lacks."""
        counts: list[int] = []
        columns: list[int] = []
        numbers: list[float] = []
        for config in configs:
            start = len(columns)
            for name, value in config.items():
                cells = self._cells.get((name, value)) or self._columns_of(name, value)
                columns += cells[0]
                numbers += cells[1]
            counts.append(len(columns) - start)
        matrix = np.full((len(configs), len(self._columns)), np.nan)
        rows = np.repeat(np.arange(len(configs)), np.array(counts, dtype=np.intp))
        matrix[rows, np.array(columns, dtype=np.intp)] = numbers
        return matrix

    def _columns_of(self, name: str, value: Value) -> tuple[list[int], list[float]]:
        represented = self._represent(value, name in self._words and (name, 0) not in self._columns)
        has_word = any(isinstance(part, str) for part, _ in represented)
        row = dict.fromkeys(self._words.get(name, []) if has_word else [], 0.0)
        for part, number in represented:
            if (name, part) in self._columns:
                row[self._columns[name, part]] = number
        return self._cells.setdefault((name, value), (list(row), list(row.values())))


class Config(Mapping[str, Value]):
    """A point in a search space: the values of its knobs, in the order in which the space asked for them.

    A config is an immutable, hashable mapping. Configs with the same values are equal regardless of their order.

    Args:
        values: The values by name. Lists are converted to tuples, since JSON has no tuples, and NumPy's scalars and
            arrays to plain numbers and tuples, since a log could not store them.

    Example:
        >>> from searchlab import Config
        >>> config = Config({"tile": [4, 8], "unroll": 16})
        >>> config["tile"], config == Config({"unroll": 16, "tile": (4, 8)})
        ((4, 8), True)
    """

    __slots__ = ("_hash", "_values")

    def __init__(self, values: Mapping[str, Any] | Sequence[tuple[str, Any]] = ()) -> None:
        items = values.items() if isinstance(values, Mapping) else values
        self._values: dict[str, Value] = {k: v if type(v) in _SCALARS else _plain(v) for k, v in items}
        self._hash: int | None = None

    @classmethod
    def wrap(cls, values: dict[str, Value]) -> Self:
        """Return a config that wraps ``values`` itself, without copying or converting it."""
        config = cls.__new__(cls)
        config._values, config._hash = values, None
        return config

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    # Mapping could derive the next four methods, but searches call them so often that their speed matters.

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def keys(self) -> KeysView[str]:
        return self._values.keys()

    def items(self) -> ItemsView[str, Value]:
        return self._values.items()

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._values.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Config):
            return self._values == other._values
        return NotImplemented

    def __repr__(self) -> str:
        return f"Config({self._values})"

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary from which :class:`Config` creates an equal config."""
        return dict(self._values)


_SCALARS = frozenset({bool, int, float, str})


def _plain(value: Any) -> Any:
    """Return a choice that is not a plain scalar, with lists as tuples and NumPy's numbers as Python's."""
    if type(value) in (list, tuple) and _SCALARS.issuperset(map(type, value)):
        return tuple(value)
    value = plain(value)
    return tuple(value) if isinstance(value, list) else value


def _types(value: Value) -> tuple[type, ...]:
    """Return the type of a choice, followed by the types of its factors if it is a tuple."""
    return (tuple, *map(type, value)) if type(value) is tuple else (type(value),)


def _check_choice(knob: Knob, value: Any) -> None:
    """Raise InvalidConfig unless ``value`` is a choice of ``knob`` and has its type: 64.0 is not 64, nor is True 1."""
    choices = knob.choices
    is_value = type(value) in _SCALARS or (type(value) is tuple and _SCALARS.issuperset(map(type, value)))
    if not is_value or value not in choices:
        raise InvalidConfig(
            f"knob {knob.name!r} cannot be {value!r:.200}; it has {len(choices)} choices, such as {choices[0]!r} and "
            f"{choices[-1]!r}"
        )
    choice = choices[choices.index(value)]
    if _types(choice) != _types(value):
        kinds = " and not ".join(f"{item!r} ({type(item).__name__})" for item in (choice, value))
        raise InvalidConfig(f"knob {knob.name!r} cannot be {value!r}: the choice is {kinds}")


_RECENT_KNOBS: WeakKeyDictionary[Space, dict[Config, tuple[Config, list[Knob]]]] = WeakKeyDictionary()

REMEMBERED = 4096
"""The maximum number of configs of a space whose knobs are remembered. If there are more, all are forgotten."""


def _recent_knobs(space: Space) -> dict[Config, tuple[Config, list[Knob]]]:
    """Return recent configs of ``space`` and their knobs; a search mutates the configs that it has just made."""
    cache = _RECENT_KNOBS.setdefault(space, {})
    if len(cache) > REMEMBERED:
        cache.clear()
    return cache


Choose = Callable[[Knob], Value]
"""A function that returns one of a knob's choices."""


class Space(ChecksOptions, ABC):
    """A search space: a program with open choices, for one workload and one target.

    Subclasses implement :meth:`decide` and :meth:`schedule`. Sampling, mutation, crossover, neighbours, enumeration,
    membership and Optuna's ``suggest`` are derived from :meth:`decide`. A space must be picklable, because worker
    processes receive a copy. Options are keyword arguments of the constructor, with defaults.

    Args:
        workload: The computation.
        target: The target to build for.

    Attributes:
        takes: The computations for which the space has programs, each as its :attr:`Workload.op`. The constructor
            rejects all others, unless this is empty, which is the default.
        builds_programs: Whether :meth:`decide` schedules a program, which takes milliseconds instead of microseconds.
        has_programs: False if only recorded times exist, as for configs that another tuner measured.
        error_factor: Programs may deviate from the reference by this factor times :meth:`Workload.tolerance`.
        made_with: The options passed to the constructor, which the log records.

    Raises:
        UnsupportedWorkload: If the space has no program for the workload or the target.

    Example:
        >>> import numpy as np, searchlab
        >>> from tvm.s_tir import Schedule
        >>> class Unroll(searchlab.Space):
        ...     def decide(self, choose):
        ...         return searchlab.Config({"unroll": choose(searchlab.Knob("unroll", [0, 16, 64]))})
        ...     def schedule(self, config):
        ...         self.knobs(config)  # raises InvalidConfig if it is not a member
        ...         schedule = Schedule(self.workload.module)
        ...         loop, *_ = schedule.get_loops(schedule.get_sblock("gemm"))
        ...         schedule.annotate(loop, "pragma_auto_unroll_max_step", config["unroll"])
        ...         return schedule
        >>> space = Unroll(searchlab.gemm(8, 8, 8), searchlab.resolve_target("znver4"))
        >>> space.size(), space.sample(np.random.default_rng(0)) in space
        (3, True)
    """

    takes: ClassVar[tuple[str, ...]] = ()
    builds_programs = False
    has_programs = True
    error_factor = 1.0
    made_with: Mapping[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        space = super().__new__(cls)
        names = list(inspect.signature(cls).parameters)[2:] if len(args) > 2 else []
        arguments = {**dict(zip(names, args[2:], strict=False)), **kwargs}
        space.made_with = {name: value for name, value in arguments.items() if name not in ("workload", "target")}
        workload = args[0] if args else kwargs.get("workload")
        if cls.takes and isinstance(workload, Workload) and workload.op not in cls.takes:
            description = "" if str(workload).startswith(workload.op) else f", which is {workload.op}"
            raise UnsupportedWorkload(
                f"space {SPACES.name_of(cls)!r} has programs for {' and '.join(cls.takes)}, but not for "
                f"{workload}{description}"
            )
        return space

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "decide" in vars(cls):
            cls.decide = _convert_errors(cls.decide)  # type: ignore[assignment,method-assign]

    def __init__(self, workload: Workload, target: Target) -> None:
        self.workload = workload
        self.target = target

    @abstractmethod
    def decide(self, choose: Choose) -> Config:
        """Ask ``choose`` for each knob's value in turn, and return the config with these values.

        The later knobs and their choices may depend on the earlier values, but otherwise only on the workload, the
        target and the options. Each knob must have at least one choice, and its choices must all be different.

        Args:
            choose: A function that returns one of a knob's choices.
        """

    @abstractmethod
    def schedule(self, config: Config) -> Schedule:
        """Return the workload's PrimFunc, transformed according to ``config``.

        The program may accept arguments in packed form if they are constant in a model; see
        :func:`~searchlab.workload.packed_arguments`.

        Raises:
            InvalidConfig: If ``config`` is not a member of the space or has no legal program; the message says why.
        """

    def features(self, config: Mapping[str, Value]) -> Floats:
        """Return the choices in ``config`` as numbers, for policies that fit their own models.

        A tile is represented by the log2 of each factor, a number by itself, and a word by one-hot encoding. The values
        are the same as those of the features ``knob`` for cost models. The columns are the same for all configs in the
        space. No program is built.

        Args:
            config: A config of this space.

        Returns:
            An array of shape (d,), with NaN in the columns of knobs that the config lacks.

        Example:
            >>> from searchlab.conformance.toys import Small
            >>> space = Small()
            >>> space.features(next(space.enumerate())).shape
            (7,)
        """
        row: Floats = self._encoding([config])[0]
        return row

    @cached_property
    def _encoding(self) -> Encoding:
        choices = ((knob, choice) for knob in self.knobs_of(self.probe()).values() for choice in knob.choices)
        return Encoding(
            (knob.name, part) for knob, choice in choices for part, _ in coordinates(choice, knob.kind == "word")
        )

    # --- derived from ``decide`` --------------------------------------------------------------------

    def knobs(self, config: Mapping[str, Value]) -> list[Knob]:
        """Return the knobs of ``config``, in order.

        Raises:
            InvalidConfig: If ``config`` is not a member of the space.
        """
        cache = _recent_knobs(self)
        knobs: list[Knob]
        with suppress(TypeError):  # a value that has no hash is not a choice, which is reported below
            if isinstance(config, Config) and config in cache:
                member, knobs = cache[config]
                # Equal configs may have values of different types, which are then compared with the choices.
                if config is member or all(_types(config[name]) == _types(value) for name, value in member.items()):
                    return list(knobs)
        knobs = []

        def choose(knob: Knob) -> Value:
            knobs.append(knob)
            if knob.name not in config:
                raise InvalidConfig(f"the config has no value for knob {knob.name!r}")
            value = config[knob.name]
            _check_choice(knob, value)
            return value

        self.decide(choose)
        extra = set(config) - {knob.name for knob in knobs}
        if extra:
            raise InvalidConfig(f"the config has values for {sorted(extra)}, which are not knobs of this config")
        if isinstance(config, Config):
            cache[config] = config, knobs
        return list(knobs)

    def knobs_of(self, configs: Iterable[Mapping[str, Value]]) -> dict[str, Knob]:
        """Return the knobs in ``configs`` by name, each from the first config that has it, ignoring non-members."""
        knobs: dict[str, Knob] = {}
        for config in configs:
            if any(name not in knobs for name in config):
                with suppress(InvalidConfig):
                    knobs = {**{knob.name: knob for knob in self.knobs(config)}, **knobs}
        return knobs

    def __contains__(self, config: object) -> bool:
        with suppress(InvalidConfig):
            return isinstance(config, Mapping) and self.knobs(config) is not None
        return False

    def sample(self, rng: np.random.Generator) -> Config:
        """Draw a config by choosing uniformly among each knob's choices."""
        return self.decide(lambda knob: knob.choices[int(rng.integers(len(knob.choices)))])

    def samples(self, rng: np.random.Generator, n: int) -> list[Config]:
        """Draw ``n`` configs, which are those that ``n`` calls of :meth:`sample` would draw."""
        return [self.sample(rng) for _ in range(n)]

    def default_config(self) -> Config:
        """Return the config to use if nothing has been measured; with ``warm_start="default"``, it is the first trial.

        Each knob has its :attr:`~Knob.default`. If this config has no program, the first config in :meth:`probe` that
        has one takes its place.
        """
        default = self.decide(lambda knob: knob.default)
        for config in chain([default], self.probe()) if self.has_programs else ():
            with suppress(InvalidConfig):
                self.schedule(config)
                return config
        return default

    def probe(self, count: int = 64) -> list[Config]:
        """Return ``count`` random configs, the same in every process, that show which knobs the space has."""
        return self.samples(np.random.default_rng(0), count)

    def sample_new(self, rng: np.random.Generator, n: int, seen: Container[Config]) -> list[Config]:
        """Draw ``n`` distinct configs that are not in ``seen``, or fewer if the space has no more."""
        new_configs: dict[Config, None] = {}
        misses, max_misses = 0, 50 + 10 * n
        while len(new_configs) < n and misses < max_misses:
            for config in self.samples(rng, min(n - len(new_configs), max_misses - misses)):
                if config in seen or config in new_configs:
                    misses += 1
                else:
                    new_configs[config] = None
        if len(new_configs) < n:
            # The space is nearly exhausted, at least where most samples fall. Enumerate it in random order, and collect
            # enough unseen configs to choose from.
            unseen = (config for config in self.enumerate(rng) if config not in seen and config not in new_configs)
            candidates = list(islice(unseen, max(n, 4096)))
            order = rng.permutation(len(candidates))[: n - len(new_configs)]
            new_configs.update(dict.fromkeys(candidates[i] for i in order))
        return list(new_configs)

    def repair(self, values: Mapping[str, Value], rng: np.random.Generator) -> Config:
        """Return a config with every legal value from ``values`` and random values for the other knobs."""

        knobs: list[Knob] = []

        def choose(knob: Knob) -> Value:
            knobs.append(knob)
            value = values.get(knob.name)
            if value is not None:
                with suppress(ValueError):
                    return knob.choices[knob.choices.index(value)]  # which has the right type
            return knob.choices[int(rng.integers(len(knob.choices)))]

        config = self.decide(choose)
        if len(knobs) == len(config):  # otherwise `knobs` rejects the config
            _recent_knobs(self)[config] = config, knobs
        return config

    def mutate(self, config: Config, rng: np.random.Generator) -> Config:
        """Change one random knob of ``config``, and repair the later knobs that depend on it."""
        open_knobs = [knob for knob in self.knobs(config) if len(knob.choices) > 1]
        if not open_knobs:
            return config
        knob = open_knobs[int(rng.integers(len(open_knobs)))]
        values = dict(config.items())  # faster than {**config}, which looks up each key
        values[knob.name] = knob.redraw(config[knob.name], rng)
        return self.repair(values, rng)

    def mutate_by_role(self, config: Config, rng: np.random.Generator, weights: Mapping[str, float]) -> Config:
        """Change one knob of ``config``, whose role is drawn by weight; if it is a tile, move only one factor.

        Args:
            config: A member of the space.
            rng: The source of randomness.
            weights: A mapping from role (or kind, for knobs without a role) to the total weight of its knobs;
                ``"other"`` stands for all other roles. Roles that ``config`` lacks are ignored. If no weight remains,
                knobs are equally likely.
        """
        roles: dict[str, list[Knob]] = {}
        for knob in self.knobs(config):
            if len(knob.choices) > 1:
                role = knob.role or knob.kind
                roles.setdefault(role if role in weights else "other", []).append(knob)
        if not roles:
            return config
        limits = list(accumulate(weights.get(role, 0.0) for role in roles))
        if limits[-1] > 0:
            knobs = list(roles.values())[bisect_right(limits, rng.random() * limits[-1], hi=len(limits) - 1)]
        else:
            knobs = list(chain(*roles.values()))
        knob = knobs[int(rng.integers(len(knobs)))]
        return self.repair({**config, knob.name: knob.move_factor(config[knob.name], rng)}, rng)

    def crossover(self, a: Config, b: Config, rng: np.random.Generator) -> Config:
        """Copy each knob from one of two parents at random, and repair the result (uniform crossover)."""
        take_b = {name for name in b if name not in a or rng.random() < 0.5}
        return self.repair({**a, **{name: b[name] for name in take_b}}, rng)

    def neighbours(self, config: Config, rng: np.random.Generator) -> Iterator[Config]:
        """Yield each config obtained by changing one knob of ``config`` and repairing the knobs that depend on it."""
        for knob in self.knobs(config):
            for value in knob.choices:
                if value != config[knob.name]:
                    yield self.repair({**config, knob.name: value}, rng)

    def enumerate(self, rng: np.random.Generator | None = None) -> Iterator[Config]:
        """Yield every config once, depth first, with the last knob changing fastest.

        Args:
            rng: The source of randomness for shuffling each knob's choices; None keeps their order.
        """
        path: list[tuple[int, Sequence[int]]] = []  # the position in an ordering of the choices, for each knob so far
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
        """Return the number of configs, or None if it exceeds ``limit``."""
        count = 0
        for count, _ in enumerate(self.enumerate(), 1):
            if count > limit:
                return None
        return count

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the space's structure: the workload, the target, and the knobs of 32 fixed random configs."""
        digest = hashlib.sha256(f"{self.workload} {self.target}".encode())
        knobs = chain.from_iterable(self._probed_knobs())
        for name, choices in dict.fromkeys((knob.name, tuple(knob.choices)) for knob in knobs):
            digest.update(json.dumps([name, list(choices)]).encode())
        return digest.hexdigest()[:16]

    def check_repeats(self) -> None:
        """Raise SearchlabError if :meth:`decide` rejects configs that it has returned."""
        list(self._probed_knobs())

    def _probed_knobs(self) -> Iterator[list[Knob]]:
        for config in self.probe(32):
            try:
                knobs = self.knobs(config)
            except InvalidConfig as error:
                raise SearchlabError(
                    f"space {SPACES.name_of(type(self))!r} broke its contract: decide() returned the config "
                    f"{config.to_json()}, but later rejected it: {error} "
                    f"({defined_at(inspect.unwrap(type(self).decide))}); its knobs may depend only on the workload, "
                    f"the target, options and earlier choices"
                ) from None
            yield knobs


def _convert_errors(decide: Callable[[Any, Choose], Config]) -> Callable[[Any, Choose], Config]:
    """Wrap ``decide`` so that any errors it raises name the space."""

    @functools.wraps(decide)
    def converting(self: Space, choose: Choose) -> Config:
        try:
            return decide(self, choose)
        except SearchlabError:
            raise
        except (Exception, SystemExit) as error:  # a context manager would cost as much as many a call
            raise SPACES.failure(type(self), "decide", error) from error

    return converting


class ProductSpace(Space):
    """A space with independent knobs: the Cartesian product of their choices. The first knob's index changes fastest.

    Args:
        workload: The computation.
        target: The target to build for.
        knobs: The knobs, in order.

    Attributes:
        axes: The knobs, as a tuple.

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
        """Whether all combinations are members; a subclass that overrides ``decide`` may exclude some."""
        return type(self).decide is ProductSpace.decide

    def decide(self, choose: Choose) -> Config:
        return Config([(knob.name, choose(knob)) for knob in self.axes])

    def knobs(self, config: Mapping[str, Value]) -> list[Knob]:
        if not self._holds(config):
            return super().knobs(config)
        for knob in self.axes:
            if _types(config[knob.name]) not in self._choice_types[knob.name]:
                _check_choice(knob, config[knob.name])
        return list(self.axes)

    def samples(self, rng: np.random.Generator, n: int) -> list[Config]:
        is_uniform = self.independent and type(self).sample is Space.sample
        return self._draw(rng, n) if is_uniform else super().samples(rng, n)

    def _draw(self, rng: np.random.Generator, n: int) -> list[Config]:
        """Draw ``n`` configs of the complete product."""
        # An array of limits consumes the same random bits as one limit after another.
        rows = rng.integers([len(knob.choices) for knob in self.axes], size=(n, len(self.axes))).tolist()
        return [
            Config.wrap({knob.name: knob.choices[i] for knob, i in zip(self.axes, row, strict=True)}) for row in rows
        ]

    def repair(self, values: Mapping[str, Value], rng: np.random.Generator) -> Config:
        if self.independent and self._holds(values):
            return Config.wrap({knob.name: values[knob.name] for knob in self.axes})
        return super().repair(values, rng)

    def mutate(self, config: Config, rng: np.random.Generator) -> Config:
        """Mutate as in :class:`Space`, but faster: model-guided searches spend half of their time in this method."""
        if not self.independent:
            return super().mutate(config, rng)
        if not self._holds(config):
            self.knobs(config)  # reports the wrong knob
        if not self._open_knobs:
            return config
        knob = self._open_knobs[int(rng.integers(len(self._open_knobs)))]
        value = knob.redraw(config[knob.name], rng)
        return Config.wrap({axis.name: value if axis is knob else config[axis.name] for axis in self.axes})

    @cached_property
    def _open_knobs(self) -> list[Knob]:
        return [knob for knob in self.axes if len(knob.choices) > 1]

    def _holds(self, config: Mapping[str, Value]) -> bool:
        """Return whether ``config`` is in the product."""
        with suppress(TypeError):  # a value that has no hash is not a choice
            return len(config) == len(self.axes) and config.items() <= self._choices
        return False

    @cached_property
    def _choices(self) -> frozenset[tuple[str, Value]]:
        return frozenset((knob.name, value) for knob in self.axes for value in knob.choices)

    @cached_property
    def _choice_types(self) -> dict[str, set[tuple[type, ...]]]:
        """The types of each knob's choices, or an empty set if they differ, so that each value must be compared."""
        types = {knob.name: {_types(choice) for choice in knob.choices} for knob in self.axes}
        return {name: choice_types if len(choice_types) == 1 else set() for name, choice_types in types.items()}

    def __len__(self) -> int:
        """Return :meth:`size`. Python raises OverflowError if it exceeds 2^63 - 1."""
        return self.size()

    def __bool__(self) -> bool:
        return True  # without this, Python would ask for the length, which may be too large

    @property
    def range_length(self) -> int:
        """The number of indices, which equals the size unless a subclass excludes some combinations."""
        return math.prod(len(knob.choices) for knob in self.axes)

    def size(self, limit: int = 0) -> int:
        """Return the number of configs; ``limit`` is ignored, because the number is known without counting."""
        return self.range_length

    def config_at(self, index: int) -> Config:
        """Return the config at an index in [0, :attr:`range_length`)."""
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
        """Return the index of ``config``. This is the inverse of :meth:`config_at`.

        Raises:
            InvalidConfig: If ``config`` is not a member of the space.
        """
        index, stride = 0, 1
        try:
            for knob, position in zip(self.axes, self._positions, strict=True):
                index += stride * position[config[knob.name]]
                stride *= len(knob.choices)
        except KeyError:
            self.knobs(config)  # raises InvalidConfig, which says which knob is wrong
            raise
        return index

    def indices(self, configs: Sequence[Config]) -> Ints:
        """Return the indices of the configs' choices as an array of shape (len(configs), number of knobs)."""
        return np.array(
            [[position[c[k.name]] for k, position in zip(self.axes, self._positions, strict=True)] for c in configs],
            dtype=np.int64,
        ).reshape(len(configs), len(self.axes))

    def enumerate(self, rng: np.random.Generator | None = None) -> Iterator[Config]:
        """Yield every config once, with the first knob changing fastest, or in random order if ``rng`` is passed."""
        return super().enumerate(rng) if rng else (self.config_at(i) for i in range(self.size()))


class SpaceKind(PluginKind[Space]):
    """The plug-in kind of spaces. If a space does not support a workload, the error names the spaces that do."""

    def make(self, plugin: Plugin, *args: Any, **kwargs: Any) -> Space:
        try:
            return super().make(plugin, *args, **kwargs)
        except UnsupportedWorkload as error:
            workload, target = args
            if isinstance(workload, Kernel):  # no space has programs for it
                raise
            spaces = " or ".join(self.spaces_for(workload, target))
            remedy = f"use {spaces}" if spaces else "no installed space has any"
            raise UnsupportedWorkload(f"{error}; {remedy}") from None

    def spaces_for(self, workload: Workload, target: Target) -> list[str]:
        """Return the names of the installed spaces that have programs for ``workload`` on ``target``."""
        return [name for name, reason in self.refusals(workload, target).items() if not reason]

    def refusals(self, workload: Workload, target: Target) -> dict[str, str]:
        """Return why each installed space has no programs for ``workload`` on ``target``; empty for those that have.

        The space :data:`PARAMETERS`, which has no programs of its own, is omitted.
        """
        reasons = {}
        for name in self.entry_points_by_name():
            if name != PARAMETERS:
                try:
                    has_programs = self.load(name)(workload, target).has_programs
                    reasons[name] = "" if has_programs else f"space {name!r} has no programs, only recorded times"
                except Exception as error:  # a plug-in may raise anything
                    reasons[name] = first_line(error)
        return reasons


PARAMETERS = "parameters"
"""The name of the space of a mapping from knobs to values, and of other tuners' tables. A plug-in implements it."""

SPACES = SpaceKind("space", "searchlab.spaces", Space, positional=2)  # type: ignore[type-abstract]
