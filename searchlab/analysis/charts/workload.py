"""The line charts of a report as plain numbers: what its pictures, its page, and ``figures.*`` show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from ..overall import Overall
from ..random_search import RandomSearch, random_searches
from ..read import Cell
from ..stats.aggregates import bootstrap, mean_of_means, performance_profile, run_score_profile
from ..stats.curves import Band, Floats, band_over_seconds, band_over_trials, best_so_far, gflops
from ..stats.random_search import score_curve
from ..stats.targets import ecdf, hitting_times, precision_targets
from ..summary import StrategySummary, WorkloadSummary, common_trials
from .model_rounds import METRICS, model_rounds

TRIALS, SECONDS = "trials", "seconds"
POINTS = 200
"""Most points of a line. Where a run is longer, its line is sampled at so many places."""
LOG_FROM = 100.0
"""Ratio of the last x to the first from which a logarithmic axis is the more readable."""
_ESTIMATES = 40  # most trials of a score at which its interval is found

Runs = Mapping[str, Sequence[Cell]]
"""strategy -> its cells, each with a trial."""


class Series(msgspec.Struct, frozen=True):
    """One strategy's line: ``y`` at the first, or those, of the view's ``x`` at which it is not None; and its band."""

    strategy: str
    y: Sequence[float | None]
    lower: Sequence[float | None] | None = None
    upper: Sequence[float | None] | None = None


class Level(msgspec.Struct, frozen=True):
    """A horizontal line and what it is."""

    y: float
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
    """Ends of the y axis, None to fit the lines, and 0 in any case."""

    @property
    def log(self) -> bool:
        return len(self.x) > 1 and self.x[0] > 0 and self.x[-1] / self.x[0] >= LOG_FROM


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A chart. brief: under its picture's title. says: how to read it. step: whether lines are constant between points.
    digits: after the point. ends: whether where a line ends says something.
    """

    key: str
    title: str
    brief: str
    says: str
    views: list[View]
    step: bool = True
    digits: int = 2
    ends: bool = True


def workload_figures(item: WorkloadSummary, runs: Runs) -> list[Figure]:
    """The charts of one workload: convergence, score, ECDF and cost models, as far as its logs have them."""
    if not item.strategies:
        return []
    names = [row.strategy for row in item.strategies]
    ends = {TRIALS: float(item.horizon), SECONDS: max(float(c.elapsed[common_trials(runs[n]) - 1])
                                                      for n in names for c in runs[n])}  # fmt: skip
    figures = [_convergence(item, runs)]
    if scored := _score(item, runs):
        figures.append(scored)
    if item.best:
        figures.append(_ecdf(item, runs, ends))
    if quality := _models(item, runs):
        figures.append(quality)
    return figures


def overall_figures(overall: Overall, workloads: Sequence[WorkloadSummary]) -> list[Figure]:
    """Performance profile and run-score distribution of the strategies that ran on every workload."""
    names = [row.strategy for row in overall.strategies]
    rows = [{row.strategy: row for row in item.strategies} for item in workloads]
    return [_performance_profile(names, rows), _run_scores(names, rows)]


def _places(last: int, most: int) -> list[int]:
    """1, ... ``last``; or ``most`` at most of them, closer together at the start, where lines rise."""
    if last <= most:
        return list(range(1, last + 1))
    return sorted({round(place) for place in np.geomspace(1, last, most).tolist()})


def _seconds_grid(first: float, last: float) -> Floats:
    if first > 0 and last / first >= LOG_FROM:
        return np.geomspace(first, last, POINTS)
    return np.linspace(first, last, POINTS) if last > first else np.array([first])


def _sampled(strategy: str, band: Band, at: Floats) -> Series:
    """``band`` at each of ``at``, ascending: None before it begins and after it has ended."""
    place = np.searchsorted(band.x, at, side="right") - 1
    end = int(np.searchsorted(at, band.x[-1]))  # the first of ``at`` that shows its last value
    there = (place >= 0) & (np.arange(len(at)) <= end)

    def values(edge: Floats) -> list[float | None]:
        return [_short(edge[p]) if shown else None for p, shown in zip(place, there, strict=True)]

    return Series(strategy, values(band.median), values(band.lower), values(band.upper))


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _shorten(values: Floats) -> list[float]:
    return [_short(value) for value in values.tolist()]


