"""The charts in a report as plain numbers, for the report's page, pictures and files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import msgspec
import numpy as np

from ...arrays import Floats, Ints
from ...log.columns import METRICS as FIELDS
from ...records import FAILURES
from ..measures import AREA, SECONDS, TIME_PARTS, TRIALS, StrategySummary
from ..model import Overall, Summary, WorkloadSummary
from ..runs import RANDOM, ComparedRuns, LoggedRun, StrategyRuns, WorkloadRuns, strategy_order
from ..stats.curves import Band, band_at, ecdf, performance_ratios, run_score_profile
from ..stats.inference import paired_difference
from ..stats.intervals import Interval, mean_intervals
from ..stats.ranks import ALPHA
from ..summary import paired_areas
from ..words import listed

BY_TRIALS, BY_SECONDS = "trials", "seconds"  # the keys of a figure's views
AXES = ((BY_TRIALS, "trials"), (BY_SECONDS, "seconds of search and measurement"))  # keys, and labels of the x axes
POINTS = 200  # maximum number of points in a line; a longer run is sampled
LOG_FROM = 100.0  # an axis is logarithmic if its last value is at least this many times its first value
_ESTIMATES = 40  # maximum number of trials at which a score is drawn with its interval

# Colours that colour-blind readers can distinguish on white: those of Okabe and Ito, "Color universal design" (2008),
# except yellow, then olive, wine and indigo from Tol's "muted" scheme (SRON technical note 09-002, 2021).
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#333333",
    "#999933",
    "#882255",
    "#332288",
)


class Series(msgspec.Struct, frozen=True):
    """The line and band of one strategy: a value for each ``x`` of the view, or None where there is no line."""

    strategy: str
    y: Sequence[float | None]
    lower: Sequence[float | None] | None = None
    upper: Sequence[float | None] | None = None


class Level(msgspec.Struct, frozen=True):
    """A horizontal line and its name."""

    y: float
    name: str


class Shade(msgspec.Struct, frozen=True):
    """A named part of the x axis, from its start to ``end``."""

    end: float
    name: str


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One way to draw a figure."""

    key: str
    name: str  # text on the button that selects the view
    label: str  # label of the x axis
    x: list[float]  # shared by all lines
    series: list[Series]
    quantity: str
    levels: list[Level] = []
    bottom: float | None = None  # lower end of the y axis; None to fit the lines (pictures always include 0)
    top: float | None = None
    shade: Shade | None = None

    @property
    def log(self) -> bool:
        return len(self.x) > 1 and self.x[0] > 0 and self.x[-1] / self.x[0] >= LOG_FROM


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A chart."""

    key: str
    title: str
    brief: str  # the line under the picture's title
    says: str  # how to read the chart
    views: list[View]
    step: bool = True  # whether lines are constant between points
    digits: int = 2  # decimal places
    ends: bool = True  # whether the value at the end of a line is meaningful


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
    figures = [_convergence(item, runs), _scores(item, runs), _ecdf(item, runs), _models(item, runs)]
    return [figure for figure in figures if figure is not None]


def band_of(group: StrategyRuns, axis: str) -> Band:
    """Return the band of the best GFLOPS so far over ``axis``, a key of :data:`AXES`."""
    return group.band_over_trials if axis == BY_TRIALS else group.band_over_seconds


def _series(strategy: str, y: Floats, lower: Floats, upper: Floats) -> Series:
    """Return a line with its band. NaN values become None, and a band without any value is omitted."""
    line, *band = ([None if math.isnan(value) else value for value in shorten(edge)] for edge in (y, lower, upper))
    return Series(strategy, line, *band) if any(end is not None for end in band[0]) else Series(strategy, line)


def _sample(strategy: str, band: Band, at: Floats) -> Series:
    """Sample ``band`` at the places in ``at``, in ascending order, that are within its range."""
    first, last = np.searchsorted(at, band.x[[0, -1]])
    indices = np.searchsorted(band.x, at, side="right") - 1
    indices[indices < 0] = 0
    defined = (np.arange(len(at)) >= first) & (np.arange(len(at)) <= last)
    return _series(
        strategy, *(np.where(defined, edge[indices], np.nan) for edge in (band.median, band.lower, band.upper))
    )


def _at(strategy: str, band: Band, at: Floats) -> Series:
    """Return the values of ``band`` at the places in ``at`` where it has one."""
    indices = np.minimum(np.searchsorted(band.x, at), len(band.x) - 1)
    defined = band.x[indices] == at
    return _series(
        strategy, *(np.where(defined, edge[indices], np.nan) for edge in (band.median, band.lower, band.upper))
    )


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
                name=key,
                label=label,
                x=at.tolist() if by_trials else shorten(at),
                levels=levels,
                series=[_sample(name, band, at) for name, band in bands.items()],
                quantity=f"best {item.unit} so far",
                top=short(best * 1.08 or 1.0),
                shade=Shade(start, "shared random start") if by_trials and start else None,
            )
        )
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
        f"running.{shaded}",
    )


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
    series = [_score_series(row.strategy, runs.score_curves[row.strategy], at) for row in scored]
    view = View(
        key=BY_TRIALS,
        name=BY_TRIALS,
        label="trials",
        x=[float(position) for position in at],
        series=series,
        quantity="score against random search",
        bottom=max(-1.0, min(0.0, *_lowest(series))),
        levels=[Level(0.0, "random search"), Level(1.0, "the best known")],
    )
    return Figure(
        key="score",
        title="Score over budget",
        views=[view],
        step=False,
        brief="mean over seeds with its 95 % interval; 0: random search in the same space, 1: the best known there",
        says=(
            "The fraction of the gap in log latency between random search at this budget and the best known program "
            "that a strategy has closed: mean over seeds with its 95 % interval. 0 is random search in the same "
            "space, and 1 is the best known there from the start. A score is the mean over trials "
            f"{item.score_ranges}. Lines end where random search itself comes close to the best known program; "
            "values below -1 are not drawn."
        ),
    )


def _lowest(series: Sequence[Series]) -> list[float]:
    return [value for line in series for value in (*line.y, *(line.lower or ())) if value is not None]


def _score_series(strategy: str, scores: Floats, at: Sequence[int]) -> Series:
    """Return the mean of ``scores``, shape (runs, trials), with its interval, at the trials ``at`` where it exists."""
    indices = np.array([trial - 1 for trial in at if trial <= scores.shape[1]], dtype=np.int64)
    edges = np.full((3, len(at)), np.nan)
    edges[:, : len(indices)] = mean_intervals(scores[:, indices])
    edges[:, ~np.isfinite(edges[0])] = np.nan
    return _series(strategy, edges[0], edges[1], np.minimum(edges[2], 1.0))


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
                name=key,
                label=label,
                x=shorten(at),
                quantity="fraction of all (seed, target) pairs",
                top=1.0,
                series=[Series(row.strategy, shorten(ecdf(hits[row.strategy], at))) for row in item.strategies],
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
        at = np.unique(np.concatenate([band.x for band in bands.values()]))
        at = at[[position - 1 for position in sample_positions(len(at), POINTS)]]
        views.append(
            View(
                key=metric.field,
                name=metric.name,
                label="trials",
                x=at.tolist(),
                quantity=metric.name,
                series=[_at(name, band, at) for name, band in bands.items()],
                levels=[Level(metric.guess, "by guessing")] if metric.guess is not None else [],
                top=metric.top,
            )
        )
    if not views:
        return None
    return Figure(
        key="models",
        title="Cost models, round by round",
        views=views,
        step=False,
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


def overall_figures(overall: Overall, workloads: Sequence[WorkloadSummary]) -> list[Figure]:
    """Return the performance profile and run-score distribution of the strategies that ran on every workload."""
    names = [row.strategy for row in overall.strategies]
    rows = [item.by_strategy for item in workloads]
    return [_performance_profile(names, rows), _run_scores(names, rows)]


def _performance_profile(names: Sequence[str], rows: Sequence[Mapping[str, StrategySummary]]) -> Figure:
    views = []
    for key, measure in ((BY_TRIALS, TRIALS), (BY_SECONDS, SECONDS)):
        ratios = performance_ratios(_times(names, rows, measure))
        at = np.geomspace(1, max(2.0, float(ratios[np.isfinite(ratios)].max(initial=1.0))), POINTS)
        views.append(
            View(
                key=key,
                name=key,
                label=f"multiple of the quickest strategy's {key}",
                x=shorten(at),
                top=1.0,
                quantity="fraction of all (workload, seed) pairs",
                series=[Series(name, shorten(ecdf(own, at))) for name, own in zip(names, ratios.T, strict=True)],
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
    series = [
        Series(name, shorten(run_score_profile([np.array(row[name].area.by_seed) for row in rows], at)))
        for name in names
    ]
    view = View(
        key="area",
        name="area",
        label="area under the curve",
        x=shorten(at),
        series=series,
        top=1.0,
        quantity="fraction of all runs above it",
    )
    return Figure(
        key="runs",
        title="Distribution of runs",
        views=[view],
        ends=False,
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

    @classmethod
    def from_summary(cls, summary: Summary, comparison: ComparedRuns) -> LineStyles:
        names = strategy_order(comparison)
        registered = [name for answer in summary.answers for name in (answer.first, answer.second)]
        ranked = summary.overall.diagram.strategies if summary.overall else []
        ranked = [*ranked, *(row.strategy for item in summary.workloads for row in item.strategies), *names]
        lit = list(dict.fromkeys([*registered, *ranked]))[:HIGHLIGHTED]
        if len(names) > len(COLOURS):  # highlighted strategies get distinct colours
            names = sorted(names, key=lambda name: (name not in lit, name))
        return cls(names, registered[0] if registered else None, lit)


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

    The first reference is the opponent in the first registered contrast or, without one, random search. Differences are
    over all workloads, or on the only workload; if neither is possible, the result is empty. A pair that was not tested
    has no interval. The difference of a reference from itself is 0.
    """
    if summary.overall:
        names, contrasts = [row.strategy for row in summary.overall.strategies], summary.overall.contrasts
    elif len(summary.workloads) == 1 and len(summary.workloads[0].strategies) > 1:
        names = [row.strategy for row in summary.workloads[0].strategies]
        contrasts = [contrast for contrast in summary.workloads[0].contrasts if contrast.measure == AREA]
    else:
        return {}
    rows = [item.by_strategy for item in summary.workloads]
    p = {frozenset((contrast.first, contrast.second)): contrast.adjusted for contrast in contrasts}
    gaps: dict[str, list[Gap]] = {name: [Gap(name, Interval.none(0.0, ""), None)] for name in names}
    for first, second in combinations(names, 2):
        areas = paired_areas([row[first] for row in rows], [row[second] for row in rows])
        difference = paired_difference(*areas).on_these.difference
        if not math.isnan(difference.value):
            adjusted = p[frozenset((first, second))]
            if adjusted is None:  # for example, if the runs do not show how they vary
                difference = Interval.none(difference.value, "")
            gaps[second].append(Gap(first, difference, adjusted))
            gaps[first].append(Gap(second, -difference, adjusted))
    references = [answer.second for answer in summary.answers] + [RANDOM]
    order = sorted(names, key=lambda name: references.index(name) if name in references else len(references))
    return {name: sorted(gaps[name], key=lambda gap: -gap.difference.value) for name in order}


