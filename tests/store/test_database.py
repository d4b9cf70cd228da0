"""Files that are not a store, damaged, hostile, locked or read-only: one-sentence errors, and no change to the file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from searchlab import SearchlabError, Store
from searchlab.store import store as database
from tests.support.logs import HEADER
from tests.support.stores import logged


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return logged(tmp_path / "a.jsonl", [1e-3, 2e-3, None])


@pytest.fixture
def store(tmp_path: Path, log: Path) -> Store:
    made = Store(tmp_path / "store.db")
    made.add(log)
    return made


def altered(store: Store, *statements: str) -> Store:
    with sqlite3.connect(store.path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return store


def refused(store: Store, said: str, log: Path | None = None) -> None:
    """Assert that reading, and adding ``log`` if given, fails with the message ``said``."""
    before = store.path.read_bytes() if store.path.is_file() else None
    with pytest.raises(SearchlabError, match=said):
        store.results()
    if log is not None:
        with pytest.raises(SearchlabError, match=said):
            store.add(log)
    assert before == (store.path.read_bytes() if store.path.is_file() else None)


def test_a_file_that_is_no_store(tmp_path: Path, log: Path) -> None:
    (tmp_path / "diary.db").write_text("dear diary, " * 100)
    refused(Store(tmp_path / "diary.db"), "diary.db is not a searchlab store; choose another file", log)
    other = altered(Store(tmp_path / "other.db"), "CREATE TABLE songs (name)")
    refused(other, "other.db is another program's database", log)
    refused(Store(tmp_path), "cannot open the store .*: it is not a file", log)
    refused(Store(tmp_path / "a\0b"), "cannot open the store .*embedded null byte", log)
    refused(
        Store(tmp_path / "absent" / "s.db"), "the store .* does not exist; `searchlab store add` creates it from logs"
    )
    assert not (tmp_path / "absent").exists()
    refused(Store(log / "s.db"), "cannot open the store .*: Not a directory|File exists", log)


def test_a_store_of_another_version(store: Store, log: Path) -> None:
    said = "has version 2, but this version of searchlab reads version 1"
    refused(altered(store, "PRAGMA user_version = 2"), said, log)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DROP TABLE states", "it does not have the expected tables"),
        ("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM lines; END", "it does not have the expected tables"),
        ("DELETE FROM lines WHERE number = 2", "lines of a log are missing"),
        ("UPDATE lines SET line = CAST('{' AS BLOB) WHERE number = 1", "line 2: it is damaged"),
        ("UPDATE lines SET line = 7", "is damaged: Expected `bytes`"),
        ("UPDATE runs SET workload = 'sort:1'", "unknown workload 'sort:1'|differs from its index"),
        ("UPDATE runs SET machine = 'another'", "differs from its index"),
        ("UPDATE runs SET target = '[1'", "it refers to the target '\\[1'"),
        ("UPDATE runs SET seconds = -1", "is damaged: Expected `float`"),
        ("UPDATE runs SET created = 1e300", "is damaged: Expected `float`"),
        ("UPDATE runs SET fingerprint = x'ff'", "is damaged: Expected `str`"),
    ],
)
def test_a_store_that_was_altered(store: Store, statement: str, said: str) -> None:
    altered(store, statement)
    with pytest.raises(SearchlabError, match=said):
        [one.to_json() for one in store.find()]
        store.results()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_store_with_damaged_bytes(data: Any, store: Store, tmp_path: Path, log: Path) -> None:
    """The store is rejected with a one-sentence error, or the damage is where nothing is read."""
    whole = store.path.read_bytes()
    if data.draw(st.booleans(), label="cut"):
        damaged = whole[: data.draw(st.integers(1, len(whole) - 1))]
    else:
        place = data.draw(st.integers(0, len(whole) - 1))
        damaged = whole[:place] + bytes([data.draw(st.integers(0, 255))]) + whole[place + 1 :]
    other = Store(tmp_path / "damaged.db")
    for path in tmp_path.glob("damaged.db*"):
        path.unlink()
    other.path.write_bytes(damaged)
    for ask in (other.find, other.results, lambda: other.log_of("d"), lambda: other.add(log)):
        try:
            ask()
        except SearchlabError as error:
            assert str(other.path) in str(error) and "\n" not in str(error)


def test_a_store_that_is_locked(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.05)
    new = logged(tmp_path / "b.jsonl", [1e-3], created=2.0)
    writer = sqlite3.connect(store.path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert len(store.results()) == 1  # a writer does not block readers
    with pytest.raises(SearchlabError, match="another process has locked the store"):
        store.add(new)
    writer.execute("COMMIT")
    writer.close()
    assert store.add(new).runs == 1


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_store_that_is_read_only(
    what: str, store: Store, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbidden = store.path if what == "file" else store.path.parent
    mode = forbidden.stat().st_mode
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != forbidden)  # root may write anything
    forbidden.chmod(0o555)
    try:
        assert len(store.results()) == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "store.db"]
        with pytest.raises(SearchlabError, match="cannot write to the store .*: it or its directory is read-only"):
            store.add(log)
    finally:
        forbidden.chmod(mode)


def test_hostile_words_are_only_words(tmp_path: Path) -> None:
    words = "'); DROP TABLE runs; -- [red]x[/red]"
    store = Store(tmp_path / "st'ore?mode=ro.db")
    store.add(logged(tmp_path / "a 'b'.jsonl", [1e-3], host={"cpu": words}, label=words, fingerprint=words))
    (held,) = store.find(machine="drop table")
    assert held.strategy == held.key.fingerprint == words and held.key.workload == HEADER.workload
    assert len(store.results()) == 1 and store.path.is_file()
