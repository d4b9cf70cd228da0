"""The tables and sentences of a report in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from ..console import format_speed
from .claims import ClaimVerdict
from .columns import Column, Table, Tables, make_rank_column
from .measures import Row
from .summary import Summary, WorkloadSummary

MAX_STRATEGIES = 12  # the maximum number of strategies that the terminal shows by default
MAX_SENTENCES = 3  # the maximum number of sentences that it shows below them
CLAIM_STYLES = {"holds": "green", "fails": "red"}


def summary_table(summary: Summary, *, full: bool = True) -> list[RenderableType]:
    """Return the tables and sentences that the terminal shows for ``summary``.

    They begin with the verdicts on published claims and the answers to registered contrasts, and end with the table and
    verdict over all workloads. If ``full``, or if there is only one workload, they contain a table of how fast
    strategies converge and the verdict for each workload. If ``full``, they also contain its table of seconds and
    failed trials, and a description of the tests, which is always there if contrasts were added too late.
    """
    renderables: list[RenderableType] = format_claims(summary.claims)
    renderables += [
        Text.assemble((answer.sentence, "bold"), f"\n{answer.explanation.size}") for answer in summary.answers
    ]
    workloads = summary.workloads if full or summary.overall is None else []
    verdicts = {workload_summary.verdict for workload_summary in workloads}
    is_one_verdict = summary.overall is None and len(workloads) > 1 and len(verdicts) == 1
    for workload_summary in workloads:
        renderables += _make_workload_tables(workload_summary, summary, full=full, with_verdict=not is_one_verdict)
    if is_one_verdict:
        renderables.append(Text(workloads[0].verdict))
    renderables += make_overall_tables(summary, full=full)
    if full or summary.family.late_pairs:
        renderables.append(Text(summary.family.description))
    return renderables


def _make_workload_tables(
    workload_summary: WorkloadSummary, summary: Summary, *, full: bool, with_verdict: bool
) -> list[RenderableType]:
    """Return the tables and sentences on one workload."""
    title, best = f"{workload_summary.workload}: nothing known yet", workload_summary.best
    if best:
        finder = f"by {best.strategy}" if best.strategy else "which no run found"
        title = f"{workload_summary.workload}: best known {format_speed(best.gflops, workload_summary.unit)}, {finder}"
    renderables = _make_ranking(title, workload_summary.make_table(Tables.TERMINAL), summary, full=full)
    sentences = [workload_summary.verdict] if with_verdict else []
    sentences += workload_summary.notes
    if not full and len(sentences) > MAX_SENTENCES:
        sentences[MAX_SENTENCES:] = ["More notes are in the report, and shown with --full."]
    if sentences:
        renderables.append(Text(" ".join(sentences)))
    renderables += [Text(explanation.size) for explanation in workload_summary.explanations[:1]]
    if full:
        costs = workload_summary.make_table(Tables.COSTS)
        renderables.append(_StrategyTable("", costs, costs.rows))
    return renderables


def format_claims(claims: Sequence[ClaimVerdict]) -> list[RenderableType]:
    """Return a text for each claim: its verdict, its source, the published numbers and the numbers from the runs."""
    return [
        Text.assemble(
            (claim_verdict.verdict, f"bold {CLAIM_STYLES.get(claim_verdict.verdict, '')}"),
            (f": {claim_verdict.claim.text}", "bold"),
            f" ({claim_verdict.claim.source})",
            *([f"\n  published: {claim_verdict.claim.published}"] if claim_verdict.claim.published else []),
            *(f"\n  here: {comparand.sentence}" for comparand in claim_verdict.comparands),
        )
        for claim_verdict in claims
    ]


def make_overall_tables(summary: Summary, *, full: bool = True) -> list[RenderableType]:
    """Return the table and verdict over all workloads, or an empty list if there are none."""
    overall = summary.overall
    if overall is None:
        return []
    measures = overall.make_table(Tables.TERMINAL)
    table = measures.insert(len(measures.columns), [make_rank_column(overall.ranks)])
    title = f"across {len(overall.workloads)} workloads"
    sizes = [Text(explanation.size) for explanation in overall.explanations[:1]]
    return [*_make_ranking(title, table, summary, full=full), Text(overall.verdict), *sizes]


def _make_ranking(title: str, table: Table[Row], summary: Summary, *, full: bool) -> list[RenderableType]:
    """Return the table of strategies: unless ``full``, of the best and of those in registered contrasts."""
    if full or len(table.rows) <= MAX_STRATEGIES:
        return [_StrategyTable(title, table, table.rows)]
    registered_strategies = {name for answer in summary.answers for name in (answer.first, answer.second)}
    rows = [
        row for number, row in enumerate(table.rows) if number < MAX_STRATEGIES or row.strategy in registered_strategies
    ]
    note = f"{len(table.rows) - len(rows)} more strategies are in the report, and shown with --full."
    return [_StrategyTable(title, table, rows), Text(note)]


@dataclass(frozen=True)
class _StrategyTable(Generic[Row]):
    """A table of strategies, of which it shows the ``rows``.

    If it is too wide, the quartiles and intervals after the numbers are omitted, and then the last columns.
    """

    title: str
    content: Table[Row]
    rows: Sequence[Row]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        column_count = len(self.content.columns)
        table = self._render(True, column_count)
        if Measurement.get(console, options.update(width=1000), table).maximum > options.max_width:
            table = self._render(False, column_count)
        while column_count and Measurement.get(console, options.update(width=1000), table).minimum > options.max_width:
            column_count -= 1
            table = self._render(False, column_count)
        yield table

    def _render(self, shows_suffixes: bool, column_count: int) -> RichTable:
        table = RichTable(
            title=Text(self.title, "bold") if self.title else None,
            title_justify="left",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
        longest = max((len(row.strategy) for row in self.rows), default=0)
        table.add_column("strategy", overflow="fold", min_width=min(longest, 20), max_width=30)
        columns = [self._format_column(column, shows_suffixes) for column in self.content.columns[:column_count]]
        for column, (title, texts) in zip(self.content.columns, columns, strict=False):
            is_text = any(isinstance(column.get_value(row), str) for row in self.rows)
            width = None if is_text else max(text.cell_len for text in (*title.split(), *texts))
            table.add_column(title, justify="left" if is_text else "right", no_wrap=not is_text, min_width=width)
        for number, row in enumerate(self.rows):
            table.add_row(Text(row.strategy), *(texts[number] for _, texts in columns))
        return table

    def _format_column(self, column: Column[Row], shows_suffixes: bool) -> tuple[Text, list[Text]]:
        """Return a column's heading, and the text of each row.

        Unless suffixes are shown, texts have no suffixes that have a heading: a line of the title in brackets.
        """
        lines = column.title.split("\n")
        number_lines = [line for line in lines if not line.startswith(("[", "("))]
        if shows_suffixes or number_lines == lines:
            number_lines = lines
            shows_suffixes = True
        texts = [
            Text.assemble(
                (column.format(row), "bold" if self.content.is_best(row, column) else ""),
                column.format_suffix(row) if shows_suffixes else "",
            )
            for row in self.rows
        ]
        return Text("\n".join(number_lines)), texts
