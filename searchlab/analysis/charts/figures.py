"""The numbers in a report's charts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np

from ...arrays import Floats, Ints
from ...log.columns import METRICS as FIELDS
from ...records import FAILURES
from ...stats.curves import Band, area_over_seconds, band_at, ecdf, performance_ratios, run_score_profile
from ...stats.inference import paired_difference
from ...stats.intervals import Interval, mean_intervals
from ...stats.ranks import ALPHA
from ..measures import AREA, SECONDS, TIME_PARTS, TRIALS, StrategySummary
from ..model import Contrast, Overall, Summary, WorkloadSummary
from ..runs import RANDOM, ComparedRuns, LoggedRun, StrategyRuns, WorkloadRuns, strategy_order
from ..summary import paired_areas
from ..words import counted, listed, p_text

BY_TRIALS, BY_SECONDS, SEEDS = "trials", "seconds", "each seed"  # the keys of a figure's views
AXES = ((BY_TRIALS, "trials"), (BY_SECONDS, "seconds of search and measurement"))  # keys, and labels of the x axes
POINTS = 120  # maximum number of points in a line; a longer run is sampled
LOG_FROM = 100.0  # an axis is logarithmic if its last value is at least this many times its first value
FLOOR = 0.1  # the smallest regret that is drawn, in percent: a tenth of the measurement noise
PARTS = 8  # number of parts into which the budget is divided
NEAR = 1.05  # a trial with at most this many times the lowest cost so far is near the best
_ESTIMATES = 40  # maximum number of trials at which a score is drawn with its interval

# Colours that colour-blind readers can distinguish on white: those of Okabe and Ito, "Color universal design" (2008),
# except yellow, then olive, wine and indigo from Tol's "muted" scheme (SRON technical note 09-002, 2021). All have a
# contrast of at least 3 with white. The page replaces them in the dark; see report.css.
COLOURS = (
    "#0072b2",
    "#c94f00",
    "#00815e",
    "#b95c93",
    "#a06e00",
    "#2a86bd",
    "#333333",
    "#77771f",
    "#882255",
    "#332288",
)


Row = dict[str, Any]
"""A row of a chart's data: ``strategy``, ``x``, ``y`` and, if there is a band, ``lower`` and ``upper``."""


class Level(NamedTuple):
    """A horizontal line and its name."""

    y: float
    name: str


class Shade(NamedTuple):
    """A named part of the x axis, from its start to ``end``."""

    end: float
    name: str


