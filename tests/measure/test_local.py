"""Measuring with real processes, real programs and real faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from searchlab.errors import SearchlabError
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.records import Measurement, Trial
from searchlab.space import Config
from searchlab.target import Target
from searchlab.workload import parse_workload
from tests.support.measure import packing
from tests.support.measure.faulty import EXPECTED, Faulty, Unloadable

WORKLOAD = parse_workload("gemm:8x8x8")


def measure(measurer: LocalMeasurer, *faults: str) -> list[Measurement]:
    space = Faulty(WORKLOAD, measurer.target)
    return list(measurer.measure(space, [Config({"fault": fault}) for fault in faults]))


def test_every_fault_has_its_class_and_the_study_goes_on(measurer: LocalMeasurer) -> None:
    faults = list(EXPECTED)
    results = dict(zip(faults, measure(measurer, *faults), strict=True))
    assert {fault: result.failure for fault, result in results.items()} == EXPECTED
    for fault, result in results.items():
        assert bool(result.seconds) == (result.failure is None)
        assert bool(result.message) == (result.failure is not None), fault
    messages = {
        "invalid": "on purpose",
        "schedule raises": "ValueError: a bug of a plug-in",
        "schedule segfaults": "the building process died of SIGSEGV",
        "segfaults": "the running process died of SIGSEGV",
        "aborts": "SIGABRT",
        "exits": "exit code 3",
        "hangs": "longer than 2 s",
        "writes nothing": "64 of 64 elements are off",
        "does not link": "Failed to materialize symbols",
    }
    for fault, text in messages.items():
        assert text in results[fault].message
    assert measure(measurer, "none")[0].seconds


def test_a_program_is_measured_once(native: Target) -> None:
    programs: dict[str, Measurement] = {}
    with LocalMeasurer(LocalSettings(repeat=4, min_repeat_ms=0), native, programs, 2) as measurer:
        first, twin, wrong = measure(measurer, "none", "none", "is wrong")
        assert not first.reused and twin.reused
        assert len(first.seconds) == 4 and twin.seconds == first.seconds
        assert twin.build_seconds == first.build_seconds > 0  # charged as if measured
        assert set(programs) == {first.program, wrong.program}
        again, wrong_again = measure(measurer, "none", "is wrong")
        assert again.reused and again.seconds == first.seconds
        assert wrong_again.reused and wrong_again.failure == "wrong_answer"


def test_measurements_come_in_order_and_as_they_are_done(measurer: LocalMeasurer) -> None:
    space = Faulty(WORKLOAD, measurer.target)
    measurer.measurements.clear()
    results = measurer.measure(space, [Config({"fault": fault}) for fault in ("hangs", "invalid", "tiled")])
    assert next(results).failure == "run_timeout"
    assert [result.failure for result in results] == ["invalid", None]


def test_a_killed_worker_is_replaced(measurer: LocalMeasurer) -> None:
    measure(measurer, "none")
    for worker in [*measurer._run_pool.processes, *measurer._build_pool.processes]:
        os.kill(worker.pid, signal.SIGKILL)
    measurer.measurements.clear()
    assert [result.failure for result in measure(measurer, "tiled", "none")].count(None) >= 1
    measurer.measurements.clear()
    assert [result.failure for result in measure(measurer, "tiled", "none")] == [None, None]


def test_a_measurer_is_usable_after_an_interrupt(measurer: LocalMeasurer) -> None:
    """A real Ctrl-C signal in the middle of a batch."""
    measurer.measurements.clear()
    measure(measurer, "none", "tiled")
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        measure(measurer, "schedule hangs", "invalid")
    assert measure(measurer, "none")[0].seconds


def test_no_process_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from searchlab.measure.local import LocalMeasurer, LocalSettings\n"
        "from searchlab.target import resolve_target\nfrom tests.measure.test_local import measure\n"
        "measurer = LocalMeasurer(LocalSettings(), resolve_target('native'), {}, 2)\n"
        "measure(measurer, 'none', 'tiled')\nprint('ready', flush=True)\nmeasured(measurer, 'schedule hangs', 'hangs')"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout and parent.stdout.readline() == "ready\n"
    children = psutil.Process(parent.pid).children(recursive=True)
    assert len(children) >= 3
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_build_and_run_are_never_at_the_same_time(measurer: LocalMeasurer) -> None:
    """While results come in, no building process is using the CPU."""
    measurer.measurements.clear()
    space = Faulty(WORKLOAD, measurer.target)
    results = measurer.measure(space, [Config({"fault": fault}) for fault in ("none", "tiled", "is wrong")])
    next(results)
    builders = [psutil.Process(worker.pid) for worker in measurer._build_pool.processes]
    before = [builder.cpu_times().user for builder in builders]
    assert len(list(results)) == 2
    time.sleep(0.2)
    assert sum(b.cpu_times().user - a for a, b in zip(before, builders, strict=True)) < 0.05


def test_a_space_that_cannot_be_sent_to_a_worker_is_one_sentence(measurer: LocalMeasurer) -> None:
    space = Unloadable(WORKLOAD, measurer.target)
    for local_measurer in (LocalMeasurer(LocalSettings(), measurer.target, {}, 2), measurer):
        with pytest.raises(SearchlabError, match="cannot load .*: ValueError: invalid literal"):
            list(local_measurer.measure(space, [Config({"fault": "none"}), Config({"fault": "tiled"})]))
        assert [result.failure for result in measure(local_measurer, "none", "tiled")] == [None, None]
        if local_measurer is not measurer:
            local_measurer.close()


def test_kept_code_of_programs_is_timed_later_without_a_build(
    native: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = LocalSettings(
        repeat=1, min_repeat_ms=0, sentinel=0, finalists=0, run_timeout=2, programs=str(tmp_path / "code")
    )
    assert "programs" not in settings.identity()
    with LocalMeasurer(settings, native, {}, 1) as measurer:
        right, wrong = measure(measurer, "none", "is wrong")
    assert [file.stem for file in (tmp_path / "code").iterdir()] == [right.program] != [wrong.program]
    trials = [Trial(0, Config({"fault": "none"}), right)] * 2
    space = Faulty(WORKLOAD, native)
    with LocalMeasurer(settings, native, {}, 1) as later:
        monkeypatch.setattr(later._build_pool, "build", lambda space, configs: pytest.fail() if configs else [])
        seconds = later.remeasure(space, trials, rounds=3)
    assert len(seconds) == 2 and all(len(values) == 3 and min(values) > 0 for values in seconds)
    (tmp_path / "file").touch()
    with pytest.raises(SearchlabError, match=r"cannot store programs in .*file/x"):
        LocalMeasurer(LocalSettings(programs=str(tmp_path / "file" / "x")), native, {}, 1)


def test_programs_with_packed_arguments(native: Target, tmp_path: Path) -> None:
    space = packing.Packing(parse_workload("gemm:8x12x4"), native)
    kinds = [*packing.EXPECTED, "spoils"]
    settings = LocalSettings(repeat=1, min_repeat_ms=0, run_timeout=5, programs=str(tmp_path))
    with LocalMeasurer(settings, native, {}, 1) as measurer:
        results = dict(zip(kinds, measurer.measure(space, [Config({"kind": kind}) for kind in kinds]), strict=True))
        assert {kind: result.failure for kind, result in results.items()} == {
            **packing.EXPECTED,
            "spoils": "wrong_answer",
        }
        assert "nan" in results["packs nothing"].message
        assert results["spoils"].message == "the program writes to its input B, packed"
    trials = [Trial(0, Config({"kind": kind}), results[kind]) for kind in ("packs", "none")]
    with LocalMeasurer(settings, native, {}, 1) as later:
        seconds = later.remeasure(space, trials, rounds=2)
        assert [len(values) for values in seconds] == [2, 2]
        assert later.check(space, results["packs"].program, 1) is None


def test_the_seconds_of_a_build_are_those_of_the_cpu(measurer: LocalMeasurer) -> None:
    """A schedule that sleeps keeps no CPU busy, and neither does one that waits for a core."""
    begin = time.perf_counter()
    (slept,) = measure(measurer, "schedule sleeps")
    assert slept.failure is None and time.perf_counter() - begin > 1 > slept.build_seconds > 0
