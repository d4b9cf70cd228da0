"""The measures of a strategy on one workload, and over all workloads: the rows of reports, and how they are computed.

The rows are written to ``summary.json`` as they are. :mod:`~searchlab.analysis.columns` declares which of their numbers
tables and CSV files show, and how.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

import msgspec
import numpy as np

from ..arrays import Floats
from ..records import FAILURES
from ..stats.curves import (
    area_over_seconds,
    area_under_curve,
    convert_hits_to_seconds,
    find_hitting_times,
    quartiles,
)
from ..stats.intervals import DECIMALS, Interval, mean_interval, mean_of_means_interval, median_interval
from ..units import VALUES, convert_throughput
from .runs import StrategyRuns

TRIALS, SECONDS, AREA = "trials_to_target", "seconds_to_target", "area"
"""The names of the measures by which strategies are compared."""


class Spread(msgspec.Struct, frozen=True):
    """The numbers for all seeds, in the order of the seeds, with their median and quartiles."""

    median: float
    lower: float
    upper: float
    by_seed: list[float]

    @classmethod
    def from_values(cls, values: list[float]) -> Self:
        lower, middle, upper = quartiles(np.array(values)).tolist()
        return cls(middle, lower, upper, values)

    def in_unit(self, unit: str) -> Self:
        """Convert throughputs in GFLOPS to ``unit``."""
        if unit not in VALUES:
            return self
        return self.from_values([throughput_in_unit(value, unit) for value in self.by_seed])


def throughput_in_unit(gflops: float, unit: str) -> float:
    """Convert a throughput to ``unit``: values have nine significant digits; see :mod:`searchlab.units`."""
    return float(f"{convert_throughput(gflops, unit):.9g}") if unit in VALUES else gflops


@dataclass(frozen=True)
class SeedMean(Interval):
    """The mean over seeds with its 95 % interval, and the numbers for all seeds in the order of the seeds."""

    by_seed: list[float] = field(default_factory=list)

    @classmethod
    def from_values(cls, values: Floats, least: float = 0.0) -> Self:
        """Summarise numbers between ``least`` and 1."""
        mean = mean_interval(values).clip(least, 1)
        return cls(mean.value, mean.lower, mean.upper, mean.note, values.tolist())


class TargetTimes(msgspec.Struct, frozen=True):
    """The trials or seconds that runs needed to reach the target. None stands for infinity, as for censored runs.

    Attributes:
        reached: The number of seeds that reached the target.
        median: The median over all seeds.
        lower: The lower end of the interval; see :func:`~searchlab.stats.intervals.median_interval`.
        upper: The upper end of the interval.
        by_seed: The number for each seed, None if its run ended before it reached the target (censored).
    """

    reached: int
    median: float | None
    lower: float | None
    upper: float | None
    by_seed: list[float | None]

    @classmethod
    def from_values(cls, values: Floats) -> Self:
        interval = median_interval(values)
        median, lower, upper = map(_finite, (interval.value, interval.lower, interval.upper))
        return cls(int(np.isfinite(values).sum()), median, lower, upper, list(map(_finite, values.tolist())))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


class ChargedSeconds(msgspec.Struct, frozen=True):
    """The seconds charged to the runs, summed over seeds; see :attr:`searchlab.log.format.Log.charged_seconds`.

    The total is the sum of proposing, training, building and running. Features are a part of the first two, and
    checking is a part of the last. Each number is None if there are no seconds, as where they were not recorded.
    """

    total: float | None
    propose: float | None
    train: float | None
    build: float | None
    run: float | None
    features: float | None
    check: float | None

    @classmethod
    def from_runs(cls, runs: StrategyRuns) -> Self:
        charged = np.concatenate([run.log.charged_seconds for run in runs.runs])
        parts = np.concatenate([run.log.part_seconds for run in runs.runs])
        sums = map(math.fsum, (charged.ravel(), *charged.T, *parts.T))
        return cls(*(seconds or None for seconds in sums))


def measure_area(runs: StrategyRuns) -> SeedMean:
    """Return the area over the trials or seconds by which strategies are compared."""
    by_seconds = measure_area_by_seconds(runs) if runs.workload.is_by_seconds else None
    return by_seconds or SeedMean.from_values(area_under_curve(runs.curves, runs.workload.best_gflops))


def measure_area_by_seconds(runs: StrategyRuns) -> SeedMean | None:
    """Return the area over the seconds that every run covers, or None if no seconds were charged."""
    seconds, best = runs.workload.seconds_horizon, runs.workload.best_gflops
    return SeedMean.from_values(area_over_seconds(runs.curves, runs.elapsed, seconds, best)) if seconds else None


def measure_throughput(runs: StrategyRuns) -> Spread:
    """Return the best throughput of the runs, in GFLOPS."""
    return Spread.from_values(runs.curves[:, -1].tolist())


def measure_trials_to_target(runs: StrategyRuns) -> TargetTimes:
    """Return the trials that the runs needed to reach the target."""
    return TargetTimes.from_values(find_hitting_times(runs.curves, runs.workload.target_gflops))


def measure_seconds_to_target(runs: StrategyRuns) -> TargetTimes:
    """Return the charged seconds that the runs needed to reach the target."""
    hits = find_hitting_times(runs.curves, runs.workload.target_gflops)
    return TargetTimes.from_values(convert_hits_to_seconds(hits, runs.elapsed))


def measure_score(runs: StrategyRuns) -> SeedMean | None:
    """Return the score relative to random search in the same space, or None if the space has no scores."""
    search = runs.workload.runs_by_space[runs.space].random_search
    scores = search.scores(runs.lowest_costs) if search else None
    return None if scores is None else SeedMean.from_values(scores, least=-math.inf)


def _count_failures(runs: StrategyRuns) -> dict[str, int]:
    failures = np.concatenate([run.log.failures for run in runs.runs])
    return {kind: int((failures == number).sum()) for number, kind in enumerate(FAILURES)}


class StrategySummary(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of one strategy on one workload.

    Measures with a number for each seed cover the runs with these ``seeds``, up to the workload's horizon. Failures and
    seconds cover all trials in the logs.

    Attributes:
        strategy: The name of the strategy.
        space: The search space.
        policy: The policy.
        cost_model: The cost model, if there is one.
        batch: The number of configs that the policy proposes at once.
        seeds: The seeds of the runs that are compared: those that all strategies have.
        interrupted: The seeds whose runs were stopped before the horizon and are not compared.
        one_run: Whether every seed yields the same run, which does not show how runs vary, so that there is no test.
        trials: The largest number of trials that at least half of the runs have.
        trials_by_seed: The number of trials of each run.
        complete: Whether all runs have the same number of trials, except those that ended by themselves, at their limit
            in seconds, or without a gain.
        ended: The number of runs that ended by themselves; they keep their best while the others continue.
        area: The area under the convergence curve, as a fraction of the best known, by which strategies are compared.
        best_gflops: The best throughput.
        trials_to_target: The trials to the target.
        seconds_to_target: The charged seconds to the target.
        area_by_seconds: The area over charged seconds, up to the seconds that every run covers; None without seconds.
        score: The score relative to random search in the same space, in log latency; None if the space has no scores.
        score_first: The first trial of a score.
        score_trials: The last trial of a score.
        seconds: The seconds counted for all runs.
        failures: The number of failed trials of all runs, by kind.
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
    area: SeedMean
    best_gflops: Spread
    trials_to_target: TargetTimes
    seconds_to_target: TargetTimes
    area_by_seconds: SeedMean | None
    score: SeedMean | None
    score_first: int | None
    score_trials: int | None
    seconds: ChargedSeconds
    failures: dict[str, int]

    @classmethod
    def from_runs(cls, runs: StrategyRuns) -> Self:
        header, score = runs.header, measure_score(runs)
        search = runs.workload.runs_by_space[runs.space].random_search if score else None
        return cls(
            strategy=runs.strategy,
            space=header.space.name,
            policy=header.policy.name,
            cost_model=header.cost_model.name if header.cost_model else None,
            batch=header.batch,
            seeds=[run.seed for run in runs.compared_runs],
            interrupted=[run.seed for run in runs.interrupted_runs],
            one_run=runs.is_deterministic,
            trials=runs.trial_count,
            trials_by_seed=[run.log.trial_count for run in runs.runs],
            complete=runs.is_complete,
            ended=sum(bool(run.end_reason) for run in runs.runs),
            area=measure_area(runs),
            best_gflops=measure_throughput(runs),
            trials_to_target=measure_trials_to_target(runs),
            seconds_to_target=measure_seconds_to_target(runs),
            area_by_seconds=measure_area_by_seconds(runs),
            score=score,
            score_first=search.first if search else None,
            score_trials=search.last if search else None,
            seconds=ChargedSeconds.from_runs(runs),
            failures=_count_failures(runs),
        )

    @property
    def area_by_seed(self) -> dict[int, float]:
        """The area of the run with each seed."""
        return dict(zip(self.seeds, self.area.by_seed, strict=True))


class OverallStrategy(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of one strategy over all workloads. Their intervals reflect only variation by seed.

    Attributes:
        strategy: The name of the strategy.
        area: The mean over workloads of the mean area under the curve over seeds.
        score: The mean over workloads of the score relative to random search; None unless all workloads have scores.
    """

    strategy: str
    area: Interval
    score: Interval | None

    @classmethod
    def from_workloads(cls, rows: Sequence[StrategySummary]) -> Self:
        """Summarise a strategy, given its measures on each workload."""
        scores = [np.array(row.score.by_seed) for row in rows if row.score]
        return cls(
            strategy=rows[0].strategy,
            area=mean_of_means_interval([np.array(row.area.by_seed) for row in rows]).clip(0, 1),
            score=mean_of_means_interval(scores).clip(-math.inf, 1) if len(scores) == len(rows) else None,
        )


Row = TypeVar("Row", bound=StrategySummary | OverallStrategy)


def sort_by_area(rows: Iterable[Row]) -> list[Row]:
    """Sort strategies by mean area under the curve, largest first, then by name."""
    return sorted(rows, key=lambda row: (-round(row.area.value, DECIMALS), row.strategy))


def rank_over_all(workloads: Sequence[Mapping[str, StrategySummary]]) -> list[OverallStrategy]:
    """Return the strategies that ran on every workload, sorted by mean area.

    Args:
        workloads: The strategies on each workload, by name.
    """
    names = set.intersection(*map(set, workloads)) if workloads else set()
    return sort_by_area(OverallStrategy.from_workloads([rows[name] for rows in workloads]) for name in names)
