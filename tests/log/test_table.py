"""Tables at rest: they contain what their logs contain, open anywhere, and are refused if they are damaged."""

from __future__ import annotations

import json
import math
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from searchlab.costmodel.quality import ModelQuality
from searchlab.errors import SearchlabError
from searchlab.log.columns import LogColumns, read_columns
from searchlab.log.format import CodeChange, Finalist, FinalistTimes, Log, Record, RunEnd
from searchlab.log.read import find_logs, read_header, read_log
from searchlab.log.writer import check_log, compress_log, write_log
from searchlab.parquet import KEY
from searchlab.records import FAILURES
from tests.log.test_columns import are_equal
from tests.support.cli import searchlab
from tests.support.logs import HEADER, write_trials

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=9)
integers = st.integers(-(1 << 63), (1 << 63) - 1)
scalars = st.none() | st.booleans() | integers | st.floats(-1e9, 1e9) | texts
configs = st.dictionaries(texts, scalars | st.lists(scalars, max_size=3), max_size=3)
seconds, spent = st.floats(1e-9, 1e6), st.floats(0, 1e6)


@st.composite
def records(draw: st.DrawFn) -> tuple[Record, ...]:
    return tuple(
        Record(
            index=index,
            batch_number=index // 2,
            config=draw(configs),
            seconds=() if failure else tuple(draw(st.lists(seconds, min_size=1, max_size=4))),
            measured_at=tuple(draw(st.lists(spent, max_size=2))),
            failure=failure,
            message=draw(texts) if failure else "",
            build_seconds=draw(spent),
            program=draw(texts),
            pruned=draw(st.booleans()),
            statistic=draw(st.sampled_from(["mean", "median"])),
            sentinel_seconds=draw(st.none() | seconds),
            model_quality=draw(st.none() | st.builds(ModelQuality, trial_count=st.just(4), k=st.just(1), rmse=seconds)),
        )
        for index in range(draw(st.integers(0, 8)))
        for failure in [draw(st.sampled_from([None, *FAILURES]))]
    )


@settings(max_examples=50)
@given(records())
def test_a_table_contains_what_its_log_contains(rows: tuple[Record, ...]) -> None:
    notes: dict[str, Any] = {}
    if rows:
        final = FinalistTimes(trial_count=len(rows), finalists=(Finalist(0, (1.0,)),))
        notes = {
            "finalist_times": final,
            "run_end": RunEnd(trial_count=len(rows)),
            "changes": (CodeChange(trial_count=1, code_digests={"space": "x"}),),
        }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        log = Log(path, HEADER, rows, **notes)
        write_log(path, log)
        assert read_log(path) == log
        assert read_header(path) == HEADER
        assert find_logs(Path(folder)) == [path]
        assert are_equal(read_columns(path), LogColumns.from_log(log))
        assert check_log(path).trial_count == len(rows)


def test_a_compressed_log_leaves_no_other_file(tmp_path: Path) -> None:
    write_trials(tmp_path / "a.jsonl", 5)
    before = read_log(tmp_path / "a.jsonl")
    compress_log(before.path, tmp_path / "a.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    assert read_log(tmp_path / "a.parquet").records == before.records
    assert searchlab("log", "check", tmp_path / "a.parquet").returncode == 0


def test_pandas_reads_a_table(tmp_path: Path) -> None:
    rows = (
        Record(index=0, config={"unroll": 4, "tile": [1, 2]}, seconds=(1.0, 2.0, 9.0)),
        Record(index=1, config={"unroll": 8, "vector": True, "tile": [2, 1]}, failure="crash", message="x"),
    )
    write_log(tmp_path / "a.parquet", Log(tmp_path, HEADER, rows))
    frame = pandas.read_parquet(tmp_path / "a.parquet")
    assert frame["config.unroll"].tolist() == [4, 8] and frame["config.tile"].tolist() == ["[1,2]", "[2,1]"]
    assert frame["config.vector"].isna().tolist() == [True, False]
    assert frame["cost"].tolist() == [2.0, math.inf] and frame["failure"].tolist()[1] == "crash"
    assert frame["seconds"][0].tolist() == [1.0, 2.0, 9.0] and "sentinel" not in frame
    about = parquet.read_metadata(tmp_path / "a.parquet").metadata[KEY.encode()]
    assert json.loads(about)["workload"] == HEADER.workload


def table(path: Path, count: int = 50) -> pa.Table:
    """Write a table, and return its content."""
    rows = tuple(
        Record(
            index=index, batch_number=index, config={"a": index, "b": [index]}, seconds=(1e-3 + index, 1.0), program="x"
        )
        for index in range(count)
    )
    write_log(path, Log(path, HEADER, rows))
    return parquet.read_table(path)


def replace_column(column: str, values: Any) -> Callable[[pa.Table], pa.Table]:
    return lambda content: content.drop([column]).append_column(column, pa.array(values))


def change_metadata(**changes: str | None) -> Callable[[pa.Table], pa.Table]:
    """Change or remove the header or a key of the metadata."""

    def change(content: pa.Table) -> pa.Table:
        metadata = {key.decode(): value for key, value in content.schema.metadata.items()} | changes
        return content.replace_schema_metadata({key: value for key, value in metadata.items() if value is not None})

    return change


WRONG: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "no metadata": (lambda content: content.replace_schema_metadata(), "no key 'searchlab'"),
    "header": (change_metadata(searchlab="{"), "the header is damaged"),
    "other header": (change_metadata(searchlab="[]"), "not a header"),
    "lines": (change_metadata(**{"searchlab.lines": '[{"kind":"ended","trials":51}]'}), "51 trials"),
    "JSON": (change_metadata(**{"searchlab.json": '["a"]', "searchlab.lines": "]"}), "damaged"),
    "type": (replace_column("seconds", ["1"] * 50), "'seconds' is string instead of"),
    "flat": (replace_column("seconds", [1.0] * 50), "'seconds' is double instead of"),
    "knob": (replace_column("config.a", [b"x"] * 50), "'config.a' is binary"),
    "text": (replace_column("config.b", ["[1"] * 50), "damaged"),
    "nested": (replace_column("config.b", ["[[1]]"] * 50), "Expected"),
    "deep": (replace_column("config.b", ["[" * 9000] * 50), "damaged"),
    "number": (replace_column("config.a", [math.nan] * 50), "not finite"),
    "long": (replace_column("config.a", ["x" * 5000] * 50), "4000"),
    "NaN": (replace_column("seconds", [[math.nan]] * 50), "Expected `float`"),
    "negative": (replace_column("seconds", [[-1.0]] * 50), "Expected `float`"),
    "infinite": (replace_column("seconds", [[1.0]] * 49 + [[math.inf]]), "Expected `float`"),
    "null": (replace_column("seconds", [[1.0]] * 49 + [None]), "null"),
    "no reading": (replace_column("seconds", [[1.0]] * 49 + [[None]]), "null"),
    "neither": (lambda content: content.drop(["seconds"]), "neither times"),
    "batches": (replace_column("batch", list(range(50))[::-1]), "after batch"),
    "program": (replace_column("program", [None] * 50), "null"),
    "twice": (lambda content: content.append_column("program", content["program"]), "two columns 'program'"),
    "nothing": (lambda content: content.select(["cost"]), "none of the columns"),
}


