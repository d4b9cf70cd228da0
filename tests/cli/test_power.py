"""``searchlab power``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from searchlab.conformance import toys
from tests.support.cli import searchlab
from tests.support.logs import write_table

STUDY = """
workloads = ["gemm:64x64x64"]
spaces = [{ name = "searchlab.conformance.toys:Small", label = "small" }]
policies = ["random", { name = "evolutionary", options = { population = 4 } }]
seeds = 4
trials = 24
target = { kind = "llvm" }
measure = { kind = "table", path = "table.jsonl" }
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky)
    (tmp_path / "study.toml").write_text(STUDY)
    assert searchlab("run", "study.toml", cwd=tmp_path).returncode == 0
    return tmp_path


def test_power_states_the_seeds_that_a_difference_needs(directory: Path) -> None:
    by_name = searchlab("power", "study.toml", "--json", cwd=directory)
    assert by_name.returncode == 0, by_name.stderr
    plan = json.loads(by_name.stdout)
    assert (plan["workloads"], plan["seeds"], plan["tests"]) == (1, 4, 1)
    (need,) = plan["needs"]
    assert (need["first"], need["second"]) == ("evolutionary", "random")
    assert need["seeds_alone"] == need["seeds_together"] >= 2 and need["workloads"] is None
    finer = json.loads(searchlab("power", "results/study", "--difference", "0.005", "--json", cwd=directory).stdout)
    assert finer["needs"][0]["seeds_alone"] > need["seeds_alone"]
    many = json.loads(searchlab("power", "study.toml", "--tests", "45", "--json", cwd=directory).stdout)
    assert many["needs"][0]["seeds_alone"] > need["seeds_alone"]
    output = searchlab("power", "study.toml", cwd=directory).stdout
    assert "evolutionary" in output and "run the study on more workloads" in " ".join(output.split())


def test_one_strategy_against_the_others(directory: Path) -> None:
    """Holm's correction covers only the pairs of that strategy."""
    larger_study = STUDY.replace('"random", ', '"random", "annealing", ')
    (directory / "more.toml").write_text(larger_study)
    assert searchlab("run", "more.toml", cwd=directory).returncode == 0
    all_pairs = json.loads(searchlab("power", "more.toml", "--json", cwd=directory).stdout)
    plan = json.loads(searchlab("power", "more.toml", "--strategy", "evolutionary", "--json", cwd=directory).stdout)
    assert len(all_pairs["needs"]) == 3 and len(plan["needs"]) == 2
    assert all("evolutionary" in (need["first"], need["second"]) for need in plan["needs"])
    wrong = searchlab("power", "more.toml", "--strategy", "evolutionry", cwd=directory)
    assert wrong.returncode == 2 and "did you mean 'evolutionary'" in wrong.stderr


def test_a_new_policy_against_a_baseline_of_a_suite() -> None:
    words = ("power", "v1/gemm-255x129x65-guided-1t", "--strategy", "xgb", "--json")
    plan = json.loads(searchlab(*words).stdout)
    first, *baseline_needs = plan["needs"]
    assert (first["first"], first["second"]) == ("a new policy", "xgb") and plan["registered"] and plan["tests"] == 1
    least, most = (
        min(need["seeds_together"] for need in baseline_needs),
        max(need["seeds_together"] for need in baseline_needs),
    )
    assert least <= first["seeds_together"] <= most
    three = json.loads(searchlab(*words, "--registered", "3").stdout)["needs"][0]
    assert three["seeds_together"] > first["seeds_together"], "three registered contrasts share the error rate"
    unnamed = searchlab("power", "v1/gemm-255x129x65-guided-1t")
    assert unnamed.returncode == 2 and "as --strategy; choose one of" in unnamed.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.toml"], "results/nowhere"),
        (["study.toml", "--power", "1.5"], "option 'power' is 1.5"),
        (["study.toml", "--tests", "2", "--registered", "2"], "cannot be combined"),
        (["study.toml", "--difference", "0"], "option 'difference' is 0"),
        (["study.toml", "--difference", "inf"], "option 'difference' is inf"),
        (["study.toml", "--difference", "nan"], "option 'difference' is nan"),
        (["results/study/gemm_64x64x64/small/random"], "share two seeds with different results"),
    ],
)
def test_bad_input_ends_with_a_sentence(directory: Path, words: list[str], message: str) -> None:
    result = searchlab("power", *words, cwd=directory)
    assert result.returncode == 2 and message in " ".join(result.stderr.split()) and "Traceback" not in result.stderr
