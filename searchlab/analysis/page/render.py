"""Rendering a report as an HTML page that needs no network or other files and never treats text from logs as markup."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ...console import format_speed
from ...errors import encodable
from ...log.format import DEFAULT_CONFIG_MARKER, Header
from ...log.plan import read_study_copies
from ...plugins import Plugin
from ..charts.vegalite import COLOURS, Chart, LineStyles, bundle_javascript, extract_data
from ..columns import Tables, add_test_columns
from ..knobs import describe_important_knobs
from ..runs import ComparedRuns, LoggedRun, WorkloadRuns
from ..summary import Summary, WorkloadSummary
from ..verdict import UNFINISHED_SENTENCE
from ..words import counted, format_number, format_percent, format_ranges, listed, name_area

WATCH_SCRIPT = "watch.js"  # the script of pages that are served


def render_page(
    summary: Summary, runs: ComparedRuns, charts: Mapping[str, Mapping[str, Chart]], version: str = ""
) -> str:
    """Render the page of a report on ``runs``. Equal arguments yield equal pages.

    ``version`` is that of a page that is served, which follows its study; see :func:`render_waiting_page`.
    """
    styles = LineStyles.from_summary(summary, runs)
    templates = make_environment()
    templates.globals |= {
        "numbers": {name: number for number, name in enumerate(styles.names)},
        "style_classes": {name: "c{} d{}".format(*styles.style_indices[name]) for name in styles.names},
        "subject": styles.subject,
        "area": name_area(summary.by),
        "several": len(summary.workloads) > 1,
        "unfinished_sentence": UNFINISHED_SENTENCE,
    }
    overall = summary.overall
    return templates.get_template("report.html.jinja").render(
        **make_page_assets("sort.js", "report.js", *([WATCH_SCRIPT] if version else []), draws_charts=True),
        version=version,
        data=embed_json({"strategies": styles.names, "highlighted": styles.highlighted, "colours": COLOURS}),
        summary=summary,
        names=styles.names,
        highlighted=styles.highlighted,
        legend=[*styles.highlighted, *(name for name in styles.names if name not in styles.highlighted)],
        sections=[
            _make_section(
                f"w{number}", workload_summary, runs[workload_summary.workload], charts[workload_summary.workload]
            )
            for number, workload_summary in enumerate(summary.workloads)
        ],
        overall=overall,
        overall_table=overall and add_test_columns(overall.make_table(Tables.PAGE), overall.contrasts, overall.ranks),
        charts=charts,
        overall_chart_data=compress_json(extract_data(charts[""], "all")),
        most_important_knob=describe_most_important_knob(runs),
        strategy_settings=describe_settings(runs),
        studies=[
            (encodable(f"{path.parent.name}/{path.name}"), text)
            for path, text in read_study_copies(
                run.log.path for workload_runs in runs.values() for run in workload_runs.runs
            )
        ],
    )


def render_waiting_page(version: str) -> str:
    """Render the page to serve until there is a report.

    A page with a version asks its server for the study's progress, and reloads itself if the server's version differs.
    """
    return make_environment().get_template("watch.html.jinja").render(**make_page_assets(WATCH_SCRIPT), version=version)


def make_environment() -> Environment:
    """Return the environment that renders page templates."""
    loader = FunctionLoader(_read_asset)
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters |= {
        "number": format_number,
        "speed": partial(format_speed, number_format=",.1f"),
        "json": json.dumps,
        "percent": format_percent,
    }
    return templates


def make_page_assets(*scripts: str, draws_charts: bool = False) -> dict[str, str]:
    """Return a page's style and script, and a content security policy that allows only these two, by their hashes.

    A page with the script :data:`WATCH_SCRIPT` may also send requests to its own server. The script of a page that
    ``draws_charts`` begins with Vega.
    """
    style = _read_asset("report.css")
    code = "\n".join([*([bundle_javascript()] if draws_charts else []), *map(_read_asset, scripts)])
    sources = _hash_source(code) if scripts else "'none'"
    server = "'self'" if WATCH_SCRIPT in scripts else "'none'"
    allowed = (
        f"default-src 'none'; style-src {_hash_source(style)}; script-src {sources}; connect-src {server}; "
        "base-uri 'none'; form-action 'none'"
    )
    return {"allowed": allowed, "style": Markup(style), "script": Markup(code)}


def _read_asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text("utf-8")


def _make_section(
    section_id: str, workload_summary: WorkloadSummary, runs: WorkloadRuns, charts: Mapping[str, Chart]
) -> dict[str, Any]:
    """Return the values that the template of a workload's section needs."""
    return {
        "id": section_id,
        "workload_summary": workload_summary,
        "charts": charts,
        "programs": runs.best_programs,
        "ranking_table": add_test_columns(workload_summary.make_table(Tables.PAGE), workload_summary.contrasts),
        "cost_table": workload_summary.make_table(Tables.COSTS),
        "measurement_facts": describe_measurement(runs.runs),
        "knobs": describe_important_knobs(runs.spaces),
        "chart_data": compress_json(extract_data(charts, section_id)),
    }


