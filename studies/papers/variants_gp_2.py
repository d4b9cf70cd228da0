"""The variants of gp-2, each of which omits a part, or has one of gp-prior again (`ablation.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import variants_gp_prior

from searchlab.arrays import Floats
from searchlab.space import Config, Space
from searchlab_policies.gaussian_process import Encoding
from searchlab_policies.gp_2 import Gp2
from searchlab_policies.gp_prior import GpPrior


class FlatPrior(variants_gp_prior.FlatPrior, Gp2):
    pass


class NoBelief(variants_gp_prior.NoBelief, Gp2):
    pass


class OnlyStart(variants_gp_prior.OnlyStart, Gp2):
    pass


class RandomStart(Gp2):
    def _propose_first(self, n: int, rng: np.random.Generator) -> list[Config]:
        return []


class AnalysisStart(Gp2):
    """A warm start in which the analysis selects the first trials, as in a cold one."""

    def _propose_first(self, n: int, rng: np.random.Generator) -> list[Config]:
        if not self.space.has_programs:
            return super()._propose_first(n, rng)
        return self._select_by_prediction(n, rng, self.entrants, self._estimate)


class TwoStageStart(Gp2):
    """A warm start in which the analysis selects each of the first trials from the best quarter by the prior mean."""

    def _propose_first(self, n: int, rng: np.random.Generator) -> list[Config]:
        if self._learnt_prior is None or not self.space.has_programs:
            return super()._propose_first(n, rng)
        return self._select_by_prediction(n, rng, 4 * self.entrants, self._predict_in_two_stages)

    def _predict_in_two_stages(self, configs: Sequence[Config]) -> Floats:
        assert self._learnt_prior is not None
        predictions = np.full(len(configs), np.inf)
        best_quarter = np.argsort(self._learnt_prior(self.space, configs))[: self.entrants]
        predictions[best_quarter] = self._estimate([configs[i] for i in best_quarter])
        return predictions


class Compressed(Gp2):
    _standardise = GpPrior._standardise


class RandomCandidates(Gp2):
    _draw_candidates = GpPrior._draw_candidates


class FactorEncoding(Encoding):
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


PARTS: Mapping[str, str | type | tuple[str, Mapping[str, Any]]] = {
    "gp-2": "gp-2",
    "gp-prior": "gp-prior",
    "first trials at random": RandomStart,
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
    "first trials at random, warm": RandomStart,
    "first trials by the analysis, warm": AnalysisStart,
    "first trials by both, warm": TwoStageStart,
    "prior mean for the first trials alone, warm": OnlyStart,
}
"""The variants of a start from other workloads, by the part that each omits or replaces."""
