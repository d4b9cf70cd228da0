"""The CSV files of a report."""

from __future__ import annotations

import csv
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from searchlab.files import FORMULA_PREFIXES, write_csv

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
CELLS = st.none() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | TEXTS


@settings(max_examples=40)
@given(st.lists(st.tuples(CELLS, TEXTS), max_size=4))
@example([(5e-5, "a,b"), (1e16, '"'), (-0.0, "\n"), (None, "\r")])
def test_what_is_written_is_read(rows: list[tuple[object, str]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "rows.csv")
        write_csv(path, ("x", "text"), rows)
        with path.open(newline="", encoding="utf-8") as file:
            read = list(csv.reader(file))
    assert read == [["x", "text"], *([expected_cell(x), expected_cell(text)] for x, text in rows)]


def expected_cell(value: object) -> str:
    """Return the cell for a value: nothing for None, and text that does not begin like a formula."""
    quote = "'" if isinstance(value, str) and value.startswith(FORMULA_PREFIXES) else ""
    return "" if value is None else f"{quote}{value}"
