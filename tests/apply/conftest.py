"""A real log that several tests use."""

from __future__ import annotations

from pathlib import Path

import pytest

from searchlab import tune
from tests.support.apply.logs import MEASURE


@pytest.fixture(autouse=True)
def trusted(trusting: None) -> None:
    """The logs of these tests name spaces that the tests define."""


@pytest.fixture(scope="session")
def real_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("real") / "a.jsonl"
    tune("gemm:64x48x32:bias", space="knob-template", policy="random", log=path, trials=4, batch=4, measure=MEASURE)
    return path
