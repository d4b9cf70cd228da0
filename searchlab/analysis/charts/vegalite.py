"""A report's charts as Vega-Lite specifications, which pages, files and notebooks draw.

Nothing here imports altair or vl-convert before a chart is returned to a user or written to a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...files import file_name, write_file
from ...stats.inference import ROPE
from ..knobs import MOST_VALUES, MeasuredSpace
from ..model import Diagram, Summary
from ..runs import ComparedRuns
from ..verdict import signed
from ..words import p_equals
from .figures import (
    COLOURS,
    FLOOR,
    Bars,
    Figure,
    Gap,
    LineStyles,
    Row,
    View,
    differences,
    failure_bars,
    short,
    time_bars,
    workload_differences,
    workload_groups,
)

if TYPE_CHECKING:
    import altair

Spec = dict[str, Any]
"""A Vega-Lite specification without a size and a title."""

Format = Literal["pdf", "svg", "png"]
"""The formats of files with charts."""

# The numbers of colours and dashes differ so that no two of the first 20 strategies look the same.
DASHES: tuple[list[float], ...] = ([1, 0], [7, 2], [8, 2, 2, 2], [3, 1.5])
GREY = "#767676"
WIDTH, HEIGHT, ROW = 520, 300, 20  # in pixels; ROW is the height of a strategy in charts with a row for each
KNOBS = 6  # maximum number of knobs whose values are shown, the most important ones
ROWS = 22  # maximum number of strategies in a column of a legend
STRATEGY: Spec = {"field": "strategy", "type": "nominal", "title": None}
HIGHLIGHTED = {"param": "highlighted", "empty": False}


class Chart(NamedTuple):
    """A chart with one or more views."""

    key: str
    title: str
    brief: str  # the subtitle
    says: str  # how to read the chart
    views: Mapping[str, Spec]


def workload_charts(figures: Sequence[Figure], bars: Sequence[Bars], styles: LineStyles) -> list[Chart]:
    """Return the charts for ``figures`` and ``bars``. Views in which no line has a value are omitted."""
    charts = []
    for figure in figures:
        views = {view.key: line_chart(figure, view, styles) for view in figure.views if view.rows}
        if views:
            charts.append(Chart(figure.key, figure.title, figure.brief, figure.says, views))
    return charts + [Chart(bar.key, bar.title, bar.brief, bar.says, {"": bar_chart(bar)}) for bar in bars]


def all_charts(
    summary: Summary, comparison: ComparedRuns, figures: Mapping[str, Sequence[Figure]], styles: LineStyles
) -> dict[str, dict[str, Chart]]:
    """Return all charts by workload and key. The workload of charts over all workloads is ""."""
    charts = {"": workload_charts(figures.get("", ()), (), styles)}
    for item in summary.workloads:
        bars = [bar for bar in (time_bars(item), failure_bars(item)) if bar] if item.strategies else []
        charts[item.workload] = workload_charts(figures[item.workload], bars, styles)
        charts[item.workload] += space_charts(comparison[item.workload].spaces, item.unit)
    if summary.overall:
        charts[""].append(ranks_chart(summary.overall.diagram))
    if gaps := differences(summary):
        where = f"average across these {len(summary.workloads)} workloads" if summary.overall else "this workload"
        workload = "" if summary.overall else summary.workloads[0].workload
        charts[workload].insert(1, differences_chart(gaps, styles, where))
    if pairs := workload_differences(summary) if len(summary.workloads) > 1 else []:
        charts[""].append(workloads_chart(pairs, workload_groups(summary, comparison), styles))
    return {workload: {chart.key: chart for chart in group} for workload, group in charts.items()}


# Lines


def line_chart(figure: Figure, view: View, styles: LineStyles) -> Spec:
    """Return a chart with a line for each strategy, and a band if there is one. Pointing at it shows all values."""
    drawn = {row["strategy"] for row in view.rows}
    names = [name for name in styles.names if name in drawn]
    numbers = [styles.names.index(name) for name in names]
    colour, dash = (
        STRATEGY | {"scale": {"domain": names, "range": [of[number % len(of)] for number in numbers]}}
        for of in (COLOURS, DASHES)
    )
    colour["legend"] = {
        "columns": 1 + (len(names) - 1) // ROWS,
        "symbolLimit": 0,  # no limit
        "symbolOpacity": 1,
        "symbolSize": 400,
        "symbolType": "stroke",
    }
    low, high = view.domain
    x = {"field": "x", "type": "quantitative", "title": view.x} | _scale(view.log, nice=False)
    ends = {"domainMin": low, "domainMax": high, "zero": None if view.best else bool(figure.steps)}
    ends = {name: end for name, end in ends.items() if end is not None}
    y = {"field": "y", "type": "quantitative", "title": view.y} | _scale(bool(view.best), **ends)
    mark = {"clip": True, "interpolate": "step-after" if figure.steps else "linear"}
    by_seed = "seed" in view.rows[0]
    width: Spec = {"value": 0.8 if by_seed else 1.8}
    if styles.subject and not by_seed:
        width["condition"] = {"test": {"field": "strategy", "equal": styles.subject}, "value": 3.2}
    line: Spec = {
        "params": [
            {
                "name": HIGHLIGHTED["param"],
                "select": {"type": "point", "fields": ["strategy"], "toggle": "true"},
                "bind": "legend",
                "value": [{"strategy": name} for name in names if name in styles.lit],
            }
        ],
        "mark": {"type": "line"} | mark,
        "encoding": {
            "x": x,
            "y": y,
            "color": colour,
            "strokeDash": dash,
            "strokeWidth": width,
            "opacity": {"condition": HIGHLIGHTED | {"value": 1}, "value": 0.25},
        },
    }
    layers: list[Spec] = [*_shade(view), *_levels(view)]
    if by_seed:
        line["encoding"]["detail"] = {"field": "seed"}
        line["encoding"]["tooltip"] = [{"field": "strategy"}, {"field": "seed"}]
    elif "lower" in view.rows[0]:
        shade = {"condition": HIGHLIGHTED | {"value": 0.12}, "value": 0}
        encoding = {"x": x, "y": y | {"field": "lower"}, "y2": {"field": "upper"}, "color": colour, "opacity": shade}
        layers.append({"mark": {"type": "area"} | mark, "encoding": encoding})
    layers.append(line)
    if not by_seed:
        layers.append(_readout(figure, view, names, x))
    height = max(HEIGHT, 18 * min(len(names), ROWS))
    chart: Spec = {"data": {"values": view.rows}, "height": height, "layer": layers}
    if view.best:
        chart["transform"] = _regret(view)
    if view.relative:
        chart["params"] = [_select("reference", "each strategy minus ", styles.references(names))]
        chart["transform"] = [
            {"calculate": "datum.strategy === reference ? datum.y : null", "as": "base"},
            {"joinaggregate": [{"op": "max", "field": "base", "as": "base"}], "groupby": ["x"]},
            {"calculate": "datum.y - datum.base", "as": "y"},
        ]
    return chart


def _select(name: str, label: str, options: Sequence[str]) -> Spec:
    """Return a parameter that the reader chooses; on a page, all charts with a parameter of this name follow."""
    return {"name": name, "value": options[0], "bind": {"input": "select", "options": list(options), "name": label}}


def _scale(log: bool, **options: Any) -> Spec:
    """Return a scale and, if it is logarithmic, an axis with few grid lines."""
    kind = "log" if log else "linear"
    return {"scale": {"type": kind} | options} | ({"axis": {"gridOpacity": 0.4, "tickCount": 5}} if log else {})


def _regret(view: View) -> list[Spec]:
    """Return the transforms from throughput to regret. A lower end of 0 would be infinite, so the band ends there."""

    def regret(field: str) -> str:
        return f"max({FLOOR}, 100 * ({view.best} / datum.{field} - 1))"

    if "lower" not in view.rows[0]:
        return [{"filter": "datum.y > 0"}, {"calculate": regret("y"), "as": "y"}]
    return [
        {"filter": "datum.y > 0"},
        {"calculate": f"datum.lower > 0 ? {regret('lower')} : {regret('y')}", "as": "top"},
        {"calculate": regret("upper"), "as": "lower"},
        {"calculate": "datum.top", "as": "upper"},
        {"calculate": regret("y"), "as": "y"},
    ]


def _shade(view: View) -> list[Spec]:
    if view.shade is None:
        return []
    first = min(row["x"] for row in view.rows)
    x = {"datum": first if view.log else 0, "type": "quantitative"}
    text = f"{view.shade.name}: {view.shade.end:g} {view.x}"
    area = {
        "mark": {"type": "rect", "color": GREY, "opacity": 0.12},
        "encoding": {"x": x, "x2": {"datum": view.shade.end}},
    }
    label = {
        "mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 5, "dy": -4, "color": GREY, "text": text},
        "encoding": {"x": x, "y": {"value": "height"}},
    }
    return [{"data": {"values": [{}]}, "layer": [area, label]}]


def _levels(view: View) -> list[Spec]:
    """Return horizontal lines with their names: that of the first above its line, and others below."""
    layers: list[Spec] = []
    for index, level in enumerate(view.levels):
        y = {"datum": level.y, "type": "quantitative"}
        side = {"baseline": "top", "dy": 3} if index else {"baseline": "bottom", "dy": -2}
        text = {"type": "text", "align": "left", "dx": 5, "color": GREY, "text": level.name} | side
        layers += [
            {"mark": {"type": "rule", "color": GREY, "strokeDash": [5, 4]}, "encoding": {"y": y}},
            {"mark": text, "encoding": {"x": {"value": 0}, "y": y}},
        ]
    return [{"data": {"values": [{}]}, "layer": layers}] if layers else []


def _readout(figure: Figure, view: View, names: Sequence[str], x: Spec) -> Spec:
    """Return invisible areas, each from one point of any line to the next, that show the values of all lines there.

    Steps are held up to the next point: a rising line has its largest value so far. There is no selection, because
    Altair cannot combine charts with selections in several layers.
    """
    falling = bool(view.best) != (figure.steps == "falling")
    last_value = {"op": "min" if falling else "max", "field": "y", "as": "y"}
    hold: list[Spec] = [
        {"impute": "y", "key": "x", "groupby": ["strategy"], "value": None},
        {"window": [last_value], "groupby": ["strategy"], "sort": [{"field": "x"}], "frame": [None, 0]},
    ]
    # Fields are numbered since a name may contain dots, brackets and quotes. Vega-Lite does not escape backslashes.
    field = f"'s' + indexof({json.dumps(names)}, datum.strategy)"
    fields = [
        {
            "field": f"s{number}",
            "title": name.replace("\\", "\\\\"),
            "type": "quantitative",
            "format": f".{figure.digits}f",
        }
        for number, name in enumerate(names)
    ]
    return {
        "transform": [
            *(hold if figure.steps else ()),
            {"calculate": field, "as": "number"},
            {"pivot": "number", "value": "y", "groupby": ["x"]},
            {"window": [{"op": "lead", "field": "x", "as": "next"}], "sort": [{"field": "x"}]},
        ],
        "mark": {"type": "rect", "aria": False, "opacity": 0, "tooltip": True},
        "encoding": {
            "x": x,
            "x2": {"field": "next"},
            "tooltip": [{"field": "x", "title": view.x, "type": "quantitative"}, *fields],
        },
    }


# Other charts


def bar_chart(bars: Bars) -> Spec:
    """Return a chart with a stacked bar for each strategy."""
    names = list(dict.fromkeys(row["strategy"] for row in bars.rows))
    parts = {"domain": list(bars.parts), "range": list(COLOURS[: len(bars.parts)])}
    return {
        "data": {"values": bars.rows},
        "height": ROW * len(names),
        "mark": {"type": "bar", "tooltip": True},
        "encoding": {
            "y": STRATEGY | {"sort": names},
            "x": {"field": "value", "type": "quantitative", "title": bars.quantity},
            "color": {"field": "part", "type": "nominal", "scale": parts, "title": None},
        },
    }


def differences_chart(gaps: Mapping[str, Sequence[Gap]], styles: LineStyles, where: str) -> Chart:
    """Return the chart of all strategies' differences from a reference, which the reader can choose."""
    rows: list[Row] = [
        {
            "reference": other,
            "strategy": gap.strategy,
            "difference": gap.difference.value,
            "lower": gap.difference.value if gap.difference.lower is None else gap.difference.lower,
            "upper": gap.difference.value if gap.difference.upper is None else gap.difference.upper,
            "significant": gap.significant,
            "text": "the reference" if gap.strategy == other else _difference_text(gap),
        }
        for other, others in gaps.items()
        for gap in others
    ]
    colour = STRATEGY | {
        "scale": {
            "domain": styles.names,
            "range": [COLOURS[number % len(COLOURS)] for number in range(len(styles.names))],
        },
        "legend": None,
    }
    y = STRATEGY | {"sort": {"field": "difference", "op": "max", "order": "descending"}}
    x = {"field": "difference", "type": "quantitative", "title": "difference in area"}
    spec = {
        "data": {"values": rows},
        "height": ROW * len(gaps),
        "params": [_select("reference", "each strategy minus ", styles.references(gaps))],
        "transform": [{"filter": "datum.reference === reference"}],
        "layer": [
            _practically_equal(x),
            {"mark": {"type": "rule", "color": GREY}, "encoding": {"x": {"datum": 0}}},
            {
                "mark": {"type": "rule", "size": 2},
                "encoding": {"y": y, "x": x | {"field": "lower"}, "x2": {"field": "upper"}, "color": colour},
            },
            {
                "mark": {"type": "point", "size": 60, "opacity": 1},
                "encoding": {
                    "y": y,
                    "x": x,
                    "color": colour,
                    "fill": {"condition": {"test": "datum.significant"} | colour, "value": "white"},
                    "tooltip": [{"field": "strategy"}, {"field": "text", "title": "difference"}],
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 8, "color": GREY},
                "encoding": {"y": y, "x": {"value": "width"}, "text": {"field": "text"}},
            },
        ],
    }
    return Chart(
        "differences",
        "Differences",
        f"95 % intervals; a full dot is significant after correction; shaded: practically equal, up to {ROPE:g}",
        f"Each strategy's area under the curve minus the reference's, on {where}, over the seeds that both have, with "
        "its 95 % interval (for that difference alone). A filled dot marks a difference that is significant after "
        "correction for all tests in this report. Shaded: the zone of practical equivalence, for differences of at "
        f"most {ROPE:g}.",
        {"": spec},
    )


