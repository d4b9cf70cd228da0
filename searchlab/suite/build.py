"""Building a suite's tables from another tuner's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..errors import SearchlabError
from ..exchange.imports import ImportOptions, import_file
from ..files import resolve_inside
from ..log.read import read_header
from ..measure.suite import Suite, SuiteTable


def build(suite: Suite, source: Path, on_table: Callable[[SuiteTable, str], None] = lambda *_: None) -> None:
    """Import each table of ``suite`` from the file in ``source`` that the table specifies.

    A table that already exists is kept; remove it to rebuild it. ``on_table`` is called after each table, with a
    description of what was done.

    Raises:
        SearchlabError: If a table specifies no file, or if a file is missing, damaged, outside ``source``, or covers
            only part of its space. The tables of a suite must be complete.
    """
    for table in suite.tables:
        if not table.is_imported:
            raise SearchlabError(f"{table.name} specifies no file to import; use `searchlab table build` to measure it")
        resolve_inside(table.expected_path, suite.directory)
        if not resolve_inside(source / table.entry.file, source).is_file():
            raise SearchlabError(f"{table.name}: {source} does not contain {table.entry.file}")
    for table in suite.tables:
        path = table.expected_path
        if path.is_file():
            on_table(table, "there already")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        ((log,), notes) = import_file(source / table.entry.file, path, ImportOptions(workload=table.entry.workload))
        if read_header(path).space_size is None:
            path.unlink()
            raise SearchlabError(f"{table.entry.file} cannot be used as a suite table: {notes[0]}")
        on_table(table, f"{len(log.records):,} configs")
