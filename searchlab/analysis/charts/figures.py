"""The charts of a report, and the numbers in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from ...arrays import Floats
from ...log.columns import QUALITY_METRICS as FIELDS
from ...stats.curves import Band, band_at
from ...stats.inference import ROPE
from ...units import VALUES, convert_throughput
from ..knobs import MAX_VALUES, MeasuredSpace
from ..measures import AREA
from ..model import Contrast, Overall, Summary, WorkloadSummary
from ..runs import PARTS, BudgetParts, By, ComparedRuns, LoggedRun, WorkloadRuns, mean_of_defined
from ..words import counted, listed, p_equals
from .vegalite import (
    GROUPS,
    ROW,
    STRATEGY,
    Chart,
    Level,
    LineChart,
    LineStyles,
    Row,
    Spec,
    box_chart,
    forest_chart,
    heat_map,
    layer,
    share_chart,
)

AXES: dict[By, str] = {"trials": "trials", "seconds": "seconds of search and measurement"}  # the labels of the x axes
POINTS = 120  # maximum number of points in a line; a longer run is sampled
TWO_LINES = 28  # height of a row with a name of two lines, in pixels
MARKS = (
    "A filled dot marks a difference that is significant after correction for all tests in this report. p-values are "
    "corrected, too, but 95 % intervals are not, so that an interval may exclude 0 although its dot is empty. Shaded: "
    f"the zone of practical equivalence, for differences of at most {ROPE:g}."
)
KNOBS = 6  # maximum number of knobs whose values are shown, the most important ones


def all_charts(summary: Summary, comparison: ComparedRuns) -> dict[str, dict[str, Chart]]:
    """Return all charts by workload and key. The workload of charts over all workloads is ""."""
    styles = LineStyles.from_summary(summary, comparison)
    charts = {"": overall_charts(summary.overall, summary.workloads, comparison, styles) if summary.overall else []}
    for item in summary.workloads:
        charts[item.workload] = workload_charts(item, comparison[item.workload], styles) if item.strategies else []
    if contrasts := summary.contrasts:
        where = f"average across these {len(summary.workloads)} workloads" if summary.overall else "this workload"
        charts["" if summary.overall else summary.workloads[0].workload].insert(
            1, _differences(contrasts, styles, where)
        )
    if len(summary.workloads) > 1 and (pairs := workload_differences(summary)):
        names = [item.workload for item in summary.workloads]
        charts[""].append(_workloads(pairs, names, workload_groups(summary, comparison), styles))
    return {workload: _non_empty(group) for workload, group in charts.items()}


def _non_empty(charts: Sequence[Chart]) -> dict[str, Chart]:
    """Return the charts by key, without empty views, and without charts that have no other views."""
    complete = (chart._replace(views={key: view for key, view in chart.views.items() if view}) for chart in charts)
    return {chart.key: chart for chart in complete if chart.views}


def workload_charts(item: WorkloadSummary, runs: WorkloadRuns, styles: LineStyles) -> list[Chart]:
    """Return the charts of a workload whose runs have trials. Some of their views may be empty."""
    styles = replace(styles, labels=runs.fewer_seeds)
    parts = {name: group.parts for name, group in runs.strategies.items()}
    return [
        _convergence(item, runs, styles),
        *_budget_charts(parts, styles),
        _models(item, runs, styles),
        *space_charts(runs.spaces, item.unit),
    ]


def sample(values: Floats) -> Floats:
    """Return the different values in ascending order or, if there are more than POINTS, as many of them by rank."""
    different = np.unique(values[np.isfinite(values)])
    indices = np.linspace(0, len(different) - 1, min(POINTS, len(different)))
    return np.asarray(different[indices.round().astype(np.int64)])


def round_value(value: float) -> float:
    """Round to four significant digits."""
    return float(f"{value:.4g}")


def round_values(values: Floats) -> list[float]:
    numbers = values.tolist()
    rounded = {value: round_value(value) for value in set(numbers)}  # there are few, because lines have steps
    return [rounded[value] for value in numbers]


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


def _line(strategy: str, x: Floats, *edges: Floats, steps: bool = True) -> list[Row]:
    """Return the rows of a line, whose edges are y or (y, lower, upper). Points without y are omitted.

    A band without ends has no width. A line with steps only has rows for the points at which it changes, and the last.
    """
    is_defined = ~np.isnan(edges[0])
    values = np.stack(edges)[:, is_defined]
    values = np.where(np.isnan(values), values[0], values)
    is_needed = np.ones(values.shape[1], dtype=bool)
    if steps:
        is_needed[1:-1] = (np.diff(values) != 0).any(axis=0)[:-1]
    columns = [round_values(column) for column in (x[is_defined][is_needed], *values[:, is_needed])]
    names = ("x", "y", "lower", "upper")[: len(columns)]
    return [{"strategy": strategy} | dict(zip(names, point, strict=True)) for point in zip(*columns, strict=True)]


def _sample(strategy: str, band: Band, at: Floats) -> list[Row]:
    """Return the rows of ``band`` at the positions ``at``, in ascending order, that are within its range."""
    within = at[(at >= band.x[0]) & (at <= band.x[-1])]
    indices = np.searchsorted(band.x, within, side="right") - 1
    return _line(strategy, within, band.median[indices], band.lower[indices], band.upper[indices])


def _convergence(item: WorkloadSummary, runs: WorkloadRuns, styles: LineStyles) -> Chart:
    best = item.best.gflops if item.best else 0.0
    title, digits = f"best {item.unit} so far", 3 if item.unit in VALUES else 1
    levels: list[Level] = []
    if best and item.target_gflops:
        share = f"{100 * item.target_gflops / best:.0f} % of the best known"
        goals = {f"best known {convert_throughput(best, item.unit):.{digits}f}": best, share: item.target_gflops}
        levels = [Level(round_value(convert_throughput(value, item.unit)), name) for name, value in goals.items()]
    start, sharing = runs.shared_start
    which = "all" if len(sharing) == len(runs.strategies) else f"{len(sharing)} of {len(runs.strategies)}"
    shade = Level(start, f"random start shared by {which} strategies: {counted(start, 'trial')}") if start else None
    views: dict[str, Spec] = {}
    for key in sorted(AXES, key=lambda key: key != runs.by):  # what is tested comes first
        groups = [runs.strategies[row.strategy] for row in item.strategies]
        bands = {group.strategy: _in_unit(group.bands[key], item.unit) for group in groups}
        positions = np.concatenate([band.x for band in bands.values()])
        at = np.union1d(sample(positions), [band.x[-1] for band in bands.values()])
        rows = [row for name, band in bands.items() for row in _sample(name, band, at)]
        look: dict[str, Any] = {"levels": levels, "shade": shade if key == "trials" else None, "digits": digits}
        views[key] = LineChart(rows, styles, AXES[key], title, **look).spec
    if best:
        by_name = [(name, run) for name, group in runs.strategies.items() for run in group.runs]
        rows = [row for name, run in by_name for row in _seed(name, run, item.unit)]
        views["each seed"] = LineChart(rows, styles, "trials", title, levels=levels).spec
    seeds = counted(max(len(row.seeds) for row in item.strategies), "seed")
    shaded = f" Shaded: the first {counted(start, 'trial')}, which {listed(sharing, None)} share for each seed."
    return Chart(
        "convergence",
        "Convergence",
        f"Best program found so far: the median over {seeds}, and the band between the quartiles. Higher and further "
        "to the left is better. Seconds are those in the table of time and failures." + shaded * bool(start),
        views,
    )


def _in_unit(band: Band, unit: str) -> Band:
    return Band(band.x, *(convert_throughput(edge, unit) for edge in (band.lower, band.median, band.upper)))


def _seed(strategy: str, run: LoggedRun, unit: str) -> list[Row]:
    """Return the rows of one run: the trials, from 1, at which it found a faster program, and its last trial."""
    faster = np.flatnonzero(np.diff(run.curve, prepend=0.0) > 0)
    at = np.union1d(faster, [len(run.curve) - 1]).astype(np.int64)
    at = at[run.curve[at] > 0]
    values = zip((at + 1).tolist(), round_values(convert_throughput(run.curve[at], unit)), strict=True)
    return [{"strategy": strategy, "seed": run.seed, "x": x, "y": y} for x, y in values]


def _models(item: WorkloadSummary, runs: WorkloadRuns, styles: LineStyles) -> Chart:
    """Return the chart of cost models, which is empty if no strategy has one whose predictions were scored."""
    rounds = {row.strategy: _model_rounds(runs.strategies[row.strategy].compared_runs) for row in item.strategies}
    views: dict[str, Spec] = {}
    for metric in METRICS:
        bands = {name: by_metric[metric.field] for name, by_metric in rounds.items() if metric.field in by_metric}
        views[metric.field] = LineChart(
            [
                row
                for name, band in bands.items()
                for row in _line(name, band.x, band.median, band.lower, band.upper, steps=False)
            ],
            styles,
            "trials",
            metric.name,
            levels=[Level(metric.guess, "by guessing")] if metric.guess is not None else [],
            domain=(None, metric.top),
            steps=False,
        ).spec
    return Chart(
        "models",
        "Cost models, round by round",
        "The cost model's predictions for each batch before it was measured, compared with the measurements: the "
        "median over seeds, and the band between the quartiles. The policy chooses the programs in a batch, so they "
        "are more alike, and harder to tell apart, than those in a random sample.",
        views,
    )


def _model_rounds(runs: Sequence[LoggedRun]) -> dict[str, Band]:
    """Return the quartiles over seeds of each defined metric, at the last trial (from 1) of each batch."""
    ends = np.concatenate([run.log.rated_trials for run in runs]) + 1.0
    qualities = np.concatenate([run.log.qualities for run in runs])
    bands = {}
    for metric in METRICS:
        values = qualities[:, FIELDS.index(metric.field)]
        defined = ~np.isnan(values)
        if defined.any():
            bands[metric.field] = band_at(ends[defined], values[defined])
    return bands


def _budget_charts(by_strategy: Mapping[str, BudgetParts], styles: LineStyles) -> list[Chart]:
    """Return the charts of where in the budget strategies differ, and of what their trials were."""

    def view(part: str, quantity: str, scale: float = 100.0, digits: int = 0, **look: Any) -> Spec:
        x = 100 * (np.arange(PARTS) + 0.5) / PARTS
        lines = [_line(name, x, scale * getattr(parts, part), steps=False) for name, parts in by_strategy.items()]
        rows = [row for line in lines for row in line]
        return LineChart(rows, styles, "% of the budget", quantity, steps=False, digits=digits, **look).spec

    filled = any(np.nansum(parts.filled) for parts in by_strategy.values())  # older logs do not record them
    budget = Chart(
        "budget",
        "Where in the budget the lead is won or lost",
        "Each strategy minus the chosen one: the difference of the area under the curve in each eighth of the "
        "budget, as a mean over seeds. The mean of the eight differences is the difference of the whole area.",
        {AREA: view("area", "difference in area", 1.0, 3, relative=True, levels=[Level(0.0, "")])},
    )
    trials = Chart(
        "trials",
        "What the trials were",
        "The share of trials in each eighth of the budget, as a mean over seeds: at most 5 % slower than the "
        "fastest trial so far, which means that the strategy refines it; slower than the median of the space, as half "
        "of all random trials are; or failed."
        + " Random fill-ins complete batches for which the policy proposed too few configs, as before it has learned "
        "anything." * filled,
        {
            "near the best": view("near", "trials near the best so far, %", domain=(0.0, None)),
            "slow": view("slow", "trials slower than half of the space, %", domain=(0.0, None)),
            "failed": view("failed", "failed trials, %", domain=(0.0, None)),
            "random fill-ins": view("filled", "random fill-ins, %", domain=(0.0, None)) if filled else {},
        },
    )
    return [budget, trials]


def space_charts(spaces: Sequence[MeasuredSpace], unit: str) -> list[Chart]:
    """Return the charts of which knobs matter in each space, and of how good their values are."""
    importances: dict[str, Spec] = {}
    values: dict[str, Spec] = {}
    pairs: dict[str, Spec] = {}
    for space in spaces:
        name = space.space if len(spaces) > 1 else ""
        knobs = list(space.importances)
        if knobs:
            shares = [{"knob": knob, "share": round(share, 4)} for knob, share in space.importances.items()]
            importances[name] = share_chart(shares, "knob", "importance")
        for knob in knobs[:KNOBS]:
            values[f"{name}: {knob}" if name else knob] = box_chart(_round_rows(space.values(knob), unit), knob, unit)
        if len(knobs) > 1:
            axes = {"other": knobs[1], "value": knobs[0]}
            values_by_axis = {field: (knob, space.best_values(knob)) for field, knob in axes.items()}
            pairs[name] = heat_map(_round_rows(space.values(knobs[0], knobs[1]), unit), values_by_axis, unit)
    return [
        Chart(
            "importances",
            "Which knobs matter",
            "How much the values of a knob in the fastest tenth of all configs differ from those in all configs, as a "
            "share of all knobs (PED-ANOVA, as in Optuna). Every config that any strategy measured counts once.",
            importances,
        ),
        Chart(
            "values",
            "How good each value is",
            "The throughput of all measured configs with a value: from the slowest to the fastest (dot), with the "
            f"quartiles as a box and the median as a line. Of many values, the {MAX_VALUES} with the fastest programs "
            "are shown.",
            values,
        ),
        Chart(
            "pairs",
            "The two most important knobs",
            "The throughput of the fastest measured config with each pair of values, blank if there is none.",
            pairs,
        ),
    ]


def _round_rows(rows: Sequence[Row], unit: str) -> list[Row]:
    return [
        {
            key: round_value(convert_throughput(value, unit)) if isinstance(value, float) else value
            for key, value in row.items()
        }
        for row in rows
    ]


# All workloads


def overall_charts(
    overall: Overall, workloads: Sequence[WorkloadSummary], comparison: ComparedRuns, styles: LineStyles
) -> list[Chart]:
    """Return the charts of the strategies that ran on every workload."""
    names = [row.strategy for row in overall.strategies]
    groups = {name: [comparison[item.workload].strategies[name] for item in workloads] for name in names}
    parts = {
        name: BudgetParts(*mean_of_defined(np.array([group.parts for group in strategy_groups]), axis=0))
        for name, strategy_groups in groups.items()
    }
    return _budget_charts(parts, styles)


def _difference_row(contrast: Contrast) -> Row:
    """Return the difference in area between two strategies; a pair that was not tested has no interval."""
    interval = contrast.difference.on_these.difference
    ends = {
        name: round_value(interval.value if end is None else end)
        for name, end in (("lower", interval.lower), ("upper", interval.upper))
    }
    p = "" if contrast.adjusted_p is None else p_equals(contrast.adjusted_p)
    pair = {"first": contrast.first, "second": contrast.second, "difference": round_value(interval.value), **ends}
    return pair | {"p": p, "significant": contrast.is_significant}


def _differences(contrasts: Sequence[Contrast], styles: LineStyles, where: str) -> Chart:
    names = list(dict.fromkeys(name for contrast in contrasts for name in (contrast.first, contrast.second)))
    colour = STRATEGY | {"scale": {"domain": names, "range": [styles.colour(name) for name in names]}, "legend": None}
    is_subject = {"test": {"field": "value", "equal": styles.subject or ""}, "value": "bold"}
    order = {"field": "difference", "op": "max", "order": "descending"}
    y = STRATEGY | {"sort": order, "axis": {"labelFontWeight": {"condition": is_subject, "value": "normal"}}}
    spec = forest_chart(
        [_difference_row(contrast) for contrast in contrasts],
        {"reference": ("each strategy minus ", styles.references(names))},
        y,
        colour,
        height=ROW * (len(names) - 1),
    )
    return Chart(
        "differences",
        "Differences",
        f"Each strategy's area under the curve minus the reference's, on {where}. {MARKS}",
        {"": spec},
    )


def workload_differences(summary: Summary) -> list[Row]:
    """Return the difference of each pair of strategies on each workload, by its index."""
    return [
        _difference_row(contrast) | {"workload": number}
        for number, item in enumerate(summary.workloads)
        for contrast in item.contrasts
        if contrast.difference.workloads
    ]


def workload_groups(summary: Summary, comparison: ComparedRuns) -> list[str]:
    """Return the group of each workload: those of its kind, spaces and numbers of threads that differ."""
    properties = []
    for item in summary.workloads:
        headers = [run.log.header for run in comparison[item.workload].runs]
        threads = sorted({int(header.target.get("num-cores", 1)) for header in headers})
        spaces = ", ".join(sorted({header.space_name for header in headers}))
        kind = headers[0].workload.partition(":")[0]
        properties.append((kind, spaces, ", ".join(counted(number, "thread") for number in threads)))
    differs = [len(set(column)) > 1 for column in zip(*properties, strict=True)]
    return [", ".join(compress(values, differs)) for values in properties]


def _workloads(pairs: Sequence[Row], workloads: Sequence[str], groups: Sequence[str], styles: LineStyles) -> Chart:
    """Return the chart of a strategy's differences from another on each workload, both of which the reader can choose.

    For ``pairs`` and ``groups``, see :func:`workload_differences` and :func:`workload_groups`.
    """
    rows = [
        {"workload": number, "name": name, "link": f"#w{number}", "group": group}
        for number, (name, group) in enumerate(zip(workloads, groups, strict=True))
    ]
    names = [name for name in styles.names if any(name in (pair["first"], pair["second"]) for pair in pairs)]
    references = styles.references(names)
    strategies = sorted(names, key=lambda name: (name != styles.subject, styles.ranking.index(name)))
    if strategies[0] == references[0]:
        strategies = [*strategies[1:], strategies[0]]
    y, colour = _name_axis(), _group_colours(groups)
    of_workload = {"data": {"values": rows}, "key": "workload", "fields": ["name", "link", "group"]}
    by_size = [{"field": field, "order": "descending"} for field in ("mean", "difference")]
    mean = {"x": {"field": "mean", "type": "quantitative"}, "y": y, "color": colour}
    spec = forest_chart(
        pairs,
        {"strategy": ("strategy ", strategies), "reference": ("minus ", references)},
        y,
        colour,
        height=TWO_LINES * len(rows),
        transform=[
            {"lookup": "workload", "from": of_workload},
            {"joinaggregate": [{"op": "mean", "field": "difference", "as": "mean"}], "groupby": ["group"]},
            {"window": [{"op": "row_number", "as": "order"}], "sort": [by_size[0], {"field": "group"}, by_size[1]]},
        ],
        layers=[layer("tick", mean, thickness=2, size=TWO_LINES, opacity=0.5)],
        href={"field": "link"},
    )
    return Chart(
        "workloads",
        "Where it is won or lost",
        "The first strategy's area under the curve minus the second's on each workload. To the left of 0, the first "
        "strategy loses. Workloads are sorted by the difference within each group, and groups by their means, which "
        f"are the vertical lines. Click a dot for the charts of that workload. {MARKS}",
        {"": spec},
    )


def _name_axis() -> Spec:
    """Return the axis of workloads' names, in which a long name has two lines, so that it fits on a small screen."""
    lines = "split(replace(datum.label, regexp('^(.{8,26}[-:])'), '$1 '), ' ')"
    label = f"length(datum.label) > 26 ? {lines} : datum.label"
    axis = {"labelExpr": label, "labelLimit": 280, "labelLineHeight": 12, "labelOffset": -4}
    sort = {"field": "order", "op": "min"}
    return {"field": "name", "type": "nominal", "title": None, "sort": sort, "axis": axis}


def _group_colours(groups: Sequence[str]) -> Spec:
    names = sorted({*groups})
    legend = {"orient": "bottom", "columns": 2, "symbolOpacity": 1, "symbolLimit": 0}
    return {
        "field": "group",
        "type": "nominal",
        "title": None,
        "scale": {"domain": names, "range": list(GROUPS)},
        "legend": legend if len(names) > 1 else None,
    }
