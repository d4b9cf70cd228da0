"""The numbers of a report as rows: its CSV files, and the frames of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec

from ..records import FAILURES
from .charts.figures import Figure
from .model import Contrast, MatrixCell, Overall, PairClaims, Program, Reached, Summary
from .runs import ComparedRuns
from .stats.inference import Answer
from .stats.intervals import Interval

_Row = Sequence[Any]


@dataclass(frozen=True)
class Rows:
    """Rows with a value for each of ``columns``, None where there is none. They can be read once."""

    columns: Sequence[str]
    rows: Iterable[_Row]


@dataclass(frozen=True)
class Groups:
    """Rows in groups, which may be millions in all. A row is the names of its group and then numbers, or None.

    groups: of each its names, and the rest of its rows. They can be read once.
    """

    columns: Sequence[str]
    groups: Iterable[tuple[_Row, Sequence[_Row]]]

    @property
    def rows(self) -> Iterator[_Row]:
        return ((*names, *numbers) for names, rows in self.groups for numbers in rows)


def strategy_rows(summary: Summary) -> Rows:
    """A row for each strategy on each workload."""
    columns = (
        "workload", "strategy", "seeds", "trials", "complete",
        "best_gflops_median", "best_gflops_q1", "best_gflops_q3",
        "seeds_that_reached_target", "trials_to_target_median", "seconds_to_target_median",
        "area_median", "area_q1", "area_q3",
        "trials_to_target_lower", "trials_to_target_upper", "trials_ert", "trials_par10",
        "seconds_to_target_lower", "seconds_to_target_upper", "seconds_ert", "seconds_par10",
        "score", "score_lower", "score_upper", "score_first", "score_trials", "anytime_median", "ecdf_area", "batch",
        "unit", "seconds", "propose_seconds", "train_seconds", "build_seconds", "run_seconds", *FAILURES,
    )  # fmt: skip
    return Rows(columns, _strategies(summary))


def _strategies(summary: Summary) -> Iterator[_Row]:
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


def contrast_rows(summary: Summary) -> Rows:
    """A row for each pair of strategies by each measure on each workload; over all workloads that is empty."""
    columns = ("workload", "measure", "first", "second", "test", "runs", "improvement", "improvement_lower",
               "improvement_upper", "p", "adjusted_p")  # fmt: skip
    over_all = [("", summary.overall.contrasts)] if summary.overall else []
    groups = [*((item.workload, item.contrasts) for item in summary.workloads), *over_all]
    return Rows(columns, (_contrast(workload, one) for workload, contrasts in groups for one in contrasts))


def _contrast(workload: str, c: Contrast) -> _Row:
    return (
        workload, c.measure, c.first, c.second, c.test, c.runs, c.improvement, c.lower, c.upper, c.p, c.adjusted,
    )  # fmt: skip


def overall_rows(overall: Overall | None) -> Rows:
    """A row for each strategy over all workloads."""
    columns = (
        "strategy", "rank", "area_iqm", "area_iqm_lower", "area_iqm_upper", "score", "score_lower", "score_upper",
        "ecdf_area",
    )  # fmt: skip
    ranks = overall.diagram.by_strategy if overall else {}
    rows = (
        (row.strategy, ranks[row.strategy], *_estimate(row.area), *_estimate(row.score), row.ecdf_area)
        for row in (overall.strategies if overall else ())
    )
    return Rows(columns, rows)


def claim_rows(overall: Overall | None) -> Rows:
    """A row for the best strategy and each other, over all workloads: the difference of the area, ``first`` less
    ``second``, on these workloads and on workloads like these; and how probable it is that ``first`` is better, the
    same and worse. The p-values are corrected for all tests of the report.
    """
    columns = (
        "first", "second", "workloads", "difference", "on_these_lower", "on_these_upper", "on_these_p",
        "on_others_lower", "on_others_upper", "on_others_p", "better", "same", "worse",
    )  # fmt: skip
    return Rows(columns, (_claim(one) for one in (overall.claims if overall else ())))


def _claim(one: PairClaims) -> _Row:
    if one.difference is None:
        return one.first, one.second, *(None,) * 11
    answers = [*_answer(one.difference.on_these), *_answer(one.difference.on_others)]
    chances = (one.equivalence.better, one.equivalence.same, one.equivalence.worse) if one.equivalence else (None,) * 3
    return one.first, one.second, one.difference.workloads, one.difference.value, *answers, *chances


def _answer(answer: Answer) -> Sequence[float | None]:
    return answer.difference.lower, answer.difference.upper, answer.p


def cell_rows(overall: Overall | None) -> Rows:
    """A row for each ordered pair of the multiple comparison matrix."""
    return Rows(MatrixCell.__struct_fields__, map(msgspec.structs.astuple, overall.matrix if overall else ()))


def curve_rows(comparison: ComparedRuns) -> Groups:
    """A row for each trial of each run: trials and seconds, both from its start, and the best GFLOPS then."""
    return Groups(("workload", "strategy", "seed", "trials", "seconds", "best_gflops"), _curves(comparison))


def _curves(comparison: ComparedRuns) -> Iterator[tuple[_Row, list[_Row]]]:
    for item in comparison.values():
        for run in item.runs:
            points = zip(count(1), run.elapsed.tolist(), run.curve.tolist(), strict=False)
            yield (item.workload, run.strategy, run.seed), list(points)


def program_rows(programs: Iterable[Program]) -> Rows:
    """A row for the best program of each run."""
    columns = (
        "workload", "strategy", "seed", "trial", "gflops", "seconds", "gflops_as_trial", "tied", "config", "log",
    )  # fmt: skip
    return Rows(columns, map(_program, programs))


def _program(one: Program) -> _Row:
    tied = None if one.tied is None else " ".join(map(str, one.tied))
    config = msgspec.json.encode(one.config).decode()
    return (
        one.workload, one.strategy, one.seed, one.trial, one.gflops, one.seconds, one.as_trial, tied, config, one.log,
    )  # fmt: skip


def figure_rows(figures: Mapping[str, Sequence[Figure]]) -> Groups:
    """A row for each point of each line of the line charts."""
    return Groups(("workload", "figure", "view", "strategy", "x", "y", "lower", "upper"), _figures(figures))


def _figures(figures: Mapping[str, Sequence[Figure]]) -> Iterator[tuple[_Row, list[_Row]]]:
    for workload, charts in figures.items():
        for figure in charts:
            for view in figure.views:
                for line in view.series:
                    nothing = [None] * len(view.x)
                    points = zip(view.x, line.y, line.lower or nothing, line.upper or nothing, strict=True)
                    names = workload, figure.key, view.key, line.strategy
                    yield names, [point for point in points if point[1] is not None]
