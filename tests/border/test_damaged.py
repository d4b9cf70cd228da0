"""Damaged files are refused with one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import searchlab

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("log", ["longw", "flops400"])
@pytest.mark.parametrize("command", ["best", "report"])
def test_a_log_with_huge_values_is_refused(log: str, command: str) -> None:
    done = searchlab(command, DATA / "computation" / f"{log}.jsonl")
    assert done.returncode == 2 and f"{log}.jsonl, line 1" in done.stderr and len(done.stderr) < 1000


def test_a_study_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    done = searchlab("run", DATA / "byte-order-mark" / "study.toml", "--dry-run", "--out", tmp_path / "out")
    assert "Invalid statement" not in done.stderr and done.returncode == 0, done.stderr
