"""How strategies compare over all workloads, and the answers to the registered contrasts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from ..arrays import Floats
from .contrasts import Key, p_values, untested, with_adjusted
from .measures import AREA, OverallStrategy, StrategySummary
from .model import (
    NO_NOISE,
    NO_SEED,
    ONE_RUN,
    ONE_SEED,
    PAIRED_T,
    Contrast,
    ContrastAnswer,
    Diagram,
    Overall,
    PairClaims,
    WorkloadSummary,
)
from .stats.inference import (
    FEWEST_WORKLOADS,
    ROPE,
    Difference,
    bayesian_signed_rank,
    no_answer,
    paired_difference,
)
from .stats.intervals import DECIMALS, Interval, Sample, share_interval
from .stats.ranks import ALPHA, average_ranks, cliques, comparison_matrix, friedman_test, rounded
from .verdict import answer, answer_word, claims, equivalence_claim, headline, standing
from .words import listed

OTHERS = "workloads like these"  # the name of the test of a claim on other workloads


@dataclass(frozen=True)
class Together:
    """The strategies that ran on every workload, the best by area first, and every pair of them, not corrected yet."""

    workloads: Sequence[WorkloadSummary]
    strategies: list[OverallStrategy]
    differences: dict[tuple[str, str], Difference]
    means: dict[tuple[str, str], Floats]  # mean difference of each pair on each workload, over the seeds in common
    contrasts: list[Contrast]

    @property
    def names(self) -> list[str]:
        return [strategy.strategy for strategy in self.strategies]

    @property
    def p(self) -> dict[Key, float]:
        """The p-value of each test, for claims on these workloads and for those on others like them."""
        others = {
            ("", OTHERS, *pair): difference.on_others.p
            for pair, difference in self.differences.items()
            if difference.on_others.p is not None
        }
        return p_values("", self.contrasts) | others


def together(workloads: Sequence[WorkloadSummary]) -> Together | None:
    """Pair the strategies that ran on all workloads; None for one workload, or if no two share a seed on each."""
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
    """Return the mean of those that are no NaN; NaN if all are."""
    known = differences[~np.isnan(differences)]
    return float(known.mean()) if len(known) else math.nan


def paired_areas(first: Sequence[StrategySummary], second: Sequence[StrategySummary]) -> tuple[Sample, Sample]:
    """Return the areas of two strategies on each workload, by seed; NaN where one has no run from a seed."""
    ours: list[Floats] = []
    theirs: list[Floats] = []
    for one, other in zip(first, second, strict=True):
        for row, areas in ((one, ours), (other, theirs)):
            by_seed = row.by_seed(AREA)
            areas.append(np.array([by_seed.get(seed, math.nan) for seed in sorted({*one.seeds, *other.seeds})]))
    return ours, theirs


def _difference(ours: Sample, theirs: Sample, *, single: bool) -> Difference:
    """Compare two strategies; ``single``: whether one of them makes the same run from every seed."""
    found = paired_difference(ours, theirs)
    if found.workloads < len(ours):
        no = no_answer(found.value, "The strategies do not have a seed in common on every workload.")
        return replace(found, on_these=no, on_others=no)
    if single:
        note = "One of the two makes the same run from every seed: that does not show how runs vary."
        return replace(found, on_these=no_answer(found.value, note))
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
    """Compare the strategies, given the corrected p-values of the report and whether a run has yet to begin."""
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
        matrix=comparison_matrix(names, means),
        verdict=_verdict(found, compared, so_far=so_far)
        + f" {said[0].headline}"
        + "".join(f" {note}" for note in dict.fromkeys(row.area.note for row in strategies[:2] if row.area.note))
        + _left_out(workloads, names),
    )


def _verdict(found: Together, contrasts: Sequence[Contrast], *, so_far: bool) -> str:
    """Return who converges fastest on these workloads, or that there is no winner, and whom no test separates."""
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
    """Return the critical difference diagram, with average ranks as in Demsar, JMLR 7, 2006.

    Mean ranks are not tested: the answer for two strategies would depend on the others (Benavoli, Corani and Mangili,
    "Should we really use post-hoc tests based on mean-ranks?", JMLR 17, 2016).

    Args:
        strategies: Their names.
        scores: Shape (workloads, strategies), higher is better.
        apart: The pairs that differ on workloads like these, by the one test of the report that asks for this.
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


def _corrected(found: Together, pair: tuple[str, str], adjusted: Mapping[Key, float]) -> Difference:
    difference = found.differences[pair]
    return replace(
        difference,
        on_these=replace(difference.on_these, p=adjusted.get(("", PAIRED_T, *pair))),
        on_others=replace(difference.on_others, p=adjusted.get(("", OTHERS, *pair))),
    )


def _claims(found: Together, pair: tuple[str, str], adjusted: Mapping[Key, float]) -> PairClaims:
    difference = _corrected(found, pair, adjusted)
    says = claims(*pair, difference)
    equivalence = None
    if difference.workloads >= FEWEST_WORKLOADS:
        equivalence = bayesian_signed_rank(found.means[pair])
        says.append(equivalence_claim(*pair, equivalence, ROPE))
    return PairClaims(
        first=pair[0], second=pair[1], difference=difference if difference.workloads else None,
        says=says, headline=headline(*pair, difference), equivalence=equivalence,
    )  # fmt: skip


def answers(
    registered: Sequence[tuple[str, str]],
    workloads: Sequence[WorkloadSummary],
    found: Together | None,
    adjusted: Mapping[Key, float],
) -> list[ContrastAnswer]:
    """Answer the registered contrasts.

    Args:
        registered: The contrasts, in the order of the study.
        workloads: Each workload, with its contrasts corrected.
        found: The strategies over all workloads. If there is one workload, its own test answers. Contrasts between
            strategies that did not run on all of several workloads are left out: those workloads answer by themselves.
        adjusted: The p-values of all tests, corrected.
    """
    answered = []
    for first, second in registered:
        difference = None
        if found is None:
            difference = _alone(first, second, workloads[0]) if len(workloads) == 1 else None
        elif (first, second) in found.differences:
            difference = _corrected(found, (first, second), adjusted)
        elif (second, first) in found.differences:
            difference = _corrected(found, (second, first), adjusted).reversed()
        if difference is not None:
            word = answer_word(difference)
            answered.append(ContrastAnswer(first, second, word, answer(first, second, word, difference), difference))
    return answered


def _alone(first: str, second: str, item: WorkloadSummary) -> Difference | None:
    rows = item.by_strategy
    if not {first, second} <= rows.keys():
        return None
    contrast = next(c for c in item.contrasts if c.measure == AREA and {c.first, c.second} == {first, second})
    found = paired_difference(*paired_areas([rows[first]], [rows[second]]))
    return replace(found, on_these=replace(found.on_these, p=contrast.adjusted))


def _left_out(workloads: Sequence[WorkloadSummary], names: Sequence[str]) -> str:
    """Return sentences on what the verdict ignores: runs that were stopped early, trials that some do not have."""
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
