"""The variants of gp-2, each of which omits or replaces one part, or has a part of gp-prior again (`ablation.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any
from unittest.mock import patch

import numpy as np
from variants_gp_prior import flat_prior, logarithms

from searchlab.records import Trial
from searchlab.space import Config, Space
from searchlab_policies import gaussian_process, gp_2, gp_prior
from searchlab_policies.gp_2 import Gp2


class FlatPrior(Gp2):
    def _propose_batch(self, n: int, rng: np.random.Generator) -> list[Config]:
        with patch.object(gp_2, "lognormal_prior", flat_prior):
            return super()._propose_batch(n, rng)


class NoBelief(Gp2):
    def _propose_batch(self, n: int, rng: np.random.Generator) -> list[Config]:
        with patch.object(gaussian_process.Posterior, "believe", lambda posterior, index: None):
            return super()._propose_batch(n, rng)


class FactorEncoding(gaussian_process.Encoding):
    """An encoding in which each factor of a tile has a length scale of its own."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        indices: list[int] = []
        for name, knob in space.knobs_of(space.probe()).items():
            width = self._knob_encoders[name].width
            first = indices[-1] + 1 if indices else 0
            indices += [first, *(first + i * (knob.kind == "tile") for i in range(width - 1))]
        self.length_scale_indices = np.array(indices, dtype=np.int64)


class LengthOfFactor(Gp2):
    @cached_property
    def encoding(self) -> FactorEncoding:
        return FactorEncoding(self.space)


class Compressed(Gp2):
    def _propose_batch(self, n: int, rng: np.random.Generator) -> list[Config]:
        with patch.object(gp_2, "compute_logarithms", gp_prior.standardise):
            return super()._propose_batch(n, rng)


class RandomCandidates(Gp2):
    def _draw_neighbours(self, fastest_trials: Sequence[Trial], rng: np.random.Generator) -> list[Config]:
        neighbours = super()._draw_neighbours(fastest_trials, rng)
        return list(dict.fromkeys([*neighbours, *self.space.sample_new(rng, self.points, self.seen)]))


class NoTournament(Gp2):
    def _propose_first(self, n: int, rng: np.random.Generator) -> list[Config]:
        return []


class PriorMean(Gp2):
    """gp-2 whose later trials are proposed as by gp-prior, which has a second process with a prior mean."""

    def _propose_batch(self, n: int, rng: np.random.Generator) -> list[Config]:
        with patch.object(gp_prior, "standardise", logarithms):
            return gp_prior.GpPrior._propose_batch(self, n, rng)

    def _draw_candidates(self, fastest_trials: Sequence[Trial], rng: np.random.Generator) -> list[Config]:
        return self._draw_neighbours(fastest_trials, rng)


PARTS: Mapping[str, str | type | tuple[str, Mapping[str, Any]]] = {
    "gp-2": "gp-2",
    "gp-prior": "gp-prior",
    "first trials at random": NoTournament,
    "without the prior of length scales": FlatPrior,
    "the best candidates, without believing": NoBelief,
    "a length scale for each factor of a tile": LengthOfFactor,
    "slow programs count less": Compressed,
    "random candidates, too": RandomCandidates,
}
"""The variants of a cold start, by the part that each omits or adds."""

WARM_PARTS: Mapping[str, str | type | tuple[str, Mapping[str, Any]]] = {
    "gp-2, warm": "gp-2",
    "gp-prior, warm": "gp-prior",
    "first trials at random, warm": NoTournament,
    "with a prior mean, warm": PriorMean,
}
"""The variants of a start from other workloads."""
