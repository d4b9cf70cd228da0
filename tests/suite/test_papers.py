"""The studies of published claims: they can be planned, and their texts are up to date."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from searchlab.conformance import toys
from searchlab.run.study import Study
from searchlab.workload import parse_workload
from tests.support.logs import write_table

ROOT = Path(__file__).parents[2]
STUDY = """# A paper.
#
#   python studies/papers/verdicts.py study.toml    # about 1 minute
workloads = ["gemm:64x64x64"]
spaces = [{ name = "searchlab.conformance.toys:Small", label = "small" }]
policies = ["random", "grid"]
trials = 4
measure = { kind = "table", path = "tables" }

[[claims]]
text = "Random search is better than the grid."
source = "nowhere"
strategy = "random"
against = "grid"
"""
STUDIES = sorted((ROOT / "studies" / "papers").glob("*.toml"))


@pytest.fixture(scope="module")
def verdicts() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "studies" / "papers"))
        yield importlib.import_module("verdicts")


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_each_study_has_claims_and_states_its_cost(file: Path, verdicts: ModuleType) -> None:
    study = Study.load(file)
    assert study.spec.claims and all(claim.source for claim in study.spec.claims)
    assert verdicts.StudyHead.read(file).command.split()[2] == file.relative_to(ROOT).as_posix()
    labels = [entry.title for entry in study.spec.policy_entries]
    strategies = {*labels, *(study.suite.baseline_paths if study.suite else ())}
    claim_strategies = {name for claim in study.spec.claims for name in (claim.strategy, *claim.opponents)}
    assert not study.suite or claim_strategies <= strategies, claim_strategies - strategies


def test_the_page_and_the_readme_are_up_to_date(verdicts: ModuleType) -> None:
    """If this fails, run ``python studies/papers/verdicts.py --page``."""
    assert verdicts.PAGE.read_text("utf-8") == "\n".join(verdicts.page()).rstrip() + "\n"
    assert verdicts.table() in verdicts.README.read_text("utf-8")


def test_the_page_names_both_classes_of_strategies(verdicts: ModuleType) -> None:
    entries = Study.load(ROOT / "studies" / "papers" / "tuner.toml").spec.policy_entries
    by_name = {entry.title: verdicts.describe_strategy(entry) for entry in entries}
    assert by_name["greedy-ils"] == "greedy-ils"
    tuned = by_name["greedy-ils-tuned"]
    assert tuned.startswith("greedy-ils-tuned (greedy-ils, no_improvement = ") and tuned.endswith(", hub-v1/dev)")


def test_a_study_without_a_suite(
    verdicts: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusting: None
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "tables" / "table.jsonl", toys.Small(parse_workload("gemm:64x64x64")), toys.simulate_smooth)
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    tested = verdicts.test(study, "dev", 2, 1, Console(quiet=True))
    assert (tested.title, tested.where, tested.seeds) == ("A paper", "this machine", 2)
    assert [verdict.claim.text for verdict in tested.claims] == ["Random search is better than the grid."]