def _difference_text(gap: Gap) -> str:
    text = signed(gap.difference.value)
    if gap.difference.lower is not None and gap.difference.upper is not None:
        text += f" [{signed(gap.difference.lower)}, {signed(gap.difference.upper)}]"
    return text if gap.p is None else f"{text}, {p_equals(gap.p)}"


def workloads_chart(pairs: Sequence[Row], groups: Sequence[Row], styles: LineStyles) -> Chart:
    """Return the chart of a strategy's differences from another on each workload, both of which the reader can choose.

    Args:
        pairs: The differences; see :func:`~searchlab.analysis.charts.figures.workload_differences`.
        groups: The workloads; see :func:`~searchlab.analysis.charts.figures.workload_groups`.
        styles: The order of strategies.
    """
    properties = [key for key in ("kind", "space", "threads") if len({group[key] for group in groups}) > 1]
    rows = [
        group | {"workload": number, "link": f"#w{number}", "all": ", ".join(group[key] for key in properties)}
        for number, group in enumerate(groups)
    ]
    names = [name for name in styles.names if any(name in (pair["first"], pair["second"]) for pair in pairs)]
    references = styles.references(names)
    strategies = sorted(names, key=lambda name: (name != styles.subject, styles.ranking.index(name)))
    if strategies[0] == references[0]:
        strategies = [*strategies[1:], strategies[0]]
    views = ["all", *properties] if len(properties) > 1 else properties or ["all"]
    x = {"field": "difference", "type": "quantitative", "title": "difference in area"}
    order = {"field": "order", "op": "min"}
    y: Spec = {"field": "name", "type": "nominal", "title": None, "sort": order, "axis": {"labelLimit": 280}}
    mirrored = "datum.second === strategy"

    def spec(group: str) -> Spec:
        colour: Spec = {
            "field": group,
            "type": "nominal",
            "title": None,
            "sort": order,
            "scale": {"range": list(COLOURS)},
            "legend": {"columns": 1, "symbolOpacity": 1, "symbolLimit": 0},
        }
        if not properties:
            colour = {"value": COLOURS[0]}
        tooltip = [{"field": "name", "title": "workload"}, {"field": "text", "title": "difference"}, {"field": "p"}]
        return {
            "data": {"values": pairs},
            "height": ROW * len(groups),
            "params": [_select("strategy", "strategy ", strategies), _select("reference", "minus ", references)],
            "transform": [
                {
                    "filter": "datum.first === strategy && datum.second === reference || "
                    "datum.first === reference && datum.second === strategy"
                },
                {"calculate": f"{mirrored} ? -datum.upper : datum.lower", "as": "from"},
                {"calculate": f"{mirrored} ? -datum.lower : datum.upper", "as": "to"},
                {"calculate": f"{mirrored} ? -datum.difference : datum.difference", "as": "difference"},
                {
                    "calculate": "format(datum.difference, '+.3f') + "
                    "' [' + format(datum.from, '+.3f') + ', ' + format(datum.to, '+.3f') + ']'",
                    "as": "text",
                },
                {
                    "lookup": "workload",
                    "from": {"data": {"values": rows}, "key": "workload", "fields": ["name", "link", *views]},
                },
                {"joinaggregate": [{"op": "mean", "field": "difference", "as": "mean"}], "groupby": [group]},
                {
                    "window": [{"op": "row_number", "as": "order"}],
                    "sort": [
                        {"field": "mean", "order": "descending"},
                        {"field": group},
                        {"field": "difference", "order": "descending"},
                    ],
                },
            ],
            "layer": [
                _practically_equal(x),
                {"mark": {"type": "rule", "color": GREY}, "encoding": {"x": {"datum": 0}}},
                {
                    "mark": {"type": "tick", "thickness": 2, "size": ROW, "opacity": 0.5},
                    "encoding": {"x": x | {"field": "mean"}, "y": y, "color": colour},
                },
                {
                    "mark": {"type": "rule", "size": 2},
                    "encoding": {"y": y, "x": x | {"field": "from"}, "x2": {"field": "to"}, "color": colour},
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1, "cursor": "pointer"},
                    "encoding": {"y": y, "x": x, "color": colour, "href": {"field": "link"}, "tooltip": tooltip},
                },
            ],
        }

    return Chart(
        "workloads",
        "Where it is won or lost",
        f"on each workload, with 95 % intervals; shaded: practically equal, up to {ROPE:g}; lines: means of groups",
        "The first strategy's area under the curve minus the second's on each workload, over the seeds that both have, "
        "with its 95 % interval. To the left of 0, the first strategy loses. Workloads are sorted by the difference "
        "within each group, and groups by their means, which are the vertical lines. Click a dot for the charts of "
        f"that workload. Shaded: the zone of practical equivalence, for differences of at most {ROPE:g}.",
        {"grouped" if view == "all" else f"by {view}": spec(view) for view in views},
    )


