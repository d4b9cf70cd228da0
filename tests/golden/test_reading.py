"""Golden logs are read as they were when they were made, and damaged ones are found and made whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import searchlab
from searchlab import SearchlabError

from .holding import MANIFEST, RUNS, configs, hold, hold_check, read_lines
from .today import DATA, PRUNED, as_before, best, checked, command, header_of, read, run, without_place

LOGS = MANIFEST["logs"]
DAMAGED = MANIFEST["damaged"]
ANALYSIS_ONLY = ("imported/ansor.jsonl", "imported/autotvm.jsonl", "imported/metaschedule.jsonl")


def test_every_log_is_in_the_manifest() -> None:
    there = {str(path.relative_to(DATA)) for path in DATA.rglob("*.jsonl*")}
    assert there == {*LOGS, *(f"damaged/{name}" for name in DAMAGED)}


@pytest.mark.parametrize("name", LOGS)
def test_what_a_script_sees_of_a_log(name: str) -> None:
    expected = LOGS[name]
    found = read(DATA / name)
    hold(found, {field: expected[field] for field in found})
    found = best(DATA / name)
    hold(json.loads(json.dumps(found)), {field: expected["best"][field] for field in found})


@pytest.mark.parametrize("name", [name for name in LOGS if name.startswith("local/")])
def test_noise_and_drift_of_a_measured_log(name: str) -> None:
    code, said = command("best", DATA / name, "--json")
    assert code == 0
    hold(as_before(without_place(json.loads(said))), LOGS[name]["best"])


def test_what_logs_are_said_to_hold() -> None:
    """All of them at once, as building the command line takes longer than reading a log."""
    code, said = command("table", "info", *LOGS, "--json")
    assert code == 0
    for name, found in zip(LOGS, json.loads(said), strict=True):
        hold(as_before(without_place(found)), LOGS[name]["table"], name)
    code, said = command("log", "check", *LOGS, "--json")
    for name, found in zip(LOGS, json.loads(said), strict=True):
        hold_check({"exit_code": code, **without_place(found)}, LOGS[name]["check"])


@pytest.mark.parametrize("name", LOGS)
def test_every_field_is_read_as_it_is_written(name: str) -> None:
    first, *rest = [json.loads(line) for line in read_lines(DATA / name)]
    result = searchlab.load_log(DATA / name)
    header = header_of(result)
    for field, value in first.items():
        hold(header[field], value, field)
    records = [line for line in rest if "final" not in line]
    for trial, record in zip(result.trials, records, strict=True):
        m = trial.measurement
        assert trial.index == record["index"]
        hold(trial.config.to_json(), record["config"])
        assert (m.seconds, m.failure) == (tuple(record.get("seconds", ())), record.get("failure"))
        assert (m.message, m.program) == (record.get("message", ""), record.get("program", ""))
        spent = (record.get("build_seconds", 0.0), record.get("run_seconds", 0.0))
        assert (m.build_seconds, m.run_seconds) == spent
        flags = tuple(record.get(flag, False) for flag in ("reused", "nearest", "stopped"))
        assert (m.reused, m.nearest, getattr(m, PRUNED)) == flags


@pytest.mark.parametrize("name", [name for name in LOGS if name not in ANALYSIS_ONLY])
def test_the_space_of_a_log_is_made_again(name: str) -> None:
    result = searchlab.load_log(DATA / name)
    assert result.space.fingerprint == json.loads(read_lines(DATA / name)[0])["fingerprint"]
    assert all(trial.config in result.space for trial in result.trials[:8])
    if LOGS[name]["best"] and not name.startswith(("runs", "results")):
        assert result.best.schedule().mod


@pytest.mark.parametrize("name", ANALYSIS_ONLY)
def test_a_log_for_analysis_has_no_space(name: str) -> None:
    with pytest.raises(SearchlabError):
        _ = searchlab.load_log(DATA / name).space


# --- damaged ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_found_and_repaired(name: str, tmp_path: Path) -> None:
    expected = DAMAGED[name]
    hold_check(checked(DATA / "damaged" / name), expected["check"])
    if expected["reads"] is None:
        with pytest.raises(SearchlabError):
            searchlab.load_log(DATA / "damaged" / name)
    else:
        assert len(searchlab.load_log(DATA / "damaged" / name).trials) == expected["reads"]
    copy = Path(shutil.copy(DATA / "damaged" / name, tmp_path))
    code, _ = command("log", "repair", copy)
    assert code == expected["repair"]["exit_code"]
    original = (DATA / "damaged" / name).read_bytes().split(b"\n")
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made.keys() == expected["repair"]["files"].keys()
    for file, lines in expected["repair"]["files"].items():
        assert [line for line in made[file].split(b"\n") if line] == [original[number - 1] for number in lines]
    if code == 0:
        assert checked(copy)["exit_code"] == 0


GOES_ON: list[Any] = ["torn", "torn-header", "empty", "middle", "gap", "twice"]


@pytest.mark.parametrize("name", GOES_ON)
def test_a_run_goes_on_after_damage(name: str, tmp_path: Path) -> None:
    log = Path(shutil.copy(DATA / "damaged" / f"{name}.jsonl", tmp_path))
    if DAMAGED[f"{name}.jsonl"]["reads"] is None and name not in ("torn-header", "empty"):
        with pytest.raises(SearchlabError):
            run(RUNS["evolutionary"], log)
        assert command("log", "repair", log)[0] == 0
    run(RUNS["evolutionary"], log)
    assert configs(log) == configs(DATA / "runs" / "evolutionary.jsonl")
