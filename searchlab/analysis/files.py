"""The numbers of a report as files, JSON and CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..records import FAILURES
from .charts.figures import Figure
from .model import MatrixCell, Overall, Program, Reached, Summary
from .runs import Comparison
from .stats.intervals import Interval


def write_numbers(
    out: Path,
    summary: Summary,
    comparison: Comparison,
    figures: Mapping[str, Sequence[Figure]],
    programs: Sequence[Program],
) -> None:
    """Write ``summary.*``, ``contrasts.csv``, ``overall.csv``, ``matrix.csv``, ``curves.csv``, ``figures.*`` and
    ``programs.csv``.

    programs: the best of every run.
    """
    write_json(out / "summary.json", summary)
    write_json(out / "figures.json", figures)
    _write_csv(out / "summary.csv", _SUMMARY, _summary_rows(summary))
    _write_csv(out / "contrasts.csv", _CONTRASTS, _contrast_rows(summary))
    if summary.overall:
        _write_csv(out / "overall.csv", _OVERALL, _overall_rows(summary.overall))
        matrix = [msgspec.structs.astuple(cell) for cell in summary.overall.matrix]
        _write_csv(out / "matrix.csv", MatrixCell.__struct_fields__, matrix)
    _write_csv(out / "curves.csv", _CURVES, _curve_rows(comparison))
    _write_csv(out / "figures.csv", _FIGURES, _figure_rows(figures))
    _write_csv(out / "programs.csv", _PROGRAMS, _program_rows(programs))


def write_json(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


_SUMMARY = (
    "workload", "strategy", "seeds", "trials", "complete",
    "best_gflops_median", "best_gflops_q1", "best_gflops_q3",
    "seeds_that_reached_target", "trials_to_target_median", "seconds_to_target_median",
    "area_median", "area_q1", "area_q3",
    "trials_to_target_lower", "trials_to_target_upper", "trials_ert", "trials_par10",
    "seconds_to_target_lower", "seconds_to_target_upper", "seconds_ert", "seconds_par10",
    "score", "score_lower", "score_upper", "score_first", "score_trials", "anytime_median", "ecdf_area", "batch",
    "unit", "seconds", "propose_seconds", "train_seconds", "build_seconds", "run_seconds", *FAILURES,
)  # fmt: skip


def _summary_rows(summary: Summary) -> Iterable[Sequence[Any]]:
    for item in summary.workloads:
        for row in item.strategies:
            spent = row.seconds
            fields = (
                item.workload, row.strategy, len(row.seeds), row.trials, row.complete,
                row.best_gflops.median, row.best_gflops.lower, row.best_gflops.upper,
                row.trials_to_target.reached, row.trials_to_target.median, row.seconds_to_target.median,
                row.area.median, row.area.lower, row.area.upper,
                *_reached(row.trials_to_target), *_reached(row.seconds_to_target),
                *_estimate(row.score), row.score_first, row.score_trials, row.anytime.median, row.ecdf_area,
                row.batch, item.unit,
                spent.total, spent.propose, spent.train, spent.build, spent.run,
            )  # fmt: skip
            yield [*fields, *row.failures.values()]


def _reached(measure: Reached) -> Sequence[float | None]:
    return measure.lower, measure.upper, measure.expected, measure.penalised


def _estimate(estimate: Interval | None) -> Sequence[float | None]:
    return (estimate.value, estimate.lower, estimate.upper) if estimate else (None,) * 3


_CONTRASTS = ("workload", "measure", "first", "second", "test", "runs", "improvement", "improvement_lower",
              "improvement_upper", "p", "adjusted_p")  # fmt: skip


def _contrast_rows(summary: Summary) -> Iterable[Sequence[Any]]:
    over_all = [("", summary.overall.contrasts)] if summary.overall else []
    for workload, contrasts in [*((item.workload, item.contrasts) for item in summary.workloads), *over_all]:
        for c in contrasts:
            yield (
                workload, c.measure, c.first, c.second, c.test, c.runs, c.improvement, c.lower, c.upper, c.p,
                c.adjusted,
            )  # fmt: skip


_OVERALL = (
    "strategy", "rank", "area_iqm", "area_iqm_lower", "area_iqm_upper", "score", "score_lower", "score_upper",
    "ecdf_area",
)  # fmt: skip


def _overall_rows(overall: Overall) -> Iterable[Sequence[Any]]:
    ranks = overall.diagram.by_strategy
    for row in overall.strategies:
        yield row.strategy, ranks[row.strategy], *_estimate(row.area), *_estimate(row.score), row.ecdf_area


def _curve_rows(comparison: Comparison) -> Iterable[Sequence[Any]]:
    for item in comparison.values():
        for run in item.runs:
            points = zip(run.elapsed.tolist(), run.curve.tolist(), strict=True)
            for trial, (seconds, best) in enumerate(points, 1):
                yield item.workload, run.strategy, run.seed, trial, seconds, best


_CURVES = ("workload", "strategy", "seed", "trials", "seconds", "best_gflops")
_FIGURES = ("workload", "figure", "view", "strategy", "x", "y", "lower", "upper")
_PROGRAMS = ("workload", "strategy", "seed", "trial", "gflops", "seconds", "gflops_as_trial", "tied", "config", "log")


def _program_rows(programs: Iterable[Program]) -> Iterable[Sequence[Any]]:
    for one in programs:
        tied = None if one.tied is None else " ".join(map(str, one.tied))
        config = msgspec.json.encode(one.config).decode()
        yield (
            one.workload, one.strategy, one.seed, one.trial, one.gflops, one.seconds, one.as_trial, tied, config,
            one.log,
        )  # fmt: skip


def _figure_rows(figures: Mapping[str, Sequence[Figure]]) -> Iterable[Sequence[Any]]:
    for workload, charts in figures.items():
        for figure in charts:
            for view in figure.views:
                for line in view.series:
                    nothing = [None] * len(view.x)
                    for x, y, *band in zip(view.x, line.y, line.lower or nothing, line.upper or nothing, strict=True):
                        if y is not None:
                            yield workload, figure.key, view.key, line.strategy, x, y, *band


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
