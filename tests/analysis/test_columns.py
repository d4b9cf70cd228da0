"""A column of reports is declared once, and then appears in all tables and files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from searchlab import compare
from searchlab.analysis import report, summary_table
from searchlab.analysis.columns import OVERALL_COLUMNS, RUN_COLUMNS, Column, Tables, make_strategy_columns, make_table
from searchlab.analysis.measures import OverallStrategy, StrategySummary
from searchlab.units import convert_throughput
from tests.support.analysis.logs import write

SECOND_WORKLOAD = "gemm:100x100x500"
"""Ten times the FLOP of the usual workload, so ten times the GFLOPS in the same time."""


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three columns more: two of a strategy on a workload, one over all workloads."""
    first = Column[StrategySummary](
        "first_throughput",
        lambda row: row.best_gflops.lower,
        title="first\nGFLOPS",
        meaning="Throughput of the first quartile.",
        unit="GFLOPS",
        tables=Tables.RANKINGS,
        digits=2,
        higher_is_better=True,
        marks_best=True,
    )
    first_lower = Column[StrategySummary]("first_throughput_lower", lambda row: min(row.best_gflops.by_seed))
    estimate = Column[OverallStrategy](
        "percent",
        lambda row: 100 * row.area.value,
        title="percent",
        meaning="Mean area in percent.",
        tables=Tables.RANKINGS,
        digits=1,
    )
    monkeypatch.setattr("searchlab.analysis.columns.RUN_COLUMNS", [*RUN_COLUMNS, first, first_lower])
    for name in ("searchlab.analysis.summary.OVERALL_COLUMNS", "searchlab.analysis.tables.OVERALL_COLUMNS"):
        monkeypatch.setattr(name, [*OVERALL_COLUMNS, estimate])


def test_a_new_column_is_everywhere(tmp_path: Path, declared: None) -> None:
    for workload in ("gemm:100x100x50", SECOND_WORKLOAD):
        for seed in range(3):
            write(tmp_path, "slow", seed, [1.25, 2, 3], workload=workload)
            write(tmp_path, "quick", seed, [4.75 + seed, 8 + seed, "crash"], workload=workload)
    summary = report(tmp_path)
    out = tmp_path / "report"

    console = Console(width=140, file=io.StringIO(), color_system=None)
    console.print(*summary_table(summary))
    assert isinstance(console.file, io.StringIO)
    terminal = console.file.getvalue()
    assert "first" in terminal and re.search(r"quick .* 8\.50 ", terminal) and re.search(r"slow .* 3\.00 ", terminal)
    assert re.search(r"percent .*rank", terminal)

    page = (out / "report.html").read_text("utf-8")
    assert "<td>8.50</td>" in page and "First\nGFLOPS: throughput of the first quartile." in page
    assert '<th scope="col" title="Mean area in percent.">percent</th>' in page
    percent = f"{100 * summary.overall.strategies[0].area.value:.1f}" if summary.overall else ""
    assert f"<td>{percent}</td>" in page

    rows = list(csv.DictReader((out / "summary.csv").open()))
    assert [float(row["first_throughput"]) for row in rows if row["strategy"] == "quick"] == pytest.approx([8.5, 85])
    assert all(row["first_throughput_lower"] for row in rows)
    assert all(float(row["percent"]) for row in csv.DictReader((out / "overall.csv").open()))

    comparison = compare(tmp_path)
    frame = comparison.strategies_frame()
    assert frame[frame["strategy"] == "quick"]["first_throughput"].tolist() == pytest.approx([8.5, 85])
    assert "percent" in comparison.overall_frame().columns
    assert "<td>8.50</td>" in comparison._repr_html_()


def test_the_numbers_of_each_seed_are_not_in_the_json(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path, "quick", seed, [4.75 + seed, 8])
    report(tmp_path)
    (row,) = json.loads((tmp_path / "report" / "summary.json").read_text())["workloads"][0]["strategies"]
    assert row["strategy"] == "quick" and row["best_gflops"] == {"median": 8, "lower": 8, "upper": 8}
    assert set(row) == set(StrategySummary.__struct_fields__)


@pytest.mark.parametrize("columns", [make_strategy_columns(), OVERALL_COLUMNS])
def test_columns_of_tables_are_described_and_have_distinct_names(columns: Sequence[Column[Any]]) -> None:
    for column in columns:
        assert bool(column.title) == bool(column.tables), column.name
        assert column.meaning.endswith(".") or not column.title, column.name
    names = [column.name for column in columns if column.name]
    assert len(set(names)) == len(names)


def test_a_column_without_a_number_is_left_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, name, 0, [1, 2])
    rows = compare(tmp_path).summary.workloads[0].strategies
    titles = [column.title for column in make_table(rows, make_strategy_columns(), Tables.TERMINAL).columns]
    assert "mean area" in titles and not any("score" in title for title in titles), (
        "no random search says what a score is"
    )
    assert "batch" not in titles, "which does not differ"


def test_rows_are_equal_where_their_numbers_are(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1, 2])
    first, second = (compare(tmp_path).summary.workloads[0].strategies[0] for _ in range(2))
    assert first == second and first.area == second.area


def test_the_median_of_values_is_not_converted_from_throughput(tmp_path: Path) -> None:
    for seed, throughput in enumerate((2, 10)):
        write(tmp_path, "a", seed, [throughput])
    (row,) = compare(tmp_path).summary.workloads[0].strategies
    values = {column.name: column.get_value(row) for column in make_strategy_columns("value")}
    expected = np.median(convert_throughput(np.array([2.0, 10.0]), "value"))
    assert values["best_gflops_median"] == pytest.approx(expected)
    assert values["best_gflops_median"] != pytest.approx(convert_throughput(6.0, "value"))
