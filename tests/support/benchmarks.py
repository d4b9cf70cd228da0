"""The scripts of studies/benchmarks and studies/suite, as modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[2] / "studies" / "benchmarks"
SUITE = BENCHMARKS.parent / "suite"


def script(name: str, folder: Path = BENCHMARKS) -> ModuleType:
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