def _practically_equal(x: Spec) -> Spec:
    return {
        "data": {"values": [{"lower": -ROPE, "upper": ROPE}]},
        "mark": {"type": "rect", "color": GREY, "opacity": 0.15},
        "encoding": {"x": x | {"field": "lower"}, "x2": {"field": "upper"}},
    }


def space_charts(spaces: Sequence[MeasuredSpace], unit: str) -> list[Chart]:
    """Return the charts of which knobs matter in each space, and of how good their values are."""
    importances: dict[str, Spec] = {}
    values: dict[str, Spec] = {}
    pairs: dict[str, Spec] = {}
    for space in spaces:
        name = space.space if len(spaces) > 1 else ""
        knobs = list(space.importances)
        if knobs:
            importances[name] = _importances(space)
        for knob in knobs[:KNOBS]:
            values[f"{name}: {knob}" if name else knob] = _values(space, knob, unit)
        if len(knobs) > 1:
            pairs[name] = _heat_map(space, knobs[0], knobs[1], unit)
    charts = [
        Chart(
            "importances",
            "Which knobs matter",
            "PED-ANOVA for the fastest tenth of all measured configs",
            "How much the values of a knob in the fastest tenth of all configs differ from those in all configs, as a "
            "share of all knobs (PED-ANOVA, as in Optuna). Every config that any strategy measured counts once.",
            importances,
        ),
        Chart(
            "values",
            "How good each value is",
            "throughput of all measured configs; box: quartiles",
            "The throughput of all measured configs with a value: from the slowest to the fastest (dot), with the "
            f"quartiles as a box and the median as a line. Of many values, the {MOST_VALUES} with the fastest programs "
            "are shown.",
            values,
        ),
        Chart(
            "pairs",
            "The two most important knobs",
            "throughput of the fastest measured config",
            "The throughput of the fastest measured config with each pair of values, blank if there is none.",
            pairs,
        ),
    ]
    return [chart for chart in charts if chart.views]


