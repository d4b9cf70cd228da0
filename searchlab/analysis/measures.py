"""The measures in reports, and the columns that show them. Each is declared once.

A :class:`Measure` is a number, or several related numbers, describing a strategy. :class:`StrategySummary` declares the
measures for one workload, and :class:`OverallStrategy` declares the measures over all workloads. A declaration consists
of the measure's meaning, a function that computes it from the runs, and its :class:`Column` objects. All output is
derived from these declarations: tables, CSV files, ``summary.json`` and pandas frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, overload

import msgspec
import numpy as np

from ..arrays import Floats
from ..records import FAILURES
from ..stats.curves import (
    area_over_seconds,
    area_under_curve,
    hitting_times,
    quartiles,
    seconds_of_hits,
)
from ..stats.intervals import DECIMALS, Interval, mean_interval, mean_of_means_interval, median_interval
from ..units import VALUES, convert_throughput
from .runs import StrategyRuns
from .words import number_text

Source = TypeVar("Source")
V = TypeVar("V")

TRIALS, SECONDS, AREA = "trials_to_target", "seconds_to_target", "area"
"""The names of the measures by which strategies are compared."""


class Tables(Flag):
    """The human-readable tables in which a column appears. CSV files and frames contain every column with a name."""

    NONE = 0
    TERMINAL = auto()  # the ranking in the terminal and in notebooks
    COSTS = auto()  # the table of costs in the terminal
    PAGE = auto()  # the ranking on the page
    RANKINGS = TERMINAL | PAGE


@dataclass(frozen=True)
class Column:
    """A column in tables."""

    name: str  # in CSV files and frames; if empty, the column is omitted from them
    title: str = ""  # heading in human-readable tables; {unit} and {goal} are filled in
    tables: Tables = Tables.NONE
    digits: int | None = None  # decimal places in human-readable tables; None for three significant digits
    path: str | Callable[[Any], Any] = ""  # the attribute or item of the measure's value to show, or a function of it
    best: Callable[[Sequence[float]], float] | None = None  # max or min, to select the number that is shown in bold
    suffix: Callable[[Any, Any], str] | None = None  # returns text to show after the number, given the value and row
    detail: Callable[[Any], str] | None = None  # returns further text, given the value; shown only on the page
    none_text: str = ""  # text that the page shows instead of None; if empty, a dash

    def number(self, value: Any) -> Any:
        """Return the column's number or text, given the measure's value."""
        if value is None or not self.path:
            return value
        if callable(self.path):
            return self.path(value)
        return value[self.path] if isinstance(value, dict) else getattr(value, self.path)

    def text(self, number: Any) -> str:
        return number if isinstance(number, str) else number_text(number, self.digits)


class Measure(Generic[Source, V]):
    """A measure in a report, declared as an attribute of a class of rows. It is also a key in the JSON of these rows.

    Args:
        meaning: A one-sentence definition.
        compute: A function that computes the measure from the runs.
        *columns: The measure's columns; none if the measure appears only in ``summary.json``.
        unit: The unit of the numbers.
        better: ``max`` if higher numbers are better, or ``min`` if lower numbers are.
    """

    def __init__(
        self,
        meaning: str,
        compute: Callable[[Source], V],
        *columns: Column,
        unit: str = "",
        better: Callable[..., float] = min,
    ) -> None:
        self.meaning, self.compute, self.columns = meaning, compute, columns
        self.unit, self.better = unit, better
        self.name = ""

    def __set_name__(self, owner: type[Row], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, row: None, owner: type[Row]) -> Self: ...
    @overload
    def __get__(self, row: Row, owner: type[Row]) -> V: ...
    def __get__(self, row: Row | None, owner: type[Row]) -> Self | V:
        if row is None:
            return self
        value: V = row.values[self.name]
        return value


class Row:
    """A strategy, with the values of the measures that the class declares, in the order of declaration."""

    measures: ClassVar[dict[str, Measure[Any, Any]]]

    def __init_subclass__(cls) -> None:
        cls.measures = {name: measure for name, measure in vars(cls).items() if isinstance(measure, Measure)}

    def __init__(self, strategy: str, source: Any) -> None:
        self.strategy = strategy
        self.values: dict[str, Any] = {name: measure.compute(source) for name, measure in self.measures.items()}

    @classmethod
    def columns(cls) -> Iterator[tuple[Measure[Any, Any], Column]]:
        """Iterate over all columns, each with its measure."""
        return ((measure, column) for measure in cls.measures.values() for column in measure.columns)

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of the columns in CSV files and frames."""
        return [column.name for _, column in cls.columns() if column.name]

    @property
    def cells(self) -> list[Any]:
        """The values of the columns in :meth:`names`."""
        return [column.number(self.values[measure.name]) for measure, column in self.columns() if column.name]

    def to_json(self) -> dict[str, Any]:
        """Return all values except the protocol and those of each seed, which are those of the runs."""
        plain = {
            name: msgspec.to_builtins(value)
            for name, value in self.values.items()
            if name not in ("footing", "score_by_seed")
        }
        for value in plain.values():
            if isinstance(value, dict):
                value.pop("by_seed", None)
        return {"strategy": self.strategy} | plain

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and (self.strategy, self.values) == (other.strategy, other.values)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.strategy}>"


