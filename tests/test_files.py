"""Reading files from outside, and writing files."""

from __future__ import annotations

import csv
import os
import resource
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.files import (
    MAX_NAME_BYTES,
    FileMissing,
    copy_file,
    file_name,
    find_files,
    read_bytes,
    read_each,
    read_text,
    replace_file,
    write_csv,
    write_file,
)


def create_irregular_files(folder: Path) -> Iterator[Path]:
    """Create one file of each kind that is not regular."""
    folder.mkdir()
    yield folder
    os.mkfifo(folder / "pipe")
    yield folder / "pipe"
    yield Path("/dev/zero")
    (folder / "link").symlink_to("/dev/zero")
    yield folder / "link"
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(folder)  # names of sockets are short
        listener.bind("socket")
        yield folder / "socket"


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file grow beyond ``size`` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_only_regular_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in create_irregular_files(tmp_path / "files"):
        with pytest.raises(SearchlabError, match="pass a regular file"):
            read_bytes(path)


def test_only_regular_files_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in create_irregular_files(tmp_path / "files"):
        with pytest.raises(SearchlabError, match="pass a regular file"):
            write_file(path, b"data")


def test_a_missing_file_has_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match="no-such-file"):
        read_bytes(tmp_path / "no-such-file")
    with pytest.raises(SearchlabError, match="null byte"):
        read_bytes("a\0b")


def test_a_dangling_link_is_not_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "plan.json").symlink_to("nowhere")
    for under in (None, tmp_path):
        with pytest.raises(SearchlabError, match="nowhere") as caught:
            read_bytes(tmp_path / "plan.json", under=under)
        assert not isinstance(caught.value, FileMissing)


def test_large_files_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SearchlabError, match="1,048,576 MB"):
        read_bytes(tmp_path / "sparse")


def test_byte_order_marks_and_crlf_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert read_text(tmp_path / "text") == "one\ntwo\n"
    (tmp_path / "text").write_bytes("müde".encode("latin-1"))
    with pytest.raises(SearchlabError, match="UTF-8"):
        read_text(tmp_path / "text")


def test_links_that_lead_out_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    results = tmp_path / "results"
    results.mkdir()
    (results / "file").write_text("file")
    (results / "out").symlink_to("../secret")
    (results / "in").symlink_to("file")
    (results / "up").symlink_to("..")
    assert read_bytes(results / "in", under=results) == b"file"
    for name in ("out", "up/secret", "../secret"):
        with pytest.raises(SearchlabError, match="outside"):
            read_bytes(results / name, under=results)
    (tmp_path / "chosen").symlink_to(results)  # the user's own act
    assert read_bytes(tmp_path / "chosen" / "file", under=tmp_path / "chosen") == b"file"


def test_nothing_is_written_through_links(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    results = tmp_path / "results"
    results.mkdir()
    (results / "report.html").symlink_to("../precious")
    (results / "up").symlink_to("..")
    write_file(results / "report.html", "report", under=results)
    assert (tmp_path / "precious").read_text() == "precious"
    assert (results / "report.html").read_text() == "report"
    assert not (results / "report.html").is_symlink()
    with pytest.raises(SearchlabError, match="outside"):
        write_file(results / "up" / "precious", "report", under=results)
    with pytest.raises(SearchlabError, match="outside"):
        write_file(results / "up" / "new" / "deep", "report", under=results)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "results"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_file(tmp_path / "file", "old")
    with pytest.raises(ZeroDivisionError), replace_file(tmp_path / "file") as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    write_file(tmp_path / "file", "old")
    with largest_file(4096), pytest.raises(SearchlabError, match="free some space"):
        write_file(tmp_path / "file", b"x" * 5000)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_the_files_of_a_directory_are_regular(tmp_path: Path) -> None:
    results = tmp_path / "results"
    (results / "deep").mkdir(parents=True)
    (results / "deep" / "a.jsonl").write_text("")
    (tmp_path / "secret.jsonl").write_text("")
    (results / "b.jsonl").symlink_to("../secret.jsonl")
    (results / "c.jsonl").symlink_to("nowhere")
    (results / "d.jsonl").symlink_to("deep")
    os.mkfifo(results / "e.jsonl")
    with pytest.warns(SearchlabWarning) as caught:
        assert find_files(results, (".jsonl",)) == [results / "deep" / "a.jsonl"]
    assert [next(name for name in "bcde" if f"{name}.jsonl" in str(warning.message)) for warning in caught] == list(
        "bcde"
    )


def test_one_bad_file_does_not_take_the_others_along(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(10)]
    paths[0].write_text("good")
    with pytest.warns(SearchlabWarning) as caught:
        assert read_each(paths, read_text) == ["good"]
    assert len(caught) == 6  # five files, and the number of the others
    with pytest.raises(FileMissing, match=str(paths[1])):
        read_each(paths[1:], read_text)
    with pytest.raises(FileMissing, match=str(paths[9])):
        read_each(paths, read_text, required=paths[9:])
    with warnings.catch_warnings(action="error"):
        assert read_each([], read_text) == []


def test_copies_stay_within_both_directories(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "log").symlink_to("../secret")
    with pytest.raises(SearchlabError, match="outside"):
        copy_file(tmp_path / "results" / "log", tmp_path / "site" / "log", under=tmp_path / "results")
    assert not (tmp_path / "site" / "log").exists()


@given(st.text(st.characters(), max_size=300))
def test_any_text_becomes_the_name_of_a_file(text: str) -> None:
    name = file_name(text)
    assert 0 < len(name.encode()) <= MAX_NAME_BYTES + 1
    assert not name.startswith(".") and not set(name) & set("/\0\n\\:")


def test_file_names_avoid_those_of_other_files() -> None:
    assert file_name("xgb-0.5+a") == "xgb-0.5+a"
    assert file_name("gemm:8x8x8") == "gemm_8x8x8"
    assert [file_name(text) for text in ("plan.json", "a.jsonl", "report")] == ["plan.json_", "a.jsonl_", "report_"]
    assert file_name("x" * 300) != file_name("x" * 299 + "y")


def test_cells_of_csv_files_are_no_formulas(tmp_path: Path) -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\r=1", "x", "1-2", ""]
    write_csv(tmp_path / "a.csv", ["text", "number"], [(text, -1.5) for text in texts])
    with (tmp_path / "a.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["text", "number"]
    assert [row[0] for row in rows] == [f"'{text}" for text in texts[:6]] + texts[6:]
    assert {row[1] for row in rows} == {"-1.5"}
