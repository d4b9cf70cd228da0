"""The studies of published claims: they can be planned, and their texts are up to date."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from searchlab.run.study import Study

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "studies" / "papers").glob("*.toml"))


@pytest.fixture(scope="module")
def verdicts() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "studies" / "papers"))
        yield importlib.import_module("verdicts")


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_each_study_has_claims_about_its_strategies_and_says_what_it_costs(file: Path, verdicts: ModuleType) -> None:
    study = Study.load(file)
    assert study.spec.claims and all(one.source for one in study.spec.claims)
    assert verdicts.Costed.read(file).command.split()[2] == file.relative_to(ROOT).as_posix()
    labels = [entry.label or entry.name for entry in study.spec.policy_entries]
    known = {*labels, *(study.suite.baseline_files if study.suite else ())}
    named = {name for one in study.spec.claims for name in (one.strategy, *one.opponents)}
    assert not study.suite or named <= known, named - known


def test_the_page_and_the_readme_are_up_to_date(verdicts: ModuleType) -> None:
    """If this fails, run ``python studies/papers/verdicts.py --page``."""
    assert verdicts.PAGE.read_text("utf-8") == "\n".join(verdicts.page()).rstrip() + "\n"
    assert verdicts.table() in verdicts.README.read_text("utf-8")


def test_the_page_names_both_classes_of_strategies(verdicts: ModuleType) -> None:
    entries = Study.load(ROOT / "studies" / "papers" / "tuner.toml").spec.policy_entries
    by_name = {(one.label or one.name): verdicts.described(one) for one in entries}
    assert by_name["greedy-ils"] == "greedy-ils"
    tuned = by_name["greedy-ils-tuned"]
    assert tuned.startswith("greedy-ils-tuned (greedy-ils, no_improvement = ") and tuned.endswith(", hub-v1/dev)")
