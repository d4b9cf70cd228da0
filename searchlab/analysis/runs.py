"""The runs in a comparison, and arrays derived from them. Each array is computed once, when it is first used."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median_high
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from ..arrays import Array, Floats
from ..log.budget import Budget
from ..log.columns import LogColumns
from ..log.format import Header
from ..log.reliability import find_best_trial
from ..stats.curves import Band, area_over_seconds, band_over_seconds, band_over_trials, compute_gflops
from ..stats.random_search import EXACT_GAIN, RandomDraws, RandomSearch
from .knobs import MeasuredSpace

RANDOM_POLICY = "random"
"""The policy relative to which all others are scored."""

DRAWS_PER_TRIAL = 4
"""The number of random draws per compared trial from which the score's random search can be estimated.

With few draws, the fastest of them is almost sure to be among as many trials, so the estimate ends at this program.
"""

MEASURED_GAIN = 0.01
"""The ``least_gain`` of a random search that is estimated from measured draws, whose noise is about one percent."""

CurveAxis = Literal["trials", "seconds"]
"""What strategies are compared over: the area under the curve over trials, or over charged seconds."""

PART_COUNT = 8  # number of parts into which the budget is divided
NEAR_BEST_RATIO = 1.05  # a trial with at most this many times the lowest cost so far is near the best
TARGET_FRACTION = 0.95  # the fraction of the best known throughput that counts as converged


class BestKnown(msgspec.Struct, frozen=True):
    """The fastest known program for a workload and the run that found it in the fewest trials, or a table's optimum.

    Attributes:
        gflops: The throughput.
        seconds: The cost.
        strategy: The strategy of the run; None, like all below, for the optimum of a table.
        seed: The seed of the run.
        trial: The index of the trial in the log, from 0.
        config: The config.
        log: The name of the log.
    """

    gflops: float
    seconds: float
    strategy: str | None = None
    seed: int | None = None
    trial: int | None = None
    config: dict[str, Any] | None = None
    log: str | None = None


class BestProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A run's best program, as in :attr:`searchlab.log.result.Result.best`.

    It is that of the fastest trial or, if the fastest trials were measured again at the end of the run, of the winner.

    Attributes:
        workload: The name of the workload.
        strategy: The strategy of the run.
        seed: The seed of the run.
        trial: The index of the trial in the log, from 0.
        gflops: The throughput according to the last measurement.
        seconds: The cost according to the last measurement.
        gflops_as_trial: The throughput according to the measurement as a trial.
        unit: The unit of both throughputs.
        tied: The trials that were equally fast when measured again; None if no trials were.
        config: The config.
        log: The name of the log.
    """

    workload: str
    strategy: str
    seed: int
    trial: int
    gflops: float
    seconds: float
    gflops_as_trial: float
    unit: str
    tied: list[int] | None
    config: dict[str, Any]
    log: str


@dataclass(frozen=True)
class LoggedRun:
    """A run of a strategy on a workload with one seed, read from a log.

    Attributes:
        workload: The name of the workload.
        strategy: The name of the strategy.
        log: The log.
        log_name: The log's name in reports: its path as specified, or relative to the directory that was read.
        is_running: Whether the run was in progress when its log was read.
    """

    workload: str
    strategy: str
    log: LogColumns
    log_name: str
    is_running: bool = False

    @property
    def seed(self) -> int:
        return self.log.header.seed

    @property
    def space(self) -> str:
        return self.log.header.space_name

    @property
    def is_random(self) -> bool:
        return self.log.header.policy.name == RANDOM_POLICY

    @cached_property
    def lowest_costs(self) -> Floats:
        """The lowest cost in seconds after each trial, infinite until a trial succeeds: shape (trials,)."""
        return np.minimum.accumulate(self.log.costs)

    @cached_property
    def curve(self) -> Floats:
        """The best GFLOPS after each trial, 0 until a trial succeeds: shape (trials,)."""
        return compute_gflops(self.lowest_costs, self.log.flops)

    @property
    def end_reason(self) -> str:
        """Why the run ended, as a clause, or "" if it can be continued."""
        if self.log.run_end:
            return self.log.run_end.reason
        return "the imported file has no more" if self.log.header.measure.get("kind") == "imported" else ""

    @cached_property
    def best_program(self) -> BestProgram | None:
        """The best program, or None if no trial has succeeded."""
        log = self.log
        if not log.has_success:
            return None
        index, seconds, tied = find_best_trial(log)
        return BestProgram(
            workload=self.workload,
            strategy=self.strategy,
            seed=self.seed,
            trial=index,
            gflops=log.flops / seconds / 1e9,
            seconds=seconds,
            gflops_as_trial=log.flops / float(log.costs[index]) / 1e9,
            unit=log.unit,
            tied=tied,
            config=log.config(index),
            log=self.log_name,
        )

    def has_reached(self, trial_count: int) -> bool:
        """Return whether the run has at least ``trial_count`` trials, or has ended and so keeps its best."""
        return self.log.trial_count >= trial_count or bool(self.end_reason)


