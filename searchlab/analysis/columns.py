"""The columns of the tables of strategies, which the terminal, pages, notebooks, LaTeX and CSV files all show.

:func:`make_strategy_columns` lists the columns of strategies on one workload, and :data:`OVERALL_COLUMNS` lists those
over all workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Flag, auto
from itertools import permutations
from typing import Any, Generic

from ..records import FAILURES
from ..stats.intervals import Interval
from ..units import VALUES
from .contrasts import Contrast, find_contrast
from .measures import OverallStrategy, Row, StrategySummary
from .runs import RANDOM_POLICY, TARGET_FRACTION
from .verdict import judge_contrast
from .words import format_number


class Tables(Flag):
    """The human-readable tables in which a column appears. CSV files and frames contain every column with a name."""

    NONE = 0
    TERMINAL = auto()  # the ranking in the terminal and in notebooks
    COSTS = auto()  # the table of costs in the terminal
    PAGE = auto()  # the ranking on the page
    RANKINGS = TERMINAL | PAGE


def _format_nothing(row: Any) -> str:
    return ""


def _list_nothing(row: Any) -> list[str]:
    return []


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table of strategies.

    Attributes:
        name: The name in CSV files and frames; if empty, the column is omitted from them.
        get_value: A function that returns the number or text of a row, or None if it has none.
        title: The heading in human-readable tables.
        meaning: A sentence that defines the numbers. The page shows it.
        unit: The unit of the numbers.
        tables: The human-readable tables that contain the column.
        is_optional: Whether tables omit the column if no row has a number.
        digits: The decimal places in human-readable tables; None for three significant digits.
        higher_is_better: Whether higher numbers are better.
        marks_best: Whether the best number is shown in bold.
        format_suffix: A function that returns text to show after the number of a row.
        format_detail: A function that returns further text, which only the page shows.
        list_names: A function that returns the strategies that the number counts, which only the page shows.
        none_text: What the page shows for a row without a number.
    """

    name: str
    get_value: Callable[[Row], Any]
    _: KW_ONLY
    title: str = ""
    meaning: str = ""
    unit: str = ""
    tables: Tables = Tables.NONE
    is_optional: bool = False
    digits: int | None = None
    higher_is_better: bool = False
    marks_best: bool = False
    format_suffix: Callable[[Row], str] = _format_nothing
    format_detail: Callable[[Row], str] = _format_nothing
    list_names: Callable[[Row], Sequence[str]] = _list_nothing
    none_text: str = "-"

    def format(self, row: Row) -> str:
        """Return the row's number as text, or a dash if it has none."""
        value = self.get_value(row)
        return value if isinstance(value, str) else format_number(value, self.digits)


@dataclass(frozen=True)
class Table(Generic[Row]):
    """A human-readable table of strategies."""

    columns: Sequence[Column[Row]]
    rows: Sequence[Row]

    @property
    def texts(self) -> tuple[list[str], list[list[str]]]:
        """The headings and the rows as texts, beginning with the strategies."""
        headings = ["strategy", *(column.title.replace("\n", " ") for column in self.columns)]
        return headings, [
            [row.strategy, *(column.format(row) + column.format_suffix(row) for column in self.columns)]
            for row in self.rows
        ]

    def is_best(self, row: Row, column: Column[Row]) -> bool:
        """Return whether the column marks the row's number as the best."""
        if not column.marks_best or len(self.rows) == 1:
            return False
        numbers = [number for other in self.rows if (number := column.get_value(other)) is not None]
        return bool(numbers) and column.get_value(row) == (max if column.higher_is_better else min)(numbers)

    def insert(self, position: int, columns: Sequence[Column[Row]]) -> Table[Row]:
        """Return the table with further columns."""
        return make_table(self.rows, [*self.columns[:position], *columns, *self.columns[position:]])


def make_table(rows: Sequence[Row], columns: Sequence[Column[Row]], tables: Tables | None = None) -> Table[Row]:
    """Return a human-readable table of all columns, or of those that ``tables`` selects."""
    shown_columns = [
        column
        for column in columns
        if (tables is None or column.tables & tables)
        and (not column.is_optional or any(column.get_value(row) is not None for row in rows))
    ]
    return Table(shown_columns if rows else [], rows)


def _make_getter(attribute: str, part: str) -> Callable[[Any], Any]:
    """Return a function that returns a part of a row's attribute, or None if the row has no such attribute."""
    return lambda row: getattr(getattr(row, attribute), part, None)


def _make_end_columns(name: str, attribute: str) -> list[Column[Any]]:
    """Return the columns of the ends of an interval."""
    return [Column(f"{name}_{end}", _make_getter(attribute, end)) for end in ("lower", "upper")]


