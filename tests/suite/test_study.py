"""A study over a suite, by name, path and split; its logs are the same wherever the suite is."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from searchlab.analysis import read_runs, summarize
from searchlab.errors import SearchlabError
from searchlab.log.read import read_log
from searchlab.log.writer import write_log
from searchlab.measure import suite as suites
from searchlab.measure.suite import find_suite, read_suite
from searchlab.run.study import Study
from tests.support.cli import searchlab
from tests.support.logs import read_deterministic_part
from tests.support.suites import TABLES

TEST = [name for name, (split, *_) in TABLES.items() if split == "test"]


def study(suite: Any, **more: Any) -> Study:
    return Study.from_dict({"suite": suite, "policies": ["random"], **more})


def test_a_suite_supplies_everything_but_the_policies(bare: Path) -> None:
    runs, left_out = study(str(bare)).plan()
    assert not left_out and len(runs) == 4 * 3, "the seeds of the protocol"
    assert {run.trial_count for run in runs} == {12}
    assert [str(run.log_path.parent.parent) for run in runs[::3]] == list(TABLES), "table by table"
    assert {run.space.target.cores for run in runs} == {1, 2}
    fewer, _ = study(str(bare / "test"), trials=5, seeds=[7]).plan()
    assert [(str(run.log_path), run.trial_count) for run in fewer] == [
        (f"{name}/random/seed7.jsonl", 5) for name in TEST
    ]


def test_a_study_file_next_to_its_suite(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its path is relative to the current directory, and the suite's is relative to it."""
    shutil.copytree(bare, tmp_path / "here" / "mini")
    (tmp_path / "here" / "study.toml").write_text(f'suite = "mini/{TEST[0]}"\npolicies = ["random"]\nseeds = 1\n')
    monkeypatch.chdir(tmp_path)
    (result,) = Study.load("here/study.toml").run("results", progress=False)
    assert len(result.trials) == 12


def test_trials_may_depend_on_how_difficult_a_table_is(bare: Path, tmp_path: Path) -> None:
    """The number is the mean that random search needs, here estimated from 2,000 random orders."""
    tables = find_suite(bare).tables
    trials_by_table = {
        factor: {run.log_path.parent.parent.name: run.trial_count for run in study(str(bare), trials=text).plan().runs}
        for factor, text in ((1, "difficulty"), (0.5, "0.5 difficulty"), (1000, "1000 difficulty"))
    }
    assert (
        trials_by_table[1].keys() == trials_by_table[0.5].keys() == set(TABLES)
        and len(set(trials_by_table[1].values())) > 1
    )
    rng = np.random.default_rng(0)
    for table in tables:
        costs = read_log(table.path).costs
        best, middle = costs.min(), np.median(costs[np.isfinite(costs)])
        good = costs <= best + 0.05 * (middle - best)
        first = np.mean([np.argmax(rng.permutation(good)) + 1 for _ in range(2000)])
        name = table.entry.name
        assert trials_by_table[1][name] == pytest.approx(first, rel=0.1, abs=1)
        assert trials_by_table[0.5][name] == pytest.approx(trials_by_table[1][name] / 2, abs=1)
        assert trials_by_table[1000][name] == len(costs), "no run has more"
    with pytest.raises(SearchlabError, match="'difficulty' requires a complete table of each space"):
        Study.from_dict(
            {
                "workloads": ["gemm:16x16x16"],
                "spaces": ["knob-template"],
                "policies": ["random"],
                "trials": "difficulty",
            }
        ).plan()
    with pytest.raises(SearchlabError, match="trials"):
        study(str(bare), trials="hard")


