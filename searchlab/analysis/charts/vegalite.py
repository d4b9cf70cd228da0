"""Charts as Vega-Lite specifications, which pages, files and notebooks draw.

Nothing here imports altair or vl-convert before a chart is returned to a user or written to a file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from zlib import crc32

import platformdirs

from ...errors import SearchlabError
from ...files import file_name, write_file
from ...stats.inference import ROPE
from ..runs import RANDOM_POLICY, ComparedRuns, list_strategies
from ..summary import Summary

if TYPE_CHECKING:
    import altair

DataRow = dict[str, Any]
"""A row of a chart's data."""

Spec = dict[str, Any]
"""A Vega-Lite specification without a size and a title."""

Format = Literal["pdf", "svg", "png"]
"""The formats of files with charts."""

# Colours that colour-blind readers can distinguish on white: those of Okabe and Ito, "Color universal design" (2008),
# except yellow, then olive, wine and indigo from Tol's "muted" scheme (SRON technical note 09-002, 2021). All have a
# contrast of at least 3 with white. The page replaces them in the dark; see report.css.
COLOURS = ("#0072b2", "#c94f00", "#00815e", "#b95c93", "#a06e00", "#333333", "#77771f", "#882255", "#332288")
DASHES: tuple[list[float], ...] = ([1, 0], [7, 2], [8, 2, 2, 2], [3, 1.5])
GROUP_COLOURS = (  # of what is not a strategy
    *("#3d8c95", "#8c6d4f", "#6b7c93", "#8a6a8f", "#6f8a3a", "#b0614a"),
    *("#2f4f8f", "#a0782a", "#4d7a4d", "#7f3f3f", "#a64d79", "#555555"),
)
GREY = "#767676"
WIDTH, HEIGHT = 520, 300  # in pixels
ROW_HEIGHT = 20  # the height of a strategy in charts with a row for each, in pixels
MAX_LEGEND_ROWS = 22  # maximum number of strategies in a column of a legend
STRATEGY: Spec = {"field": "strategy", "type": "nominal", "title": None}
HIGHLIGHTED = {"param": "highlighted", "empty": False}
MAX_HIGHLIGHTED = 6  # maximum number of strategies that are highlighted initially
OTHER_COLOUR_COUNT = len(COLOURS) - 1  # number of colours of strategies other than the subject
COLOUR_SALT = "28301"  # with it, the best and the most usual baselines have different colours
MAX_INTERVAL_RATIO = 4.0  # the end of a drawn interval, as a multiple of the largest difference in the chart
MIN_LOGARITHMIC_RATIO = 100.0  # an axis is logarithmic if its last value is at least this many times its first value


class Chart(NamedTuple):
    """A chart with one or more views.

    Attributes:
        key: The name in files and on the page.
        title: The heading above the chart.
        description: How to read the chart; the first sentence is the subtitle.
        views: The specification of each view.
    """

    key: str
    title: str
    description: str
    views: Mapping[str, Spec]

    @property
    def height(self) -> int:
        """The height that a page reserves for the chart, in pixels."""
        height: int = next(iter(self.views.values()))["height"]
        return height + 65


