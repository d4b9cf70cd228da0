"""A mapping from real numbers to configs, for sequences of points and for minimisers of functions of real numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from searchlab.arrays import Floats
from searchlab.space import Config, Knob, Space, Value


class UnitCube:
    """Maps points of the unit cube to configs: a coordinate selects the choice at that fraction of a knob's choices.

    Args:
        space: The space. Each knob that probing it reveals becomes a dimension.

    Attributes:
        choice_counts: The number of choices of each dimension's knob, by the knob's name.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.choice_counts: dict[str, int] = {}
        for config in space.probe():
            for knob in space.knobs(config):
                self.choice_counts[knob.name] = max(len(knob.choices), self.choice_counts.get(knob.name, 0))
        self._dimensions = {name: dimension for dimension, name in enumerate(self.choice_counts)}

    def to_config(self, point: Floats, default: Callable[[str], float] = lambda name: 0.5) -> Config:
        """Return the config at ``point``; ``default`` returns the coordinate of a knob without a dimension."""

        def choose(knob: Knob) -> Value:
            dimension = self._dimensions.get(knob.name)
            fraction = default(knob.name) if dimension is None else float(point[dimension])
            return knob.choices[min(max(int(fraction * len(knob.choices)), 0), len(knob.choices) - 1)]

        return self.space.decide(choose)

    def to_point(self, config: Config) -> Floats:
        """Return the point in the middle of each choice in ``config``, with 0.5 for knobs that it lacks."""
        point = np.full(len(self.choice_counts), 0.5)
        for knob in self.space.knobs(config):
            if knob.name in self._dimensions:
                position = knob.choices.index(config[knob.name])
                point[self._dimensions[knob.name]] = (position + 0.5) / len(knob.choices)
        return point
