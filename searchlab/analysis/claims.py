"""Verdicts on the published claims in a study, by the tests that ``docs/design/statistics.md`` describes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from ..arrays import Floats
from ..log.budget import UNLIMITED, Budget
from ..log.plan import Claim
from ..stats.inference import Answer, Difference, paired_difference
from ..stats.intervals import Interval
from ..stats.ranks import ALPHA
from .contrasts import correct_family, pair_by_seed
from .measures import (
    AREA,
    SECONDS,
    TRIALS,
    SeedMean,
    Spread,
    TargetTimes,
    measure_area,
    measure_seconds_to_target,
    measure_throughput,
    measure_trials_to_target,
)
from .runs import TARGET_FRACTION, ComparedRuns, StrategyRuns, WorkloadRuns
from .verdict import DIGITS, name_workloads
from .words import fill_template, listed

_SENTENCE = """
    {{ claim.strategy }} against {{ comparand.against }}
    {%- if claim.trials is not none or claim.seconds is not none %} after
    {%- if claim.trials is not none %} {{ claim.trials | counted("trial") }}{% endif %}
    {%- if claim.trials is not none and claim.seconds is not none %} and{% endif %}
    {%- if claim.seconds is not none %} {{ "%g" | format(claim.seconds) }} s{% endif %}
    {%- endif %}:
    {% if not comparand.workloads %}{{ comparand.note }}.{% else %}
    {{- measure.title }}, {% if measure.is_ratio %}ratio{% else %}difference{% endif %}
    {{ comparand.value | number(digits) }}
    {%- if comparand.p is not none %}, 95 % interval {{ comparand.lower | number(digits) }} to
    {{ comparand.upper | number(digits) }} (margin
    {% if measure.is_ratio %}{{ "%g" | format(100 * claim.margin) }} %{% else %}{{ "%g" | format(claim.margin) }}
    {%- endif %}); {{ comparand.p | p_equals }} on {{ comparand.scope }}{% endif %};
    better on {{ comparand.ahead }} of {{ comparand.workloads | counted("workload") }}, worse on
    {{ comparand.behind }}; {{ comparand.seeds | counted("seed") }}
    {%- if comparand.unreached %}; {{ comparand.unreached | percent }} of the runs did not reach the target: their
    budget counts{% endif %}. {% if comparand.p is none %}{{ comparand.note }}{% endif %}
    {% endif %}
