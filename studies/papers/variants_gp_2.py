"""The variants of gp-2, each of which omits, replaces or adds one part (`ablation.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import variants_gp_prior

from searchlab.arrays import Floats
from searchlab.space import Config
from searchlab_policies.gp_2 import EqualityOfTiles, Gp2
from searchlab_policies.gp_prior import GpPrior


class FlatPrior(variants_gp_prior.FlatPrior, Gp2):
    pass


class PlainLogarithms(variants_gp_prior.PlainLogarithms, Gp2):
    pass


class NoBelief(variants_gp_prior.NoBelief, Gp2):
    pass


class RandomFirst(Gp2):
    """gp-2 whose first trials are random."""

    def _first(self, n: int, rng: np.random.Generator) -> list[Config]:
        return GpPrior._first(self, n, rng)


class Factors(EqualityOfTiles):
    """An encoding that compares tiles by their factors alone."""

    def __call__(self, configs: Sequence[Config]) -> Floats:
        rows = super().__call__(configs)
        return np.where(np.arange(rows.shape[1]) < len(self._plain), rows, 0.0)


class SpreadTiles(EqualityOfTiles):
    """An encoding in which tiles count for the distances between the first trials."""

    def without_tiles(self, configs: Sequence[Config]) -> Floats:
        return self(configs)


class FactorsOnly(Gp2):
    @cached_property
    def encoding(self) -> Factors:
        return Factors(self.space)


class SpreadAll(Gp2):
    @cached_property
    def encoding(self) -> SpreadTiles:
        return SpreadTiles(self.space)


PARTS: Mapping[str, str | type | tuple[str, Mapping[str, Any]]] = {
    "gp-2": "gp-2",
    "gp-prior": "gp-prior",
    "first trials at random": RandomFirst,
    "tiles count for the distances between the first trials": SpreadAll,
    "tiles only by their factors": FactorsOnly,
    "without the prior of length scales": FlatPrior,
    "slow programs count like fast ones": PlainLogarithms,
    "the best candidates, without believing": NoBelief,
    "only random candidates": ("gp-2", {"points": 700, "neighbours": 1}),
    "only neighbours": ("gp-2", {"points": 1, "neighbours": 700}),
}
"""The variants of a cold start, by the part that each omits or replaces."""

WARM_PARTS: Mapping[str, str | type | tuple[str, Mapping[str, Any]]] = {
    "gp-2, warm": "gp-2",
    "gp-prior, warm": "gp-prior",
}
"""The variants of a start from other workloads."""
