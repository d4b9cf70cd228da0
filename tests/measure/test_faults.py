"""Whatever a candidate, a user or a machine does to a run, no measurement is lost and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from searchlab.log.read import read_log
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.records import Measurement
from searchlab.space import Config
from searchlab.target import Target
from searchlab.workload import parse_workload
from tests.support.cli import searchlab
from tests.support.measure.hostile import Hostile, Telltale

WORKLOAD = parse_workload("gemm:8x8x8")


@pytest.fixture(scope="module")
def bounded(native: Target) -> Iterator[LocalMeasurer]:
    """A measurer with low limits of memory and time."""
    settings = LocalSettings(repeat=2, min_repeat_ms=0, memory_limit_mb=300, build_timeout=20, run_timeout=5)
    with LocalMeasurer(settings, native, {}, 2) as local_measurer:
        yield local_measurer


def measure(measurer: LocalMeasurer, *faults: str) -> list[Measurement]:
    measurer.measurements.clear()
    space = Hostile(WORKLOAD, measurer.target)
    return list(measurer.measure(space, [Config({"fault": fault}) for fault in faults]))


@pytest.mark.parametrize(
    ("fault", "failures"),
    [
        ("eats memory", {"crash"}),
        ("schedule eats memory", {"build_error"}),
        ("compiler has no end", {"crash", "build_error"}),  # without memory, LLVM aborts and TVM raises
    ],
)
def test_memory_has_a_limit_that_the_failure_names(bounded: LocalMeasurer, fault: str, failures: set[str]) -> None:
    measurement, fine = measure(bounded, fault, "none")
    assert measurement.failure in failures and fine.failure is None, measurement.message
    assert "a candidate may use 300 MB of memory (memory_limit_mb)" in measurement.message


def test_a_program_that_is_refused_memory_dies_alone(bounded: LocalMeasurer) -> None:
    """TVM raises no error for a program that allocates hundreds of gigabytes, so no text mentions memory."""
    measurement, fine = measure(bounded, "asks for too much", "none")
    assert (measurement.failure, fine.failure) == ("crash", None), measurement.message


def test_endless_programs_and_compilers_run_out_of_time(native: Target) -> None:
    settings = LocalSettings(repeat=1, min_repeat_ms=0, build_timeout=4.0, run_timeout=0.5, memory_limit_mb=0)
    with LocalMeasurer(settings, native, {}, 2) as measurer:
        spins, endless = measure(measurer, "spins", "compiler has no end")
        assert (spins.failure, endless.failure) == ("run_timeout", "build_timeout")
        assert measure(measurer, "none")[0].failure is None


def test_gigabytes_of_output_go_nowhere(bounded: LocalMeasurer, tmp_path: Path) -> None:
    (fine,) = measure(bounded, "none")
    assert fine.failure is None
    before = psutil.Process(bounded._run_pool.processes[0].pid)
    (measurement,) = measure(bounded, "prints")
    assert measurement.failure == "wrong_answer"  # it only printed
    assert before.is_running() and not any(Path(file.path).stat().st_size > 1 << 20 for file in before.open_files())
    assert measure(bounded, "none")[0].failure is None


def test_a_builder_imports_no_slow_module_without_need(native: Target) -> None:
    with LocalMeasurer(LocalSettings(repeat=1, min_repeat_ms=0), native, {}, 1) as measurer:
        built, telling = measurer.measure(Telltale(WORKLOAD, native), [Config({"do": "build"}), Config({"do": "tell"})])
    modules = telling.message.split()
    assert built.failure is None and "tvm" in modules
    assert not {"tvm.s_tir.tensor_intrin", "torch", "xgboost", "optuna", "vl_convert"} & set(modules)


# --- suspended -----------------------------------------------------------------------------------------

SUSPENDED = """
import sys
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.target import resolve_target
from tests.measure.test_local import measure

settings = LocalSettings(repeat=1, min_repeat_ms=0, build_timeout=1.6, run_timeout=1.6)
with LocalMeasurer(settings, resolve_target("native"), {}, 1) as measurer:
    measure(measurer, "none")
    for fault in ("schedule sleeps", "naps"):
        print(fault, flush=True)
        measurer.measurements.clear()
        print(measure(measurer, fault)[0].message, flush=True)
"""


@pytest.mark.parametrize("also_parent", [True, False])
def test_time_for_which_processes_are_stopped_does_not_count(also_parent: bool) -> None:
    """One config takes a second to schedule. The other's program naps and computes nothing, so its result is wrong."""
    with subprocess.Popen([sys.executable, "-c", SUSPENDED], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        for fault, message in (("schedule sleeps", "\n"), ("naps", "64 of 64 elements are off")):
            assert parent.stdout.readline() == f"{fault}\n"
            time.sleep(0.5)
            processes = psutil.Process(parent.pid).children(recursive=True)
            stopped = [psutil.Process(parent.pid), *processes] if also_parent else processes
            for process in stopped:
                process.suspend()
            time.sleep(2.2)
            for process in stopped:
                process.resume()
            assert parent.stdout.readline().startswith(message)


# --- the whole program, interrupted --------------------------------------------------------------------


def tune(words: list[str], scratch: Path) -> subprocess.Popen[str]:
    scratch.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "searchlab", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},
    )


def test_an_interrupt_within_an_exec_ends_with_130(tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(
        "import searchlab.cli\n"
        "from searchlab.__main__ import main\n"
        "code = 'import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(10)'\n"
        "searchlab.cli.main = lambda: exec(code)\n"
        "main()\n"
    )
    command = [sys.executable, "-m", script.stem]
    assert subprocess.run(command, cwd=tmp_path, timeout=60).returncode == 130


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("importing", signal.SIGINT),
        ("importing", signal.SIGTERM),
        ("starting", signal.SIGINT),
        ("building", signal.SIGTERM),
        ("running", signal.SIGINT),
        ("running", signal.SIGTERM),
    ],
)
def test_a_signal_at_any_moment_ends_it_cleanly(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    log, scratch = tmp_path / "a.jsonl", tmp_path / "scratch"
    words = ["tune", "gemm:96x96x96", "--space", "knob-template", "--policy", "random", "--log", str(log), "--trials"]
    process = tune([*words, "500"], scratch)
    us = psutil.Process(process.pid)

    def reached() -> bool:
        lines = log.read_bytes().count(b"\n") if log.exists() else 0
        if moment == "importing":
            return any("numpy" in mapped.path for mapped in us.memory_maps())
        if moment == "starting":
            return bool(us.children())
        running = len(us.children(recursive=True)) >= 3  # fork server, runner, and a builder for each core
        return running and lines >= (1 if moment == "building" else 2)

    deadline = time.monotonic() + 60
    while not reached():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    workers = us.children(recursive=True)
    process.send_signal(number)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert not psutil.wait_procs(workers, timeout=20)[1]
    assert not list(scratch.iterdir())
    if moment == "running":
        assert "all measurements are kept" in output
        assert f"Continue with: searchlab {' '.join(words)} 500" in output.replace("\n", " ")
        trials = len(read_log(log).records)
        assert searchlab(*words, trials + 1).returncode == 0
        assert len(read_log(log).records) == trials + 1
