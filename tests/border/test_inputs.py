"""Every input in ``data`` is read by a test, and a file of many parameters is read in seconds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.cli import searchlab

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.iterdir()))
def test_every_input_is_read_by_a_test(name: str) -> None:
    tests = [path.read_text() for path in DATA.parents[1].rglob("test_*.py") if path != Path(__file__)]
    assert any(re.search(rf'"{re.escape(name)}"', text) for text in tests), f"no test names {name}"


def test_a_file_of_many_parameters_is_imported_in_seconds(tmp_path: Path) -> None:
    """All combinations of 21 parameters are too many to list."""
    configurations = np.random.default_rng(0).integers(2, size=(100, 21)).tolist()
    results = [
        {
            "timestamp": "2026-11-22 01:38:22.580517+00:00",
            "configuration": {f"p{number}": value for number, value in enumerate(configuration)},
            "times": {"compilation": 1.0, "benchmark": 1.0, "runtimes": [1.0]},
            "invalidity": "correct",
            "correctness": 1,
            "measurements": [{"name": "time", "value": 1.0, "unit": "ms"}],
            "objectives": ["time"],
        }
        for configuration in configurations
    ]
    text = json.dumps({"results": results, "schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"}})
    (tmp_path / "t4.json").write_text(text)
    result = searchlab("import", "t4.json", "--workload", "kernel:k", "--out", "o.jsonl", cwd=tmp_path)
    assert result.returncode == 0 and "100 trials of kernel:k" in result.stdout, result.stderr
