"""The recipes for trackers, with the real packages, where these are installed."""

from __future__ import annotations

import importlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import BLOCKS, ROOT

PAGE = ROOT / "docs" / "howto" / "tracking.md"
TRIALS = 24


@pytest.fixture(params=["mlflow", "wandb", "tensorboardX"])
def tracked(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """The package, and the directory in which its recipe has been run as a script."""
    package = request.param
    pytest.importorskip(package)
    preamble, *recipes = [block.text for block in BLOCKS if block.page == PAGE]
    [recipe] = [text for text in recipes if package in text]
    (tmp_path / "recipe.py").write_text(preamble + recipe)
    result = subprocess.run([sys.executable, "recipe.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return package, tmp_path


def test_a_recipe_logs_each_trial(tracked: tuple[str, Path]) -> None:
    package, folder = tracked
    match package:
        case "mlflow":
            with sqlite3.connect(folder / "mlflow.db") as database:
                [(count,)] = database.execute("select count(*) from metrics where key = 'seconds'")
        case "wandb":
            records = importlib.import_module("wandb.proto.wandb_internal_pb2")
            [file] = folder.glob("wandb/offline-run-*/*.wandb")
            data, count = file.read_bytes()[7:], 0
            while data:  # a LevelDB log of one block: each record follows its checksum, length and type
                end = 7 + int.from_bytes(data[4:6], "little")
                count += records.Record.FromString(data[7:end]).HasField("history")
                data = data[end:]
        case "tensorboardX":
            pytest.importorskip("tensorboard")
            accumulators = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
            events = accumulators.EventAccumulator(str(folder / "tensorboard" / "tpe")).Reload()
            count = len(events.Scalars("seconds"))
    assert count == TRIALS