@pytest.mark.parametrize(("change", "words"), WRONG.values(), ids=WRONG)
def test_a_table_with_wrong_content_is_refused(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], words: str
) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(change(table(path)), path, store_schema=True)
    for read in (read_log, read_columns):
        with pytest.raises(SearchlabError, match=rf"(?s)a\.parquet.*{words}"):
            read(path)


def test_a_truncated_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table(path)
    data = path.read_bytes()
    for size in [0, 4, 100, len(data) // 2, len(data) - 20, len(data) - 1]:
        path.write_bytes(data[:size])
        for read in (read_log, read_header):
            with pytest.raises(SearchlabError, match=r"cannot read .*a\.parquet: it is damaged .*; download it again"):
                read(path)


@pytest.mark.filterwarnings("ignore:.*it is ignored")
def test_flipped_bytes_are_found_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table(path)
    data, rng = path.read_bytes(), np.random.default_rng(0)
    log, refused = read_log(path), 0
    for position in rng.integers(0, len(data), 300).tolist():
        path.write_bytes(data[:position] + bytes([data[position] ^ rng.integers(1, 256)]) + data[position + 1 :])
        try:
            read = read_log(path)
        except SearchlabError as error:
            refused += 1
            assert "a.parquet" in str(error)
        else:
            assert len(read.records) in (len(log.records), 0)
    assert refused > 100


def test_a_small_file_with_huge_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    content = table(path)
    message = pa.DictionaryArray.from_arrays(pa.array([0] * 50, "int32"), ["x" * 100_000]).cast("string")
    bomb = content.append_column("message", message)
    parquet.write_table(bomb, path, compression="zstd")
    assert path.stat().st_size < 20_000
    monkeypatch.setenv("SEARCHLAB_UNPACK_MB", "2")
    with pytest.raises(SearchlabError, match="unpacks to more than 2 MB.*SEARCHLAB_UNPACK_MB"):
        read_log(path)
    zeros = replace_column("seconds", [[0.0] * 10_000] * 50)(content)
    parquet.write_table(zeros, path, compression="zstd")
    with pytest.raises(SearchlabError, match="unpacks to more than 2 MB"):
        read_log(path)


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    code = pickle.dumps(Evil(str(tmp_path / "PWNED")))
    metadata = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": code}
    content = table(tmp_path / "a.parquet").drop(["program"])
    content = content.append_column(pa.field("program", pa.string(), metadata=metadata), pa.array(["x"] * 50))
    about = content.schema.metadata | {"pandas": json.dumps({"index_columns": [{"kind": "evil"}], "columns": []})}
    parquet.write_table(content.replace_schema_metadata(about), tmp_path / "a.parquet")
    read_log(tmp_path / "a.parquet")
    assert not (tmp_path / "PWNED").exists()
    pickle.loads(code)
    assert (tmp_path / "PWNED").exists()


class Evil:
    """A value that writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


def test_values_that_no_table_can_contain_are_refused(tmp_path: Path) -> None:
    rows = (Record(index=0, config={"a": 1 << 70}, seconds=(1.0,)),)
    with pytest.raises(SearchlabError, match="cannot write the log .*plain numbers"):
        write_log(tmp_path / "a.parquet", Log(tmp_path, HEADER, rows))
    assert not (tmp_path / "a.parquet").exists()