def _importances(space: MeasuredSpace) -> Spec:
    rows = [{"knob": knob, "share": round(share, 4)} for knob, share in space.importances.items()]
    y = {"field": "knob", "type": "nominal", "title": None, "sort": None}
    x: Spec = {"field": "share", "type": "quantitative", "title": "importance", "axis": {"format": ".0%"}}
    text = {"field": "share", "format": ".0%"}
    return {
        "data": {"values": rows},
        "height": ROW * len(rows),
        "layer": [
            {"mark": {"type": "bar", "color": COLOURS[0]}, "encoding": {"x": x, "y": y}},
            {
                "mark": {"type": "text", "align": "left", "dx": 4, "color": GREY},
                "encoding": {"x": x, "y": y, "text": text},
            },
        ],
    }


def _values(space: MeasuredSpace, knob: str, unit: str) -> Spec:
    rows = _rounded(space.values(knob))
    y: Spec = {"field": "value", "type": "nominal", "title": knob, "sort": None}
    x: Spec = {"type": "quantitative", "title": unit, "scale": {"zero": False}}
    columns = ("value", "configs", "failed", "worst", "lower", "median", "upper", "best")
    tooltip = [{"field": column} for column in columns]

    def layer(mark: Spec, start: str, end: str = "") -> Spec:
        encoding: Spec = {"y": y, "x": x | {"field": start}, "tooltip": tooltip}
        return {"mark": mark | {"color": COLOURS[0]}, "encoding": encoding | ({"x2": {"field": end}} if end else {})}

    return {
        "data": {"values": rows},
        "height": ROW * len(rows),
        "layer": [
            layer({"type": "rule"}, "worst", "best"),
            layer({"type": "bar", "opacity": 0.4, "size": 10}, "lower", "upper"),
            layer({"type": "tick", "thickness": 3, "size": 14}, "median"),
            layer({"type": "point", "filled": True, "size": 40, "opacity": 1}, "best"),
        ],
    }