"""

WORST_FIRST = ("fails", "undecided", "untested", "holds")
"""The verdicts, starting with the one that has precedence if a claim has several opponents."""


class Comparand(msgspec.Struct, frozen=True, kw_only=True, rename={"sentence": "says"}):
    """The strategy that a claim is about, compared with one of its opponents.

    Attributes:
        against: The strategy with which it is compared.
        verdict: As in :class:`ClaimVerdict`.
        value: The mean difference (strategy minus opponent) or, if the measure has a unit, the mean ratio of the two.
        lower, upper: The ends of the 95 % interval of ``value``, on which the verdict is based; None if there is none.
        p: The p-value for the hypothesis of no difference, corrected for all tests of claims in the report.
        scope: The workloads to which the interval and ``p`` apply: "workloads like these", "these kernels on other
            devices" or, if there are too few workloads for either, only the compared ones ("these 3 workloads").
        workloads: The number of workloads on which both ran. The strategy is better on ``ahead`` of these workloads,
            the same on ``level``, and worse on ``behind``.
        seeds: The number of pairs of runs on the workload with the fewest pairs.
        unreached: The fraction of compared runs that did not reach the target; they count as using the whole budget.
        note: Why there is nothing to compare, or no interval; "" otherwise.
        sentence: A sentence that states these numbers (:func:`describe_comparand`).
    """

    against: str
    verdict: str
    value: float
    lower: float | None
    upper: float | None
    p: float | None
    scope: str
    workloads: int
    ahead: int
    level: int
    behind: int
    seeds: int
    unreached: float
    note: str = ""
    sentence: str = ""


class ClaimVerdict(msgspec.Struct, frozen=True, kw_only=True, rename={"sentence": "says", "comparands": "against"}):
    """A published claim, and the verdict on it.

    Attributes:
        claim: The claim, as in the study.
        verdict: The first of ``fails``, ``undecided``, ``untested`` and ``holds`` that applies to any opponent.
        sentence: The effect and its interval for the opponent that decides the verdict.
        comparands: The comparison with each opponent.
    """

    claim: Claim
    verdict: str
    sentence: str
    comparands: list[Comparand]


class _Measure(NamedTuple):
    """A measure that claims are about.

    Attributes:
        title: The name in sentences.
        compute: The function that computes the measure of a strategy.
        is_ratio: Whether strategies are compared by the ratio of their numbers, and not by the difference.
        higher_is_better: Whether higher numbers are better.
    """

    title: str
    compute: Callable[[StrategyRuns], SeedMean | Spread | TargetTimes]
    is_ratio: bool
    higher_is_better: bool


_GOAL = f"{100 * TARGET_FRACTION:g} % of the best known"
_MEASURES = {
    AREA: _Measure("area under the curve", measure_area, is_ratio=False, higher_is_better=True),
    "best_gflops": _Measure("throughput of the best program", measure_throughput, is_ratio=True, higher_is_better=True),
    TRIALS: _Measure(f"trials to {_GOAL}", measure_trials_to_target, is_ratio=True, higher_is_better=False),
    SECONDS: _Measure(f"seconds to {_GOAL}", measure_seconds_to_target, is_ratio=True, higher_is_better=False),
}


@dataclass(frozen=True)
class _ClaimResult:
    """The comparison of a claim's strategy with an opponent, before p-values are corrected.

    Attributes:
        opponent: The strategy, one of the claim's opponents, with which the claim's strategy is compared.
        difference: The difference in the measure or, if it has a unit, in its logarithm. Higher is better.
        unreached: The fraction of runs that did not reach the target.
        note: Why there is nothing to compare, or "".
    """

    claim: Claim
    opponent: str
    difference: Difference
    unreached: float
    note: str

    @property
    def answer(self) -> Answer:
        """The answer about workloads like these or, if there are too few workloads, about these only."""
        on_others = self.difference.on_others
        return on_others if on_others.p is not None else self.difference.on_these

    @property
    def scope(self) -> str:
        """The workloads that the answer is about."""
        if self.difference.on_others.p is None:
            return name_workloads(self.difference.workloads)
        return "these kernels on other devices" if self.difference.clusters else "workloads like these"


def judge_claims(comparison: ComparedRuns, claims: Sequence[Claim]) -> list[ClaimVerdict]:
    """Return the verdict on each of ``claims``."""
    results = {
        (claim_number, opponent): _compare(comparison, claim, opponent)
        for claim_number, claim in enumerate(claims)
        for opponent in claim.opponents
    }
    corrected_p = correct_family({key: p for key, result in results.items() if (p := result.answer.p) is not None})
    verdicts = []
    for claim_number, claim in enumerate(claims):
        keys = [(claim_number, opponent) for opponent in claim.opponents]
        comparands = [_make_comparand(results[key], corrected_p.get(key)) for key in keys]
        decisive = min(
            comparands,
            key=lambda comparand: (
                WORST_FIRST.index(comparand.verdict),
                comparand.value if comparand.workloads else 0.0,
            ),
        )
        verdicts.append(
            ClaimVerdict(claim=claim, verdict=decisive.verdict, sentence=decisive.sentence, comparands=comparands)
        )
    return verdicts


def _compare(comparison: ComparedRuns, claim: Claim, opponent: str) -> _ClaimResult:
    """Compare the claim's strategy with ``opponent`` on each workload on which both have enough trials."""
    names = (claim.strategy, opponent)
    budget = Budget(claim.trials or UNLIMITED, claim.seconds)
    number_pairs: list[tuple[Floats, Floats]] = []
    clusters: list[str] = []
    unreached_fractions: list[float] = []
    has_short_runs = False
    for workload_runs in comparison.values():
        if any(name not in workload_runs.strategies for name in names) or workload_runs.best is None:
            continue
        truncated_runs = workload_runs.truncate(budget, names)
        strategy_runs = [truncated_runs.strategies[name] for name in names]
        if not all(_covers(runs, claim) for runs in strategy_runs):
            has_short_runs = True
            continue
        numbers = [_measure_by_seed(runs, claim.measure) for runs in strategy_runs]
        unreached_fractions += [float(np.isinf(list(by_seed.values())).mean()) for by_seed in numbers]
        number_pairs.append(_pair_numbers(numbers, truncated_runs, claim.measure))
        clusters.append(workload_runs.cluster)
    note = ""
    strategies = {name for workload_runs in comparison.values() for name in workload_runs.strategies}
    if absent := [name for name in names if name not in strategies]:
        note = f"there are no runs of {listed(absent)} here"
    elif not number_pairs:
        note = "no workload has runs of both" + (" with enough trials" if has_short_runs else "")
    first_values, second_values = [first for first, _ in number_pairs], [second for _, second in number_pairs]
    difference = paired_difference(first_values, second_values, clusters)
    return _ClaimResult(claim, opponent, difference, float(np.mean(unreached_fractions or [0.0])), note)


