"""A report covers the current runs of a study; with ``everything``, all logs in its directory."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from searchlab.analysis import read_runs, summarize
from searchlab.conformance.toys import Small, simulate_flaky
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.budget import UNLIMITED, Budget
from searchlab.log.plan import PLAN_FILE_NAME, PlannedRun, read_plan, write_plan
from searchlab.log.writer import LogWriter, compress_log
from tests.support.analysis.logs import WORKLOAD, header, write
from tests.support.cli import searchlab
from tests.support.logs import write_table


def plan_of(path: Path, directory: Path, strategy: str, seed: int, **budget: Any) -> PlannedRun:
    return PlannedRun(
        log=path.relative_to(directory).as_posix(),
        workload=WORKLOAD,
        space="knob",
        strategy=strategy,
        seed=seed,
        budget=Budget(**budget),
    )


@pytest.fixture
def study(tmp_path: Path) -> dict[tuple[str, int], Path]:
    """Two strategies, two seeds, eight trials each."""
    return {
        (name, seed): write(tmp_path, name, seed, [1.0, 2, 3, 3, 3, 3, 3, 9 + seed])
        for name in ("a", "b")
        for seed in (0, 1)
    }


def test_only_the_policies_seeds_and_trials_of_the_plan_count(
    study: dict[tuple[str, int], Path], tmp_path: Path
) -> None:
    runs = [plan_of(path, tmp_path, *key, trials=4) for key, path in study.items() if key != ("b", 1)]
    write_plan(tmp_path, runs)
    with pytest.warns(SearchlabWarning) as caught:
        comparison = read_runs(tmp_path)
    assert [str(warning.message).split(":")[0] for warning in caught] == [
        "logs of runs that are no longer part of the study are skipped",
        "some logs contain more trials than are now part of the study, which are skipped",
    ]
    (item,) = summarize(comparison).workloads
    assert {row.strategy: (row.seeds, row.trials_by_seed) for row in item.strategies} == {
        "a": ([0], [4, 4]),
        "b": ([0], [4]),
    }
    assert item.best and item.best.gflops == pytest.approx(3), "what later trials found is not known"
    everything = summarize(read_runs(tmp_path, everything=True)).workloads[0]
    assert {row.strategy: row.trials_by_seed for row in everything.strategies} == {"a": [8, 8], "b": [8, 8]}
    assert read_runs(study["b", 1]), "a log that is named counts"


def test_compressed_logs_stay_part_of_the_study(study: dict[tuple[str, int], Path], tmp_path: Path) -> None:
    write_plan(tmp_path, [plan_of(path, tmp_path, *key, trials=4) for key, path in study.items() if key[0] == "a"])
    for path in study.values():
        compress_log(path, path.with_name(f"{path.name}.gz"))
    with pytest.warns(SearchlabWarning, match="no longer part|more trials"):
        (item,) = summarize(read_runs(tmp_path)).workloads
    assert {row.strategy: row.trials_by_seed for row in item.strategies} == {"a": [4, 4]}


def test_a_budget_cuts_where_the_run_would_have_ended(study: dict[tuple[str, int], Path], tmp_path: Path) -> None:
    budgets: dict[tuple[str, int], dict[str, Any]] = {
        ("a", 0): {"seconds": 2.5},
        ("a", 1): {"stop_after": 3},
        ("b", 0): {},
        ("b", 1): {"trials": 8},
    }
    write_plan(tmp_path, [plan_of(study[key], tmp_path, *key, **budget) for key, budget in budgets.items()])
    with pytest.warns(SearchlabWarning, match="2 logs, such as"):
        (item,) = summarize(read_runs(tmp_path)).workloads
    assert {row.strategy: row.trials_by_seed for row in item.strategies} == {"a": [3, 6], "b": [8, 8]}
    notes = " ".join(item.notes)
    assert (
        "1 run of a ended after 3 of 8 trials, because the budget of 2.5 seconds was spent; the best program found "
        "by then counts" in notes
    )
    assert "1 run of a ended after 6 of 8 trials, because 3 trials had brought no gain of more than 1 %" in notes


def test_a_limit_in_seconds_that_no_run_reached_does_not_count(
    study: dict[tuple[str, int], Path], tmp_path: Path
) -> None:
    for seconds, trials, unit in ((1e6, 8, "trials"), (2.5, 8, "seconds"), (1e6, UNLIMITED, "seconds")):
        limits: dict[str, Any] = {"seconds": seconds, "trials": trials}
        write_plan(tmp_path, [plan_of(path, tmp_path, *key, **limits) for key, path in study.items()])
        with warnings.catch_warnings(action="ignore"):  # of trials that are no longer part of the study
            assert {item.by for item in read_runs(tmp_path).values()} == {unit}


def test_each_study_below_a_directory_has_its_own_plan(study: dict[tuple[str, int], Path], tmp_path: Path) -> None:
    directory = tmp_path / "other"
    path = write(directory, "c", 0, [1.0] * 8)
    write_plan(directory, [plan_of(path, directory, "c", 0)])
    assert {run.strategy for item in read_runs(tmp_path).values() for run in item.runs} == {"a", "b", "c"}
    write_plan(directory, [plan_of(directory / "none.jsonl", directory, "c", 0)])
    with pytest.warns(SearchlabWarning, match="1 log, such as"):
        assert {run.strategy for item in read_runs(tmp_path).values() for run in item.runs} == {"a", "b"}
    with pytest.raises(
        SearchlabError, match="contains no logs that are currently part of its study; run the study, or .*--all"
    ):
        read_runs(directory)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"searchlab_study":2,"runs":[]}', '{"runs":[]}', "\x00"],
    ids=["", "list", "{", "2", "0", "nul"],
)
def test_a_damaged_plan_is_refused(text: str, study: object, tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE_NAME).write_text(text)
    with pytest.raises(SearchlabError, match=r"plan.json is damaged: .*; run the study again to recreate it"):
        read_runs(tmp_path)
    assert read_runs(tmp_path, everything=True)


@pytest.mark.parametrize("log", ["../a.jsonl", "/etc/a.jsonl", "a/../../b.jsonl", "passwd"])
def test_a_plan_names_logs_below_its_directory_alone(log: str, tmp_path: Path) -> None:
    write_plan(tmp_path, [plan_of(tmp_path / "a.jsonl", tmp_path, "a", 0)])
    path = tmp_path / PLAN_FILE_NAME
    path.write_text(path.read_text().replace('"a.jsonl"', json.dumps(log)))
    with pytest.raises(SearchlabError, match="is not the path of a log in the plan's directory"):
        read_plan(tmp_path)


def test_a_report_on_a_study_that_runs_says_so(study: dict[tuple[str, int], Path], tmp_path: Path) -> None:
    path = study["a", 0]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:6]))
    write_plan(tmp_path, [plan_of(path, tmp_path, *key, trials=8) for key, path in study.items()])
    with LogWriter(path, header("a", 0)):
        (item,) = summarize(read_runs(tmp_path)).workloads
        output = searchlab("report", tmp_path)
    name = path.name
    assert f"Still running, and included up to now: {name}." in item.notes
    assert f"Not yet at trial 8, and therefore excluded: {name}." in item.notes
    assert "3 of 4 runs finished, 1 running; 29 trials done" in output.stdout, output.stderr
    assert f"Still running, and included up to now: {name}" in (tmp_path / "report" / "report.html").read_text()
    assert "running" not in searchlab("report", tmp_path).stdout


STUDY = """
workloads = ["gemm:64x64x64"]
spaces = [{ name = "searchlab.conformance.toys:Small", label = "small" }]
policies = ["random", "grid"]
seeds = 1
trials = 8
target = { kind = "llvm" }
measure = { kind = "table", path = "table.jsonl" }
"""


def test_a_study_file_that_was_edited_is_reported_as_it_now_is(tmp_path: Path) -> None:
    write_table(tmp_path / "table.jsonl", Small(), simulate_flaky)
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    refused = searchlab("report", file, cwd=tmp_path)
    assert refused.returncode == 2 and "the directory results/study for the logs of" in refused.stderr
    assert searchlab("run", file, cwd=tmp_path).returncode == 0
    file.write_text(STUDY.replace('"random", "grid"', '"random"').replace("trials = 8", "trials = 5"))

    def trials_by_strategy(*words: object) -> dict[str, list[int]]:
        result = searchlab("report", *words, "--json", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        rows = json.loads(result.stdout)["workloads"][0]["strategies"]
        return {row["strategy"]: row["trials_by_seed"] for row in rows}

    assert trials_by_strategy("results/study") == {"random": [8], "grid": [8]}, "as it was run"
    assert trials_by_strategy(file) == {"random": [5]}
    assert trials_by_strategy("results/study") == {"random": [5]}, "the study is as it was last named"
    assert (
        trials_by_strategy("results/study", "--all")
        == trials_by_strategy(file, "results/study", "--all")
        == {"random": [8], "grid": [8]}
    )
    refused = searchlab("report", file, file, cwd=tmp_path)
    assert refused.returncode == 2 and "pass at most one directory" in refused.stderr
