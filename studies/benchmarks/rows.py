"""The rows that the programs of ``robustness.py`` contribute to its table."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """The outcome of one kind of abuse."""

    part: str
    name: str
    attempts: int
    wrong: Sequence[str]  # what went wrong
    seconds: float


def write_rows(rows: Sequence[Row], path: Path | None) -> None:
    """Append ``rows`` to the file at ``path`` and exit, with status 1 if anything went wrong."""
    if path:
        with path.open("a") as file:
            file.writelines(json.dumps(asdict(row)) + "\n" for row in rows)
    sys.exit(any(row.wrong for row in rows))
