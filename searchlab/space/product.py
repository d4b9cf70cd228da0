"""Spaces whose knobs are independent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np

from ..arrays import Ints
from ..target import Target
from ..workload import Workload
from .config import Config
from .contract import Choose, Space
from .knob import Knob, Value, check_choice, list_types


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
        if not self._has_config(config):
            return super().knobs(config)
        for knob in self.axes:
            value = config[knob.name]
            choice = knob.choices[self._choice_indices[knob.name, value]]
            if choice is not value and list_types(choice) != list_types(value):
                check_choice(knob, value)  # raises InvalidConfig
        return list(self.axes)

    def samples(self, rng: np.random.Generator, n: int) -> list[Config]:
        is_uniform = self.independent and type(self).sample is Space.sample
        return self._sample_product(rng, n) if is_uniform else super().samples(rng, n)

    def _sample_product(self, rng: np.random.Generator, n: int) -> list[Config]:
        """Draw ``n`` configs of the complete product."""
        # An array of limits consumes the same random bits as one limit after another.
        index_rows = rng.integers([len(knob.choices) for knob in self.axes], size=(n, len(self.axes))).tolist()
        return [
            Config.wrap({knob.name: knob.choices[i] for knob, i in zip(self.axes, indices, strict=True)})
            for indices in index_rows
        ]

    def repair(self, values: Mapping[str, Value], rng: np.random.Generator) -> Config:
        if self.independent and self._has_config(values):
            return Config.wrap({knob.name: values[knob.name] for knob in self.axes})
        return super().repair(values, rng)

    def mutate(self, config: Config, rng: np.random.Generator) -> Config:
        """Mutate as in :class:`Space`, but faster: model-guided searches spend half of their time in this method."""
        if not self.independent:
            return super().mutate(config, rng)
        if not self._has_config(config):
            self.knobs(config)  # reports the wrong knob
        if not self._open_knobs:
            return config
        knob = self._open_knobs[int(rng.integers(len(self._open_knobs)))]
        value = knob.redraw(config[knob.name], rng)
        return Config.wrap({axis.name: value if axis is knob else config[axis.name] for axis in self.axes})

    @cached_property
    def _open_knobs(self) -> list[Knob]:
        return [knob for knob in self.axes if len(knob.choices) > 1]

    def _has_config(self, config: Mapping[str, Value]) -> bool:
        """Return whether ``config`` is in the product."""
        with suppress(TypeError):  # a value that has no hash is not a choice
            return len(config) == len(self.axes) and config.items() <= self._choice_indices.keys()
        return False

    @cached_property
    def _choice_indices(self) -> dict[tuple[str, Value], int]:
        """The index of each choice, by the knob's name and the choice."""
        return {(knob.name, choice): i for knob in self.axes for i, choice in enumerate(knob.choices)}

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
            index, choice_index = divmod(index, len(knob.choices))
            items.append((knob.name, knob.choices[choice_index]))
        return Config(items)

    def index_of(self, config: Mapping[str, Value]) -> int:
        """Return the index of ``config``. This is the inverse of :meth:`config_at`.

        Raises:
            InvalidConfig: If ``config`` is not a member of the space.
        """
        index, stride = 0, 1
        try:
            for knob in self.axes:
                index += stride * self._choice_indices[knob.name, config[knob.name]]
                stride *= len(knob.choices)
        except KeyError:
            self.knobs(config)  # raises InvalidConfig, which says which knob is wrong
            raise
        return index

    def indices(self, configs: Sequence[Config]) -> Ints:
        """Return the indices of the configs' choices as an array of shape (len(configs), number of knobs)."""
        return np.array(
            [[self._choice_indices[knob.name, config[knob.name]] for knob in self.axes] for config in configs],
            dtype=np.int64,
        ).reshape(len(configs), len(self.axes))

    def enumerate(self, rng: np.random.Generator | None = None) -> Iterator[Config]:
        """Yield every config once, with the first knob changing fastest, or in random order if ``rng`` is passed."""
        return super().enumerate(rng) if rng else (self.config_at(i) for i in range(self.size()))
