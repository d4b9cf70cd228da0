"""The charts of a report as plain numbers, computed once for its page, its pictures and its files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from ...arrays import Floats, Ints
from ...log.columns import METRICS as FIELDS
from ...records import FAILURES
from ..measures import SECONDS, TIME_PARTS, TRIALS, StrategySummary
from ..model import Overall, Summary, WorkloadSummary
from ..runs import ComparedRuns, LoggedRun, StrategyRuns, WorkloadRuns, strategy_order
from ..stats.aggregates import performance_profile, run_score_profile
from ..stats.curves import Band, band_at
from ..stats.intervals import mean_intervals
from ..stats.targets import ecdf
from ..words import listed

BY_TRIALS, BY_SECONDS = "trials", "seconds"
"""Keys of the views of a figure against trials, and against seconds."""

AXES = ((BY_TRIALS, "trials"), (BY_SECONDS, "seconds of search and measurement"))
"""Those views with the labels of their x axes."""

POINTS = 200
"""Most points of a line. The line of a longer run is sampled at this many places."""

LOG_FROM = 100.0
"""Ratio of the last x to the first from which a logarithmic axis is the more readable."""

_ESTIMATES = 40  # most trials of a score at which its interval is found


class Series(msgspec.Struct, frozen=True):
    """The line of one strategy: ``y`` at each ``x`` of the view, None where there is no line; and its band, if any."""

    strategy: str
    y: Sequence[float | None]
    lower: Sequence[float | None] | None = None
    upper: Sequence[float | None] | None = None


class Level(msgspec.Struct, frozen=True):
    """A horizontal line and its name."""

    y: float
    name: str


class Shade(msgspec.Struct, frozen=True):
    """A stretch of the x axis from its beginning to ``end``, and its name."""

    end: float
    name: str


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One way to draw a figure: ``x`` is common to its lines. label: of the x axis. name: of its button."""

    key: str
    name: str
    label: str
    x: list[float]
    series: list[Series]
    quantity: str
    levels: list[Level] = []
    bottom: float | None = None
    top: float | None = None
    """bottom, top: bounds of the y axis, None to fit the lines. In pictures 0 is always on the axis."""
    shade: Shade | None = None

    @property
    def log(self) -> bool:
        return len(self.x) > 1 and self.x[0] > 0 and self.x[-1] / self.x[0] >= LOG_FROM


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A chart. brief: the line under the title of its picture. says: how to read the chart.

    step: whether lines are constant between points. digits: after the point. ends: whether the place where a line ends
    means something.
    """

    key: str
    title: str
    brief: str
    says: str
    views: list[View]
    step: bool = True
    digits: int = 2
    ends: bool = True


def places(last: int, most: int) -> list[int]:
    """1, ... ``last``; or ``most`` of them at most, closer together at the start, where lines rise."""
    if last <= most:
        return list(range(1, last + 1))
    return sorted({round(place) for place in np.geomspace(1, last, most).tolist()})


def eventful(changes: Ints, most: int) -> list[int]:
    """At most ``most`` + 2 places: the first, the last, and those where most happens.

    changes: how many lines change at each place. All places with a change are taken if there are no more than ``most``.
    Else the changes are divided into ``most`` stretches of about equal number, and the place with the most changes is
    taken from each.
    """
    places = np.flatnonzero(changes)
    if len(places) > most:
        counts = changes[places]
        stretch = (np.cumsum(counts) - counts) * most // counts.sum()
        order = np.lexsort((places, -counts, stretch))
        places = places[order[np.unique(stretch[order], return_index=True)[1]]]
    return sorted({0, len(changes) - 1, *places.tolist()})


def seconds_grid(first: float, last: float) -> Floats:
    """Places from ``first`` to ``last`` seconds, in equal steps or, where these are far apart, in equal ratios."""
    if first > 0 and last / first >= LOG_FROM:
        return np.geomspace(first, last, POINTS)
    return np.linspace(first, last, POINTS) if last > first else np.array([first])


def short(value: float) -> float:
    """With four significant digits."""
    return float(f"{value:.4g}")


def shorten(values: Floats) -> list[float]:
    every = values.tolist()
    shortened = {value: short(value) for value in set(every)}  # few: lines have steps
    return [shortened[value] for value in every]


@dataclass(frozen=True)
class Metric:
    """A field of :class:`~searchlab.costmodel.quality.ModelQuality`. guess: its value by guessing; top: the largest."""

    field: str
    name: str
    guess: float | None = None
    top: float | None = None


METRICS = (
    Metric("pairwise_accuracy", "pairwise accuracy", guess=0.5, top=1.0),
    Metric("kendall_tau", "Kendall's tau", guess=0.0, top=1.0),
    Metric("top_k_recall", "top-k recall", top=1.0),
    Metric("peak_score", "peak score", top=1.0),
    Metric("rmse", "RMSE"),
)


def workload_figures(item: WorkloadSummary, runs: WorkloadRuns) -> list[Figure]:
    """The charts of one workload, as far as its logs have the numbers for them; none while no run has a trial."""
    if not item.strategies:
        return []
    figures = [_convergence(item, runs), _scores(item, runs), _ecdf(item, runs), _models(item, runs)]
    return [figure for figure in figures if figure is not None]


def band_of(group: StrategyRuns, axis: str) -> Band:
    """Best GFLOPS so far of one strategy, against trials or seconds: a key of :data:`~.figures.AXES`."""
    return group.band_over_trials if axis == BY_TRIALS else group.band_over_seconds


def _sampled(strategy: str, band: Band, at: Floats) -> Series:
    """``band`` at each of ``at``, ascending: None before it begins and after it has ended."""
    first, last = np.searchsorted(at, band.x[[0, -1]]).tolist()  # of ``at``, to show its first value and its last
    place = np.searchsorted(band.x, at[first : last + 1], side="right") - 1

    def values(edge: Floats) -> list[float | None]:
        return [*[None] * first, *shorten(edge[place]), *[None] * (len(at) - first - len(place))]

    return Series(strategy, values(band.median), values(band.lower), values(band.upper))


def _steps(bands: Iterable[Band], last: float) -> Floats:
    """Where bands change, up to ``last``: all places or, if these are many, those where most happens."""
    steps, ends = [], []
    for band in bands:
        edges = np.stack((band.lower, band.median, band.upper))
        steps.append(band.x[np.r_[True, (np.diff(edges) != 0).any(axis=0)]])
        ends.append(min(float(band.x[-1]), last))
    x, changes = np.unique(np.concatenate([*steps, ends]), return_counts=True)
    within = x <= last
    x = x[within]
    return np.union1d(x[eventful(changes[within], POINTS)], ends)


def _convergence(item: WorkloadSummary, runs: WorkloadRuns) -> Figure:
    levels, best = [], item.best.gflops if item.best else 0.0
    if best and item.target_gflops:
        goal = f"{100 * item.target_gflops / best:.0f} % of the best known"
        levels = [Level(short(best), f"best known {best:.1f}"), Level(short(item.target_gflops), goal)]
    views = []
    start, sharing = runs.shared_start
    for key, label in AXES:
        bands = {row.strategy: band_of(runs.strategies[row.strategy], key) for row in item.strategies}
        by_trials = key == BY_TRIALS
        at = _steps(bands.values(), item.horizon if by_trials else math.inf)
        views.append(View(
            key=key, name=key, label=label, x=at.tolist() if by_trials else shorten(at), levels=levels,
            series=[_sampled(name, band, at) for name, band in bands.items()],
            quantity=f"best {item.unit} so far", top=short(best * 1.08 or 1.0),
            shade=Shade(start, "shared random start") if by_trials and start else None,
        ))  # fmt: skip
    shaded = ""
    if start:
        trials = f"{start} trial{'s' * (start > 1)}"
        shaded = f" Shaded: the first {trials}, which {listed(sharing, None)} have in common from each seed."
    return Figure(
        key="convergence", title="Convergence", views=views, digits=1, brief="median and quartiles over seeds",
        says="Best program found so far: median over seeds, and the band between the quartiles. Higher and further "
        "to the left is better. In seconds, all that a run is charged for counts: proposing, training, building "
        f"and running.{shaded}",
    )  # fmt: skip


def _scores(item: WorkloadSummary, runs: WorkloadRuns) -> Figure | None:
    """None where there is no random search to compare with, or nothing to gain on it."""
    scored = [row for row in item.strategies if row.score_trials]
    if not scored:
        return None
    at = places(max(row.score_trials or 0 for row in scored), _ESTIMATES)
    series = [_score_series(row.strategy, runs.score_curves[row.strategy], at) for row in scored]
    view = View(
        key=BY_TRIALS, name=BY_TRIALS, label="trials", x=[float(place) for place in at], series=series,
        quantity="score against random search", bottom=max(-1.0, min(0.0, *_lowest(series))),
        levels=[Level(0.0, "random search"), Level(1.0, "the best known")],
    )  # fmt: skip
    return Figure(
        key="score", title="Score over budget", views=[view], step=False,
        brief="mean over seeds with its 95 % interval; 0: random search in the same space, 1: the best known there",
        says="How much of what random search still had to gain at this budget, in log latency, a strategy has already "
        "gained: mean over seeds with its 95 % interval. 0 is random search in the same space, 1 the best known there "
        f"from the start. A score is the mean over trials {item.score_ranges}. It ends where random search itself is "
        "nearly there, and what is below -1 is not drawn.",
    )  # fmt: skip


def _lowest(series: Sequence[Series]) -> list[float]:
    return [value for line in series for value in (*line.y, *(line.lower or ())) if value is not None]


def _score_series(strategy: str, scores: Floats, at: Sequence[int]) -> Series:
    """The mean of ``scores``, shape (runs, trials); None where it is not defined, or has ended. It has an interval
    where there is one.
    """
    here = np.array([trial - 1 for trial in at if trial <= scores.shape[1]], dtype=np.int64)
    edges = np.full((3, len(at)), np.nan)
    edges[:, : len(here)] = mean_intervals(scores[:, here])
    edges[:, ~np.isfinite(edges[0])] = np.nan
    y, lower, upper = (
        [None if math.isnan(value) else short(value) for value in edge.tolist()]
        for edge in (edges[0], edges[1], np.minimum(edges[2], 1.0))
    )
    none = all(end is None for end in lower)
    return Series(strategy, y, None if none else lower, None if none else upper)


def _ecdf(item: WorkloadSummary, runs: WorkloadRuns) -> Figure | None:
    """None while nothing has succeeded."""
    if item.best is None:
        return None
    targets = runs.targets
    views = []
    for key, label in AXES:
        hits = runs.hits if key == BY_TRIALS else runs.hits_in_seconds
        if key == BY_TRIALS:
            at = np.array(places(item.horizon, POINTS), float)
        else:
            earliest = min(runs.longest, *(float(seconds.min()) for seconds in hits.values()))
            at = seconds_grid(earliest, runs.longest)
        views.append(View(
            key=key, name=key, label=label, x=shorten(at), quantity="part of all (seed, target) pairs", top=1.0,
            series=[Series(row.strategy, shorten(ecdf(hits[row.strategy], at))) for row in item.strategies],
        ))  # fmt: skip
    return Figure(
        key="ecdf", title="Targets reached", views=views,
        brief=f"empirical distribution over seeds and {len(targets)} targets, up to within 1 % of the best known",
        says=f"Empirical distribution of running times: the part of {len(targets)} targets, from a twelfth of the "
        "best known to within 1 % of it, that the seeds have reached, each seed and target a pair. Higher is better; "
        "it shows easy and hard targets at once.",
    )  # fmt: skip


def _models(item: WorkloadSummary, runs: WorkloadRuns) -> Figure | None:
    """None where no strategy has a cost model whose predictions were scored."""
    rounds = {row.strategy: _model_rounds(runs.strategies[row.strategy].runs) for row in item.strategies}
    views = []
    for metric in METRICS:
        bands = {name: by_metric[metric.field] for name, by_metric in rounds.items() if metric.field in by_metric}
        if not bands:
            continue
        at = sorted({x for band in bands.values() for x in band.x.tolist()})
        at = at if len(at) <= POINTS else [at[p - 1] for p in places(len(at), POINTS)]
        views.append(View(
            key=metric.field, name=metric.name, label="trials", x=at, quantity=metric.name,
            series=[_at(name, band, at) for name, band in bands.items()],
            levels=[Level(metric.guess, "by guessing")] if metric.guess is not None else [], top=metric.top,
        ))  # fmt: skip
    if not views:
        return None
    return Figure(
        key="models", title="Cost models, round by round", views=views, step=False,
        brief="what was predicted of a batch, against what was measured: median and quartiles over seeds",
        says="What the cost model had predicted of each batch before it was measured, against what was then measured: "
        "median over seeds, and the band between the quartiles. A batch is what the policy chose, so its programs are "
        "alike, and harder to tell apart than those of a random sample.",
    )  # fmt: skip


def _at(strategy: str, band: Band, at: Sequence[float]) -> Series:
    place = {x: i for i, x in enumerate(band.x.tolist())}

    def values(edge: Floats) -> list[float | None]:
        return [short(edge[place[x]]) if x in place else None for x in at]

    return Series(strategy, values(band.median), values(band.lower), values(band.upper))


def _model_rounds(runs: Sequence[LoggedRun]) -> dict[str, Band]:
    """By metric, quartiles over the seeds at the trial that ended each batch, from 1.

    For each batch, the seeds count in which the metric is defined. A metric that is defined in no batch is left out, so
    that a strategy without a cost model has no metric.
    """
    ends = np.concatenate([run.log.rounds for run in runs]) + 1.0
    qualities = np.concatenate([run.log.qualities for run in runs])
    bands = {}
    for metric in METRICS:
        values = qualities[:, FIELDS.index(metric.field)]
        known = ~np.isnan(values)
        if known.any():
            bands[metric.field] = band_at(ends[known], values[known])
    return bands


def overall_figures(overall: Overall, workloads: Sequence[WorkloadSummary]) -> list[Figure]:
    """Performance profile and run-score distribution of the strategies that ran on every workload."""
    names = [row.strategy for row in overall.strategies]
    rows = [item.by_strategy for item in workloads]
    return [_performance_profile(names, rows), _run_scores(names, rows)]


def _performance_profile(names: Sequence[str], rows: Sequence[Mapping[str, StrategySummary]]) -> Figure:
    views = []
    for key, measure in ((BY_TRIALS, TRIALS), (BY_SECONDS, SECONDS)):
        times = _times(names, rows, measure)
        quickest = times.min(axis=1, keepdims=True)
        ratios = np.divide(times, quickest, out=np.ones_like(times), where=np.isfinite(times) & (quickest > 0))
        at = np.geomspace(1, max(2.0, float(ratios.max())), POINTS)
        parts = performance_profile(times, at)
        views.append(View(
            key=key, name=key, label=f"times the {key} of the quickest", x=shorten(at), top=1.0,
            quantity="part of all (workload, seed) pairs",
            series=[Series(name, shorten(part)) for name, part in zip(names, parts, strict=True)],
        ))  # fmt: skip
    return Figure(
        key="profile", title="Performance profile", views=views,
        brief="how often the target was reached within so many times the fewest",
        says="The part of all workloads and seeds on which a strategy reached the target within so many times the "
        "trials, or seconds, of the quickest there. At 1: how often it was the quickest. At the right: how often it "
        "got there at all.",
    )  # fmt: skip


def _times(names: Sequence[str], rows: Sequence[Mapping[str, StrategySummary]], measure: str) -> Floats:
    """What ``measure`` took, infinity where the target was not reached: shape (problems, strategies).

    A problem is a workload with a seed that all strategies have there.
    """
    times = []
    for row in rows:
        reached = {name: row[name].by_seed(measure) for name in names}
        common = set.intersection(*(set(by_seed) for by_seed in reached.values()))
        times += [[reached[name][seed] for name in names] for seed in sorted(common)]
    return np.array(times)


def _run_scores(names: Sequence[str], rows: Sequence[Mapping[str, StrategySummary]]) -> Figure:
    at = np.linspace(0, 1, 101)
    series = [
        Series(name, shorten(run_score_profile([np.array(row[name].area.by_seed) for row in rows], at)))
        for name in names
    ]
    view = View(
        key="area", name="area", label="area under the curve", x=shorten(at), series=series, top=1.0,
        quantity="part of all runs above it",
    )  # fmt: skip
    return Figure(
        key="runs", title="Distribution of runs", views=[view], ends=False,
        brief="how many of all runs have a larger area under the curve",
        says="The part of all runs of all workloads whose area under the convergence curve is above a value. A line "
        "that lies above another everywhere is better whatever one asks of it.",
    )  # fmt: skip


class Bar(msgspec.Struct, frozen=True):
    """The bar of one strategy: a value for each part. total: the whole that the values are parts of."""

    strategy: str
    values: Sequence[float]
    total: float


class Bars(msgspec.Struct, frozen=True):
    """A bar for each strategy of a workload, in the order of its summary."""

    parts: Sequence[str]
    rows: Sequence[Bar]


@dataclass(frozen=True)
class Charts:
    """The charts of a report, by workload.

    figures: line charts; under "" those over all workloads, where there are any. strategies: the order that gives each
    strategy its colour.
    """

    strategies: Sequence[str]
    figures: Mapping[str, Sequence[Figure]]
    time: Mapping[str, Bars]
    failures: Mapping[str, Bars]


def all_charts(summary: Summary, comparison: ComparedRuns) -> Charts:
    """The charts of ``summary``, which is that of ``comparison``."""
    items = {item.workload: item for item in summary.workloads}
    figures = {workload: workload_figures(item, comparison[workload]) for workload, item in items.items()}
    if summary.overall:
        figures[""] = overall_figures(summary.overall, summary.workloads)
    return Charts(
        strategies=strategy_order(comparison),
        figures=figures,
        time={workload: time_bars(item) for workload, item in items.items()},
        failures={workload: failure_bars(item) for workload, item in items.items()},
    )


def time_bars(item: WorkloadSummary) -> Bars:
    """Where the seconds of each strategy went, on average over seeds; the total is their sum."""
    rows = []
    for row in item.strategies:
        runs = len(row.trials_by_seed)
        values = [getattr(row.seconds, part) / runs for part in TIME_PARTS]
        rows.append(Bar(row.strategy, values, row.seconds.total / runs))
    return Bars(TIME_PARTS, rows)


def failure_bars(item: WorkloadSummary) -> Bars:
    """The failed trials of each strategy by kind, for the kinds that there are; the total is the number of trials."""
    kinds = [kind for kind in FAILURES if any(row.failures[kind] for row in item.strategies)]
    rows = [
        Bar(row.strategy, [row.failures[kind] for kind in kinds], sum(row.trials_by_seed)) for row in item.strategies
    ]
    return Bars(kinds, rows)
