"""A column of reports is declared once, and then appears in all tables and files."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from searchlab import compare
from searchlab.analysis import report, summary_table
from searchlab.analysis.measures import (
    Column,
    OnWorkload,
    OverAll,
    OverallStrategy,
    Row,
    Spread,
    StrategySummary,
    Tables,
    make_table,
)
from tests.support.analysis.logs import write

SECOND_WORKLOAD = "gemm:100x100x500"
"""Ten times the FLOP of the usual workload, so ten times the GFLOPS in the same time."""


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two measures more: one of a strategy on a workload, one over all workloads."""
    first = OnWorkload(
        "Throughput of the first trial: median over seeds.",
        lambda runs: Spread.from_values(runs.curves[:, 0].tolist()),
        Column("first_gflops", "first\n{unit}", Tables.RANKINGS, 2, "median", max),
        Column("first_gflops_lower", path="lower"),
        unit="GFLOPS",
    )
    all_seeds = OverAll(
        "Runs on all workloads.",
        lambda rows: sum(len(row.seeds) for row in rows),
        Column("runs", "runs", Tables.RANKINGS),
    )
    for kind, name, measure in ((StrategySummary, "first", first), (OverallStrategy, "all_seeds", all_seeds)):
        measure.__set_name__(kind, name)  # as the class statement does
        monkeypatch.setattr(kind, name, measure, raising=False)
        monkeypatch.setitem(kind.measures, name, measure)


def test_a_new_measure_is_everywhere(tmp_path: Path, declared: None) -> None:
    for workload in ("gemm:100x100x50", SECOND_WORKLOAD):
        for seed in range(3):
            write(tmp_path, "slow", seed, [1.25, 2, 3], workload=workload)
            write(tmp_path, "quick", seed, [4.75 + seed, 8, "crash"], workload=workload)
    summary = report(tmp_path)
    out = tmp_path / "report"

    console = Console(width=120, file=io.StringIO(), color_system=None)
    console.print(*summary_table(summary))
    assert isinstance(console.file, io.StringIO)
    terminal = console.file.getvalue()
    assert "first" in terminal and re.search(r"quick .* 5\.75 ", terminal) and re.search(r"slow .* 1\.25 ", terminal)
    assert re.search(r"runs .*rank", terminal)

    page = (out / "report.html").read_text("utf-8")
    assert "<td>5.75</td>" in page and "First\nGFLOPS: throughput of the first trial: median over seeds." in page
    assert '<th scope="col" title="Runs on all workloads.">runs</th>' in page and "<td>6</td>" in page

    rows = list(csv.DictReader((out / "summary.csv").open()))
    assert [float(row["first_gflops"]) for row in rows if row["strategy"] == "quick"] == pytest.approx([5.75, 57.5])
    assert all(row["first_gflops_lower"] for row in rows)
    assert {row["runs"] for row in csv.DictReader((out / "overall.csv").open())} == {"6"}

    written_summary = json.loads((out / "summary.json").read_text())
    first = {"median": 5.75, "lower": 5.25, "upper": 6.25}
    assert written_summary["workloads"][0]["strategies"][0]["first"] == pytest.approx(first), (
        "without the numbers of each seed"
    )
    assert written_summary["overall"]["strategies"][0]["all_seeds"] == 6

    comparison = compare(tmp_path)
    frame = comparison.strategies_frame()
    assert frame[frame["strategy"] == "quick"]["first_gflops"].tolist() == pytest.approx([5.75, 57.5])
    assert comparison.overall_frame()["runs"].tolist() == [6, 6]
    assert "<td>5.75</td>" in comparison._repr_html_()


@pytest.mark.parametrize("kind", [StrategySummary, OverallStrategy])
def test_measures_are_described_and_columns_have_distinct_names(kind: type[Row]) -> None:
    for measure, column in kind.columns():
        assert measure.meaning.endswith("."), measure.name
        assert column.title or not column.tables, f"{column.name} has a title where tables for people have it"
    assert len(set(kind.names())) == len(kind.names())


def test_a_column_without_a_number_is_left_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, name, 0, [1, 2])
    rows = compare(tmp_path).summary.workloads[0].strategies
    heads = [head.title for head in make_table(rows, Tables.TERMINAL, unit="GFLOPS", goal="95 %").heads]
    assert "mean area" in heads and not any("score" in head for head in heads), "no random search says what a score is"
    assert "batch" not in heads, "which does not differ"


def test_rows_are_equal_where_their_numbers_are(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1, 2])
    first, second = (compare(tmp_path).summary.workloads[0].strategies[0] for _ in range(2))
    assert first == second and repr(first) == "<StrategySummary of a>" and first.area == second.area
