"""A log has one writer even without locks, as for two hosts with a shared directory whose locks are local."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.log import lease
from searchlab.log.lease import LogBusy, LogTakenOver, is_locked
from searchlab.log.read import read_log
from searchlab.log.writer import LogWriter, check_log, move_aside
from tests.support.logs import HEADER, make_record, write_trials


@pytest.fixture(scope="module", autouse=True)
def no_locks() -> object:
    """A file system without locks, so that writers do not see each other, as on two hosts."""
    patch = pytest.MonkeyPatch()
    patch.setattr(lease, "_lock_if_supported", lambda file: None)
    yield
    patch.undo()


def test_a_writer_thought_lost_stops_when_another_continues(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    first = LogWriter(path, HEADER)
    first.append(make_record(0))
    second = LogWriter(path, HEADER)
    second.append(make_record(1, 2e-3))
    with pytest.raises(LogTakenOver, match="another process has taken over the log .*a.jsonl"):
        first.append(make_record(1, 5e-3))
    second.append(make_record(2))
    second.close()
    assert [record.seconds[0] for record in read_log(path).records] == [1e-3, 2e-3, 1e-3]
    assert not check_log(path).problems and list(tmp_path.iterdir()) == [path]


def test_a_log_that_grows_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    first = LogWriter(path, HEADER)
    second = LogWriter(path, HEADER)
    first.append(make_record(0))
    with pytest.raises(LogBusy, match="another process is writing"):
        second.append(make_record(0))
    first.append(make_record(1))
    first.close()
    assert len(read_log(path).records) == 2


def test_a_writer_whose_log_was_taken_over_does_not_remove_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with pytest.raises(KeyError), LogWriter(path, HEADER), LogWriter(path, HEADER) as second_writer:
        second_writer.append(make_record(0))
        raise KeyError
    assert len(read_log(path).records) == 1


def test_no_log_is_locked_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_lock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    path = tmp_path / "a.jsonl"
    write_trials(path, 1)
    monkeypatch.setattr(fcntl, "flock", refuse_lock)
    assert not is_locked(path)
    assert move_aside(path).name == "a.jsonl.discarded-1"


@settings(max_examples=60)
@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["open", "append", "append", "close"])), max_size=30)
)
def test_a_log_only_grows_whoever_writes_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    path = tmp_path_factory.mktemp("log") / "a.jsonl"
    before = write_trials(path, 0)
    writers: dict[int, LogWriter] = {}
    for number, (who, what) in enumerate(steps):
        if what == "open" and who not in writers:
            writers[who] = LogWriter(path, HEADER)
        elif who in writers and what == "append":
            try:
                writers[who].append(make_record(len(writers[who].log.records), 1e-3 * (number + 1)))
            except (LogBusy, LogTakenOver):
                writers.pop(who)._file.close()
        elif who in writers and what == "close":
            writers.pop(who).close()
        now = path.read_bytes()
        assert now.startswith(before) and not check_log(path).problems
        before = now
