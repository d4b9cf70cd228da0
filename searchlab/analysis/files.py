"""The numbers of a report as files, JSON and CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec

from .charts.figures import Figure
from .model import Program, Summary
from .rows import (
    Rows,
    cell_rows,
    claim_rows,
    contrast_rows,
    curve_rows,
    figure_rows,
    overall_rows,
    program_rows,
    strategy_rows,
)
from .runs import ComparedRuns


def write_numbers(
    out: Path,
    summary: Summary,
    comparison: ComparedRuns,
    figures: Mapping[str, Sequence[Figure]],
    programs: Sequence[Program],
) -> None:
    """Write ``summary.*``, ``contrasts.csv``, ``overall.csv``, ``claims.csv``, ``matrix.csv``, ``curves.csv``,
    ``figures.*`` and ``programs.csv``.

    programs: the best of every run.
    """
    write_json(out / "summary.json", summary)
    write_json(out / "figures.json", figures)
    _write_csv(out / "summary.csv", strategy_rows(summary))
    _write_csv(out / "contrasts.csv", contrast_rows(summary))
    if summary.overall:
        _write_csv(out / "overall.csv", overall_rows(summary.overall))
        _write_csv(out / "claims.csv", claim_rows(summary.overall))
        _write_csv(out / "matrix.csv", cell_rows(summary.overall))
    _write_curves(out / "curves.csv", comparison)
    _write_csv(out / "figures.csv", figure_rows(figures))
    _write_csv(out / "programs.csv", program_rows(programs))


def write_json(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def _write_curves(path: Path, comparison: ComparedRuns) -> None:
    """As :func:`_write_csv` writes :func:`~.rows.curve_rows`, which may be millions, in half its time."""
    _write_csv(path, curve_rows({}))
    with path.open("a", newline="", encoding="utf-8") as file:
        for item in comparison.values():
            for run in item.runs:
                csv.writer(named := StringIO(), lineterminator="").writerow((item.workload, run.strategy, run.seed))
                name = named.getvalue()
                curve = run.curve.tolist()
                texts = {best: str(best) for best in set(curve)}  # few, as a curve seldom rises
                points = zip(run.elapsed.tolist(), map(texts.__getitem__, curve), strict=True)
                file.write("".join([f"{name},{at},{seconds},{best}\n" for at, (seconds, best) in enumerate(points, 1)]))


def _write_csv(path: Path, table: Rows) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(table.rows)