@dataclass(frozen=True)
class LineStyles:
    """The order and highlighting of strategies in all charts and tables.

    Attributes:
        names: All strategies: the subject first, then in alphabetical order.
        subject: The first strategy of the first registered contrast.
        highlighted: The strategies highlighted initially: those in registered contrasts, and the best others.
        ranking: All strategies, best first.
        opponents: The second strategies of registered contrasts, first those that are ahead.
        labels: What legends show instead of some names.
    """

    names: list[str]
    subject: str | None
    highlighted: list[str]
    ranking: list[str]
    opponents: list[str]
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_summary(cls, summary: Summary, comparison: ComparedRuns) -> LineStyles:
        names = list_strategies(comparison)
        registered_strategies = [name for answer in summary.answers for name in (answer.first, answer.second)]
        ranking = [row.strategy for row in summary.overall.strategies] if summary.overall else []
        ranking += [row.strategy for workload_summary in summary.workloads for row in workload_summary.strategies]
        ranking = list(dict.fromkeys([*ranking, *names]))
        highlighted = list(dict.fromkeys([*registered_strategies, *ranking]))[:MAX_HIGHLIGHTED]
        subject = registered_strategies[0] if registered_strategies else None
        names.sort(key=lambda name: (name != subject, name))
        by_difference = sorted(
            summary.answers, key=lambda answer: (math.isnan(answer.difference.value), answer.difference.value)
        )
        opponents = [answer.second for answer in by_difference]
        return cls(names, subject, highlighted, ranking, opponents)

    @cached_property
    def style_indices(self) -> dict[str, tuple[int, int]]:
        """The indices of the colour and dashes of each strategy.

        They depend only on its name, and thus are the same in all reports, unless a highlighted strategy has this
        colour or, for strategies that are not highlighted, another strategy has both. The subject alone has the first
        colour.
        """
        indices_by_name = {self.subject: (0, 0)} if self.subject else {}
        for name in sorted(set(self.names) - {self.subject}, key=lambda name: (name not in self.highlighted, name)):
            number = crc32(f"{COLOUR_SALT}{name}".encode())
            options = [
                (1 + (number + colour) % OTHER_COLOUR_COUNT, (number // OTHER_COLOUR_COUNT + dash) % len(DASHES))
                for colour in range(OTHER_COLOUR_COUNT)
                for dash in range(len(DASHES))
            ]
            if name in self.highlighted:
                colours = {colour for colour, _ in indices_by_name.values()}
                unused = (indices for indices in options if indices[0] not in colours)
            else:
                unused = (indices for indices in options if indices not in indices_by_name.values())
            indices_by_name[name] = next(unused, options[0])
        return indices_by_name

    def make_colour(self, names: Sequence[str]) -> Spec:
        """Return the encoding of strategies by their colours."""
        return STRATEGY | {"scale": {"domain": names, "range": [self.colour(name) for name in names]}}

    def colour(self, name: str) -> str:
        return COLOURS[self.style_indices[name][0]]

    def dash(self, name: str) -> list[float]:
        return DASHES[self.style_indices[name][1]]

    def references(self, names: Iterable[str]) -> list[str]:
        """Sort ``names`` as strategies to compare with: opponents in registered contrasts, random search, the best."""
        first = [*self.opponents, RANDOM_POLICY, *self.ranking]
        return sorted(names, key=first.index)


class Level(NamedTuple):
    """A value on an axis and its name."""

    value: float
    name: str


def make_layer(kind: str, encoding: Spec, **properties: Any) -> Spec:
    """Return a layer with marks of a kind, which have these ``properties``."""
    return {"mark": {"type": kind} | properties, "encoding": encoding}


# Lines


@dataclass(frozen=True)
class LineChart:
    """A chart with a line for each strategy, and a band if there is one. Pointing at it shows all values.

    Attributes:
        rows: The points of the lines: ``strategy``, ``x``, ``y`` and, if there is a band, ``lower`` and ``upper``. If
            they have a ``seed``, there is a line for each seed.
        domain: The ends of the y axis; None to fit the lines.
        levels: Values of y at which horizontal lines are drawn.
        shade: The x up to which the chart is shaded.
        relative: Whether to draw differences from a strategy that the reader chooses.
        steps: Whether lines change in steps, or are straight.
        digits: The decimal places of the values that pointing at the chart shows.
    """

    rows: Sequence[DataRow]
    styles: LineStyles
    x_title: str
    y_title: str
    levels: Sequence[Level] = ()
    domain: tuple[float | None, float | None] = (None, None)
    shade: Level | None = None
    relative: bool = False
    steps: bool = True
    digits: int = 2

    @property
    def spec(self) -> Spec:
        """The specification, which is empty without rows."""
        if not self.rows:
            return {}
        layers = [] if self.shade is None else [_make_shade(self.shade, self.first if self.is_logarithmic else 0)]
        layers += _make_level_lines(self.levels)
        if "lower" in self.rows[0]:
            layers.append(make_layer("area", self.band_encoding, **self.mark))
        layers.append(make_layer("line", self.line_encoding, **self.mark) | {"params": self.line_params})
        if not self.by_seed:
            layers.append(_make_readout(self.names, self.x, steps=self.steps, digits=self.digits))
        chart: Spec = {"data": {"values": self.rows}, "height": HEIGHT, "layer": layers}
        if self.relative:
            chart["params"] = [_make_selection("reference", "each strategy minus ", self.styles.references(self.names))]
            chart["transform"] = [
                {"calculate": "datum.strategy === reference ? datum.y : null", "as": "base"},
                {"joinaggregate": [{"op": "max", "field": "base", "as": "base"}], "groupby": ["x"]},
                {"calculate": "datum.y - datum.base", "as": "y"},
            ]
        return chart

    @cached_property
    def names(self) -> list[str]:
        strategies = {row["strategy"] for row in self.rows}
        return [name for name in self.styles.names if name in strategies]

    @property
    def by_seed(self) -> bool:
        return "seed" in self.rows[0]

    @cached_property
    def first(self) -> float:
        first: float = min(row["x"] for row in self.rows)
        return first

    @cached_property
    def is_logarithmic(self) -> bool:
        return self.first > 0 and max(row["x"] for row in self.rows) / self.first >= MIN_LOGARITHMIC_RATIO

    @property
    def mark(self) -> Spec:
        return {"clip": True, "interpolate": "step-after" if self.steps else "linear"}

    @property
    def x(self) -> Spec:
        x: Spec = {"field": "x", "type": "quantitative", "title": self.x_title, "scale": {"nice": False}}
        if self.is_logarithmic:
            x |= {"scale": {"nice": False, "type": "log"}, "axis": {"gridOpacity": 0.4, "tickCount": 5}}
        return x

    @property
    def y(self) -> Spec:
        ends = zip(("domainMin", "domainMax"), self.domain, strict=True)
        scale = {"zero": False} | {name: end for name, end in ends if end is not None}
        return {"field": "y", "type": "quantitative", "title": self.y_title, "scale": scale}

    @property
    def colour(self) -> Spec:
        labels = self.styles.labels
        return self.styles.make_colour(self.names) | {
            "legend": {
                "columns": 1 + (len(self.names) - 1) // MAX_LEGEND_ROWS,
                **({"labelExpr": f"{json.dumps(labels)}[datum.label] || datum.label"} if labels else {}),
                "symbolLimit": 0,  # no limit
                "symbolOpacity": 1,
                "symbolSize": 400,
                "symbolType": "stroke",
            },
        }

    @property
    def line_encoding(self) -> Spec:
        dashes = {"domain": self.names, "range": [self.styles.dash(name) for name in self.names]}
        width: Spec = {"value": 0.8 if self.by_seed else 1.8}
        if self.styles.subject and not self.by_seed:
            width["condition"] = {"test": {"field": "strategy", "equal": self.styles.subject}, "value": 3.2}
        encoding: Spec = {
            "x": self.x,
            "y": self.y,
            "color": self.colour,
            "strokeDash": STRATEGY | {"scale": dashes},
            "strokeWidth": width,
            "opacity": {"condition": HIGHLIGHTED | {"value": 1}, "value": 0.25},
        }
        if self.by_seed:
            encoding |= {"detail": {"field": "seed"}, "tooltip": [{"field": "strategy"}, {"field": "seed"}]}
        return encoding

    @property
    def band_encoding(self) -> Spec:
        y = self.y | {"field": "lower"}
        opacity = {"condition": HIGHLIGHTED | {"value": 0.12}, "value": 0}
        return {"x": self.x, "y": y, "y2": {"field": "upper"}, "color": self.colour, "opacity": opacity}

    @property
    def line_params(self) -> list[Spec]:
        """The strategies that are highlighted, which the legend changes, and the part of the chart that is shown."""
        return [
            {
                "name": HIGHLIGHTED["param"],
                "select": {"type": "point", "fields": ["strategy"], "toggle": "true"},
                "bind": "legend",
                "value": [{"strategy": name} for name in self.names if name in self.styles.highlighted],
            },
            {"name": "zoom", "select": {"type": "interval", "zoom": "wheel![event.shiftKey]"}, "bind": "scales"},
        ]


def _make_selection(name: str, label: str, options: Sequence[str]) -> Spec:
    """Return a parameter that the reader chooses; on a page, all charts with a parameter of this name follow."""
    return {"name": name, "value": options[0], "bind": {"input": "select", "options": list(options), "name": label}}


def _make_shade(end: Level, start: float) -> Spec:
    x = {"datum": start, "type": "quantitative"}
    area = make_layer("rect", {"x": x, "x2": {"datum": end.value}}, color=GREY, opacity=0.12)
    text_properties = {"align": "left", "baseline": "bottom", "dx": 5, "dy": -4, "color": GREY}
    label = make_layer("text", {"x": x, "y": {"value": "height"}}, text=end.name, **text_properties)
    return {"data": {"values": [{}]}, "layer": [area, label]}


def _make_level_lines(levels: Sequence[Level]) -> list[Spec]:
    """Return horizontal lines with their names below them, where the edge of the chart does not cut them."""
    layers: list[Spec] = []
    for level in levels:
        y = {"datum": level.value, "type": "quantitative"}
        text = {"align": "left", "baseline": "top", "dx": 5, "dy": 2, "color": GREY, "text": level.name}
        layers += [
            make_layer("rule", {"y": y}, color=GREY, strokeDash=[5, 4]),
            make_layer("text", {"x": {"value": 0}, "y": y}, **text),
        ]
    return [{"data": {"values": [{}]}, "layer": layers}] if layers else []


def _make_readout(names: Sequence[str], x: Spec, *, steps: bool, digits: int) -> Spec:
    """Return invisible areas, each from one point of any line to the next, that show the values of all lines there.

    Steps keep their value up to the next point, which is the largest so far. There is no selection, because
    Altair cannot combine charts with selections in several layers.
    """
    largest = {"window": [{"op": "max", "field": "y", "as": "y"}], "sort": [{"field": "x"}], "frame": [None, 0]}
    hold = [part | {"groupby": ["strategy"]} for part in ({"impute": "y", "key": "x", "value": None}, largest)]
    # Fields are numbered since a name may contain dots, brackets and quotes. Vega-Lite does not escape backslashes.
    field = f"'s' + indexof({json.dumps(names)}, datum.strategy)"
    fields = [
        {"field": f"s{number}", "title": name.replace("\\", "\\\\"), "type": "quantitative", "format": f".{digits}f"}
        for number, name in enumerate(names)
    ]
    tooltip = [{"field": "x", "title": x["title"], "type": "quantitative"}, *fields]
    areas = {"x": x, "x2": {"field": "next"}, "tooltip": tooltip}
    return make_layer("rect", areas, aria=False, opacity=0, tooltip=True) | {
        "transform": [
            *(hold if steps else ()),
            {"calculate": field, "as": "number"},
            {"pivot": "number", "value": "y", "groupby": ["x"]},
            {"window": [{"op": "lead", "field": "x", "as": "next"}], "sort": [{"field": "x"}]},
        ]
    }


# Other charts


def make_forest_chart(
    pairs: Sequence[DataRow],
    params: Mapping[str, tuple[str, Sequence[str]]],
    y: Spec,
    colour: Spec,
    *,
    height: int,
    transform: Sequence[Spec] = (),
    layers: Sequence[Spec] = (),
    **dots: Any,
) -> Spec:
    """Return a chart of differences from a reference, which the reader can choose, with intervals and p-values.

    Args:
        pairs: The differences: ``first``, ``second``, ``difference`` (first minus second), ``lower``, ``upper`` and
            ``p``, a text; the dot is full if the difference is ``significant``. Intervals are not corrected.
        params: The label and the options of each strategy that the reader chooses: ``reference`` and, in a chart of one
            strategy's differences, ``strategy``.
        transform: Further transforms, which follow the choice of pairs.
        layers: Further layers, below the intervals.
        **dots: Further channels of the dots' encoding.
    """
    # With two seeds, an interval may be a hundred times as wide as the difference: an arrow shows that it goes on.
    limit = max(MAX_INTERVAL_RATIO * max(abs(pair["difference"]) for pair in pairs), 2 * ROPE)
    x: Spec = {"field": "difference", "type": "quantitative", "axis": {"tickCount": 5}}
    x["title"] = ["difference in area", "(intervals uncorrected, p corrected)"]
    row = "workload" if "strategy" in params else "strategy"
    channels = {"y": y, "x": x, "color": colour}
    fill = {"condition": {"test": "datum.significant"} | colour, "value": "white"}
    text = {"y": y, "x": {"value": "width"}, "text": {"field": "text"}}
    titles = {y["field"]: row, "text": "difference", "interval": "95 % interval"}
    dots["tooltip"] = [{"field": field, "title": title} for field, title in titles.items()]
    zone = make_layer("rect", {"x": x | {"field": "lower"}, "x2": {"field": "upper"}}, color=GREY, opacity=0.15)
    return {
        "data": {"values": pairs},
        "height": height,
        "params": [_make_selection(name, label, options) for name, (label, options) in params.items()],
        "transform": [*_make_difference_transforms(limit, of_strategy="strategy" in params), *transform],
        "layer": [
            zone | {"data": {"values": [{"lower": -ROPE, "upper": ROPE}]}},
            make_layer("rule", {"x": {"datum": 0}}, color=GREY),
            *layers,
            make_layer("text", text, align="left", dx=8, color=GREY),
            make_layer("rule", channels | {"x": x | {"field": "left"}, "x2": {"field": "right"}}, size=2),
            _make_arrow(channels, "◀", "left", "datum.from < datum.left"),
            _make_arrow(channels, "▶", "right", "datum.to > datum.right"),
            make_layer("point", channels | {"fill": fill} | dots, size=70, opacity=1),
        ],
    }


def _make_difference_transforms(limit: float, *, of_strategy: bool) -> list[Spec]:
    """Return the transforms that select the pairs with the chosen reference, and subtract the reference.

    Args:
        limit: The largest value at which the ends of intervals are drawn.
        of_strategy: Whether to select only the pairs with the chosen strategy.
    """
    is_mirrored = "datum.first === reference"
    strategy = f"({is_mirrored} ? datum.second : datum.first)"
    fields = {
        "strategy": strategy,
        "from": f"{is_mirrored} ? -datum.upper : datum.lower",
        "to": f"{is_mirrored} ? -datum.lower : datum.upper",
        "difference": f"{is_mirrored} ? -datum.difference : datum.difference",
        "text": "format(datum.difference, '+.3f') + (datum.p && ', ' + datum.p)",
        "interval": "datum.from < datum.to ? format(datum.from, '+.3f') + ' to ' + format(datum.to, '+.3f') : 'none'",
        "left": f"max(datum.from, -{limit:.3g})",
        "right": f"min(datum.to, {limit:.3g})",
    }
    condition = f"({is_mirrored} || datum.second === reference)"
    if of_strategy:
        condition += f" && {strategy} === strategy"
    return [{"filter": condition}, *({"calculate": expression, "as": field} for field, expression in fields.items())]


def _make_arrow(channels: Spec, text: str, field: str, test: str) -> Spec:
    """Return an arrow at ``field`` where an interval ends beyond it."""
    opacity = {"condition": {"test": test, "value": 1}, "value": 0}
    return make_layer(
        "text", channels | {"x": channels["x"] | {"field": field}, "opacity": opacity}, text=text, aria=False
    )


def make_importance_chart(importances: Mapping[str, float]) -> Spec:
    """Return a bar for each knob."""
    y = {"field": "knob", "type": "nominal", "title": None, "sort": None}
    x: Spec = {"field": "share", "type": "quantitative", "title": "importance", "axis": {"format": ".0%"}}
    text = {"field": "share", "format": ".0%"}
    return {
        "data": {"values": [{"knob": knob, "share": round(share, 4)} for knob, share in importances.items()]},
        "height": ROW_HEIGHT * len(importances),
        "layer": [
            make_layer("bar", {"x": x, "y": y}, color=GROUP_COLOURS[0]),
            make_layer("text", {"x": x, "y": y, "text": text}, align="left", dx=4, color=GREY),
        ],
    }


def make_box_chart(rows: Sequence[DataRow], name: str, unit: str) -> Spec:
    """Return a box from ``lower`` to ``upper`` for each ``value``, a line at ``median`` and a dot at ``best``."""
    y: Spec = {"field": "value", "type": "nominal", "title": name, "sort": None}
    x: Spec = {"type": "quantitative", "title": unit, "scale": {"zero": False}}
    columns = ("value", "configs", "failed", "worst", "lower", "median", "upper", "best")
    tooltip = [{"field": column} for column in columns]

    def box(kind: str, start: str, end: str = "", **properties: Any) -> Spec:
        encoding: Spec = {"y": y, "x": x | {"field": start}, "tooltip": tooltip}
        return make_layer(
            kind, encoding | ({"x2": {"field": end}} if end else {}), color=GROUP_COLOURS[0], **properties
        )

    return {
        "data": {"values": rows},
        "height": ROW_HEIGHT * len(rows),
        "layer": [
            box("rule", "worst", "best"),
            box("bar", "lower", "upper", opacity=0.4, size=10),
            box("tick", "median", thickness=3, size=14),
            box("point", "best", filled=True, size=40, opacity=1),
        ],
    }


def make_heat_map(rows: Sequence[DataRow], values_by_knob: Mapping[str, Sequence[str]], unit: str) -> Spec:
    """Return a coloured cell for each pair of values of two knobs: ``value`` of the first, and ``other``."""
    y, x = [
        {"field": field, "type": "nominal", "title": knob, "sort": list(values)}
        for field, (knob, values) in zip(("value", "other"), values_by_knob.items(), strict=True)
    ]
    colour = {"field": "best", "type": "quantitative", "title": unit, "scale": {"scheme": "viridis", "zero": False}}
    tooltip = [{"field": axis["field"], "title": axis["title"]} for axis in (x, y)]
    tooltip += [{"field": column} for column in ("best", "median", "configs", "failed")]
    return {
        "data": {"values": rows},
        "height": ROW_HEIGHT * len({row["value"] for row in rows}),
        "layer": [{"mark": "rect", "encoding": {"x": x, "y": y, "color": colour, "tooltip": tooltip}}],
    }


# Pages, files and notebooks


def extract_data(charts: Mapping[str, Chart], prefix: str) -> dict[str, Any]:
    """Return the specifications of all views by chart, and their data by name. Both names begin with ``prefix``.

    The data are columns, which take half as many bytes as rows.
    """
    names: dict[int, str] = {}
    data: dict[str, dict[str, list[Any]]] = {}
    specs: dict[str, dict[str, Spec]] = {}
    for key, chart in charts.items():
        chart_specs = specs.setdefault(f"{prefix}-{key}", {})
        for view, spec in chart.views.items():
            rows = spec.get("data", {}).get("values", [])
            name = names.setdefault(id(rows), f"{prefix}-{len(names)}")
            data[name] = {field: [row[field] for row in rows] for field in rows[0]} if rows else {}
            chart_specs[view] = spec | {"data": {"name": name}}
    return {"data": data, "charts": specs}


def add_title(spec: Spec, workload: str, chart: Chart, view: str) -> Spec:
    """Return a complete specification: with a size, a title and a subtitle."""
    by = f", {view}" if len(chart.views) > 1 else ""
    title = {
        "text": f"{workload or 'Across all workloads'}: {chart.title.lower()}{by}",
        "subtitle": wrap(chart.description.partition(". ")[0], 90),
        "anchor": "start",
        "subtitleColor": GREY,
        "offset": 10,
    }
    return {"width": WIDTH, "title": title} | spec


def make_altair_chart(spec: Spec) -> altair.LayerChart:
    """Return a layered ``spec`` as an Altair chart, which notebooks show, and which can be restyled and combined."""
    import altair

    parts = {
        "layer": [
            make_altair_chart(layer) if "layer" in layer else _make_altair_layer(layer) for layer in spec["layer"]
        ],
        "params": [altair.VariableParameter.from_dict(param) for param in spec.get("params", ())],
    }
    return altair.LayerChart(**spec | parts)


def _make_altair_layer(spec: Spec) -> altair.Chart:
    import altair

    chart = altair.Chart.from_dict({"data": {"values": []}} | spec)
    if "data" not in spec:
        chart.data = altair.Undefined  # it is that of all layers
    return chart


def save_charts(out: Path, charts: Mapping[str, Mapping[str, Chart]], file_format: Format) -> None:
    """Write each view of each chart to a file in the directory ``out``."""
    for workload, workload_charts in charts.items():
        for chart in workload_charts.values():
            for index, (view, spec) in enumerate(chart.views.items()):
                name = name_chart_file(workload, f"{chart.key} {view}" if index else chart.key)
                write_file(
                    out / f"{name}.{file_format}", draw(add_title(spec, workload, chart, view), file_format), under=out
                )


def name_chart_file(workload: str, chart: str) -> str:
    """Return the name of a chart's file, without suffix. ``workload`` is "" for charts over all workloads."""
    return file_name(re.sub(r"[^A-Za-z0-9.]+", "-", f"{workload or 'overall'}-{chart}"))


def draw(spec: Spec, file_format: Format) -> bytes:
    """Draw a complete specification, without a network."""
    import vl_convert

    if file_format == "svg":
        return vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]).encode()
    if file_format == "pdf":
        return vl_convert.vegalite_to_pdf(spec, allowed_base_urls=[])
    return vl_convert.vegalite_to_png(spec, scale=2, allowed_base_urls=[])


@cache
def bundle_javascript() -> str:
    """Return the JavaScript that draws specifications, for pages that make no requests. It defines ``vegaEmbed``.

    It takes two seconds to bundle, so it is kept in the user's cache.
    """
    bundle = platformdirs.user_cache_path("searchlab") / f"vega-embed-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        return bundle.read_text("utf-8")
    import vl_convert

    code: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    with suppress(OSError, SearchlabError):  # it is bundled again next time
        write_file(bundle, code)
    return code
