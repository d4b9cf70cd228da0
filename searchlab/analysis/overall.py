"""What strategies come to over all workloads of a comparison."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from ..arrays import Floats
from .claims import claims, equivalence_claim, headline
from .contrasts import untested
from .family import Key, p_values, with_adjusted
from .measures import AREA, OverallStrategy, StrategySummary
from .model import (
    NO_NOISE,
    NO_SEED,
    ONE_RUN,
    ONE_SEED,
    PAIRED_T,
    Contrast,
    Diagram,
    Overall,
    PairClaims,
    WorkloadSummary,
)
from .stats.aggregates import Sample
from .stats.bayes import ROPE, bayesian_signed_rank
from .stats.cliques import cliques
from .stats.comparison_matrix import comparison_matrix
from .stats.inference import FEWEST_WORKLOADS, Answer, Difference, paired_difference
from .stats.intervals import DECIMALS, Interval, share_interval
from .stats.ranks import ALPHA, average_ranks, friedman_test, rounded
from .verdict import standing
from .words import listed

OTHERS = "workloads like these"
"""Names the test of a claim on other workloads."""


@dataclass(frozen=True)
class Together:
    """The strategies that ran on every workload, the best by area first, and every pair of them, not corrected yet.

    means: by pair, the mean difference on each workload, over the seeds in common.
    """

    workloads: Sequence[WorkloadSummary]
    strategies: list[OverallStrategy]
    differences: dict[tuple[str, str], Difference]
    means: dict[tuple[str, str], Floats]
    contrasts: list[Contrast]

    @property
    def names(self) -> list[str]:
        return [strategy.strategy for strategy in self.strategies]

    @property
    def p(self) -> dict[Key, float]:
        """Of each test: of the claims on these workloads, and of those on others like them."""
        others = {
            ("", OTHERS, *pair): difference.on_others.p
            for pair, difference in self.differences.items()
            if difference.on_others.p is not None
        }
        return p_values("", self.contrasts) | others

    @property
    def tested(self) -> list[tuple[str, str]]:
        """The pair of each test."""
        return [(first, second) for _, _, first, second in self.p]


def together(workloads: Sequence[WorkloadSummary]) -> Together | None:
    """None for one workload, and where no two strategies ran on all of them, with a seed in common on each."""
    rows = [item.by_strategy for item in workloads]
    names = sorted(set.intersection(*(set(row) for row in rows))) if rows else []
    if len(workloads) < 2 or len(names) < 2:
        return None
    strategies = [OverallStrategy(name, [row[name] for row in rows]) for name in names]
    strategies.sort(key=lambda strategy: -strategy.area.value)
    differences: dict[tuple[str, str], Difference] = {}
    means, compared = {}, []
    for first, second in combinations([strategy.strategy for strategy in strategies], 2):
        ours, theirs = paired_areas([row[first] for row in rows], [row[second] for row in rows])
        means[first, second] = np.array([_mean(one - other) for one, other in zip(ours, theirs, strict=True)])
        single = any(row[name].one_run for row in rows for name in (first, second))
        differences[first, second] = difference = _difference(ours, theirs, single=single)
        compared.append(_contrast(first, second, ours, theirs, difference, single=single))
    if all(contrast.test == NO_SEED for contrast in compared):
        return None
    return Together(workloads, strategies, differences, means, compared)


def _mean(differences: Floats) -> float:
    """Of those that are no NaN; NaN if all are."""
    known = differences[~np.isnan(differences)]
    return float(known.mean()) if len(known) else math.nan


def paired_areas(first: Sequence[StrategySummary], second: Sequence[StrategySummary]) -> tuple[Sample, Sample]:
    """The areas of two strategies on each workload, by seed; NaN where one has no run from a seed."""
    seeds = [sorted({*one.seeds, *other.seeds}) for one, other in zip(first, second, strict=True)]
    ours, theirs = (
        [
            np.array([row.by_seed(AREA).get(seed, math.nan) for seed in own])
            for row, own in zip(rows, seeds, strict=True)
        ]
        for rows in (first, second)
    )
    return ours, theirs


def _difference(ours: Sample, theirs: Sample, *, single: bool) -> Difference:
    """single: whether one of the two makes the same run from every seed."""
    found = paired_difference(ours, theirs)
    if found.workloads < len(ours):
        no = Answer(Interval.none(found.value, "The strategies do not have a seed in common on every workload."))
        return replace(found, on_these=no, on_others=no)
    if single:
        note = "One of the two makes the same run from every seed: that does not show how runs vary."
        return replace(found, on_these=Answer(Interval.none(found.value, note)))
    return found


def _contrast(
    first: str, second: str, ours: Sample, theirs: Sample, difference: Difference, *, single: bool
) -> Contrast:
    about = partial(Contrast, first=first, second=second, measure=AREA)
    samples = [[runs[~np.isnan(runs)] for runs in sample] for sample in (ours, theirs)]
    if single:
        return untested(about, ONE_RUN, *samples)
    if difference.workloads < len(ours):
        return untested(about, NO_SEED, *samples)
    if difference.on_these.p is None:
        return untested(about, ONE_SEED if difference.pairs < 2 else NO_NOISE, *samples)
    apart = np.round(np.concatenate(ours) - np.concatenate(theirs), DECIMALS)
    apart = apart[~np.isnan(apart)]
    share = share_interval(float((apart > 0).sum() + (apart == 0).sum() / 2), len(apart))
    return about(
        test=PAIRED_T, runs=len(apart), improvement=share.value, lower=share.lower, upper=share.upper,
        effect=difference.value, p=difference.on_these.p, note=share.note,
    )  # fmt: skip


def overall(found: Together, adjusted: Mapping[Key, float], *, so_far: bool = False) -> Overall:
    """adjusted: the p-values of all tests of the report, corrected. so_far: whether a run has yet to begin."""
    workloads, names, strategies = found.workloads, found.names, found.strategies
    rows = [item.by_strategy for item in workloads]
    compared = with_adjusted("", found.contrasts, adjusted)
    means = np.array([[np.mean(row[name].area.by_seed) for name in names] for row in rows])
    said = [_claims(found, pair, adjusted) for pair in found.differences if pair[0] == names[0]]
    so_far = so_far or not all(row[name].complete for row in rows for name in names)
    apart = {frozenset(pair) for pair in found.differences if adjusted.get(("", OTHERS, *pair), 1.0) <= ALPHA}
    return Overall(
        workloads=[item.workload for item in workloads],
        strategies=strategies,
        contrasts=compared,
        claims=said,
        diagram=diagram(names, means, apart),
        matrix=list(comparison_matrix(names, means).cells.values()),
        verdict=_verdict(found, compared, so_far=so_far)
        + f" {said[0].headline}"
        + "".join(f" {note}" for note in dict.fromkeys(row.area.note for row in strategies[:2] if row.area.note))
        + _left_out(workloads, names),
    )


def _verdict(found: Together, contrasts: Sequence[Contrast], *, so_far: bool) -> str:
    """Who converges fastest on these workloads, or that there is no winner; and whom tests do not separate."""
    names = found.names
    first, second = (_area_text(strategy.area) for strategy in found.strategies[:2])
    result = standing(names, contrasts, AREA, by="on these workloads ", unit="run")
    over = f"over {len(found.workloads)} workloads"
    areas = f"{first}, {names[1]} {second}"
    if result.tied:
        opening = result.opening(f" {over}")
        opening = f"So far, {opening.replace('No winner', 'no winner', 1)}" if so_far else opening
        return f"{opening}{result.says}. By area under the curve {names[0]} has {areas}."
    opening = f"So far, {over}" if so_far else f"Over{over[4:]}"
    return f"{opening} {names[0]} converges fastest by area under the curve ({areas}); {result.says}."


def diagram(strategies: Sequence[str], scores: Floats, apart: Collection[frozenset[str]]) -> Diagram:
    """The diagram of ``scores``, shape (workloads, strategies), higher is better.

    apart: the pairs of strategies that differ on workloads like these, as the one test of the report that asks for this
    says; no other pair can be told apart.

    Average ranks as in Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006. Nothing
    is tested by mean ranks, in which the answer for two strategies depends on the others (Benavoli, Corani and Mangili,
    "Should we really use post-hoc tests based on mean-ranks?", JMLR 17, 2016).
    """
    scores = rounded(scores)
    average = average_ranks(scores)
    order = sorted(range(len(strategies)), key=lambda i: (average[i], strategies[i]))
    names = [strategies[i] for i in order]
    alike = {(i, j) for i, j in combinations(range(len(names)), 2) if frozenset((names[i], names[j])) not in apart}
    return Diagram(
        strategies=names,
        ranks=[float(average[i]) for i in order],
        workloads=len(scores),
        friedman=friedman_test(scores) if len(order) > 2 else None,
        cliques=cliques(len(order), alike),
    )


def _claims(found: Together, pair: tuple[str, str], adjusted: Mapping[Key, float]) -> PairClaims:
    """The three answers on a pair, with the p-values that are corrected for all tests of the report."""

    def corrected(answer: Answer, test: str) -> Answer:
        return replace(answer, p=adjusted.get(("", test, *pair)))

    difference = found.differences[pair]
    difference = replace(
        difference,
        on_these=corrected(difference.on_these, PAIRED_T),
        on_others=corrected(difference.on_others, OTHERS),
    )
    says = claims(*pair, difference)
    equivalence = None
    if difference.workloads >= FEWEST_WORKLOADS:
        equivalence = bayesian_signed_rank(found.means[pair])
        says.append(equivalence_claim(*pair, equivalence, ROPE))
    return PairClaims(
        first=pair[0], second=pair[1], difference=difference if difference.workloads else None,
        says=says, headline=headline(*pair, difference), equivalence=equivalence,
    )  # fmt: skip


def _left_out(workloads: Sequence[WorkloadSummary], names: Sequence[str]) -> str:
    """Sentences on what the verdict does not rest on: runs that were stopped early, trials that some do not have."""
    rows = [item.by_strategy[name] for item in workloads for name in names]
    said = ""
    if stopped := [row for row in rows if row.interrupted]:
        number = sum(len(row.interrupted) for row in stopped)
        whose = listed(list(dict.fromkeys(row.strategy for row in stopped)))
        said += (
            f" {number} run{'s' * (number > 1)} of {whose} stopped early, and {'are' if number > 1 else 'is'} left out."
        )
    if unequal := [item for item in workloads if any(item.by_strategy[name].trials != item.horizon for name in names)]:
        budgets = listed([f"{item.horizon} on {item.workload}" for item in unequal])
        said += f" Strategies have unequal trials, and are compared over those that all have: {budgets}."
    return said


def _area_text(area: Interval) -> str:
    if area.lower is None or area.upper is None:
        return f"{area.value:.2f}"
    return f"{area.value:.2f} [{area.lower:.2f}, {area.upper:.2f}]"
