"""Rows of the table of ``robustness.py``, which each of its programs writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """How often something bad was tried, and what was then wrong."""

    part: str
    name: str
    tried: int
    wrong: Sequence[str]
    seconds: float


def write_rows(rows: Sequence[Row], path: Path | None) -> None:
    """Append ``rows`` to the file at ``path``, and end this program: with status 1 if something was wrong."""
    if path:
        with path.open("a") as file:
            file.writelines(json.dumps(asdict(row)) + "\n" for row in rows)
    sys.exit(any(row.wrong for row in rows))
