"""A report as one HTML page. It needs no network and no other file, and takes nothing that a log holds for markup."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ...errors import encodable
from ...log.study_file import kept_studies
from ..charts.all import Bars, Charts
from ..charts.figures import Figure, Ints, View, eventful
from ..charts.style import COLOURS
from ..measures import TIME_PARTS, Row, Shown, StrategySummary, Table, table
from ..model import Contrast, Overall, Program, Summary
from ..runs import ComparedRuns
from ..stats.comparison_matrix import Cell
from ..stats.intervals import Interval
from ..words import number_text, p_text
from .data import page_data
from .made import facts, log_links, strategies

_COLUMNS = 10
"""About how many columns of numbers the table of a figure has."""


def page(
    summary: Summary,
    comparison: ComparedRuns,
    charts: Charts,
    programs: Sequence[Program],
    out: Path,
) -> str:
    """The page of ``summary``, which is that of ``comparison``. Equal arguments give equal pages.

    out: the directory that it is for: links to logs start there.
    """
    assets = files(__package__) / "assets"
    style = (assets / "report.css").read_text("utf-8")
    script = "\n".join((assets / name).read_text("utf-8") for name in ("draw.js", "chart.js", "report.js"))
    figures, names, overall = charts.figures, charts.strategies, summary.overall
    measures = StrategySummary.compared_by()
    runs = [run for item in comparison.values() for run in item.runs]
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
        data=Markup(embedded(page_data(names, figures, comparison))),
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
                "pairs": {measure: pair_matrix(item.strategies, item.contrasts, measure) for measure in measures},
                "ranking": table(item.strategies, Shown.PAGE, **item.words(summary.target)),
                "interval_notes": interval_notes(item.strategies),
                "pair_notes": {
                    measure: sorted({c.note for c in item.contrasts if c.measure == measure and c.note})
                    for measure in measures
                },
                "failures": failure_rows(charts.failures[item.workload]),
                "spent": time_rows(charts.time[item.workload]),
                "facts": facts(comparison[item.workload].runs),
                "logs": log_links(comparison[item.workload].runs, out),
            }
            for number, item in enumerate(summary.workloads)
        ],
        overall=overall,
        overall_ranking=_by_rank(summary),
        matrix=matrix_rows(overall),
        overall_notes=interval_notes(overall.strategies if overall else ()),
        overall_figures=figures.get("", ()),
        overall_tables={figure.key: figure_tables(figure) for figure in figures.get("", ())},
        measures=measures,
        made=strategies(comparison),
        studies=[
            (encodable(f"{path.parent.name}/{path.name}"), text)
            for path, text in kept_studies(run.log.path for run in runs)
        ],
        parts=TIME_PARTS,
    )


def _by_rank(summary: Summary) -> Table:
    """The measures over all workloads, the best average rank first."""
    if summary.overall is None:
        return Table([], [])
    by_strategy = {row.strategy: row for row in summary.overall.strategies}
    rows = [by_strategy[name] for name in summary.overall.diagram.strategies]
    return table(rows, Shown.PAGE, cutoffs=summary.score_cutoffs)


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def embedded(data: Any) -> str:
    """``data`` as JSON that may stand in a script element: nothing in it can end that, or open a comment there."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def figure_tables(figure: Figure) -> list[dict[str, Any]]:
    """A table for each view of a figure, its lines where most happens: the figure in words and numbers."""
    tables = []
    for view in figure.views:
        places = eventful(_changes(view), _COLUMNS)
        rows = []
        for series in view.series:
            values = []
            for place in places:
                y = series.y[place]
                text = number_text(y, figure.digits)
                low, high = (ends[place] if ends else None for ends in (series.lower, series.upper))
                if low is not None and high is not None:
                    text += f" [{number_text(low, figure.digits)}, {number_text(high, figure.digits)}]"
                values.append(text)
            rows.append((series.strategy, values))
        tables.append({"view": view, "heads": [number_text(view.x[place]) for place in places], "rows": rows})
    return tables


