"""The cache of many logs holds what the logs hold."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from searchlab.analysis import report
from searchlab.errors import SearchlabWarning
from searchlab.log import cache
from searchlab.log.cache import CACHE_FILE_NAME, read_logs
from searchlab.log.columns import LogColumns, read_columns
from searchlab.log.read import find_logs
from tests.log.test_columns import are_equal
from tests.support.analysis.logs import write


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects the names of the logs that are read from their files."""
    names: list[str] = []

    def reading(path: Path) -> LogColumns:
        names.append(path.name)
        return read_columns(path)

    monkeypatch.setattr(cache, "MIN_CACHED_LOGS", 2)
    monkeypatch.setattr(cache, "read_columns", reading)
    return names


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    for strategy in ("random", "b"):
        for seed in range(4):
            values: list[float | str] = [1.0, "crash", 2.0 + seed, 3.0][: 4 - (seed == 3)]
            write(directory / strategy, strategy, seed, values, shared=["x", "y"], ended=seed == 3)
    write(directory, "none", 0, [])
    return directory


def check(directory: Path, read: list[str]) -> list[str]:
    """Check all logs, and return the names of those that were read from their files."""
    paths = find_logs(directory)
    read.clear()
    all_columns = read_logs(directory, paths)
    assert all(are_equal(log_columns, read_columns(path)) for log_columns, path in zip(all_columns, paths, strict=True))
    return list(read)


def test_only_changed_logs_are_read_again(logs: Path, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    everything = [path.name for path in find_logs(logs)]
    assert check(logs, read) == everything and check(logs, read) == []
    changed, deleted, touched = find_logs(logs / "b")[:3]
    before = changed.stat()
    changed.write_text(changed.read_text().replace("0.001", "0.002", 1))
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))  # as old, and as long, as before
    deleted.unlink()
    touched.touch()
    new = write(logs, "new", 0, [1.0])
    monkeypatch.setattr(cache, "MAX_MISSING_FRACTION", 0.9)
    assert check(logs, read) == [changed.name, touched.name, new.name]
    monkeypatch.setattr(cache, "MAX_MISSING_FRACTION", 0.1)
    assert check(logs, read) == [changed.name, touched.name, new.name]  # so few: the cache was not rewritten
    assert check(logs, read) == []


def test_a_copy_of_a_cache_does_not_count(logs: Path, tmp_path: Path, read: list[str]) -> None:
    check(logs, read)
    shutil.copytree(logs, tmp_path / "copy", copy_function=shutil.copy2)
    assert len(check(tmp_path / "copy", read)) == 9


def test_the_cache_of_somebody_else_does_not_count(
    logs: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(logs, read)
    monkeypatch.setattr(cache.os, "geteuid", lambda: os.getuid() + 1)
    assert len(check(logs, read)) == 9


@pytest.mark.parametrize("how", ["cut off", "empty", "flipped", "other", "directory"])
def test_a_damaged_cache_is_rebuilt(logs: Path, read: list[str], how: str) -> None:
    check(logs, read)
    path = logs / CACHE_FILE_NAME
    data = bytearray(path.read_bytes())
    if how == "flipped":
        for position in range(len(data) // 3, len(data) // 2, 16):  # one byte may be one of no consequence
            data[position] ^= 0x40
    path.write_bytes({"cut off": data[:-100], "empty": b"", "other": b"PAR1" * 20}.get(how, data))
    if how == "directory":
        path.unlink()
        (path / "full").mkdir(parents=True)
    with pytest.warns(SearchlabWarning, match="log-cache.npz is damaged and will be rebuilt"):
        assert len(check(logs, read)) == 9
    if how != "directory":
        assert check(logs, read) == []
    assert sorted(file.name for file in logs.iterdir()) == sorted(
        ["b", "random", CACHE_FILE_NAME, "gemm-100x100x50-knob-none-0.jsonl"]
    )


def test_a_cache_of_another_version_is_rebuilt(logs: Path, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    check(logs, read)
    monkeypatch.setattr(cache, "_INDEX_KEY", "index-next")
    assert len(check(logs, read)) == 9 and check(logs, read) == []


def test_few_logs_have_none(logs: Path, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MIN_CACHED_LOGS", 10)
    assert len(check(logs, read)) == 9 and not (logs / CACHE_FILE_NAME).exists()


def test_a_report_is_the_same_with_a_cache_and_without(logs: Path, tmp_path: Path, read: list[str]) -> None:
    reports = []
    for number in (9, 0):
        read.clear()
        report(logs, out=tmp_path / "report")
        assert len(read) == number
        reports.append({path.name: path.read_bytes() for path in (tmp_path / "report").iterdir()})
    assert reports[0] == reports[1] and {"report.html", "runs.csv.gz", "summary.json"} <= reports[0].keys()
