"""The variants of gp-2, each of which omits or replaces one part (`ablation.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import variants_gp_prior

from searchlab_policies.gaussian_process import Encoding
from searchlab_policies.gp_2 import Gp2


class FlatPrior(variants_gp_prior.FlatPrior, Gp2):
    pass


class PlainLogarithms(variants_gp_prior.PlainLogarithms, Gp2):
    pass


class NoBelief(variants_gp_prior.NoBelief, Gp2):
    pass


class LengthOfKnob(Gp2):
    """gp-2 with a length scale for each knob, even if it is a tile."""

    @cached_property
    def encoding(self) -> Encoding:
        return Encoding(self.space)


PARTS: Mapping[str, str | type | tuple[str, Mapping[str, Any]]] = {
    "gp-2": "gp-2",
    "gp-prior": "gp-prior",
    "first trials at random": ("gp-2", {"entrants": 1}),
    "a length scale for each knob": LengthOfKnob,
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
