"""A report as one HTML page. It needs no network and no other file, and takes nothing that a log holds for markup."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ...errors import encodable
from ...log.study_file import kept_studies
from ..charts.all import Charts
from ..charts.style import COLOURS
from ..measures import TIME_PARTS, Shown, StrategySummary, Table, table
from ..model import Program, Summary
from ..runs import ComparedRuns
from ..words import number_text, p_text
from .data import page_data
from .made import facts, log_links, strategies
from .parts import (
    failure_rows,
    figure_tables,
    interval_notes,
    matrix_rows,
    pair_matrix,
    time_rows,
)


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