def _covers(runs: StrategyRuns, claim: Claim) -> bool:
    """Return whether the runs cover the number of trials or seconds that the claim is about."""
    if claim.seconds is not None:
        return all(run.end_reason or run.log.elapsed_seconds[-1] >= claim.seconds for run in runs.runs)
    return claim.trials is None or all(run.has_reached(claim.trials) for run in runs.compared_runs)


def _measure_by_seed(runs: StrategyRuns, measure: str) -> dict[int, float]:
    """Return the measure for each seed, or infinity if the run did not reach the target."""
    numbers = _MEASURES[measure].compute(runs).by_seed
    return {
        run.seed: math.inf if number is None else number
        for run, number in zip(runs.compared_runs, numbers, strict=True)
    }


def _pair_numbers(
    numbers: Sequence[dict[int, float]], workload_runs: WorkloadRuns, measure: str
) -> tuple[Floats, Floats]:
    """Return the numbers of both strategies for the same seeds, with NaN for missing runs. Higher is better."""
    paired = pair_by_seed(*numbers)
    definition = _MEASURES[measure]
    if definition.is_ratio:
        if not definition.higher_is_better:  # a run that did not reach the target counts as using the whole budget
            paired[np.isinf(paired)] = workload_runs.longest_seconds if measure == SECONDS else workload_runs.horizon
        else:  # a run without any working program counts as the slowest of the other runs
            paired[paired == 0] = np.nanmin(paired[paired > 0], initial=workload_runs.best_gflops)
        paired = np.log(paired)
    first, second = paired if definition.higher_is_better else -paired
    return first, second


def _make_comparand(result: _ClaimResult, p: float | None) -> Comparand:
    """Return the comparison with the opponent, given its corrected p-value."""
    claim, difference, interval = result.claim, result.difference, result.answer.difference
    estimate = _convert_to_measure(claim, interval)
    comparand = Comparand(
        against=result.opponent,
        verdict=_judge(claim, interval, p),
        value=estimate.value,
        lower=estimate.lower,
        upper=estimate.upper,
        p=p,
        scope=result.scope,
        workloads=difference.workloads,
        ahead=difference.ahead,
        level=difference.level,
        behind=difference.behind,
        seeds=difference.pairs,
        unreached=result.unreached,
        note=result.note or interval.note,
    )
    return replace(comparand, sentence=describe_comparand(claim, comparand))


def describe_comparand(claim: Claim, comparand: Comparand) -> str:
    """Return a sentence that states the numbers of a comparison that ``claim`` is about."""
    measure = _MEASURES[claim.measure]
    digits = None if measure.is_ratio else DIGITS
    return fill_template(_SENTENCE, claim=claim, comparand=comparand, measure=measure, digits=digits)


def _judge(claim: Claim, interval: Interval, p: float | None) -> str:
    """Return the verdict on one comparison, given the difference, in which higher is better, with its interval."""
    value, lower, upper = interval.value, interval.lower, interval.upper
    if lower is None or upper is None or p is None:
        return "untested"
    margin = math.log1p(claim.margin) if _MEASURES[claim.measure].is_ratio else claim.margin
    if claim.relation == "better":
        holds = p <= ALPHA and value > 0
        fails = value <= 0 if p <= ALPHA else upper <= margin
    else:
        is_two_sided = claim.relation == "level"  # a gain contradicts the claim, too
        holds = lower >= -margin and not (is_two_sided and upper > margin)
        fails = p <= ALPHA and (upper < -margin or (is_two_sided and lower > margin))
    if holds:
        return "holds"
    return "fails" if fails else "undecided"


def _convert_to_measure(claim: Claim, interval: Interval) -> Interval:
    """Convert a difference in which higher is better, with its interval, to a difference or ratio of the measure."""
    measure = _MEASURES[claim.measure]
    if not measure.higher_is_better:
        interval = -interval
    if not measure.is_ratio:
        return interval
    if interval.lower is None or interval.upper is None:
        return Interval(math.exp(interval.value))
    return Interval(math.exp(interval.value), math.exp(interval.lower), math.exp(interval.upper))
