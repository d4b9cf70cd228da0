"""Building the tables of a suite from the files of another tuner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..errors import SearchlabError
from ..exchange.imports import As, import_file
from ..log.format import read_header
from ..measure.suite import Suite, SuiteTable


def build(suite: Suite, source: Path, on_table: Callable[[SuiteTable, str], None] = lambda table, done: None) -> None:
    """Import each table of ``suite`` that names a file.

    A table that is there already is kept: remove it to build it again.

    Args:
        suite: All tables name a file.
        source: The directory with the files.
        on_table: Is called after each table, with what was done.

    Raises:
        SearchlabError: If a table names no file, if a file is missing or damaged, or if it lists only a part of its
            space: the tables of a suite are complete.
    """
    for table in suite.tables:
        if not table.imported:
            raise SearchlabError(f"{table.name} names no file to import; `searchlab table build` measures tables")
        if not (source / table.entry.file).is_file():
            raise SearchlabError(f"{table.name}: there is no {table.entry.file} in {source}")
    for table in suite.tables:
        path = suite.directory / "tables" / f"{table.entry.name}.packed"
        if path.is_file():
            on_table(table, "there already")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        ((made,), notes) = import_file(source / table.entry.file, path, As(workload=table.entry.workload))
        if read_header(path).space_size is None:
            path.unlink()
            raise SearchlabError(f"{table.entry.file} cannot be a table of a suite: {notes[0]}")
        on_table(table, f"{len(made.records):,} configs")