def _make_interval_columns(name: str, attribute: str, **options: Any) -> list[Column[Any]]:
    """Return the columns of an estimate, after which tables show its interval, and of the ends of the interval.

    The ``options`` are those of the column of the estimate.
    """
    defaults: dict[str, Any] = {
        "tables": Tables.RANKINGS,
        "digits": 3,
        "higher_is_better": True,
        "format_suffix": lambda row: _format_interval(getattr(row, attribute)),
    }
    return [Column(name, _make_getter(attribute, "value"), **(defaults | options)), *_make_end_columns(name, attribute)]


def _make_target_columns(quantity: str, **options: Any) -> list[Column[Any]]:
    """Return the columns of the trials or seconds to the target. The ``options`` are those of the median."""
    attribute = f"{quantity}_to_target"
    median = Column[StrategySummary](
        f"{attribute}_median",
        _make_getter(attribute, "median"),
        title=f"{quantity}\nto {100 * TARGET_FRACTION:g} %",
        tables=Tables.RANKINGS,
        marks_best=True,
        none_text="not reached",
        **options,
    )
    return [median, *_make_end_columns(attribute, attribute)]


def _format_interval(interval: Interval | None) -> str:
    """Format an interval as " [0.912, 0.934]". Returns an empty string if there is no interval."""
    return f" {interval.brackets()}".rstrip() if interval else ""


def _format_censored(row: StrategySummary) -> str:
    """Return the number of seeds that reached the target, such as " (3 of 5)", or an empty string if all did."""
    times = row.trials_to_target
    seed_count = len(times.by_seed)
    return "" if times.reached == seed_count else f" ({times.reached} of {seed_count})"


def _format_failures(row: StrategySummary) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in row.failures.items() if count) or "none"


def _make_failure_column(kind: str) -> Column[StrategySummary]:
    return Column(kind, lambda row: row.failures[kind])


def _make_seconds_column(name: str, part: str, title: str) -> Column[StrategySummary]:
    """Return a column of charged seconds; ``part`` is an attribute of ChargedSeconds."""
    return Column(
        name,
        _make_getter("seconds", part),
        title=title,
        meaning="The seconds counted for all runs.",
        unit="s",
        tables=Tables.COSTS,
    )


RUN_COLUMNS: list[Column[StrategySummary]] = [
    Column("batch", lambda row: row.batch),
    Column(
        "seeds",
        lambda row: len(row.seeds),
        title="seeds",
        meaning="The number of runs that are compared: those with seeds that all strategies have.",
        tables=Tables.TERMINAL,
    ),
    Column(
        "trials",
        lambda row: row.trials,
        title="trials",
        meaning="The largest number of trials that at least half of the runs have; a + means that the numbers differ.",
        tables=Tables.TERMINAL,
        digits=0,
        format_suffix=lambda row: "" if row.complete else "+",
    ),
    Column("complete", lambda row: row.complete),
    *_make_interval_columns(
        "area_mean",
        "area",
        title="mean area",
        meaning="Area under the convergence curve, as a fraction of the best known, over trials or, if seconds limit "
        "the runs, over seconds: mean over seeds, with its 95 % interval.",
        marks_best=True,
    ),
]

TARGET_COLUMNS: list[Column[StrategySummary]] = [
    Column("seeds_that_reached_target", lambda row: row.trials_to_target.reached),
    *_make_target_columns(
        "trials",
        meaning="Median trials to the target, and how many seeds reached it if not all did.",
        unit="trials",
        format_suffix=_format_censored,
    ),
    *_make_target_columns("seconds", meaning="Median seconds to the target.", unit="s", format_detail=_format_censored),
    *_make_interval_columns("area_by_seconds_mean", "area_by_seconds", tables=Tables.NONE),
]

SCORE_COLUMNS: list[Column[StrategySummary]] = [
    *_make_interval_columns(
        "score",
        "score",
        title="score\n(of trials)",
        meaning="Mean over seeds of the score relative to random search in the same space, in log latency, over the "
        "trials shown next to it, with its 95 % interval; it ends where random search itself comes close to the best "
        "known program. Scores in different spaces are not comparable. Without a complete table, a space has scores "
        "only if there are four random draws for each compared trial.",
        is_optional=True,
        marks_best=True,
        format_suffix=lambda row: f" ({row.score_first}-{row.score_trials})" if row.score else "",
        format_detail=lambda row: _format_interval(row.score),
    ),
    Column("score_first", lambda row: row.score_first),
    Column("score_trials", lambda row: row.score_trials),
]