class Cell(NamedTuple):
    """A cell in a human-readable table: its number as text, the texts next to it, and whether it is the best."""

    text: str
    suffix: str = ""
    detail: str = ""
    none_text: str = ""
    best: bool = False
    names: str = ""  # the strategies that the number counts; shown only on the page


class Head(NamedTuple):
    """The heading of a column."""

    title: str
    meaning: str = ""
    unit: str = ""
    is_text: bool = False  # whether the column contains text instead of numbers
    higher_is_better: bool = False


class Table(NamedTuple):
    """A human-readable table."""

    heads: list[Head]
    rows: list[tuple[str, list[Cell]]]  # each strategy's name, and a cell for each heading

    @property
    def texts(self) -> tuple[list[str], list[list[str]]]:
        """The headings and the rows as texts, beginning with the strategies."""
        heads = ["strategy", *(head.title.replace("\n", " ") for head in self.heads)]
        return heads, [[name, *(cell.text + cell.suffix for cell in cells)] for name, cells in self.rows]

    def insert(self, position: int, columns: Mapping[Head, Mapping[str, Cell]]) -> Table:
        """Return the table with further columns, which contain the cells of each strategy, or a dash without any."""
        heads = [*self.heads[:position], *columns, *self.heads[position:]]
        rows = [
            (
                name,
                [*cells[:position], *(column.get(name, Cell("-")) for column in columns.values()), *cells[position:]],
            )
            for name, cells in self.rows
        ]
        return Table(heads, rows)


def make_table(rows: Sequence[Row], tables: Tables, **words: str) -> Table:
    """Return the human-readable table that ``tables`` selects for ``rows``, which must all have the same class.

    ``words`` are inserted into the column titles. Columns whose measure is None in every row are omitted.
    """
    heads: list[Head] = []
    columns: list[list[Cell]] = []
    for measure, column in type(rows[0]).columns() if rows else ():
        values = [row.values[measure.name] for row in rows]
        if not column.tables & tables or all(value is None for value in values):
            continue
        if isinstance(values[0], Spread) and words.get("unit") in VALUES:
            values = [value.in_unit(words["unit"]) for value in values]
            column = replace(column, digits=None, suffix=_quartiles_text(None))
        cells = _cells(column, rows, values)
        is_text = any(isinstance(column.number(value), str) for value in values)
        unit = measure.unit.replace("GFLOPS", words.get("unit", "GFLOPS"))
        heads.append(Head(column.title.format(**words), measure.meaning, unit, is_text, measure.better is max))
        columns.append(cells)
    return Table(heads, [(row.strategy, [cells[index] for cells in columns]) for index, row in enumerate(rows)])


def _cells(column: Column, rows: Sequence[Row], values: Sequence[Any]) -> list[Cell]:
    """Return a cell for each row, given the value of the column's measure in each."""
    numbers = [column.number(value) for value in values]
    defined = [number for number in numbers if number is not None]
    best = column.best(defined) if column.best and defined and len(rows) > 1 else None
    return [
        Cell(
            text="-" if number is None else column.text(number),
            suffix=column.suffix(value, row) if column.suffix and value is not None else "",
            detail=column.detail(value) if column.detail and value is not None else "",
            none_text=column.none_text if number is None else "",
            best=best is not None and number == best,
        )
        for row, value, number in zip(rows, values, numbers, strict=True)
    ]


