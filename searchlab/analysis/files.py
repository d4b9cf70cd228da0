"""The numbers of a report as rows, for its files, JSON and CSV, and the frames of a comparison."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from .charts.figures import Figure
from .measures import OverallStrategy, Row, StrategySummary, at
from .model import Overall, Program, Summary
from .runs import ComparedRuns
from .stats.ranks import MatrixCell

if TYPE_CHECKING:
    import pandas as pd


class Rows(NamedTuple):
    """Rows with a value, or None, for each of ``columns``; they can be iterated over once."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]

    def frame(self) -> pd.DataFrame:
        """Return a frame with NaN for None, so that a column of numbers is numeric."""
        import pandas as pd

        data = [[math.nan if value is None else value for value in row] for row in self.rows]
        return pd.DataFrame(data, columns=list(self.columns))

    def write(self, path: Path) -> None:
        """Write a CSV file, with nothing for None."""
        with path.open("w", encoding="utf-8", newline="") as file:
            # The writer quotes a text with \r only if its own lines end with it.
            csv.writer(_Lines(file.write)).writerows(chain([self.columns], self.rows))


class _Lines(NamedTuple):
    """A file for :mod:`csv` whose lines end with \\n instead of \\r\\n."""

    to: Any

    def write(self, line: str) -> None:
        self.to(line[:-2] + "\n")


def write_numbers(
    out: Path,
    summary: Summary,
    comparison: ComparedRuns,
    figures: Mapping[str, Sequence[Figure]],
    programs: Sequence[Program],
) -> None:
    """Write all files of numbers, see :func:`~searchlab.analysis.report.report`. ``programs``: the best of each run."""
    write_json(out / "summary.json", summary)
    write_json(out / "figures.json", figures)
    tables = {
        "summary": strategy_rows(summary), "contrasts": contrast_rows(summary), "curves": curve_rows(comparison),
        "figures": figure_rows(figures), "programs": program_rows(programs),
    }  # fmt: skip
    if found := summary.overall:
        tables |= {"overall": overall_rows(found), "claims": claim_rows(found), "matrix": cell_rows(found)}
    for name, rows in tables.items():
        rows.write(out / f"{name}.csv")


def write_json(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value, enc_hook=Row.to_json), indent=2) + b"\n")


def strategy_rows(summary: Summary) -> Rows:
    """Return a row for each strategy on each workload."""
    rows = (
        (item.workload, row.strategy, *row.cells, item.unit) for item in summary.workloads for row in item.strategies
    )
    return Rows(("workload", "strategy", *StrategySummary.names(), "unit"), rows)


def overall_rows(overall: Overall | None) -> Rows:
    """Return a row for each strategy over all workloads."""
    ranks = overall.diagram.by_strategy if overall else {}
    rows = ((row.strategy, ranks[row.strategy], *row.cells) for row in (overall.strategies if overall else ()))
    return Rows(("strategy", "rank", *OverallStrategy.names()), rows)


_CONTRAST = {
    "measure": "measure", "first": "first", "second": "second", "test": "test", "runs": "runs",
    "improvement": "improvement", "improvement_lower": "lower", "improvement_upper": "upper", "p": "p",
    "adjusted_p": "adjusted",
}  # fmt: skip
_CLAIM = {
    "first": "first", "second": "second", "workloads": "difference.workloads", "difference": "difference.value",
    "on_these_lower": "difference.on_these.difference.lower", "on_these_upper": "difference.on_these.difference.upper",
    "on_these_p": "difference.on_these.p", "on_others_lower": "difference.on_others.difference.lower",
    "on_others_upper": "difference.on_others.difference.upper", "on_others_p": "difference.on_others.p",
    "better": "equivalence.better", "same": "equivalence.same", "worse": "equivalence.worse",
}  # fmt: skip
_PROGRAM: dict[str, str | Callable[[Program], Any]] = {
    "workload": "workload", "strategy": "strategy", "seed": "seed", "trial": "trial", "gflops": "gflops",
    "seconds": "seconds", "gflops_as_trial": "as_trial",
    "tied": lambda one: None if one.tied is None else " ".join(map(str, one.tied)),
    "config": lambda one: msgspec.json.encode(one.config).decode(), "log": "log",
}  # fmt: skip
"""Where the value of each column is in the object of a row, see :func:`~searchlab.analysis.measures.at`."""


def contrast_rows(summary: Summary) -> Rows:
    """Return a row for each pair of strategies by each measure on each workload; "" for all workloads."""
    over_all = [("", summary.overall.contrasts)] if summary.overall else []
    groups = [*((item.workload, item.contrasts) for item in summary.workloads), *over_all]
    rows = ((workload, *_values(one, _CONTRAST)) for workload, contrasts in groups for one in contrasts)
    return Rows(("workload", *_CONTRAST), rows)


def claim_rows(overall: Overall | None) -> Rows:
    """Return a row for the best strategy and each other, over all workloads, see :class:`~.model.PairClaims`."""
    return Rows(list(_CLAIM), (_values(one, _CLAIM) for one in (overall.claims if overall else ())))


def _values(one: Any, paths: Mapping[str, Any]) -> Sequence[Any]:
    return [at(one, path) for path in paths.values()]


def cell_rows(overall: Overall | None) -> Rows:
    """Return a row for each ordered pair of the multiple comparison matrix."""
    columns = [field.name for field in fields(MatrixCell)]
    return Rows(columns, map(astuple, overall.matrix if overall else ()))


def curve_rows(comparison: ComparedRuns) -> Rows:
    """Return a row for each trial of each run: trials and seconds from its start, and the best GFLOPS then."""
    rows = (
        (run.workload, run.strategy, run.seed, trials, seconds, best)
        for item in comparison.values()
        for run in item.runs
        for trials, (seconds, best) in enumerate(zip(run.elapsed.tolist(), run.curve.tolist(), strict=False), 1)
    )
    return Rows(("workload", "strategy", "seed", "trials", "seconds", "best_gflops"), rows)


def program_rows(programs: Iterable[Program]) -> Rows:
    """Return a row for the best program of each run."""
    return Rows(list(_PROGRAM), (_values(one, _PROGRAM) for one in programs))


def figure_rows(figures: Mapping[str, Sequence[Figure]]) -> Rows:
    """Return a row for each point of each line of the line charts."""
    rows = (
        (workload, figure.key, view.key, line.strategy, *point)
        for workload, charts in figures.items()
        for figure in charts
        for view in figure.views
        for line in view.series
        for point in zip(view.x, line.y, line.lower or repeat(None), line.upper or repeat(None), strict=False)
        if point[1] is not None
    )
    return Rows(("workload", "figure", "view", "strategy", "x", "y", "lower", "upper"), rows)
