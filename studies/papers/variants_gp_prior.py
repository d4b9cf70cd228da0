"""The variants of gp-prior, each of which omits or replaces one part (`ablation.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np

from searchlab.arrays import Floats, Ints
from searchlab.records import SHORTEST
from searchlab.space import Config, Knob, Space, Value
from searchlab_policies import gaussian_process, gp_prior
from searchlab_policies.gp_prior import GpPrior


def flat_prior(lengths: Floats, noise: float) -> tuple[float, Floats]:
    return 0.0, np.zeros(len(lengths) + 1)


def logarithms(costs: Sequence[float]) -> Floats:
    """Replace :func:`.gp_prior.standardise`: values of slow programs are not compressed."""
    finite = np.isfinite(costs)
    slowest = float(np.max(np.asarray(costs)[finite]))
    values: Floats = np.log(np.maximum(np.where(finite, costs, gp_prior.FAILURE_SLOWDOWN * slowest), SHORTEST))
    standardised: Floats = (values - values.mean()) / (values.std() or 1.0)
    return standardised


class OneLength(gaussian_process.Encoding):
    """An encoding in which all knobs share one length scale."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self.length_scale_indices: Ints = np.zeros_like(self.length_scale_indices)


class Words(gaussian_process._KnobEncoder):
    """A coder for which choices are only equal or different."""

    def __init__(self, knob: Knob) -> None:
        words = Knob(knob.name, [str(choice) for choice in knob.choices])
        super().__init__(words)

    def __call__(self, values: Sequence[Value | None]) -> Floats:
        return super().__call__([None if value is None else str(value) for value in values])


class AllWords(gaussian_process.Encoding):
    def __init__(self, space: Space) -> None:
        with patch.object(gaussian_process, "_KnobEncoder", Words):
            super().__init__(space)


class Changed(GpPrior):
    """gp-prior with some names in its module replaced."""

    changes: ClassVar[Mapping[str, Any]] = {}

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        with patch.multiple(gp_prior, **self.changes):
            return super().propose(n, rng)


class Deaf(gp_prior.ShiftedProcess):
    """A process whose predictions do not change while a batch is selected."""

    def believe(self, row: Floats, value: float, prior_mean: float) -> None:
        pass


def derive(name: str, **changes: Any) -> type[Changed]:
    return type(name, (Changed,), {"changes": changes, "__module__": __name__})


FlatPrior = derive("FlatPrior", lognormal_prior=flat_prior)
SharedLength = derive("SharedLength", Encoding=OneLength)
Untyped = derive("Untyped", Encoding=AllWords)
PlainLogarithms = derive("PlainLogarithms", standardise=logarithms)
CheapFailures = derive("CheapFailures", FAILURE_SLOWDOWN=1.0)
NoBelief = derive("NoBelief", ShiftedProcess=Deaf)
NoTournament = derive("NoTournament", TOURNAMENT_SIZE=1)
OnlyStart = derive("OnlyStart", PRIOR_LOG_ODDS=-1000.0)
AlwaysPrior = derive("AlwaysPrior", PRIOR_LOG_ODDS=1000.0)

PARTS: Mapping[str, str | type | tuple[str, Mapping[str, Any]]] = {
    "gp-prior": "gp-prior",
    "without the prior of length scales": FlatPrior,
    "one length scale for all knobs": SharedLength,
    "choices of a knob are equal or different": Untyped,
    "slow programs count like fast ones": PlainLogarithms,
    "failures cost what the slowest program does": CheapFailures,
    "the best candidates, without believing": NoBelief,
    "only random candidates": ("gp-prior", {"points": 700, "neighbours": 1}),
    "only neighbours": ("gp-prior", {"points": 1, "neighbours": 700}),
    "16 random trials instead of 8": ("gp-prior", {"n_startup": 16}),
}
"""The variants of a cold start, by the part that each omits or replaces."""

WARM_PARTS: Mapping[str, str | type | tuple[str, Mapping[str, Any]]] = {
    "gp-prior, warm": "gp-prior",
    "first trials at random": NoTournament,
    "prior mean for the first trials alone": OnlyStart,
    "always with the prior mean": AlwaysPrior,
}
"""The variants of a start from other workloads, by the part that each omits or replaces."""
