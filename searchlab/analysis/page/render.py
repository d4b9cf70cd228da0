"""A report as one HTML page: no network, no other file, nothing that a log holds taken for markup."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ...records import FAILURES
from ..charts.line_plot import COLOURS
from ..charts.workload import Figure
from ..contrasts import Contrast
from ..programs import Program
from ..read import Cell, Comparison
from ..stats.ranks import ALPHA
from ..summary import StrategySummary, Summary, WorkloadSummary
from ..verdict import AREA, SECONDS, TRIALS

PARTS = ("propose", "train", "build", "run")
MEASURES = {TRIALS: "trials to the target", SECONDS: "seconds to the target", AREA: "area under the curve"}
_BUDGETS = (1, 2, 5)  # times a power of ten: where a figure's table gives its lines


def page(
    summary: Summary,
    comparison: Comparison,
    figures: Mapping[str, Sequence[Figure]],
    programs: Sequence[Program],
) -> str:
    """The page. figures: by workload, "" for those over all workloads. Equal arguments give equal pages."""
    assets = files(__package__) / "assets"
    style, script = (assets / "report.css").read_text("utf-8"), (assets / "report.js").read_text("utf-8")
    names = strategy_order(comparison)
    numbers = {name: number for number, name in enumerate(names)}
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "number": number_text, "p": p_text, "json": json.dumps, "percent": lambda value: f"{100 * value:.0f} %",
    }  # fmt: skip
    # The style and the script of this page, by their hashes, and nothing else: no request, no script from a log.
    allowed = "; ".join((
        "default-src 'none'", f"style-src {_digest(style)}", f"script-src {_digest(script)}",
        "base-uri 'none'", "form-action 'none'",
    ))  # fmt: skip
    return environment.from_string((assets / "report.html.jinja").read_text("utf-8")).render(
        allowed=allowed,
        style=Markup(style),
        script=Markup(script),
        data=Markup(embedded(_data(names, figures))),
        summary=summary,
        names=names,
        numbers=numbers,
        colours=len(COLOURS),
        sections=[
            {
                "item": item,
                "id": f"w{number}",
                "figures": figures[item.workload],
                "tables": {figure.key: figure_tables(figure) for figure in figures[item.workload]},
                "programs": [one for one in programs if one.workload == item.workload],
                "pairs": {measure: pair_matrix(item.strategies, item.contrasts, measure) for measure in MEASURES},
                "failures": failure_rows(item),
                "spent": spent_rows(item),
                "facts": facts([cell for cells in comparison[item.workload].values() for cell in cells]),
            }
            for number, item in enumerate(summary.workloads)
        ],
        overall=summary.overall,
        overall_figures=figures.get("", ()),
        overall_tables={figure.key: figure_tables(figure) for figure in figures.get("", ())},
        measures=MEASURES,
        parts=PARTS,
    )


def strategy_order(comparison: Comparison) -> list[str]:
    """One order for all pictures and charts: a strategy looks the same in each of them."""
    return sorted({strategy for strategies in comparison.values() for strategy in strategies})


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def embedded(data: Any) -> str:
    """``data`` as JSON that may stand in a script element: nothing in it can end that, or open a comment there."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data(names: Sequence[str], figures: Mapping[str, Sequence[Figure]]) -> dict[str, Any]:
    place = {name: number for number, name in enumerate(names)}
    return {
        "strategies": names,
        "colours": len(COLOURS),
        "figures": {
            f"{number}-{figure.key}": {
                "step": figure.step,
                "digits": figure.digits,
                "ends": figure.ends,
                "views": {
                    view.key: {
                        "label": view.label, "quantity": view.quantity, "log": view.log,
                        "bottom": view.bottom, "top": view.top,
                        "x": view.x, "levels": [[level.y, level.name] for level in view.levels],
                        "series": [[place[s.strategy], s.y, s.lower, s.upper] for s in view.series],
                    }
                    for view in figure.views
                },
            }
            for number, here in enumerate(figures.values())
            for figure in here
        },
    }  # fmt: skip


def number_text(value: float | None, digits: int | None = None) -> str:
    """A number with ``digits`` after the point, or with three that count; a dash for none."""
    if value is None:
        return "-"
    if digits is not None:
        return f"{value:z,.{digits}f}"  # z: no minus before zero
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-3 else "< 0.001" if value > 0 else "> -0.001"


