"""Gates and surrogates as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ...measure.surrogate.manifest import Fit, Gate, Manifest


def gate_tables(gates: Sequence[Gate]) -> list[RenderableType]:
    """A row for each gate, and for each the areas of its policies, and what of the gate it fails."""
    table = _table("the gate of surrogates", "table", ("configs", "trained", "R2", "tau", "ranks", "area off"))
    for column in ("ranks,\nleft out", "area off,\nleft out"):
        table.add_column(column, justify="right")
    for gate in gates:
        table.add_row(
            Text(gate.table),
            f"{gate.configs:,}",
            f"{gate.fit.trained_on:,}",
            *_fit(gate.fit),
            f"{gate.spearman:.2f}",
            f"{gate.area_error:.3f}",
            f"{gate.spearman_left_out:.2f}",
            f"{gate.area_error_left_out:.3f}",
        )
    shown: list[RenderableType] = [table]
    for gate in gates:
        columns = ("area on\ntable", "on\nsurrogate", "trajectory\nleft out", "standard\nerror")
        areas = _table(f"{gate.table}: {gate.seeds} seeds, {gate.trials} trials", "policy", columns)
        for one in sorted(gate.policies, key=lambda one: -one.table):
            left_out = "-" if one.left_out is None else f"{one.left_out:.3f}"
            areas.add_row(Text(one.policy), f"{one.table:.3f}", f"{one.surrogate:.3f}", left_out, f"{one.error:.3f}")
        shown += [areas, _verdict(gate.table, gate.problems)]
    return shown


def surrogate_table(name: str, manifest: Manifest) -> list[RenderableType]:
    """What a surrogate was trained on, how well it predicts, and whether it passed its gate."""
    table = _table("", "surrogate", ("trials", "configs of the space", "R2", "tau", "outcomes", "spread"))
    held_out = manifest.held_out
    table.add_row(
        Text(f"{manifest.space.name} on {manifest.workload}"),
        f"{manifest.trials:,}",
        "not counted" if manifest.space_size is None else f"{manifest.space_size:,}",
        *_fit(held_out),
        f"{held_out.outcomes:.3f}",
        f"{held_out.spread:.3f}",
    )
    return [table, _verdict(name, manifest.problems)]


def _fit(fit: Fit) -> list[str]:
    return ["-" if value is None else f"{value:.3f}" for value in (fit.r2, fit.tau)]


def _verdict(name: str, problems: Sequence[str]) -> Text:
    if not problems:
        return Text(f"{name} passed the gate.", style="green")
    return Text(f"{name} failed the gate: {'; '.join(problems)}.", style="yellow")


def _table(title: str, first: str, columns: Sequence[str]) -> Table:
    table = Table(title=Text(title, "bold") if title else None, title_justify="left", box=SIMPLE_HEAD)
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right")
    return table
