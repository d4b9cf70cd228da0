"""The numbers of a report, as a summary holds them."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import msgspec

from .measures import OverallStrategy, Row, StrategySummary
from .runs import BestKnown
from .stats.inference import Difference, Equivalence
from .stats.ranks import ALPHA, MatrixCell

RANK_SUM, SIGNED_RANK, PAIRED_T = "rank-sum", "signed-rank", "paired-t"
DESCRIBED, ONE_RUN, NO_SEED = "described", "one run", "no seed in common"
ONE_SEED, NO_NOISE = "one seed in common", "the same difference from every seed"
"""How two strategies were tested, or why they were not, see :class:`Contrast`."""


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """Two strategies by one measure.

    Attributes:
        test: On one workload, by area, "signed-rank", which pairs runs by seed, or "rank-sum", which does not; over
            several workloads "paired-t", of the mean difference on these workloads. Other values tell why there is no
            p: "described", as all measures but the area are; "one run" if one of the two makes the same run from every
            seed; or, over several workloads, "no seed in common" or "one seed in common" on one of them, or "the same
            difference from every seed".
        improvement: The part of the pairs in which the run of ``first`` is better; or, without pairs, the probability
            that a run of ``first`` is better than one of ``second`` on the same workload. A tie counts half.
        effect: The rank-biserial correlation of the test, or for "paired-t" the mean difference of the area: in
            [-1, 1], above 0 if ``first`` is better.
    """

    first: str
    second: str
    measure: str  # its name
    test: str
    runs: int  # pairs, or runs of the strategy that has fewer
    improvement: float
    effect: float
    lower: float | None = None  # 95 % interval of improvement; None if there is none
    upper: float | None = None
    p: float | None = None  # two-sided, of this pair alone
    adjusted: float | None = None  # corrected for all tests of the report, see Family
    note: str = ""  # why there is no interval

    @property
    def significant(self) -> bool:
        return self.adjusted is not None and self.adjusted <= ALPHA

    def ahead(self, one: str, other: str) -> bool:
        """Whether ``one`` is significantly better than ``other``."""
        if (one, other) == (self.first, self.second):
            return self.significant and self.effect > 0
        return (other, one) == (self.first, self.second) and self.significant and self.effect < 0


class PairCell(NamedTuple):
    """One strategy against another."""

    chance: float  # that a run of the first is better
    lower: float | None  # 95 % interval of the chance; None if there is none
    upper: float | None
    p: float | None  # corrected; None if there is no test
    word: str  # better or worse, if that is significant

    @classmethod
    def of(cls, contrast: Contrast, one: str, other: str) -> Self:
        chance, lower, upper = contrast.improvement, contrast.lower, contrast.upper
        if contrast.first != one:
            chance = 1 - chance
            lower, upper = (None if end is None else 1 - end for end in (upper, lower))
        word = "better" if contrast.ahead(one, other) else "worse" if contrast.ahead(other, one) else ""
        return cls(chance, lower, upper, contrast.adjusted, word)


class Family(msgspec.Struct, frozen=True):
    """The tests of a report, whose p-values are corrected together."""

    tests: int
    registered: list[tuple[str, str]]  # pairs that the study registered before the runs; all others are exploratory
    says: str  # the family in words


class WorkloadSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The comparison on one workload, the strategy that converges fastest first."""

    workload: str
    flops: int  # floating-point operations of one run; 10^9 if they are unknown
    unit: str = "GFLOPS"  # of throughput; "runs/s" if the FLOPs are unknown
    cluster: str = ""  # see searchlab.workload.Workload.cluster
    horizon: int  # number of trials that every strategy has, over which all are compared
    best: BestKnown | None
    target_gflops: float | None  # throughput that counts as converged; None while nothing has succeeded
    strategies: list[StrategySummary]
    contrasts: list[Contrast]  # every pair by trials to the target, by seconds to it and by area
    verdict: str
    notes: list[str]

    def words(self, target: float) -> dict[str, str]:
        """Return the words for the titles of columns, see :func:`~searchlab.analysis.measures.table`."""
        return {"unit": self.unit, "goal": f"{100 * target:g} %"}

    @property
    def score_ranges(self) -> str:
        """The trials that scores cover, "17 to 52"; several if spaces differ. Empty without a score."""
        ranges = {(row.score_first, row.score_trials) for row in self.strategies if row.score}
        return " or ".join(f"{first} to {last}" for first, last in sorted(ranges, key=str))

    @property
    def by_strategy(self) -> dict[str, StrategySummary]:
        return {row.strategy: row for row in self.strategies}

    def pairs(self, measure: str) -> list[tuple[str, list[PairCell | None]]]:
        """Return each strategy against each other, in order; None against itself."""
        about = {(c.first, c.second): c for c in self.contrasts if c.measure == measure}
        about |= {(c.second, c.first): c for c in about.values()}
        names = [row.strategy for row in self.strategies]
        return [
            (name, [PairCell.of(about[name, other], name, other) if name != other else None for other in names])
            for name in names
        ]


