"""Logs whose names, numbers or files are too large, and directories in which some logs cannot be read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from searchlab.cli.logs import _load_best_by_workload
from searchlab.errors import MAX_TEXT_LENGTH, SearchlabError, SearchlabWarning
from searchlab.log.columns import read_columns
from searchlab.log.lease import is_locked
from searchlab.log.read import MAX_LINES, MAX_NESTING, MAX_NUMBER, read_log
from searchlab.log.writer import check_log
from tests.support.analysis.logs import write

BORDER = Path(__file__).parents[1] / "border" / "data" / "computation"
GOLDEN = Path(__file__).parents[1] / "golden" / "data"
HUGE = 10**400
DEEP: Any = json.loads("[" * 500 + "]" * 500)
LONG = "x" * 100_000

HEADERS: dict[str, dict[str, Any]] = {
    "flops": {"computation": {"flops": HUGE}},
    "seed": {"seed": HUGE},
    "batch": {"batch": -1},
    "workers": {"workers": HUGE},
    "size": {"space_size": HUGE},
    "optimum": {"optimum": 1e300},
    "created": {"created": 1e300},
    "target": {"target": {"num-cores": HUGE}},
    "option": {"policy": {"name": "random", "options": {"a": [HUGE]}}},
    "nested": {"measure": {"a": DEEP}},
    "workload": {"workload": f"tir:{LONG}@0", "computation": {"flops": 1}},
    "label": {"label": LONG},
    "host": {"host": {LONG: "x"}},
    "unit": {"computation": {"flops": 1, "unit": LONG}},
    "random": {"random": {"expected": [1e300], "median": 0, "slowest": 0}},
}
TRIALS: dict[str, dict[str, Any]] = {
    "index": {"index": HUGE},
    "batch": {"batch": HUGE},
    "knob": {"config": {LONG: 1}},
    "value": {"config": {"a": HUGE}},
    "values": {"config": {"a": [1, HUGE]}},
    "text": {"config": {"a": LONG}},
    "message": {"message": LONG},
    "time": {"time": 1e300},
    "times": {"seconds": [1e300]},
    "quality": {"model": {"trials": HUGE, "k": 1}},
}


def change_line(path: Path, number: int, fields: dict[str, Any]) -> Path:
    """Change fields in a line of a log."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[number] |= fields
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("read", [read_log, read_columns])
@pytest.mark.parametrize(
    ("line", "fields"), [*((0, fields) for fields in HEADERS.values()), *((2, fields) for fields in TRIALS.values())]
)
def test_names_and_numbers_are_bounded(
    read: Callable[[Path], object], line: int, fields: dict[str, Any], tmp_path: Path
) -> None:
    path = change_line(write(tmp_path, "a", 0, [1, 2, 3]), line, fields)
    with pytest.raises(SearchlabError, match="damaged") as caught:
        read(path)
    assert len(str(caught.value)) < 1000 + len(str(path))
    assert check_log(path).problems[0].number == line + 1


@pytest.mark.parametrize("read", [read_log, read_columns])
@pytest.mark.parametrize("fields", [{"code": {LONG: "x"}}, {"code": {"core": LONG}}, {"versions": {"numpy": LONG}}])
def test_names_in_a_change_are_bounded(read: Callable[[Path], object], fields: dict[str, Any], tmp_path: Path) -> None:
    path = shutil.copy(GOLDEN / "changed.jsonl", tmp_path / "a.jsonl")
    number = [b'"changed"' in line for line in path.read_bytes().splitlines()].index(True)
    with pytest.raises(SearchlabError, match=f"line {number + 1}: it is damaged"):
        read(change_line(path, number, fields))


def test_what_searchlab_writes_is_within_the_bounds(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 0, [1, 2])
    text = "x" * MAX_TEXT_LENGTH
    change_line(path, 0, {"label": text, "space_size": 10**200, "seed": 2**63 - 1})
    assert len(read_log(change_line(path, 2, {"config": {text: text}, "message": text})).records) == 2


def test_byte_order_marks_and_crlf_are_accepted(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 0, [1, 2])
    log = read_log(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_log(path).records == log.records
    assert read_log(path).byte_count == path.stat().st_size
    assert read_columns(path).trial_count == 2
    assert not check_log(path).problems


def test_the_number_of_lines_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\n" * (MAX_LINES + 1))
    with pytest.raises(SearchlabError, match="10,000,001 lines"):
        read_log(tmp_path / "a.jsonl")


def test_pipes_and_devices_are_no_logs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    for name in ("pipe.jsonl", "zero.jsonl"):
        with pytest.raises(SearchlabError, match="regular file"):
            read_log(tmp_path / name)
        assert not is_locked(tmp_path / name)


def test_bad_logs_in_a_directory_are_named_and_skipped(tmp_path: Path) -> None:
    good = write(tmp_path, "a", 0, [1, 2])
    change_line(write(tmp_path, "b", 0, [1]), 0, {"label": LONG})
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "dangling.jsonl").symlink_to("nowhere")
    with pytest.warns(SearchlabWarning) as caught:
        (best,) = _load_best_by_workload(tmp_path)
    assert best.result.log.path == good
    assert len(caught) == 3 and max(len(str(warning.message)) for warning in caught) < 500


@pytest.mark.parametrize("name", ["flops400", "longw"])
def test_the_inputs_of_the_border_are_damaged(name: str, tmp_path: Path) -> None:
    shutil.copy(BORDER / f"{name}.jsonl", tmp_path)
    with pytest.raises(SearchlabError, match="line 1: the header is damaged"):
        read_log(tmp_path / f"{name}.jsonl")


def test_the_format_names_the_bounds() -> None:
    text = (Path(__file__).parents[2] / "docs" / "design" / "log-format.md").read_text()
    rows = text.partition("## Bounds")[2].partition("## ")[0]
    table = dict(line.strip("| ").split(" | ", 1) for line in rows.splitlines() if " | " in line)
    assert table["the number of lines"] == f"{MAX_LINES:,}"
    assert table["a name, and the name or value of a knob"] == f"{MAX_TEXT_LENGTH:,} characters"
    assert table["a `message`"].startswith(f"{6 * MAX_TEXT_LENGTH:,} characters")
    assert table["nesting in the header"] == f"{MAX_NESTING} levels" and f"{MAX_NUMBER:g}" == "1e+300"
    assert "1e300" in table["a number in the header"]
