"""Golden study files, the directory of a study, a search of options, imported logs and saved cost models."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import searchlab
from searchlab.costmodel import load

from .holding import MANIFEST, hold, skip_with_other_libraries
from .today import ASKED, DATA, as_before, as_planned, command, header_of, numbers_of_then, planned, read

FOREIGN = DATA.parent.parent / "exchange" / "data"


def in_words_of_today(name: str, to: Path) -> Path:
    """A golden study file with today's words, in a copy of the directories that are about it."""
    for folder in ("studies", "results", "hypertune"):
        shutil.copytree(DATA / folder, to / folder)
    for folder in ("tables", "runs"):
        (to / folder).symlink_to(DATA / folder)
    study = to / "studies" / name
    text = study.read_text()
    for old, new in ASKED.items():
        text = re.sub(rf"\b{old} = ", f"{new} = ", text)
    study.write_text(text)
    return study


@pytest.mark.parametrize("name", MANIFEST["studies"])
def test_a_study_file_spans_the_same_runs(name: str, tmp_path: Path) -> None:
    found, expected = planned(in_words_of_today(name, tmp_path)), as_planned(MANIFEST["studies"][name])
    for path, run in expected["runs"].items():
        if run.get("features") == "knob" and not run["warm_start"]:
            found["runs"][path]["warm_start"] = []  # since 0.2 knobs carry over to other shapes of one space
    hold(found, expected)


@pytest.mark.parametrize(("old", "new"), [("initial", "n_startup"), ("stop_factor", "prune_factor")])
def test_a_study_file_in_old_words_is_told_the_new_ones(old: str, new: str, tmp_path: Path) -> None:
    study = in_words_of_today("words.toml", tmp_path)
    study.write_text(study.read_text().replace(f"{new} = ", f"{old} = "))
    with pytest.raises(searchlab.SearchlabError, match=f"{old}.*is called '{new}' now"):
        searchlab.Study.load(study).plan()


def test_the_directory_of_a_study_is_complete_and_reported_as_before(tmp_path: Path) -> None:
    study = in_words_of_today("on_table.toml", tmp_path)
    results = tmp_path / "results" / "on_table"
    before = {path: path.read_bytes() for path in results.rglob("*.jsonl")}
    runs = searchlab.Study.load(study).run(results)
    assert len(runs) == len(before) == 4
    assert {path: path.read_bytes() for path in results.rglob("*.jsonl")} == before
    code, said = command("report", results, "--json")
    assert code == 0
    then = json.loads((DATA / "results" / "summary.json").read_text())
    hold(as_before(numbers_of_then(json.loads(said))), numbers_of_then(then))


def test_the_directory_of_a_study_goes_on(tmp_path: Path) -> None:
    study = in_words_of_today("on_table.toml", tmp_path)
    results = tmp_path / "results" / "on_table"
    for path in results.rglob("*.jsonl"):
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:13]))
    for result in searchlab.Study.load(study).run(results):
        name = f"results/on_table/{result.log.path.relative_to(results)}"
        assert read(result.log.path)["costs"] == MANIFEST["logs"][name]["costs"]


def test_a_search_of_options_in_old_words_is_refused_and_kept(tmp_path: Path) -> None:
    """A journal is no log: its search takes minutes, and is made anew in today's words."""
    study = in_words_of_today("on_table.toml", tmp_path)
    journal = tmp_path / "hypertune" / "optuna.log"
    before = journal.read_bytes()
    words = ["hypertune", study, "--policy", "tpe", "--option", f"{ASKED['startup']}=2..12", *MANIFEST["hypertune"]]
    code, _ = command(*words, "--out", tmp_path / "hypertune", "--json")
    assert code == 2
    after = journal.read_bytes()  # Optuna notes that the search was opened, and no more
    assert after.startswith(before) and b"trial" not in after[len(before) :]


@pytest.mark.parametrize("name", MANIFEST["imports"])
def test_an_import_gives_the_same_log(name: str, tmp_path: Path) -> None:
    file, *words = MANIFEST["imports"][name]
    assert command("import", FOREIGN / file, "--out", tmp_path / "a.jsonl", *words)[0] == 0
    golden = DATA / "imported" / f"{name}.jsonl"
    hold(read(tmp_path / "a.jsonl"), read(golden))
    made, kept = (searchlab.load_log(path) for path in (tmp_path / "a.jsonl", golden))
    assert made.trials == kept.trials
    hold(header_of(made), header_of(kept))


@pytest.mark.parametrize("name", MANIFEST["models"])
def test_a_saved_cost_model_predicts_the_same(name: str) -> None:
    expected = MANIFEST["models"][name]
    result = searchlab.load_log(DATA / expected["table"])
    surrogate = load(DATA / "models" / f"{name}.npz", result.space)
    predicted = surrogate.predict([trial.config for trial in result.trials[:16]])
    try:
        assert predicted.tolist() == pytest.approx(expected["predicted"], rel=1e-6, abs=1e-9)
    except AssertionError:
        skip_with_other_libraries()
        raise
