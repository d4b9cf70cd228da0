"""How good options of a policy are on recorded tables: problems, replays of runs on them, and their scores."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis.stats.random_search import Draws, RandomSearch
from ..arrays import Floats
from ..measure.table import TableMeasurer
from ..run.loop import search
from ..run.plan import Run


@dataclass(frozen=True)
class Problem:
    """A workload in a space, and the worth of random search on the measurements that a table has of it.

    run: a run of the policy on it, from which replays take all but options and seed. digest: of these measurements.
    """

    run: Run
    random: RandomSearch
    digest: str

    @property
    def workload(self) -> str:
        return self.run.workload

    @property
    def space(self) -> str:
        return self.run.searched.name

    def __str__(self) -> str:
        return f"{self.workload} in {self.space}"

    def with_options(self, options: Mapping[str, Any], seed: int | None = None) -> Run:
        """The run with these options, and with this seed."""
        seed = self.run.seed if seed is None else seed
        return replace(self.run.with_options(options), seed=seed)

    def identity(self) -> dict[str, Any]:
        """Equal for two searches on the same problem."""
        fingerprint = self.run.space.fingerprint
        return {"workload": self.workload, "space": self.space, "fingerprint": fingerprint, "table": self.digest}


def make_problem(measurer: TableMeasurer, run: Run) -> Problem | None:
    """The problem of ``run``, scored over at most its trials; None if no config is faster than another.

    Random search is exact if the table holds the whole space, and estimated from a random sample of it. Its trials are
    counted after those that the policy draws at random by default: no option changes what these find.
    """
    costs = np.array([measurement.cost for measurement in measurer.recorded(run.space)])
    working = costs[np.isfinite(costs)]
    if len(working) == 0 or working.min() == working.max():
        return None
    whole = measurer.whole(run.space)
    draws = Draws.of(costs, run.trials, whole.weights if whole else None)
    digest = hashlib.sha256(costs.tobytes()).hexdigest()[:12]
    policy, _ = run.start()
    return Problem(run, RandomSearch.of(draws, float(working.min()), run.trials, policy.n_startup), digest)


@dataclass(frozen=True)
class Seeds:
    """The seeds of the runs on each problem, drawn from ``seed``: ``search`` of them for searches, ``fresh`` others."""

    seed: int
    search: int
    fresh: int

    def of_search(self, problem: Problem) -> list[int]:
        """Even seeds, which the searches judge options by."""
        return self._draw(problem, self.search, fresh=False)

    def of_comparison(self, problem: Problem) -> list[int]:
        """Odd seeds, so that none of them was seen in a search."""
        return self._draw(problem, self.fresh, fresh=True)

    def _draw(self, problem: Problem, count: int, fresh: bool) -> list[int]:
        # Each problem has seeds of its own, so that its runs are independent of the runs on another.
        entropy = [self.seed, zlib.crc32(str(problem).encode()), int(fresh)]
        drawn = np.random.SeedSequence(entropy).generate_state(count)
        return [int(number) >> 2 << 1 | fresh for number in drawn]  # 31 bits: XGBoost takes no larger seed


@dataclass
class Replays:
    """Scores of runs on the tables. Each run is replayed once, in ``directory``."""

    measurer: TableMeasurer
    directory: Path
    known: dict[tuple[str, str, str, int], tuple[float, int, int]] = field(default_factory=dict)

    def scores(self, problem: Problem, options: Mapping[str, Any], seeds: Sequence[int]) -> Floats:
        """The score of each seed. Raises SearchlabError for options that the policy does not take."""
        return np.array([self._replay(problem, options, seed)[0] for seed in seeds])

    def nearest(self, problem: Problem, options: Mapping[str, Any], seeds: Sequence[int]) -> tuple[int, int]:
        """The number of trials of these runs that were answered with the nearest config, and of all their trials."""
        runs = [self._replay(problem, options, seed) for seed in seeds]
        return sum(run[1] for run in runs), sum(run[2] for run in runs)

    def _replay(self, problem: Problem, options: Mapping[str, Any], seed: int) -> tuple[float, int, int]:
        key = (problem.workload, problem.space, json.dumps(options, sort_keys=True, default=str), seed)
        if key not in self.known:
            log = self.directory / "replay.jsonl"
            log.unlink(missing_ok=True)
            run = replace(problem.with_options(options, seed), log=log)
            trials = search(run, self.measurer).trials
            # A run that ends before stays at its best.
            costs = np.full(run.trials, np.inf)
            costs[: len(trials)] = [trial.cost for trial in trials]
            scores = problem.random.scores(np.minimum.accumulate(costs)[np.newaxis])
            assert scores is not None  # a problem without anything to gain is left out
            nearest = sum(trial.measurement.nearest for trial in trials)
            self.known[key] = (float(scores[0]), nearest, len(trials))
        return self.known[key]
