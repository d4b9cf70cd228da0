"""AutoTVM's ``multi_filter``: a condition on several knobs that leaves gaps in the range of indices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from searchlab.arrays import Ints
from searchlab.errors import SearchlabError, UnsupportedWorkload, did_you_mean
from searchlab.space import Choose, Config, Knob, ProductSpace, Space, Value

from .entities import Entity
from .knobs import TemplateKnob

MAX_COMBINATIONS = 1 << 25
"""The maximum number of combinations for which to evaluate a condition; evaluating this many takes a minute."""

Condition = Callable[[Mapping[str, Entity]], bool]


class FilteredProduct(ProductSpace):
    """The product of the knobs, without the configs that a condition on several knobs excludes.

    With a condition, knobs depend on each other. Indices remain those of the product, in [0, ``range_length``), and
    have gaps, whereas ``size`` is the number of configs.
    """

    filter: MultiFilter | None = None

    @property
    def independent(self) -> bool:
        return self.filter is None

    def decide(self, choose: Choose) -> Config:
        return super().decide(choose) if self.filter is None else self.filter.decide(self.axes, choose)

    def sample(self, rng: np.random.Generator) -> Config:
        """Draw a config uniformly."""
        return super().sample(rng) if self.filter is None else self.filter.sample(self.axes, rng)

    def samples(self, rng: np.random.Generator, n: int) -> list[Config]:
        return self._sample_product(rng, n) if self.filter is None else Space.samples(self, rng, n)

    def knobs(self, config: Mapping[str, Value]) -> list[Knob]:
        return super().knobs(config) if self.filter is None else Space.knobs(self, config)

    def size(self, limit: int = 0) -> int:
        return super().size() if self.filter is None else self.filter.size

    def enumerate(self, rng: np.random.Generator | None = None) -> Iterator[Config]:
        """Yield every config once, by ascending index, or in random order with ``rng``."""
        if self.filter is None:
            return super().enumerate(rng)
        if rng is not None:
            return Space.enumerate(self, rng)
        product = (ProductSpace.config_at(self, index) for index in range(self.range_length))
        return filter(self.filter.accepts, product)

    def is_index_valid(self, index: int) -> bool:
        """Return whether a config has this index in [0, ``range_length``)."""
        config = super().config_at(index)
        return self.filter is None or self.filter.accepts(config)

    def config_at(self, index: int) -> Config:
        """Return the config with this index. Raises IndexError if the index belongs to no config."""
        config = super().config_at(index)
        if self.filter is not None and not self.filter.accepts(config):
            raise IndexError(f"multi_filter excludes the config with index {index}")
        return config

    def index_of(self, config: Mapping[str, Value]) -> int:
        if self.filter is not None:
            self.knobs(config)  # raises InvalidConfig with the name of the wrong knob
        return super().index_of(config)


class MultiFilter:
    """The combinations of choices that satisfy a condition.

    For the i-th knob that the condition reads, ``way_counts`` contains an array with i + 1 dimensions. For each
    combination of choices up to this knob, it counts the combinations of later choices that satisfy the condition. A
    choice is offered only if this count is positive.
    """

    def __init__(self, knobs: Sequence[TemplateKnob], condition: Condition) -> None:
        is_satisfied, read_names = _evaluate_condition(
            {knob.name: [knob.entity_for(v) for v in knob.choices] for knob in knobs}, condition
        )
        self.way_counts = {
            name: is_satisfied.sum(axis=tuple(range(i + 1, is_satisfied.ndim)), dtype=np.int64)
            for i, name in enumerate(read_names)
        }
        self.positions_by_knob = {
            k.name: {v: i for i, v in enumerate(k.choices)} for k in knobs if k.name in self.way_counts
        }
        self.size = int(is_satisfied.sum()) * math.prod(
            len(knob.choices) for knob in knobs if knob.name not in self.way_counts
        )
        if not self.size:
            raise UnsupportedWorkload("multi_filter excludes all configs: no combination of choices satisfies it")

    def accepts(self, config: Mapping[str, Value]) -> bool:
        """Return whether ``config``, a member of the product, satisfies the condition."""
        prefix = tuple(position[config[name]] for name, position in self.positions_by_knob.items())
        return not prefix or bool(self.way_counts[next(reversed(self.way_counts))][prefix])

    def decide(self, knobs: Sequence[Knob], choose: Choose) -> Config:
        """Ask for each knob, and offer only choices with which the condition can still be satisfied."""

        def choose_among(knob: Knob, way_counts: Ints) -> Value:
            return choose(
                replace(knob, choices=[v for v, n in zip(knob.choices, way_counts.tolist(), strict=True) if n])
            )

        return self._choose_each(knobs, choose, choose_among)

    def sample(self, knobs: Sequence[Knob], rng: np.random.Generator) -> Config:
        """Draw a config uniformly: make each choice in proportion to the number of ways to continue after it."""

        def choose_any(knob: Knob) -> Value:
            return knob.choices[int(rng.integers(len(knob.choices)))]

        def choose_among(knob: Knob, way_counts: Ints) -> Value:
            return knob.choices[
                int(np.searchsorted(np.cumsum(way_counts), rng.integers(way_counts.sum()), side="right"))
            ]

        return self._choose_each(knobs, choose_any, choose_among)

    def _choose_each(
        self, knobs: Sequence[Knob], choose_free: Choose, choose_among: Callable[[Knob, Ints], Value]
    ) -> Config:
        config: dict[str, Value] = {}
        prefix: tuple[int, ...] = ()
        for knob in knobs:
            if knob.name in self.way_counts:
                config[knob.name] = value = choose_among(knob, self.way_counts[knob.name][prefix])
                prefix = (*prefix, self.positions_by_knob[knob.name][value])
            else:
                config[knob.name] = choose_free(knob)
        return Config(config)


class _UnexpectedRead(Exception):
    """The condition reads a knob that it was not previously known to read."""


class _ReadEntities(Mapping[str, Entity]):
    """A condition's argument: the entities of the knobs that it is known to read."""

    def __init__(self, knob_names: Collection[str], entities: Mapping[str, Entity]) -> None:
        self._knob_names, self._entities = knob_names, entities

    def __getitem__(self, name: str) -> Entity:
        if name in self._entities:
            return self._entities[name]
        if name in self._knob_names:
            raise _UnexpectedRead(name)
        raise SearchlabError(f"multi_filter reads an unknown knob {name!r}{did_you_mean(name, self._knob_names)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._knob_names)

    def __len__(self) -> int:
        return len(self._knob_names)


def _evaluate_condition(entities: Mapping[str, Sequence[Entity]], condition: Condition) -> tuple[Any, list[str]]:
    """Evaluate ``condition`` for all combinations of the knobs that it reads. Return the results and these names."""
    read_names: set[str] = set()
    while True:
        ordered_names = [name for name in entities if name in read_names]
        shape = tuple(len(entities[name]) for name in ordered_names)
        if math.prod(shape) > MAX_COMBINATIONS:
            raise SearchlabError(
                f"multi_filter reads {', '.join(ordered_names)}, which have {math.prod(shape):,} combinations, but at "
                f"most {MAX_COMBINATIONS:,} are supported; first restrict these knobs with their own filter="
            )
        combinations = itertools.product(*(entities[name] for name in ordered_names))
        results = (
            bool(condition(_ReadEntities(entities.keys(), dict(zip(ordered_names, combination, strict=True)))))
            for combination in combinations
        )
        try:
            return np.fromiter(results, bool, math.prod(shape)).reshape(shape), ordered_names
        except _UnexpectedRead as unexpected:
            read_names.add(str(unexpected))
