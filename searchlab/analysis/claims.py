"""Verdicts on the published claims in a study, by the tests that ``docs/design/statistics.md`` describes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from ..arrays import Floats
from ..log.budget import UNLIMITED, Budget
from ..log.plan import Claim
from ..stats.inference import Answer, Difference, paired_difference
from ..stats.ranks import ALPHA
from .contrasts import adjust, pair_by_seed
from .measures import AREA, SECONDS, TRIALS, StrategySummary, values_by_seed
from .model import ClaimVerdict, Comparand
from .runs import TARGET, ComparedRuns, StrategyRuns, WorkloadRuns
from .verdict import DIGITS, tally, these_workloads
from .words import counted, listed, number_text, p_equals

WORST_FIRST = ("fails", "undecided", "untested", "holds")
"""The verdicts, starting with the one that has precedence if a claim has several opponents."""

_TITLES = {
    AREA: "area under the curve",
    "best_gflops": "throughput of the best program",
    TRIALS: f"trials to {100 * TARGET:g} % of the best known",
    SECONDS: f"seconds to {100 * TARGET:g} % of the best known",
}


def claim_verdicts(comparison: ComparedRuns, claims: Sequence[Claim]) -> list[ClaimVerdict]:
    """Return the verdict on each of ``claims``."""
    keys = [(number, other) for number, claim in enumerate(claims) for other in claim.opponents]
    compared = {(number, other): _compare(comparison, claims[number], other) for number, other in keys}
    p = {key: value for key, (difference, *_) in compared.items() if (value := _answer(difference).p) is not None}
    adjusted = adjust(p)
    verdicts = []
    for number, claim in enumerate(claims):
        against = [
            _comparand(claim, other, *compared[number, other], adjusted.get((number, other)))
            for other in claim.opponents
        ]
        decisive = min(
            against, key=lambda other: (WORST_FIRST.index(other.verdict), other.value if other.workloads else 0.0)
        )
        verdicts.append(ClaimVerdict(claim=claim, verdict=decisive.verdict, says=decisive.says, against=against))
    return verdicts


def _answer(difference: Difference) -> Answer:
    """Return the answer about workloads like these or, if there are too few workloads, about these only."""
    return difference.on_others if difference.on_others.p is not None else difference.on_these


def _compare(comparison: ComparedRuns, claim: Claim, other: str) -> tuple[Difference, float, str]:
    """Compare the claim's strategy with ``other`` on each workload on which both have enough trials.

    Returns:
        The difference or, if the measure has a unit, that of the logarithms (higher is better); the fraction of runs
        that did not reach the target; and why there is nothing to compare, or "".
    """
    names = (claim.strategy, other)
    budget = Budget(claim.trials or UNLIMITED, claim.seconds)
    first: list[Floats] = []
    second: list[Floats] = []
    clusters: list[str] = []
    unreached: list[float] = []
    short = 0
    for item in comparison.values():
        if any(name not in item.strategies for name in names) or item.best is None:
            continue
        part = item.within(budget, names)
        pair = [part.strategies[name] for name in names]
        if not all(_covers(group, claim) for group in pair):
            short += 1
            continue
        numbers = [_numbers(group, claim.measure) for group in pair]
        unreached += [float(np.isinf(list(own.values())).mean()) for own in numbers]
        first_numbers, second_numbers = _pair_numbers(numbers, part, claim.measure)
        first.append(first_numbers)
        second.append(second_numbers)
        clusters.append(item.cluster)
    if missing := [name for name in names if not any(name in item.strategies for item in comparison.values())]:
        why = f"there are no runs of {listed(missing)} here"
    elif not first:
        why = "no workload has runs of both with enough trials" if short else "no workload has runs of both"
    else:
        why = ""
    return paired_difference(first, second, clusters), float(np.mean(unreached or [0.0])), why


def _covers(runs: StrategyRuns, claim: Claim) -> bool:
    """Return whether the runs cover the number of trials or seconds that the claim is about."""
    if claim.seconds is not None:
        return all(run.ended or run.elapsed[-1] >= claim.seconds for run in runs.runs)
    return claim.trials is None or all(run.reaches(claim.trials) for run in runs.compared)


def _numbers(runs: StrategyRuns, measure: str) -> dict[int, float]:
    """Return the measure for each seed, or infinity if the run did not reach the target."""
    return values_by_seed([run.seed for run in runs.compared], StrategySummary.measures[measure].compute(runs))


def _pair_numbers(numbers: Sequence[dict[int, float]], item: WorkloadRuns, measure: str) -> tuple[Floats, Floats]:
    """Return the numbers of both strategies for the same seeds, with NaN for missing runs. Higher is better."""
    rows = pair_by_seed(*numbers)
    declared = StrategySummary.measures[measure]
    if declared.unit:
        if declared.better is min:  # a run that did not reach the target counts as using the whole budget
            rows[np.isinf(rows)] = item.longest if measure == SECONDS else item.horizon
        else:  # a run without any working program counts as the slowest of the other runs
            rows[rows == 0] = np.nanmin(rows[rows > 0], initial=item.best_gflops)
        rows = np.log(rows)
    first, second = rows if declared.better is max else -rows
    return first, second


def _comparand(
    claim: Claim, other: str, difference: Difference, unreached: float, missing: str, p: float | None
) -> Comparand:
    interval = _answer(difference).difference
    verdict = _verdict(claim, difference.value, interval.lower, interval.upper, p)
    value, lower, upper = _shown(claim, interval.value, interval.lower, interval.upper)
    scope = these_workloads(difference.workloads)
    if difference.on_others.p is not None:
        scope = "these kernels on other devices" if difference.clusters else "workloads like these"
    comparand = Comparand(
        against=other,
        verdict=verdict,
        value=value,
        lower=lower,
        upper=upper,
        p=p,
        scope=scope,
        workloads=difference.workloads,
        ahead=difference.ahead,
        level=difference.level,
        behind=difference.behind,
        seeds=difference.pairs,
        unreached=unreached,
        says="",
    )
    return msgspec.structs.replace(comparand, says=_says(claim, comparand, missing or interval.note))


def _verdict(claim: Claim, value: float, lower: float | None, upper: float | None, p: float | None) -> str:
    """Return the verdict on one comparison, given the difference, in which higher is better, and its interval."""
    if lower is None or upper is None or p is None:
        return "untested"
    zone = math.log1p(claim.margin) if _is_ratio(claim) else claim.margin
    if claim.relation == "better":
        holds = p <= ALPHA and value > 0
        fails = value <= 0 if p <= ALPHA else upper <= zone
    else:
        gains = claim.relation == "level"  # whether a gain contradicts the claim, too
        holds = lower >= -zone and not (gains and upper > zone)
        fails = p <= ALPHA and (upper < -zone or (gains and lower > zone))
    return "holds" if holds else "fails" if fails else "undecided"


def _is_ratio(claim: Claim) -> bool:
    return bool(StrategySummary.measures[claim.measure].unit)


def _shown(claim: Claim, *numbers: float | None) -> tuple[float, float | None, float | None]:
    """Convert a difference in which higher is better, and its interval, to a difference or ratio of the measure."""
    sign = 1 if StrategySummary.measures[claim.measure].better is max else -1
    value, *ends = (
        None if number is None else math.exp(sign * number) if _is_ratio(claim) else sign * number for number in numbers
    )
    assert value is not None
    lower, upper = ends if sign > 0 else reversed(ends)
    return value, lower, upper


def _says(claim: Claim, comparand: Comparand, note: str) -> str:
    """Describe a comparison."""
    limits = [] if claim.trials is None else [counted(claim.trials, "trial")]
    limits += [] if claim.seconds is None else [f"{claim.seconds:g} s"]
    subject = f"{claim.strategy} against {comparand.against}{f' after {listed(limits)}' if limits else ''}"
    if not comparand.workloads:
        return f"{subject}: {note}."
    effect, margin = ("ratio", f"{100 * claim.margin:g} %") if _is_ratio(claim) else ("difference", f"{claim.margin:g}")
    digits = None if _is_ratio(claim) else DIGITS
    value, lower, upper = (number_text(x, digits) for x in (comparand.value, comparand.lower, comparand.upper))
    facts = [f"{subject}: {_TITLES[claim.measure]}, {effect} {value}"]
    if comparand.p is not None:
        facts[0] += f", 95 % interval {lower} to {upper} (margin {margin})"
        facts.append(f"{p_equals(comparand.p)} on {comparand.scope}")
    facts += [tally(comparand), counted(comparand.seeds, "seed")]
    if comparand.unreached:
        facts.append(f"{100 * comparand.unreached:.0f} % of the runs did not reach the target: their budget counts")
    return f"{'; '.join(facts)}. {note if comparand.p is None else ''}".rstrip()
