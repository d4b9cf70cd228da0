"""Encode configs as Optuna's parameters.

The encoding matters more than a sampler's options. A word or a switch is categorical. A number is the index of its
choice, so neighbouring choices are close. A tile has one parameter per factor, innermost first: the index among all
values that the factor can have. For powers of two, this index is the logarithm. What a sampler learns about an inner
factor applies to all outer factors; with one category or index per tile, it would not. A factor that is impossible
given those already chosen becomes the nearest possible one. A knob whose choices do not depend on other knobs therefore
always has the same parameters, so a sampler that models only the parameters common to all trials still models such a
knob completely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from searchlab.space import Config, Knob, Space, Value


@dataclass(frozen=True)
class Part:
    """One parameter: the value of a knob, or one factor of a tile.

    Attributes:
        position: The factor's position; None for the complete value.
        values: All values that the parameter can have.
    """

    name: str
    position: int | None
    values: Sequence[Value]

    def extract(self, value: Value) -> Value:
        return value[self.position] if self.position is not None and isinstance(value, tuple) else value

    @cached_property
    def distribution(self) -> IntDistribution | CategoricalDistribution:
        """The distribution of a value's index."""
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values):
            return IntDistribution(0, len(self.values) - 1)
        return CategoricalDistribution(range(len(self.values)))

    @cached_property
    def parameter(self) -> str:
        if isinstance(self.distribution, IntDistribution):
            return self.name
        # Optuna rejects different categories under the same name, which occur if choices depend on other knobs.
        return f"{self.name} of {list(self.values)}"


class Parameters:
    """Converts a space's configs to Optuna's parameters and back."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._parts: dict[str, tuple[Sequence[Value], list[Part]]] = {}

    def encode(self, config: Config) -> tuple[dict[str, int], dict[str, BaseDistribution]]:
        """Return a config's parameters and their distributions. Raises InvalidConfig if it is not in the space."""
        params: dict[str, int] = {}
        distributions: dict[str, BaseDistribution] = {}
        for knob in self.space.knobs(config):
            for part in self.parts(knob):
                params[part.parameter] = part.values.index(part.extract(config[knob.name]))
                distributions[part.parameter] = part.distribution
        return params, distributions

    def decode(self, suggest: Callable[[Part], Value]) -> Config:
        return self.space.decide(lambda knob: choose_nearest(knob, self.parts(knob), suggest))

    def parts(self, knob: Knob) -> list[Part]:
        """Return :func:`parts_of` the knob. It is slow, so its result is cached while the choices stay the same."""
        choices, parts = self._parts.get(knob.name, ((), []))
        if choices is not knob.choices and choices != knob.choices:
            parts = split_knob(knob)
            self._parts[knob.name] = knob.choices, parts
        return parts

    @cached_property
    def probed_parameters(self) -> Mapping[str, BaseDistribution]:
        """The parameters of all configs that probing the space finds, each with its widest range."""
        parameters: dict[str, BaseDistribution] = {}
        for config in self.space.probe():
            for name, distribution in self.encode(config)[1].items():
                widest = parameters.setdefault(name, distribution)
                if isinstance(widest, IntDistribution) and isinstance(distribution, IntDistribution):
                    parameters[name] = max(widest, distribution, key=lambda candidate: candidate.high)
        return parameters

    @cached_property
    def shared_parameters(self) -> Mapping[str, BaseDistribution]:
        """The parameters that are the same in every config that probing the space finds."""
        all_distributions = [self.encode(config)[1] for config in self.space.probe()]
        first = all_distributions[0] if all_distributions else {}
        return {
            name: distribution
            for name, distribution in first.items()
            if all(distributions.get(name) == distribution for distributions in all_distributions)
        }


def split_knob(knob: Knob) -> list[Part]:
    """Return the free parts of a knob: its value, or the factors of a tile that inner factors do not determine."""
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


def choose_nearest(knob: Knob, parts: Sequence[Part], suggest: Callable[[Part], Value]) -> Value:
    """Return the choice with the suggested parts, each replaced with the nearest value that earlier parts allow."""
    choices = list(knob.choices)
    for part in parts:
        suggested_index = part.values.index(suggest(part))
        possible_values = {part.extract(value) for value in choices}
        nearest_index = min(
            range(len(part.values)), key=lambda i: (part.values[i] not in possible_values, abs(i - suggested_index))
        )
        choices = [value for value in choices if part.extract(value) == part.values[nearest_index]]
    return choices[0]