@dataclass(frozen=True, kw_only=True)
class View:
    """One way to draw a line chart."""

    key: str
    x: str  # title of the x axis
    y: str  # title of the y axis
    rows: list[Row]
    levels: list[Level] = field(default_factory=list)
    domain: tuple[float | None, float | None] = (None, None)  # ends of the y axis; None to fit the lines
    shade: Shade | None = None
    best: float = 0.0  # if not 0, draw the regret relative to this throughput instead of the throughput
    relative: bool = False  # whether to draw differences from a strategy that the reader chooses

    @property
    def log(self) -> bool:
        """Whether the x axis is logarithmic."""
        every = [row["x"] for row in self.rows]
        return bool(every) and min(every) > 0 and max(every) / min(every) >= LOG_FROM


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A line chart with one or more views."""

    key: str
    title: str
    brief: str  # the subtitle
    says: str  # how to read the chart
    views: list[View]
    steps: Literal["rising", "falling", ""] = "rising"  # how lines change in steps; empty if they are straight
    digits: int = 2  # decimal places


@dataclass(frozen=True, kw_only=True)
class Bars:
    """A chart of stacked bars: ``rows`` have a ``strategy``, a ``part`` and a ``value``."""

    key: str
    title: str
    brief: str
    says: str
    quantity: str
    parts: Sequence[str]
    rows: list[Row]


def sample_positions(last: int, most: int) -> list[int]:
    """Return the places 1 to ``last``, or at most ``most`` of them, denser at the start, where lines rise."""
    if last <= most:
        return list(range(1, last + 1))
    return sorted({round(position) for position in np.geomspace(1, last, most).tolist()})


def eventful(changes: Ints, most: int) -> list[int]:
    """Return at most ``most`` + 2 places: the first, the last, and the places at which the most lines change.

    If lines change at more than ``most`` places, the changes are divided into ``most`` groups of about equal size, and
    the place with the most changes is chosen from each group. ``changes`` is the number of lines that change at each
    place.
    """
    positions = np.flatnonzero(changes)
    if len(positions) > most:
        counts = changes[positions]
        stretch = (np.cumsum(counts) - counts) * most // counts.sum()
        order = np.lexsort((positions, -counts, stretch))
        positions = positions[order[np.unique(stretch[order], return_index=True)[1]]]
    return sorted({0, len(changes) - 1, *positions.tolist()})


def seconds_grid(first: float, last: float) -> Floats:
    """Return places from ``first`` to ``last`` in equal steps or, if these ends are far apart, in equal ratios."""
    if first > 0 and last / first >= LOG_FROM:
        return np.geomspace(first, last, POINTS)
    return np.linspace(first, last, POINTS) if last > first else np.array([first])


def short(value: float) -> float:
    """Round to four significant digits."""
    return float(f"{value:.4g}")


def shorten(values: Floats) -> list[float]:
    every = values.tolist()
    shortened = {value: short(value) for value in set(every)}  # there are few different values because lines have steps
    return [shortened[value] for value in every]


def steps(run: LoggedRun) -> Ints:
    """Return the trials, from 0, at which a run found a faster program, and its last trial."""
    faster = np.flatnonzero(np.diff(run.curve, prepend=0.0) > 0)
    return np.union1d(faster, [len(run.curve) - 1] if len(run.curve) else []).astype(np.int64)


class Metric(NamedTuple):
    """A field of :class:`~searchlab.costmodel.quality.ModelQuality`."""

    field: str
    name: str
    guess: float | None = None  # the value that guessing would reach
    top: float | None = None  # the largest possible value


METRICS = (
    Metric("pairwise_accuracy", "pairwise accuracy", guess=0.5, top=1.0),
    Metric("kendall_tau", "Kendall's tau", guess=0.0, top=1.0),
    Metric("top_k_recall", "top-k recall", top=1.0),
    Metric("peak_score", "peak score", top=1.0),
    Metric("rmse", "RMSE"),
)


def workload_figures(item: WorkloadSummary, runs: WorkloadRuns) -> list[Figure]:
    """Return the charts for which the logs of a workload contain data, or no charts if no run has a trial yet."""
    if not item.strategies:
        return []
    parts = {name: budget_parts(group) for name, group in runs.strategies.items()}
    lines = [_convergence(item, runs), *_budget_figures(parts)]
    others = [_scores(item, runs), _ecdf(item, runs), _models(item, runs)]
    figures = [*lines, *(figure for figure in others if figure is not None)]
    if runs.by == BY_SECONDS:  # the reader sees what is tested first
        figures = [
            replace(figure, views=sorted(figure.views, key=lambda view: BY_SECONDS not in view.key))
            for figure in figures
        ]
    return figures


def band_of(group: StrategyRuns, axis: str) -> Band:
    """Return the band of the best GFLOPS so far over ``axis``, a key of :data:`AXES`."""
    return group.band_over_trials if axis == BY_TRIALS else group.band_over_seconds


def _line(strategy: str, x: Floats, *edges: Floats, steps: bool = True) -> list[Row]:
    """Return the rows of a line, whose edges are y or (y, lower, upper). Points without y are omitted.

    A band without ends has no width. A line with steps only has rows for the points at which it changes, and the last.
    """
    defined = ~np.isnan(edges[0])
    every = np.stack(edges)[:, defined]
    every = np.where(np.isnan(every), every[0], every)
    kept = np.ones(every.shape[1], dtype=bool)
    if steps:
        kept[1:-1] = (np.diff(every) != 0).any(axis=0)[:-1]
    values = [shorten(edge) for edge in (x[defined][kept], *every[:, kept])]
    names = ("x", "y", "lower", "upper")[: len(values)]
    return [{"strategy": strategy} | dict(zip(names, point, strict=True)) for point in zip(*values, strict=True)]


def _sample(strategy: str, band: Band, at: Floats) -> list[Row]:
    """Return the rows of ``band`` at the places in ``at``, in ascending order, that are within its range."""
    within = at[(at >= band.x[0]) & (at <= band.x[-1])]
    indices = np.searchsorted(band.x, within, side="right") - 1
    return _line(strategy, within, band.median[indices], band.lower[indices], band.upper[indices])


def _steps(bands: Iterable[Band], last: float) -> Floats:
    """Return the places, up to ``last``, at which bands change or, if there are many, those with the most changes."""
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
        views.append(
            View(
                key=key,
                x=label,
                y=f"best {item.unit} so far",
                rows=[row for name, band in bands.items() for row in _sample(name, band, at)],
                levels=levels,
                shade=Shade(start, "shared random start") if by_trials and start else None,
            )
        )
    if best:
        regrets = [Level(max(FLOOR, short(100 * (best / level.y - 1))), level.name) for level in levels]
        views += [
            replace(
                view,
                key=f"regret by {view.key}",
                y="regret, % over the time of the best known",
                levels=regrets,
                best=best,
                shade=None,
            )
            for view in views
        ]
        seeds = [row for name, group in runs.strategies.items() for run in group.runs for row in _seed(name, run)]
        views.append(replace(views[0], key=SEEDS, rows=seeds))
    shaded = ""
    if start:
        trials = f"{start} trial{'s' * (start > 1)}"
        shaded = f" Shaded: the first {trials}, which {listed(sharing, None)} share for each seed."
    return Figure(
        key="convergence",
        title="Convergence",
        views=views,
        digits=1,
        brief=_seeds(item),
        says="Best program found so far: the median over seeds, and the band between the quartiles. Higher and "
        "further to the left is better. Seconds include all of a run's work: proposing, training, building and "
        "running. Regret is how much slower the best program so far is than the best known one, in percent; regret "
        f"below {FLOOR:g} % is drawn at {FLOOR:g} %.{shaded}",
    )


def _seed(strategy: str, run: LoggedRun) -> list[Row]:
    """Return the rows of one run: the trials at which it found a faster program, and its last trial."""
    at = steps(run)
    at = at[run.curve[at] > 0]
    values = zip((at + 1).tolist(), shorten(run.curve[at]), strict=True)
    return [{"strategy": strategy, "seed": run.seed, "x": x, "y": y} for x, y in values]


def _seeds(item: WorkloadSummary) -> str:
    counts = sorted({len(row.seeds) for row in item.strategies})
    numbers = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    text = "one seed each" if counts[-1] == 1 else f"median and quartiles of {numbers} seeds"
    differ = [row.strategy for row in item.strategies if not row.complete]
    if not differ:
        return text
    return f"{text}; {listed(differ)}: the number of trials differs between seeds, so lines end with the shortest run"


def _scores(item: WorkloadSummary, runs: WorkloadRuns) -> Figure | None:
    """Return the chart of scores, or None if no strategy has a score."""
    scored = [row for row in item.strategies if row.score_trials]
    if not scored:
        return None
    at = sample_positions(max(row.score_trials or 0 for row in scored), _ESTIMATES)
    rows = [point for row in scored for point in _score_line(row.strategy, runs.score_curves[row.strategy], at)]
    lowest = min(0.0, *(min(row["y"], row.get("lower", 0.0)) for row in rows))
    view = View(
        key=BY_TRIALS,
        x="trials",
        y="score against random search",
        rows=rows,
        domain=(max(-1.0, lowest), None),
        levels=[Level(0.0, "random search"), Level(1.0, "the best known")],
    )
    return Figure(
        key="score",
        title="Score over budget",
        views=[view],
        steps="",
        brief="mean over seeds with its 95 % interval; 0: random search in the same space, 1: the best known there",
        says=(
            "The fraction of the gap in log latency between random search at this budget and the best known program "
            "that a strategy has closed: mean over seeds with its 95 % interval. 0 is random search in the same "
            "space, and 1 is the best known there from the start. A score is the mean over trials "
            f"{item.score_ranges}. Lines end where random search itself comes close to the best known program; "
            "values below -1 are not drawn."
        ),
    )


def _score_line(strategy: str, scores: Floats, at: Sequence[int]) -> list[Row]:
    """Return the mean of ``scores``, shape (runs, trials), with its interval, at the trials ``at`` where it exists."""
    trials = np.array([trial for trial in at if trial <= scores.shape[1]], dtype=np.int64)
    mean, lower, upper = mean_intervals(scores[:, trials - 1])
    finite = np.isfinite(mean)
    edges = [edge[finite] for edge in (mean, lower, np.minimum(upper, 1.0))]
    return _line(strategy, trials[finite].astype(float), *edges, steps=False)


def _ecdf(item: WorkloadSummary, runs: WorkloadRuns) -> Figure | None:
    if item.best is None:
        return None
    targets = runs.targets
    views = []
    for key, label in AXES:
        hits = runs.hits if key == BY_TRIALS else runs.hits_in_seconds
        if key == BY_TRIALS:
            at = np.array(sample_positions(item.horizon, POINTS), float)
        else:
            earliest = min(runs.longest, *(float(seconds.min()) for seconds in hits.values()))
            at = seconds_grid(earliest, runs.longest)
        views.append(
            View(
                key=key,
                x=label,
                y="fraction of all (seed, target) pairs",
                domain=(0.0, 1.0),
                rows=[
                    point for row in item.strategies for point in _line(row.strategy, at, ecdf(hits[row.strategy], at))
                ],
            )
        )
    return Figure(
        key="ecdf",
        title="Targets reached",
        views=views,
        brief=f"empirical distribution over seeds and {len(targets)} targets, up to within 1 % of the best known",
        says="Empirical distribution of running times: the fraction of all (seed, target) pairs in which the seed has "
        f"reached the target, for {len(targets)} targets from a twelfth of the best known to within 1 % of it. Higher "
        "is better. Easy and hard targets are visible at once.",
    )


def _models(item: WorkloadSummary, runs: WorkloadRuns) -> Figure | None:
    """Return the chart of cost models, or None if no strategy has a cost model whose predictions were scored."""
    rounds = {row.strategy: _model_rounds(runs.strategies[row.strategy].runs) for row in item.strategies}
    views = []
    for metric in METRICS:
        bands = {name: by_metric[metric.field] for name, by_metric in rounds.items() if metric.field in by_metric}
        if not bands:
            continue
        views.append(
            View(
                key=metric.field,
                x="trials",
                y=metric.name,
                rows=[
                    row
                    for name, band in bands.items()
                    for row in _line(name, band.x, band.median, band.lower, band.upper, steps=False)
                ],
                levels=[Level(metric.guess, "by guessing")] if metric.guess is not None else [],
                domain=(None, metric.top),
            )
        )
    if not views:
        return None
    return Figure(
        key="models",
        title="Cost models, round by round",
        views=views,
        steps="",
        brief="predictions for a batch compared with its measurements: median and quartiles over seeds",
        says="The cost model's predictions for each batch before it was measured, compared with the measurements: the "
        "median over seeds, and the band between the quartiles. The policy chooses the programs in a batch, so they "
        "are more alike, and harder to tell apart, than those in a random sample.",
    )


def _model_rounds(runs: Sequence[LoggedRun]) -> dict[str, Band]:
    """Return the quartiles over seeds of each defined metric, at the last trial (from 1) of each batch."""
    ends = np.concatenate([run.log.rounds for run in runs]) + 1.0
    qualities = np.concatenate([run.log.qualities for run in runs])
    bands = {}
    for metric in METRICS:
        values = qualities[:, FIELDS.index(metric.field)]
        defined = ~np.isnan(values)
        if defined.any():
            bands[metric.field] = band_at(ends[defined], values[defined])
    return bands


class BudgetParts(NamedTuple):
    """What a strategy did in each eighth of the trials, or seconds, that are compared: means over seeds, shape (8,).

    Shares are fractions of the trials there. Without trials there, or if the space's median is unknown, they are NaN.
    """

    area: Floats  # mean of the best throughput so far, as a fraction of the best known
    near: Floats  # share of trials at most 5 % slower than the fastest trial so far
    slow: Floats  # share of trials that are slower than the median of the space
    failed: Floats  # share of failed trials


def budget_parts(group: StrategyRuns) -> BudgetParts:
    """Return what a strategy did on one workload."""
    horizon, best = group.horizon, group.workload.best_gflops
    draws = group.workload.draws.get(group.space)
    median = math.exp(draws.median) if draws else math.nan
    by_seconds = group.workload.by == "seconds" and group.workload.seconds_horizon > 0
    budget = group.workload.seconds_horizon if by_seconds else float(horizon)
    elapsed = group.elapsed if by_seconds else np.tile(np.arange(float(horizon)), (len(group.compared), 1))
    ends = budget * np.arange(1, PARTS + 1) / PARTS
    totals = [end * float(area_over_seconds(group.curves, elapsed, end, best).mean()) for end in ends]
    shares = np.full((3, PARTS, len(group.compared)), np.nan)
    for number, run in enumerate(group.compared):
        costs = run.log.costs[:horizon]
        failed = np.isinf(costs)
        near = (costs <= NEAR * run.lowest[:horizon]) & ~failed
        slow = np.where(failed, 0.0, costs > median) if draws else np.full(len(costs), np.nan)
        parts = np.floor(PARTS * elapsed[number, : len(costs)] / budget)
        for part in range(PARTS):
            if (within := parts == part).any():
                shares[:, part, number] = [kind[within].mean() for kind in (near, slow, failed)]
    return BudgetParts(np.diff(totals, prepend=0.0) * PARTS / budget, *_mean(shares, axis=2))


def _mean(values: Floats, axis: int | tuple[int, ...]) -> Floats:
    """Return the mean of the numbers that are not NaN, or NaN if there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(values, axis=axis))


