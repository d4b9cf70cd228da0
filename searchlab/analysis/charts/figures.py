"""The charts of a report, and the numbers in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from ...arrays import Floats
from ...log.columns import QUALITY_METRICS as QUALITY_FIELDS
from ...stats.curves import Band, compute_band
from ...stats.inference import ROPE
from ...units import VALUES, convert_throughput
from ..contrasts import Contrast
from ..knobs import MAX_VALUES, MeasuredSpace
from ..measures import AREA
from ..runs import PART_COUNT, BudgetParts, ComparedRuns, CurveAxis, LoggedRun, WorkloadRuns, average_defined
from ..summary import Overall, Summary, WorkloadSummary
from ..words import counted, fill_template, format_p_equation, format_percent
from .vegalite import (
    GROUP_COLOURS,
    ROW_HEIGHT,
    STRATEGY,
    Chart,
    DataRow,
    Level,
    LineChart,
    LineStyles,
    Spec,
    make_box_chart,
    make_forest_chart,
    make_heat_map,
    make_importance_chart,
    make_layer,
)

AXIS_TITLES: dict[CurveAxis, str] = {"trials": "trials", "seconds": "seconds of search and measurement"}
MAX_POINTS = 120  # maximum number of points in a line; a longer run is sampled
TWO_LINE_HEIGHT = 28  # height of a row with a name of two lines, in pixels
MARK_DESCRIPTION = (
    "A filled dot marks a difference that is significant after correction for all tests in this report. p-values are "
    "corrected, too, but 95 % intervals are not, so that an interval may exclude 0 although its dot is empty. Shaded: "
    f"the zone of practical equivalence, for differences of at most {ROPE:g}."
)
MAX_KNOBS = 6  # maximum number of knobs whose values are shown, the most important ones

_CONVERGENCE = """
    Best program found so far: the median over {{ seed_count | counted("seed") }}, and the band between the quartiles.
    Higher and further to the left is better. Seconds are those in the table of time and failures.
    {%- if shared_trials %} Shaded: the first {{ shared_trials | counted("trial") }}, which
    {{ strategies | listed(None) }} share for each seed.{% endif %}
"""
_TRIALS = """
    The share of trials in each eighth of the budget, as a mean over seeds: at most 5 % slower than the fastest trial so
    far, which means that the strategy refines it; slower than the median of the space, as half of all random trials
    are; or failed.
    {%- if has_fill_ins %} Random fill-ins complete batches for which the policy proposed too few configs, as before it
    has learned anything.{% endif %}
