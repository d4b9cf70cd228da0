"""The numbers of a report: what a summary holds, and the names of the measures that strategies are compared by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import msgspec
import numpy as np

from .stats.bayes import Equivalence
from .stats.curves import quartiles
from .stats.inference import Difference
from .stats.intervals import Interval, median_interval
from .stats.ranks import ALPHA
from .stats.targets import expected_running_time, penalised_average

TRIALS, SECONDS, AREA = "trials_to_target", "seconds_to_target", "area"
"""Measures that strategies are compared by: fields of :class:`StrategySummary`."""

RANK_SUM, SIGNED_RANK, PAIRED_T = "rank-sum", "signed-rank", "paired-t"
DESCRIBED, ONE_RUN, NO_SEED = "described", "one run", "no seed in common"
ONE_SEED, NO_NOISE = "one seed in common", "the same difference from every seed"
"""How two strategies were tested, or why they were not: see :class:`Contrast`."""

TARGET = 0.95
"""The part of the best known throughput that counts as having converged."""


class Spread(msgspec.Struct, frozen=True):
    """A number for every seed, in the order of the seeds, with their median and quartiles."""

    median: float
    lower: float
    upper: float
    by_seed: list[float]

    @classmethod
    def of(cls, values: list[float]) -> Self:
        lower, middle, upper = quartiles(np.array(values)).tolist()
        return cls(middle, lower, upper, values)


class Reached(msgspec.Struct, frozen=True):
    """What every seed took to reach the target; None for a seed whose run ended before that (censored).

    median: over all seeds, where a censored seed counts as infinity. lower, upper: the 95 % interval of the median; see
    :func:`~searchlab.analysis.stats.intervals.median_interval`. Each of the three is None where it is infinite. The
    median is infinite unless more than half of the seeds reached the target. note: why there is no interval; empty
    where there is one.
    expected: ERT (see :func:`~searchlab.analysis.stats.targets.expected_running_time`); None where no seed reached the
    target. penalised: PAR-10, with the most that any run of the workload had as its budget.
    """

    reached: int
    median: float | None
    lower: float | None
    upper: float | None
    expected: float | None
    penalised: float
    by_seed: list[float | None]
    note: str = ""

    @classmethod
    def of(
        cls, values: list[float], spent: list[float], budget: float, interrupted: Sequence[tuple[float, float]] = ()
    ) -> Self:
        """values: what each seed took, infinity where its run ended before. spent: what each run had at its end.

        budget: the budget of PAR-10. interrupted: both of each run that was stopped early. Only ERT counts these, which
        needs no run to go to the same end.
        """
        hits = np.array(values)
        more_hits, more_spent = np.array(interrupted).reshape(-1, 2).T
        interval = median_interval(hits)
        return cls(
            reached=int(np.isfinite(hits).sum()),
            median=_finite(interval.value),
            lower=_finite(interval.lower),
            upper=_finite(interval.upper),
            expected=_finite(expected_running_time(np.append(hits, more_hits), np.append(np.array(spent), more_spent))),
            penalised=penalised_average(hits, budget),
            by_seed=[_finite(value) for value in values],
            note=interval.note,
        )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


class Seconds(msgspec.Struct, frozen=True):
    """Seconds charged, summed over seeds: see :attr:`searchlab.log.format.Log.charged`."""

    total: float
    propose: float
    train: float
    build: float
    run: float


class BestKnown(msgspec.Struct, frozen=True):
    """The fastest program of a workload: the optimum of complete tables, or the fastest that any log has.

    gflops, seconds: its throughput and its time. The other fields name the trial that found it, and are None where no
    run did: the first by file name where several are equally fast. trial: its index in the log, from 0.
    """

    gflops: float
    seconds: float
    strategy: str | None = None
    seed: int | None = None
    trial: int | None = None
    config: dict[str, Any] | None = None
    log: str | None = None


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """Two strategies on one measure.

    test: on one workload by area "signed-rank", which pairs runs by seed, or "rank-sum", which does not; over several
    "paired-t", which asks for the mean difference on these workloads. Other words say why there is no p: "described",
    as all measures but the area are; "one run", where one of the two makes the same run from every seed; or, over
    several workloads, "no seed in common" or "one seed in common" on one of them, or "the same difference from every
    seed".
    runs: the number of pairs, or of the runs of the strategy that has fewer.
    improvement: the part of the pairs in which the run of ``first`` is better; or, without pairs, the probability that
    a run of ``first`` is better than a run of ``second`` on the same workload. A tie counts half. lower, upper: its
    95 % interval, None where there is none; then ``note`` says why.
    effect: the rank-biserial correlation of the test, or for "paired-t" the mean difference of the area: in [-1, 1],
    above 0 where ``first`` is better.
    p: two-sided, of this pair alone. adjusted: p corrected for all tests of the report; see :class:`Family`.
    """

    first: str
    second: str
    measure: str
    test: str
    runs: int
    improvement: float
    effect: float
    lower: float | None = None
    upper: float | None = None
    p: float | None = None
    adjusted: float | None = None
    note: str = ""

    @property
    def significant(self) -> bool:
        return self.adjusted is not None and self.adjusted <= ALPHA

    def ahead(self, one: str, other: str) -> bool:
        """Whether the contrast says that ``one`` is better than ``other``."""
        if (one, other) == (self.first, self.second):
            return self.significant and self.effect > 0
        return (other, one) == (self.first, self.second) and self.significant and self.effect < 0


class Family(msgspec.Struct, frozen=True):
    """The tests of a report, whose p-values are corrected together.

    tests: their number. registered: the pairs of strategies whose contrast the study had registered before the runs;
    all other pairs are exploratory. says: this in words.
    """

    tests: int
    registered: list[tuple[str, str]]
    says: str


class StrategySummary(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy on one workload.

    batch: the number of configs that the policy was asked for at a time.
    trials: the most trials that at least half of its runs have; trials_by_seed: the number that each run has. They are
    all the same where ``complete``, but for the runs that ended by themselves, by their seconds or for want of a gain,
    ``ended`` of them: these hold their best as long as the others go on. seeds: of the runs that are compared;
    interrupted: of those that were stopped before the horizon, and are left out. one_run: whether the strategy makes
    the same run from every seed; then only one of them is compared, and nothing tests it.

    best_gflops, trials_to_target, seconds_to_target and area (see
    :func:`~searchlab.analysis.stats.curves.area_under_curve`) are over the trials up to the horizon of the workload, of
    each of ``seeds``; failures (number by kind) and seconds are over all that the logs hold. anytime: AOCC on a
    logarithmic scale (see :func:`~searchlab.analysis.stats.targets.anytime`). ecdf_area: the area under the ECDF of all
    (seed, target) pairs, with the targets of :func:`~searchlab.analysis.stats.targets.precision_targets`.

    score: mean over seeds of the score against random search in the strategy's own space and the best known there (see
    :class:`~searchlab.analysis.stats.random_search.RandomSearch`), in log latency, over the trials from ``score_first``
    to ``score_trials``. Scores in different spaces are not comparable. A complete table, or else the runs of the policy
    ``random`` in a space, say what random search is worth there; the score is None where there is neither, or where
    random search has nothing to gain.
    """

    strategy: str
    space: str
    policy: str
    cost_model: str | None
    batch: int
    seeds: list[int]
    interrupted: list[int]
    one_run: bool
    trials: int
    trials_by_seed: list[int]
    complete: bool
    ended: int
    best_gflops: Spread
    trials_to_target: Reached
    seconds_to_target: Reached
    area: Spread
    anytime: Spread
    ecdf_area: float
    score: Interval | None
    score_by_seed: list[float] | None
    score_first: int | None
    score_trials: int | None
    failures: dict[str, int]
    seconds: Seconds


class WorkloadSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The comparison on one workload, the strategy that converges fastest first.

    flops: the floating-point operations of one run of the workload. unit: of all throughputs, "GFLOPS"; or "runs/s"
    where the FLOPs are not known, and ``flops`` is 10^9 then. horizon: the number of trials that every strategy has;
    all of them are compared over this many. target_gflops: the throughput that counts as converged, None while nothing
    has succeeded. contrasts: every pair of strategies by trials to the target, by seconds to it and by area.
    """

    workload: str
    flops: int
    unit: str = "GFLOPS"
    horizon: int
    best: BestKnown | None
    target_gflops: float | None
    strategies: list[StrategySummary]
    contrasts: list[Contrast]
    verdict: str
    notes: list[str]

    @property
    def batches_differ(self) -> bool:
        """Whether a reader should know the batch of each strategy."""
        return len({row.batch for row in self.strategies}) > 1

    @property
    def score_ranges(self) -> str:
        """The trials that scores are over, "17 to 52"; several where spaces differ. Empty without a score."""
        ranges = {(row.score_first, row.score_trials) for row in self.strategies if row.score}
        return " or ".join(f"{first} to {last}" for first, last in sorted(ranges, key=str))

    @property
    def by_strategy(self) -> dict[str, StrategySummary]:
        return {row.strategy: row for row in self.strategies}


class Diagram(msgspec.Struct, frozen=True):
    """Strategies by average rank over workloads, the best first.

    ranks: their average ranks; 1 for a strategy that is best everywhere. friedman: p-value that all do as well as each
    other, None for two strategies; it is not corrected, and no claim rests on it. cliques: the largest groups of two or
    more strategies in which no pair differs on workloads like these, by place in ``strategies``.
    """

    strategies: list[str]
    ranks: list[float]
    workloads: int
    friedman: float | None
    cliques: list[list[int]]

    @property
    def by_strategy(self) -> dict[str, float]:
        """strategy -> its average rank."""
        return dict(zip(self.strategies, self.ranks, strict=True))


class OverallStrategy(msgspec.Struct, frozen=True):
    """One strategy over all workloads; the intervals are for just these workloads, of which only the runs vary.

    area: interquartile mean of the area under the curve. score: mean over workloads of the score against random
    search, None where a workload has none. ecdf_area: mean over workloads.
    """

    strategy: str
    area: Interval
    score: Interval | None
    ecdf_area: float


class PairClaims(msgspec.Struct, frozen=True):
    """What is claimed of the best strategy and another: see :mod:`~searchlab.analysis.claims`.

    difference: of the area under the curve, ``first`` less ``second``; its p-values are corrected for all tests of the
    report. None where they have no seed in common. says: in these runs, on these workloads, on workloads like these;
    from 11 workloads up also how probable it is that one is better, with the probabilities in ``equivalence``.
    headline: the widest claim that the runs can carry.
    """

    first: str
    second: str
    difference: Difference | None
    says: list[str]
    headline: str
    equivalence: Equivalence | None = None


class MatrixCell(msgspec.Struct, frozen=True, kw_only=True):
    """Two strategies in the multiple comparison matrix; no other strategy changes anything here.

    difference: mean over workloads of the mean area of ``row`` less that of ``column``. wins, ties, losses: on how many
    workloads the mean of ``row`` is higher, the same, lower. p: of the signed-rank test over workloads, not corrected:
    it ranks pairs, and no claim rests on it.
    """

    row: str
    column: str
    difference: float
    wins: int
    ties: int
    losses: int
    p: float


class Overall(msgspec.Struct, frozen=True, kw_only=True):
    """The strategies that have runs on every workload, the best by area first.

    contrasts: every pair of them by area, over the seeds that both have; they say whether strategies differ on these
    workloads. claims: the best and each other, the next best first. diagram: by mean area on each workload; it says
    whether they differ on workloads like these. matrix: every ordered pair, row by row, the best by mean area first.
    """

    workloads: list[str]
    strategies: list[OverallStrategy]
    contrasts: list[Contrast]
    claims: list[PairClaims]
    diagram: Diagram
    matrix: list[MatrixCell]
    verdict: str


class Summary(msgspec.Struct, frozen=True):
    """All numbers of a report. ``target`` is the part of the best known throughput that counts as converged.

    family: the tests of the report. overall: over all workloads; None where there is one workload, or where no two
    strategies ran on all of them.
    """

    target: float
    workloads: list[WorkloadSummary]
    family: Family
    overall: Overall | None = None

    def __repr__(self) -> str:
        strategies = {row.strategy for item in self.workloads for row in item.strategies}
        return f"<Summary of {len(strategies)} strategies on {len(self.workloads)} workloads>"

    @property
    def score_cutoffs(self) -> str:
        """The trials that the scores of all workloads are over, "17 to 52"; where they differ "1-17 to 52-200"."""
        rows = [row for item in self.workloads for row in item.strategies if row.score]
        ends = [[row.score_first or 0 for row in rows], [row.score_trials or 0 for row in rows]]
        return " to ".join("-".join(map(str, sorted({min(own), max(own)}))) for own in ends if own)

    def to_json(self) -> dict[str, Any]:
        """As plain dicts, lists, strings and finite numbers."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The best program of a run, as :attr:`searchlab.log.result.Result.best` has it.

    It is the fastest trial; but where the fastest trials were measured again at the end of the run, it is the trial
    that then won, and ``gflops`` and ``seconds`` are of that measurement. trial: its index in the log, from 0.
    as_trial: its GFLOPS as a trial. tied: the trials that could not be told from it when they were measured again; None
    where none were.
    trace: its schedule trace, or None, and ``note`` says why; only the best run of a strategy gets one.
    """

    workload: str
    strategy: str
    seed: int
    trial: int
    gflops: float
    seconds: float
    as_trial: float
    tied: list[int] | None
    config: dict[str, Any]
    log: str
    trace: str | None = None
    note: str = ""
