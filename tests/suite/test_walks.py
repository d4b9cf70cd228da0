"""How real runs are compared with a suite (studies/suite/questions.py and walks.py)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.run.study import Study
from searchlab.workload import parse_workload
from searchlab_policies.neighbours import hamming_distance
from tests.support.benchmarks import SUITE, script
from tests.support.logs import write_table

walks, questions = script("walks", SUITE), script("questions", SUITE)

STUDY = """
workloads = ["gemm:64x64x64"]
spaces = [{ name = "searchlab.conformance.toys:Small", label = "small" }]
policies = ["random", "greedy-ils"]
seeds = 2
trials = 16
measure = { kind = "table", path = "tables" }
"""


def test_a_walk_changes_one_knob_per_step_and_begins_again() -> None:
    space = toys.Large()
    policy = walks.RandomWalk(space, seed=0)
    path = [config for n in (40, 60) for config in policy.ask(n)]
    steps = [hamming_distance(a, b) for a, b in pairwise(path)]
    assert steps[:20] == [1] * 20
    assert sum(step > 2 for step in steps) == 1  # it is 2 where a config is met again, and so is not proposed


def test_real_runs_are_compared_with_tables_and_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trusting: None
) -> None:
    monkeypatch.chdir(tmp_path)
    space = toys.Small(parse_workload("gemm:64x64x64"))
    write_table(tmp_path / "tables" / "table.jsonl", space, toys.simulate_smooth)
    Path("study.toml").write_text(STUDY)
    Study.load("study.toml").run("real", progress=False)
    walks.main(["study.toml", "--out", "walks"])
    capsys.readouterr()

    questions.main(["real", "v1/gemm-64x64x64-trace-1t", "--runs", "real"])
    assert "| `greedy-ils` |  |\n" in capsys.readouterr().out  # no run has more than 64 trials
    monkeypatch.setattr(questions, "WARM", 4)
    questions.main(["real", "v1/gemm-64x64x64-trace-1t", "--runs", "real", "--walks", "walks"])
    printed = capsys.readouterr().out
    measured, *_, spaces, far = printed.split("\n\n")
    questions.main(["real", "v1/gemm-64x64x64-trace-1t", "--runs", "real", "--trials", "2"])
    assert "| `greedy-ils` |  |\n" in capsys.readouterr().out  # no trial is left to be far from others
    assert "| `greedy-ils` | 8 | " in measured and measured.splitlines()[0].count("GFLOPS on `gemm:64x64x64`") == 1
    head, _, real, table = [[cell.strip() for cell in line.strip("|").split("|")] for line in spaces.splitlines()]
    assert real[0] == "`gemm:64x64x64`" and real[1] == "32"
    assert 0 < float(real[head.index("autocorrelation of neighbours")]) <= 1
    assert real[-1] == str(min(space.size(), walks.STEPS * walks.WALKS)) and table[-1] == ""
    explored = dict(line.strip("| ").split(" | ") for line in far.splitlines()[2:])
    assert explored.keys() == {"`random`", "`greedy-ils`"}
    assert float(explored["`random`"].rstrip("%")) > float(explored["`greedy-ils`"].rstrip("%")) >= 0
    assert "| `greedy-ils` |" in printed and "real runs and v1/gemm-64x64x64-trace-1t | 2 |" in printed


def test_runs_whose_order_does_not_repeat_predict_nothing() -> None:
    strong = np.array([3.0, 2.0, 1.0])[:, None, None]
    same = questions.repeatability(["`a`", "`b`"], np.broadcast_to(strong, (3, 2, 5)))
    assert same.splitlines()[2:] == ["| `a` | 1.00 | 1.00 |", "| `b` | 1.00 | 1.00 |", "| all | 1.00 |  |"]
    opposite = questions.repeatability(
        ["`a`", "`b`"], np.stack([strong[:, 0], -strong[:, 0]], axis=1).repeat(4, axis=2)
    )
    assert opposite.splitlines()[2:4] == ["| `a` | 1.00 | -1.00 |", "| `b` | 1.00 | -1.00 |"]
    changing = strong * np.array([1.0, -1.0, 1.0, -1.0])  # two of six divisions reverse the order; the others see none
    assert questions.repeatability(["`a`"], changing).splitlines()[2:] == ["| `a` | -0.33 |  |"]
    assert questions.repeatability(["`a`"], strong).splitlines()[2:] == ["| `a` |  |  |"]
    before = np.array([[1.0], [np.nan], [2.0]])  # one strategy is new, and the others were in the other order
    assert questions.repeatability(["`a`"], strong, before).splitlines()[2:] == ["| `a` |  |  | -1.00 |"]


def test_an_earlier_report_is_read_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = SUITE.parent / "reference" / "real" / "first.json"
    areas = questions.areas_in(before, ["conv2d:1x14x14x256x256x3x3:p1", "gemm:1x1x1"], ["gp-prior", "grid"])
    assert 0.7 < areas[0, 0] < 0.9 and np.isnan(areas[1]).all() and np.isnan(areas[0, 1])
    logs = str(SUITE.parent / "reference" / "real" / "logs" / "trace")
    for file in (tmp_path / "none.json", SUITE.parent / "RESULTS.md", SUITE / "v1" / "manifest.json"):
        with pytest.raises(SystemExit):
            questions.main(["real", "v1/gemm-64x64x64-trace-1t", "--runs", logs, "--earlier", str(file)])
        assert "is not the summary.json of a report" in capsys.readouterr().err


def test_without_random_search_a_space_cannot_be_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trusting: None
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "tables" / "table.jsonl", toys.Small(parse_workload("gemm:64x64x64")), toys.simulate_smooth)
    Path("study.toml").write_text(STUDY.replace('"random"', '"grid"'))
    Study.load("study.toml").run("real", progress=False)
    with pytest.raises(SystemExit):
        questions.main(["real", "v1/gemm-64x64x64-trace-1t", "--runs", "real"])
    assert "no run of the policy 'random'" in capsys.readouterr().err


def test_strategies_without_a_common_workload_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trusting: None
) -> None:
    monkeypatch.chdir(tmp_path)
    for size, policy in ((64, "random"), (32, "grid")):
        workload = f"gemm:{size}x{size}x{size}"
        table = write_table(
            tmp_path / f"tables{size}" / "table.jsonl", toys.Small(parse_workload(workload)), toys.simulate_smooth
        )
        study = STUDY.replace("gemm:64x64x64", workload).replace('"random", "greedy-ils"', f'"{policy}"')
        Path("study.toml").write_text(study.replace('path = "tables"', f'path = "{table.parent}"'))
        Study.load("study.toml").run(Path("real", policy), progress=False)
    with pytest.raises(SystemExit):
        questions.main(["real", "v1/gemm-64x64x64-trace-1t", "--runs", "real"])
    assert "no strategy has finished a run on every workload" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:some logs contain more trials")
@pytest.mark.parametrize("name", ["real", "trace", "long"])
def test_the_published_results_are_those_of_the_logs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    published = (SUITE.parent / "RESULTS.md").read_text()
    questions.main(
        ["real", "v1/gemm-64x64x64-trace-1t", "--runs", str(SUITE.parent / "reference" / "real" / "logs" / name)]
    )
    measured, _, _, noise, *_ = capsys.readouterr().out.split("\n\n")
    for line in noise.splitlines()[2:]:
        _, repeated, single, median = (cell.strip(" |%") for cell in line.split(" | "))
        assert int(repeated.replace(",", "")) > 5000 and 0 <= float(median) < float(single) < 10
    _, _, *rows = measured.splitlines()
    assert len(rows) >= 8
    for row in rows:
        strategy, batch, *gflops, share, area, _ = (cell.strip() for cell in row.strip("|").split("|"))
        lines = [line for line in published.splitlines() if f"| {strategy} | {batch} | {area} " in line]
        assert any(" | ".join(["", *gflops, ""]) in line and f" {share} |" in line for line in lines), row