class BudgetParts(NamedTuple):
    """What a strategy did in each eighth of the trials, or seconds, that are compared: means over seeds, shape (8,).

    Shares are fractions of the trials there. Without trials there, or if the space's median is unknown, they are NaN.

    Attributes:
        areas: The mean of the best throughput so far, as a fraction of the best known.
        near_best_shares: The share of trials at most 5 % slower than the fastest trial so far.
        slow_shares: The share of trials that are slower than the median of the space.
        failed_shares: The share of failed trials.
        fill_in_shares: The share of trials whose configs were drawn at random because the policy had proposed too few.
    """

    areas: Floats
    near_best_shares: Floats
    slow_shares: Floats
    failed_shares: Floats
    fill_in_shares: Floats


@dataclass(frozen=True)
class StrategyRuns:
    """The runs of one strategy on one workload, in the order of seeds: at least one run, each with at least one trial.

    A run that ended before the workload's horizon keeps its last values up to the horizon.

    Attributes:
        workload: All runs on the workload, including those of other strategies.
    """

    runs: Sequence[LoggedRun]
    workload: WorkloadRuns

    @property
    def header(self) -> Header:
        """The header of the first run's log."""
        return self.runs[0].log.header

    @property
    def horizon(self) -> int:
        return self.workload.horizon

    @property
    def strategy(self) -> str:
        return self.runs[0].strategy

    @property
    def space(self) -> str:
        return self.runs[0].space

    @cached_property
    def trial_count(self) -> int:
        """The strategy's number of trials; see :func:`count_common_trials`."""
        return count_common_trials(self.runs) or max(
            self.horizon, _find_upper_median([run.log.trial_count for run in self.runs])
        )

    @property
    def is_complete(self) -> bool:
        """Whether all runs have this number of trials, except those that ended earlier by themselves."""
        return all(
            run.log.trial_count == self.trial_count or (run.end_reason and run.log.trial_count < self.trial_count)
            for run in self.runs
        )

    @cached_property
    def is_deterministic(self) -> bool:
        """Whether the strategy proposes the same configs for every seed, which does not show how runs vary."""
        configs = [run.log.configs for run in self.complete_runs]
        return len(configs) > 1 and count_shared_configs(configs) == min(map(len, configs))

    @cached_property
    def complete_runs(self) -> list[LoggedRun]:
        """The runs that reach the horizon."""
        return [run for run in self.runs if run.has_reached(self.horizon)]

    @cached_property
    def interrupted_runs(self) -> list[LoggedRun]:
        """The runs that were stopped before the horizon."""
        return [run for run in self.runs if not run.has_reached(self.horizon)]

    @cached_property
    def compared_runs(self) -> list[LoggedRun]:
        """The complete runs with seeds that all strategies have, or all complete runs if there are none."""
        return [run for run in self.complete_runs if run.seed in self.workload.seeds] or self.complete_runs

    @cached_property
    def lowest_costs(self) -> Floats:
        """The lowest cost so far, in seconds, of the runs that are compared: shape (runs, horizon)."""
        return pad_curves([run.lowest_costs for run in self.compared_runs], self.horizon)

    @cached_property
    def curves(self) -> Floats:
        """The best GFLOPS so far of the runs that are compared: shape (runs, horizon)."""
        return pad_curves([run.curve for run in self.compared_runs], self.horizon)

    @cached_property
    def elapsed(self) -> Floats:
        """The seconds charged up to the end of each trial, for the runs that are compared: shape (runs, horizon)."""
        return pad_curves([run.log.elapsed_seconds for run in self.compared_runs], self.horizon)

    @cached_property
    def budget_parts(self) -> BudgetParts:
        """What the runs that are compared did in each part of the budget."""
        workload, horizon = self.workload, self.horizon
        draws = workload.runs_by_space[self.space].draws
        median_cost = math.exp(draws.median) if draws else math.nan
        trials = np.tile(np.arange(float(horizon)), (len(self.compared_runs), 1))
        spent = self.elapsed if workload.is_by_seconds else trials
        ends = workload.budget * np.arange(1, PART_COUNT + 1) / PART_COUNT
        totals = [end * float(area_over_seconds(self.curves, spent, end, workload.best_gflops).mean()) for end in ends]
        shares = np.full((4, PART_COUNT, len(self.compared_runs)), np.nan)
        for number, run in enumerate(self.compared_runs):
            is_of_kind = _classify_trials(run, median_cost)[:, :horizon]
            part_of_trial = np.floor(PART_COUNT * spent[number, : is_of_kind.shape[1]] / workload.budget)
            for part in range(PART_COUNT):
                if (is_in_part := part_of_trial == part).any():
                    shares[:, part, number] = is_of_kind[:, is_in_part].mean(axis=1)
        areas = np.diff(totals, prepend=0.0) * PART_COUNT / workload.budget
        return BudgetParts(areas, *average_defined(shares, axis=2))

    @cached_property
    def bands(self) -> dict[CurveAxis, Band]:
        """The bands of the runs that are compared, up to the horizon."""
        return {"trials": band_over_trials(self.curves), "seconds": band_over_seconds(self.curves, self.elapsed)}