def _heat_map(space: MeasuredSpace, first: str, second: str, unit: str) -> Spec:
    rows = _rounded(space.values(first, second))
    y, x = (
        {"field": field, "type": "nominal", "title": knob, "sort": list(space.shown_values(knob))}
        for field, knob in (("value", first), ("other", second))
    )
    colour = {"field": "best", "type": "quantitative", "title": unit, "scale": {"scheme": "viridis", "zero": False}}
    tooltip = [{"field": "value", "title": first}, {"field": "other", "title": second}]
    tooltip += [{"field": column} for column in ("best", "median", "configs", "failed")]
    return {
        "data": {"values": rows},
        "height": ROW * len({row["value"] for row in rows}),
        "layer": [{"mark": "rect", "encoding": {"x": x, "y": y, "color": colour, "tooltip": tooltip}}],
    }


def _rounded(rows: Sequence[Row]) -> list[Row]:
    return [{key: short(value) if isinstance(value, float) else value for key, value in row.items()} for row in rows]


def ranks_chart(diagram: Diagram) -> Chart:
    """Return the critical difference diagram: average ranks, and a column of dots at the right for each clique.

    It is that of Demsar (JMLR 7, 2006, figure 1) with a row for each strategy.
    """
    last = len(diagram.strategies)
    ranks = [
        {"strategy": name, "rank": round(rank, 4)} for name, rank in zip(diagram.strategies, diagram.ranks, strict=True)
    ]
    dots = [
        {"strategy": diagram.strategies[index], "rank": last + 0.04 * last * (number + 1), "group": number}
        for number, clique in enumerate(diagram.cliques)
        for index in clique
    ]
    axis = {"values": list(range(1, last + 1))}
    x = {"field": "rank", "type": "quantitative", "title": "average rank", "scale": {"zero": False}, "axis": axis}
    y = STRATEGY | {"sort": diagram.strategies}
    group = {"data": {"values": dots}, "encoding": {"x": x, "y": y, "detail": {"field": "group"}}}
    spec = {
        "height": ROW * last,
        "layer": [
            {
                "data": {"values": ranks},
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
                "encoding": {"x": x, "y": y, "tooltip": [{"field": "strategy"}, {"field": "rank"}]},
            },
            group | {"mark": {"type": "line", "color": GREY, "strokeDash": [1, 3]}},
            group | {"mark": {"type": "point", "filled": True, "color": GREY, "opacity": 1}},
        ],
    }
    brief = f"across {diagram.workloads} workloads; strategies with dots in one column cannot be told apart"
    return Chart("ranks", "Average ranks", brief, "", {"": spec})


