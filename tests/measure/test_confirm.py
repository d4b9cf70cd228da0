"""With ``confirm``, a program that is faster than the run's best is timed once more."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from searchlab.measure.contract import RunSettings
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.plugins import execute_file
from searchlab.records import Measurement
from searchlab.space import Config
from searchlab.target import Target
from searchlab.workload import parse_workload
from tests.support.measure.counted import Counted

WORKLOAD = parse_workload("gemm:8x8x8")


def test_only_a_program_faster_than_the_best_is_confirmed(native: Target, tmp_path: Path) -> None:
    space = Counted(WORKLOAD, native, str(tmp_path))
    settings = LocalSettings(repeat=2, min_repeat_ms=0, confirm=True)
    configs = [Config({"us": us}) for us in (4000, 300, 60000)]
    with LocalMeasurer(settings, native, {}, 1) as local:
        first, best, slow = local.measure(space, configs)
        assert [len(m.seconds) for m in (first, best, slow)] == [2, 4, 1]
        (again,) = local.measure(space, configs[1:2], best_cost=0.1)
        assert again.reused and again.seconds == best.seconds


def test_another_runs_unconfirmed_measurement_is_not_reused() -> None:
    settings = RunSettings(repeat=2, confirm=True)
    measurements = {"p": Measurement((1.0, 1.0)), "q": Measurement((1.0, 1.0, 1.1, 1.1))}
    assert settings.is_known("p", measurements, math.inf) and settings.is_known("p", measurements, 0.5)
    assert not settings.is_known("p", measurements, 2.0) and settings.is_known("q", measurements, 2.0)


def test_the_study_of_confirming_starts(capsys: pytest.CaptureFixture[str]) -> None:
    table = "v1/gemm-99x51x85-knob-1t"
    study = execute_file(Path(__file__).parents[2] / "studies" / "confirm.py")
    study.main(f"--suite {table} --policies random --seeds 2 --trials 8".split())
    assert re.fullmatch(r"\| random \| [+-][^|]+ \| [+-][^|]+ \| [0-9.]+ % \|", capsys.readouterr().out.splitlines()[2])
