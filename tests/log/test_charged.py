"""The seconds that a trial is charged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.log.columns import Columns, charge
from searchlab.log.format import Log, Record, batches
from tests.support.logs import HEADER


def run(sizes: list[int], batch: int, workers: int) -> Log:
    """A run whose policy gave batches of these sizes. A program takes 8 s to build, and 1 s to run."""
    shares = [1 + number / 100 for number, size in enumerate(sizes) for _ in range(size)]
    records = tuple(
        Record(index=index, config={}, build_seconds=8.0, run_seconds=1.0, propose_seconds=share)
        for index, share in enumerate(shares)
    )
    return Log(Path("a"), msgspec.structs.replace(HEADER, batch=batch, workers=workers), records)


@pytest.mark.parametrize(
    ("workers", "builders"), [(1, [1] * 4), (2, [2, 2, 2, 1]), (16, [4, 4, 3, 1]), (2**63, [4, 4, 3, 1])]
)
def test_building_is_shared_by_no_more_workers_than_a_batch_has_programs(workers: int, builders: list[int]) -> None:
    sizes = [4, 4, 3, 1]
    log = run(sizes, batch=4, workers=workers)
    assert [len(batch) for batch in batches(log.records, 4)] == sizes
    build = np.concatenate([np.full(size, 8.0 / shared) for size, shared in zip(sizes, builders, strict=True)])
    np.testing.assert_allclose(log.charged[:, 2], build)
    np.testing.assert_allclose(log.elapsed, np.cumsum(log.charged[:, 0] + build + 1))


def test_without_shares_batches_are_as_large_as_the_policy_was_asked_for() -> None:
    records = [Record(index=index, config={}) for index in range(10)]
    assert [len(batch) for batch in batches(records, 4)] == [4, 4, 2]
    assert batches([], 4) == []


def one_by_one(shares: list[tuple[float, float]], size: int) -> list[int]:
    """Where batches begin, as the docstring of batch_starts says it."""
    starts: list[int] = []
    for index, share in enumerate(shares):
        if not starts or index - starts[-1] == size or share != shares[index - 1]:
            starts.append(index)
    return starts


shares_of_runs = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)))
numbers = st.integers(0, 4) | st.just(2**70)  # a log may say any


@settings(max_examples=50)
@given(st.lists(st.tuples(shares_of_runs, numbers), min_size=1))
def test_runs_are_charged_together_as_one_by_one(runs: list[tuple[list[tuple[int, int]], int]]) -> None:
    logs = []
    for shares, number in runs:
        records = tuple(
            Record(index=index, config={}, propose_seconds=one, train_seconds=other, build_seconds=index)
            for index, (one, other) in enumerate(shares)
        )
        header = msgspec.structs.replace(HEADER, batch=number, workers=number + 1)
        logs.append(Log(Path("a"), header, records))
        assert logs[-1].starts == one_by_one([(float(one), float(other)) for one, other in shares], number)
    together = [Columns.of(log, {}) for log in logs]
    charge(together)
    for log, columns in zip(logs, together, strict=True):
        assert columns.charged.tolist() == log.charged.tolist()
        assert columns.elapsed.tolist() == log.elapsed.tolist()


def test_an_empty_run_is_charged_nothing() -> None:
    log = run([], batch=4, workers=2)
    assert log.charged.shape == (0, 4) and log.elapsed.tolist() == []
