"""Damaged files are refused with one sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.cli import searchlab

DATA = Path(__file__).parent / "data"


SOUND = Path(__file__).parents[1] / "golden" / "data" / "model.jsonl"

UNREADABLE = {"flops400": "line 1", "longw": "line 1"}
"""Logs whose header is refused, by what the error mentions."""

UNUSABLE = {
    "cycle": "damaged",
    "selfref": "damaged",
    "rand0": "damaged",
    "root_s_tir.Schedule": "damaged",
    "digest": "damaged",
    "dup": "--trust",
}
"""Logs whose trials are readable, but whose program is refused, by what the error mentions."""


def run_command(folder: Path, *words: object, code: int, mentions: str = "") -> None:
    result = searchlab(*words, cwd=folder)
    output = result.stdout + result.stderr
    assert result.returncode == code, output
    assert "Traceback" not in output and mentions in output
    if code:
        assert len(output.splitlines()) == 1 and len(output) < 1000


@pytest.mark.parametrize(("name", "mentions"), (UNREADABLE | UNUSABLE).items())
def test_a_damaged_log_is_answered_with_one_sentence(tmp_path: Path, name: str, mentions: str) -> None:
    log = shutil.copy(DATA / "computation" / f"{name}.jsonl", tmp_path)
    readable = name in UNUSABLE
    for words in (["best", log, "--show", "tir"], ["export", log, "--to", "library", "--out", "a.so"]):
        run_command(tmp_path, *words, code=2, mentions=mentions)
    assert not (tmp_path / "a.so").exists()
    run_command(tmp_path, "log", "check", log, code=0 if readable else 1, mentions="intact" if readable else mentions)
    for command in ("best", "report"):
        run_command(tmp_path, command, log, code=0 if readable else 2, mentions="" if readable else mentions)


def test_damaged_logs_do_not_hide_a_sound_one(tmp_path: Path) -> None:
    shutil.copy(SOUND, tmp_path)
    assert {log.stem for log in (DATA / "computation").iterdir()} == {*UNREADABLE, *UNUSABLE}
    for log in (DATA / "computation").iterdir():  # most of them are logs of the same run, of which only one counts
        shutil.copy(log, tmp_path)
    for command in ("best", "report"):
        result = searchlab(command, tmp_path, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert all(f"{name}.jsonl" in result.stderr for name in UNREADABLE)
        assert len(result.stderr) < 4000 and "Traceback" not in result.stderr
    assert "gemm:64x64x64" in (tmp_path / "report" / "report.html").read_text()


def test_a_study_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    result = searchlab("run", DATA / "byte-order-mark" / "study.toml", "--dry-run", "--out", tmp_path / "out")
    assert "Invalid statement" not in result.stderr and result.returncode == 0, result.stderr