def test_a_suite_is_found_by_name_by_path_and_beside_the_study(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suite").mkdir()
    shutil.copytree(bare, tmp_path / "suite" / "mini")
    file = tmp_path / "suite" / "study.toml"
    file.write_text('suite = "mini/dev"\npolicies = ["random"]\n')
    loaded = Study.load(file)
    assert loaded.suite is not None and loaded.suite.name == "mini/dev"
    monkeypatch.setattr(suites, "SUITE_PARENT_DIRS", (tmp_path / "nowhere", tmp_path / "suite"))
    assert find_suite("mini/test").name == "mini/test"
    for wrong, message in (
        ("mimi", "cannot find the suite 'mimi'.*did you mean 'mini'"),
        ("mini/tset", "has no split or table 'tset'; did you mean 'test'"),
        ("nothing/dev", "cannot find the suite 'nothing/dev'"),
    ):
        with pytest.raises(SearchlabError, match=message):
            study(wrong)


def test_logs_do_not_depend_on_jobs_or_the_suites_directory(bare: Path, tmp_path: Path) -> None:
    shutil.copytree(bare, tmp_path / "elsewhere" / "other")
    study(str(bare), seeds=2).run(tmp_path / "a")
    study(str(tmp_path / "elsewhere" / "other"), seeds=2).run(tmp_path / "b", jobs=2)
    logs = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.jsonl"))
    assert len(logs) == 8
    for log in logs:
        assert read_deterministic_part(tmp_path / "a" / log) == read_deterministic_part(tmp_path / "b" / log)
    header = read_deterministic_part(tmp_path / "a" / logs[0])[0]
    assert header["measure"].keys() == {"kind", "name", "digest"} and "searchlab" not in str(header["measure"])


def test_two_tables_of_one_workload_are_kept_separate(bare: Path, results: Path) -> None:
    summary = summarize(read_runs(results))
    assert [item.workload for item in summary.workloads] == sorted(TABLES)
    assert all(set(item.by_strategy) == {"random", "evolutionary", "xgb"} for item in summary.workloads)
    assert summary.overall is not None and len(summary.overall.workloads) == 4
    suite = find_suite(bare)
    for item in summary.workloads:
        optimum = min(trial.cost for trial in read_log(suite.table(item.workload).path).trials)
        assert item.best is not None and item.best.seconds == optimum


def test_noise_is_an_option_of_the_suite(bare: Path, tmp_path: Path) -> None:
    (result, *_) = study({"name": str(bare), "noise": True}, seeds=1, trials=2).run(tmp_path)
    assert result.log.header.measure["noise"] is True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"workloads": ["gemm:8x8x8"]},
            "workloads is determined by the suite's tables; omit either 'workloads' or 'suite'",
        ),
        ({"measure": {"kind": "local"}}, "measure is determined by"),
        ({"target": "native"}, "target is determined by"),
        ({"suite": {"nam": "x"}}, "unknown key 'nam' in suite"),
        ({"suite": 3}, "suite cannot be 3"),
        ({"policies": []}, "policies must not be empty"),
    ],
)
def test_wrong_keys_beside_a_suite_are_refused(bare: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(SearchlabError, match=message):
        Study.from_dict({"suite": str(bare), "policies": ["random"], **change})


def test_the_error_of_a_study_without_spaces_mentions_suites() -> None:
    with pytest.raises(SearchlabError, match="workloads must not be empty.*or specify a suite"):
        Study.from_dict({"policies": ["random"]})


@pytest.mark.parametrize(
    ("text", "new", "message"),
    [
        ('version = "mini"', 'version = "../mini"', "version cannot be '../mini'"),
        ('split = "dev"', 'split = "train"', "split cannot be 'train'; it must be one of 'dev', 'test'"),
        ("trials = 12", "trials = 0", "trials cannot be 0"),
        ('name = "gemm-16x16x16-guided-2t"', 'name = "gemm-16x16x16-guided-1t"', "two tables are called"),
        ('title = "a small suite"', 'titel = "x"', "the key 'title' is missing|unknown key 'titel'"),
        ("[[tables]]", "[[tables", "is not valid TOML"),
        ("trials = 12", f"trials = {'9' * 5000}", "is not valid TOML"),
    ],
)
def test_a_wrong_suite_file_is_refused(bare: Path, tmp_path: Path, text: str, new: str, message: str) -> None:
    old = (bare / "suite.toml").read_text()
    (tmp_path / "suite.toml").write_text(old.replace(text, new, 1))
    with pytest.raises(SearchlabError, match=message):
        read_suite(tmp_path)


def change_header(directory: Path, table: str, **changes: Any) -> None:
    log = read_log(directory / "tables" / f"{table}.parquet")
    write_log(log.path, replace(log, header=msgspec.structs.replace(log.header, **changes)))


def test_missing_tables_and_foreign_spaces_are_named(copy: Path) -> None:
    change_header(copy, TEST[0], target={"kind": "llvm", "mcpu": "znver99"})
    with pytest.raises(SearchlabError, match=r"measured for a target that this TVM does not support.*znver99"):
        study(str(copy / "test")).plan()
    change_header(copy, TEST[0], target={"kind": "llvm", "mcpu": "znver2"})
    with pytest.raises(SearchlabError, match=r"guided-1t was not measured in the space that suite.toml specifies"):
        study(str(copy / "test")).plan()
    (copy / "tables" / f"{TEST[0]}.parquet").unlink()
    with pytest.raises(SearchlabError, match=r"the table mini/.*guided-1t is missing.*download the suite again"):
        study(str(copy / "test")).plan()


def test_a_log_over_another_version_of_a_table_is_not_resumed(copy: Path, tmp_path: Path) -> None:
    study(str(copy), seeds=1).run(tmp_path / "out")
    change_header(copy, TEST[0], created_at=2.0)
    with pytest.raises(SearchlabError, match="belongs to a different run: its measure is"):
        study(str(copy), seeds=1).run(tmp_path / "out")


def test_tables_and_options_are_not_made_over_a_suite(bare: Path, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(f'suite = "{bare}"\npolicies = ["random"]\n')
    for words in (("table", "build", file), ("hypertune", file, "--policy", "evolutionary")):
        result = searchlab(*words, cwd=tmp_path)
        assert result.returncode == 2 and "suite" in result.stderr


def test_baselines_answer_claims_without_a_run(sealed: Path, tmp_path: Path) -> None:
    claims = [
        '[[claims]]\ntext = "xgb is best."\nsource = "nobody"\nstrategy = "xgb"\nagainst = ["random", "evolutionary"]\n'
    ]
    file, out = tmp_path / "study.toml", tmp_path / "results"
    file.write_text("\n".join([f'suite = "{sealed}"', "policies = []", *claims]))
    result = searchlab("run", file, "--out", out)
    assert result.returncode == 0 and not list(out.rglob("*.jsonl")), result.stderr
    summary = json.loads((out / "report" / "summary.json").read_text())
    assert {row["strategy"] for row in summary["workloads"][0]["strategies"]} == {"random", "evolutionary", "xgb"}
    (claim,) = summary["claims"]
    assert [pair["workloads"] for pair in claim["against"]] == [4, 4] and claim["verdict"] in result.stdout
    assert "0 runs" in searchlab("run", file, "--out", out, "--dry-run").stdout
    assert searchlab("report", file, out, "--json").stdout == json.dumps(summary, indent=2) + "\n"


def test_baselines_join_the_runs_of_a_study_that_refers_to_them(sealed: Path, results: Path, tmp_path: Path) -> None:
    """The same runs again, called by another name, are level with the baseline."""
    claims = '[[claims]]\ntext = "Again."\nsource = "nobody"\nstrategy = "again"\nagainst = "evolutionary"\n'
    policy = '{ name = "evolutionary", label = "again", batch = 6, options = { population = 6 } }'
    file, out = tmp_path / "study.toml", tmp_path / "results"
    file.write_text(f'suite = "{sealed}"\npolicies = [{policy}]\n{claims}')
    result = searchlab("run", file, "--out", out)
    assert result.returncode == 0, result.stderr
    (claim,) = json.loads((out / "report" / "summary.json").read_text())["claims"]
    (pair,) = claim["against"]
    assert (pair["value"], pair["level"], claim["verdict"]) == (0, 4, "untested"), "all differences are zero"


def test_without_claims_a_study_needs_policies(bare: Path) -> None:
    with pytest.raises(SearchlabError, match="policies must not be empty"):
        study(str(bare), policies=[])


def test_a_run_starts_from_the_tables_of_other_workloads(bare: Path, tmp_path: Path) -> None:
    """In the small suite, the knob tables have different shapes, and the guided ones the same workload."""
    warm = study(str(bare), policies=["copula", "xgb"], warm_start=[f"suite:{bare}"], seeds=1)
    warm_starts = {str(run.log_path): run.warm_start for run in warm.plan().runs}
    for policy in ("copula", "xgb"):
        learnt = {
            name: [earlier.log.header.workload for earlier in warm_starts[f"{name}/{policy}/seed0.jsonl"].runs]
            for name in TABLES
        }
        assert learnt == {
            "gemm-4x5x6-knob-1t": ["gemm:4x6x5"],
            "gemm-4x6x5-knob-1t": ["gemm:4x5x6"],
            "gemm-16x16x16-guided-1t": [],
            "gemm-16x16x16-guided-2t": [],
        }
    (other_run,) = warm_starts["gemm-4x5x6-knob-1t/copula/seed0.jsonl"].other_spaces
    assert 0 < len(other_run.trials) <= 128 and len({trial.config for trial in other_run.trials}) == len(
        other_run.trials
    )
    warm.run(tmp_path)
    cold = study(str(bare), policies=["copula"], seeds=1)
    cold.run(tmp_path / "cold")
    name = Path("gemm-4x5x6-knob-1t", "copula", "seed0.jsonl")
    assert read_deterministic_part(tmp_path / name) != read_deterministic_part(tmp_path / "cold" / name)
    assert len(read_log(tmp_path / name).header.warm_start) == 1


def test_a_policy_that_cannot_transfer_ignores_other_tables(bare: Path) -> None:
    runs, _ = study(str(bare), warm_start=[f"suite:{bare}"]).plan()
    assert not any(run.warm_start.runs for run in runs)
