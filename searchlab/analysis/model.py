"""The numbers of a report: what a summary holds."""

from __future__ import annotations

from typing import Any

import msgspec

from .measures import OverallStrategy, Row, StrategySummary
from .runs import BestKnown
from .stats.bayes import Equivalence
from .stats.comparison_matrix import MatrixCell
from .stats.inference import Difference
from .stats.ranks import ALPHA

RANK_SUM, SIGNED_RANK, PAIRED_T = "rank-sum", "signed-rank", "paired-t"
DESCRIBED, ONE_RUN, NO_SEED = "described", "one run", "no seed in common"
ONE_SEED, NO_NOISE = "one seed in common", "the same difference from every seed"
"""How two strategies were tested, or why they were not: see :class:`Contrast`."""


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

    def words(self, target: float) -> dict[str, str]:
        """What the titles of columns name, for :func:`~searchlab.analysis.measures.table`."""
        return {"unit": self.unit, "goal": f"{100 * target:g} %"}

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


class ContrastAnswer(msgspec.Struct, frozen=True):
    """What a report answers to one registered contrast: is ``first`` better than ``second``?

    Attributes:
        first: The strategy that the study registered first.
        second: The strategy that it is compared with.
        verdict: ``better`` or ``worse`` if a test over all workloads is significant; ``level`` if none is and the
            interval is within the zone of practical equivalence; ``untested`` if there is no test; else ``undecided``.
        says: The answer in a sentence: effect, interval, and p on these workloads and on workloads like these.
        difference: The difference of the area, ``first`` less ``second``; its p-values are corrected for all tests of
            the report, its intervals are not.
    """

    first: str
    second: str
    verdict: str
    says: str
    difference: Difference


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
    strategies ran on all of them. answers: to the registered contrasts, in the order of the study.
    """

    target: float
    workloads: list[WorkloadSummary]
    family: Family
    overall: Overall | None = None
    answers: list[ContrastAnswer] = []

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
        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=Row.to_json)
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
