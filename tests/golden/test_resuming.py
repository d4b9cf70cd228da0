"""Golden runs go on where they are: the same configs in the same order, and nothing is measured twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from searchlab import SearchlabError, load_log

from .holding import MANIFEST, RUNS, configs, copied_here, read_lines, skip_with_other_libraries
from .today import ASKED, DATA, MENDED, command, in_words, run

KEPT = [name for name in RUNS if "/" not in name and name not in MENDED]
LOCAL = [name for name in RUNS if "/" in name]

pytestmark = pytest.mark.filterwarnings("ignore:.*does not hold every config")


def cut_and_resumed(name: str, to: Path) -> Path:
    """A golden run of which the last third is lost, in the middle of a batch, and made again."""
    log = to / f"{name}.jsonl"
    log.write_bytes(b"".join(read_lines(DATA / "runs" / f"{name}.jsonl")[: 1 + RUNS[name]["cut"]]))
    run(RUNS[name], log)
    return log


@pytest.mark.parametrize("name", KEPT)
def test_a_cut_run_ends_as_the_whole_one(name: str, tmp_path: Path) -> None:
    whole = DATA / "runs" / f"{name}.jsonl"
    try:
        log = cut_and_resumed(name, tmp_path)
        assert configs(log) == configs(whole)
    except (SearchlabError, AssertionError):
        skip_with_other_libraries()
        raise
    assert [trial.measurement for trial in load_log(log).trials] == [
        trial.measurement for trial in load_log(whole).trials
    ]


@pytest.mark.parametrize("name", MENDED)
def test_a_cut_run_of_a_mended_policy_is_refused_and_kept(name: str, tmp_path: Path) -> None:
    """These draw other configs than in 0.1, so their logs are read and reported, but not gone on with."""
    with pytest.raises(SearchlabError, match="cannot be resumed: its trial"):
        cut_and_resumed(name, tmp_path)
    (log,) = tmp_path.glob("*.jsonl")
    assert configs(log) == configs(DATA / "runs" / f"{name}.jsonl")[: RUNS[name]["cut"]]


@pytest.mark.parametrize("name", [*KEPT, *MENDED, *LOCAL])
def test_a_run_that_is_complete_stays_as_it_is(name: str, tmp_path: Path) -> None:
    place = DATA / (f"{name}.jsonl" if "/" in name else f"runs/{name}.jsonl")
    log = copied_here(place, tmp_path)
    before = log.read_bytes()
    target = json.loads(read_lines(log)[0])["target"]  # "native" is another one on another CPU
    result = run({**RUNS[name], "target": target}, log)
    assert len(result.trials) == RUNS[name]["trials"] == len(configs(place))
    assert log.read_bytes() == before


CHANGES: list[dict[str, Any]] = [
    {"seed": 4}, {"batch": 4}, {"workload": "gemm:32x32x32"}, {"policy": {"name": "random"}},
    {"policy": {"name": "evolutionary", "options": {"population": 9, "elites": 2}}},
    {"measure": {"kind": "table", "path": "tables/guided.jsonl", "noise": True}},
    {"measure": {"kind": "table", "path": "tables/guided.jsonl.gz"}},
    {"warm_start": ["runs/gz.jsonl"]},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_another_run_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    log = Path(shutil.copy(DATA / "runs" / "evolutionary.jsonl", tmp_path))
    with pytest.raises(SearchlabError):
        run(RUNS["evolutionary"] | change, log)
    assert log.read_bytes() == (DATA / "runs" / "evolutionary.jsonl").read_bytes()


def test_a_measured_run_of_another_machine_is_refused(tmp_path: Path) -> None:
    log = copied_here(DATA / "local" / "faults.jsonl", tmp_path)
    log.write_bytes(log.read_bytes().replace(b'"cpu":"', b'"cpu":"another ', 1))
    with pytest.raises(SearchlabError, match="host"):
        run(RUNS["local/faults"], log)


@pytest.mark.parametrize("name", MANIFEST["tables"])
def test_a_finished_table_is_not_measured_again(name: str, tmp_path: Path) -> None:
    spec = MANIFEST["tables"][name]
    table = copied_here(DATA / "tables" / name, tmp_path)
    before = table.read_bytes()
    measure = json.dumps(in_words(ASKED, spec["measure"]))
    words = ["table", "build", *spec["words"], "--target", json.dumps(spec["target"]), "--measure", measure]
    assert command(*words, "--out", table)[0] == 0
    assert table.read_bytes() == before and list(tmp_path.iterdir()) == [table]
