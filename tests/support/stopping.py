"""A policy that ends by itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from searchlab.options import Count
from searchlab.policy import NeverTwice
from searchlab.space import Config, Space


class Stops(NeverTwice, stops=True):
    """Random configs, ``limit`` of them and one more for each seed; then it ends."""

    def __init__(self, space: Space, *, seed: int, limit: Count = 11) -> None:
        super().__init__(space, seed=seed)
        self.limit = limit + seed

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        remaining = max(0, self.limit - len(self.trials))
        yield from self.space.sample_new(rng, min(n, remaining), self.seen)
