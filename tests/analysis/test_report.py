from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from searchlab.analysis import Summary, report, summary_table
from searchlab.analysis.measures import SeedMean
from searchlab.errors import SearchlabError
from searchlab.plugins import Plugin
from tests.support.analysis.logs import write

CHARTS = (
    "convergence",
    "convergence-each-seed",
    "convergence-seconds",
    "differences",
    "budget",
    "importances",
    "pairs",
    "trials",
    "trials-failed",
    "trials-slow",
    "values",
    "values-tile",
)
FILES = ["contrasts.csv.gz", "importances.csv", "programs.csv.gz", "report.html", "runs.csv.gz", "summary.csv"]
FILES += ["summary.json"]


def study(directory: Path) -> Path:
    for seed in range(2):
        write(directory, "random", seed, [1, 2, "crash", 2 + seed])
        write(directory, "guided $x_1$ [bold]", seed, [5, 8, 9, 10 - seed])
    return directory


def render(summary: Summary) -> str:
    console = Console(width=100, file=io.StringIO(), color_system=None)
    console.print(*summary_table(summary))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_report_writes_its_files(tmp_path: Path) -> None:
    summary = report(study(tmp_path))
    out = tmp_path / "report"
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert json.loads((out / "summary.json").read_text()) == summary.to_json()


def test_the_table_of_means_follows_from_the_runs(tmp_path: Path) -> None:
    study(tmp_path)
    write(tmp_path, "random", 2, [1, 2])  # stopped early
    for seed in (3, 4):
        write(tmp_path, "random", seed, [2, 3, 4, 5])
    report(tmp_path)
    frame = pd.read_csv(tmp_path / "report" / "runs.csv.gz")
    means = {row["strategy"]: row for row in csv.DictReader((tmp_path / "report" / "summary.csv").open())}
    assert frame[~frame["compared"]]["seed"].tolist() == [2, 3, 4], "the other strategy lacks seeds 3 and 4"
    for name, mean in means.items():
        runs = frame[(frame["strategy"] == name) & frame["compared"]]
        assert len(runs) == int(mean["seeds"]) == 2
        for column, of in (("area", "area_mean"), ("area_by_seconds", "area_by_seconds_mean"), ("score", "score")):
            assert runs[column].mean() == pytest.approx(float(mean[of])), column
        assert runs["best_gflops"].median() == float(mean["best_gflops_median"])
        for column in ("trials_to_target", "seconds_to_target"):
            assert runs[column].fillna(math.inf).median() == float(mean[f"{column}_median"] or "inf")
    assert frame[frame["strategy"] == "random"]["failed_trials"].tolist() == [1, 1, 0, 0, 0]


def test_the_optimum_of_a_complete_table_is_in_each_row(tmp_path: Path) -> None:
    write(tmp_path, "table", 0, [5, 20], optimum=1e6 / 25 / 1e9)
    write(tmp_path, "logs", 0, [5, 20])
    report(tmp_path)
    without, of_table = pd.read_csv(tmp_path / "report" / "runs.csv.gz")["optimum_gflops"]
    assert math.isnan(without) and of_table == pytest.approx(25)


@pytest.mark.parametrize(("kind", "start"), [("pdf", b"%PDF"), ("svg", b"<svg"), ("png", b"\x89PNG")])
def test_charts_are_written_on_demand(tmp_path: Path, kind: Any, start: bytes) -> None:
    report(study(tmp_path), figures=kind)
    charts = [path for path in (tmp_path / "report").iterdir() if path.name not in FILES]
    assert {path.name for path in charts} == {f"gemm-100x100x50-{name}.{kind}" for name in CHARTS}
    assert all(path.read_bytes().startswith(start) for path in charts)


def test_tables_of_numbers(tmp_path: Path) -> None:
    report(study(tmp_path))
    best, second = csv.DictReader((tmp_path / "report" / "summary.csv").open())
    assert best["strategy"] == "guided $x_1$ [bold]" and float(best["best_gflops_median"]) == pytest.approx(9.5)
    assert second["trials_to_target_median"] == "" and second["seeds_that_reached_target"] == "0"
    assert (second["crash"], second["invalid"], second["seconds"]) == ("2", "0", "8.0")
    programs = pd.read_csv(tmp_path / "report" / "programs.csv.gz")
    assert programs[["strategy", "seed", "trial"]].to_numpy().tolist() == [
        ["guided $x_1$ [bold]", 0, 3],
        ["guided $x_1$ [bold]", 1, 2],
        ["random", 0, 1],
        ["random", 1, 3],
    ]
    assert json.loads(programs["config"][1])["tile"] == [2, 1] and programs["gflops"][1] == pytest.approx(9)


def test_the_same_logs_give_the_same_bytes(tmp_path: Path) -> None:
    outs = []
    for name in ("one", "two"):
        report(study(tmp_path / name))
        outs.append({p.name: p.read_bytes() for p in (tmp_path / name / "report").iterdir()})
    assert outs[0] == outs[1]
    report(tmp_path / "one")
    assert {p.name: p.read_bytes() for p in (tmp_path / "one" / "report").iterdir()} == outs[0], "and again in place"


ODD = [
    {("a", 0): [1.0]},
    {("a", 0): ["crash", "crash"], ("b", 0): ["crash"]},
    {("a", 0): [1.0, 2.0], ("a", 1): [1.0], ("b", 0): []},
]
MANY = {(f"a-name-that-is-far-too-long-for-a-picture-{i}", 0): [float(i + 1)] * 3 for i in range(25)}


