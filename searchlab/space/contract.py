"""The contract of a search space, and the operations derived from its only primitive, :meth:`Space.decide`."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from ..arrays import Floats
from ..errors import InvalidConfig, SearchlabError, UnsupportedWorkload
from ..foreign_code import find_definition
from ..options import ChecksOptions
from ..target import Target
from ..workload import Workload
from .config import Config
from .encoding import Encoding, coordinates
from .knob import Knob, Value, check_choice, list_types
from .plugin_kind import SpaceKind

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

MAX_RECENT_CONFIGS = 4096
"""The maximum number of configs of a space whose knobs are remembered. If there are more, all are forgotten."""


class _RecentKnobs(dict[Config, tuple[Config, list[Knob]]]):
    """Recent configs and their knobs, because a search mutates the configs that it has just made. Copies are empty."""

    def add(self, config: Config, knobs: list[Knob]) -> None:
        if len(self) > MAX_RECENT_CONFIGS:
            self.clear()
        self[config] = config, knobs

    def __reduce__(self) -> tuple[type[_RecentKnobs], tuple[()]]:
        return _RecentKnobs, ()


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
        option_names = list(inspect.signature(cls).parameters)[2:] if len(args) > 2 else []
        arguments = {**dict(zip(option_names, args[2:], strict=False)), **kwargs}
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

        The schedule of a program that primitives cannot create has no trace (``Schedule._create_non_traced(module)``).
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

    @cached_property
    def _recent_knobs(self) -> _RecentKnobs:
        return _RecentKnobs()

    # --- derived from ``decide`` --------------------------------------------------------------------

    def knobs(self, config: Mapping[str, Value]) -> list[Knob]:
        """Return the knobs of ``config``, in order.

        Raises:
            InvalidConfig: If ``config`` is not a member of the space.
        """
        knobs: list[Knob]
        with suppress(TypeError):  # a value that has no hash is not a choice, which is reported below
            if isinstance(config, Config) and config in self._recent_knobs:
                member, knobs = self._recent_knobs[config]
                # Equal configs may have values of different types, which are then compared with the choices.
                has_same_types = (list_types(config[name]) == list_types(value) for name, value in member.items())
                if config is member or all(has_same_types):
                    return list(knobs)
        knobs = []

        def choose(knob: Knob) -> Value:
            knobs.append(knob)
            if knob.name not in config:
                raise InvalidConfig(f"the config has no value for knob {knob.name!r}")
            value = config[knob.name]
            check_choice(knob, value)
            return value

        self.decide(choose)
        unknown_names = set(config) - {knob.name for knob in knobs}
        if unknown_names:
            raise InvalidConfig(
                f"the config has values for {sorted(unknown_names)}, which are not knobs of this config"
            )
        if isinstance(config, Config):
            self._recent_knobs.add(config, knobs)
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
            self._recent_knobs.add(config, knobs)
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
        knobs_by_role: dict[str, list[Knob]] = {}
        for knob in self.knobs(config):
            if len(knob.choices) > 1:
                role = knob.role or knob.kind
                knobs_by_role.setdefault(role if role in weights else "other", []).append(knob)
        if not knobs_by_role:
            return config
        limits = list(accumulate(weights.get(role, 0.0) for role in knobs_by_role))
        if limits[-1] > 0:
            knobs = list(knobs_by_role.values())[bisect_right(limits, rng.random() * limits[-1], hi=len(limits) - 1)]
        else:
            knobs = list(chain(*knobs_by_role.values()))
        knob = knobs[int(rng.integers(len(knobs)))]
        return self.repair({**config, knob.name: knob.move_factor(config[knob.name], rng)}, rng)

    def crossover(self, a: Config, b: Config, rng: np.random.Generator) -> Config:
        """Copy each knob from one of two parents at random, and repair the result (uniform crossover)."""
        names_from_b = {name for name in b if name not in a or rng.random() < 0.5}
        return self.repair({**a, **{name: b[name] for name in names_from_b}}, rng)

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
        knobs = chain.from_iterable(self._find_knobs_of_probe())
        for name, choices in dict.fromkeys((knob.name, tuple(knob.choices)) for knob in knobs):
            digest.update(json.dumps([name, list(choices)]).encode())
        return digest.hexdigest()[:16]

    def check_repeats(self) -> None:
        """Raise SearchlabError if :meth:`decide` rejects configs that it has returned."""
        list(self._find_knobs_of_probe())

    def _find_knobs_of_probe(self) -> Iterator[list[Knob]]:
        for config in self.probe(32):
            try:
                knobs = self.knobs(config)
            except InvalidConfig as error:
                raise SearchlabError(
                    f"space {SPACES.name_of(type(self))!r} broke its contract: decide() returned the config "
                    f"{config.to_json()}, but later rejected it: {error} "
                    f"({find_definition(inspect.unwrap(type(self).decide))}); its knobs may depend only on the "
                    f"workload, the target, options and earlier choices"
                ) from None
            yield knobs


def _convert_errors(decide: Callable[[Any, Choose], Config]) -> Callable[[Any, Choose], Config]:
    """Wrap ``decide`` so that any errors it raises name the space."""

    @functools.wraps(decide)
    def decide_or_convert(self: Space, choose: Choose) -> Config:
        try:
            return decide(self, choose)
        except SearchlabError:
            raise
        except (Exception, SystemExit) as error:  # a context manager would cost as much as many a call
            raise SPACES.failure(type(self), "decide", error) from error

    return decide_or_convert


SPACES = SpaceKind("space", "searchlab.spaces", Space, positional=2)  # type: ignore[type-abstract]