def _budget_figures(by_strategy: Mapping[str, BudgetParts]) -> list[Figure]:
    """Return the charts of where in the budget strategies differ, and of what their trials were."""

    def view(key: str, part: str, quantity: str, scale: float = 100.0, **look: Any) -> View:
        rows = []
        for name, parts in by_strategy.items():
            x = 100 * (np.arange(PARTS) + 0.5) / PARTS
            rows += _line(name, x, scale * getattr(parts, part), steps=False)
        return View(key=key, x="% of the budget", y=quantity, rows=rows, **look)

    lead = Figure(
        key="lead",
        title="Where in the budget the lead is won or lost",
        views=[view(AREA, "area", "difference in area", 1.0, relative=True, levels=[Level(0.0, "")])],
        steps="",
        digits=3,
        brief="difference of the mean area under the curve in each eighth of the budget",
        says="Each strategy minus the chosen one: the difference of the area under the curve in each eighth of the "
        "budget, as a mean over seeds. The mean of the eight differences is the difference of the whole area.",
    )
    trials = Figure(
        key="trials",
        title="What the trials were",
        views=[
            view("near the best", "near", "trials near the best so far, %", domain=(0.0, None)),
            view("slow", "slow", "trials slower than half of the space, %", domain=(0.0, None)),
            view("failed", "failed", "failed trials, %", domain=(0.0, None)),
        ],
        steps="",
        digits=0,
        brief="share of the trials in each eighth of the budget",
        says="The share of trials in each eighth of the budget, as a mean over seeds: at most 5 % slower than the "
        "fastest trial so far, which means that the strategy refines it; slower than the median of the space, as half "
        "of all random trials are; or failed.",
    )
    return [lead, trials]


