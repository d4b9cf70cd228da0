"""Checking logs: all problems are named, and the lines from which a run can resume are counted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from searchlab.cli.app import app
from searchlab.log.format import Finalist, FinalistTimes, RunEnd
from searchlab.log.read import read_log
from searchlab.log.writer import LogWriter, check_log
from tests.support.cli import searchlab
from tests.support.logs import HEADER, make_record, write_trials


def lines_of(path: Path, count: int = 8) -> list[bytes]:
    return write_trials(path, count).splitlines()


def problems(path: Path, lines: list[bytes]) -> dict[int, str]:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return {line.number: line.problem for line in check_log(path).problems}


def test_an_intact_log_has_no_problems(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_trials(path, 8)
    writer = LogWriter(path, HEADER)
    writer.append(RunEnd(trial_count=8))
    writer.append(FinalistTimes(trial_count=8, finalists=(Finalist(3, (1e-3,)),)))
    writer.append(make_record(8))
    writer.close()
    report = check_log(path)
    assert not report.problems and (report.trial_count, report.intact_line_count) == (9, 12)


def test_all_problems_are_named_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = lines_of(path, 12)
    lines[3] = b"garbage"
    lines[5] = lines[5][:20]
    lines[9] = lines[8]
    lines[11] = b'{"kind":"finalists","trials":99,"finalists":[{"index":0,"seconds":[1.0]}]}'
    lines.append(b'{"kind":"ended","trials":98}')
    messages = problems(path, lines)
    assert list(messages) == [4, 6, 10, 11, 12, 14] and "98 trials" in messages[14]
    assert "damaged" in messages[4] and "damaged" in messages[6] and "99 trials" in messages[12]
    assert (
        messages[10] == "it contains trial 7 instead of trial 8"
        and messages[11] == "it contains trial 9 instead of trial 8"
    )
    path.write_bytes(b"\n".join(lines[:3]) + b"\n" + lines[4][:-3])
    assert [(line.number, "incomplete" in line.problem) for line in check_log(path).problems] == [(4, True)]


@given(st.data())
def test_a_run_can_resume_from_the_intact_lines(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("log") / "a.jsonl"
    lines = lines_of(path, 6)
    original = [*lines]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(1, len(lines) - 1))
        match data.draw(st.sampled_from(["drop", "garbage", "twice"])):
            case "drop" if len(lines) > 2:
                del lines[at]
            case "garbage":
                lines[at] = data.draw(st.binary(max_size=9)).replace(b"\n", b"").replace(b"\r", b"")
            case _:
                lines.insert(at, lines[at])
    path.write_bytes(b"\n".join(lines) + b"\n")
    report = check_log(path)
    intact = lines[: report.intact_line_count]
    path.write_bytes(b"\n".join(intact) + b"\n")
    assert intact == original[: len(intact)] and len(read_log(path).records) == report.trial_count == len(intact) - 1
    assert bool(report.problems) == (len(intact) < len(lines))
    writer = LogWriter(path, HEADER)
    writer.append(make_record(report.trial_count))
    writer.close()
    assert len(read_log(path).records) == report.trial_count + 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the log is empty"),
        (b"dear diary\n", "damaged"),
        (b'{"searchlab_log":99}\n', "log format is 99"),
        (b'{"searchlab_log":"1.0"}\n', "the header is damaged"),
        (b'{"index":0,"config":{}}\n', "not a searchlab log, or its first line is missing"),
    ],
)
def test_without_a_header_no_line_is_intact(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    report = check_log(path)
    assert message in report.problems[0].problem and (report.trial_count, report.intact_line_count) == (0, 0)


def test_log_check_reports_problems_on_the_command_line(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    write_trials(good, 2)
    lines = lines_of(bad, 3)
    lines[2] = b"{"
    bad.write_bytes(b"\n".join(lines) + b"\n")

    def invoke(*words: object) -> tuple[int, str]:
        result = CliRunner().invoke(app, [str(word) for word in words])
        return result.exit_code, " ".join(result.output.split())

    assert invoke("log", "check", good) == (0, f"{good} is intact: 2 trials")
    code, text = invoke("log", "check", tmp_path)
    assert code == 1 and f"{bad}, line 3: it is damaged" in text and f"head -n 2 {bad} > " in text and str(good) in text
    code, text = invoke("log", "check", bad, "--json")
    assert code == 1 and json.loads(text)[0]["problems"][0]["line"] == 3


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    write_trials(tmp_path / "a.jsonl", 2)
    assert searchlab("log", "check", tmp_path).returncode == 0
    (tmp_path / "b.jsonl").symlink_to("nowhere")
    os.mkfifo(tmp_path / "c.jsonl")
    result = searchlab("log", "check", tmp_path)
    assert result.returncode == 1 and "a.jsonl is intact" in result.stdout
    assert "b.jsonl: No such file" in result.stderr and "c.jsonl: it is a named pipe" in result.stderr