def _classify_trials(run: LoggedRun, median_cost: float) -> Floats:
    """Return 1 or 0 for each share in :class:`BudgetParts` and each trial: shape (4, trials).

    ``median_cost`` is that of the space, or NaN.
    """
    costs = run.log.costs
    is_failed = np.isinf(costs)
    is_near = (costs <= NEAR_BEST_RATIO * run.lowest_costs) & ~is_failed
    is_slow = (
        np.where(is_failed, 0.0, costs > median_cost) if math.isfinite(median_cost) else np.full_like(costs, np.nan)
    )
    return np.array([is_near, is_slow, is_failed, run.log.fill_in], dtype=np.float64)


def average_defined(values: Floats, axis: int | tuple[int, ...]) -> Floats:
    """Return the mean of the numbers that are not NaN, or NaN if there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(values, axis=axis))


def pad_curves(curves: Sequence[Floats], trial_count: int) -> Floats:
    """Return the first ``trial_count`` values of each run, repeating the last as needed: shape (runs, trial_count)."""
    return np.array([curve[np.minimum(np.arange(trial_count), len(curve) - 1)] for curve in curves])


def count_common_trials(runs: Sequence[LoggedRun]) -> int:
    """Return the largest number of trials that at least half of the runs have. Runs that have ended do not count.

    A few interrupted runs therefore do not shorten the comparison. The result is 0 if all runs have ended.
    """
    return _find_upper_median([run.log.trial_count for run in runs if not run.end_reason])


def _find_upper_median(counts: Collection[int]) -> int:
    """Return the largest number that at least half of ``counts`` reach, or 0 if there are none."""
    return median_high(counts) if counts else 0


def count_shared_configs(config_lists: Sequence[Array]) -> int:
    """Return the number of initial configs that runs share, in the same order, given the configs of each run."""
    for position, configs in enumerate(zip(*config_lists, strict=False)):
        if len(set(configs)) > 1:
            first, *others = map(msgspec.json.decode, configs)
            if any(config != first for config in others):  # and not the same config with its knobs in a different order
                return position
    return min(map(len, config_lists), default=0)


@dataclass(frozen=True)
class WorkloadRuns:
    """All runs on one workload, ordered by strategy and seed, including those that have no trials yet.

    Attributes:
        workload: The name of the workload.
        runs_by_strategy: The runs of each strategy.
        best_known: The best known program of a larger set of runs that includes these.
        by: Whether strategies are compared over trials or over seconds.
        not_started_count: The number of runs of the study, on any workload, that have no log.
    """

    workload: str
    runs_by_strategy: Mapping[str, Sequence[LoggedRun]]
    best_known: BestKnown | None = None
    by: CurveAxis = "trials"
    not_started_count: int = 0

    def truncate(self, budget: Budget, strategies: Collection[str]) -> WorkloadRuns:
        """Return the runs of ``strategies`` up to the end of ``budget``. The best known program stays the same."""
        runs_by_strategy = {
            name: [replace(run, log=budget.truncate(run.log)) for run in self.runs_by_strategy[name]]
            for name in strategies
            if name in self.runs_by_strategy
        }
        return replace(self, runs_by_strategy=runs_by_strategy, best_known=self.best)

    @cached_property
    def runs(self) -> list[LoggedRun]:
        return [run for runs in self.runs_by_strategy.values() for run in runs]

    @cached_property
    def empty_runs(self) -> list[LoggedRun]:
        """The runs that have no trials yet."""
        return [run for run in self.runs if not run.log.trial_count]

    @cached_property
    def strategies(self) -> dict[str, StrategyRuns]:
        """The strategies that have trials, each with its runs that have trials."""
        non_empty_runs = {
            name: [run for run in runs if run.log.trial_count] for name, runs in self.runs_by_strategy.items()
        }
        return {name: StrategyRuns(runs, self) for name, runs in non_empty_runs.items() if runs}

    @cached_property
    def is_finished(self) -> bool:
        """Whether all runs on the workload are complete, and all runs of the study have begun."""
        if self.empty_runs or self.not_started_count:
            return False
        return all(strategy_runs.is_complete for strategy_runs in self.strategies.values())

    @property
    def flops(self) -> int:
        return self.runs[0].log.flops

    @property
    def unit(self) -> str:
        """The unit of throughput; see :mod:`searchlab.units`."""
        return self.runs[0].log.unit

    @property
    def cluster(self) -> str:
        """See :attr:`searchlab.workload.Workload.cluster`."""
        return self.runs[0].log.computation.cluster

    @cached_property
    def horizon(self) -> int:
        """The number of trials over which strategies are compared: those that all have (:func:`count_common_trials`).

        If all runs of all strategies ended early, it is the length of the longest run. So it is if strategies are
        compared over seconds and have all spent them in at least one run, because their trials take different times.
        """
        longest = max((run.log.trial_count for run in self.runs), default=0)
        if self.by == "seconds" and all(any(run.end_reason for run in runs) for runs in self.runs_by_strategy.values()):
            return longest
        counts = (count_common_trials(strategy_runs.runs) for strategy_runs in self.strategies.values())
        return min(filter(None, counts), default=longest)

    @cached_property
    def seeds(self) -> set[int]:
        """The seeds over which strategies are compared: those of which every strategy has a complete run.

        A strategy with fewer than half as many complete runs as another does not count, so that it takes no seeds from
        the others.
        """
        seed_sets = [{run.seed for run in strategy_runs.complete_runs} for strategy_runs in self.strategies.values()]
        largest = max(map(len, seed_sets), default=0)
        return set.intersection(*(seeds for seeds in seed_sets if 2 * len(seeds) >= largest)) if seed_sets else set()

    @cached_property
    def labels_of_fewer_seeds(self) -> dict[str, str]:
        """The labels of strategies that are compared over fewer seeds than another, as in "random (1 of 4 seeds)"."""
        seed_counts = {name: len(strategy_runs.compared_runs) for name, strategy_runs in self.strategies.items()}
        largest = max(seed_counts.values(), default=0)
        return {name: f"{name} ({count} of {largest} seeds)" for name, count in seed_counts.items() if count < largest}

    @cached_property
    def longest_seconds(self) -> float:
        """The largest number of seconds charged to any run up to the horizon."""
        return max((float(runs.elapsed[:, -1].max()) for runs in self.strategies.values()), default=0.0)

    @cached_property
    def seconds_horizon(self) -> float:
        """The seconds that every run covers, of those that are compared and have not ended.

        If all runs ended, it is their budget in seconds or, without one, the length of the longest run; an ended run
        keeps its best.
        """
        limits = [run.log.run_end.seconds or 0.0 for run in self.runs if run.log.run_end]
        run_seconds = [
            float(elapsed[-1])
            for strategy_runs in self.strategies.values()
            for run, elapsed in zip(strategy_runs.compared_runs, strategy_runs.elapsed, strict=True)
            if not run.end_reason
        ]
        return min(run_seconds, default=max(limits, default=0.0) or self.longest_seconds)

    @property
    def is_by_seconds(self) -> bool:
        """Whether strategies are compared over seconds, of which some have been charged."""
        return self.by == "seconds" and self.seconds_horizon > 0

    @property
    def budget(self) -> float:
        """The trials or seconds over which strategies are compared."""
        return self.seconds_horizon if self.is_by_seconds else float(self.horizon)

    @cached_property
    def best(self) -> BestKnown | None:
        """The best known program. It is None while nothing has succeeded, unless an optimum is known.

        If times were resampled (``noise``), a trial may be faster than its program is on average. The best known time
        is then the table's optimum or, if that is unknown, the lowest median of a config's times over the runs.
        """
        if self.best_known:
            return self.best_known
        is_resampled = any(run.log.header.measure.get("noise") for run in self.runs)
        optimum = find_least_optimum(self.runs)
        if is_resampled and not math.isfinite(optimum):
            costs_by_config = [group_costs_by_config(space_runs.runs) for space_runs in self.runs_by_space.values()]
            medians = [float(np.median(costs)) for group in costs_by_config for costs in group.values()]
            optimum = min(medians, default=math.inf)
        runs = [] if is_resampled else [run for run in self.runs if run.log.trial_count and run.curve[-1] > 0]
        run = min(runs, key=lambda run: (-run.curve[-1], int(np.argmin(run.log.costs)), run.log_name), default=None)
        if run is None or optimum < run.lowest_costs[-1]:
            return BestKnown(self.flops / optimum / 1e9, optimum) if math.isfinite(optimum) else None
        index = int(np.argmin(run.log.costs))
        return BestKnown(
            gflops=float(run.curve[-1]),
            seconds=float(run.log.costs[index]),
            strategy=run.strategy,
            seed=run.seed,
            trial=index,
            config=run.log.config(index),
            log=run.log_name,
        )

    @property
    def best_programs(self) -> list[BestProgram]:
        """The fastest program of each strategy, the fastest first.

        If several programs are equally fast, the one with the lowest seed is chosen.
        """
        best_by_strategy: dict[str, BestProgram] = {}
        for program in sorted(
            (run.best_program for run in self.runs if run.best_program),
            key=lambda program: (-program.gflops, program.strategy, program.seed),
        ):
            best_by_strategy.setdefault(program.strategy, program)
        return list(best_by_strategy.values())

    @property
    def best_gflops(self) -> float:
        """The best known throughput, or 0 while nothing has succeeded."""
        return self.best.gflops if self.best else 0.0

    @property
    def target_gflops(self) -> float:
        """The throughput that counts as converged, infinite while nothing has succeeded."""
        return TARGET_FRACTION * self.best.gflops if self.best else math.inf

    @cached_property
    def runs_by_space(self) -> dict[str, SpaceRuns]:
        """The runs in each space that have trials."""
        strategies_by_space: dict[str, list[StrategyRuns]] = {}
        for strategy_runs in self.strategies.values():
            strategies_by_space.setdefault(strategy_runs.space, []).append(strategy_runs)
        return {space: SpaceRuns(strategies, self.horizon) for space, strategies in strategies_by_space.items()}

    @cached_property
    def spaces(self) -> list[MeasuredSpace]:
        """The measured configs of each space in which at least one config works, by the names of the spaces."""
        spaces = [space_runs.measured_space for _, space_runs in sorted(self.runs_by_space.items())]
        return [space for space in spaces if space.throughput.any()]

    @cached_property
    def shared_random_start(self) -> tuple[int, list[str]]:
        """The number of initial random trials that strategies share, and the strategies that share them.

        At least half of the strategies that begin like random search with the same seed share this number of trials. It
        is 0 if there are no such strategies. If there are several spaces, the smallest number counts.
        """
        starts: list[int] = []
        names: list[str] = []
        for space_runs in self.runs_by_space.values():
            trial_counts = {name: count for name, count in space_runs.shared_trial_counts.items() if count}
            if start := _find_upper_median(trial_counts.values()):
                starts.append(start)
                names += [runs.strategy for runs in space_runs.strategies if runs.runs[0].is_random]
                names += [name for name, count in trial_counts.items() if count >= start]
        return min(starts, default=0), sorted(names)


@dataclass(frozen=True)
class SpaceRuns:
    """The runs on a workload that search the same space.

    Attributes:
        strategies: The strategies, each with its runs.
        horizon: The number of trials over which strategies are compared.
    """

    strategies: Sequence[StrategyRuns]
    horizon: int

    @cached_property
    def runs(self) -> list[LoggedRun]:
        return [run for strategy_runs in self.strategies for run in strategy_runs.runs]

    @cached_property
    def measured_space(self) -> MeasuredSpace:
        """The configs that were measured."""
        run = self.runs[0]
        return MeasuredSpace.from_costs(run.space, group_costs_by_config(self.runs), run.log.flops)

    @cached_property
    def draws(self) -> RandomDraws | None:
        """The results of random search, from a complete table or estimated from all draws in the runs.

        In the estimate, each config has its median cost, weighted by the number of runs that drew it, because a space
        whose knobs depend on each other draws some configs more often than others. It is None if no draw works.
        """
        slowest = max(float(run.log.costs[np.isfinite(run.log.costs)].max(initial=0)) for run in self.runs)
        if not slowest:
            return None
        if draws := [run.log.header.random_draws for run in self.runs if run.log.header.random_draws]:
            return max(draws, key=lambda random: len(random.expected))
        costs = list(group_costs_by_config([run for run in self.runs if run.is_random]).values())
        sample = np.array([np.median(config_costs) for config_costs in costs])
        if not np.isfinite(sample).any():
            return None
        draw_counts = np.array([float(len(config_costs)) for config_costs in costs])
        return RandomDraws.from_costs(sample, self.horizon, draw_counts, slowest)

    @cached_property
    def random_search(self) -> RandomSearch | None:
        """Random search, or None without a complete table or :data:`DRAWS_PER_TRIAL` random draws per trial."""
        is_exact = any(run.log.header.random_draws for run in self.runs)
        draw_count = sum(run.log.trial_count for run in self.runs if run.is_random)
        if self.draws is None or not (is_exact or draw_count >= DRAWS_PER_TRIAL * self.horizon):
            return None
        best = min(*(float(run.lowest_costs[-1]) for run in self.runs), find_least_optimum(self.runs))
        start = _find_upper_median(self.shared_trial_counts.values())
        return RandomSearch.from_draws(self.draws, best, self.horizon, start, EXACT_GAIN if is_exact else MEASURED_GAIN)

    @cached_property
    def shared_trial_counts(self) -> dict[str, int]:
        """The number of initial trials that each strategy shares with random search for the same seeds."""
        compared_runs = [run for strategy_runs in self.strategies for run in strategy_runs.compared_runs]
        random_runs = {run.seed: run for run in compared_runs if run.is_random}
        counts = {}
        for strategy_runs in self.strategies:
            pairs = [(run, random_runs[run.seed]) for run in strategy_runs.compared_runs if run.seed in random_runs]
            if pairs and not strategy_runs.runs[0].is_random:
                counts[strategy_runs.strategy] = min(
                    count_shared_configs([run.log.configs, random_run.log.configs]) for run, random_run in pairs
                )
        return counts


ComparedRuns = dict[str, WorkloadRuns]
"""The runs of each workload, in alphabetical order."""


def find_least_optimum(runs: Sequence[LoggedRun]) -> float:
    """Return the lowest optimum, in seconds, of the complete tables used by ``runs``, or infinity without any."""
    return min((run.log.header.optimum or math.inf for run in runs), default=math.inf)


def group_costs_by_config(runs: Sequence[LoggedRun]) -> dict[bytes, list[float]]:
    """Return each config's costs in seconds over all trials in ``runs``, which search the same space."""
    costs: dict[bytes, list[float]] = {}
    keys: dict[str, bytes] = {}
    for run in runs:
        for config, cost in zip(run.log.configs.tolist(), run.log.costs.tolist(), strict=True):
            if (key := keys.get(config)) is None:
                key = keys[config] = msgspec.json.encode(msgspec.json.decode(config), order="sorted")
            costs.setdefault(key, []).append(cost)
    return costs


def list_strategies(comparison: ComparedRuns) -> list[str]:
    """Return all strategies in alphabetical order, which determines their appearance in all charts."""
    return sorted({strategy for workload_runs in comparison.values() for strategy in workload_runs.runs_by_strategy})
