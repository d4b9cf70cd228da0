"""The seconds that a trial is charged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.log.columns import LogColumns
from searchlab.log.format import Log, Record
from tests.support.logs import HEADER


def run(sizes: list[int], batch: int, workers: int) -> Log:
    """Return a run with batches of these sizes. A program takes 8 s to build, and 1 s to run."""
    numbers = [number for number, size in enumerate(sizes) for _ in range(size)]
    records = tuple(
        Record(index=index, batch_number=number, config={}, build_seconds=8.0, run_seconds=1.0)
        for index, number in enumerate(numbers)
    )
    return Log(Path("a"), msgspec.structs.replace(HEADER, batch=batch, workers=workers), records)


@pytest.mark.parametrize(
    ("workers", "builders"), [(1, [1] * 4), (2, [2, 2, 2, 1]), (16, [4, 4, 3, 1]), ((1 << 53) - 1, [4, 4, 3, 1])]
)
def test_no_more_workers_build_than_a_batch_has_programs(workers: int, builders: list[int]) -> None:
    sizes = [4, 4, 3, 1]
    log = run(sizes, batch=4, workers=workers)
    assert log.batch_starts == [0, *np.cumsum(sizes)[:-1]]
    build = np.concatenate([np.full(size, 8.0 / shared) for size, shared in zip(sizes, builders, strict=True)])
    np.testing.assert_allclose(log.charged_seconds[:, 2], build)
    np.testing.assert_allclose(log.elapsed_seconds, np.cumsum(log.charged_seconds[:, 0] + build + 1))


def test_unnumbered_batches_have_the_requested_size() -> None:
    records = tuple(Record(index=index, config={}) for index in range(10))
    assert Log(Path("a"), msgspec.structs.replace(HEADER, batch=4), records).batch_starts == [0, 4, 8]


def batch_starts(batches: list[int | None], size: int) -> list[int]:
    """Return where batches begin, according to the specification of the format."""
    size = size if 0 < size < len(batches) else len(batches)
    numbers = [index // size if batch is None else batch for index, batch in enumerate(batches)]
    return [index for index, number in enumerate(numbers) if index == 0 or number != numbers[index - 1]]


numbered = st.lists(st.integers(0, 1), max_size=12).map(lambda steps: np.cumsum(steps).tolist())
numbers = st.integers(0, 4) | st.just((1 << 53) - 2)


@settings(max_examples=50)
@given(numbered, st.booleans(), numbers)
def test_batches_begin_where_the_specification_says(batches: list[int], unnumbered: bool, number: int) -> None:
    recorded = [None if unnumbered else batch for batch in batches]
    records = tuple(
        Record(index=index, batch_number=batch, config={}, propose_seconds=index % 2, build_seconds=index)
        for index, batch in enumerate(recorded)
    )
    log = Log(Path("a"), msgspec.structs.replace(HEADER, batch=number, workers=number + 1), records)
    columns = LogColumns.from_log(log)
    assert log.batch_starts == columns.batch_starts == batch_starts(recorded, number)
    assert columns.charged_seconds.tolist() == log.charged_seconds.tolist()
    assert columns.elapsed_seconds.tolist() == log.elapsed_seconds.tolist()


def test_an_empty_run_is_charged_nothing() -> None:
    log = run([], batch=4, workers=2)
    assert log.charged_seconds.shape == (0, 4) and log.elapsed_seconds.tolist() == []
