"""The variants of gp-2, each of which omits, replaces or adds one part (`ablation.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
from variants_gp_prior import flat_prior, logarithms

from searchlab.arrays import Floats
from searchlab_policies import gp_2
from searchlab_policies.gaussian_process import Encoding, GaussianProcess
from searchlab_policies.gp_2 import Gp2


class Changed(Gp2):
    """gp-2 with some names in its module replaced."""

    changes: ClassVar[Mapping[str, Any]] = {}

    def propose(self, n: int, rng: np.random.Generator) -> Any:
        with patch.multiple(gp_2, **self.changes):
            return super().propose(n, rng)


class Deaf(GaussianProcess):
    """A process whose predictions do not change while a batch is selected."""

    def believe(self, row: Floats, value: float) -> None:
        pass


def changed(name: str, **changes: Any) -> type[Changed]:
    return type(name, (Changed,), {"changes": changes, "__module__": __name__})


FactorsOnly = changed("FactorsOnly", EqualityOfTiles=Encoding)
FlatPrior = changed("FlatPrior", lognormal_prior=flat_prior)
PlainLogarithms = changed("PlainLogarithms", standardise=logarithms)
NoBelief = changed("NoBelief", GaussianProcess=Deaf)

PARTS: Mapping[str, str | type | tuple[str, Mapping[str, Any]]] = {
    "gp-2": "gp-2",
    "gp-prior": "gp-prior",
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
