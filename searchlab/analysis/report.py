"""Writing reports on logs: tables, data files, charts and a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..console import speed
from ..errors import SearchlabError
from ..files import resolve_inside, write_csv, write_file
from ..log.format import LOGS, read_header
from ..log.plan import Claim
from ..log.reliability import find_best_trial
from ..units import VALUES, convert_throughput
from . import measures
from .charts.figures import all_charts
from .charts.vegalite import Format, save_charts
from .measures import Cell, OverallStrategy, Shown, StrategySummary
from .model import BestProgram, ClaimVerdict, Comparand, Contrast, Summary
from .page.render import page
from .read import REPORT, planned_claims, read_runs
from .runs import By, ComparedRuns
from .summary import summarize

if TYPE_CHECKING:
    import pandas as pd

MAX_STRATEGIES = 12  # the maximum number of strategies that the terminal shows by default
MAX_NOTES = 3  # the maximum number of sentences that it shows below them
OUT = Path("results") / REPORT  # the default directory for a report on anything other than a single directory


def report(
    *where: str | Path,
    out: str | Path | None = None,
    everything: bool = False,
    figures: Format | None = None,
    by: By | None = None,
) -> Summary:
    """Compare the runs in logs, and write a page and data files.

    - ``report.html``: the report as one page that needs no other files and no network.
    - ``summary.json``, ``summary.csv``: the summary, with a row for each strategy on each workload.
    - ``runs.csv.gz``: a row for each run, with the numbers by seed that ``summary.csv`` averages.
    - ``contrasts.csv.gz``: a row for each pair of strategies and workload, with the mean difference in area. In rows
      over all workloads, ``workload`` is empty, and the columns ``others_`` are about other workloads like these.
    - ``overall.csv``: a row for each strategy over several workloads.
    - ``published_claims.csv``: a row for each opponent in each published claim of the study.
    - ``programs.csv.gz``: the best program of each run.
    - ``importances.csv``: the importance of each knob on each workload, its number of values, and its value in the
      fastest config.
    - ``WORKLOAD-CHART.KIND``: each chart, if ``figures`` is the kind of file: pdf, svg or png.

    Args:
        *where: Logs, or directories in which all logs (``**/*.jsonl``, ``**/*.jsonl.gz``) are read. A log that is
            passed twice counts once.
        out: The directory to write to. By default, ``report`` in ``where`` if that is a single directory, and
            ``results/report`` otherwise.
        everything: Whether to report on all logs in a study's directory, rather than only on the runs and trials that
            are currently part of the study.
        figures: The format in which all charts are written to files. By default, they are only on the page.
        by: Whether strategies are compared by the area over trials or over seconds. By default, over seconds if these
            limit all runs.

    Raises:
        SearchlabError: If there are no logs, if a log is damaged, if logs are not comparable (see
            :func:`~searchlab.analysis.read.read_runs`), or if the report cannot be written.
    """
    paths = [Path(path) for path in where]
    directory = report_directory(*paths, out=out)
    comparison = read_runs(*paths, everything=everything, readings=False, by=by)
    return write_report(comparison, directory, planned_claims(*paths), figures=figures)


def write_report(
    comparison: ComparedRuns, out: Path, claims: Sequence[Claim] = (), *, figures: Format | None = None
) -> Summary:
    """Write the report on ``comparison`` and the published ``claims`` to ``out``; see :func:`report`."""
    programs = run_programs(comparison)
    summary = summarize(comparison, claims)
    charts = all_charts(summary, comparison)
    write_file(out / "summary.json", msgspec.json.encode(summary.to_json()) + b"\n", under=out)
    for name, (columns, generated) in number_tables(summary, comparison, programs).items():
        if rows := list(generated):
            write_csv(out / f"{name}.csv{'.gz' if name in COMPRESSED else ''}", columns, rows, under=out)
    if figures:
        save_charts(out, charts, figures)
    text = page(summary, comparison, charts, best_programs(programs))
    write_file(out / "report.html", text, under=out)
    return summary


def render_report(comparison: ComparedRuns, claims: Sequence[Claim], version: str) -> str:
    """Return the page of the report, and write nothing. The page reloads itself when ``version`` is outdated."""
    summary = summarize(comparison, claims)
    charts = all_charts(summary, comparison)
    return page(summary, comparison, charts, best_programs(run_programs(comparison)), version)


def report_directory(*where: str | Path, out: str | Path | None = None) -> Path:
    """Return the directory that :func:`report` writes to.

    Raises:
        SearchlabError: If ``out`` is None and the report would be written to a folder of tables, or by a link to a
            different place.
    """
    if out is not None:
        return Path(out)
    if len(where) != 1 or not Path(where[0]).is_dir():
        return OUT
    directory = Path(where[0])
    for log in directory.iterdir():
        with suppress(SearchlabError):  # unreadable logs have been reported
            if log.name.endswith(LOGS) and read_header(log).is_table:
                break
    else:
        resolve_inside(directory / REPORT, directory)
        return directory / REPORT
    raise SearchlabError(
        f"{directory} is a folder of tables, such as {log.name}; specify where to write the report with --out DIR (in "
        f"Python, out=DIR)"
    )


# --- the terminal -----------------------------------------------------------------------------------------------------


def summary_table(summary: Summary, *, full: bool = True) -> list[RenderableType]:
    """Return the tables and sentences that the terminal shows for ``summary``.

    They begin with the verdicts on published claims and the answers to registered contrasts, and end with the table and
    verdict over all workloads. If ``full``, or if there is only one workload, they contain a table of how fast
    strategies converge and the verdict for each workload. If ``full``, they also contain its table of seconds and
    failed trials, and a description of the tests, which is always there if contrasts were added too late.
    """
    parts: list[RenderableType] = claim_texts(summary.claims)
    parts += [Text.assemble((answer.says, "bold"), f"\n{answer.explanation.size}") for answer in summary.answers]
    items = summary.workloads if full or summary.overall is None else []
    is_shared = summary.overall is None and len(items) > 1 and len({item.verdict for item in items}) == 1
    for item in items:
        words = item.words(summary.target)
        title = f"{item.workload}: nothing known yet"
        if item.best:
            finder = f"by {item.best.strategy}" if item.best.strategy else "which no run found"
            title = f"{item.workload}: best known {speed(item.best.gflops, item.unit)}, {finder}"
        parts += _ranking(title, measures.table(item.strategies, Shown.TERMINAL, **words), summary, full=full)
        texts = [*([] if is_shared else [item.verdict]), *item.notes]
        if not full and len(texts) > MAX_NOTES:
            texts[MAX_NOTES:] = ["More notes are in the report, and shown with --full."]
        if texts:
            parts.append(Text(" ".join(texts)))
        parts += [Text(explanation.size) for explanation in item.explanations[:1]]
        if full:
            parts.append(_StrategyTable("", measures.table(item.strategies, Shown.COSTS, **words)))
    if is_shared:
        parts.append(Text(items[0].verdict))
    about_tests = [Text(summary.family.says)] if full or summary.family.late else []
    return [*parts, *overall_tables(summary, full=full), *about_tests]


def claim_texts(claims: Sequence[ClaimVerdict]) -> list[RenderableType]:
    """Return a text for each claim: its verdict, its source, the published numbers and the numbers from the runs."""
    return [
        Text.assemble(
            (claim_verdict.verdict, f"bold {CLAIM_STYLES.get(claim_verdict.verdict, '')}"),
            (f": {claim_verdict.claim.text}", "bold"),
            f" ({claim_verdict.claim.source})",
            *([f"\n  published: {claim_verdict.claim.published}"] if claim_verdict.claim.published else []),
            *(f"\n  here: {other.says}" for other in claim_verdict.against),
        )
        for claim_verdict in claims
    ]


def overall_tables(summary: Summary, *, full: bool = True) -> list[RenderableType]:
    """Return the table and verdict over all workloads, or an empty list if there are none."""
    overall = summary.overall
    if overall is None:
        return []
    table = measures.table(overall.strategies, Shown.TERMINAL)
    ranks = overall.ranks
    table.heads.append(measures.Head("average\nrank"))
    for name, cells in table.rows:
        cells.append(Cell(f"{ranks[name]:.2f}"))
    title = f"across {len(overall.workloads)} workloads"
    sizes = [Text(explanation.size) for explanation in overall.explanations[:1]]
    return [*_ranking(title, table, summary, full=full), Text(overall.verdict), *sizes]


def _ranking(title: str, table: measures.Table, summary: Summary, *, full: bool) -> list[RenderableType]:
    """Return the table of strategies: unless ``full``, of the best and of those in registered contrasts."""
    if full or len(table.rows) <= MAX_STRATEGIES:
        return [_StrategyTable(title, table)]
    registered = {name for answer in summary.answers for name in (answer.first, answer.second)}
    rows = [row for number, row in enumerate(table.rows) if number < MAX_STRATEGIES or row[0] in registered]
    left = f"{len(table.rows) - len(rows)} more strategies are in the report, and shown with --full."
    return [_StrategyTable(title, table._replace(rows=rows)), Text(left)]


@dataclass(frozen=True)
class _StrategyTable:
    """A table of strategies.

    If it is too wide, the quartiles and intervals next to the numbers are omitted, and then the last columns.
    """

    title: str
    content: measures.Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = len(self.content.heads)
        table = self._render(True, columns)
        if Measurement.get(console, options.update(width=1000), table).maximum > options.max_width:
            table = self._render(False, columns)
        while columns and Measurement.get(console, options.update(width=1000), table).minimum > options.max_width:
            columns -= 1
            table = self._render(False, columns)
        yield table

    def _render(self, beside: bool, columns: int) -> Table:
        table = Table(
            title=Text(self.title, "bold") if self.title else None,
            title_justify="left",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
        longest = max((len(name) for name, _ in self.content.rows), default=0)
        table.add_column("strategy", overflow="fold", min_width=min(longest, 20), max_width=30)
        are_beside = []  # for each column, whether the texts next to its numbers are shown
        for index, head in enumerate(self.content.heads[:columns]):
            lines = head.title.split("\n")
            about = [line for line in lines if line.startswith(("[", "("))]  # the heading of these texts
            are_beside.append(beside or not about)
            title = Text("\n".join(line for line in lines if beside or line not in about))
            texts = [cells[index].text + cells[index].beside * are_beside[-1] for _, cells in self.content.rows]
            width = None if head.words else max(map(len, [*title.plain.split("\n"), *texts]))
            table.add_column(title, justify="left" if head.words else "right", no_wrap=not head.words, min_width=width)
        for name, cells in self.content.rows:
            table.add_row(
                Text(name),
                *(
                    Text.assemble((cell.text, "bold" if cell.best else ""), cell.beside if is_beside else "")
                    for cell, is_beside in zip(cells, are_beside, strict=False)
                ),
            )
        return table


# --- files of numbers, and frames -------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """A table whose rows have a value or None for each of ``columns``. The rows can be iterated over only once."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]

    def frame(self) -> pd.DataFrame:
        """Return the table as a pandas frame, with NaN instead of None so that columns of numbers are numeric."""
        import pandas as pd

        data = [[math.nan if value is None else value for value in row] for row in self.rows]
        return pd.DataFrame(data, columns=list(self.columns))


