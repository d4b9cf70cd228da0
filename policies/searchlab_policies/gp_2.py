"""The second version of `gp-prior`: fewer parts, first trials that are far apart, and tiles compared for equality.

Sources: as for :mod:`.gp_prior`, without the averaging over two processes; Johnson et al., "Minimax and Maximin
Distance Designs" (1990), for the first trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from searchlab.arrays import Floats
from searchlab.space import Config, Space, Value

from .gaussian_process import Encoding, squared_distances
from .gp_prior import GpPrior

MAX_TILES = 256
"""The maximum number of choices of a tile that are compared for equality, because each becomes a column."""


class Gp2(GpPrior):
    """Expected improvement under a Gaussian process that compares tiles by their factors and for equality.

    As in `gp-prior`, the process models the logarithm of the cost with a length scale for each knob, the candidates for
    a batch are random configs and mutations of the fastest trials, and the process treats its own prediction for a
    selected candidate as a measurement. There are three differences:

    - The first trials are far apart: each is the random config whose distance from the nearest of the others is
      largest. Tiles do not count, because the outermost ones are hardly ever fast.
    - Two tiles that are not equal are at least a constant apart, however close their factors are. Whether vectors fit
      and loops have tails is a property of each tile, so a process that is smooth in the factors is misled.
    - With a warm start from other workloads, the trees that are trained on them only select the first trials. They are
      not a prior mean, whose weight fell too slowly where other workloads were misleading.

    Args:
        n_startup: The number of trials before the process is used.
        points: The number of random candidates per batch, including the first ones.
        neighbours: The number of candidates per batch near the fastest trials.
        memory: The maximum number of trials to model: the fastest ones fill half, and the most recent of the others
            fill the rest. The time to fit the process grows with the cube of this number.
    """

    learns_mean = False

    @cached_property
    def encoding(self) -> EqualityOfTiles:
        return EqualityOfTiles(self.space)

    def _first(self, n: int, rng: np.random.Generator) -> list[Config]:
        """Return configs that are fast on other workloads, or without those, configs that are far apart."""
        if self._learnt is not None:
            return super()._first(n, rng)
        candidates = self.space.sample_new(rng, self.points, self.seen)
        if len(candidates) <= n:
            return candidates
        rows = self.encoding.without_tiles([*self.seen, *candidates])
        distances = squared_distances(rows, rows[len(self.seen) :])
        nearest = distances[: len(self.seen)].min(axis=0, initial=np.inf)
        batch = []
        for _ in range(n):
            index = int(np.argmax(nearest))
            batch.append(candidates[index])
            nearest = np.minimum(nearest, distances[len(self.seen) + index])
            nearest[index] = -1.0
        return batch


class EqualityOfTiles(Encoding):
    """An encoding with more columns for each tile, which add 1 to the squared distance between tiles that differ."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        knobs = space.knobs_of(space.probe())
        self._tiles: dict[str, dict[Value, int]] = {
            name: {choice: i for i, choice in enumerate(knob.choices)}
            for name, knob in knobs.items()
            if knob.kind == "tile" and 2 < len(knob.choices) <= MAX_TILES
        }
        self._plain = ~np.isin(self.knobs, [i for i, knob in enumerate(knobs.values()) if knob.kind == "tile"])
        indices = list(knobs)
        for name, choices in self._tiles.items():
            self.knobs = np.append(self.knobs, [indices.index(name)] * len(choices))

    def __call__(self, configs: Sequence[Config]) -> Floats:
        equal = [self._equality([config.get(name) for config in configs], i) for name, i in self._tiles.items()]
        return np.hstack([super().__call__(configs), *equal])

    def without_tiles(self, configs: Sequence[Config]) -> Floats:
        """Return the columns of the knobs that are not tiles."""
        return super().__call__(configs)[:, self._plain]

    @staticmethod
    def _equality(values: Sequence[Value | None], choices: dict[Value, int]) -> Floats:
        columns = np.zeros((len(values), len(choices)))
        for row, value in zip(columns, values, strict=True):
            if value in choices:
                row[choices[value]] = math.sqrt(0.5)
        return columns
