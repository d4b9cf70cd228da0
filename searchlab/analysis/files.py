"""The numbers of a report as files, JSON and CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from .charts.figures import Figure
from .model import Program, Summary
from .rows import (
    Groups,
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
    _write_groups(out / "curves.csv", curve_rows(comparison))
    _write_groups(out / "figures.csv", figure_rows(figures))
    _write_csv(out / "programs.csv", program_rows(programs))


def write_json(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def _write_groups(path: Path, table: Groups) -> None:
    """As :func:`_write_csv`, in a tenth of its time."""
    with path.open("wb") as file:
        file.write(_csv_row(table.columns) + b"\n")
        for names, rows in table.groups:
            if rows:
                start = _csv_row(names) + b","
                file.write(start + _numbers(rows).replace(b"],[", b"\n" + start) + b"\n")


def _csv_row(values: Sequence[Any]) -> bytes:
    csv.writer(row := StringIO()).writerow(values)  # lines end with \r\n, or a text with \r would not be quoted
    return row.getvalue()[:-2].encode()


_AS_PYTHON = re.compile(rb"(?<![\d.])0\.0000\d+|[\d.]+e-?\d+")
"""The numbers that JSON and CSV spell in different ways."""


def _numbers(rows: Sequence[Sequence[float | None]]) -> bytes:
    """The numbers of ``rows`` as they are in CSV, with "],[" between two rows."""
    text = msgspec.json.encode(rows)[2:-2].replace(b"null", b"")
    if b"e" in text or b"0.0000" in text:
        text = _AS_PYTHON.sub(lambda number: repr(float(number[0])).encode(), text)
    return text


def _write_csv(path: Path, table: Rows) -> None:
    with path.open("wb") as file:
        file.writelines(_csv_row(row) + b"\n" for row in chain([table.columns], table.rows))