class Diagram(msgspec.Struct, frozen=True):
    """Strategies by average rank over workloads, the best first."""

    strategies: list[str]
    ranks: list[float]  # average ranks; 1 for a strategy that is best everywhere
    workloads: int
    friedman: float | None  # p-value that all do equally well; None for two strategies. Not corrected: no claim uses it
    cliques: list[list[int]]  # largest groups in which no pair differs on workloads like these: places in strategies

    @property
    def by_strategy(self) -> dict[str, float]:
        return dict(zip(self.strategies, self.ranks, strict=True))


class PairClaims(msgspec.Struct, frozen=True):
    """The claims about the best strategy and another."""

    first: str
    second: str
    difference: Difference | None  # of the area, first less second, p corrected; None without a seed in common
    says: list[str]  # in these runs, on these workloads, on others like them; from 11 workloads also equivalence
    headline: str  # the widest claim that the runs support
    equivalence: Equivalence | None = None  # from 11 workloads


class ContrastAnswer(msgspec.Struct, frozen=True):
    """The answer to one registered contrast: is ``first`` better than ``second``?

    Attributes:
        verdict: ``better`` or ``worse`` if a test over all workloads is significant; ``level`` if none is and the
            interval is within the zone of practical equivalence; ``untested`` if there is no test; else ``undecided``.
        difference: The difference of the area, ``first`` less ``second``; its p-values are corrected for all tests of
            the report, its intervals are not.
    """

    first: str
    second: str
    verdict: str
    says: str  # in a sentence: effect, interval, and p on these workloads and on workloads like these
    difference: Difference


class Overall(msgspec.Struct, frozen=True, kw_only=True):
    """The strategies that have runs on every workload, the best by area first."""

    workloads: list[str]
    strategies: list[OverallStrategy]
    contrasts: list[Contrast]  # every pair by area, over the seeds that both have: do they differ on these workloads?
    claims: list[PairClaims]  # the best and each other, the next best first
    diagram: Diagram  # by mean area on each workload: do they differ on workloads like these?
    matrix: list[MatrixCell]  # every ordered pair, row by row, the best by mean area first
    verdict: str


class Summary(msgspec.Struct, frozen=True):
    """All numbers of a report.

    Attributes:
        target: The part of the best known throughput that counts as converged.
        workloads: The comparison on each workload.
        family: The tests of the report.
        overall: The comparison over all workloads; None for one workload, or if no two strategies ran on all of them.
        answers: The answers to the registered contrasts, in the order of the study.
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
        """The trials that the scores of all workloads cover, "17 to 52"; if they differ "1-17 to 52-200"."""
        rows = [row for item in self.workloads for row in item.strategies if row.score]
        ends = [[row.score_first or 0 for row in rows], [row.score_trials or 0 for row in rows]]
        return " to ".join("-".join(map(str, sorted({min(own), max(own)}))) for own in ends if own)

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain dicts, lists, strings and finite numbers."""
        return dict(msgspec.to_builtins(self, enc_hook=Row.to_json))


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The best program of a run, as :attr:`searchlab.log.result.Result.best` has it.

    The fastest trial; or, if the fastest trials were measured again at the end of the run, the one that won then.
    """

    workload: str
    strategy: str
    seed: int
    trial: int  # index in the log, from 0
    gflops: float  # from the last measurement
    seconds: float  # likewise
    as_trial: float  # GFLOPS as a trial
    tied: list[int] | None  # trials that were not distinguishable when measured again; None if none were
    config: dict[str, Any]
    log: str
    trace: str | None = None  # schedule trace, only for the best run of a strategy
    note: str = ""  # why there is no trace