COST_COLUMNS: list[Column[StrategySummary]] = [
    _make_seconds_column("seconds", "total", "seconds"),
    *(_make_seconds_column(f"{part}_seconds", part, part) for part in ("propose", "train", "build", "run")),
    _make_seconds_column("feature_seconds", "features", "incl.\nfeatures"),
    _make_seconds_column("check_seconds", "check", "incl.\ncheck"),
    Column(
        "",
        _format_failures,
        title="failed trials",
        meaning="The failed trials of all runs, by kind.",
        tables=Tables.COSTS,
    ),
    *map(_make_failure_column, FAILURES),
]


def _make_throughput_columns(unit: str) -> list[Column[StrategySummary]]:
    digits = None if unit in VALUES else 1

    def format_quartiles(row: StrategySummary) -> str:
        spread = row.best_gflops.in_unit(unit)
        return f" [{format_number(spread.lower, digits)}, {format_number(spread.upper, digits)}]"

    return [
        Column(
            "best_gflops_median",
            lambda row: row.best_gflops.in_unit(unit).median,
            title=f"{unit}\n[quartiles]",
            meaning="Best throughput: median and quartiles over seeds.",
            unit=unit,
            tables=Tables.RANKINGS,
            digits=digits,
            higher_is_better=True,
            marks_best=True,
            format_suffix=format_quartiles,
        ),
        Column("best_gflops_q1", lambda row: row.best_gflops.in_unit(unit).lower),
        Column("best_gflops_q3", lambda row: row.best_gflops.in_unit(unit).upper),
    ]


def make_strategy_columns(unit: str = "GFLOPS") -> list[Column[StrategySummary]]:
    """Return the columns of strategies on one workload, whose throughput has this unit; see :mod:`searchlab.units`."""
    return [*RUN_COLUMNS, *_make_throughput_columns(unit), *TARGET_COLUMNS, *SCORE_COLUMNS, *COST_COLUMNS]


OVERALL_COLUMNS: list[Column[OverallStrategy]] = [
    *_make_interval_columns(
        "area_mean",
        "area",
        title="mean area",
        meaning="Mean over workloads of the mean area under the curve over seeds, with its 95 % interval for these "
        "workloads.",
        marks_best=True,
    ),
    *_make_interval_columns(
        "score",
        "score",
        title="score",
        meaning="Mean over workloads of the score relative to random search, with its 95 % interval for these "
        "workloads.",
        is_optional=True,
    ),
]
"""The columns of strategies over all workloads."""


def make_rank_column(ranks: Mapping[str, float]) -> Column[Any]:
    """Return the column of each strategy's average rank."""
    return Column(
        "rank",
        lambda row: ranks.get(row.strategy),
        title="average\nrank",
        meaning="The mean rank by area on each workload; 1 if it is best on all.",
        is_optional=True,
        digits=2,
    )


def add_test_columns(table: Table[Row], contrasts: Sequence[Contrast], ranks: Mapping[str, float] = {}) -> Table[Row]:
    """Return the table of strategies, in which the outcomes of tests, and the average ``ranks``, follow the area."""
    names = [row.strategy for row in table.rows]
    verdict_by_strategy = {
        name: judge_contrast(contrast) for name in names if (contrast := find_contrast(contrasts, name, RANDOM_POLICY))
    }
    tested = {name for contrast in contrasts if contrast.adjusted_p is not None for name in contrast.pair}
    ahead = {pair for contrast in contrasts for pair in permutations(contrast.pair) if contrast.is_ahead(*pair)}
    better = {name: [opponent for opponent in names if (name, opponent) in ahead] for name in tested}
    worse = {name: [opponent for opponent in names if (opponent, name) in ahead] for name in tested}
    columns = [
        Column[Row](
            "",
            lambda row: verdict_by_strategy.get(row.strategy),
            title="than\nrandom",
            meaning="Whether it is significantly better or worse than random search.",
            is_optional=True,
        ),
        _make_opponents_column("better", better),
        _make_opponents_column("worse", worse),
        make_rank_column(ranks),
    ]
    return table.insert(1, columns)


def _make_opponents_column(word: str, opponents: Mapping[str, Sequence[str]]) -> Column[Any]:
    """Return the column with the number of strategies than which each strategy is significantly better or worse."""
    return Column(
        "",
        lambda row: len(opponents[row.strategy]) if row.strategy in opponents else None,
        title=f"{word}\nthan",
        meaning=f"The number of strategies than which it is significantly {word}; click it for their names.",
        is_optional=True,
        higher_is_better=word == "better",
        list_names=lambda row: opponents.get(row.strategy, []),
    )
