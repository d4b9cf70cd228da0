"""The CSV files of a report."""

from __future__ import annotations

import csv
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from searchlab.analysis.files import _write_csv, _write_groups
from searchlab.analysis.rows import Groups, Rows

numbers = st.none() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
groups = st.tuples(st.tuples(st.text(), st.integers()), st.lists(st.tuples(numbers, numbers), max_size=3))


@settings(max_examples=40)
@given(st.lists(groups, max_size=3))
@example([(("a,b", 1), [(5e-5, 10.00001), (1e-7, 1e16), (-0.0, 1e-5)]), (('"', 2), []), (("\n", 3), [(None, 1.0)])])
@example([(("\r", 1), [(1.0, 2.0)])])
def test_rows_in_groups_are_written_as_any_others(made: list[tuple[tuple[str, int], list[tuple[object, ...]]]]) -> None:
    columns = ("name", "number", "x", "y")
    with TemporaryDirectory() as folder:
        one, other = Path(folder, "one"), Path(folder, "other")
        _write_groups(one, Groups(columns, made))
        _write_csv(other, Rows(columns, Groups(columns, made).rows))
        assert one.read_bytes() == other.read_bytes()
        with one.open(newline="", encoding="utf-8") as file:
            assert len(list(csv.reader(file))) == 1 + sum(len(rows) for _, rows in made)