@pytest.mark.parametrize(("runs", "seconds"), [*((runs, spent) for runs in ODD for spent in (0.0, 1.0)), (MANY, 1.0)])
def test_odd_studies_are_drawn(tmp_path: Path, runs: dict[tuple[str, int], list[float]], seconds: float) -> None:
    for (name, seed), throughputs in runs.items():
        write(tmp_path, name, seed, throughputs, spent=(0, 0, 0, seconds))
    summary = report(tmp_path, figures="svg")
    assert (tmp_path / "report" / "gemm-100x100x50-convergence.svg").stat().st_size > 5_000
    assert max(map(len, render(summary).splitlines())) <= 100


def test_a_study_that_has_only_begun_has_no_chart(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [])
    assert "No trials have been measured yet." in render(report(tmp_path, figures="png"))
    assert not list((tmp_path / "report").glob("*.png"))


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    study(tmp_path)
    (tmp_path / "report").write_text("in the way")
    with pytest.raises(SearchlabError, match="cannot write"):
        report(tmp_path)


def page_of(directory: Path) -> str:
    return (directory / "report.html").read_text("utf-8")


def test_logs_are_reported_on_as_their_directory_is(tmp_path: Path) -> None:
    of_directory = report(study(tmp_path / "logs"))
    logs = sorted((tmp_path / "logs").glob("*.jsonl"))
    out = tmp_path / "deep" / "out"
    assert [row.by_seed for row in spreads(report(*logs, out=out))] == [row.by_seed for row in spreads(of_directory)]
    assert f"searchlab best {logs[0].as_posix()} --show" in page_of(out), "a log is named as the user can"
    (only,) = report(logs[0], out=out).workloads
    assert [row.strategy for row in only.strategies] == ["guided $x_1$ [bold]"]


def spreads(summary: Summary) -> list[SeedMean]:
    return [row.area for item in summary.workloads for row in item.strategies]


def test_a_log_and_its_directory_are_one_log(tmp_path: Path) -> None:
    study(tmp_path / "logs")
    logs = sorted((tmp_path / "logs").glob("*.jsonl"))
    twice = report(tmp_path / "logs", logs[0], logs[0], tmp_path / "logs" / ".." / "logs", out=tmp_path / "out")
    assert [row.seeds for row in twice.workloads[0].strategies] == [[0, 1], [0, 1]]
    assert not (tmp_path / "logs" / "report").exists()


def test_the_directory_of_a_report_follows_from_its_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = write(tmp_path / "a", "a", 0, [1])
    packed = write(tmp_path / "b", "b", 0, [2])
    (tmp_path / "b" / "b.jsonl.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    for where, directory in (
        (["a"], "a/report"),
        (["a", "b"], "results/report"),
        ([log], "results/report"),
        (["b/b.jsonl.gz"], "results/report"),
    ):
        report(*where)
        assert page_of(tmp_path / directory)
        shutil.rmtree(tmp_path / directory)
    report("a", out="elsewhere")
    assert page_of(tmp_path / "elsewhere") and not (tmp_path / "a" / "report").exists()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (["none"], "cannot report on none: there is no such directory or log"),
        (["logs", "none.jsonl"], "cannot report on none.jsonl: there is no such directory or log"),
        (["logs", "empty"], "empty contains no logs"),
        (["notes.txt"], "notes.txt is not a log: log names end in .jsonl, .jsonl.gz, .parquet"),
        (["bad.jsonl"], "bad.jsonl is not a searchlab log"),
        ([], "pass a directory of logs, or a log"),
    ],
)
def test_bad_input_is_named_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "logs", "a", 0, [1])
    (tmp_path / "empty").mkdir()
    for name in ("notes.txt", "bad.jsonl"):
        (tmp_path / name).write_text("a line\n")
    with pytest.raises(SearchlabError, match=re.escape(message)) as caught:
        report(*where)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "results").exists() and not (tmp_path / "logs" / "report").exists()


def test_a_best_program_beyond_the_common_trials_is_drawn(tmp_path: Path) -> None:
    """No target is reached within the trials that are compared."""
    write(tmp_path, "a", 0, ["crash"])
    write(tmp_path, "a", 1, ["crash", 5])
    assert report(tmp_path).workloads[0].best is not None


def test_tables_for_the_terminal(tmp_path: Path) -> None:
    for space in ("knob-template", "sketch"):
        for seed in range(2):
            write(tmp_path, "metaschedule-with-a-long-name", seed, [1, 2, 2, 2], space=Plugin(space))
    summary = report(study(tmp_path))
    text = render(summary)
    assert max(map(len, text.splitlines())) <= 100
    assert "metaschedule-with-a-long-name" in text, "quartiles give way to names"
    for words in (
        "best known 10.0 GFLOPS, by knob / guided $x_1$ [bold]",
        "2 crash",
        "(0 of 2)",
        "with 2 seeds;",
    ):
        assert words in " ".join(text.split())
    console = Console(width=100, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(*summary_table(summary))
    assert isinstance(console.file, io.StringIO)
    assert re.search(r"\x1b\[1m *9\.5", console.file.getvalue()), "the best is bold"


BLOCKED = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tvm", "searchlab_spaces", "searchlab_policies", "searchlab_costmodels"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Block())
import pkgutil, importlib, searchlab.analysis
for module in pkgutil.walk_packages(searchlab.analysis.__path__, "searchlab.analysis."):
    importlib.import_module(module.name)
assert "vl_convert" not in sys.modules
searchlab.analysis.report(sys.argv[1])
assert "jinja2" in sys.modules and "altair" not in sys.modules
"""


def test_a_renderer_is_imported_only_to_draw(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", BLOCKED, str(study(tmp_path))], check=True)
