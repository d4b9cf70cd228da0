"""The numbers in a report, as its summary contains them."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import msgspec

from ..log.plan import Claim
from .measures import OverallStrategy, Row, StrategySummary
from .runs import BestKnown
from .stats.inference import Difference, Equivalence
from .stats.ranks import ALPHA

RANK_SUM, SIGNED_RANK, PAIRED_T = "rank-sum", "signed-rank", "paired-t"
DESCRIBED, ONE_RUN, NO_SEED = "described", "one run", "no seed in common"
ONE_SEED, NO_NOISE = "one seed in common", "the same difference from every seed"
"""How two strategies were tested, or why they were not; see :class:`Contrast`."""


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of two strategies by one measure.

    Attributes:
        test: For the area on one workload, "signed-rank", which pairs runs by seed, or "rank-sum", which does not. Over
            several workloads, "paired-t", a test of the mean difference on these workloads. Other values state why p is
            missing: "described" for measures other than the area; "one run" if one of the two strategies yields the
            same run for every seed; or, over several workloads, "no seed in common" or "one seed in common" on one of
            them, or "the same difference from every seed".
        improvement: The fraction of pairs in which the run of ``first`` is better or, without pairs, the probability
            that a run of ``first`` is better than one of ``second`` on the same workload. Ties count half.
        effect: The test's rank-biserial correlation or, for "paired-t", the mean difference of the area: in [-1, 1],
            positive if ``first`` is better.
    """

    first: str
    second: str
    measure: str  # its name
    test: str
    runs: int  # the number of pairs, or of runs of the strategy that has fewer
    improvement: float
    effect: float
    lower: float | None = None  # 95 % interval of improvement, or None if it has none
    upper: float | None = None
    p: float | None = None  # two-sided, for this pair alone
    adjusted: float | None = None  # corrected for all tests in the report, see Family
    note: str = ""  # why there is no interval

    @property
    def significant(self) -> bool:
        return self.adjusted is not None and self.adjusted <= ALPHA

    def ahead(self, one: str, other: str) -> bool:
        """Return whether ``one`` is significantly better than ``other``."""
        if (one, other) == (self.first, self.second):
            return self.significant and self.effect > 0
        return (other, one) == (self.first, self.second) and self.significant and self.effect < 0


class PairCell(NamedTuple):
    """One strategy compared with another."""

    chance: float  # that a run of the first is better
    lower: float | None  # 95 % interval of the chance, or None if it has none
    upper: float | None
    p: float | None  # corrected; None without a test
    word: str  # better or worse, if significant

    @classmethod
    def of(cls, contrast: Contrast, one: str, other: str) -> Self:
        chance, lower, upper = contrast.improvement, contrast.lower, contrast.upper
        if contrast.first != one:
            chance = 1 - chance
            lower, upper = (None if end is None else 1 - end for end in (upper, lower))
        word = "better" if contrast.ahead(one, other) else "worse" if contrast.ahead(other, one) else ""
        return cls(chance, lower, upper, contrast.adjusted, word)


class Family(msgspec.Struct, frozen=True):
    """A report's tests, whose p-values are corrected together."""

    tests: int
    registered: list[tuple[str, str]]  # pairs that the study registered before the runs; all others are exploratory
    says: str  # a description of the family in words


class WorkloadSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The comparison on one workload, starting with the strategy that converges fastest."""

    workload: str
    flops: int  # floating-point operations per execution; 10^9 if unknown
    unit: str = "GFLOPS"  # unit of throughput; "runs/s" if the FLOPs are unknown
    cluster: str = ""  # see searchlab.workload.Workload.cluster
    horizon: int  # number of trials that every strategy has, and over which all are compared
    best: BestKnown | None
    target_gflops: float | None  # throughput that counts as converged; None while nothing has succeeded
    strategies: list[StrategySummary]
    contrasts: list[Contrast]  # every pair by trials to the target, by seconds to it and by area
    verdict: str
    notes: list[str]

    def words(self, target: float) -> dict[str, str]:
        """Return the words to insert into column titles; see :func:`~searchlab.analysis.measures.table`."""
        return {"unit": self.unit, "goal": f"{100 * target:g} %"}

    @property
    def score_ranges(self) -> str:
        """The trials that scores cover, such as "17 to 52"; several ranges if spaces differ. Empty without a score."""
        ranges = {(row.score_first, row.score_trials) for row in self.strategies if row.score}
        return " or ".join(f"{first} to {last}" for first, last in sorted(ranges, key=str))

    @property
    def by_strategy(self) -> dict[str, StrategySummary]:
        return {row.strategy: row for row in self.strategies}

    def pairs(self, measure: str) -> list[tuple[str, list[PairCell | None]]]:
        """Return each strategy compared with each other one, in order, with None for itself."""
        about = {(c.first, c.second): c for c in self.contrasts if c.measure == measure}
        about |= {(c.second, c.first): c for c in about.values()}
        names = [row.strategy for row in self.strategies]
        return [
            (name, [PairCell.of(about[name, other], name, other) if name != other else None for other in names])
            for name in names
        ]


class Diagram(msgspec.Struct, frozen=True):
    """Strategies by average rank over workloads, best first."""

    strategies: list[str]
    ranks: list[float]  # average ranks; 1 for a strategy that is best everywhere
    workloads: int
    cliques: list[list[int]]  # largest groups in which no pair differs on workloads like these: indices of strategies

    @property
    def by_strategy(self) -> dict[str, float]:
        return dict(zip(self.strategies, self.ranks, strict=True))


class PairClaims(msgspec.Struct, frozen=True):
    """The claims about the best strategy and one other."""

    first: str
    second: str
    difference: Difference | None  # of the area, first minus second, p corrected; None without shared seeds
    says: list[str]  # in these runs, on these workloads, on others like them; with 11 workloads, also equivalence
    headline: str  # the widest claim that the runs support
    equivalence: Equivalence | None = None  # requires 11 workloads


class ContrastAnswer(msgspec.Struct, frozen=True):
    """The answer to one registered contrast: is ``first`` better than ``second``?

    Attributes:
        verdict: ``better`` or ``worse`` if a test over all workloads is significant; ``level`` if none is significant
            and the interval is within the zone of practical equivalence; ``untested`` without a test; otherwise
            ``undecided``.
        difference: The difference of the area, ``first`` minus ``second``. Its p-values are corrected for all tests
            in the report, but its intervals are not.
    """

    first: str
    second: str
    verdict: str
    says: str  # one sentence with the effect, its interval, and p on these workloads and on workloads like these
    difference: Difference


class Comparand(msgspec.Struct, frozen=True, kw_only=True):
    """The strategy that a claim is about, compared with one of its opponents.

    Attributes:
        verdict: As in :class:`ClaimVerdict`.
        value: The strategy's mean difference from the opponent or, for measures with a unit, its mean ratio to it.
        lower, upper: The 95 % interval of ``value`` from which the verdict follows, or None if it has none.
        p: Of the test that the two are equal, corrected for all tests of claims in the report.
        scope: What the interval and p are about: "workloads like these", "these kernels on other devices" or, if
            there are too few workloads for that, "these workloads".
        workloads: The number of workloads with runs of both; the strategy is better on ``ahead`` of these, the same on
            ``level``, and worse on ``behind``.
        seeds: The number of pairs of runs on the workload with the fewest.
        unreached: The fraction of compared runs that did not reach the target; each counts with its budget.
        says: One sentence with these numbers.
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
    says: str


class ClaimVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A published claim, and what the runs say about it.

    Attributes:
        claim: The claim, as in the study.
        verdict: ``holds`` if the claim holds against all opponents, ``fails`` if it fails against any of them, and
            ``undecided`` otherwise, or ``untested`` if there are no such runs.
        says: One sentence about the opponent that decides, with the effect and its interval.
        against: The comparison with each opponent.
    """

    claim: Claim
    verdict: str
    says: str
    against: list[Comparand]


class Overall(msgspec.Struct, frozen=True, kw_only=True):
    """The strategies that have runs on every workload, sorted by area, best first."""

    workloads: list[str]
    strategies: list[OverallStrategy]
    contrasts: list[Contrast]  # every pair by area, over shared seeds: do they differ on these workloads?
    claims: list[PairClaims]  # the best and each other one, starting with the next best
    diagram: Diagram  # by mean area on each workload: do they differ on workloads like these?
    verdict: str


class Summary(msgspec.Struct, frozen=True):
    """All numbers in a report.

    Attributes:
        target: The fraction of the best known throughput that counts as converged.
        workloads: The comparison on each workload.
        family: The report's tests.
        overall: The comparison over all workloads. None for one workload, or if no two strategies ran on all of them.
        answers: The answers to the registered contrasts, in the study's order.
        claims: The published claims in the study, with their verdicts.
    """

    target: float
    workloads: list[WorkloadSummary]
    family: Family
    overall: Overall | None = None
    answers: list[ContrastAnswer] = []
    claims: list[ClaimVerdict] = []

    def __repr__(self) -> str:
        strategies = {row.strategy for item in self.workloads for row in item.strategies}
        return f"<Summary of {len(strategies)} strategies on {len(self.workloads)} workloads>"

    @property
    def score_cutoffs(self) -> str:
        """The trials that the scores on all workloads cover: "17 to 52" or, if they differ, "1-17 to 52-200"."""
        rows = [row for item in self.workloads for row in item.strategies if row.score]
        ends = [[row.score_first or 0 for row in rows], [row.score_trials or 0 for row in rows]]
        return " to ".join("-".join(map(str, sorted({min(own), max(own)}))) for own in ends if own)

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain dicts, lists, strings and finite numbers."""
        return dict(msgspec.to_builtins(self, enc_hook=Row.to_json))


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A run's best program, as in :attr:`searchlab.log.result.Result.best`.

    It is the fastest trial or, if the fastest trials were measured again at the end of the run, the winner of these.
    """

    workload: str
    strategy: str
    seed: int
    trial: int  # index in the log, from 0
    gflops: float  # from the last measurement
    seconds: float  # likewise
    as_trial: float  # its GFLOPS as a trial
    tied: list[int] | None  # trials that were not distinguishable when measured again; None if none were
    config: dict[str, Any]
    log: str
