"""Packed tables: they keep the measurements, and damage is detected."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.errors import SearchlabError
from searchlab.log.format import Log, Record, find_logs, read_header, read_log
from searchlab.log.packed import PRECISION, Packed, unpack
from searchlab.log.writer import LogWriter, pack
from searchlab.records import FAILURES
from tests.support.logs import HEADER

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=9)
configs = st.dictionaries(texts, st.one_of(st.booleans(), st.integers(-99, 99), texts), max_size=3)
spent = st.floats(0, 1e6)


@st.composite
def records(draw: st.DrawFn) -> Record:
    failure = draw(st.sampled_from([None, *FAILURES]))
    return Record(
        index=0,
        config=draw(configs),
        seconds=tuple(draw(st.lists(st.floats(1e-9, 1e6), min_size=1, max_size=4))) if failure is None else (),
        failure=failure,
        message=draw(texts) if failure else "",
        build_seconds=draw(spent),
        run_seconds=draw(spent),
        statistic="mean",
    )


def packed(folder: Path, rows: list[Record]) -> Path:
    log = folder / "table.jsonl"
    writer = LogWriter(log, HEADER, durable=False)
    for index, row in enumerate(rows):
        writer.append(msgspec.structs.replace(row, index=index, batch=index))
    writer.close()
    pack(log, folder / "table.packed")
    assert not log.exists()
    return folder / "table.packed"


def unpacked(path: Path) -> Packed:
    return unpack(path, path.read_bytes())


@settings(max_examples=30)
@given(st.lists(records(), min_size=1, max_size=8))
def test_a_packed_table_is_read_as_its_log(rows: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = packed(Path(folder), rows)
        log: Log = read_log(path)
        assert read_header(path) == log.header == HEADER
        assert find_logs(Path(folder)) == [path]
        columns = unpacked(path)
    assert [row.config for row in log.records] == [row.config for row in rows]
    assert [(row.failure, row.message, row.statistic) for row in log.records] == [
        (row.failure, row.message, row.statistic) for row in rows
    ]
    for now, row, text in zip(log.records, rows, columns.configs, strict=True):
        assert np.allclose(now.seconds, row.seconds, rtol=PRECISION, atol=0) and len(now.seconds) == len(row.seconds)
        assert np.isclose(now.build_seconds, row.build_seconds, rtol=1e-6, atol=1e-30)
        assert text == msgspec.json.encode(row.config)


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path, [Record(index=0, config={"a": 1}, seconds=(1e-3,)) for _ in range(50)])
    data = path.read_bytes()
    for broken in (b"", data[:20], data[:-30], data[:-30] + bytes(30), b"x" + data, data.replace(b"\n", b" ")):
        path.write_bytes(broken)
        with pytest.raises(SearchlabError, match=r"table\.packed"):
            read_log(path)


def test_mixed_statistics_are_refused(tmp_path: Path) -> None:
    rows = [Record(index=0, config={}, seconds=(1.0,), statistic=one) for one in ("mean", "median")]
    with pytest.raises(SearchlabError, match="2 different statistics"):
        packed(tmp_path, rows)
