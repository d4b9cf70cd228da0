"""Exhaustive search in the order of :meth:`searchlab.space.Space.enumerate`, as AutoTVM's GridSearchTuner does."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import numpy as np

from searchlab.policy import NeverTwice
from searchlab.space import Config, Space


class Grid(NeverTwice, uses_seed=False):
    """Exhaustive search: every config in order, except those already known. The seed has no effect."""

    def __init__(self, space: Space, *, seed: int) -> None:
        super().__init__(space, seed=seed)
        self._configs = space.enumerate()

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        return islice((config for config in self._configs if config not in self.seen), n)