"""


def make_charts(summary: Summary, comparison: ComparedRuns) -> dict[str, dict[str, Chart]]:
    """Return all charts by workload and key. The workload of charts over all workloads is ""."""
    styles = LineStyles.from_summary(summary, comparison)
    workloads = [workload_summary.workload for workload_summary in summary.workloads]
    charts: dict[str, list[Chart]] = {workload: [] for workload in ("", *workloads)}
    if summary.overall:
        charts[""] = make_overall_charts(summary.overall, comparison, styles)
    for workload_summary in summary.workloads:
        if workload_summary.strategies:
            workload = workload_summary.workload
            charts[workload] = make_workload_charts(workload_summary, comparison[workload], styles)
    if contrasts := summary.contrasts:
        scope = f"average across these {len(workloads)} workloads" if summary.overall else "this workload"
        main_charts = charts["" if summary.overall else workloads[0]]
        main_charts.insert(1, _make_difference_chart(contrasts, styles, scope))
    if len(workloads) > 1 and (differences := list_workload_differences(summary)):
        charts[""].append(_make_workload_chart(differences, group_workloads(comparison), styles))
    return {workload: _drop_empty_charts(workload_charts) for workload, workload_charts in charts.items()}


def _drop_empty_charts(charts: Sequence[Chart]) -> dict[str, Chart]:
    """Return the charts by key, without empty views, and without charts that have no other views."""
    drawn_charts = (chart._replace(views={key: view for key, view in chart.views.items() if view}) for chart in charts)
    return {chart.key: chart for chart in drawn_charts if chart.views}


def make_workload_charts(
    workload_summary: WorkloadSummary, workload_runs: WorkloadRuns, styles: LineStyles
) -> list[Chart]:
    """Return the charts of a workload whose runs have trials. Some of their views may be empty."""
    styles = replace(styles, labels=workload_runs.labels_of_fewer_seeds)
    budget_parts = {name: strategy_runs.budget_parts for name, strategy_runs in workload_runs.strategies.items()}
    return [
        _make_convergence_chart(workload_summary, workload_runs, styles),
        *_make_budget_charts(budget_parts, styles),
        _make_model_chart(workload_summary, workload_runs, styles),
        *make_space_charts(workload_runs.spaces, workload_summary.unit),
    ]


def sample_values(values: Floats) -> Floats:
    """Return the different values in ascending order or, if there are more than MAX_POINTS, as many of them by rank."""
    unique_values = np.unique(values[np.isfinite(values)])
    indices = np.linspace(0, len(unique_values) - 1, min(MAX_POINTS, len(unique_values)))
    return np.asarray(unique_values[indices.round().astype(np.int64)])


def round_value(value: float) -> float:
    """Round to four significant digits."""
    return float(f"{value:.4g}")


def round_values(values: Floats) -> list[float]:
    value_list = values.tolist()
    rounded = {value: round_value(value) for value in set(value_list)}  # there are few, because lines have steps
    return [rounded[value] for value in value_list]


class Metric(NamedTuple):
    """A field of :class:`~searchlab.costmodel.quality.ModelQuality`.

    Attributes:
        field: The name of the field.
        title: The name of the metric.
        guess: The value that guessing would reach.
        top: The largest possible value.
    """

    field: str
    title: str
    guess: float | None = None
    top: float | None = None


METRICS = (
    Metric("pairwise_accuracy", "pairwise accuracy", guess=0.5, top=1.0),
    Metric("kendall_tau", "Kendall's tau", guess=0.0, top=1.0),
    Metric("top_k_recall", "top-k recall", top=1.0),
    Metric("peak_score", "peak score", top=1.0),
    Metric("rmse", "RMSE"),
)


def _make_line(strategy: str, x: Floats, *edges: Floats, steps: bool = True) -> list[DataRow]:
    """Return the rows of a line, whose edges are y or (y, lower, upper). Points without y are omitted.

    A band without ends has no width. A line with steps only has rows for the points at which it changes, and the last.
    """
    is_defined = ~np.isnan(edges[0])
    defined_edges = np.stack(edges)[:, is_defined]
    defined_edges = np.where(np.isnan(defined_edges), defined_edges[0], defined_edges)
    is_needed = np.ones(defined_edges.shape[1], dtype=bool)
    if steps:
        is_needed[1:-1] = (np.diff(defined_edges) != 0).any(axis=0)[:-1]
    columns = [round_values(column) for column in (x[is_defined][is_needed], *defined_edges[:, is_needed])]
    fields = ("x", "y", "lower", "upper")[: len(columns)]
    return [{"strategy": strategy} | dict(zip(fields, point, strict=True)) for point in zip(*columns, strict=True)]


def _sample_band(strategy: str, band: Band, positions: Floats) -> list[DataRow]:
    """Return the rows of ``band`` at those positions, which are in ascending order, that are within its range."""
    positions = positions[(positions >= band.x[0]) & (positions <= band.x[-1])]
    indices = np.searchsorted(band.x, positions, side="right") - 1
    return _make_line(strategy, positions, band.median[indices], band.lower[indices], band.upper[indices])


def _make_convergence_chart(
    workload_summary: WorkloadSummary, workload_runs: WorkloadRuns, styles: LineStyles
) -> Chart:
    unit, strategies = workload_summary.unit, workload_runs.strategies
    title, digits = f"best {unit} so far", 3 if unit in VALUES else 1
    levels = _make_best_levels(workload_summary, digits)
    start, sharing_strategies = workload_runs.shared_random_start
    which = "all" if len(sharing_strategies) == len(strategies) else f"{len(sharing_strategies)} of {len(strategies)}"
    shade = Level(start, f"random start shared by {which} strategies: {counted(start, 'trial')}") if start else None
    views: dict[str, Spec] = {}
    for by in sorted(AXIS_TITLES, key=lambda by: by != workload_runs.by):  # what is tested comes first
        bands = {name: _convert_band(strategies[name].bands[by], unit) for name in workload_summary.by_strategy}
        positions = np.concatenate([band.x for band in bands.values()])
        sampled_positions = np.union1d(sample_values(positions), [band.x[-1] for band in bands.values()])
        rows = [row for name, band in bands.items() for row in _sample_band(name, band, sampled_positions)]
        shown_shade = shade if by == "trials" else None
        chart = LineChart(rows, styles, AXIS_TITLES[by], title, levels=levels, shade=shown_shade, digits=digits)
        views[by] = chart.spec
    runs = [run for strategy_runs in strategies.values() for run in strategy_runs.runs]
    rows = [row for run in runs for row in _make_seed_line(run, unit)]
    views["each seed"] = LineChart(rows, styles, "trials", title, levels=levels).spec
    description = fill_template(
        _CONVERGENCE,
        seed_count=max(len(row.seeds) for row in workload_summary.strategies),
        shared_trials=start,
        strategies=sharing_strategies,
    )
    return Chart("convergence", "Convergence", description, views)


def _make_best_levels(workload_summary: WorkloadSummary, digits: int) -> list[Level]:
    """Return the best known throughput and the target, if any program is known."""
    best, target_gflops, unit = workload_summary.best, workload_summary.target_gflops, workload_summary.unit
    if not best or not target_gflops:
        return []
    best_value, target = convert_throughput(best.gflops, unit), convert_throughput(target_gflops, unit)
    return [
        Level(round_value(best_value), f"best known {best_value:.{digits}f}"),
        Level(round_value(target), f"{format_percent(target_gflops / best.gflops)} of the best known"),
    ]


def _convert_band(band: Band, unit: str) -> Band:
    return Band(band.x, *(convert_throughput(edge, unit) for edge in (band.lower, band.median, band.upper)))


def _make_seed_line(run: LoggedRun, unit: str) -> list[DataRow]:
    """Return the rows of one run: the trials, from 1, at which it found a faster program, and its last trial."""
    improvements = np.flatnonzero(np.diff(run.curve, prepend=0.0) > 0)
    indices = np.union1d(improvements, [len(run.curve) - 1]).astype(np.int64)
    indices = indices[run.curve[indices] > 0]
    points = zip((indices + 1).tolist(), round_values(convert_throughput(run.curve[indices], unit)), strict=True)
    return [{"strategy": run.strategy, "seed": run.seed, "x": x, "y": y} for x, y in points]


def _make_model_chart(workload_summary: WorkloadSummary, workload_runs: WorkloadRuns, styles: LineStyles) -> Chart:
    """Return the chart of cost models, which is empty if no strategy has one whose predictions were scored."""
    views: dict[str, Spec] = {}
    for metric in METRICS:
        rows = []
        for name in workload_summary.by_strategy:
            if band := _compute_quality_band(workload_runs.strategies[name].compared_runs, metric.field):
                rows += _make_line(name, band.x, band.median, band.lower, band.upper, steps=False)
        views[metric.field] = LineChart(
            rows,
            styles,
            "trials",
            metric.title,
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


def _compute_quality_band(runs: Sequence[LoggedRun], field: str) -> Band | None:
    """Return the quartiles over seeds of a metric, at the last trial (from 1) of each batch, or None without values."""
    ends = np.concatenate([run.log.rated_trials for run in runs]) + 1.0
    values = np.concatenate([run.log.qualities for run in runs])[:, QUALITY_FIELDS.index(field)]
    is_defined = ~np.isnan(values)
    return compute_band(ends[is_defined], values[is_defined]) if is_defined.any() else None


def _make_budget_charts(budget_parts: Mapping[str, BudgetParts], styles: LineStyles) -> list[Chart]:
    """Return the charts of where in the budget strategies differ, and of what their trials were.

    Args:
        budget_parts: The parts of the budget of each strategy.
        styles: The styles of the lines.
    """

    def draw_view(field: str, quantity: str, scale: float = 100.0, digits: int = 0, **options: Any) -> Spec:
        x = 100 * (np.arange(PART_COUNT) + 0.5) / PART_COUNT
        lines = [
            _make_line(name, x, scale * getattr(parts, field), steps=False) for name, parts in budget_parts.items()
        ]
        rows = [row for line in lines for row in line]
        return LineChart(rows, styles, "% of the budget", quantity, steps=False, digits=digits, **options).spec

    has_fill_ins = any(np.nansum(parts.fill_in_shares) for parts in budget_parts.values())  # not in older logs
    budget = Chart(
        "budget",
        "Where in the budget the lead is won or lost",
        "Each strategy minus the chosen one: the difference of the area under the curve in each eighth of the "
        "budget, as a mean over seeds. The mean of the eight differences is the difference of the whole area.",
        {AREA: draw_view("areas", "difference in area", 1.0, 3, relative=True, levels=[Level(0.0, "")])},
    )
    trials = Chart(
        "trials",
        "What the trials were",
        fill_template(_TRIALS, has_fill_ins=has_fill_ins),
        {
            "near the best": draw_view("near_best_shares", "trials near the best so far, %", domain=(0.0, None)),
            "slow": draw_view("slow_shares", "trials slower than half of the space, %", domain=(0.0, None)),
            "failed": draw_view("failed_shares", "failed trials, %", domain=(0.0, None)),
            "random fill-ins": draw_view("fill_in_shares", "random fill-ins, %", domain=(0.0, None))
            if has_fill_ins
            else {},
        },
    )
    return [budget, trials]


def make_space_charts(spaces: Sequence[MeasuredSpace], unit: str) -> list[Chart]:
    """Return the charts of which knobs matter in each space, and of how good their values are."""
    spaces_by_name = {space.space if len(spaces) > 1 else "": space for space in spaces}
    importance_views: dict[str, Spec] = {}
    value_views: dict[str, Spec] = {}
    pair_views: dict[str, Spec] = {}
    for name, space in spaces_by_name.items():
        knobs = list(space.importances)
        if knobs:
            importance_views[name] = make_importance_chart(space.importances)
        for knob in knobs[:MAX_KNOBS]:
            rows = _round_rows(space.summarize_values(knob), unit)
            value_views[f"{name}: {knob}" if name else knob] = make_box_chart(rows, knob, unit)
        if len(knobs) > 1:
            rows = _round_rows(space.summarize_values(*knobs[:2]), unit)
            values_by_knob = {knob: space.find_best_values(knob) for knob in knobs[:2]}
            pair_views[name] = make_heat_map(rows, values_by_knob, unit)
    return [
        Chart(
            "importances",
            "Which knobs matter",
            "How much the values of a knob in the fastest tenth of all configs differ from those in all configs, as a "
            "share of all knobs (PED-ANOVA, as in Optuna). Every config that any strategy measured counts once.",
            importance_views,
        ),
        Chart(
            "values",
            "How good each value is",
            "The throughput of all measured configs with a value: from the slowest to the fastest (dot), with the "
            f"quartiles as a box and the median as a line. Of many values, the {MAX_VALUES} with the fastest programs "
            "are shown.",
            value_views,
        ),
        Chart(
            "pairs",
            "The two most important knobs",
            "The throughput of the fastest measured config with each pair of values, blank if there is none.",
            pair_views,
        ),
    ]


def _round_rows(rows: Sequence[DataRow], unit: str) -> list[DataRow]:
    return [
        {
            key: round_value(convert_throughput(value, unit)) if isinstance(value, float) else value
            for key, value in row.items()
        }
        for row in rows
    ]


# All workloads


def make_overall_charts(overall: Overall, comparison: ComparedRuns, styles: LineStyles) -> list[Chart]:
    """Return the charts of the strategies that ran on every workload."""
    budget_parts = {}
    for row in overall.strategies:
        parts_by_workload = [runs.strategies[row.strategy].budget_parts for runs in comparison.values()]
        budget_parts[row.strategy] = BudgetParts(*average_defined(np.array(parts_by_workload), axis=0))
    return _make_budget_charts(budget_parts, styles)


def _make_difference_row(contrast: Contrast) -> DataRow:
    """Return the difference in area between two strategies; a pair that was not tested has no interval."""
    interval = contrast.difference.on_these.difference
    ends = {
        name: round_value(interval.value if end is None else end)
        for name, end in (("lower", interval.lower), ("upper", interval.upper))
    }
    p = "" if contrast.adjusted_p is None else format_p_equation(contrast.adjusted_p)
    pair = {"first": contrast.first, "second": contrast.second, "difference": round_value(interval.value), **ends}
    return pair | {"p": p, "significant": contrast.is_significant}


def _make_difference_chart(contrasts: Sequence[Contrast], styles: LineStyles, scope: str) -> Chart:
    strategies = list(dict.fromkeys(strategy for contrast in contrasts for strategy in contrast.pair))
    colour = styles.make_colour(strategies) | {"legend": None}
    is_subject = {"test": {"field": "value", "equal": styles.subject or ""}, "value": "bold"}
    order = {"field": "difference", "op": "max", "order": "descending"}
    y = STRATEGY | {"sort": order, "axis": {"labelFontWeight": {"condition": is_subject, "value": "normal"}}}
    spec = make_forest_chart(
        [_make_difference_row(contrast) for contrast in contrasts],
        {"reference": ("each strategy minus ", styles.references(strategies))},
        y,
        colour,
        height=ROW_HEIGHT * (len(strategies) - 1),
    )
    return Chart(
        "differences",
        "Differences",
        f"Each strategy's area under the curve minus the reference's, on {scope}. {MARK_DESCRIPTION}",
        {"": spec},
    )


def list_workload_differences(summary: Summary) -> list[DataRow]:
    """Return the difference of each pair of strategies on each workload, by its index."""
    return [
        _make_difference_row(contrast) | {"workload": number}
        for number, workload_summary in enumerate(summary.workloads)
        for contrast in workload_summary.contrasts
        if contrast.difference.workloads
    ]


def group_workloads(comparison: ComparedRuns) -> dict[str, str]:
    """Return the group of each workload: those of its kind, spaces and numbers of threads that differ."""
    properties = []
    for workload_runs in comparison.values():
        headers = [run.log.header for run in workload_runs.runs]
        thread_counts = sorted({int(header.target.get("num-cores", 1)) for header in headers})
        spaces = ", ".join(sorted({header.space_name for header in headers}))
        workload_kind = headers[0].workload.partition(":")[0]
        properties.append((workload_kind, spaces, ", ".join(counted(count, "thread") for count in thread_counts)))
    differs = [len(set(column)) > 1 for column in zip(*properties, strict=True)]
    groups = (", ".join(compress(values, differs)) for values in properties)
    return dict(zip(comparison, groups, strict=True))


def _make_workload_chart(differences: Sequence[DataRow], groups: Mapping[str, str], styles: LineStyles) -> Chart:
    """Return the chart of a strategy's differences from another on each workload, both of which the reader can choose.

    For ``differences`` and ``groups``, see :func:`list_workload_differences` and :func:`group_workloads`.
    """
    rows = [
        {"workload": number, "name": name, "link": f"#w{number}", "group": group}
        for number, (name, group) in enumerate(groups.items())
    ]
    names = [
        name
        for name in styles.names
        if any(name in (difference["first"], difference["second"]) for difference in differences)
    ]
    references = styles.references(names)
    strategies = sorted(names, key=lambda name: (name != styles.subject, styles.ranking.index(name)))
    if strategies[0] == references[0]:
        strategies = [*strategies[1:], strategies[0]]
    y, colour = _make_name_axis(), _make_group_colours(groups.values())
    of_workload = {"data": {"values": rows}, "key": "workload", "fields": ["name", "link", "group"]}
    by_size = [{"field": field, "order": "descending"} for field in ("mean", "difference")]
    mean = {"x": {"field": "mean", "type": "quantitative"}, "y": y, "color": colour}
    spec = make_forest_chart(
        differences,
        {"strategy": ("strategy ", strategies), "reference": ("minus ", references)},
        y,
        colour,
        height=TWO_LINE_HEIGHT * len(rows),
        transform=[
            {"lookup": "workload", "from": of_workload},
            {"joinaggregate": [{"op": "mean", "field": "difference", "as": "mean"}], "groupby": ["group"]},
            {"window": [{"op": "row_number", "as": "order"}], "sort": [by_size[0], {"field": "group"}, by_size[1]]},
        ],
        layers=[make_layer("tick", mean, thickness=2, size=TWO_LINE_HEIGHT, opacity=0.5)],
        href={"field": "link"},
    )
    return Chart(
        "workloads",
        "Where it is won or lost",
        "The first strategy's area under the curve minus the second's on each workload. To the left of 0, the first "
        "strategy loses. Workloads are sorted by the difference within each group, and groups by their means, which "
        f"are the vertical lines. Click a dot for the charts of that workload. {MARK_DESCRIPTION}",
        {"": spec},
    )


def _make_name_axis() -> Spec:
    """Return the axis of workloads' names, in which a long name has two lines, so that it fits on a small screen."""
    lines = "split(replace(datum.label, regexp('^(.{8,26}[-:])'), '$1 '), ' ')"
    label = f"length(datum.label) > 26 ? {lines} : datum.label"
    axis = {"labelExpr": label, "labelLimit": 280, "labelLineHeight": 12, "labelOffset": -4}
    sort = {"field": "order", "op": "min"}
    return {"field": "name", "type": "nominal", "title": None, "sort": sort, "axis": axis}


def _make_group_colours(groups: Collection[str]) -> Spec:
    names = sorted({*groups})
    legend = {"orient": "bottom", "columns": 2, "symbolOpacity": 1, "symbolLimit": 0}
    return {
        "field": "group",
        "type": "nominal",
        "title": None,
        "scale": {"domain": names, "range": list(GROUP_COLOURS)},
        "legend": legend if len(names) > 1 else None,
    }
