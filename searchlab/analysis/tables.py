"""The tables of numbers that a report writes to files, and that Python returns as pandas frames."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from ..log.plan import Claim
from .claims import Comparand
from .columns import OVERALL_COLUMNS, Column, make_strategy_columns
from .contrasts import Contrast
from .measures import Row, throughput_in_unit
from .runs import BestProgram, ComparedRuns
from .summary import Summary

if TYPE_CHECKING:
    import pandas as pd


class NumberTable(NamedTuple):
    """A table of numbers and texts.

    Attributes:
        columns: The names of the columns.
        rows: The rows, which have a value or None for each column. They can be iterated over only once.
    """

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a pandas frame, with NaN instead of None so that columns of numbers are numeric."""
        import pandas as pd

        rows = [[math.nan if value is None else value for value in row] for row in self.rows]
        return pd.DataFrame(rows, columns=list(self.columns))


class RunRow(NamedTuple):
    """A row of ``runs.csv.gz``. Numbers are None if the run is not compared, or if they are not defined."""

    workload: str
    space: str
    strategy: str
    seed: int
    trials: int
    compared: bool
    area: float | None
    area_by_seconds: float | None
    score: float | None
    best_gflops: float | None
    trials_to_target: float | None
    seconds_to_target: float | None
    failed_trials: int
    optimum_gflops: float | None
    unit: str


KNOB_COLUMNS = ("workload", "space", "knob", "importance", "values", "best_value")
CONTRAST_COLUMNS = {
    "workload": "workload",
    "first": "first",
    "second": "second",
    "test": "test",
    "runs": "runs",
    "difference": "difference.value",
    "lower": "difference.on_these.difference.lower",
    "upper": "difference.on_these.difference.upper",
    "p": "p",
    "adjusted_p": "adjusted_p",
    "others_lower": "difference.on_others.difference.lower",
    "others_upper": "difference.on_others.difference.upper",
    "others_adjusted_p": "difference.on_others.p",
}
"""The attributes of a contrast that ``contrasts.csv.gz`` contains, by column."""

CLAIM_COLUMNS = tuple(name for name in Claim.__struct_fields__ if name != "against")
COMPRESSED = ("runs", "contrasts", "programs")  # the tables with a row for each run or pair


def make_number_tables(summary: Summary, comparison: ComparedRuns) -> dict[str, NumberTable]:
    """Return the tables that a report writes, by name; see :func:`~searchlab.analysis.report`."""
    overall = summary.overall
    contrasts = [contrast for workload_summary in summary.workloads for contrast in workload_summary.contrasts]
    contrasts += overall.contrasts if overall else []
    overall_rows = (
        [(row.strategy, overall.ranks[row.strategy], *_get_values(row, OVERALL_COLUMNS)) for row in overall.strategies]
        if overall
        else []
    )
    return {
        "summary": NumberTable(
            ("workload", "strategy", *_list_names(make_strategy_columns()), "unit"), make_strategy_rows(summary)
        ),
        "runs": NumberTable(RunRow._fields, make_run_rows(summary, comparison)),
        "contrasts": NumberTable(tuple(CONTRAST_COLUMNS), map(_get_contrast_values, contrasts)),
        "importances": NumberTable(KNOB_COLUMNS, make_knob_rows(comparison)),
        "programs": NumberTable(BestProgram.__struct_fields__, make_program_rows(comparison)),
        "overall": NumberTable(("strategy", "rank", *_list_names(OVERALL_COLUMNS)), overall_rows),
        "published_claims": NumberTable(
            ("claim", *CLAIM_COLUMNS, "claim_verdict", *Comparand.__struct_encode_fields__), make_claim_rows(summary)
        ),
    }


def _list_names(columns: Sequence[Column[Row]]) -> list[str]:
    return [column.name for column in columns if column.name]


def _get_values(row: Row, columns: Sequence[Column[Row]]) -> list[Any]:
    return [column.get_value(row) for column in columns if column.name]


