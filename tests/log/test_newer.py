"""Fields, lines and versions that this version of searchlab does not know."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.columns import read_columns
from searchlab.log.read import read_header, read_log
from searchlab.log.writer import LogWriter, check_log
from tests.support.cli import searchlab
from tests.support.logs import HEADER, write_trials

NEWER = "1.9"


def write_edited(path: Path, line: int, edit: dict[str, Any] | bytes, version: str = "1.0") -> Path:
    """Write a log of three trials, in which a line has other members (None removes one) or is a different line."""
    lines = write_trials(path, 3).splitlines()
    lines[0] = json.dumps(json.loads(lines[0]) | {"searchlab_log": version}, separators=(",", ":")).encode()
    if isinstance(edit, bytes):
        lines.insert(line, edit)
    else:
        data = json.loads(lines[line]) | edit
        lines[line] = json.dumps({name: value for name, value in data.items() if value is not None}).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


UNKNOWN = [
    (0, {"effectve": {"n": 3}}, "effectve", "effective"),
    (0, {"policy": {"name": "random", "optoins": {"n": 1}}}, "policy.optoins", "options"),
    (0, {"computation": {"flops": 3, "unti": "runs/s"}}, "computation.unti", "unit"),
    (2, {"statistc": "mean"}, "statistc", "statistic"),
    (2, {"model": {"trials": 1, "k": 1, "rmze": 0.5}}, "model.rmze", "rmse"),
]


@pytest.mark.parametrize(("line", "edit", "field", "nearest"), UNKNOWN)
def test_an_unknown_field_is_reported(
    tmp_path: Path, line: int, edit: dict[str, Any], field: str, nearest: str
) -> None:
    path = write_edited(tmp_path / "a.jsonl", line, edit)
    (problem,) = check_log(path).problems
    assert problem.number == line + 1 and f"{field!r}" in problem.problem and f"{nearest!r}?" in problem.problem
    for read in (read_log, read_columns):
        with pytest.warns(SearchlabWarning, match=field):
            read(path)
    result = searchlab("log", "check", path)
    assert result.returncode == 1 and field in result.stdout and "head -n" not in result.stdout


@pytest.mark.parametrize("edit", [{"seconds": None, "secnds": [0.5]}, {"seconds": []}])
def test_a_trial_without_result_is_damaged(tmp_path: Path, edit: dict[str, Any]) -> None:
    path = write_edited(tmp_path / "a.jsonl", 2, edit)
    with pytest.raises(SearchlabError, match="line 3"):
        read_log(path)
    with pytest.raises(SearchlabError, match="line 3"):
        read_columns(path)
    assert ("'seconds'?" in searchlab("log", "check", path).stdout) == ("secnds" in edit)


@pytest.mark.parametrize(
    ("line", "edit"),
    [
        (0, {"digests": {"policy": "0123"}}),
        (2, {"frequency": 3.1e9}),
        (2, b'{"kind":"temperature","celsius":61.5}'),
        (4, b'{"kind":"temperature","celsius":61.5}'),
    ],
)
def test_a_newer_log_is_read_but_not_extended(tmp_path: Path, line: int, edit: dict[str, Any] | bytes) -> None:
    path = write_edited(tmp_path / "a.jsonl", line, edit, NEWER)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_log(path).records) == read_columns(path).trial_count == 3
        assert read_header(path).format_version == NEWER
    before = path.read_bytes()
    with pytest.raises(SearchlabError, match=NEWER):
        LogWriter(path, HEADER)
    assert path.read_bytes() == before
    report = check_log(path)
    assert not report.problems and report.trial_count == 3 and len(report.newer_features) == 1
    result = searchlab("log", "check", path)
    assert result.returncode == 0 and "intact" in result.stdout and "newer" in result.stdout


def test_an_unknown_line_of_this_version_is_damage(tmp_path: Path) -> None:
    path = write_edited(tmp_path / "a.jsonl", 4, b'{"kind":"trail","index":3,"config":{}}')
    with pytest.raises(SearchlabError, match="line 5.*trail"):
        read_log(path)
    assert check_log(path).is_damaged


@pytest.mark.parametrize("version", ["2.0", "1", "1.x", "1.-1", "1.02", "1.\u0662", "", 2, 1.5, None, ["1.0"]])
def test_other_versions_are_refused(tmp_path: Path, version: Any) -> None:
    path = write_edited(tmp_path / "a.jsonl", 0, {"searchlab_log": version})
    for read in (read_log, read_header, read_columns):
        with pytest.raises(SearchlabError):
            read(path)