CONTRAST_COLUMNS = (
    *("first", "second", "test", "runs", "difference", "lower", "upper", "p", "adjusted_p"),
    *("others_lower", "others_upper", "others_adjusted_p"),
)
CLAIM_COLUMNS = tuple(name for name in Claim.__struct_fields__ if name != "against")
RUN_COLUMNS = (
    *("workload", "space", "strategy", "seed", "trials", "compared", "area", "area_by_seconds", "score", "best_gflops"),
    *("trials_to_target", "seconds_to_target", "failed_trials", "optimum_gflops", "unit"),
)
COMPRESSED = ("runs", "contrasts", "programs")  # the tables with a row for each run or pair
CLAIM_STYLES = {"holds": "green", "fails": "red"}


def number_tables(summary: Summary, comparison: ComparedRuns, programs: Iterable[BestProgram] = ()) -> dict[str, Rows]:
    """Return the tables that a report writes, by name; see :func:`report`."""
    items, overall = summary.workloads, summary.overall
    ranks = overall.ranks if overall else {}
    strategies = ((item.workload, row.strategy, *row.cells, item.unit) for item in items for row in item.strategies)
    contrasts = [*((item.workload, item.contrasts) for item in items), *([("", overall.contrasts)] if overall else [])]
    over_all = ((row.strategy, ranks[row.strategy], *row.cells) for row in (overall.strategies if overall else ()))
    return {
        "summary": _in_units(Rows(("workload", "strategy", *StrategySummary.names(), "unit"), strategies)),
        "runs": _in_units(Rows(RUN_COLUMNS, run_rows(summary, comparison))),
        "contrasts": Rows(
            ("workload", *CONTRAST_COLUMNS),
            ((name, *_contrast_values(contrast)) for name, compared in contrasts for contrast in compared),
        ),
        "importances": Rows(
            ("workload", "space", "knob", "importance", "values", "best_value"),
            (
                (item.workload, space.space, knob, importance, len(set(values)), values[space.throughput.argmax()])
                for item in comparison.values()
                for space in item.spaces
                for knob, importance in space.importances.items()
                for values in [space.knobs[knob]]
            ),
        ),
        "programs": _in_units(
            Rows(
                BestProgram.__struct_fields__,
                ([_value_text(value) for value in msgspec.structs.astuple(program)] for program in programs),
            )
        ),
        "overall": Rows(("strategy", "rank", *OverallStrategy.names()), over_all),
        "published_claims": Rows(
            ("claim", *CLAIM_COLUMNS, "claim_verdict", *Comparand.__struct_fields__),
            (
                (
                    number,
                    *(getattr(verdict.claim, name) for name in CLAIM_COLUMNS),
                    verdict.verdict,
                    *msgspec.structs.astuple(other),
                )
                for number, verdict in enumerate(summary.claims, 1)
                for other in verdict.against
            ),
        ),
    }