class Spread(msgspec.Struct, frozen=True):
    """The numbers for all seeds, in the order of the seeds, with their median and quartiles."""

    median: float
    lower: float
    upper: float
    by_seed: list[float]

    @classmethod
    def from_values(cls, values: list[float]) -> Self:
        lower, middle, upper = quartiles(np.array(values)).tolist()
        return cls(middle, lower, upper, values)

    def in_unit(self, unit: str) -> Self:
        """Convert throughputs in GFLOPS to ``unit``; see :mod:`searchlab.units`."""
        return self.from_values(convert_throughput(np.array(self.by_seed), unit).tolist())


@dataclass(frozen=True)
class SeedMean(Interval):
    """The mean over seeds with its 95 % interval, and the numbers for all seeds in the order of the seeds."""

    by_seed: list[float] = field(default_factory=list)

    @classmethod
    def from_values(cls, values: Floats) -> Self:
        mean = mean_interval(values).clip(0, 1)
        return cls(mean.value, mean.lower, mean.upper, mean.note, values.tolist())


class TargetTimes(msgspec.Struct, frozen=True):
    """The trials or seconds that runs needed to reach the target. None stands for infinity, as for censored runs."""

    reached: int  # number of seeds that reached the target
    median: float | None  # over all seeds
    lower: float | None  # see median_interval
    upper: float | None
    by_seed: list[float | None]  # None if the run ended before it reached the target (censored)

    @classmethod
    def from_values(cls, values: Floats) -> Self:
        interval = median_interval(values)
        median, lower, upper = map(_finite, (interval.value, interval.lower, interval.upper))
        return cls(int(np.isfinite(values).sum()), median, lower, upper, list(map(_finite, values.tolist())))

    @property
    def censored(self) -> str:
        """The number of seeds that reached the target, such as " (3 of 5)", or an empty string if all did."""
        seeds = len(self.by_seed)
        return "" if self.reached == seeds else f" ({self.reached} of {seeds})"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


class Seconds(msgspec.Struct, frozen=True):
    """The seconds charged to the runs, summed over seeds; see :attr:`searchlab.log.format.Log.charged`.

    Those of a part are None if there are none, as where they were not recorded.
    """

    total: float | None
    propose: float | None
    train: float | None
    build: float | None
    run: float | None
    features: float | None
    check: float | None


TIME_PARTS = ("propose", "train", "build", "run")
"""The parts whose sum is the total. Features are a part of the first two, and checking is a part of the last."""


def _interval_text(interval: Interval, _: Any = None) -> str:
    """Format an interval as " [0.912, 0.934]". Returns an empty string if there is no interval."""
    return f" {interval.brackets()}".rstrip()


def _quartiles_text(digits: int | None) -> Callable[[Spread, Any], str]:
    return lambda spread, _: f" [{number_text(spread.lower, digits)}, {number_text(spread.upper, digits)}]"


def _estimate(name: str, title: str = "", digits: int | None = None, **fields: Any) -> tuple[Column, ...]:
    """Return columns for an estimate, in tables only if it has a ``title``, and for the ends of its interval."""
    value = Column(name, title, Tables.RANKINGS if title else Tables.NONE, digits, "value", **fields)
    return value, *_ends(name)


def _to_target(runs: StrategyRuns, *, seconds: bool) -> TargetTimes:
    """Summarise the trials, or the ``seconds``, that runs needed to reach the target."""
    hits = hitting_times(runs.curves, runs.workload.target)
    return TargetTimes.from_values(seconds_of_hits(hits, runs.elapsed) if seconds else hits)


def _area(runs: StrategyRuns) -> SeedMean:
    """Return the area over the trials or seconds by which strategies are compared."""
    by_seconds = _area_by_seconds(runs) if runs.workload.by_seconds else None
    return by_seconds or SeedMean.from_values(area_under_curve(runs.curves, runs.workload.best_gflops))


def _area_by_seconds(runs: StrategyRuns) -> SeedMean | None:
    seconds, best = runs.workload.seconds_horizon, runs.workload.best_gflops
    return SeedMean.from_values(area_over_seconds(runs.curves, runs.elapsed, seconds, best)) if seconds else None


def _complete(runs: StrategyRuns) -> bool:
    return all(run.log.trials == runs.trials or (run.end_reason and run.log.trials < runs.trials) for run in runs.runs)


def _failures(runs: StrategyRuns) -> dict[str, int]:
    failures = np.concatenate([run.log.failures for run in runs.runs])
    return {kind: int((failures == number).sum()) for number, kind in enumerate(FAILURES)}


