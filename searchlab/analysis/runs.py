"""The runs of a comparison, and the arrays that follow from them.

Each array is computed once, when it is first asked for. The summary, the charts and the page all take it from here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from ..arrays import Array, Floats
from ..log.columns import Columns
from ..log.format import Header
from .stats.curves import Band, band_over_seconds, band_over_trials, best_so_far, gflops
from .stats.random_search import Draws, RandomSearch
from .stats.targets import hitting_times, precision_targets, seconds_of_hits

RANDOM = "random"
"""The policy whose runs say what random search is worth."""

TARGET = 0.95
"""The part of the best known throughput that counts as having converged."""


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


@dataclass(frozen=True)
class LoggedRun:
    """One run of one strategy on one workload with one seed, read from a log.

    file: how a report names the log: its path relative to the directory that was read, or as the user gave it.
    running: whether the run went on as its log was read.
    """

    workload: str
    strategy: str
    log: Columns
    file: str
    running: bool = False

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

    def reaches(self, trials: int) -> bool:
        """Whether it has so many trials, or ended before: then it holds its best up to there.

        Where its budget of seconds ended it, that is its answer at any number of trials: it never gets more.
        """
        return self.log.trials >= trials or self.log.ended is not None


@dataclass(frozen=True)
class StrategyRuns:
    """The runs of one strategy on one workload, by seed: at least one, each with a trial.

    A run that ended before the horizon of the workload goes on without limit: it holds its last values.
    """

    runs: Sequence[LoggedRun]
    workload: WorkloadRuns

    @property
    def header(self) -> Header:
        """The header of the first log."""
        return self.runs[0].log.header

    @property
    def horizon(self) -> int:
        """The number of trials over which the strategies are compared."""
        return self.workload.horizon

    @property
    def strategy(self) -> str:
        return self.runs[0].strategy

    @property
    def space(self) -> str:
        return self.runs[0].space

    @cached_property
    def lengths(self) -> list[int]:
        """The number of trials of each run."""
        return [run.log.trials for run in self.runs]

    @cached_property
    def trials(self) -> int:
        """The number of trials of the strategy: see :func:`reach`."""
        return reach(self.runs) or self.horizon

    @cached_property
    def one_run(self) -> bool:
        """Whether its runs make the same proposals from every seed: they are one run, and no sample."""
        whole = [run.log.configs for run in self._whole]
        return len(whole) > 1 and alike(whole) == min(map(len, whole))

    @cached_property
    def compared(self) -> list[LoggedRun]:
        """The runs that go to the horizon; the first of them where they are all one."""
        return self._whole[:1] if self.one_run else [run for run in self.runs if run.reaches(self.horizon)]

    @cached_property
    def interrupted(self) -> list[LoggedRun]:
        """The runs that were stopped before the horizon: they say nothing of the trials that they do not have."""
        return [run for run in self.runs if not run.reaches(self.horizon)]

    @cached_property
    def lowest(self) -> Floats:
        """Lowest cost so far in seconds of the runs that are compared: shape (runs, horizon)."""
        return held([run.lowest for run in self.compared], self.horizon)

    @cached_property
    def curves(self) -> Floats:
        """Best GFLOPS so far of the runs that are compared: shape (runs, horizon)."""
        return held([run.curve for run in self.compared], self.horizon)

    @cached_property
    def elapsed(self) -> Floats:
        """Seconds charged up to the end of each trial, of the runs that are compared: shape (runs, horizon)."""
        return held([run.elapsed for run in self.compared], self.horizon)

    @cached_property
    def scores(self) -> Floats | None:
        """The score of each run that is compared, shape (runs,); None where random search has nothing to gain."""
        search = self.workload.random_search.get(self.space)
        return search.mean_scores(self.workload.score_curves[self.strategy]) if search else None

    @property
    def search(self) -> RandomSearch | None:
        """Random search in the space of the strategy, where its runs have scores against it."""
        return None if self.scores is None else self.workload.random_search[self.space]

    @cached_property
    def _whole(self) -> list[LoggedRun]:
        """The runs that have all trials of the strategy."""
        return [run for run in self.runs if run.reaches(self.trials)]

    @cached_property
    def band_over_trials(self) -> Band:
        """Over all trials of the strategy, beyond the horizon too."""
        return band_over_trials(held([run.curve for run in self._whole], self.trials))

    @cached_property
    def band_over_seconds(self) -> Band:
        """Over all trials of the strategy, beyond the horizon too."""
        curves, elapsed = ([getattr(run, name) for run in self._whole] for name in ("curve", "elapsed"))
        return band_over_seconds(held(curves, self.trials), held(elapsed, self.trials))


def held(values: Sequence[Floats], trials: int) -> Floats:
    """The first ``trials`` of each of ``values``, the last one held where there are fewer: shape (runs, trials)."""
    rows = np.empty((len(values), trials))
    for row, one in zip(rows, values, strict=True):
        row[: len(one)] = one[:trials]
        row[len(one) :] = one[-1]
    return rows


def reach(runs: Sequence[LoggedRun]) -> int:
    """The most trials that at least half of the runs have which did not end by a line of their log; 0 if all did.

    So a few runs that were interrupted do not shorten the others.
    """
    lengths = sorted((run.log.trials for run in runs if not run.log.ended), reverse=True)
    return lengths[(len(lengths) - 1) // 2] if lengths else 0


def alike(runs: Sequence[Array]) -> int:
    """How many trials runs have in common from the start: the same configs in the same order. runs: their configs."""
    for place, configs in enumerate(zip(*runs, strict=False)):
        if len(set(configs)) > 1:
            first, *others = map(msgspec.json.decode, configs)
            if any(config != first for config in others):  # and not one config, its knobs in another order
                return place
    return min(map(len, runs), default=0)


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
        return [run for run in self.runs if not run.log.trials]

    @cached_property
    def _begun(self) -> dict[str, list[LoggedRun]]:
        begun = {name: [run for run in runs if run.log.trials] for name, runs in self.by_strategy.items()}
        return {name: runs for name, runs in begun.items() if runs}

    @cached_property
    def strategies(self) -> dict[str, StrategyRuns]:
        """The strategies that have a trial, with the runs that have one."""
        return {name: StrategyRuns(runs, self) for name, runs in self._begun.items()}

    @property
    def flops(self) -> int:
        return self.runs[0].log.flops

    @property
    def unit(self) -> str:
        """The unit of throughputs: GFLOPS, or runs a second where the FLOPs are not known."""
        return self.runs[0].log.unit

    @cached_property
    def horizon(self) -> int:
        """The number of trials that every strategy has (:func:`reach`), over which all are compared.

        Where all runs of all strategies ended before they had all trials, the longest run counts.
        """
        reached = [trials for runs in self._begun.values() if (trials := reach(runs))]
        return min(reached, default=max((run.log.trials for run in self.runs), default=0))

    @cached_property
    def longest(self) -> float:
        """The most seconds that any run was charged up to the horizon."""
        return max((float(group.elapsed[:, -1].max()) for group in self.strategies.values()), default=0.0)

    @cached_property
    def best(self) -> BestKnown | None:
        """None while nothing has succeeded, if no optimum is known.

        Where a table answered with ``noise``, a lucky draw of a program is no faster program: there the optimum counts,
        though trials may be faster, or else the least median of a config over the runs.
        """
        succeeded = [run for run in self.runs if run.log.trials and run.curve[-1] > 0]
        fastest = min((float(run.lowest[-1]) for run in succeeded), default=math.inf)
        optimum = least_optimum(self.runs)
        if any(run.log.header.measure.get("noise") for run in self.runs):
            costs = [float(np.median(of_one)) for of_one in by_config(self.runs).values()]
            optimum = optimum if math.isfinite(optimum) else min(costs, default=math.inf)
            if math.isfinite(optimum):
                return BestKnown(gflops=self.flops / optimum / 1e9, seconds=optimum)
        if optimum < fastest:
            return BestKnown(gflops=self.flops / optimum / 1e9, seconds=optimum)
        if not succeeded:
            return None
        run = min(succeeded, key=lambda run: (-run.curve[-1], run.file))
        index = int(np.argmin(run.log.costs))
        return BestKnown(
            gflops=float(run.curve[-1]), seconds=float(run.log.costs[index]), strategy=run.strategy, seed=run.seed,
            trial=index, config=run.log.config(index), log=run.file,
        )  # fmt: skip

    @property
    def best_gflops(self) -> float:
        """The best known throughput; 0 while nothing has succeeded."""
        return self.best.gflops if self.best else 0.0

    @property
    def target(self) -> float:
        """The throughput that counts as converged; 0 while nothing has succeeded."""
        return TARGET * self.best_gflops

    @cached_property
    def held(self) -> dict[str, Floats]:
        """strategy -> lowest seconds so far: shape (runs, horizon)."""
        return {name: group.lowest for name, group in self.strategies.items()}

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
        """space -> random search there: from a complete table, or else from its runs; not where neither is there."""
        searches: dict[str, RandomSearch] = {}
        for space, groups in self._by_space.items():
            runs = [run for group in groups for run in group.runs]
            costs = np.concatenate([run.log.costs for run in runs])
            working = costs[np.isfinite(costs)]
            if not len(working):
                continue
            best = min(float(working.min()), least_optimum(runs))
            draws = _draws_of_table(runs) or _draws_of_runs(runs, self.horizon, float(working.max()))
            if draws:
                searches[space] = RandomSearch.of(draws, best, self.horizon, _of_half(_shares(groups).values()))
        return searches

    @cached_property
    def shared_start(self) -> tuple[int, list[str]]:
        """The random start that strategies share: its trials, and the strategies that begin with as many of them.

        It is that of at least half of the strategies that begin as random search does from the same seed; 0 if none
        does. Of several spaces the fewest trials count.
        """
        starts = []
        for groups in self._by_space.values():
            shares = {name: common for name, common in _shares(groups).items() if common}
            if trials := _of_half(shares.values()):
                randoms = [group.strategy for group in groups if _is_random(group.runs[0])]
                starts.append((trials, [*randoms, *(name for name, common in shares.items() if common >= trials)]))
        return min((trials for trials, _ in starts), default=0), sorted(name for _, names in starts for name in names)

    @cached_property
    def _by_space(self) -> dict[str, list[StrategyRuns]]:
        by_space: dict[str, list[StrategyRuns]] = {}
        for group in self.strategies.values():
            by_space.setdefault(group.space, []).append(group)
        return by_space

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


ComparedRuns = dict[str, WorkloadRuns]
"""workload -> its runs, in alphabetical order."""


def least_optimum(runs: Sequence[LoggedRun]) -> float:
    """The least of the optima that complete tables gave, in seconds; infinity where none is known."""
    return min((run.log.header.optimum or math.inf for run in runs), default=math.inf)


def _draws_of_table(runs: Sequence[LoggedRun]) -> Draws | None:
    """What random search finds, as the complete table that answered says; None if none did."""
    known = [run.log.header.random for run in runs if run.log.header.random]
    if not known:
        return None
    most = max(known, key=lambda random: len(random.expected))
    return Draws(np.array(most.expected), most.median, most.slowest)


def _draws_of_runs(runs: Sequence[LoggedRun], trials: int, slowest: float) -> Draws | None:
    """What random search finds, from all draws of its runs; None if there are none that work.

    A config that several runs measured counts at its median, and comes up as often as the runs drew it: more often, in
    a space whose knobs depend on each other, than a config with fewer ways to be drawn.
    """
    costs = list(by_config([run for run in runs if _is_random(run)]).values())
    sample = np.array([np.median(of_one) for of_one in costs])
    if not np.isfinite(sample).any():
        return None
    return Draws.of(sample, trials, np.array([float(len(of_one)) for of_one in costs]), slowest)


def by_config(runs: Sequence[LoggedRun]) -> dict[tuple[str, bytes], list[float]]:
    """The cost of each trial of a config in ``runs``, in seconds, by space and config."""
    costs: dict[tuple[str, bytes], list[float]] = {}
    keys: dict[bytes, bytes] = {}
    for run in runs:
        for config, cost in zip(run.log.configs.tolist(), run.log.costs.tolist(), strict=True):
            if (key := keys.get(config)) is None:
                key = keys[config] = msgspec.json.encode(msgspec.json.decode(config), order="sorted")
            costs.setdefault((run.space, key), []).append(cost)
    return costs


def _shares(groups: Sequence[StrategyRuns]) -> dict[str, int]:
    """The number of trials with which each other strategy begins as random search does from the same seed."""
    randoms = {run.seed: run for group in groups for run in group.compared if _is_random(run)}
    shares = {}
    for group in groups:
        pairs = [(run, randoms[run.seed]) for run in group.compared if run.seed in randoms]
        if pairs and not _is_random(pairs[0][0]):
            shares[group.strategy] = min(alike([run.log.configs, other.log.configs]) for run, other in pairs)
    return shares


def _of_half(shares: Collection[int]) -> int:
    """The most trials that at least half of ``shares`` have; 0 if there are none."""
    return sorted(shares, reverse=True)[(len(shares) - 1) // 2] if shares else 0


def _is_random(run: LoggedRun) -> bool:
    return run.log.header.policy.name == RANDOM


def strategy_order(comparison: ComparedRuns) -> list[str]:
    """Every strategy of ``comparison`` in one order: so each looks the same in all pictures and charts."""
    return sorted({strategy for item in comparison.values() for strategy in item.by_strategy})