def p_text(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


def figure_tables(figure: Figure) -> list[dict[str, Any]]:
    """A table for each view of a figure, its lines at a few places: the figure in words and numbers."""
    tables = []
    for view in figure.views:
        places = _rows(view.x)
        rows = []
        for series in view.series:
            values = []
            for place in places:
                y = series.y[place]
                text = number_text(y, figure.digits)
                if y is not None and series.lower and series.upper:
                    low, high = series.lower[place], series.upper[place]
                    text += f" [{number_text(low, figure.digits)}, {number_text(high, figure.digits)}]"
                values.append(text)
            rows.append((series.strategy, values))
        tables.append({"view": view, "heads": [number_text(view.x[place]) for place in places], "rows": rows})
    return tables


def _rows(x: Sequence[float]) -> list[int]:
    """Places in ``x`` near 1, 2, 5, 10, 20 ..., and its last."""
    wanted = [m * 10.0**e for e in range(-3, 7) for m in _BUDGETS if x[0] <= m * 10.0**e <= x[-1]]
    nearest = {min(range(len(x)), key=lambda i: abs(x[i] - value)) for value in wanted}
    if x[0] < 1 and len(nearest) < 3:  # a linear axis within a decade
        nearest |= {round(part * (len(x) - 1) / 4) for part in range(4)}
    return sorted(nearest | {len(x) - 1})


def pair_matrix(
    rows: Sequence[StrategySummary], contrasts: Sequence[Contrast], measure: str
) -> list[tuple[str, list[dict[str, Any] | None]]]:
    """For each strategy against each: how probably a run of it is better, with the interval, and Holm's p; None against
    itself.
    """
    about = {(c.first, c.second): c for c in contrasts if c.measure == measure}
    matrix = []
    for one in rows:
        cells: list[dict[str, Any] | None] = []
        for other in rows:
            if one is other:
                cells.append(None)
                continue
            c = about.get((one.strategy, other.strategy)) or about[other.strategy, one.strategy]
            chance, lower, upper = c.improvement, c.lower, c.upper
            if c.first != one.strategy:
                chance, lower, upper = 1 - chance, 1 - upper, 1 - lower
            sure = c.adjusted <= ALPHA and chance != 0.5
            word = ("better" if chance > 0.5 else "worse") * sure
            cells.append({"chance": chance, "lower": lower, "upper": upper, "p": c.adjusted, "word": word})
        matrix.append((one.strategy, cells))
    return matrix


def failure_rows(item: WorkloadSummary) -> dict[str, Any]:
    """The kinds of failure that there are, and of each strategy its trials, failures by kind, and bar."""
    kinds = [kind for kind in FAILURES if any(row.failures[kind] for row in item.strategies)]
    shares = [sum(row.failures.values()) / sum(row.trials_by_seed) for row in item.strategies]
    widest = max(shares, default=0.0)
    rows = []
    for row, share in zip(item.strategies, shares, strict=True):
        total = sum(row.trials_by_seed)
        counts = [row.failures[kind] for kind in kinds]
        rows.append({
            "strategy": row.strategy, "total": total, "counts": counts, "share": share,
            "bar": _bar(kinds, counts, total * widest),
        })  # fmt: skip
    return {"kinds": kinds, "rows": rows}


def spent_rows(item: WorkloadSummary) -> list[dict[str, Any]]:
    """Of each strategy where its seconds went, a seed on average."""
    longest = max((row.seconds.total / len(row.seeds) for row in item.strategies), default=0.0)
    rows = []
    for row in item.strategies:
        parts = [getattr(row.seconds, part) / len(row.seeds) for part in PARTS]
        rows.append({
            "strategy": row.strategy, "total": row.seconds.total / len(row.seeds), "parts": parts,
            "bar": _bar(PARTS, parts, longest),
        })  # fmt: skip
    return rows


def _bar(names: Sequence[str], values: Sequence[float], whole: float) -> list[dict[str, Any]]:
    """The pieces of a bar, in percent of its full length, from the left."""
    pieces, left = [], 0.0
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        width = 100 * value / whole if whole else 0.0
        if width:
            pieces.append({"name": name, "place": place, "value": value, "x": f"{left:.2f}", "width": f"{width:.2f}"})
        left += width
    return pieces


def facts(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """What the runs of a workload were made with, where the first of them says."""
    header = cells[0].log.header
    device = {name: header.target[name] for name in ("kind", "mcpu", "arch", "num-cores") if name in header.target}
    said = {
        "runs": str(len(cells)),
        "target": ", ".join(f"{name} {value}" for name, value in device.items()),
        "host": ", ".join(f"{name} {value}" for name, value in header.host.items()),
        "measured by": ", ".join(f"{name} {value}" for name, value in header.measure.items()),
        "versions": ", ".join(f"{name} {value}" for name, value in header.versions.items()),
    }
    return [(name, text) for name, text in said.items() if text]
