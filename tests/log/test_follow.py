"""A follower of a growing log always agrees with a reader of the log."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.log.format import Ended, Follower, Record, read_existing_log
from searchlab.log.writer import LogWriter
from searchlab.records import Measurement, Trial
from searchlab.space import Config
from tests.support.logs import HEADER, written


def whole(path: Path, count: int) -> bytes:
    """Return a log of ``count`` trials, some of which fail, that ended in the middle and at its end."""
    draw = random.Random(count)
    writer = LogWriter(path, HEADER)
    for index in range(count):
        if index == count // 2:
            writer.append(Ended(trials=index, seconds=1.0))
        failed = draw.random() < 0.2
        measured = Measurement(
            () if failed else (draw.random() + 1e-3,),
            "crash" if failed else None,
            build_seconds=draw.random(),
            run_seconds=draw.random(),
        )
        share = (index // 3) * 1e-3  # batches of three
        writer.append(Record.of(Trial(index, Config({"a": index}), measured), share, share))
    writer.append(Ended(trials=count, stop_after=5))
    writer.close()
    return path.read_bytes()


def agrees(follower: Follower, path: Path) -> None:
    log = read_existing_log(path) if path.exists() else None
    if log is None:
        assert follower.header is None and follower.trials == 0
        return
    assert follower.header == log.header and follower.trials == len(log.records) and follower.problem == ""
    assert follower.ended == log.ended
    assert follower.failed == sum(record.failure is not None for record in log.records)
    if log.records:
        assert follower.charged == pytest.approx(float(log.elapsed[-1]))
        lowest = np.minimum.accumulate(log.costs)
        costs = {index: cost for index, cost in follower.steps}
        assert costs == {
            index: cost for index, cost in enumerate(lowest.tolist()) if cost < (lowest[index - 1] if index else np.inf)
        }


@settings(max_examples=25)
@given(count=st.integers(0, 20), cuts=st.lists(st.floats(0, 1), max_size=8))
def test_it_may_grow_by_any_number_of_bytes(
    count: int, cuts: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("follow")
    data = whole(folder / "whole.jsonl", count)
    path = folder / "growing.jsonl"
    follower = Follower(path)
    follower.look()
    for cut in [*sorted(cuts), 1.0]:
        path.write_bytes(data[: round(cut * len(data))])
        follower.look()
        agrees(follower, path)


def test_only_a_log_that_has_changed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    written(path, 5)
    follower = Follower(path)
    follower.look()
    with monkeypatch.context() as patch:
        patch.setattr(Follower, "_read", lambda self: pytest.fail("the log has not changed"))
        follower.look()
    with open(path, "ab") as file:
        file.write(path.read_bytes().splitlines(keepends=True)[-1].replace(b'"index":4', b'"index":5'))
    follower.look()
    assert follower.trials == 6


def test_a_torn_end_that_a_resumed_run_cuts_off_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    data = written(path, 6)
    path.write_bytes(data[:-10])
    follower = Follower(path)
    follower.look()
    assert follower.trials == 5
    path.write_bytes(data)
    follower.look()
    agrees(follower, path)


def test_a_log_that_is_rewritten_or_removed_is_followed_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    written(path, 9)
    follower = Follower(path)
    follower.look()
    path.unlink()
    follower.look()
    assert follower.header is None and follower.trials == 0
    written(path, 4)
    follower.look()
    agrees(follower, path)


def test_damage_is_located(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = written(path, 6).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"no json\n", *lines[3:]]))
    follower = Follower(path)
    follower.look()
    assert follower.problem.startswith("line 4: it is damaged") and follower.trials == 2
    path.write_bytes(b"hello\n")
    follower.look()
    assert follower.problem.startswith("line 1: the header is damaged")
