"""A measurer for programs that are right however long they take to build: one of them takes 14 s on a slow machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.target import Target

SETTINGS = LocalSettings(repeat=2, min_repeat_ms=0, build_timeout=90, run_timeout=2)


@pytest.fixture(scope="session")
def measurer(native: Target) -> Iterator[LocalMeasurer]:
    with LocalMeasurer(SETTINGS, native, {}, 2) as measurer:
        yield measurer
