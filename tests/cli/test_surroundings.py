"""Odd surroundings: a run works in them, or ends with one sentence."""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from searchlab.analysis import report
from searchlab.errors import SearchlabError
from searchlab.log.format import read_log
from searchlab.log.repair import examine
from searchlab.run.study import Study
from searchlab.run.tune import tune
from searchlab.tables.info import TableInfo, info_table
from tests.support import toys
from tests.support.logs import write_table

FEW = 64
"""Files that a process may have open."""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study whose names have blanks and letters beyond ASCII."""
    folder = tmp_path / "ä b"
    folder.mkdir()
    write_table(folder / "täble.jsonl", toys.Small(), toys.flaky, counted=True)
    path = folder / "stüdy 1.toml"
    path.write_text(
        "workloads = ['gemm:64x64x64']\nspaces = [{ name = 'tests.support.toys:Small', label = 'ü' }]\n"
        "policies = [{ name = 'random', label = 'zufällig' }]\nseeds = 2\ntrials = 8\ntarget = { kind = 'llvm' }\n"
        "measure = { kind = 'table', path = 'täble.jsonl' }\n",
        encoding="utf-8",
    )
    return path


def ran(study: Path, *words: str, few: bool = False, **settings: str | None) -> subprocess.CompletedProcess[bytes]:
    changed = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | settings
    env = {name: value for name, value in (os.environ | changed).items() if value is not None}
    return subprocess.run(
        [sys.executable, "-m", "searchlab", "run", study, "--out", study.parent / "oüt", *words], capture_output=True,
        env=env, preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))) if few else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {"HOME": None, "LC_ALL": "C"},
        {"HOME": "/proc/nowhere"},
        {"few": True, "words": ("--jobs", "2")},
    ],
    ids=["no home, C locale", "home that cannot be written", "few files, two jobs"],
)
def test_a_study_runs_in(study: Path, given: dict[str, Any]) -> None:
    done = ran(study, *given.pop("words", ()), **given)
    assert done.returncode == 0, done.stderr
    assert "zufällig" in done.stdout.decode()
    assert (study.parent / "oüt" / "report" / "report.html").is_file()


def test_a_locale_that_cannot_spell_a_name_is_one_sentence(study: Path) -> None:
    done = ran(study, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith(b"error: ") and b"'ascii'" in line


def test_a_name_that_no_file_can_have_is_one_sentence(tmp_path: Path) -> None:
    data = {
        "workloads": ["gemm:64x64x64"], "spaces": [{"name": "tests.support.toys:Small"}], "policies": ["random"],
        "target": {"kind": "llvm"}, "measure": {"kind": "table", "path": "a\0b.jsonl"},
    }  # fmt: skip
    with pytest.raises(SearchlabError, match="cannot read the log.*null byte"):
        Study.from_dict(data, tmp_path).run(tmp_path / "out")


def test_a_clock_that_jumps_changes_nothing_but_dates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write_table(tmp_path / "table.jsonl", toys.Small(), toys.flaky, counted=True)
    clock = itertools.cycle([1.7e9, -3e7, 4e9, 0.0, 1e10])
    monkeypatch.setattr(time, "time", lambda: next(clock))

    def run(trials: int, log: str) -> list[Any]:
        tune(
            toys.WORKLOAD, space=toys.Small(), policy="evolutionary", log=tmp_path / log, trials=trials, batch=4,
            measure={"kind": "table", "path": str(table)},
        )  # fmt: skip
        return [record.config for record in read_log(tmp_path / log).records]

    for trials in (4, 8, 12, 16):
        configs = run(trials, "resumed.jsonl")
    monkeypatch.undo()
    assert configs == run(16, "whole.jsonl") and not examine(tmp_path / "resumed.jsonl").problems
    charged = read_log(tmp_path / "resumed.jsonl").elapsed
    assert (charged[1:] >= charged[:-1]).all()
    info_table(TableInfo(read_log(tmp_path / "resumed.jsonl")))
    report(tmp_path / "resumed.jsonl", out=tmp_path / "report")
    assert json.loads((tmp_path / "report" / "summary.json").read_text())
