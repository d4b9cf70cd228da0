"""A summary as tables and sentences for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from .summary import Reached, StrategySummary, Summary, WorkloadSummary

_NAME_WIDTH = 30


def summary_table(summary: Summary) -> list[RenderableType]:
    """For each workload how fast each strategy converges (the best in bold), the verdict in words, and what it
    cost: seconds charged, by part, and failed trials.
    """
    shown: list[RenderableType] = []
    for item in summary.workloads:
        words = Text(" ".join([item.verdict, *item.notes]))
        shown += [_convergence(item, summary.target), words, _costs(item)]
    return shown


def _convergence(item: WorkloadSummary, target: float) -> Table:
    goal = f"{100 * target:g} %"
    best = f"best known {item.best.gflops:.1f} GFLOPS, by {item.best.strategy}" if item.best else "nothing known yet"
    table = _table(f"{item.workload}: {best}")
    for column in ("seeds", "trials", "GFLOPS", "quartiles", f"trials\nto {goal}", f"seconds\nto {goal}", "area"):
        table.add_column(column, justify="right", no_wrap=True)
    rows = item.strategies
    gflops = _marked(rows, lambda row: row.best_gflops.median, lambda value: f"{value:.1f}", most=True)
    trials = _marked(rows, lambda row: row.trials_to_target.median, lambda value: f"{value:g}")
    seconds = _marked(rows, lambda row: row.seconds_to_target.median, _seconds)
    areas = _marked(rows, lambda row: row.area.median, lambda value: f"{value:.3f}", most=True)
    for row, best_gflops, to_target, in_seconds, area in zip(rows, gflops, trials, seconds, areas, strict=True):
        table.add_row(
            escape(row.strategy),
            str(len(row.seeds)),
            str(row.trials) + "+" * (not row.complete),
            best_gflops,
            f"{row.best_gflops.lower:.1f} - {row.best_gflops.upper:.1f}",
            to_target + _censored(row.trials_to_target),
            in_seconds + _censored(row.seconds_to_target),
            area,
        )
    return table


def _costs(item: WorkloadSummary) -> Table:
    table = _table("")
    for column in ("seconds", "propose", "train", "build", "run"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("failed trials")
    for row in item.strategies:
        spent = row.seconds
        failed = ", ".join(f"{count} {kind}" for kind, count in row.failures.items() if count)
        parts = (spent.propose, spent.train, spent.build, spent.run)
        table.add_row(escape(row.strategy), _seconds(spent.total), *map(_seconds, parts), failed or "none")
    return table


def _table(title: str) -> Table:
    table = Table(
        title=escape(title) or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("strategy", overflow="fold", max_width=_NAME_WIDTH)
    return table


def _marked(
    rows: Sequence[StrategySummary],
    value: Callable[[StrategySummary], float | None],
    shown: Callable[[float], str],
    *,
    most: bool = False,
) -> list[str]:
    """A column, with the best of it in bold where there is more than one row; "-" for what there is none of."""
    values = [value(row) for row in rows]
    known = [v for v in values if v is not None]
    best = (max(known) if most else min(known)) if known and len(rows) > 1 else None
    cells = [(v, "-" if v is None else shown(v)) for v in values]
    return [f"[bold]{cell}[/bold]" if best is not None and v == best else cell for v, cell in cells]


def _censored(measure: Reached) -> str:
    seeds = len(measure.by_seed)
    return "" if measure.reached == seeds else f" ({measure.reached} of {seeds})"


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