def _seconds(runs: StrategyRuns) -> Seconds:
    charged, parts = (np.concatenate([getattr(run.log, name) for run in runs.runs]).T for name in ("charged", "parts"))
    sums = map(math.fsum, (charged.ravel().tolist(), *charged.tolist(), *parts.tolist()))
    return Seconds(*(seconds or None for seconds in sums))


def _failures_text(failures: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in failures.items() if count) or "none"


def _ends(name: str, lower: str = "lower", upper: str = "upper") -> tuple[Column, Column]:
    return Column(f"{name}_{lower}", path="lower"), Column(f"{name}_{upper}", path="upper")


def _target_columns(name: str, title: str, **fields: Any) -> tuple[Column, ...]:
    """Return the columns of a measure of type :class:`TargetTimes`; ``fields`` are further ones of the first column."""
    median = Column(
        f"{name}_median", title, Tables.RANKINGS, path="median", best=min, none_text="not reached", **fields
    )
    return median, *_ends(name)


class OnWorkload(Measure[StrategyRuns, V]):
    """A measure of a strategy on one workload."""


class StrategySummary(Row):
    """The measures of one strategy on one workload.

    Measures with a number for each seed cover the runs with these ``seeds``, up to the workload's horizon. Failures and
    seconds cover all trials in the logs.
    """

    space = OnWorkload("The search space.", lambda runs: runs.header.space.name)
    policy = OnWorkload("The policy.", lambda runs: runs.header.policy.name)
    cost_model = OnWorkload(
        "The cost model, if there is one.", lambda runs: runs.header.cost_model.name if runs.header.cost_model else None
    )
    batch = OnWorkload(
        "The number of configs that the policy proposes at once.", lambda runs: runs.header.batch, Column("batch")
    )
    seeds = OnWorkload(
        "The seeds of the runs that are compared: those that all strategies have.",
        lambda runs: [run.seed for run in runs.compared_runs],
        Column("seeds", "seeds", Tables.TERMINAL, path=len),
    )
    interrupted = OnWorkload(
        "The seeds whose runs were stopped before the horizon and are not compared.",
        lambda runs: [run.seed for run in runs.interrupted_runs],
    )
    one_run = OnWorkload(
        "Whether every seed yields the same run, which does not show how runs vary, so that there is no test.",
        lambda runs: runs.is_deterministic,
    )
    footing = OnWorkload(
        "The target and the protocol with which programs were measured.",
        lambda runs: {"target": runs.header.target, "measure": runs.header.measure},
    )
    trials = OnWorkload(
        "The largest number of trials that at least half of the runs have; a + means that the numbers differ.",
        lambda runs: runs.trials,
        Column("trials", "trials", Tables.TERMINAL, 0, suffix=lambda _, row: "" if row.complete else "+"),
    )
    trials_by_seed = OnWorkload("The number of trials of each run.", lambda runs: runs.lengths)
    complete = OnWorkload(
        "Whether all runs have the same number of trials, except those that ended by themselves, at their limit in "
        "seconds, or without a gain.",
        _complete,
        Column("complete"),
    )
    ended = OnWorkload(
        "The number of runs that ended by themselves; they keep their best while the others continue.",
        lambda runs: sum(bool(run.end_reason) for run in runs.runs),
    )
    area = OnWorkload(
        "Area under the convergence curve, as a fraction of the best known, over trials or, if seconds limit the runs, "
        "over seconds: mean over seeds, with its 95 % interval.",
        _area,
        *_estimate("area_mean", "mean area", 3, best=max, suffix=_interval_text),
        better=max,
    )
    best_gflops = OnWorkload(
        "Best throughput: median and quartiles over seeds.",
        lambda runs: Spread.from_values(runs.curves[:, -1].tolist()),
        Column(
            "best_gflops_median",
            "{unit}\n[quartiles]",
            Tables.RANKINGS,
            1,
            "median",
            max,
            suffix=_quartiles_text(1),
        ),
        *_ends("best_gflops", "q1", "q3"),
        unit="GFLOPS",
        better=max,
    )
    trials_to_target = OnWorkload(
        "Median trials to the target, and how many seeds reached it if not all did.",
        partial(_to_target, seconds=False),
        Column("seeds_that_reached_target", path="reached"),
        *_target_columns("trials_to_target", "trials\nto {goal}", suffix=lambda times, _: times.censored),
        unit="trials",
    )
    seconds_to_target = OnWorkload(
        "Median seconds to the target.",
        partial(_to_target, seconds=True),
        *_target_columns("seconds_to_target", "seconds\nto {goal}", detail=lambda times: times.censored),
        unit="s",
    )
    area_by_seconds = OnWorkload(
        "Area under the convergence curve over charged seconds instead of trials, up to the seconds that every run "
        "covers: mean over seeds, with its 95 % interval.",
        _area_by_seconds,
        *_estimate("area_by_seconds_mean"),
        better=max,
    )
    score = OnWorkload(
        "Mean over seeds of the score relative to random search in the same space, in log latency, over the trials "
        "shown next to it, with its 95 % interval; it ends where random search itself comes close to the best known "
        "program. Scores in different spaces are not comparable. Without a complete table, a space has scores only if "
        "there are four random draws for each compared trial.",
        lambda runs: mean_interval(runs.scores).clip(-math.inf, 1) if runs.scores is not None else None,
        *_estimate(
            "score",
            "score\n(of trials)",
            3,
            best=max,
            detail=_interval_text,
            suffix=lambda _, row: f" ({row.score_first}-{row.score_trials})",
        ),
        better=max,
    )
    score_by_seed = OnWorkload(
        "The score of each seed.", lambda runs: runs.scores.tolist() if runs.scores is not None else None
    )
    score_first = OnWorkload(
        "The first trial of a score.", lambda runs: runs.search.first if runs.search else None, Column("score_first")
    )
    score_trials = OnWorkload(
        "The last trial of a score.", lambda runs: runs.search.last if runs.search else None, Column("score_trials")
    )
    seconds = OnWorkload(
        "The seconds counted for all runs.",
        _seconds,
        Column("seconds", "seconds", Tables.COSTS, path="total"),
        *(Column(f"{part}_seconds", part, Tables.COSTS, path=part) for part in TIME_PARTS),
        Column("feature_seconds", "incl.\nfeatures", Tables.COSTS, path="features"),
        Column("check_seconds", "incl.\ncheck", Tables.COSTS, path="check"),
        unit="s",
    )
    failures = OnWorkload(
        "The failed trials of all runs, by kind.",
        _failures,
        Column("", "failed trials", Tables.COSTS, path=_failures_text),
        *(Column(kind, path=kind) for kind in FAILURES),
    )

    def by_seed(self, name: str) -> dict[int, float]:
        """Return the value of the measure ``name`` for each seed, or infinity if its run did not reach the target."""
        return values_by_seed(self.seeds, self.values[name])


