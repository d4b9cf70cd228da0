"""LaTeX tables and BibTeX entries, compiled if there is a LaTeX."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from searchlab.analysis import Summary, read_runs, summarize
from searchlab.analysis.latex import TITLE, YEAR, make_bibtex, make_latex_tables, write_latex
from tests.support.analysis.logs import WORKLOAD, write
from tests.support.cli import searchlab

CONV2D = "conv2d:1x14x14x64x64x3x3:p1"
ORIGIN = "R&D's 100% search", "IJCAI 2023, section 3_1", ""


def study(directory: Path, *workloads: str) -> Summary:
    for workload in workloads:
        for seed in range(8):
            for label, gain in (("my_policy & 50%", 5.0), ("random", 1.0), ("xgb", 1.1)):
                contrasts = (("my_policy & 50%", "xgb"),)
                throughputs = [1 + seed / 10, gain, 6 + gain]
                write(
                    directory,
                    label.split("_")[0],
                    seed,
                    throughputs,
                    label=label,
                    workload=workload,
                    contrasts=contrasts,
                )
    return summarize(read_runs(directory))


def rows(table: str) -> list[list[str]]:
    """The cells of a table, with its heads first."""
    body = re.search(r"\\toprule\n(.*)\\bottomrule", table, re.DOTALL)
    assert body
    lines = [line.removesuffix(r" \\") for line in body[1].splitlines() if not line.startswith("\\midrule")]
    return [re.split(r"(?<!\\) & ", line) for line in lines]


@pytest.mark.parametrize("workloads", [(WORKLOAD,), (WORKLOAD, CONV2D)])
def test_tables_have_the_ranking_and_all_contrasts(tmp_path: Path, workloads: tuple[str, ...]) -> None:
    summary = study(tmp_path, *workloads)
    ranking, contrasts = make_latex_tables(summary).split("% The differences")
    strategies = summary.overall.strategies if summary.overall else summary.workloads[0].strategies
    heads, *ranked = rows(ranking)
    assert heads[0] == "strategy" and {len(row) for row in ranked} == {len(heads)}
    assert [row[0] for row in ranked] == [
        r.strategy.replace("_", r"\_").replace("&", r"\&").replace("%", r"\%") for r in strategies
    ]
    assert all(f"{row.area.value:.3f}" in " ".join(cells) for row, cells in zip(strategies, ranked, strict=True))
    _, registered, *exploratory = rows(contrasts)
    (answer,) = summary.answers
    assert registered[:3] == [r"my\_policy \& 50\%", "xgb", f"{answer.difference.value:+.3f}"]
    assert registered[-1] == "registered" and [row[-1] for row in exploratory] == ["exploratory"] * 2
    assert "$<$ 0.001" in contrasts or "0.0" in registered[4]


def test_references_are_escaped() -> None:
    text = make_bibtex({"mine": ORIGIN})
    assert text.count("@") == 2 and r"R\&D's 100\% search" in text and r"section 3\_1" in text
    assert text.count("{") == text.count("}")


def test_the_command_writes_both_files(tmp_path: Path) -> None:
    for name in ("random", "xgb"):
        write(tmp_path, name, 0, [1, 2])
    result = searchlab("report", tmp_path, "--latex")
    assert result.returncode == 0, result.stderr
    assert f"the LaTeX tables: {tmp_path}/report/tables.tex, and what they cite: " in result.stdout
    assert r"\bottomrule" in (tmp_path / "report" / "tables.tex").read_text()
    software, xgb = (tmp_path / "report" / "references.bib").read_text().split("\n\n")
    assert "year = {2026}" in software and "searchlab-xgb" in xgb and "AutoTVM's XGBTuner" in xgb
    assert "author = {Chen and others}" in xgb and "title = {Learning to Optimize Tensor Programs}" in xgb
    assert "year = {2018}" in xgb


def test_the_title_is_the_citation_file_s() -> None:
    citation = (Path(__file__).parents[2] / "CITATION.cff").read_text("utf-8")
    assert f'title: "{TITLE}"' in citation and f"date-released: {YEAR}-" in citation


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="there is no pdflatex")
def test_latex_compiles_the_tables(tmp_path: Path) -> None:
    write_latex(study(tmp_path, WORKLOAD, CONV2D), tmp_path, {"mine": ORIGIN})
    document = r"\documentclass{article}\usepackage{booktabs}\begin{document}\small\input{tables}\nocite{*}"
    document += r"\bibliographystyle{plain}\bibliography{references}\end{document}"
    (tmp_path / "paper.tex").write_text(document)
    for command in (["pdflatex", "-interaction=nonstopmode", "-halt-on-error"], ["bibtex"]):
        subprocess.run([*command, "paper"], cwd=tmp_path, check=True, timeout=120)
