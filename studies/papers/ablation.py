"""Measures the contribution of each part of gp-prior by omitting one at a time, on a suite's development tables.

    python studies/papers/ablation.py v1 --jobs 2                # about 7 minutes on two cores
    python studies/papers/ablation.py hub-v1 --jobs 2            # about 8 minutes

Logs are written to results/ablation, from which later calls resume. The printed table is part of studies/RESULTS.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np

from searchlab.analysis import summarize
from searchlab.arrays import Floats, Ints
from searchlab.records import SHORTEST
from searchlab.run.study import Study
from searchlab.space import Config, Knob, Space, Value
from searchlab.stats.inference import paired_difference
from searchlab.suite.compare import compare
from searchlab.suite.trajectories import collect
from searchlab_policies import gaussian_process, gp_prior
from searchlab_policies.gp_prior import GpPrior

sys.path.insert(0, str(Path(__file__).parents[1] / "suite"))
from results import markdown, with_interval


def flat_prior(lengths: Floats, noise: float) -> tuple[float, Floats]:
    return 0.0, np.zeros(len(lengths) + 1)


def logarithms(costs: Sequence[float]) -> Floats:
    """Replace :func:`.gp_prior.standardised`: values of slow programs are not compressed."""
    finite = np.isfinite(costs)
    slowest = float(np.max(np.asarray(costs)[finite]))
    values: Floats = np.log(np.maximum(np.where(finite, costs, gp_prior.SLOWER * slowest), SHORTEST))
    return (values - values.mean()) / (values.std() or 1.0)


class OneLength(gaussian_process.Encoding):
    """An encoding in which all knobs share one length scale."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self.knobs: Ints = np.zeros_like(self.knobs)


class Words(gaussian_process._Coder):
    """A coder for which choices are only equal or different."""

    def __init__(self, knob: Knob) -> None:
        words = Knob(knob.name, [str(choice) for choice in knob.choices])
        super().__init__(words)

    def __call__(self, values: Sequence[Value | None]) -> Floats:
        return super().__call__([None if value is None else str(value) for value in values])


class AllWords(gaussian_process.Encoding):
    def __init__(self, space: Space) -> None:
        with patch.object(gaussian_process, "_Coder", Words):
            super().__init__(space)


class Changed(GpPrior):
    """gp-prior with some names in its module replaced."""

    changes: ClassVar[Mapping[str, Any]] = {}

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        with patch.multiple(gp_prior, **self.changes):
            return super().propose(n, rng)


class Deaf(gp_prior.ShiftedProcess):
    """A process whose predictions do not change while a batch is selected."""

    def believe(self, row: Floats, value: float, before: float) -> None:
        pass


def changed(name: str, **changes: Any) -> type[Changed]:
    return type(name, (Changed,), {"changes": changes, "__module__": __name__})


FlatPrior = changed("FlatPrior", lognormal_prior=flat_prior)
SharedLength = changed("SharedLength", Encoding=OneLength)
Untyped = changed("Untyped", Encoding=AllWords)
PlainLogarithms = changed("PlainLogarithms", standardised=logarithms)
CheapFailures = changed("CheapFailures", SLOWER=1.0)
NoBelief = changed("NoBelief", ShiftedProcess=Deaf)
NoTournament = changed("NoTournament", TOURNAMENT=1)
OnlyStart = changed("OnlyStart", ODDS=-1000.0)
AlwaysPrior = changed("AlwaysPrior", ODDS=1000.0)

WHOLE = "gp-prior"
PARTS: Mapping[str, str | type | tuple[str, Mapping[str, Any]]] = {
    WHOLE: WHOLE,
    "without the prior of length scales": FlatPrior,
    "one length scale for all knobs": SharedLength,
    "choices of a knob are equal or different": Untyped,
    "slow programs count like fast ones": PlainLogarithms,
    "failures cost what the slowest program does": CheapFailures,
    "the best candidates, without believing": NoBelief,
    "only random candidates": (WHOLE, {"points": 700, "neighbours": 1}),
    "only neighbours": (WHOLE, {"points": 1, "neighbours": 700}),
    "16 random trials instead of 8": (WHOLE, {"n_startup": 16}),
}
"""The variants of a cold start, by the part that each omits or replaces."""

WARM = "gp-prior, warm"
WARM_PARTS: Mapping[str, str | type] = {
    WARM: WHOLE,
    "first trials at random": NoTournament,
    "prior mean for the first trials alone": OnlyStart,
    "always with the prior mean": AlwaysPrior,
}
"""The variants of a start from other workloads, by the part that each omits or replaces."""


def study(suite: str, seeds: int) -> Study:
    def entry(label: str, what: Any, **others: Any) -> dict[str, Any]:
        name, options = what if isinstance(what, tuple) else (what, {})
        return {"name": name, "label": label, "options": options, "batch": 8, **others}

    policies = [entry(label, what) for label, what in PARTS.items()]
    policies += [entry(label, what, warm_start=[f"suite:{suite}/dev"]) for label, what in WARM_PARTS.items()]
    return Study.from_dict({"suite": f"{suite}/dev", "seeds": seeds, "policies": policies})


def table(made: Study, out: Path) -> str:
    """Return the area of each variant, and its difference from the area of gp-prior."""
    suite = made.suite
    assert suite is not None
    runs = collect(suite, [out / run.log for run in made.plan()[0]])
    summary = summarize(compare(suite, runs, [], made.spec.seed_list))
    areas = {
        label: [np.array(item.by_strategy[label].area.by_seed) for item in summary.workloads]
        for label in (*PARTS, *WARM_PARTS)
    }

    def row(label: str, whole: str) -> list[str]:
        mean = f"{np.mean([area.mean() for area in areas[label]]):.3f}"
        if label == whole:
            return [label, mean, "", ""]
        found = paired_difference(areas[label], areas[whole])
        ends = [answer.difference for answer in (found.on_these, found.on_others)]
        return [label, mean, *(with_interval(end.value, end.lower, end.upper) for end in ends)]

    rows = [row(label, WHOLE) for label in PARTS] + [row(label, WARM) for label in WARM_PARTS]
    return markdown(["variant", "area", "difference on these tables", "on tables like these"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", help="suite, such as v1")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds (10)")
    parser.add_argument("--jobs", type=int, default=1, help="number of concurrent runs (1)")
    options = parser.parse_args()
    made = study(options.suite, options.seeds)
    out = Path("results", "ablation", options.suite)
    made.run(out, jobs=options.jobs)
    print(table(made, out))


if __name__ == "__main__":
    main()
