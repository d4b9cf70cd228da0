"""Every kind of measurement answers for itself; and settings by the names that they had in earlier releases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from searchlab.errors import SearchlabError
from searchlab.log.format import read_log
from searchlab.measure.settings import LocalSettings, RpcSettings, TableSettings
from searchlab.measure.table import TableMeasurer
from searchlab.run.study import Study
from searchlab.run.tune import tune
from tests.support import toys
from tests.support.logs import write_table

RUN = {
    "number": 1, "repeat": 3, "min_repeat_ms": 10, "prune_factor": 3.0, "build_timeout": 15.0, "run_timeout": 15.0,
    "check": True, "memory_limit_mb": 4096,
}  # fmt: skip
STUDY = {"workloads": ["gemm:8x8x8"], "spaces": ["knob-template"], "policies": ["random"]}


def test_the_identity_is_the_settings_that_decide_the_numbers() -> None:
    """Logs are resumed by it: what is here must stay, in this order."""
    fleet = RpcSettings(tracker="10.0.0.1:9190", key="cortex-a72", retries=1, device_timeout=2, cc="gcc", workers=3)
    for settings, identity in (
        (LocalSettings(workers=3, sentinel=0, finalists=2), {"kind": "local", **RUN}),
        (fleet, {"kind": "rpc", **RUN, "key": "cortex-a72"}),
        (TableSettings("logs"), {"kind": "table", "path": "logs"}),
        (TableSettings("logs", "nearest", True), {"kind": "table", "path": "logs", "missing": "nearest", "noise": True})
    ):  # fmt: skip
        assert json.dumps(settings.identity()) == json.dumps(identity)  # type: ignore[attr-defined]


def test_only_a_measurement_of_this_machine_is_exclusive_and_only_a_table_replays() -> None:
    kinds = (LocalSettings, RpcSettings, TableSettings)
    assert [kind.exclusive for kind in kinds] == [True, False, False]
    assert [kind.replays for kind in kinds] == [False, False, True]


def test_the_default_target_and_what_can_be_measured(tmp_path: Path) -> None:
    assert LocalSettings().default_target(tmp_path) == "native" and LocalSettings().measurable(tmp_path) is None
    fleet = RpcSettings(tracker="10.0.0.1:9190", key="two")
    assert fleet.measurable(tmp_path) is None
    with pytest.raises(SearchlabError, match="'two' needs a target"):
        fleet.default_target(tmp_path)
    space = toys.Small()
    write_table(tmp_path / "a.jsonl", space, toys.smooth)
    table = TableSettings("a.jsonl")
    assert table.default_target(tmp_path) == space.target.to_json()
    assert table.measurable(tmp_path) == {(str(space.workload), space.fingerprint)}
    assert isinstance(table.make(space.target, {}, tmp_path), TableMeasurer)


def test_settings_are_light() -> None:
    code = "import sys, searchlab.measure.settings; print(*sys.modules)"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert not {"tvm", "tvm_ffi", "psutil", "scipy", "matplotlib"} & set(done.stdout.split())


def test_a_worker_is_sent_plain_settings() -> None:
    plain = LocalSettings(repeat=7, prune_factor=2, finalists=9).for_worker()
    assert type(plain).__name__ == "RunSettings" and (plain.repeat, plain.prune_factor) == (7, 2)


# --- words of earlier releases --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [{"kind": "local"}, {"kind": "rpc", "tracker": "10.0.0.1:9190", "key": "two"}])
def test_a_setting_by_its_old_name_is_refused_with_the_new_one(kind: dict[str, str], tmp_path: Path) -> None:
    measure = {**kind, "stop_factor": 2}
    said = "the key 'stop_factor' in measure is called 'prune_factor' now"
    with pytest.raises(SearchlabError, match=said):
        Study.from_dict({**STUDY, "measure": measure})
    with pytest.raises(SearchlabError, match="the key 'stop_factor' is called 'prune_factor' now"):
        tune("gemm:8x8x8", space="knob-template", policy="random", log=tmp_path / "a.jsonl", measure=measure)
    with pytest.raises(SearchlabError, match="unknown key 'stop_facto'"):
        Study.from_dict({**STUDY, "measure": {**kind, "stop_facto": 2}})


def test_a_log_in_the_old_words_is_read_and_resumed(tmp_path: Path) -> None:
    """A log as searchlab 0.1 wrote it: its header says ``stop_factor``, and its last record ``stopped``."""
    log = tmp_path / "a.jsonl"
    measure = {"kind": "local", "repeat": 2, "min_repeat_ms": 0, "finalists": 0, "sentinel": 0}

    def run(trials: int, **changes: object) -> None:
        tune(
            "gemm:16x16x16", space="knob-template", policy="random", log=log, trials=trials, batch=2,
            measure=measure | changes,
        )  # fmt: skip

    run(2)
    header, first, last = log.read_text().splitlines()
    assert '"prune_factor":3.0' in header and '"stopped"' not in header + first + last
    old = json.loads(last) | {"stopped": True}
    old.pop("pruned", None)
    old_lines = [header.replace('"prune_factor"', '"stop_factor"'), first, json.dumps(old, separators=(",", ":"))]
    log.write_text("".join(line + "\n" for line in old_lines))
    assert [trial.measurement.pruned for trial in read_log(log).trials][-1] is True
    with pytest.raises(SearchlabError, match="its measure is .*prune_factor"):
        run(4, prune_factor=2)
    run(4)
    lines = log.read_text().splitlines()
    assert lines[:3] == old_lines and len(lines) == 5
    assert not any('"stopped"' in line for line in lines[3:])