def small_chart(chart: Chart, styles: LineStyles) -> Chart:
    """Return a small convergence chart of the highlighted strategies, without axes and legend."""
    spec = chart.views["trials"]
    rows = [row for row in spec["data"]["values"] if row["strategy"] in styles.lit]
    x, y, colour = (spec["layer"][-2]["encoding"][channel] for channel in ("x", "y", "color"))
    plain: Spec = {
        "data": {"values": [{key: row[key] for key in ("strategy", "x", "y")} for row in rows]},
        "height": 60,
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.5},
        "encoding": {"x": x | {"axis": None}, "y": y | {"axis": None}, "color": colour | {"legend": None}},
    }
    return Chart("small", chart.title, "", "", {"": plain})


# Pages, files and notebooks


def share_data(charts: Mapping[str, Chart], prefix: str) -> dict[str, Any]:
    """Return the specifications of all views by chart, and their data by name, which begins with ``prefix``.

    The data are columns, which take half as many bytes as rows.
    """
    names: dict[int, str] = {}
    data: dict[str, dict[str, list[Any]]] = {}
    specs: dict[str, dict[str, Spec]] = {key: {} for key in charts}
    for key, chart in charts.items():
        for view, spec in chart.views.items():
            rows = spec.get("data", {}).get("values", [])
            name = names.setdefault(id(rows), f"{prefix}-{len(names)}")
            data[name] = {field: [row[field] for row in rows] for field in rows[0]} if rows else {}
            specs[key][view] = spec | {"data": {"name": name}}
    return {"data": data, "charts": specs}


