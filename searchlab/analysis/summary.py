"""What a comparison comes to: the best known, a row per strategy, and a verdict, for each workload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from ..records import FAILURES
from .cells import Cell, Comparison, footing_notes
from .curves import area_under_curve, quartiles, seconds_to_target, trials_to_target
from .verdict import ranked, verdict

TARGET = 0.95
"""The part of the best known throughput that counts as having converged."""


class Best(msgspec.Struct, frozen=True):
    """The fastest program that any log of a workload has; the earliest by file where several are as fast.

    gflops, seconds: its throughput and its time. trial: how many trials its run had then done, from 1.
    """

    gflops: float
    seconds: float
    strategy: str
    seed: int
    trial: int
    config: dict[str, Any]
    log: str


class Spread(msgspec.Struct, frozen=True):
    """A number of every seed, in the order of the seeds, with their median and quartiles."""

    median: float
    lower: float
    upper: float
    by_seed: list[float]


class Reached(msgspec.Struct, frozen=True):
    """What it took every seed to reach the target: None for a seed whose run ended before that (censored).

    median: over all seeds, the censored ones counted as infinity; None where it is infinite, which it is
    unless more than half of the seeds reached the target.
    """

    reached: int
    median: float | None
    by_seed: list[float | None]


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
    :func:`~searchlab.analysis.curves.area_under_curve`) are over the first ``trials`` trials of each seed;
    failures (number by kind) and seconds are over all that the logs hold.
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
    failures: dict[str, int]
    seconds: Seconds


class WorkloadSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison on one workload, the strategy that converges fastest first.

    flops: of one run of it. horizon: the most trials that all seeds of any strategy have; areas are over so
    many. target_gflops: what counts as converged, None while nothing has succeeded.
    """

    workload: str
    flops: int
    horizon: int
    best: Best | None
    target_gflops: float | None
    strategies: list[StrategySummary]
    verdict: str
    notes: list[str]


class Summary(msgspec.Struct, frozen=True):
    """All numbers of a report. ``target`` is the part of the best known that counts as converged."""

    target: float
    workloads: list[WorkloadSummary]

    def to_json(self) -> dict[str, Any]:
        """As plain dicts, lists, strings and finite numbers."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def summarize(comparison: Comparison) -> Summary:
    """The summary of what :func:`~searchlab.analysis.cells.read_cells` read; equal logs give equal numbers."""
    return Summary(TARGET, [_workload(name, strategies) for name, strategies in comparison.items()])


def _workload(name: str, strategies: dict[str, list[Cell]]) -> WorkloadSummary:
    every = [cell for cells in strategies.values() for cell in cells]
    begun = {strategy: run for strategy, cells in strategies.items() if (run := started(cells))}
    notes = [f"{cell.file} has no trial yet and is not counted." for cell in every if not cell.log.records]
    horizon = max((common_trials(cells) for cells in begun.values()), default=0)
    best = _best(every)
    reference = best.gflops if best else 0.0
    rows = ranked([_strategy(cells, reference, horizon) for cells in begun.values()])
    for row in rows:
        if not row.complete:
            has = ", ".join(map(str, row.trials_by_seed))
            notes.append(f"{row.strategy} is incomplete (its seeds have {has} trials): compared over {row.trials}.")
        elif row.trials < horizon:
            notes.append(f"{row.strategy} has {row.trials} of {horizon} trials: its area holds its best from there on.")
    return WorkloadSummary(
        workload=name,
        flops=every[0].log.flops,
        horizon=horizon,
        best=best,
        target_gflops=TARGET * best.gflops if best else None,
        strategies=rows,
        verdict=verdict(rows, TARGET, so_far=len(started(every)) < len(every)),
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
        trial=index + 1,
        config=cell.log.records[index].config,
        log=cell.file,
    )


def _strategy(cells: Sequence[Cell], reference: float, horizon: int) -> StrategySummary:
    trials = common_trials(cells)
    curves = [cell.curve[:trials] for cell in cells]
    target = TARGET * reference
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
        best_gflops=_spread([float(curve[-1]) for curve in curves]),
        trials_to_target=_reached([trials_to_target(curve, target) for curve in curves]),
        seconds_to_target=_reached(
            [seconds_to_target(curve, cell.elapsed, target) for curve, cell in zip(curves, cells, strict=True)]
        ),
        area=_spread([area_under_curve(curve, reference, horizon) for curve in curves]),
        failures={kind: sum(record.failure == kind for record in records) for kind in FAILURES},
        seconds=_seconds(cells),
    )


def _spread(values: list[float]) -> Spread:
    lower, median, upper = quartiles(np.array(values)).tolist()
    return Spread(median, lower, upper, values)


def _reached(values: list[float]) -> Reached:
    finite = [value if math.isfinite(value) else None for value in values]
    median = float(np.median(values))
    return Reached(sum(v is not None for v in finite), median if math.isfinite(median) else None, finite)


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
