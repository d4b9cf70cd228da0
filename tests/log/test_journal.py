"""A journal is continued from its last complete line, wherever its writer was killed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.errors import SearchlabError
from searchlab.log.journal import Journal, read_journal
from searchlab.log.lease import LogBusy


class Title(msgspec.Struct, frozen=True):
    title: str


class Number(msgspec.Struct, frozen=True):
    number: int


NUMBERS = [Number(number) for number in (1, 20, 300)]


def write(path: Path, numbers: list[Number]) -> None:
    with closing(Journal(path, Number, Title("numbers"))) as journal:
        for number in numbers:
            journal.append(number)


@given(st.data())
def test_a_journal_cut_anywhere_can_be_continued(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "journal")
        write(path, NUMBERS)
        content = path.read_bytes()
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        entries = read_journal(path, Number, Title)[1]
        assert entries == NUMBERS[: len(entries)]
        write(path, NUMBERS[len(entries) :])
        assert path.read_bytes() == content


def test_the_last_entry_can_be_replaced_by_a_shorter_one(tmp_path: Path) -> None:
    write(path := tmp_path / "journal", NUMBERS)
    with closing(Journal(path, Number, Title("other"))) as journal:
        assert journal.header == Title("numbers") and journal.entries == NUMBERS
        journal.replace_last(Number(4))
    assert read_journal(path, Number, Title)[:2] == (Title("numbers"), [*NUMBERS[:2], Number(4)])


def test_a_journal_has_one_writer(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "journal", Number)), pytest.raises(LogBusy):
        Journal(tmp_path / "journal", Number)


@pytest.mark.parametrize("content", [b"\n", b"{}\n", b'{"number": "1"}\n', b"\xff\n", b"[" * 100_000 + b"\n"])
def test_a_damaged_line_is_named(tmp_path: Path, content: bytes) -> None:
    (path := tmp_path / "journal").write_bytes(b'{"number": 1}\n' + content)
    with pytest.raises(SearchlabError, match="line 2 is damaged"):
        read_journal(path, Number)


def test_a_journal_in_a_directory_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match="cannot write .*No such file"):
        Journal(tmp_path / "missing" / "journal", Number)
