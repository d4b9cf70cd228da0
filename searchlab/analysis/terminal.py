"""The tables and sentences of a report in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from ..console import speed
from .measures import Cell, Head, Table, Tables, make_table
from .model import ClaimVerdict, Summary

MAX_STRATEGIES = 12  # the maximum number of strategies that the terminal shows by default
MAX_NOTES = 3  # the maximum number of sentences that it shows below them
CLAIM_STYLES = {"holds": "green", "fails": "red"}


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
        title = f"{item.workload}: nothing known yet"
        if item.best:
            finder = f"by {item.best.strategy}" if item.best.strategy else "which no run found"
            title = f"{item.workload}: best known {speed(item.best.gflops, item.unit)}, {finder}"
        parts += _ranking(title, make_table(item.strategies, Tables.TERMINAL, **item.words), summary, full=full)
        texts = [*([] if is_shared else [item.verdict]), *item.notes]
        if not full and len(texts) > MAX_NOTES:
            texts[MAX_NOTES:] = ["More notes are in the report, and shown with --full."]
        if texts:
            parts.append(Text(" ".join(texts)))
        parts += [Text(explanation.size) for explanation in item.explanations[:1]]
        if full:
            parts.append(_StrategyTable("", make_table(item.strategies, Tables.COSTS, **item.words)))
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
            *(f"\n  here: {comparand.says}" for comparand in claim_verdict.against),
        )
        for claim_verdict in claims
    ]


def overall_tables(summary: Summary, *, full: bool = True) -> list[RenderableType]:
    """Return the table and verdict over all workloads, or an empty list if there are none."""
    overall = summary.overall
    if overall is None:
        return []
    ranks = {name: Cell(f"{rank:.2f}") for name, rank in overall.ranks.items()}
    measures = make_table(overall.strategies, Tables.TERMINAL)
    table = measures.insert(len(measures.heads), {Head("average\nrank"): ranks})
    title = f"across {len(overall.workloads)} workloads"
    sizes = [Text(explanation.size) for explanation in overall.explanations[:1]]
    return [*_ranking(title, table, summary, full=full), Text(overall.verdict), *sizes]


def _ranking(title: str, table: Table, summary: Summary, *, full: bool) -> list[RenderableType]:
    """Return the table of strategies: unless ``full``, of the best and of those in registered contrasts."""
    if full or len(table.rows) <= MAX_STRATEGIES:
        return [_StrategyTable(title, table)]
    registered = {name for answer in summary.answers for name in (answer.first, answer.second)}
    rows = [row for number, row in enumerate(table.rows) if number < MAX_STRATEGIES or row[0] in registered]
    note = f"{len(table.rows) - len(rows)} more strategies are in the report, and shown with --full."
    return [_StrategyTable(title, table._replace(rows=rows)), Text(note)]


@dataclass(frozen=True)
class _StrategyTable:
    """A table of strategies.

    If it is too wide, the quartiles and intervals after the numbers are omitted, and then the last columns.
    """

    title: str
    content: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = len(self.content.heads)
        table = self._render(True, columns)
        if Measurement.get(console, options.update(width=1000), table).maximum > options.max_width:
            table = self._render(False, columns)
        while columns and Measurement.get(console, options.update(width=1000), table).minimum > options.max_width:
            columns -= 1
            table = self._render(False, columns)
        yield table

    def _render(self, suffixes: bool, columns: int) -> RichTable:
        table = RichTable(
            title=Text(self.title, "bold") if self.title else None,
            title_justify="left",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
        longest = max((len(name) for name, _ in self.content.rows), default=0)
        table.add_column("strategy", overflow="fold", min_width=min(longest, 20), max_width=30)
        has_suffix = []  # for each column, whether the texts after its numbers are shown
        for index, head in enumerate(self.content.heads[:columns]):
            lines = head.title.split("\n")
            suffix_lines = [line for line in lines if line.startswith(("[", "("))]  # the heading of these texts
            has_suffix.append(suffixes or not suffix_lines)
            title = Text("\n".join(line for line in lines if suffixes or line not in suffix_lines))
            texts = [cells[index].text + cells[index].suffix * has_suffix[-1] for _, cells in self.content.rows]
            width = None if head.is_text else max(map(len, [*title.plain.split("\n"), *texts]))
            table.add_column(
                title, justify="left" if head.is_text else "right", no_wrap=not head.is_text, min_width=width
            )
        for name, cells in self.content.rows:
            table.add_row(
                Text(name),
                *(
                    Text.assemble((cell.text, "bold" if cell.best else ""), cell.suffix if is_complete else "")
                    for cell, is_complete in zip(cells, has_suffix, strict=False)
                ),
            )
        return table