def describe_most_important_knob(comparison: ComparedRuns) -> str:
    """Return which knob matters most on how many workloads: "tile_k (sketch) on 9 workloads and unroll ...".

    Returns "" for a single workload.
    """
    spaces = [space for workload_runs in comparison.values() for space in workload_runs.spaces if space.importances]
    has_several_spaces = len({space.space for space in spaces}) > 1
    counts = Counter(
        next(iter(space.importances)) + (f" ({space.space})" if has_several_spaces else "") for space in spaces
    )
    texts = [f"{knob} on {counted(count, 'workload')}" for knob, count in counts.most_common()]
    return listed(texts) if len(comparison) > 1 else ""


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def embed_json(data: Any) -> Markup:
    """Return ``data`` as JSON for a script element. Nothing in it can close the element or open a comment."""
    json_text = json.dumps(msgspec.to_builtins(data), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Markup(json_text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def compress_json(data: Any) -> str:
    """Return ``data`` as compressed JSON in base64."""
    json_text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(json_text.encode(), 9)).decode()


class Settings(NamedTuple):
    """How a strategy was run on a workload, as texts."""

    strategy: str
    policy: str
    cost_model: str
    features: str
    batch: str
    warm_start: str


def describe_settings(comparison: ComparedRuns) -> list[dict[str, Any]]:
    """Return a row for each way in which a strategy was run, with the workloads if it was run in several ways."""
    runs_by_settings: dict[Settings, list[LoggedRun]] = {}
    for workload_runs in comparison.values():
        for strategy, strategy_runs in workload_runs.runs_by_strategy.items():
            settings = _make_settings(strategy, strategy_runs[0].log.header)
            runs_by_settings.setdefault(settings, []).extend(strategy_runs)
    ways = Counter(settings.strategy for settings in runs_by_settings)
    rows = []
    for settings, runs in sorted(runs_by_settings.items()):
        lengths = [run.log.trial_count for run in runs]
        workloads = list(dict.fromkeys(run.workload for run in runs))
        rows.append(
            settings._asdict()
            | {
                "seeds": format_ranges(run.seed for run in runs),
                "trials": " to ".join(map(str, sorted({min(lengths), max(lengths)}))),
                "on": listed(workloads) if ways[settings.strategy] > 1 else "",
            }
        )
    return rows


def _make_settings(strategy: str, header: Header) -> Settings:
    policy = format_plugin(header.policy)
    if header.effective_options:
        policy += f" (used: {_format_mapping(header.effective_options)})"
    model = format_plugin(header.cost_model) if header.cost_model else ""
    logs = [source for source in header.warm_start if source != DEFAULT_CONFIG_MARKER]
    sources = ["the default config"] if DEFAULT_CONFIG_MARKER in header.warm_start else []
    if logs:
        sources.append(f"{len(logs)} logs")
    features = header.features if header.cost_model else ""
    return Settings(strategy, policy, model, features, str(header.batch), " and ".join(sources))


def format_plugin(plugin: Plugin) -> str:
    """Return a plug-in's name and the options passed to it."""
    return f"{plugin.name}: {_format_mapping(plugin.options)}" if plugin.options else plugin.name


def _format_mapping(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items())


def describe_measurement(runs: Sequence[LoggedRun]) -> dict[str, str]:
    """Return texts that describe how runs were measured, by title, with all variants if their logs differ."""
    headers = [run.log.header for run in runs]
    days = sorted(
        {time.strftime("%Y-%m-%d", time.gmtime(header.created_at)) for header in headers if header.created_at}
    )
    texts_by_name = {
        "runs": [str(len(runs))],
        "space": [_format_space(header) for header in headers],
        "target": [_format_target(header.target) for header in headers],
        "host": [_format_mapping(header.host) for header in headers],
        "measured by": [_format_mapping(header.measure) for header in headers],
        "programs built at a time": [str(header.workers) for header in headers],
        "versions": [_format_versions(run) for run in runs],
        "made on": [" to ".join(dict.fromkeys((days[0], days[-1])))] if days else [],
    }
    variants = {name: list(dict.fromkeys(filter(None, texts))) for name, texts in texts_by_name.items()}
    return {name: "; or ".join(texts) for name, texts in variants.items() if texts}


def _format_versions(run: LoggedRun) -> str:
    """Return the versions of the libraries, for the trials before and after each change of versions."""
    spans = run.log.version_spans
    if len(spans) == 1:
        return _format_mapping(run.log.header.versions)
    return ", then ".join(f"from trial {trial} on {_format_mapping(versions)}" for trial, versions in spans)


def _format_space(header: Header) -> str:
    label = f"{header.space_label} = " if header.space_label else ""
    size = f", {header.space_size:,} configs" if header.space_size else ""
    return f"{label}{format_plugin(header.space)}{size}"


def _format_target(target: Mapping[str, Any]) -> str:
    return _format_mapping({name: target[name] for name in ("kind", "mcpu", "arch", "num-cores") if name in target})
