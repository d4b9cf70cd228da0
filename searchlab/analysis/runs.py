"""The runs of a comparison, and the arrays that follow from them.

Each array is computed once, when it is first asked for. The summary, the charts and the page all take it from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from ..log.format import Log
from .model import TARGET, BestKnown
from .stats.curves import Band, Floats, band_over_seconds, band_over_trials, best_so_far, gflops
from .stats.random_search import RandomSearch
from .stats.targets import hitting_times, precision_targets, seconds_of_hits

RANDOM = "random"
"""The policy whose runs say what random search is worth."""


@dataclass(frozen=True)
class LoggedRun:
    """One run of one strategy on one workload with one seed, read from a log.

    file: how a report names the log: its path relative to the directory that was read, or as the user gave it.
    """

    workload: str
    strategy: str
    log: Log
    file: str

    @property
    def seed(self) -> int:
        return self.log.header.seed

    @property
    def space(self) -> str:
        return self.log.header.space_name

    @cached_property
    def lowest(self) -> Floats:
        """Lowest cost in seconds after each trial, infinity while all have failed: shape (trials,)."""
        return best_so_far(self.log.costs)

    @cached_property
    def curve(self) -> Floats:
        """Best GFLOPS after each trial, 0 while all have failed: shape (trials,)."""
        return gflops(self.lowest, self.log.flops)

    @property
    def elapsed(self) -> Floats:
        """Seconds charged up to the end of each trial: shape (trials,)."""
        return self.log.elapsed


@dataclass(frozen=True)
class StrategyRuns:
    """The runs of one strategy on one workload, by seed: at least one, each with a trial.

    Arrays of shape (runs, trials) go as far as all runs do. A run that ended by itself goes on without limit: it holds
    its last values. budget: how far, if all runs ended so.
    """

    runs: Sequence[LoggedRun]
    budget: int

    @property
    def strategy(self) -> str:
        return self.runs[0].strategy

    @property
    def space(self) -> str:
        return self.runs[0].space

    @cached_property
    def lengths(self) -> list[int]:
        """The number of trials of each run."""
        return [len(run.log.records) for run in self.runs]

    @cached_property
    def trials(self) -> int:
        """The number of trials that all runs have, as far as they did not end by themselves."""
        return fewest(self.runs) or self.budget

    @cached_property
    def lowest(self) -> Floats:
        """Lowest cost so far in seconds: shape (runs, trials)."""
        return np.stack([self._held(run.lowest) for run in self.runs])

    @cached_property
    def curves(self) -> Floats:
        """Best GFLOPS so far: shape (runs, trials)."""
        return np.stack([self._held(run.curve) for run in self.runs])

    @cached_property
    def elapsed(self) -> Floats:
        """Seconds charged up to the end of each trial: shape (runs, trials)."""
        return np.stack([self._held(run.elapsed) for run in self.runs])

    def _held(self, values: Floats) -> Floats:
        return np.pad(values[: self.trials], (0, max(0, self.trials - len(values))), "edge")

    @cached_property
    def band_over_trials(self) -> Band:
        return band_over_trials(self.curves)

    @cached_property
    def band_over_seconds(self) -> Band:
        return band_over_seconds(self.curves, self.elapsed)


def fewest(runs: Sequence[LoggedRun]) -> int:
    """The fewest trials of the runs that did not end by themselves; 0 if all did."""
    return min((len(run.log.records) for run in runs if not run.log.ended), default=0)


@dataclass(frozen=True)
class WorkloadRuns:
    """All runs on one workload, by strategy and seed, each in order; also those that have no trial yet."""

    workload: str
    by_strategy: Mapping[str, Sequence[LoggedRun]]

    @cached_property
    def runs(self) -> list[LoggedRun]:
        return [run for runs in self.by_strategy.values() for run in runs]

    @cached_property
    def waiting(self) -> list[LoggedRun]:
        """The runs that have no trial yet: they say nothing of their strategies."""
        return [run for run in self.runs if not run.log.records]

    @cached_property
    def _begun(self) -> dict[str, list[LoggedRun]]:
        begun = {name: [run for run in runs if run.log.records] for name, runs in self.by_strategy.items()}
        return {name: runs for name, runs in begun.items() if runs}

    @cached_property
    def strategies(self) -> dict[str, StrategyRuns]:
        """The strategies that have a trial, with the runs that have one."""
        return {name: StrategyRuns(runs, self.horizon) for name, runs in self._begun.items()}

    @property
    def flops(self) -> int:
        return self.runs[0].log.flops

    @property
    def unit(self) -> str:
        """The unit of throughputs: GFLOPS, or runs a second where the FLOPs are not known."""
        return self.runs[0].log.unit

    @cached_property
    def horizon(self) -> int:
        """The most trials that all runs of any strategy have; where all ended by themselves, the longest counts."""
        longest = (fewest(runs) or max(len(run.log.records) for run in runs) for runs in self._begun.values())
        return max(longest, default=0)

    @cached_property
    def longest(self) -> float:
        """The most seconds that any run was charged for the trials that all runs of its strategy have."""
        return max((float(group.elapsed[:, -1].max()) for group in self.strategies.values()), default=0.0)

    @cached_property
    def best(self) -> BestKnown | None:
        """None while nothing has succeeded, if no optimum is known."""
        succeeded = [run for run in self.runs if run.log.records and run.curve[-1] > 0]
        fastest = min((float(run.lowest[-1]) for run in succeeded), default=math.inf)
        optimum = least_optimum(self.runs)
        if optimum < fastest:
            return BestKnown(gflops=self.flops / optimum / 1e9, seconds=optimum)
        if not succeeded:
            return None
        run = min(succeeded, key=lambda run: (-run.curve[-1], run.file))
        index = int(np.argmin(run.log.costs))
        return BestKnown(
            gflops=float(run.curve[-1]), seconds=float(run.log.costs[index]), strategy=run.strategy, seed=run.seed,
            trial=index, config=run.log.records[index].config, log=run.file,
        )  # fmt: skip

    @cached_property
    def target_gflops(self) -> float | None:
        """The throughput that counts as converged."""
        return TARGET * self.best.gflops if self.best else None

    @cached_property
    def held(self) -> dict[str, Floats]:
        """strategy -> lowest seconds so far, its last value held up to the horizon: shape (runs, horizon)."""
        return {
            name: np.pad(group.lowest, ((0, 0), (0, self.horizon - group.trials)), "edge")
            for name, group in self.strategies.items()
        }

    @cached_property
    def targets(self) -> Floats:
        """The targets of an ECDF in GFLOPS, the lowest first; none while nothing has succeeded."""
        return precision_targets(self.best.gflops) if self.best else np.empty(0)

    @cached_property
    def hits(self) -> dict[str, Floats]:
        """strategy -> trials to each of :attr:`targets`, infinity where not reached: shape (runs, targets)."""
        return {name: hitting_times(group.curves, self.targets) for name, group in self.strategies.items()}

    @cached_property
    def hits_in_seconds(self) -> dict[str, Floats]:
        """strategy -> seconds to each of :attr:`targets`, infinity where not reached: shape (runs, targets)."""
        return {name: seconds_of_hits(self.hits[name], group.elapsed) for name, group in self.strategies.items()}

    @cached_property
    def random_search(self) -> dict[str, RandomSearch]:
        """space -> random search there, from its runs; without the spaces in which it has no run that succeeded.

        A config that several runs measured counts once, at its median: the configs that random draws without
        replacement have met between them are themselves such a draw.
        """
        by_space: dict[str, list[LoggedRun]] = {}
        for group in self.strategies.values():
            by_space.setdefault(group.space, []).extend(group.runs)
        searches: dict[str, RandomSearch] = {}
        for space, runs in by_space.items():
            sample = _random_sample(runs)
            if np.isfinite(sample).any():
                costs = np.concatenate([run.log.costs for run in runs])
                working = costs[np.isfinite(costs)]
                best = min(float(working.min()), least_optimum(runs))
                searches[space] = RandomSearch.of(sample, self.horizon, best, float(working.max()))
        return searches

    @cached_property
    def score_curves(self) -> dict[str, Floats]:
        """strategy -> score against random search at each trial up to the cutoff: shape (runs, trials).

        Without the strategies in whose space random search has no run.
        """
        return {
            name: self.random_search[group.space].score_curves(self.held[name])
            for name, group in self.strategies.items()
            if group.space in self.random_search
        }


Comparison = dict[str, WorkloadRuns]
"""workload -> its runs, in alphabetical order."""


def least_optimum(runs: Sequence[LoggedRun]) -> float:
    """The least of the optima that complete tables gave, in seconds; infinity where none is known."""
    return min((run.log.header.optimum or math.inf for run in runs), default=math.inf)


def _random_sample(runs: Sequence[LoggedRun]) -> Floats:
    """The median cost of each config that the runs of random search measured: shape (configs,)."""
    costs: dict[bytes, list[float]] = {}
    for run in runs:
        if run.log.header.policy.name == RANDOM:
            for record, cost in zip(run.log.records, run.log.costs.tolist(), strict=True):
                costs.setdefault(msgspec.json.encode(record.config, order="sorted"), []).append(cost)
    return np.array([np.median(measured) for measured in costs.values()])


def strategy_order(comparison: Comparison) -> list[str]:
    """Every strategy of ``comparison`` in one order: so each looks the same in all pictures and charts."""
    return sorted({strategy for item in comparison.values() for strategy in item.by_strategy})