def _in_units(table: Rows) -> Rows:
    """Return the table with values instead of throughputs in the rows of functions that are maximised or minimised."""

    def convert(name: str, value: Any, unit: str) -> Any:
        is_number = unit in VALUES and "gflops" in name and value is not None
        return float(f"{convert_throughput(value, unit):.9g}") if is_number else value

    at = table.columns.index("unit")
    rows = (
        [convert(name, value, row[at]) for name, value in zip(table.columns, row, strict=True)] for row in table.rows
    )
    return Rows(table.columns, rows)


def _contrast_values(contrast: Contrast) -> tuple[Any, ...]:
    difference, these, others = contrast.difference, contrast.difference.on_these, contrast.difference.on_others
    return (
        *(contrast.first, contrast.second, contrast.test, contrast.runs),
        difference.value if difference.workloads else None,
        *(these.difference.lower, these.difference.upper, contrast.p, contrast.adjusted),
        *(others.difference.lower, others.difference.upper, others.p),
    )


def _value_text(value: Any) -> Any:
    """Return a config as JSON, the numbers in a list as a text, and other values as they are."""
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return " ".join(map(str, value)) if isinstance(value, list) else value


def run_rows(summary: Summary, comparison: ComparedRuns) -> Iterator[tuple[Any, ...]]:
    """Iterate over the rows of ``runs.csv.gz``: a row for each run that has trials."""
    for item in summary.workloads:
        for name, group in comparison[item.workload].strategies.items():
            row = item.by_strategy[name]
            missing = [None] * len(row.seeds)
            areas = row.area.by_seed, row.area_by_seconds.by_seed if row.area_by_seconds else missing
            times = row.trials_to_target.by_seed, row.seconds_to_target.by_seed
            by_seed = dict(zip(row.seeds, zip(*areas, row.score_by_seed or missing, *times, strict=True), strict=True))
            for run in group.runs:
                *own_areas, trials, seconds = by_seed.get(run.seed, [None] * 5)
                best = float(run.curve[: item.horizon][-1])
                labels = (item.workload, run.space, name, run.seed, run.log.trials, run.seed in by_seed)
                optimum = run.log.header.optimum
                optimum_gflops = run.log.flops / optimum / 1e9 if optimum else None
                failed = int((run.log.failures >= 0).sum())
                numbers = [*own_areas, best, trials, seconds]
                digits = [None if number is None else float(f"{number:.9g}") for number in numbers]
                yield *labels, *digits, failed, optimum_gflops, run.log.unit


