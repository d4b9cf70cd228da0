"""How good options of a policy are on recorded tables: replays, their scores, and two sets of options compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..analysis.model import Estimate
from ..analysis.stats.curves import Floats
from ..analysis.stats.random_search import RandomSearch
from ..log import Plugin
from ..measure.table import TableMeasurer
from ..records import Trial
from ..tuner import Cell, run_cell


@dataclass(frozen=True)
class Task:
    """A workload in a space, and what random search is worth there."""

    cell: Cell
    random: RandomSearch
    digest: str
    """Of what the table holds of it."""

    @property
    def workload(self) -> str:
        return str(self.cell.space.workload)

    @property
    def space(self) -> str:
        return self.cell.space_label or self.cell.space_plugin.name

    def identity(self) -> dict[str, Any]:
        """What tells whether a search over this task was over the same."""
        fingerprint = self.cell.space.fingerprint
        return {"workload": self.workload, "space": self.space, "fingerprint": fingerprint, "table": self.digest}


class TaskScores(msgspec.Struct, frozen=True, kw_only=True):
    """Mean scores of two sets of options over fresh seeds, and of their differences, seed by seed.

    trials: how many the score is over, from the first.
    """

    workload: str
    space: str
    held_out: bool
    trials: int
    default: Estimate
    found: Estimate
    gain: Estimate


class Compared(msgspec.Struct, frozen=True):
    """As :class:`TaskScores`, over several tasks, each of which counts the same."""

    default: Estimate
    found: Estimate
    gain: Estimate


@dataclass
class Replays:
    """Scores of runs on the tables, each run once."""

    measurer: TableMeasurer
    directory: Path
    trials: int
    known: dict[tuple[str, str, str, int], tuple[float, int, int]] = field(default_factory=dict)

    def scores(self, task: Task, options: Mapping[str, Any], seeds: Sequence[int]) -> Floats:
        """Of each seed. Raises SearchlabError for options that the policy does not take."""
        return np.array([self._run(task, options, seed)[0] for seed in seeds])

    def nearest(self, task: Task, options: Mapping[str, Any], seeds: Sequence[int]) -> tuple[int, int]:
        """How many trials of these runs were answered by the nearest config, and how many they have."""
        runs = [self._run(task, options, seed) for seed in seeds]
        return sum(run[1] for run in runs), sum(run[2] for run in runs)

    def _run(self, task: Task, options: Mapping[str, Any], seed: int) -> tuple[float, int, int]:
        key = (task.workload, task.space, json.dumps(options, sort_keys=True, default=str), seed)
        if key not in self.known:
            cell = replace(task.cell, policy=Plugin(task.cell.policy.name, dict(options)), seed=seed)
            log = self.directory / "replay.jsonl"
            log.unlink(missing_ok=True)
            trials: list[Trial] = []
            run_cell(cell, log, self.trials, self.measurer, trials.append)
            # Where a space is exhausted before, a run stays at its best.
            costs = np.full(self.trials, np.inf)
            costs[: len(trials)] = [trial.cost for trial in trials]
            scores = task.random.scores(np.minimum.accumulate(costs)[np.newaxis])
            assert scores is not None  # a task without anything to gain is left out
            nearest = sum(trial.measurement.nearest for trial in trials)
            self.known[key] = (float(scores[0]), nearest, len(trials))
        return self.known[key]


def make_task(measurer: TableMeasurer, cell: Cell, trials: int) -> Task | None:
    """The task of ``cell``, scored over up to ``trials`` trials; None where there is nothing to gain on random search.

    Random search is exact where the table holds the whole space, and estimated without bias from a random sample of it.
    """
    costs = np.array([measurement.cost for measurement in measurer.recorded(cell.space)])
    working = costs[np.isfinite(costs)]
    if len(working) == 0 or working.min() == working.max():
        return None
    best, slowest = float(working.min()), float(working.max())
    digest = hashlib.sha256(costs.tobytes()).hexdigest()[:12]
    return Task(cell, RandomSearch.of(costs, trials, best, slowest), digest)


def mean_scores(pairs: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Mean over searches of the (default, found) scores of one task, seed by seed."""
    return np.mean([pair[0] for pair in pairs], axis=0), np.mean([pair[1] for pair in pairs], axis=0)


def compared(pairs: Sequence[tuple[Floats, Floats]]) -> Compared:
    """Of (default, found) scores of each task, seed by seed. The intervals are over seeds, for just these tasks."""
    columns = [pair[0] for pair in pairs], [pair[1] for pair in pairs], [pair[1] - pair[0] for pair in pairs]
    return Compared(*(Estimate.of(column) for column in columns))


def verdict(training: Compared, held_out: Compared | None, unchanged: bool) -> str:
    """In words. unchanged: whether the best options of every search are the default."""
    if unchanged:
        return "No options were found that are better than the default."
    if held_out is None:
        better = "better" if training.gain.lower > 0 else "not better"
        return (
            f"On the workload of the search the options found are {better} beyond the noise, {_signed(training.gain)} "
            f"in score against the default; none was held out, so this does not show what they are on any other."
        )
    gain = f"{_signed(held_out.gain)} in score against the default"
    if held_out.gain.lower > 0:
        return f"The options found are better on workloads held out, beyond the noise: {gain}."
    if held_out.gain.upper < 0:
        return f"The options found are worse on workloads held out, beyond the noise: {gain}. Keep the default."
    fits = ", though they are on those of the search, which they may fit too closely" if training.gain.lower > 0 else ""
    return f"The options found are not better on workloads held out beyond the noise{fits}: {gain}. Keep the default."


def _signed(gain: Estimate) -> str:
    return f"{gain.value:+.3f} [{gain.lower:+.3f}, {gain.upper:+.3f}]"
