"""``border.py`` with a few of its situations."""

from __future__ import annotations

import sys

import pytest

from tests.support.benchmarks import script

border = script("border")


def test_the_table_of_the_border_shows_what_happened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["a T4 file names code", "a pipe is given as a log"]
    monkeypatch.setattr(sys, "argv", ["border.py", "--situation", *names])
    with pytest.raises(SystemExit) as exit_info:
        border.main()
    output = capsys.readouterr().out
    assert exit_info.value.code == 0, output
    assert "evil.py" in output and "named pipe" in output
