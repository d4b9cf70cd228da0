"""The settings for each kind of measurement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.measure.settings import LocalSettings, RpcSettings, TableSettings
from searchlab.measure.table import TableMeasurer
from tests.support.logs import write_table

RUN = {
    "number": 1,
    "repeat": 3,
    "min_repeat_ms": 10,
    "prune_factor": 3.0,
    "build_timeout": 15.0,
    "run_timeout": 15.0,
    "check": True,
    "memory_limit_mb": 4096,
    "statistic": "median",
    "cache": "warm",
    "confirm": False,
}


def test_the_identity_is_the_settings_that_decide_the_numbers() -> None:
    """Resuming compares it with the log: the fields and their order must not change."""
    fleet = RpcSettings(tracker="10.0.0.1:9190", key="cortex-a72", retries=1, device_timeout=2, cc="gcc", workers=3)
    for settings, identity in (
        (LocalSettings(workers=3, sentinel=0, finalists=2), {"kind": "local", **RUN}),
        (fleet, {"kind": "rpc", **RUN, "key": "cortex-a72"}),
        (TableSettings("logs"), {"kind": "table", "path": "logs"}),
        (
            TableSettings("logs", "nearest", True),
            {"kind": "table", "path": "logs", "missing": "nearest", "noise": True},
        ),
    ):
        assert json.dumps(settings.identity()) == json.dumps(identity)


def test_only_local_runs_are_exclusive_and_only_tables_replay() -> None:
    kinds = (LocalSettings, RpcSettings, TableSettings)
    assert [kind.exclusive for kind in kinds] == [True, False, False]
    assert [kind.replays for kind in kinds] == [False, False, True]


def test_the_default_target_and_what_can_be_measured(tmp_path: Path) -> None:
    assert LocalSettings().default_target(tmp_path) == "native" and LocalSettings().measurable_spaces(tmp_path) is None
    fleet = RpcSettings(tracker="10.0.0.1:9190", key="two")
    assert fleet.measurable_spaces(tmp_path) is None
    with pytest.raises(SearchlabError, match="'two' requires a target"):
        fleet.default_target(tmp_path)
    space = toys.Small()
    write_table(tmp_path / "a.jsonl", space, toys.simulate_smooth)
    table = TableSettings("a.jsonl")
    assert table.default_target(tmp_path) == space.target.to_json()
    assert table.measurable_spaces(tmp_path) == {(str(space.workload), space.fingerprint)}
    assert isinstance(table.make(space.target, {}, tmp_path), TableMeasurer)


def test_settings_are_light() -> None:
    code = "import sys, searchlab.measure.settings; print(*sys.modules)"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert not {"tvm", "tvm_ffi", "psutil", "scipy", "vl_convert"} & set(result.stdout.split())


def test_a_worker_is_sent_plain_settings() -> None:
    plain = LocalSettings(repeat=7, prune_factor=2, finalists=9).for_worker()
    assert type(plain).__name__ == "RunSettings" and (plain.repeat, plain.prune_factor) == (7, 2)
