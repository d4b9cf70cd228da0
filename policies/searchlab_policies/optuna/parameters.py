"""How a config becomes Optuna's parameters, and back.

How choices become parameters matters more than a sampler's options do. A word or a switch is categorical. A number is
the index of its choice, so that near choices are near. A tile is one index a factor, innermost first, into all factors
that this part of it can have: for powers of two that is the logarithm, so that what a good inner tile says holds
whatever the outer ones are. Neither a category for each tile nor the index of the tile gives that. A factor that those
chosen already leave impossible becomes the nearest possible one. So a knob whose choices do not depend on others is
always the same parameters, and a sampler that models only the parameters that all trials have models all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from searchlab.space import Config, Knob, Space, Value


@dataclass(frozen=True)
class Part:
    """One parameter: all of a knob's value, or a factor of a tile where ``at`` is not None; and all its values."""

    name: str
    at: int | None
    values: Sequence[Value]

    def of(self, value: Value) -> Value:
        return value[self.at] if self.at is not None and isinstance(value, tuple) else value

    @cached_property
    def distribution(self) -> IntDistribution | CategoricalDistribution:
        """The distribution of the index of a value."""
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
        """The parameters that every config has alike, as far as the configs of a probe tell."""
        shared: dict[str, BaseDistribution] | None = None
        for config in self.space.probe():
            _, met = self.encode(config)
            shared = met if shared is None else {name: d for name, d in shared.items() if met.get(name) == d}
        return shared or {}


def parts_of(knob: Knob) -> list[Part]:
    """What is open in a knob: its value or, innermost first, each factor of a tile that those inside leave open."""
    if len(knob.choices) < 2:
        return []
    tiles = [value for value in knob.choices if isinstance(value, tuple)]
    if knob.kind != "tile" or len({len(tile) for tile in tiles}) != 1:
        return [Part(knob.name, None, knob.choices)]
    parts = []
    for i in reversed(range(len(tiles[0]))):
        if len({tile[i:] for tile in tiles}) > len({tile[i + 1 :] for tile in tiles}):
            parts.append(Part(f"{knob.name}[{i}]", i, sorted({tile[i] for tile in tiles})))
    return parts


def choose(knob: Knob, parts: Sequence[Part], suggest: Callable[[Part], Value]) -> Value:
    """The knob's choice with the suggested parts, each replaced by the nearest that the parts before it leave."""
    left = list(knob.choices)
    for part in parts:
        wanted = part.values.index(suggest(part))
        possible = {part.of(value) for value in left}
        near = min(range(len(part.values)), key=lambda i: (part.values[i] not in possible, abs(i - wanted)))
        left = [value for value in left if part.of(value) == part.values[near]]
    return left[0]
