"""Logs as arrays agree with their records."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.costmodel.quality import ModelQuality
from searchlab.errors import SearchlabError
from searchlab.log.budget import Budget
from searchlab.log.columns import QUALITY_METRICS, LogColumns, read_columns
from searchlab.log.format import Finalist, FinalistTimes, Log, Record, RunEnd
from searchlab.log.read import read_log
from searchlab.log.reliability import measure_drift
from searchlab.log.result import Result
from searchlab.records import FAILURES
from tests.support.logs import HEADER

seconds = st.floats(1e-6, 1.0)
part = st.none() | st.floats(0, 1)


@st.composite
def records(draw: st.DrawFn, most: int = 8) -> tuple[Record, ...]:
    mean = draw(st.booleans())
    return tuple(
        Record(
            index=index,
            config={"b": draw(st.integers(0, 3)), "a": [index % 2, 1]},
            seconds=() if failure else tuple(draw(st.lists(seconds, min_size=1, max_size=4))),
            failure=failure,
            statistic="mean" if mean else "median",
            propose_seconds=draw(st.sampled_from([0.0, 1.0])),
            build_seconds=draw(st.floats(0, 9)),
            run_seconds=draw(st.floats(0, 9)),
            nearest=draw(st.booleans()),
            reused=draw(st.booleans()),
            sentinel_seconds=draw(st.none() | seconds),
            model_quality=draw(st.none() | st.builds(ModelQuality, trial_count=st.just(4), k=st.just(1), rmse=part)),
        )
        for index in range(draw(st.integers(0, most)))
        for failure in [draw(st.none() | st.sampled_from(FAILURES))]
    )


def lines(log: Log) -> bytes:
    notes = [note for note in (log.finalist_times, log.run_end) if note]
    return msgspec.json.Encoder().encode_lines([log.header, *log.records, *notes])


def are_equal(first: LogColumns, second: LogColumns) -> bool:
    def equal(name: str) -> bool:
        own_value, other_value = getattr(first, name), getattr(second, name)
        if not isinstance(own_value, np.ndarray):
            return bool(own_value == other_value)
        floats = own_value.dtype.kind == "f"
        return own_value.dtype == other_value.dtype and np.array_equal(own_value, other_value, equal_nan=floats)

    return all(equal(field.name) for field in fields(first))


@settings(max_examples=30)
@given(records(), st.booleans())
def test_columns_equal_those_of_the_records(
    tmp_path_factory: pytest.TempPathFactory, rows: tuple[Record, ...], has_end: bool
) -> None:
    log = Log(tmp_path_factory.getbasetemp() / "columns.jsonl", msgspec.structs.replace(HEADER, batch=3), rows)
    if has_end and rows:
        log = Log(
            log.path,
            log.header,
            rows,
            FinalistTimes(trial_count=len(rows), finalists=(Finalist(0, (1.0,)),)),
            RunEnd(trial_count=len(rows)),
        )
    log.path.write_bytes(lines(log) + b'{"index":')  # its last line is torn
    quick = read_columns(log.path)
    assert are_equal(quick, LogColumns.from_log(log))
    assert quick.trial_count == len(rows) and [quick.config(index) for index in range(quick.trial_count)] == [
        record.config for record in rows
    ]
    for name in (
        "costs",
        "charged_seconds",
        "elapsed_seconds",
        "sentinels",
        "batch_starts",
        "flops",
        "unit",
        "finalist_times",
        "run_end",
    ):
        np.testing.assert_array_equal(getattr(quick, name), getattr(log, name))
    assert measure_drift(quick) == measure_drift(log)
    kinds = [FAILURES[kind] if kind >= 0 else None for kind in quick.failures]
    assert kinds == [record.failure for record in rows]
    models = [
        [getattr(record.model_quality, name) for name in QUALITY_METRICS] for record in rows if record.model_quality
    ]
    np.testing.assert_array_equal(quick.qualities, np.array(models, dtype=np.float64).reshape(-1, len(QUALITY_METRICS)))


@settings(max_examples=30)
@given(records(), st.builds(Budget, trials=st.integers(1, 8), seconds=st.none() | st.floats(1, 60)))
def test_a_budget_cuts_columns_where_it_cuts_the_log(rows: tuple[Record, ...], budget: Budget) -> None:
    log = Log(
        Path("a"), msgspec.structs.replace(HEADER, batch=3), rows, None, RunEnd(trial_count=len(rows)) if rows else None
    )
    trial_count, run_end = budget.find_end(log)
    truncated_log = log if trial_count == len(rows) else replace(log, records=rows[:trial_count], run_end=run_end)
    assert are_equal(budget.truncate(LogColumns.from_log(log)), LogColumns.from_log(truncated_log))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"seconds":[0.5]', b'"seconds":[0.0]'),
        (b'"config":{"a":1}', b'"config":{"a":{}}'),
        (b'"index":1', b'"index":7'),
        (b'"batch":2', b'"batch":0'),
        (b'{"kind":"trial","index":1', b'\n{"kind":"trial","index":1'),
        (b'"ended","trials":2', b'"ended","trials":1'),
        (b'"searchlab_log":"1.2"', b'"searchlab_log":"2.0"'),
        (b'"config":{"a":1}', b'"config":{"a":"\xff"}'),
    ],
)
def test_all_readers_report_the_same_damage(tmp_path: Path, old: bytes, new: bytes) -> None:
    rows = (Record(index=index, batch_number=index + 1, config={"a": index}, seconds=(0.5,)) for index in range(2))
    log = Log(tmp_path / "a.jsonl", HEADER, tuple(rows))
    data = lines(Log(log.path, log.header, log.records, None, RunEnd(trial_count=2)))
    assert old in data
    log.path.write_bytes(data.replace(old, new))
    with pytest.raises(SearchlabError) as text:
        read_log(log.path)
    with pytest.raises(SearchlabError) as caught:
        read_columns(log.path)
    assert str(caught.value) == str(text.value)


def test_trials_may_follow_the_lines_that_end_a_run(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [Record(index=index, config={"a": 1}, seconds=(0.5,)) for index in range(3)]
    final = FinalistTimes(trial_count=2, finalists=(Finalist(1, (1.0,)),))
    path.write_bytes(msgspec.json.Encoder().encode_lines([HEADER, *rows[:2], final, RunEnd(trial_count=2), *rows[2:]]))
    columns, log = read_columns(path), read_log(path)
    assert are_equal(columns, LogColumns.from_log(log)) and columns.finalist_times is None and columns.run_end is None


def test_a_frame_has_a_row_for_each_trial(tmp_path: Path) -> None:
    rows = (
        Record(index=0, config={"tile": [2, 1], "unroll": 4}, seconds=(0.5, 0.25, 0.125)),
        Record(index=1, config={"tile": [1, 2]}, failure="crash"),
    )
    log = Log(tmp_path / "a.jsonl", HEADER, rows, FinalistTimes(trial_count=2, finalists=(Finalist(0, (0.5,)),)))
    frame = Result(log).to_frame()
    assert frame["repeats"].tolist() == [(0.5, 0.25, 0.125), ()] and frame["cost"].tolist() == [0.25, np.inf]
    assert frame["failure"].tolist()[1] == "crash" and frame["failure"].isna().tolist() == [True, False]
    assert frame["config.tile"].tolist() == [[2, 1], [1, 2]] and frame["config.unroll"].isna().tolist() == [False, True]
    assert frame["gflops_retimed"].tolist()[0] == frame["gflops"][0] / 2 and np.isnan(frame["gflops_retimed"][1])
