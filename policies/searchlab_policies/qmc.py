"""Quasi-random search with a scrambled Sobol sequence.

Source: Sobol, "On the distribution of points in a cube and the approximate evaluation of integrals" (1967), with
Owen's scrambling (1998), as implemented in ``scipy.stats.qmc``; Bousquet et al., "Critical Hyper-Parameters: No Random,
No Cry" (arXiv 1706.03200). ``optuna.samplers.QMCSampler`` draws the same points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np
from scipy.stats import qmc

from searchlab.arrays import Floats
from searchlab.policy import NeverTwice, Origin, private_rng
from searchlab.space import Config, Space

from .unit_cube import UnitCube

CHUNK_SIZE = 64
"""The number of points to draw at once. It must be a power of two, for which Sobol sequences are balanced."""


class Qmc(NeverTwice):
    """Quasi-random search: a scrambled Sobol sequence covers the space more evenly than random draws.

    The policy does not learn from trials. Each knob is a dimension of the unit cube: a point's coordinate selects the
    choice at that fraction of the knob's choices. The values of each single knob are therefore distributed as in random
    search. Points whose configs are known are skipped. Random configs fill a batch only once the sequence is so long
    that it should have visited every config of a space of this size.
    """

    origin = Origin(
        "scipy's scrambled Sobol sequence",
        "scipy 1.14",
        "scipy.stats.qmc.Sobol",
        "original",
        ("each coordinate is a fraction of a knob's choices", "points whose configs are known are skipped"),
    )

    def __init__(self, space: Space, *, seed: int) -> None:
        super().__init__(space, seed=seed)
        self._cube = UnitCube(space)
        self._points = self._generate_points()
        self._next_index = 0  # the next point's position

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        start, end = len(self.seen), count_draws_to_cover(len(self.seen) + n)
        if (skipped_count := start - self._next_index) > 0:
            next(islice(self._points, skipped_count - 1, None))
            self._next_index = start
        while self._next_index < end:
            index, point = self._next_index, next(self._points)
            self._next_index += 1
            # A knob without a dimension gets a random coordinate, which is always the same at this place.
            yield self._cube.to_config(point, lambda name: private_rng(self.seed, f"qmc: {name}", index).random())  # noqa: B023

    def _generate_points(self) -> Iterator[Floats]:
        # A Sobol sequence has at least one dimension, but a space may have no knob.
        engine = qmc.Sobol(max(1, len(self._cube.choice_counts)), scramble=True, seed=self.seed)
        while True:
            yield from engine.random(CHUNK_SIZE)


def count_draws_to_cover(config_count: int) -> int:
    """Return the number of random draws that visit ``config_count`` equally likely configs with probability 0.99.

    Source: the coupon collector's problem, Erdős and Rényi (1961). With N (ln N + c) draws, the probability that all N
    are visited tends to exp(-exp(-c)); here c = 5.
    """
    return math.ceil(config_count * (math.log(config_count) + 5)) + CHUNK_SIZE
