"""The scores that the package ``autotuning_methodology`` assigns to runs over a table.

Source: Willemsen et al., "A methodology for comparing optimization algorithms for auto-tuning", Future Generation
Computer Systems 159, 2024 (doi 10.1016/j.future.2024.05.021). Unlike searchlab's reports (:mod:`.stats.random_search`),
the package excludes failed configs from random search and scores the median rank over all runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..arrays import Floats, Ints
from ..errors import SearchlabError, needs_extra
from ..log.format import Log, Record
from ..space import Config

MOMENTS = 1000  # number of evenly spaced moments at which the score over seconds is computed, as in the package


def methodology_scores(table: Log, runs: Sequence[Log], seed: int = 0) -> tuple[float, float]:
    """Return a strategy's scores over trials and over seconds: 0 equals random search, 1 finds the best immediately.

    This function requires the extra ``methodology``.

    Args:
        table: A log of every config in a space. All times are taken from it rather than from the runs. The seconds of
            a trial are those for training, proposing, building and running.
        runs: The strategy's runs over the table.
        seed: The seed for the package's bootstrap, which uses numpy's global random state.

    Raises:
        SearchlabError: If the package is not installed, if a run has a config that is not in the table, if the runs are
            too short to be scored, or if all costs in the table are equal.
    """
    with needs_extra("methodology_scores", "methodology"):
        from autotuning_methodology.baseline import RandomSearchCalculatedBaseline
        from autotuning_methodology.curves import StochasticOptimizationAlgorithm

    if not runs:
        raise SearchlabError("no runs to score; pass at least one log")
    if len(np.unique(table.costs[np.isfinite(table.costs)])) < 2:
        raise SearchlabError(f"{table.path} cannot be used to score runs: it contains fewer than two different costs")
    indices = _config_indices(table, runs)
    space = _statistics(table)
    first, last, begin, end = space.cutoff_point_fevals_time_start_end(0.01, 0.95)
    trials, moments = np.arange(max(first, 1), last + 1), np.linspace(begin, end, MOMENTS)
    if len(indices) < last:
        raise SearchlabError(
            f"the runs over {table.path} have only {len(indices)} trials, but scoring them requires {last}"
        )
    strategy = StochasticOptimizationAlgorithm(_recorded_runs(space, indices))
    ascending, baseline = space.objective_performances_total_sorted, RandomSearchCalculatedBaseline(space)
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        over_trials = strategy.get_curve_over_fevals(trials, ascending, return_split=False)[2]
        over_seconds = strategy.get_curve_over_time(moments, ascending, confidence_level=0.95, return_split=False)[2]
        return (
            float(baseline.get_standardised_curve(trials, over_trials, "fevals").mean()),
            float(baseline.get_standardised_curve(moments, over_seconds, "time").mean()),
        )
    except (ValueError, AssertionError) as error:
        raise SearchlabError(f"the runs over {table.path} cannot be scored: {error}") from None
    finally:
        np.random.set_state(state)


def _config_indices(table: Log, runs: Sequence[Log]) -> Ints:
    """Return the index of each trial's config in the table's records: shape (trials in the shortest run, runs)."""
    rows = {Config(record.config): number for number, record in reversed(list(enumerate(table.records)))}
    rows_of_runs = [[rows.get(Config(record.config)) for record in run.records] for run in runs]
    for run, row in zip(runs, rows_of_runs, strict=True):
        if None in row:
            raise SearchlabError(f"trial {row.index(None)} of {run.path} has a config that is not in {table.path}")
    trials = min(map(len, rows_of_runs))
    return np.array([row[:trials] for row in rows_of_runs], dtype=np.int64).reshape(len(runs), trials).T


def _statistics(table: Log) -> Any:
    """Return the package's representation of ``table``, which it reads from a file in Kernel Tuner's T4 format."""
    from autotuning_methodology.searchspace_statistics import SearchspaceStatistics

    with TemporaryDirectory() as folder:
        path = Path(folder, "table.json")
        results = [_result(record, cost) for record, cost in zip(table.records, table.costs, strict=True)]
        path.write_text(json.dumps({"metadata": {"timeunit": "seconds"}, "results": results}))
        return SearchspaceStatistics("table", "machine", True, ["benchmark"], ["time"], path)


def _result(record: Record, cost: float) -> dict[str, Any]:
    works = bool(np.isfinite(cost))
    seconds = record.train_seconds + record.propose_seconds + record.build_seconds + record.run_seconds
    return {
        "configuration": record.config,
        "times": {"benchmark": seconds},
        "invalidity": "correct" if works else "runtime",
        "correctness": float(works),
        "measurements": [{"name": "time", "value": float(cost) if works else "RuntimeFailedConfig", "unit": "s"}],
    }


def _recorded_runs(space: Any, indices: Ints) -> Any:
    """Return the runs that tried the configs at ``indices``, in the form in which the package describes a strategy."""
    trials, runs = indices.shape
    elapsed: Floats = np.cumsum(space.objective_times_total[indices], axis=0)
    best: Floats = np.fmin.accumulate(space.objective_performances_total[indices], axis=0)
    results = SimpleNamespace(
        fevals_results=np.repeat(np.arange(1.0, trials + 1)[:, np.newaxis], runs, axis=1),
        objective_time_results=elapsed,
        objective_time_results_per_key=elapsed[np.newaxis],
        objective_performance_best_results=best,
        objective_performance_results_per_key=best[np.newaxis],
    )
    return SimpleNamespace(
        group_name="runs",
        group_display_name="runs",
        device_name="machine",
        application_name="table",
        stochastic=True,
        minimization=True,
        get_results=lambda: results,
    )