def _convergence(item: WorkloadSummary, runs: Runs) -> Figure:
    levels, best = [], item.best.gflops if item.best else 0.0
    if best and item.target_gflops:
        levels = [Level(_short(best), f"best known {best:.1f}"),
                  Level(_short(item.target_gflops), f"{100 * item.target_gflops / best:.0f} % of it")]  # fmt: skip
    views = []
    for key, label in ((TRIALS, "trials"), (SECONDS, "seconds of search and measurement")):
        bands = {row.strategy: band_of(runs[row.strategy], key) for row in item.strategies}
        first, last = min(b.x[0] for b in bands.values()), max(b.x[-1] for b in bands.values())
        at = np.array(_places(item.horizon, POINTS), float) if key == TRIALS else _seconds_grid(first, last)
        views.append(View(
            key=key, name=key, label=label, x=_shorten(at) if key == SECONDS else at.tolist(), levels=levels,
            series=[_sampled(name, band, at) for name, band in bands.items()],
            quantity="best GFLOPS so far", top=_short(best * 1.08 or 1.0),
        ))  # fmt: skip
    return Figure(
        key="convergence", title="Convergence", views=views, digits=1, brief="median and quartiles over seeds",
        says="Best program found so far: median over seeds, and the band between the quartiles. Higher and further "
        "to the left is better. In seconds, all that a run is charged for counts: proposing, training, building "
        "and running.",
    )  # fmt: skip


def band_of(cells: Sequence[Cell], axis: str) -> Band:
    """Best GFLOPS so far of one strategy, against trials or seconds."""
    curves = [cell.curve for cell in cells]
    return band_over_trials(curves) if axis == TRIALS else band_over_seconds(curves, [c.elapsed for c in cells])


def _score(item: WorkloadSummary, runs: Runs) -> Figure | None:
    """None where there is no random search to compare with, or nothing to gain on it."""
    scored = [row for row in item.strategies if row.score_trials]
    if not scored:
        return None
    searches = random_searches([cell for cells in runs.values() for cell in cells], item.horizon)
    places = _places(max(row.score_trials or 0 for row in scored), _ESTIMATES)
    series = [_scores(row, runs[row.strategy], searches[_space(runs, row)], item.horizon, places) for row in scored]
    view = View(
        key=TRIALS, name=TRIALS, label="trials", x=[float(p) for p in places], series=series,
        quantity="score against random search", bottom=max(-1.0, min(0.0, *_lowest(series))),
        levels=[Level(0.0, "random search"), Level(1.0, "the best known")],
    )  # fmt: skip
    return Figure(
        key="score", title="Score over budget", views=[view], step=False,
        brief="mean over seeds with its 95 % interval; 0: random search in the same space, 1: the best known there",
        says="How much of what random search still had to gain at this budget a strategy has already gained: mean "
        "over seeds with its 95 % interval. 0 is random search in the same space, 1 the best known there from the "
        "start. It ends where random search itself is nearly there, and what is below -1 is not drawn.",
    )  # fmt: skip


def _lowest(series: Sequence[Series]) -> list[float]:
    return [value for line in series for value in (*line.y, *(line.lower or ())) if value is not None]


def _space(runs: Runs, row: StrategySummary) -> str:
    return runs[row.strategy][0].log.header.space_name


def _held(cells: Sequence[Cell], trials: int, horizon: int) -> Floats:
    """Lowest cost so far of each run over its first ``trials``, its last value held: shape (runs, horizon)."""
    return np.stack([np.pad(best_so_far(cell.log.costs[:trials]), (0, horizon - trials), "edge") for cell in cells])


def _scores(
    row: StrategySummary, cells: Sequence[Cell], search: RandomSearch, horizon: int, places: Sequence[int]
) -> Series:
    held = np.minimum(_held(cells, row.trials, horizon), search.slowest)[:, : len(search.baseline)]
    scores = score_curve(held, search.baseline, search.best)
    y: list[float | None] = []
    lower: list[float | None] = []
    upper: list[float | None] = []
    for place in places:
        here = scores[:, place - 1] if place <= scores.shape[1] else np.full(1, np.nan)
        known = bool(np.isfinite(here).all())
        low, high = bootstrap([here], mean_of_means) if known else (0.0, 0.0)
        y.append(_short(here.mean()) if known else None)
        lower.append(_short(low) if known else None)
        upper.append(_short(high) if known else None)
    return Series(row.strategy, y, lower, upper)


