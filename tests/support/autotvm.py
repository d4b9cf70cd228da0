"""Recorded runs of AutoTVM's own tuners, and its random numbers: those of ``studies/fidelity/same_numbers.py``."""

from __future__ import annotations

import sys
from pathlib import Path

FIDELITY = Path(__file__).parents[2] / "studies" / "fidelity"
sys.path.append(str(FIDELITY))

from same_numbers import read_recording, repeat_run, search_table, table  # noqa: E402

__all__ = ["FIDELITY", "read_recording", "repeat_run", "search_table", "table"]
