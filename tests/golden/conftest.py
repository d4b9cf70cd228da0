"""Golden paths, as those of tables and of earlier runs, start from the directory of the data."""

from __future__ import annotations

import pytest

from .today import DATA


@pytest.fixture(autouse=True)
def in_data(monkeypatch: pytest.MonkeyPatch, trusting: None) -> None:
    monkeypatch.chdir(DATA)
