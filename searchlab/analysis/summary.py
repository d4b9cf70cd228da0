"""What a comparison comes to: the best known, a row per strategy, and a verdict, for each workload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from ..records import FAILURES
from .contrasts import Contrast, contrasts
from .estimates import Estimate, Reached, Spread, estimate, reached, spread
from .overall import Overall, overall
from .random_search import RandomSearch, random_searches
from .read import Cell, Comparison, footing_notes
from .stats.curves import area_under_curve, best_so_far, gflops, seconds_to_target, trials_to_target
from .stats.targets import anytime, ecdf_area, hitting_times, precision_targets
from .verdict import AREA, SECONDS, TRIALS, listed, ranked, verdict

TARGET = 0.95
"""The part of the best known throughput that counts as having converged."""


class Best(msgspec.Struct, frozen=True):
    """The fastest program that any log of a workload has; the earliest by file where several are as fast.

    gflops, seconds: its throughput and its time. trial: its index in the log, from 0.
    """

    gflops: float
    seconds: float
    strategy: str
    seed: int
    trial: int
    config: dict[str, Any]
    log: str


class Seconds(msgspec.Struct, frozen=True):
    """Seconds charged, summed over seeds; building is divided by the workers that shared it."""

    total: float
    propose: float
    train: float
    build: float
    run: float


class StrategySummary(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy on one workload.

    trials is how far all its seeds go, and trials_by_seed how far each does; they are all the same where
    ``complete``. best_gflops, trials_to_target, seconds_to_target and area (see
    :func:`~searchlab.analysis.stats.curves.area_under_curve`) are over the first ``trials`` trials of each seed;
    failures (number by kind) and seconds are over all that the logs hold. anytime: AOCC on a logarithmic scale (see
    :func:`~searchlab.analysis.stats.targets.anytime`). ecdf_area: that of all (seed, target) pairs, its targets those of
    :func:`~searchlab.analysis.stats.targets.precision_targets`. Both hold a run's last value up to the horizon.

    score: mean over seeds of the score against random search in the strategy's own space and the best known there (see
    :func:`~searchlab.analysis.stats.random_search.score`), over the first ``score_trials`` trials; of different spaces they are
    not comparable. What random search is worth is taken from the runs of the policy ``random`` in that space; None
    where there is none, or where it has nothing to gain.
    """

    strategy: str
    space: str
    policy: str
    cost_model: str | None
    seeds: list[int]
    trials: int
    trials_by_seed: list[int]
    complete: bool
    best_gflops: Spread
    trials_to_target: Reached
    seconds_to_target: Reached
    area: Spread
    anytime: Spread
    ecdf_area: float
    score: Estimate | None
    score_by_seed: list[float] | None
    score_trials: int | None
    failures: dict[str, int]
    seconds: Seconds


class WorkloadSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison on one workload, the strategy that converges fastest first.

    flops: of one run of it. horizon: the most trials that all seeds of any strategy have; areas are over so
    many. target_gflops: what counts as converged, None while nothing has succeeded. contrasts: every pair of strategies
    by trials to the target, by seconds to it and by area.
    """

    workload: str
    flops: int
    horizon: int
    best: Best | None
    target_gflops: float | None
    strategies: list[StrategySummary]
    contrasts: list[Contrast]
    verdict: str
    notes: list[str]


class Summary(msgspec.Struct, frozen=True):
    """All numbers of a report. ``target`` is the part of the best known that counts as converged.

    overall: over all workloads, None where there is one, or where no two strategies ran on all of them.
    """

    target: float
    workloads: list[WorkloadSummary]
    overall: Overall | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain dicts, lists, strings and finite numbers."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def summarize(comparison: Comparison) -> Summary:
    """The summary of what :func:`~searchlab.analysis.read.read_cells` read; equal logs give equal numbers."""
    workloads = [_workload(name, strategies) for name, strategies in comparison.items()]
    return Summary(TARGET, workloads, overall(workloads))


def _workload(name: str, strategies: dict[str, list[Cell]]) -> WorkloadSummary:
    every = [cell for cells in strategies.values() for cell in cells]
    begun = {strategy: run for strategy, cells in strategies.items() if (run := started(cells))}
    notes = []
    if waiting := [cell.file for cell in every if not cell.log.records]:
        has = "has" if len(waiting) == 1 else "have"
        notes.append(f"{listed(waiting)} {has} no trial yet and {'is' if has == 'has' else 'are'} not counted.")
    horizon = max((common_trials(cells) for cells in begun.values()), default=0)
    best = _best(every)
    reference = best.gflops if best else 0.0
    searches = random_searches([cell for cells in begun.values() for cell in cells], horizon)
    longest = max((_spent(cell, cells) for cells in begun.values() for cell in cells), default=0.0)
    rows = ranked(
        [
            _strategy(cells, reference, horizon, longest, searches.get(cells[0].log.header.space_name))
            for cells in begun.values()
        ]
    )
    compared = [c for measure in (TRIALS, SECONDS, AREA) for c in contrasts(measure, _runs(name, rows, measure))]
    for row in rows:
        if not row.complete:
            has = ", ".join(map(str, row.trials_by_seed))
            notes.append(f"{row.strategy} is incomplete (its seeds have {has} trials): compared over {row.trials}.")
        elif row.trials < horizon:
            notes.append(
                f"{row.strategy} has {row.trials} of {horizon} trials: its area holds its best from there on, and a "
                f"target that it has not reached by then counts as not reached."
            )
    return WorkloadSummary(
        workload=name,
        flops=every[0].log.flops,
        horizon=horizon,
        best=best,
        target_gflops=TARGET * best.gflops if best else None,
        strategies=rows,
        contrasts=compared,
        verdict=verdict(rows, compared, TARGET, so_far=len(started(every)) < len(every)),
        notes=notes + footing_notes(every),
    )


def started(cells: Sequence[Cell]) -> list[Cell]:
    """Those with a trial: a run that has only begun says nothing of its strategy yet."""
    return [cell for cell in cells if cell.log.records]


def common_trials(cells: Sequence[Cell]) -> int:
    """How many trials all of them have."""
    return min(len(cell.log.records) for cell in cells)


def _best(cells: Sequence[Cell]) -> Best | None:
    found = [cell for cell in started(cells) if cell.curve[-1] > 0]
    if not found:
        return None
    cell = min(found, key=lambda cell: (-cell.curve[-1], cell.file))
    index = int(np.argmin(cell.log.costs))
    return Best(
        gflops=float(cell.curve[-1]),
        seconds=float(cell.log.costs[index]),
        strategy=cell.strategy,
        seed=cell.seed,
        trial=index,
        config=cell.log.records[index].config,
        log=cell.file,
    )


def _runs(workload: str, rows: Sequence[StrategySummary], measure: str) -> dict[str, dict[tuple[str, int], float]]:
    """What every run came to, lower is better, as contrasts want it."""
    return {
        row.strategy: {
            (workload, seed): -value if measure == AREA else math.inf if value is None else value
            for seed, value in zip(row.seeds, getattr(row, measure).by_seed, strict=True)
        }
        for row in rows
    }


def _spent(cell: Cell, cells: Sequence[Cell]) -> float:
    """Seconds charged to ``cell`` over the trials that all of ``cells`` have."""
    return float(cell.elapsed[common_trials(cells) - 1])


def _strategy(
    cells: Sequence[Cell], reference: float, horizon: int, longest: float, search: RandomSearch | None
) -> StrategySummary:
    """horizon, longest: the most trials and seconds of any run of the workload."""
    trials = common_trials(cells)
    curves = [cell.curve[:trials] for cell in cells]
    held = np.stack([np.pad(best_so_far(cell.log.costs[:trials]), (0, horizon - trials), "edge") for cell in cells])
    flops = cells[0].log.flops
    target = TARGET * reference
    scores = search.scores(held) if search else None
    header = cells[0].log.header
    lengths = [len(cell.log.records) for cell in cells]
    records = [record for cell in cells for record in cell.log.records]
    return StrategySummary(
        strategy=cells[0].strategy,
        space=header.space.name,
        policy=header.policy.name,
        cost_model=header.cost_model.name if header.cost_model else None,
        seeds=[cell.seed for cell in cells],
        trials=trials,
        trials_by_seed=lengths,
        complete=len(set(lengths)) == 1,
        best_gflops=spread([float(curve[-1]) for curve in curves]),
        trials_to_target=reached(
            [trials_to_target(curve, target) for curve in curves], [float(trials)] * len(cells), horizon
        ),
        seconds_to_target=reached(
            [seconds_to_target(curve, cell.elapsed, target) for curve, cell in zip(curves, cells, strict=True)],
            [_spent(cell, cells) for cell in cells],
            longest,
        ),
        area=spread([area_under_curve(curve, reference, horizon) for curve in curves]),
        anytime=spread(anytime(held, flops / reference / 1e9).tolist() if reference else [0.0] * len(cells)),
        ecdf_area=ecdf_area(hitting_times(gflops(held, flops), precision_targets(reference)), horizon)
        if reference
        else 0.0,
        score=estimate(scores) if scores is not None else None,
        score_by_seed=scores.tolist() if scores is not None else None,
        score_trials=len(search.baseline) if search and scores is not None else None,
        failures={kind: sum(record.failure == kind for record in records) for kind in FAILURES},
        seconds=_seconds(cells),
    )


def _seconds(cells: Sequence[Cell]) -> Seconds:
    propose, train, build, run = (
        math.fsum(spent)
        for spent in zip(
            *(
                (r.propose_seconds, r.train_seconds, r.build_seconds / cell.log.header.workers, r.run_seconds)
                for cell in cells
                for r in cell.log.records
            ),
            strict=True,
        )
    )
    return Seconds(math.fsum((propose, train, build, run)), propose, train, build, run)