# --- the best programs ------------------------------------------------------------------------------------------------


def run_programs(comparison: ComparedRuns) -> list[BestProgram]:
    """Return the best program of each run that has one, in the order of the comparison."""
    programs = []
    for run in (run for item in comparison.values() for run in item.runs):
        log = run.log
        if not np.isfinite(log.costs).any():
            continue
        index, seconds, tied = find_best_trial(log.costs, log.final)
        programs.append(
            BestProgram(
                workload=run.workload,
                strategy=run.strategy,
                seed=run.seed,
                trial=index,
                gflops=log.flops / seconds / 1e9,
                seconds=seconds,
                gflops_as_trial=log.flops / float(log.costs[index]) / 1e9,
                unit=log.unit,
                tied=tied,
                config=log.config(index),
                log=run.file,
            )
        )
    return programs


def best_programs(programs: Sequence[BestProgram]) -> list[BestProgram]:
    """Return the fastest program of each strategy on each workload, sorted by workload and throughput.

    If several programs are equally fast, the one with the lowest seed is chosen.
    """
    best: dict[tuple[str, str], BestProgram] = {}
    for program in sorted(programs, key=lambda item: (-item.gflops, item.seed)):
        best.setdefault((program.workload, program.strategy), program)
    return sorted(best.values(), key=lambda item: (item.workload, -item.gflops, item.strategy))
