"""A summary as tables and sentences for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from .model import Overall, Reached, StrategySummary, Summary, WorkloadSummary
from .stats.intervals import Interval

_NAME_WIDTH = 30


def summary_table(summary: Summary) -> list[RenderableType]:
    """First, what a reader must know. For each workload: how fast each strategy converges (the best in bold), the
    verdict in words, and the costs: seconds charged, by part, and failed trials. Then a table over all workloads, and
    its verdict.
    """
    shown: list[RenderableType] = []
    for item in summary.workloads:
        words = Text(" ".join([item.verdict, *item.notes]))
        shown += [_convergence(item, summary.target), words, _costs(item)]
    return [*shown, *overall_tables(summary), Text(summary.family.says)]


def overall_tables(summary: Summary) -> list[RenderableType]:
    """The table over all workloads, and its verdict; nothing where there is no such table."""
    if summary.overall is None:
        return []
    return [_overall(summary.overall, summary.score_cutoffs), Text(summary.overall.verdict)]


def _convergence(item: WorkloadSummary, target: float) -> Table:
    goal = f"{100 * target:g} %"
    best = "nothing known yet"
    if item.best:
        finder = f"by {item.best.strategy}" if item.best.strategy else "which no run found"
        best = f"best known {item.best.gflops:.1f} {item.unit}, {finder}"
    table = _table(f"{item.workload}: {best}")
    columns = [
        "seeds", "trials", item.unit, "quartiles", f"trials\nto {goal}", f"seconds\nto {goal}", "area",
        "score\n(of trials)",
    ]  # fmt: skip
    scored = any(row.score for row in item.strategies)
    if item.batches_differ:
        table.add_column("batch", justify="right", no_wrap=True)
    for column in columns if scored else columns[:-1]:
        table.add_column(column, justify="right", no_wrap=True)
    rows = item.strategies
    gflops = _marked(rows, lambda row: row.best_gflops.median, lambda value: f"{value:.1f}", most=True)
    trials = _marked(rows, lambda row: row.trials_to_target.median, lambda value: f"{value:g}")
    seconds = _marked(rows, lambda row: row.seconds_to_target.median, _seconds)
    areas = _marked(rows, lambda row: row.area.median, lambda value: f"{value:.3f}", most=True)
    scores = _marked(rows, lambda row: row.score.value if row.score else None, lambda value: f"{value:.2f}", most=True)
    cutoffs = [f" ({row.score_first}-{row.score_trials})" if row.score else "" for row in rows]
    for row, best_gflops, to_target, in_seconds, area, score, cutoff in zip(
        rows, gflops, trials, seconds, areas, scores, cutoffs, strict=True
    ):
        table.add_row(
            Text(row.strategy),
            *[str(row.batch)] * item.batches_differ,
            str(len(row.seeds)),
            str(row.trials) + "+" * (not row.complete),
            best_gflops,
            f"{row.best_gflops.lower:.1f} to {row.best_gflops.upper:.1f}",
            Text.assemble(to_target, _censored(row.trials_to_target)),
            in_seconds,
            area,
            *[Text.assemble(score, cutoff)] * scored,
        )
    return table


def _overall(overall: Overall, cutoffs: str) -> Table:
    table = _table(f"over all {len(overall.workloads)} workloads")
    columns = ["rank", "area", "95 % interval", f"score, trials\n{cutoffs}", "95 % interval"]
    scored = any(row.score for row in overall.strategies)
    for column in columns if scored else columns[:-2]:
        table.add_column(column, justify="right", no_wrap=True)
    ranks = overall.diagram.by_strategy
    for row in overall.strategies:
        estimates = [row.area, row.score] if scored else [row.area]
        texts = [text for estimate in estimates for text in _estimate(estimate)]
        table.add_row(Text(row.strategy), f"{ranks[row.strategy]:.2f}", *texts)
    return table


def _estimate(estimate: Interval | None) -> tuple[str, str]:
    if estimate is None:
        return "-", "-"
    if estimate.lower is None or estimate.upper is None:
        return f"{estimate.value:.3f}", "-"
    return f"{estimate.value:.3f}", f"{estimate.lower:.3f} to {estimate.upper:.3f}"


def _costs(item: WorkloadSummary) -> Table:
    table = _table("")
    for column in ("seconds", "propose", "train", "build", "run"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("failed trials")
    for row in item.strategies:
        spent = row.seconds
        failed = ", ".join(f"{count} {kind}" for kind, count in row.failures.items() if count)
        parts = (spent.propose, spent.train, spent.build, spent.run)
        table.add_row(Text(row.strategy), _seconds(spent.total), *map(_seconds, parts), failed or "none")
    return table


def _table(title: str) -> Table:
    table = Table(
        title=Text(title, "bold") if title else None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("strategy", overflow="fold", max_width=_NAME_WIDTH)
    return table


def _marked(
    rows: Sequence[StrategySummary],
    value: Callable[[StrategySummary], float | None],
    shown: Callable[[float], str],
    *,
    most: bool = False,
) -> list[Text]:
    """A column; its best value is bold where there is more than one row, and a value that is None is a dash."""
    values = [value(row) for row in rows]
    known = [v for v in values if v is not None]
    best = (max(known) if most else min(known)) if known and len(rows) > 1 else None
    texts = ["-" if v is None else shown(v) for v in values]
    return [Text(text, "bold" if best is not None and v == best else "") for v, text in zip(values, texts, strict=True)]


def _censored(measure: Reached) -> str:
    seeds = len(measure.by_seed)
    return "" if measure.reached == seeds else f" ({measure.reached} of {seeds})"


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
