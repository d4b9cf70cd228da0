"""A summary as tables and sentences for the terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from . import measures
from .measures import Cell, Shown
from .model import Summary, WorkloadSummary

_NAME_WIDTH = 30


def summary_table(summary: Summary) -> list[RenderableType]:
    """Return tables and sentences for the terminal.

    First the answers to registered contrasts. For each workload: how fast each strategy converges (the best in bold),
    the verdict, and the costs in seconds and failed trials. Then the table over all workloads, and its verdict.
    """
    shown: list[RenderableType] = [Text(answer.says, "bold") for answer in summary.answers]
    for item in summary.workloads:
        words = item.words(summary.target)
        costs = measures.table(item.strategies, Shown.COSTS, **words)
        shown += [
            _table(_title(item), measures.table(item.strategies, Shown.TERMINAL, **words)),
            Text(" ".join([item.verdict, *item.notes])),
            _table("", costs),
        ]
    return [*shown, *overall_tables(summary), Text(summary.family.says)]


def overall_tables(summary: Summary) -> list[RenderableType]:
    """Return the table over all workloads and its verdict, if there is one."""
    overall = summary.overall
    if overall is None:
        return []
    found = measures.table(overall.strategies, Shown.TERMINAL, cutoffs=summary.score_cutoffs)
    ranks = overall.diagram.by_strategy
    found.heads.insert(0, measures.Head("rank"))
    for name, cells in found.rows:
        cells.insert(0, Cell(f"{ranks[name]:.2f}"))
    return [_table(f"over all {len(overall.workloads)} workloads", found), Text(overall.verdict)]


def _title(item: WorkloadSummary) -> str:
    if not item.best:
        return f"{item.workload}: nothing known yet"
    finder = f"by {item.best.strategy}" if item.best.strategy else "which no run found"
    return f"{item.workload}: best known {item.best.gflops:.1f} {item.unit}, {finder}"


def _table(title: str, content: measures.Table) -> Table:
    table = Table(
        title=Text(title, "bold") if title else None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("strategy", overflow="fold", max_width=_NAME_WIDTH)
    for head in content.heads:
        table.add_column(Text(head.title), justify="left" if head.words else "right", no_wrap=not head.words)
    for name, cells in content.rows:
        texts = [Text.assemble((cell.text, "bold" if cell.best else ""), cell.beside) for cell in cells]
        table.add_row(Text(name), *texts)
    return table