def values_by_seed(seeds: Sequence[int], value: Any) -> dict[int, float]:
    """Return the ``value`` of a measure for each seed, or infinity if its run did not reach the target."""
    return {seed: math.inf if number is None else number for seed, number in zip(seeds, value.by_seed, strict=True)}


class OverAll(Measure[Sequence[StrategySummary], V]):
    """A measure over all workloads, computed from the summary of each. Its intervals reflect only variation by seed."""


def _score_over_all(rows: Sequence[StrategySummary]) -> Interval | None:
    scores = [np.array(row.score_by_seed) for row in rows if row.score_by_seed is not None]
    return mean_of_means_interval(scores).clip(-math.inf, 1) if len(scores) == len(rows) else None


class OverallStrategy(Row):
    """The measures of one strategy over all workloads."""

    area = OverAll(
        "Mean over workloads of the mean area under the curve over seeds, with its 95 % interval for these workloads.",
        lambda rows: mean_of_means_interval([np.array(row.area.by_seed) for row in rows]).clip(0, 1),
        *_estimate("area_mean", "mean area", 3, best=max, suffix=_interval_text),
        better=max,
    )
    score = OverAll(
        "Mean over workloads of the score relative to random search, with its 95 % interval for these workloads.",
        _score_over_all,
        *_estimate("score", "score", 3, suffix=_interval_text),
        better=max,
    )


R = TypeVar("R", StrategySummary, OverallStrategy)


def sort_by_area(rows: Iterable[R]) -> list[R]:
    """Sort strategies by mean area under the curve, largest first, then by name."""
    return sorted(rows, key=lambda row: (-round(row.area.value, DECIMALS), row.strategy))


def rank_over_all(workloads: Sequence[Mapping[str, StrategySummary]]) -> list[OverallStrategy]:
    """Return the strategies that ran on every workload, sorted by mean area.

    Args:
        workloads: The strategies on each workload, by name.
    """
    names = set.intersection(*map(set, workloads)) if workloads else set()
    return sort_by_area(OverallStrategy(name, [rows[name] for rows in workloads]) for name in names)