def titled(spec: Spec, workload: str, chart: Chart, view: str) -> Spec:
    """Return a complete specification: with a size, a title and a subtitle."""
    by = f", {view}" if len(chart.views) > 1 else ""
    title = {
        "text": f"{workload or 'Across all workloads'}: {chart.title.lower()}{by}",
        "subtitle": chart.brief,
        "anchor": "start",
        "subtitleColor": GREY,
        "offset": 10,
    }
    return {"width": WIDTH, "title": title} | spec


def altair_chart(spec: Spec) -> altair.LayerChart:
    """Return a layered ``spec`` as an Altair chart, which notebooks show, and which can be restyled and combined."""
    import altair

    parts = {
        "layer": [altair_chart(layer) if "layer" in layer else _altair_layer(layer) for layer in spec["layer"]],
        "params": [altair.VariableParameter.from_dict(param) for param in spec.get("params", ())],
    }
    return altair.LayerChart(**spec | parts)


def _altair_layer(spec: Spec) -> altair.Chart:
    import altair

    chart = altair.Chart.from_dict({"data": {"values": []}} | spec)
    if "data" not in spec:
        chart.data = altair.Undefined  # it is that of all layers
    return chart


def save_charts(out: Path, charts: Mapping[str, Mapping[str, Chart]], kind: Format) -> None:
    """Write each view of each chart to a file in the directory ``out``."""
    for workload, group in charts.items():
        for chart in group.values():
            for index, (view, spec) in enumerate(chart.views.items()):
                name = chart_name(workload, f"{chart.key} {view}" if index else chart.key)
                write_file(out / f"{name}.{kind}", draw(titled(spec, workload, chart, view), kind), under=out)


def chart_name(workload: str, chart: str) -> str:
    """Return the name of a chart's file, without suffix. ``workload`` is "" for charts over all workloads."""
    return file_name(re.sub(r"[^A-Za-z0-9.]+", "-", f"{workload or 'overall'}-{chart}"))


def draw(spec: Spec, kind: Format) -> bytes:
    """Draw a complete specification, without a network."""
    import vl_convert

    if kind == "svg":
        return vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]).encode()
    if kind == "pdf":
        return vl_convert.vegalite_to_pdf(spec, allowed_base_urls=[])
    return vl_convert.vegalite_to_png(spec, scale=2, allowed_base_urls=[])


@cache
def javascript() -> str:
    """Return the JavaScript that draws specifications, for pages that make no requests. It defines ``vegaEmbed``."""
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
