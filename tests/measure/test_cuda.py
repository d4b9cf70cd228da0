"""Measuring CUDA programs: object files travel to other processes; tests that need a GPU are marked."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any, get_args

import cloudpickle
import numpy as np
import psutil
import pytest
import tvm
from tvm.script import relax as R

from searchlab.errors import SearchlabError
from searchlab.log.read import read_log
from searchlab.machine.cuda import COMPILER_VARIABLE, choose_compiler, gpu_name, runs_on
from searchlab.measure.code import Objects, compile_program, error_text, load_objects, to_objects
from searchlab.measure.local import LocalMeasurer, LocalSettings, can_continue_after
from searchlab.measure.messages import Answer, Build, Built, Continue, Failed, Ready, Scheduled, SetUpBuilder, Started
from searchlab.measure.process import MeasuringWorker
from searchlab.measure.runner import Runner
from searchlab.records import FAILURES
from searchlab.run.tune import tune
from searchlab.space import Config
from searchlab.target import Target, resolve_target
from searchlab.workload import parse_workload
from tests.support.measure.faulty import Faulty
from tests.support.measure.faulty_cuda import FAULTS, FaultyCuda

CUDA = Target({"kind": "cuda", "arch": "sm_90"})
WORKLOAD = parse_workload("gemm:8x8x8")

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc, of the CUDA toolkit, is missing")


def run_elsewhere(objects: Objects, program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Return the output of a new process that loads ``objects`` as ``module`` and runs ``program``."""
    (tmp_path / "objects").write_bytes(pickle.dumps(objects))
    code = (
        "import pickle, sys\nimport numpy as np\nimport tvm\nfrom searchlab.measure.code import load_objects\n"
        f"module = load_objects(pickle.load(open(sys.argv[1], 'rb')))\n{program}"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words = [sys.executable, "-c", code, str(tmp_path / "objects")]
    return subprocess.run(words, capture_output=True, text=True, env=env)


def ask_worker(worker: MeasuringWorker, message: object) -> Any:
    """Return the answer of a worker to a message."""
    worker.send(message)
    return worker.recv(*get_args(Answer))


# --- what travels ---------------------------------------------------------------------------------------------


def test_a_cuda_program_is_unpacked_in_another_process(tmp_path: Path) -> None:
    worker = MeasuringWorker(thread_count=1)
    try:
        assert isinstance(worker.recv(Started), Started)
        assert isinstance(
            ask_worker(worker, SetUpBuilder(cloudpickle.dumps(FaultyCuda(WORKLOAD, CUDA)), "the space")), Ready
        )
        assert isinstance(ask_worker(worker, Build(Config({"fault": "none"}))), Scheduled)
        built = ask_worker(worker, Continue(True))
    finally:
        worker.close()
    assert isinstance(built, Built) and built.cpu_seconds > 0
    objects = built.code.objects
    assert [code[:4] for code in objects] == [b"\x7fELF"] * 2 and b"main_kernel" in objects[1]
    result = run_elsewhere(objects, "print(module.imports[0].kind, module['main'])", tmp_path)
    if tvm.get_global_func("ffi.Module.load_from_bytes.cuda", allow_missing=True):
        assert result.stdout.startswith("cuda "), result.stderr
    else:  # it has reached the kernels, which this TVM cannot load without a driver
        assert "Library binary embeds a {cuda} module" in result.stderr


def test_what_a_program_imports_arrives_with_it(tmp_path: Path) -> None:
    """As kernels, but with an import that any machine can run: bytecode of TVM's virtual machine."""

    @R.function
    def main(x: R.Tensor((2,), "float32")):  # type: ignore[no-untyped-def]
        return x

    bytecode = tvm.compile(tvm.IRModule({"main": main}), target="llvm").mod
    bytecode.clear_imports()
    program = compile_program(WORKLOAD.module, Target({"kind": "llvm"}))
    (kernels,) = to_objects(program)
    program.mod.import_module(bytecode)
    objects = to_objects(program)
    assert objects[0] == kernels and len(objects) == 2
    run = (
        "a = np.arange(64, dtype='float32').reshape(8, 8)\n"
        "c = tvm.runtime.tensor(np.zeros_like(a))\n"
        "module['main'](tvm.runtime.tensor(a), tvm.runtime.tensor(a), c)\n"
        "print(np.array_equal(c.numpy(), a @ a), module.imports[0]['as_text']())"
    )
    result = run_elsewhere(objects, run, tmp_path)
    assert result.stdout == f"True {bytecode['as_text']()}\n", result.stderr


@needs_nvcc
def test_an_error_of_the_compiler_is_told_without_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPILER_VARIABLE, "nvcc")
    compile_source = tvm.get_global_func("tvm_callback_cuda_compile")
    kernel = compile_program(FaultyCuda(WORKLOAD, CUDA).schedule(Config({"fault": "none"})).mod, CUDA).mod.imports[0]
    source = kernel.inspect_source()
    with CUDA.tvm:
        assert len(compile_source(source)) > 1000
        with pytest.raises(RuntimeError) as caught:
            compile_source(source.replace("main_kernel(", "main_kernel(no_such_type x, ", 1))
    assert "__CUDACC_RTC__" in str(caught.value)
    text = error_text(caught.value)
    assert "no_such_type" in text and "__CUDACC_RTC__" not in text