def make_strategy_rows(summary: Summary) -> Iterator[tuple[Any, ...]]:
    """Iterate over the rows of ``summary.csv``: a row for each strategy on each workload."""
    for workload_summary in summary.workloads:
        columns = make_strategy_columns(workload_summary.unit)
        for row in workload_summary.strategies:
            yield (workload_summary.workload, row.strategy, *_get_values(row, columns), workload_summary.unit)


def _get_contrast_values(contrast: Contrast) -> list[Any]:
    values = [attrgetter(attribute)(contrast) for attribute in CONTRAST_COLUMNS.values()]
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


def make_program_rows(comparison: ComparedRuns) -> Iterator[list[Any]]:
    """Iterate over the rows of ``programs.csv.gz``: the best program of each run that found one."""
    for workload_runs in comparison.values():
        for program in (run.best_program for run in workload_runs.runs if run.best_program):
            program = msgspec.structs.replace(
                program,
                gflops=throughput_in_unit(program.gflops, program.unit),
                gflops_as_trial=throughput_in_unit(program.gflops_as_trial, program.unit),
            )
            yield [_format_field(value) for value in astuple(program)]


def _format_field(value: Any) -> Any:
    """Return a config as JSON, the numbers in a list as a text, and other values as they are."""
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return " ".join(map(str, value)) if isinstance(value, list) else value


def make_run_rows(summary: Summary, comparison: ComparedRuns) -> Iterator[RunRow]:
    """Iterate over the rows of ``runs.csv.gz``: a row for each run that has trials."""
    for workload_summary in summary.workloads:
        for name, strategy_runs in comparison[workload_summary.workload].strategies.items():
            row = workload_summary.by_strategy[name]
            positions = {seed: position for position, seed in enumerate(row.seeds)}
            for run in strategy_runs.runs:
                position, log = positions.get(run.seed), run.log
                optimum = log.flops / log.header.optimum / 1e9 if log.header.optimum else None
                by_seconds = row.area_by_seconds.by_seed if row.area_by_seconds else None
                yield RunRow(
                    workload=workload_summary.workload,
                    space=run.space,
                    strategy=name,
                    seed=run.seed,
                    trials=log.trial_count,
                    compared=position is not None,
                    area=_get_number_at(position, row.area.by_seed),
                    area_by_seconds=_get_number_at(position, by_seconds),
                    score=_get_number_at(position, row.score.by_seed if row.score else None),
                    best_gflops=_round(throughput_in_unit(float(run.curve[: workload_summary.horizon][-1]), log.unit)),
                    trials_to_target=_get_number_at(position, row.trials_to_target.by_seed),
                    seconds_to_target=_get_number_at(position, row.seconds_to_target.by_seed),
                    failed_trials=int((log.failures >= 0).sum()),
                    optimum_gflops=throughput_in_unit(optimum, log.unit) if optimum else None,
                    unit=log.unit,
                )


def _get_number_at(position: int | None, values: Sequence[float | None] | None) -> float | None:
    number = None if position is None or values is None else values[position]
    return None if number is None else _round(number)


def _round(number: float) -> float:
    """Round to nine significant digits."""
    return float(f"{number:.9g}")


def make_knob_rows(comparison: ComparedRuns) -> Iterator[tuple[Any, ...]]:
    """Iterate over the rows of ``importances.csv``: a row for each knob on each workload."""
    for workload_runs in comparison.values():
        for space in workload_runs.spaces:
            for knob, importance in space.importances.items():
                values = space.knobs[knob]
                best_value = values[space.throughput.argmax()]
                yield workload_runs.workload, space.space, knob, importance, len(set(values)), best_value


def make_claim_rows(summary: Summary) -> Iterator[tuple[Any, ...]]:
    """Iterate over the rows of ``published_claims.csv``: a row for each opponent in each claim."""
    for claim_number, claim_verdict in enumerate(summary.claims, 1):
        claim_values = [getattr(claim_verdict.claim, name) for name in CLAIM_COLUMNS]
        for comparand in claim_verdict.comparands:
            yield (claim_number, *claim_values, claim_verdict.verdict, *astuple(comparand))