def _ecdf(item: WorkloadSummary, runs: Runs, ends: Mapping[str, float]) -> Figure:
    assert item.best
    targets = precision_targets(item.best.gflops)
    hits: dict[str, dict[str, Floats]] = {TRIALS: {}, SECONDS: {}}
    for row in item.strategies:
        cells = runs[row.strategy]
        curves = gflops(_held(cells, row.trials, row.trials), item.flops)
        trials = hitting_times(curves, targets)
        hits[TRIALS][row.strategy] = trials
        elapsed = np.stack([np.append(cell.elapsed[: row.trials], np.inf) for cell in cells])
        place = np.where(np.isfinite(trials), trials, row.trials + 1).astype(np.int64) - 1
        hits[SECONDS][row.strategy] = np.take_along_axis(elapsed, place, axis=1)
    views = []
    for key, label in ((TRIALS, "trials"), (SECONDS, "seconds of search and measurement")):
        finite = np.concatenate([found[np.isfinite(found)] for found in hits[key].values()])
        at = (
            np.array(_places(item.horizon, POINTS), float)
            if key == TRIALS
            else _seconds_grid(float(finite.min()), ends[SECONDS])
        )
        views.append(View(
            key=key, name=key, label=label, x=_shorten(at), quantity="part of all (seed, target) pairs", top=1.0,
            series=[Series(name, _shorten(ecdf(found, at))) for name, found in hits[key].items()],
        ))  # fmt: skip
    return Figure(
        key="ecdf", title="Targets reached", views=views,
        brief=f"empirical distribution over seeds and {len(targets)} targets, up to within 1 % of the best known",
        says=f"Empirical distribution of running times: the part of {len(targets)} targets, from a twelfth of the "
        "best known to within 1 % of it, that the seeds have reached, each seed and target a pair. Higher is better; "
        "it shows easy and hard targets at once.",
    )  # fmt: skip


def _models(item: WorkloadSummary, runs: Runs) -> Figure | None:
    """None where no strategy has a cost model whose predictions were scored."""
    rounds = {row.strategy: model_rounds(runs[row.strategy]) for row in item.strategies}
    views = []
    for metric in METRICS:
        bands = {name: found[metric.field] for name, found in rounds.items() if metric.field in found}
        if not bands:
            continue
        at = sorted({x for band in bands.values() for x in band.x.tolist()})
        at = at if len(at) <= POINTS else [at[p - 1] for p in _places(len(at), POINTS)]
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
        return [_short(edge[place[x]]) if x in place else None for x in at]

    return Series(strategy, values(band.median), values(band.lower), values(band.upper))


def _performance_profile(names: Sequence[str], rows: Sequence[Mapping[str, StrategySummary]]) -> Figure:
    views = []
    for key in (TRIALS, SECONDS):
        times = []
        for row in rows:
            reached = {
                name: dict(zip(row[name].seeds, getattr(row[name], f"{key}_to_target").by_seed, strict=True))
                for name in names
            }
            common = set.intersection(*(set(by_seed) for by_seed in reached.values()))
            for seed in sorted(common):
                found = [reached[name][seed] for name in names]
                times.append([np.inf if value is None else value for value in found])
        ratio = np.array(times)
        quickest = ratio.min(axis=1, keepdims=True)
        finite = np.divide(ratio, quickest, out=np.ones_like(ratio), where=np.isfinite(ratio) & (quickest > 0))
        at = np.geomspace(1, max(2.0, float(finite.max())), POINTS)
        parts = performance_profile(ratio, at)
        views.append(View(
            key=key, name=key, label=f"times the {key} of the quickest", x=_shorten(at), top=1.0,
            quantity="part of all (workload, seed) pairs",
            series=[Series(name, _shorten(part)) for name, part in zip(names, parts, strict=True)],
        ))  # fmt: skip
    return Figure(
        key="profile", title="Performance profile", views=views,
        brief="how often the target was reached within so many times the fewest",
        says="The part of all workloads and seeds on which a strategy reached the target within so many times the "
        "trials, or seconds, of the quickest there. At 1: how often it was the quickest. At the right: how often it "
        "got there at all.",
    )  # fmt: skip


def _run_scores(names: Sequence[str], rows: Sequence[Mapping[str, StrategySummary]]) -> Figure:
    at = np.linspace(0, 1, 101)
    series = [
        Series(name, _shorten(run_score_profile([np.array(row[name].area.by_seed) for row in rows], at)))
        for name in names
    ]
    view = View(
        key="area", name="area", label="area under the curve", x=_shorten(at), series=series, top=1.0,
        quantity="part of all runs above it",
    )  # fmt: skip
    return Figure(
        key="runs", title="Distribution of runs", views=[view], ends=False,
        brief="how many of all runs have a larger area under the curve",
        says="The part of all runs of all workloads whose area under the convergence curve is above a value. A line "
        "that lies above another everywhere is better whatever one asks of it.",
    )  # fmt: skip