@needs_nvcc
def test_the_kernels_that_tests_on_a_gpu_run_are_as_intended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPILER_VARIABLE, "nvcc")
    space = FaultyCuda(WORKLOAD, CUDA)
    compiles = {}
    for fault in FAULTS:
        try:
            source = compile_program(space.schedule(Config({"fault": fault})).mod, CUDA).mod.imports[0].inspect_source()
            with CUDA.tvm:
                compiles[fault] = bool(tvm.get_global_func("tvm_callback_cuda_compile")(source))
        except RuntimeError:
            compiles[fault] = False
    # With more threads than a block can have ptxas may refuse the kernel too, or else the launch fails.
    assert {fault for fault, fine in compiles.items() if not fine} - {"too many threads"} == {"does not compile"}


# --- processes --------------------------------------------------------------------------------------------------


def test_after_a_failure_only_a_process_without_a_gpu_goes_on(measurer: LocalMeasurer) -> None:
    assert {failure for failure in FAILURES if can_continue_after("llvm", failure)} == {"run_error", "wrong_answer"}
    assert not any(can_continue_after("cuda", failure) for failure in FAILURES)
    space = Faulty(WORKLOAD, measurer.target)
    measurer.measurements.clear()
    runners = []
    for fault in ("none", "does not link", "is wrong", "tiled", "segfaults"):
        list(measurer.measure(space, [Config({"fault": fault})]))
        runners.append(list(measurer._run_pool.processes))
    assert runners[0] == runners[1] == runners[2] == runners[3] != []
    assert runners[4] and not set(runners[3]) & set(runners[4])  # a process that has died is replaced


def test_a_failed_program_is_unloaded_only_after_the_answer() -> None:
    unloaded: list[int] = []

    class Program:
        def __getitem__(self, name: str) -> object:
            raise RuntimeError("an illegal memory access was encountered")

    def load() -> Program:
        program = Program()
        weakref.finalize(program, unloaded.append, 1)
        return program

    runner = Runner(WORKLOAD, LocalSettings().for_worker(), tvm.cpu())
    for earlier in range(3):
        answer = runner.run(load, {})
        assert isinstance(answer, Failed) and answer.failure == "run_error"
        assert len(unloaded) == earlier


class Compiling:
    """When a worker unpickles it, it starts another program and waits for it."""

    def __reduce__(self) -> tuple[object, ...]:
        return subprocess.run, (["sleep", "600"],)


def test_the_compiler_that_a_worker_runs_is_killed_with_it(tmp_path: Path) -> None:
    worker = MeasuringWorker(thread_count=1, scratch_folder=str(tmp_path))
    assert isinstance(worker.recv(Started), Started)
    worker.send(SetUpBuilder(pickle.dumps(Compiling()), "the space"))
    deadline = time.monotonic() + 60
    started: list[psutil.Process] = []
    while not started or started[0].environ().get("TMPDIR") != str(tmp_path):  # it has its own once it has called exec
        assert time.monotonic() < deadline
        time.sleep(0.05)
        started = psutil.Process(worker.pid).children()
    worker.close()
    _, alive = psutil.wait_procs(started, timeout=10)
    assert not alive


# --- without a GPU, or without a compiler ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            "LocalSettings().make(resolve_target({'kind': 'cuda', 'arch': 'sm_90'}), {})",
            "no CUDA device was found: .*; use another machine or recorded measurements",
        ),
        ("resolve_target('cuda')", "no CUDA device was found, .* specify an arch, for example "),
    ],
)
def test_without_a_gpu_one_sentence_says_what_to_do(program: str, message: str) -> None:
    code = (
        "from searchlab.errors import SearchlabError\nfrom searchlab.measure.settings import LocalSettings\n"
        "from searchlab.target import resolve_target\n"
        f"try:\n    {program}\nexcept SearchlabError as error:\n    print(error)"
    )
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert re.fullmatch(message + ".*\n", result.stdout), result.stdout + result.stderr


