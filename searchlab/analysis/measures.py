"""The columns of reports, each declared once.

A :class:`Measure` is a number of a strategy, or several that belong together. :class:`StrategySummary` declares those
of a strategy on one workload, :class:`OverallStrategy` those over all workloads. A declaration says what the measure
means, how it follows from the runs, and in which :class:`Column` it stands. The tables of the terminal, the page and
notebooks, the CSV files, ``summary.json`` and the frames of pandas are made from these declarations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, overload

import msgspec
import numpy as np

from ..arrays import Floats
from ..records import FAILURES
from .runs import StrategyRuns
from .stats.curves import area_under_curve, quartiles, trials_to_target
from .stats.intervals import Interval, interquartile_interval, mean_interval, mean_of_means_interval, median_interval
from .stats.targets import anytime, ecdf_area, expected_running_time, penalised_average, seconds_of_hits
from .words import number_text

Source = TypeVar("Source")
V = TypeVar("V")

TRIALS, SECONDS, AREA = "trials_to_target", "seconds_to_target", "area"
"""Names of the measures that strategies are compared by."""


class Shown(Flag):
    """The tables for people that have a column. Every column with a name is in the CSV files and frames, too.

    Attributes:
        TERMINAL: The ranking in the terminal and in notebooks.
        COSTS: The table of costs in the terminal.
        PAGE: The ranking on the page.
    """

    NOWHERE = 0
    TERMINAL = auto()
    COSTS = auto()
    PAGE = auto()
    TABLES = TERMINAL | PAGE


def at(value: Any, path: str | Callable[[Any], Any]) -> Any:
    """What is at ``path`` from ``value``, such as "difference.value"; None where something on the way is None.

    ``path`` may also be a function of ``value``.
    """
    if callable(path):
        return path(value)
    for name in filter(None, path.split(".")):
        value = None if value is None else value[name] if isinstance(value, dict) else getattr(value, name)
    return value


@dataclass(frozen=True)
class Column:
    """A column of tables.

    Attributes:
        name: Of the column in CSV files and frames; empty where they do not have it.
        title: The head in tables for people, in lines as the terminal has them. ``{unit}``, ``{goal}`` and
            ``{cutoffs}`` are filled in.
        shown: The tables for people that have the column.
        digits: Digits after the point in tables for people; None for three significant digits.
        of: Where the number, or text, is in the value of the measure, as :func:`at` takes it; or a function of it.
        best: Whether the highest or the lowest number is bold, ``max`` or ``min``.
        beside: A text beside the number, of the value of the measure and the row.
        detail: A text beside these two that only the page has, of the value of the measure.
        missing: What the page says in place of a number that is None, other than a dash.
        meaning: What the number means, where the meaning of its measure does not say it.
        if_differs: Whether tables for people leave the column out where all rows have the same number.
    """

    name: str
    title: str = ""
    shown: Shown = Shown.NOWHERE
    digits: int | None = None
    of: str | Callable[[Any], Any] = ""
    best: Callable[[Sequence[float]], float] | None = None
    beside: Callable[[Any, Any], str] | None = None
    detail: Callable[[Any], str] | None = None
    missing: str = ""
    meaning: str = ""
    if_differs: bool = False

    def number(self, value: Any) -> Any:
        """What the column has of the value of its measure: a number, a text, or None."""
        return None if value is None else at(value, self.of)

    def text(self, number: Any) -> str:
        """What people read for a number or a text, which is not None."""
        return number if isinstance(number, str) else number_text(number, self.digits)


class Measure(Generic[Source, V]):
    """One entry of a report: an attribute of the rows that declare it, and a key of their JSON.

    Args:
        meaning: What it is, in one sentence.
        of: Computes it from the runs.
        columns: Where it stands in tables; none for a measure that only ``summary.json`` has.
        unit: Of its numbers.
        compared_by: What a report calls it where strategies are compared by it; empty where they are not. Such a
            measure has a number for each seed, ``by_seed``.
        better: Whether higher or lower numbers are better, ``max`` or ``min``.
    """

    def __init__(
        self,
        meaning: str,
        of: Callable[[Source], V],
        *columns: Column,
        unit: str = "",
        compared_by: str = "",
        better: Callable[..., float] = min,
    ) -> None:
        self.meaning, self.of, self.columns = meaning, of, columns
        self.unit, self.compared_by, self.better = unit, compared_by, better
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
    """A strategy, and the value of each measure that the class declares.

    Attributes:
        strategy: The name of the strategy.
        values: The value of each measure, by name, in the order of the declarations.
    """

    measures: ClassVar[dict[str, Measure[Any, Any]]]

    def __init_subclass__(cls) -> None:
        cls.measures = {name: one for name, one in vars(cls).items() if isinstance(one, Measure)}

    def __init__(self, strategy: str, source: Any) -> None:
        self.strategy = strategy
        self.values: dict[str, Any] = {name: measure.of(source) for name, measure in self.measures.items()}

    @classmethod
    def columns(cls) -> Iterator[tuple[Measure[Any, Any], Column]]:
        """Each column in order, with the measure that it belongs to."""
        return ((measure, column) for measure in cls.measures.values() for column in measure.columns)

    @classmethod
    def names(cls) -> list[str]:
        """The names of the columns in CSV files and frames."""
        return [column.name for _, column in cls.columns() if column.name]

    @property
    def cells(self) -> list[Any]:
        """What stands under :meth:`names`."""
        return [column.number(self.values[measure.name]) for measure, column in self.columns() if column.name]

    def to_json(self) -> dict[str, Any]:
        return {"strategy": self.strategy, **self.values}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.strategy}>"


class Cell(NamedTuple):
    """What a table for people has of a number: its text, the texts beside it, and whether it is the best."""

    text: str
    beside: str = ""
    detail: str = ""
    missing: str = ""
    best: bool = False


class Head(NamedTuple):
    """The head of a column. words: whether it has texts in place of numbers."""

    title: str
    meaning: str = ""
    unit: str = ""
    words: bool = False


class Table(NamedTuple):
    """Columns as people read them. rows: of each strategy its name and a cell for each head."""

    heads: list[Head]
    rows: list[tuple[str, list[Cell]]]


def table(rows: Sequence[Row], shown: Shown, **words: str) -> Table:
    """The columns of ``rows`` that the table ``shown`` has.

    A column whose measure is None in every row is left out.

    Args:
        rows: Of one class.
        shown: One of the tables.
        words: What is filled into titles.
    """
    heads: list[Head] = []
    columns: list[list[Cell]] = []
    for measure, column in type(rows[0]).columns() if rows else ():
        values = [row.values[measure.name] for row in rows]
        if not column.shown & shown or all(value is None for value in values):
            continue
        numbers = [column.number(value) for value in values]
        if column.if_differs and len(set(numbers)) == 1:
            continue
        known = [number for number in numbers if number is not None]
        best = column.best(known) if column.best and known and len(rows) > 1 else None
        are_words = any(isinstance(number, str) for number in known)
        heads.append(Head(column.title.format(**words), column.meaning or measure.meaning, measure.unit, are_words))
        columns.append(
            [
                Cell(
                    "-" if number is None else column.text(number),
                    column.beside(value, row) if column.beside and value is not None else "",
                    column.detail(value) if column.detail and value is not None else "",
                    column.missing if number is None else "",
                    best is not None and number == best,
                )
                for row, value, number in zip(rows, values, numbers, strict=True)
            ]
        )
    return Table(heads, [(row.strategy, [cells[place] for cells in columns]) for place, row in enumerate(rows)])


class Spread(msgspec.Struct, frozen=True):
    """A number for every seed, in the order of the seeds, with their median and quartiles."""

    median: float
    lower: float
    upper: float
    by_seed: list[float]

    @classmethod
    def of(cls, values: list[float]) -> Self:
        lower, middle, upper = quartiles(np.array(values)).tolist()
        return cls(middle, lower, upper, values)


class Reached(msgspec.Struct, frozen=True):
    """What every seed took to reach the target; None for a seed whose run ended before that (censored).

    Attributes:
        reached: The number of seeds that reached the target.
        median: Over all seeds, where a censored seed counts as infinity; None where it is infinite, unless more than
            half of the seeds reached the target.
        lower: The lower end of the 95 % interval of the median; None where it is infinite. See
            :func:`~searchlab.analysis.stats.intervals.median_interval`.
        upper: Its upper end, likewise.
        expected: ERT, see :func:`~searchlab.analysis.stats.targets.expected_running_time`; None where no seed reached
            the target.
        penalised: PAR-10, with the most that any run of the workload had as its budget.
        by_seed: Of each seed, in the order of the seeds.
        note: Why there is no interval; empty where there is one.
    """

    reached: int
    median: float | None
    lower: float | None
    upper: float | None
    expected: float | None
    penalised: float
    by_seed: list[float | None]
    note: str = ""

    @classmethod
    def of(
        cls, values: list[float], spent: list[float], budget: float, interrupted: Sequence[tuple[float, float]] = ()
    ) -> Self:
        """Summarize the seeds.

        Args:
            values: What each seed took, infinity where its run ended before.
            spent: What each run had at its end.
            budget: The budget of PAR-10.
            interrupted: Both of each run that was stopped early. Only ERT counts these, which needs no run to go to
                the same end.
        """
        hits = np.array(values)
        more_hits, more_spent = np.array(interrupted).reshape(-1, 2).T
        interval = median_interval(hits)
        return cls(
            reached=int(np.isfinite(hits).sum()),
            median=_finite(interval.value),
            lower=_finite(interval.lower),
            upper=_finite(interval.upper),
            expected=_finite(expected_running_time(np.append(hits, more_hits), np.append(np.array(spent), more_spent))),
            penalised=penalised_average(hits, budget),
            by_seed=[_finite(value) for value in values],
            note=interval.note,
        )

    @property
    def censored(self) -> str:
        """How many seeds reached the target, in brackets; empty where all did."""
        seeds = len(self.by_seed)
        return "" if self.reached == seeds else f" ({self.reached} of {seeds})"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


class Seconds(msgspec.Struct, frozen=True):
    """Seconds charged, summed over seeds: see :attr:`searchlab.log.format.Log.charged`."""

    total: float
    propose: float
    train: float
    build: float
    run: float


TIME_PARTS = Seconds.__struct_fields__[1:]
"""What the seconds of a run are charged for."""


def _interval_text(interval: Interval | None, digits: int) -> str:
    if interval is None or interval.lower is None or interval.upper is None:
        return ""
    return f" [{number_text(interval.lower, digits)}, {number_text(interval.upper, digits)}]"


def _estimate(name: str, title: str, digits: int, **look: Any) -> tuple[Column, ...]:
    """The columns of an estimate: its value, and the ends of its interval. look: other fields of the first."""
    value = Column(name, title, Shown.TABLES, digits, "value", **look)
    return value, Column(f"{name}_lower", of="lower"), Column(f"{name}_upper", of="upper")


def _hits(runs: StrategyRuns) -> Floats:
    """Trials to the target, infinity where it was not reached: shape (runs,)."""
    return trials_to_target(runs.curves, runs.workload.target)


def _trials_to_target(runs: StrategyRuns) -> Reached:
    spent = [float(min(run.log.trials, runs.horizon)) for run in runs.compared]
    return Reached.of(_hits(runs).tolist(), spent, runs.horizon, _interrupted(runs))


def _seconds_to_target(runs: StrategyRuns) -> Reached:
    seconds = seconds_of_hits(_hits(runs)[:, np.newaxis], runs.elapsed)[:, 0].tolist()
    ends = [np.append(run.elapsed, math.inf) for run in runs.interrupted]
    interrupted = [
        (float(end[int(min(hit, len(end))) - 1]), float(end[int(spent) - 1]))
        for end, (hit, spent) in zip(ends, _interrupted(runs), strict=True)
    ]
    return Reached.of(seconds, runs.elapsed[:, -1].tolist(), runs.workload.longest, interrupted)


def _interrupted(runs: StrategyRuns) -> list[tuple[float, float]]:
    """Of each run that was stopped early: its trials to the target, and all it had."""
    target = runs.workload.target
    return [(float(trials_to_target(run.curve, target)), float(len(run.curve))) for run in runs.interrupted]


def _area(runs: StrategyRuns) -> Spread:
    return Spread.of(area_under_curve(runs.curves, runs.workload.best_gflops, runs.horizon).tolist())


def _anytime(runs: StrategyRuns) -> Spread:
    best = runs.workload.best_gflops
    if not best:
        return Spread.of([0.0] * len(runs.compared))
    return Spread.of(anytime(runs.lowest, runs.workload.flops / best / 1e9).tolist())


def _complete(runs: StrategyRuns) -> bool:
    return all(
        length == runs.trials or (run.log.ended is not None and length < runs.trials)
        for run, length in zip(runs.runs, runs.lengths, strict=True)
    )


def _failures(runs: StrategyRuns) -> dict[str, int]:
    found = np.concatenate([run.log.failures for run in runs.runs])
    return {kind: int((found == number).sum()) for number, kind in enumerate(FAILURES)}


def _seconds(runs: StrategyRuns) -> Seconds:
    parts = [math.fsum(part) for part in np.concatenate([run.log.charged for run in runs.runs]).T.tolist()]
    return Seconds(math.fsum(parts), *parts)


def _failed(failures: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in failures.items() if count) or "none"


def _quartiles(name: str) -> tuple[Column, Column]:
    return Column(f"{name}_q1", of="lower"), Column(f"{name}_q3", of="upper")


def _reached(name: str, title: str, **look: Any) -> tuple[Column, ...]:
    """The columns of a measure up to the target. look: other fields of the first."""
    median = Column(f"{name}_median", title, Shown.TABLES, of="median", best=min, missing="not reached", **look)
    return median, Column(f"{name}_lower", of="lower"), Column(f"{name}_upper", of="upper")


class OnWorkload(Measure[StrategyRuns, V]):
    """A measure of a strategy on one workload."""


class StrategySummary(Row):
    """One strategy on one workload.

    Measures with a number for each seed are over the trials up to the horizon of the workload, of each of ``seeds``;
    failures and seconds are over all that the logs hold.
    """

    space = OnWorkload("The search space.", lambda runs: runs.header.space.name)
    policy = OnWorkload("The policy.", lambda runs: runs.header.policy.name)
    cost_model = OnWorkload(
        "The cost model, if there is one.", lambda runs: runs.header.cost_model.name if runs.header.cost_model else None
    )
    batch = OnWorkload(
        "The configs that the policy was asked for at a time.", lambda runs: runs.header.batch,
        Column("batch", "batch", Shown.TABLES, if_differs=True),
    )  # fmt: skip
    seeds = OnWorkload(
        "The runs that are compared.", lambda runs: [run.seed for run in runs.compared],
        Column("seeds", "seeds", Shown.TABLES, of=len),
    )  # fmt: skip
    interrupted = OnWorkload(
        "The seeds whose runs were stopped before the horizon, and are left out.",
        lambda runs: [run.seed for run in runs.interrupted],
    )
    one_run = OnWorkload(
        "Whether the strategy makes the same run from every seed; then only one is compared, and nothing tests it.",
        lambda runs: runs.one_run,
    )
    trials = OnWorkload(
        "The most trials that at least half of the runs have; a + says that seeds have different numbers.",
        lambda runs: runs.trials,
        Column("trials", "trials", Shown.TABLES, 0, beside=lambda _, row: "" if row.complete else "+"),
    )
    trials_by_seed = OnWorkload("The trials of each run.", lambda runs: runs.lengths)
    complete = OnWorkload(
        "Whether all runs have the same number of trials, but for those that ended by themselves, by their seconds or "
        "for want of a gain.",
        _complete,
        Column("complete"),
    )
    ended = OnWorkload(
        "The number of runs that ended by themselves; they hold their best as long as the others go on.",
        lambda runs: sum(run.log.ended is not None for run in runs.runs),
    )
    best_gflops = OnWorkload(
        "Best throughput: median and quartiles over seeds.",
        lambda runs: Spread.of(runs.curves[:, -1].tolist()),
        Column(
            "best_gflops_median", "{unit}\n[quartiles]", Shown.TABLES, 1, "median", max,
            beside=lambda best, _: f" [{number_text(best.lower, 1)}, {number_text(best.upper, 1)}]",
        ),
        *_quartiles("best_gflops"),
        unit="GFLOPS",
    )  # fmt: skip
    trials_to_target = OnWorkload(
        "Median trials to the target, and how many seeds reached it where not all did.",
        _trials_to_target,
        Column("seeds_that_reached_target", of="reached"),
        *_reached("trials_to_target", "trials\nto {goal}", beside=lambda reached, _: reached.censored),
        Column(
            "trials_ert", "ERT, trials", Shown.PAGE, of="expected",
            meaning="Expected trials to the target with restarts, of all trials of the logs.",
        ),
        Column("trials_par10", of="penalised"),
        unit="trials",
        compared_by="trials to the target",
    )  # fmt: skip
    seconds_to_target = OnWorkload(
        "Median seconds to the target.",
        _seconds_to_target,
        *_reached("seconds_to_target", "seconds\nto {goal}", detail=lambda reached: reached.censored),
        Column("seconds_ert", of="expected"),
        Column("seconds_par10", of="penalised"),
        unit="s",
        compared_by="seconds to the target",
    )
    area = OnWorkload(
        "Area under the convergence curve, as a part of the best known: median over seeds.",
        _area,
        Column("area_median", "area", Shown.TABLES, 3, "median", max),
        *_quartiles("area"),
        compared_by="area under the curve",
        better=max,
    )
    anytime = OnWorkload(
        "Area over the convergence curve on a logarithmic scale (AOCC): median over seeds.",
        _anytime,
        Column("anytime_median", "anytime", Shown.PAGE, 3, "median"),
    )
    ecdf_area = OnWorkload(
        "Area under the ECDF of all (seed, target) pairs.",
        lambda runs: ecdf_area(runs.workload.hits[runs.strategy], runs.horizon),
        Column("ecdf_area"),
    )
    score = OnWorkload(
        "Mean over seeds of the score against random search in the same space, in log latency, over the trials beside "
        "it, with its 95 % interval; it ends where random search itself is nearly there. Scores in different spaces "
        "are not comparable.",
        lambda runs: mean_interval(runs.scores).within(-math.inf, 1) if runs.scores is not None else None,
        *_estimate(
            "score", "score\n(of trials)", 2, best=max, detail=lambda score: _interval_text(score, 2),
            beside=lambda _, row: f" ({row.score_first}-{row.score_trials})",
        ),
    )  # fmt: skip
    score_by_seed = OnWorkload(
        "The score of each seed.", lambda runs: runs.scores.tolist() if runs.scores is not None else None
    )
    score_first = OnWorkload(
        "The first trial of a score.",
        lambda runs: runs.search.first if runs.search else None,
        Column("score_first"),
    )
    score_trials = OnWorkload(
        "The last trial of a score.",
        lambda runs: runs.search.last if runs.search else None,
        Column("score_trials"),
    )
    seconds = OnWorkload(
        "The seconds that all runs were charged.", _seconds,
        Column("seconds", "seconds", Shown.COSTS, of="total"),
        *(Column(f"{part}_seconds", part, Shown.COSTS, of=part) for part in TIME_PARTS),
        unit="s",
    )  # fmt: skip
    failures = OnWorkload(
        "The failed trials of all runs, by kind.", _failures,
        Column("", "failed trials", Shown.COSTS, of=_failed),
        *(Column(kind, of=kind) for kind in FAILURES),
    )  # fmt: skip

    def by_seed(self, name: str) -> dict[int, float]:
        """Seed -> its number in the measure ``name``; infinity where its run did not reach the target."""
        values = self.values[name].by_seed
        return {seed: math.inf if value is None else value for seed, value in zip(self.seeds, values, strict=True)}

    @classmethod
    def compared_by(cls) -> dict[str, str]:
        """The measures that strategies are compared by: their names, and what a report calls them."""
        return {name: measure.compared_by for name, measure in cls.measures.items() if measure.compared_by}


class OverAll(Measure[Sequence[StrategySummary], V]):
    """A measure of a strategy over all workloads, from its summary on each; only seeds vary in its interval."""


def _score_over_all(rows: Sequence[StrategySummary]) -> Interval | None:
    scores = [np.array(row.score_by_seed) for row in rows if row.score_by_seed is not None]
    return mean_of_means_interval(scores).within(-math.inf, 1) if len(scores) == len(rows) else None


class OverallStrategy(Row):
    """One strategy over all workloads."""

    area = OverAll(
        "Interquartile mean of the area under the curve, with its 95 % interval for these workloads.",
        lambda rows: interquartile_interval([np.array(row.area.by_seed) for row in rows]).within(0, 1),
        *_estimate(
            "area_iqm", "area (IQM)", 3, beside=lambda area, _: _interval_text(area, 3)
        ),
    )  # fmt: skip
    score = OverAll(
        "Mean over workloads of the score against random search, with its 95 % interval for these workloads.",
        _score_over_all,
        *_estimate(
            "score", "score, trials\n{cutoffs}", 3, beside=lambda score, _: _interval_text(score, 3)
        ),
    )  # fmt: skip
    ecdf_area = OverAll(
        "Mean over workloads of the area under the ECDF of all (seed, target) pairs.",
        lambda rows: float(np.mean([row.ecdf_area for row in rows])),
        Column("ecdf_area", "ECDF area", Shown.PAGE, 2),
    )