def _changes(view: View) -> Ints:
    """How many lines have another value at each place of ``view.x`` than at the one before."""
    changes = np.zeros(len(view.x), dtype=np.int64)
    for series in view.series:
        y = np.array(series.y, dtype=np.float64)  # NaN where there is none
        changes[1:] += (y[1:] != y[:-1]) & ~np.isnan(y[1:])
    return changes


def pair_matrix(
    rows: Sequence[StrategySummary], contrasts: Sequence[Contrast], measure: str
) -> list[tuple[str, list[dict[str, Any] | None]]]:
    """For each strategy against each other: how probably a run of it is better, with the interval, and the adjusted p.

    The ends of the interval are None where there is none, and p where there is no test. The entry of a strategy against
    itself is None.
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
                chance = 1 - chance
                lower, upper = (None if end is None else 1 - end for end in (upper, lower))
            ahead, behind = c.ahead(one.strategy, other.strategy), c.ahead(other.strategy, one.strategy)
            word = "better" if ahead else "worse" if behind else ""
            cells.append({"chance": chance, "lower": lower, "upper": upper, "p": c.adjusted, "word": word})
        matrix.append((one.strategy, cells))
    return matrix


def interval_notes(rows: Sequence[Row]) -> list[str]:
    """Why estimates of ``rows`` have no interval, each sentence once."""
    estimates = [value for row in rows for value in row.values.values() if isinstance(value, Interval)]
    return sorted({estimate.note for estimate in estimates if estimate.note})


def matrix_rows(overall: Overall | None) -> list[tuple[str, list[tuple[Cell | None, str]]]]:
    """Rows of the multiple comparison matrix: for each strategy a cell against each, and the class of its colour.

    The colour is that of the mean difference, in steps of a quarter of the largest one. The cell of a strategy against
    itself is None.
    """
    cells = {(cell.row, cell.column): cell for cell in overall.matrix} if overall else {}
    names = list(dict.fromkeys(row for row, _ in cells))
    largest = max((abs(cell.difference) for cell in cells.values()), default=0.0)

    def colour(cell: Cell | None) -> str:
        step = math.ceil(4 * abs(cell.difference) / largest) if cell and largest else 0
        return f"{'up' if cell.difference > 0 else 'down'}{step}" if cell and step else ""

    return [(row, [(cell, colour(cell)) for column in names for cell in [cells.get((row, column))]]) for row in names]


def failure_rows(bars: Bars) -> dict[str, Any]:
    """The kinds of failure that there are; and for each strategy its trials, failures by kind, their share, and bar."""
    shares = [sum(bar.values) / bar.total for bar in bars.rows]
    widest = max(shares, default=0.0)
    rows = [
        {
            "strategy": bar.strategy, "total": bar.total, "counts": bar.values, "share": share,
            "bar": _pieces(bars.parts, bar.values, bar.total * widest),
        }
        for bar, share in zip(bars.rows, shares, strict=True)
    ]  # fmt: skip
    return {"kinds": bars.parts, "rows": rows}


def time_rows(bars: Bars) -> list[dict[str, Any]]:
    """For each strategy where its seconds went, on average over seeds."""
    longest = max((bar.total for bar in bars.rows), default=0.0)
    return [
        {
            "strategy": bar.strategy, "total": bar.total, "parts": bar.values,
            "bar": _pieces(bars.parts, bar.values, longest),
        }
        for bar in bars.rows
    ]  # fmt: skip


def _pieces(names: Sequence[str], values: Sequence[float], whole: float) -> list[dict[str, Any]]:
    """The pieces of a bar, in percent of its full length, from the left."""
    pieces, left = [], 0.0
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        width = 100 * value / whole if whole else 0.0
        if width:
            pieces.append({"name": name, "place": place, "value": value, "x": f"{left:.2f}", "width": f"{width:.2f}"})
        left += width
    return pieces