def overall_figures(overall: Overall, workloads: Sequence[WorkloadSummary], comparison: ComparedRuns) -> list[Figure]:
    """Return the charts of the strategies that ran on every workload."""
    names = [row.strategy for row in overall.strategies]
    rows = [item.by_strategy for item in workloads]
    groups = {name: [comparison[item.workload].strategies[name] for item in workloads] for name in names}
    mean_parts = {
        name: BudgetParts(*_mean(np.array([budget_parts(group) for group in of_one]), axis=0))
        for name, of_one in groups.items()
    }
    return [_performance_profile(names, rows), _run_scores(names, rows), *_budget_figures(mean_parts)]


def _performance_profile(names: Sequence[str], rows: Sequence[Mapping[str, StrategySummary]]) -> Figure:
    views = []
    for key, measure in ((BY_TRIALS, TRIALS), (BY_SECONDS, SECONDS)):
        ratios = performance_ratios(_times(names, rows, measure))
        at = np.geomspace(1, max(2.0, float(ratios[np.isfinite(ratios)].max(initial=1.0))), POINTS)
        views.append(
            View(
                key=key,
                x=f"multiple of the quickest strategy's {key}",
                y="fraction of all (workload, seed) pairs",
                domain=(0.0, 1.0),
                rows=[row for name, own in zip(names, ratios.T, strict=True) for row in _line(name, at, ecdf(own, at))],
            )
        )
    return Figure(
        key="profile",
        title="Performance profile",
        views=views,
        brief="how often the target was reached within a multiple of what the quickest strategy needed",
        says=(
            "The fraction of all workloads and seeds for which a strategy reached the target within this multiple "
            "of the trials, or seconds, that the quickest strategy needed. The value at 1 shows how often the "
            "strategy was the quickest, and the value at the right edge shows how often it reached the target at "
            "all."
        ),
    )