class Bar(NamedTuple):
    """The bar of one strategy: a value for each part, and the total of which these are parts."""

    strategy: str
    values: Sequence[float]
    total: float


class Bars(NamedTuple):
    """A bar for each strategy on a workload, in the order of the summary."""

    parts: Sequence[str]
    rows: Sequence[Bar]


def all_figures(summary: Summary, comparison: ComparedRuns) -> dict[str, list[Figure]]:
    """Return the line charts of each workload and, under the key "", those over all workloads, if any."""
    figures = {item.workload: workload_figures(item, comparison[item.workload]) for item in summary.workloads}
    if summary.overall:
        figures[""] = overall_figures(summary.overall, summary.workloads)
    return figures


def time_bars(item: WorkloadSummary) -> Bars:
    """Return how each strategy's seconds were spent, as an average over seeds."""
    rows = []
    for row in item.strategies:
        runs = len(row.trials_by_seed)
        values = [getattr(row.seconds, part) / runs for part in TIME_PARTS]
        rows.append(Bar(row.strategy, values, row.seconds.total / runs))
    return Bars(TIME_PARTS, rows)


def failure_bars(item: WorkloadSummary) -> Bars:
    """Return each strategy's failed trials by kind, with its number of trials as the total."""
    kinds = [kind for kind in FAILURES if any(row.failures[kind] for row in item.strategies)]
    rows = [
        Bar(row.strategy, [row.failures[kind] for kind in kinds], sum(row.trials_by_seed)) for row in item.strategies
    ]
    return Bars(kinds, rows)