def test_programs_of_another_kind_cannot_be_measured_here() -> None:
    with pytest.raises(SearchlabError, match="cannot measure programs for 'webgpu' on this machine; use another"):
        LocalSettings().make(resolve_target({"kind": "webgpu"}), {})


def test_the_compiler_is_the_one_set_or_else_the_one_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(COMPILER_VARIABLE, "nvrtc")
    assert choose_compiler() == "nvrtc"
    monkeypatch.delenv(COMPILER_VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # so that cuda-bindings is not found either
    with pytest.raises(SearchlabError, match="add the CUDA toolkit's nvcc to PATH, or run pip install cuda-bindings"):
        choose_compiler()
    (tmp_path / "nvcc").touch(mode=0o755)
    assert choose_compiler() == "nvcc"


@pytest.mark.parametrize(
    ("arch", "gpu", "runs"),
    [
        ("sm_90", "sm_90", True),
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90", False),
        ("sm_90a", "sm_90", True),
        ("sm_100a", "sm_103", False),
        ("sm_100", "sm_103", True),
        ("sm_90", "sm_100", False),
        ("compute_90", "sm_90", False),
    ],
)
def test_machine_code_runs_within_its_major_version(arch: str, gpu: str, runs: bool) -> None:
    assert runs_on(arch, gpu) is runs


# --- on a GPU ---------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("space", ["knob-template", "sketch", "trace"])
@pytest.mark.parametrize("workload", ["gemm:64x64x64", "gemm:37x53x29:bias:relu", "conv2d:1x7x7x32x16x3x3:p1:relu"])
def test_every_family_is_measured_and_gives_the_right_answer(space: str, workload: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    result = tune(workload, space=space, policy="random", log=log, trials=16, batch=16, target="cuda")
    failures = {trial.measurement.failure for trial in result.trials}
    assert failures <= {None, "invalid"}, [trial.measurement.message for trial in result.trials]
    assert result.best.seconds > 0
    header = read_log(log).header
    assert header.host["gpu"] == gpu_name()
    assert header.target["arch"].startswith("sm_")


@pytest.mark.gpu
@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_kernel_costs_one_trial_and_the_next_works(fault: str) -> None:
    expected = {
        "none": {None},
        "traps": {"run_error", "crash"},
        "too many threads": {"run_error", "build_error"},
        "writes nothing": {"wrong_answer"},
        "does not compile": {"build_error"},
        "never ends": {"run_timeout"},
        "writes out of bounds": {"run_error", "crash"},
        "takes too much memory": {"run_error", "crash"},
    }
    target = resolve_target("cuda")
    settings = LocalSettings(repeat=2, build_timeout=60, run_timeout=5)
    with LocalMeasurer(settings, target, {}, 2) as measurer:
        configs = [Config({"fault": fault_name}) for fault_name in ("none", fault, "none")]
        space = FaultyCuda(WORKLOAD, target)
        before, failed, _ = measurer.measure(space, configs)
        assert failed.failure in expected[fault], failed.message
        assert "__CUDACC_RTC__" not in failed.message  # the source
        measurer.measurements.clear()
        (after,) = measurer.measure(space, configs[:1])
        for fine in (before, after):
            assert fine.seconds and min(fine.seconds) > 0, fine.message


@pytest.mark.gpu
def test_the_l2_cache_is_flushed_before_each_execution() -> None:
    target = resolve_target("cuda")
    settings = LocalSettings(repeat=2, build_timeout=60, cache="cold")
    with LocalMeasurer(settings, target, {}, 1) as measurer:
        (measurement,) = measurer.measure(FaultyCuda(WORKLOAD, target), [Config({"fault": "none"})])
    assert len(measurement.seconds) == 2, measurement.message


@pytest.mark.gpu
def test_a_program_runs_in_this_process_too() -> None:
    target = resolve_target("cuda")
    program = compile_program(FaultyCuda(WORKLOAD, target).schedule(Config({"fault": "none"})).mod, target)
    inputs = WORKLOAD.inputs()
    result = tvm.runtime.tensor(np.zeros((8, 8), "float32"), tvm.cuda(0))
    load_objects(to_objects(program))["main"](*[tvm.runtime.tensor(a, tvm.cuda(0)) for a in inputs.values()], result)
    np.testing.assert_allclose(result.numpy(), WORKLOAD.reference(inputs), rtol=1e-5)