def _times(names: Sequence[str], rows: Sequence[Mapping[str, StrategySummary]], measure: str) -> Floats:
    """Return the trials or seconds to the target, infinite if it was not reached: shape (problems, strategies).

    A problem is a workload with a seed for which every strategy has a run.
    """
    times = []
    for row in rows:
        reached = {name: row[name].by_seed(measure) for name in names}
        common = set.intersection(*(set(by_seed) for by_seed in reached.values()))
        times += [[reached[name][seed] for name in names] for seed in sorted(common)]
    return np.array(times).reshape(-1, len(names))


def _run_scores(names: Sequence[str], rows: Sequence[Mapping[str, StrategySummary]]) -> Figure:
    at = np.linspace(0, 1, 101)
    view = View(
        key="area",
        x="area under the curve",
        y="fraction of all runs above it",
        domain=(0.0, 1.0),
        rows=[
            point
            for name in names
            for point in _line(name, at, run_score_profile([np.array(row[name].area.by_seed) for row in rows], at))
        ],
    )
    return Figure(
        key="runs",
        title="Distribution of runs",
        views=[view],
        steps="falling",
        brief="how many of all runs have a larger area under the curve",
        says="The fraction of all runs on all workloads whose area under the convergence curve is above a value. A "
        "line that is above another everywhere is better by any criterion.",
    )


