"""Logs that are cut while they are written, that are large, or that have names under which they are not found."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.lease import LeasedFile, LogBusy
from searchlab.log.read import read_log
from searchlab.log.writer import LogWriter, write_log
from tests.support.analysis.logs import write


def write_unfinished(path: Path, trials: int = 4) -> Path:
    """Write a log that can be continued, and return its path."""
    write(path.parent, "a", 0, list(range(1, trials + 1))).rename(path)
    return path


@pytest.mark.parametrize("resumed", [True, False])
def test_a_log_is_restored_if_it_is_cut_while_it_grows(resumed: bool, tmp_path: Path) -> None:
    original = read_log(write_unfinished(tmp_path / "whole.jsonl"))
    path = tmp_path / "a.jsonl"
    if resumed:
        write_log(path, replace(original, records=original.records[:2]))
    with (
        pytest.warns(SearchlabWarning, match=r"a\.jsonl was cut to 0 bytes .*; all 3 trials are written again"),
        LogWriter(path, original.header) as log,
    ):
        for record in original.records[2 * resumed : 2]:
            log.append(record)
        log.append(original.records[2])
        os.truncate(path, 0)
        log.sync()
        log.append(original.records[3])
    assert read_log(path).records == original.records
    assert len(list(tmp_path.iterdir())) == 2


def test_a_log_is_restored_before_a_trial_is_written(tmp_path: Path) -> None:
    original = read_log(write_unfinished(tmp_path / "whole.jsonl"))
    path = tmp_path / "a.jsonl"
    with pytest.warns(SearchlabWarning, match="all 4 trials"), LogWriter(path, original.header) as log:
        for record in original.records[:3]:
            log.append(record)
        os.truncate(path, 100)
        log.append(original.records[3])
    assert read_log(path).records == original.records


def test_a_log_that_is_taken_over_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(bytes(range(256)) * 100)
    path.chmod(0o664)
    (tmp_path / "link.jsonl").symlink_to(path)
    file = LeasedFile(tmp_path / "link.jsonl")
    file.take_over(25_555)
    file.write(b"end", 25_555)
    with pytest.raises(LogBusy):
        LeasedFile(path)
    file.close()
    LeasedFile(path).close()
    assert path.read_bytes() == (bytes(range(256)) * 100)[:25_555] + b"end"
    assert path.stat().st_mode & 0o777 == 0o664 and (tmp_path / "link.jsonl").is_symlink()


@pytest.mark.parametrize("name", ["x.log", "x.parquet", "x.jsonl.gz", "x.json", "x", "x.JSONL", ".jsonl"])
def test_names_under_which_no_log_is_found_are_refused(name: str, tmp_path: Path) -> None:
    header = read_log(write_unfinished(tmp_path / "whole.jsonl")).header
    with pytest.raises(SearchlabError, match=r"ends in \.jsonl"):
        LogWriter(tmp_path / name, header)
    assert not (tmp_path / name).exists()


def test_no_log_is_written_to_a_pipe(tmp_path: Path) -> None:
    header = read_log(write_unfinished(tmp_path / "whole.jsonl")).header
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(SearchlabError, match="named pipe"):
        LogWriter(tmp_path / "a.jsonl", header)


def test_a_header_that_could_not_be_read_again_is_refused(tmp_path: Path) -> None:
    original = read_log(write_unfinished(tmp_path / "whole.jsonl"))
    header = type(original.header)(
        **{name: getattr(original.header, name) for name in original.header.__struct_fields__}
        | {"label": "x" * 100_000}
    )
    with pytest.raises(SearchlabError, match="100,000 characters"):
        LogWriter(tmp_path / "a.jsonl", header)


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_a_complete_log_is_written_at_once(ending: str, tmp_path: Path) -> None:
    original = read_log(write_unfinished(tmp_path / "whole.jsonl"))
    write_log(tmp_path / f"a{ending}", original)
    assert read_log(tmp_path / f"a{ending}").records == original.records
    assert {path.name for path in tmp_path.iterdir()} == {"whole.jsonl", f"a{ending}"}
