"""What differences a machine can resolve."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from searchlab.cli.app import app
from searchlab.log.read import read_log
from searchlab.machine.host import available_cores, cpu_model
from searchlab.machine.noise import MachineCheck, Noise, compute_resolution, read_resolution, write_check
from searchlab.run.tune import tune

READINGS = 1e-3 * np.exp(np.random.default_rng(0).normal(0, 0.01, 3000))


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCHLAB_LOCK", str(tmp_path / "lock"))


def check(**changes: object) -> MachineCheck:
    noise = (Noise(1, 0.01, 0.01, {1: 0.03, 3: 0.02}), Noise(2, 0.1, 0.1, {1: 0.3, 3: 0.2}))
    fields = {"created": 0.0, "cpu": cpu_model(), "cores": available_cores(), "noise": noise, **changes}
    return MachineCheck(**fields)  # type: ignore[arg-type]


def test_the_resolution_is_what_equal_programs_rarely_exceed() -> None:
    """The difference of two normal values has the standard deviation sqrt(2); that of the median of 3 is 0.67."""
    assert compute_resolution(READINGS, 1) == pytest.approx(1.96 * 2**0.5 * 0.01, rel=0.1)
    assert compute_resolution(READINGS, 3) == pytest.approx(1.96 * 2**0.5 * 0.01 * 0.67, rel=0.1)


def test_drift_is_part_of_the_resolution() -> None:
    steady = Noise.from_readings(1, READINGS)
    drifting = Noise.from_readings(1, READINGS * np.linspace(1, 1.5, 3000))
    assert steady.drift < 0.01 < 0.15 < drifting.drift
    assert drifting.resolution[10] > 0.3 > steady.resolution[10]


def test_few_readings_have_no_resolution_of_many_repeats() -> None:
    assert set(Noise.from_readings(1, READINGS[:6]).resolution) == {1, 3}


def test_runs_record_the_check_of_their_machine() -> None:
    assert read_resolution(1, 3) == {}
    write_check(check())
    assert read_resolution(1, 3) == {"resolution": 0.02, "checked": "1970-01-01"}
    assert read_resolution(2, 1)["resolution"] == 0.3
    assert read_resolution(2, 30)["resolution"] == 0.2
    write_check(check(cpu="another"))
    assert read_resolution(1, 3) == {}


def test_the_command_checks_this_machine(tmp_path: Path) -> None:
    completed = CliRunner().invoke(app, ["machine", "check", "--seconds", "0.1", "--json"])
    assert completed.exit_code == 0, completed.output
    result = json.loads(completed.stdout)
    assert len(result["noise"]) == min(2, available_cores())
    assert all(noise["resolution"]["1"] > 0 for noise in result["noise"])
    log = tmp_path / "a.jsonl"
    quick = {"repeat": 1, "min_repeat_ms": 0, "finalists": 0, "sentinel": 0}
    tune("gemm:8x8x8", space="sketch", policy="random", trials=1, log=log, measure=quick)
    assert read_log(log).header.machine["resolution"] == pytest.approx(result["noise"][-1]["resolution"]["1"], abs=1e-4)