HIGHLIGHTED = 6  # maximum number of strategies that are highlighted initially


class LineStyles(NamedTuple):
    """The order and highlighting of strategies in all charts and tables."""

    names: list[str]  # in the order that determines their colours
    subject: str | None  # the first strategy of the first registered contrast
    lit: list[str]  # the strategies highlighted initially: those in registered contrasts, and the best others
    ranking: list[str]  # best first
    opponents: list[str]  # the second strategies of registered contrasts

    @classmethod
    def from_summary(cls, summary: Summary, comparison: ComparedRuns) -> LineStyles:
        names = strategy_order(comparison)
        registered = [name for answer in summary.answers for name in (answer.first, answer.second)]
        ranked = [row.strategy for row in summary.overall.strategies] if summary.overall else []
        ranked += [row.strategy for item in summary.workloads for row in item.strategies]
        ranked = list(dict.fromkeys([*ranked, *names]))
        lit = list(dict.fromkeys([*registered, *ranked]))[:HIGHLIGHTED]
        if len(names) > len(COLOURS):  # highlighted strategies get distinct colours
            names = sorted(names, key=lambda name: (name not in lit, name))
        opponents = [answer.second for answer in summary.answers]
        return cls(names, registered[0] if registered else None, lit, ranked, opponents)

    def references(self, names: Iterable[str]) -> list[str]:
        """Sort ``names`` as strategies to compare with: opponents in registered contrasts, random search, the best."""
        first = [*self.opponents, RANDOM, *self.ranking]
        return sorted(names, key=first.index)


class Gap(NamedTuple):
    """The difference in area under the curve between a strategy and the reference."""

    strategy: str
    difference: Interval  # on these workloads
    p: float | None  # corrected for all tests in its family

    @property
    def significant(self) -> bool:
        return self.p is not None and self.p <= ALPHA


def differences(summary: Summary) -> dict[str, list[Gap]]:
    """Return the differences of all strategies from each reference, by reference, best first.

    Differences are over all workloads, or on the only workload; if neither is possible, the result is empty. A pair
    that was not tested has no interval. The difference of a reference from itself is 0.
    """
    if summary.overall:
        names, contrasts = [row.strategy for row in summary.overall.strategies], summary.overall.contrasts
    elif len(summary.workloads) == 1 and len(summary.workloads[0].strategies) > 1:
        names = [row.strategy for row in summary.workloads[0].strategies]
        contrasts = summary.workloads[0].contrasts
    else:
        return {}
    gaps: dict[str, list[Gap]] = {name: [Gap(name, Interval.none(0.0, ""), None)] for name in names}
    for (first, second), gap in _pair_gaps(names, [item.by_strategy for item in summary.workloads], contrasts):
        gaps[second].append(gap)
        gaps[first].append(Gap(second, -gap.difference, gap.p))
    return {name: sorted(of_one, key=lambda gap: -gap.difference.value) for name, of_one in gaps.items()}


def _pair_gaps(
    names: Sequence[str], rows: Sequence[Mapping[str, StrategySummary]], contrasts: Sequence[Contrast]
) -> Iterator[tuple[tuple[str, str], Gap]]:
    """Iterate over the pairs of strategies that share seeds, each with the first strategy's gap to the second."""
    p = {frozenset((item.first, item.second)): item.adjusted for item in contrasts}
    for first, second in combinations(names, 2):
        areas = paired_areas([row[first] for row in rows], [row[second] for row in rows])
        difference = paired_difference(*areas).on_these.difference
        if not math.isnan(difference.value):
            adjusted = p[frozenset((first, second))]
            if adjusted is None:  # for example, if the runs do not show how they vary
                difference = Interval.none(difference.value, "")
            yield (first, second), Gap(first, difference, adjusted)


def workload_differences(summary: Summary) -> list[Row]:
    """Return the difference of each pair of strategies, ``first`` minus ``second``, on each workload, by its index."""
    return [
        {
            "workload": number,
            "first": first,
            "second": second,
            "difference": short(gap.difference.value),
            "lower": short(gap.difference.value if gap.difference.lower is None else gap.difference.lower),
            "upper": short(gap.difference.value if gap.difference.upper is None else gap.difference.upper),
            "p": "no test" if gap.p is None else p_text(gap.p),
        }
        for number, item in enumerate(summary.workloads)
        for (first, second), gap in _pair_gaps(list(item.by_strategy), [item.by_strategy], item.contrasts)
    ]


def workload_groups(summary: Summary, comparison: ComparedRuns) -> list[Row]:
    """Return a row for each workload: its name, its kind, and the spaces and threads with which it was searched."""
    groups = []
    for item in summary.workloads:
        headers = [run.log.header for run in comparison[item.workload].runs]
        threads = sorted({int(header.target.get("num-cores", 1)) for header in headers})
        groups.append(
            {
                "name": item.workload,
                "kind": headers[0].workload.partition(":")[0],
                "space": ", ".join(sorted({header.space_name for header in headers})),
                "threads": ", ".join(counted(number, "thread") for number in threads),
            }
        )
    return groups


def all_figures(summary: Summary, comparison: ComparedRuns) -> dict[str, list[Figure]]:
    """Return the line charts of each workload and, under the key "", those over all workloads, if any."""
    figures = {item.workload: workload_figures(item, comparison[item.workload]) for item in summary.workloads}
    if summary.overall:
        figures[""] = overall_figures(summary.overall, summary.workloads, comparison)
    return figures


def time_bars(item: WorkloadSummary) -> Bars:
    """Return how each strategy's seconds were spent, as an average over seeds."""
    rows = [
        {
            "strategy": row.strategy,
            "part": part,
            "value": short(getattr(row.seconds, part) / len(row.trials_by_seed)),
        }
        for row in item.strategies
        for part in TIME_PARTS
    ]
    return Bars(
        key="time",
        title="Where the time went",
        brief="mean over seeds of the seconds counted for all trials",
        says="Mean over seeds of the seconds counted for all trials in the logs. Building time is divided by the "
        "number of workers, and a program that was measured before counts with its recorded time.",
        quantity="seconds per seed",
        parts=TIME_PARTS,
        rows=rows,
    )


def failure_bars(item: WorkloadSummary) -> Bars | None:
    """Return each strategy's failed trials by kind, in percent of its trials, or None if no trial has failed."""
    kinds = [kind for kind in FAILURES if any(row.failures[kind] for row in item.strategies)]
    rows = [
        {
            "strategy": row.strategy,
            "part": kind,
            "value": short(100 * row.failures[kind] / sum(row.trials_by_seed)),
        }
        for row in item.strategies
        for kind in kinds
    ]
    says = (
        "Trials without a program that runs and gives the right answer, by kind, over all seeds. They still count as "
        "trials."
    )
    return (
        Bars(
            key="failures",
            title="Failures",
            brief="trials without a program that runs and gives the right answer, by kind",
            says=says,
            quantity="failed trials, %",
            parts=kinds,
            rows=rows,
        )
        if kinds
        else None
    )
