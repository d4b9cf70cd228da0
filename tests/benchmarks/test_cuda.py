"""The benchmark of CUDA programs, as far as it goes without a GPU, and how it is packed and unpacked."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.errors import SearchlabError
from searchlab.target import Target
from searchlab.workload import parse_workload
from searchlab_spaces.trace.space import Trace
from tests.support.benchmarks import BENCHMARKS, script
from tests.support.measure.emulated_gpu.__main__ import install

cuda, cuda_timing, cuda_pack, cuda_unpack = map(script, ("cuda", "cuda_timing", "cuda_pack", "cuda_unpack"))
del sys.modules["cuda"]  # elsewhere this is the name of NVIDIA's package


# --- timing -----------------------------------------------------------------------------------------------------


class FakeLibrary:
    """The functions of libcudart that are called, and a clock that a run of a side advances."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.clock = 0.0
        self.recorded: dict[int, float] = {}
        self.fails: str = ""

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any) -> int:
            self.calls.append(name)
            if name == "cudaEventCreate":
                arguments[0]._obj.value = len(self.calls)
            if name == "cudaEventRecord":
                self.recorded[arguments[0].value] = self.clock
            if name == "cudaMemsetAsync":
                self.clock += 5.0
            if name == "cudaEventElapsedTime":
                arguments[0]._obj.value = self.recorded[arguments[2].value] - self.recorded[arguments[1].value]
            return 700 if name == self.fails else 0

        return function

    def side(self, milliseconds: float) -> Any:
        def run() -> None:
            self.calls.append("run")
            self.clock += milliseconds

        return run


def test_the_cache_is_flushed_before_each_run_is_timed() -> None:
    library = FakeLibrary()
    runtime = cuda_timing.CudaRuntime(1 << 20, library)
    library.calls.clear()
    assert runtime.readings(library.side(2.0), 3) == [2.0, 2.0, 2.0]
    created, destroyed = library.calls.count("cudaEventCreate"), library.calls.count("cudaEventDestroy")
    assert created == destroyed == 6
    between = library.calls[6 : library.calls.index("cudaDeviceSynchronize")]
    assert between == ["cudaMemsetAsync", "cudaEventRecord", "run", "cudaEventRecord"] * 3


def test_an_error_of_cuda_is_raised_with_its_function_and_number() -> None:
    library = FakeLibrary()
    runtime = cuda_timing.CudaRuntime(1 << 20, library)
    library.fails = "cudaDeviceSynchronize"
    with pytest.raises(RuntimeError, match="cudaDeviceSynchronize ended with CUDA error 700"):
        runtime.readings(library.side(1.0), 1)


def test_sides_are_compared_with_the_fastest_library_kernel() -> None:
    library = FakeLibrary()
    sides = {"sketch": library.side(4.0), "cuDNN": library.side(3.0), "cuDNN fused": library.side(2.0)}
    times = cuda_timing.time_in_turns(sides, cuda_timing.CudaRuntime(1 << 20, library), rounds=4)
    assert times == {"sketch": [4.0] * 4, "cuDNN": [3.0] * 4, "cuDNN fused": [2.0] * 4}
    workload = parse_workload("conv2d:1x7x7x512x512x3x3:p1")
    rows = {row["side"]: row for row in cuda_timing.rows_of(workload, times, {"cuDNN", "cuDNN fused"})}
    assert {side: row["ratio"] for side, row in rows.items()} == {"sketch": 0.5, "cuDNN": 2 / 3, "cuDNN fused": 1.0}
    assert rows["sketch"]["gflops"] == pytest.approx(workload.flops / 4e-3 / 1e9)
    no_library = cuda_timing.rows_of(workload, {"sketch": [4.0]}, set())
    assert no_library[0]["ratio"] is None
    json.dumps([*rows.values(), *no_library], allow_nan=False)


# --- parts ------------------------------------------------------------------------------------------------------


def test_finished_parts_are_kept_and_others_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[str] = []

    def fine(end: float) -> dict[str, Any]:
        ran.append("fine")
        return {"value": 1}

    def late(end: float) -> dict[str, Any]:
        ran.append("late")
        raise cuda.TimeOver

    def broken(end: float) -> dict[str, Any]:
        ran.append("broken")
        raise SearchlabError("the process died")

    def defective(end: float) -> dict[str, Any]:
        ran.append("defective")
        raise ZeroDivisionError

    parts = [("late", late), ("broken", broken), ("defective", defective), ("fine", fine)]
    for call in range(2):
        results, missing = cuda.run_parts(parts, tmp_path, math.inf)
        assert results == {"fine": {"value": 1}} and missing == ["late", "broken", "defective"]
        assert ran == ["late", "broken", "defective", "fine", "late", "broken", "defective"][: 4 + 3 * call]
    printed = capsys.readouterr().err
    assert "broken: the process died" in printed and "ZeroDivisionError" in printed
    assert cuda.run_parts([("other", fine)], tmp_path, time.monotonic() - 1) == ({}, ["other"])


def test_the_table_has_aims_failures_and_incomplete_parts() -> None:
    def row(side: str, ms: float, ratio: float | None) -> dict[str, Any]:
        return {"side": side, "ms": ms, "ms_quartiles": [ms, ms], "gflops": 1 / ms, "ratio": ratio}

    def outcome(space: str, **failures: int) -> dict[str, Any]:
        return {"space": space, "trials": 64, "failures": failures, "messages": {kind: "why" for kind in failures}}

    result = {
        "workload": "gemm:64x64x64",
        "problems": {},
        "searches": [outcome("sketch", invalid=3), outcome("trace"), outcome("knob-template", crash=64)],
        "rows": [row("sketch", 1.0, 0.95), row("trace", 2.0, 0.5), row("cuBLAS", 0.95, 1.0)],
    }
    text = cuda.table({"tests": {"counts": {"passed": 3}, "failed": []}, "one": result}, ["another"])
    assert "tests that need a GPU: 3 passed" in text
    cells = {line.split()[1]: line for line in text.splitlines() if line.startswith("gemm:64x64x64 ")}
    assert "0.9 of cuBLAS: met" in cells["sketch"] and "invalid 3" in cells["sketch"]
    assert "0.9 of cuBLAS: missed" in cells["trace"]
    assert "crash 64" in cells["knob-template"] and "aim" not in cells["cuBLAS"]
    assert "gemm:64x64x64, knob-template, crash: why" in text
    assert "incomplete: another" in text


def test_without_a_gpu_one_sentence_says_so() -> None:
    words = [sys.executable, str(BENCHMARKS / "cuda.py"), "--all"]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    result = subprocess.run(words, capture_output=True, text=True, env=env)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr == "no CUDA device was found; use a machine with an NVIDIA GPU, or pass --compile-only\n"


def test_compiling_alone_counts_and_shows_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    space = Trace(parse_workload("gemm:64x64x64"), Target({"kind": "cuda", "arch": "sm_90"}))
    outcomes = iter([None, RuntimeError("ptxas says no")])

    def compile_kernels(module: Any, target: Target) -> None:
        if error := next(outcomes):
            raise error

    monkeypatch.setattr(cuda, "compile_kernels", compile_kernels)
    row = cuda.compile_random(space, programs=2, seed=0)
    assert row["programs"] == 1 and len(row["failures"]) == 1
    assert row["failures"][0].startswith("RuntimeError: ptxas says no: {")


# --- on an emulated GPU -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="gcc and g++ emulate a GPU")
def test_programs_are_checked_and_timed_on_an_emulated_gpu(tmp_path: Path) -> None:
    workload = parse_workload("gemm:8x8x8")
    config = cuda_timing.first_valid(Trace(workload, Target({"kind": "cuda", "arch": "sm_90"})))
    configs = {"trace": config.to_json(), "knob-template": {"no": "such knob"}}
    task = {"kind": "compare", "workload": str(workload), "configs": configs, "rounds": 2}
    words = [sys.executable, str(BENCHMARKS / "cuda_timing.py"), "--worker", json.dumps(task)]
    result = subprocess.run(words, capture_output=True, text=True, env=install(tmp_path))
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout.splitlines()[-1])
    assert [row["side"] for row in answer["rows"]] == ["trace"] and answer["rows"][0]["ms"] > 0
    assert answer["problems"].keys() - {"library"} == {"knob-template"}


# --- packing ----------------------------------------------------------------------------------------------------


@given(st.binary(max_size=300), st.integers(1, 100))
def test_parts_are_within_the_limit_and_join_to_the_archive(data: bytes, limit: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "archive").write_bytes(data)
        parts = cuda_pack.split(folder / "archive", folder, limit)
        assert all(0 < part["bytes"] <= limit for part in parts)
        joined = cuda_unpack.Joined([folder / part["name"] for part in parts])
        assert joined.read() == data
        cuda_unpack.check(folder, {"parts": parts})


def test_packed_files_are_unpacked_and_damage_is_reported(tmp_path: Path) -> None:
    source, carried = tmp_path / "source", tmp_path / "carried"
    for name in ("tree", "site"):
        (source / name).mkdir(parents=True)
        (source / name / "file").write_bytes(os.urandom(5000))
    carried.mkdir()
    cuda_pack.compress(source, tmp_path / "archive", preset=1)
    parts = cuda_pack.split(tmp_path / "archive", carried, 4000)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    (carried / "manifest.json").write_text(json.dumps({"commit": "0" * 40, "python": python, "parts": parts}))
    words = [sys.executable, "-I", str(BENCHMARKS / "cuda_unpack.py"), "--parts", str(carried)]

    result = subprocess.run([*words, str(tmp_path / "a b")], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for name in ("tree", "site"):
        assert (tmp_path / "a b" / name / "file").read_bytes() == (source / name / "file").read_bytes()
    show = subprocess.run(
        ["sh", "-c", '. ./env.sh; echo "$PYTHONPATH"'], cwd=tmp_path / "a b", env={}, capture_output=True, text=True
    )
    assert show.stdout == f"{tmp_path / 'a b' / 'site'}\n"

    damaged = carried / parts[1]["name"]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    result = subprocess.run([*words, str(tmp_path / "again")], capture_output=True, text=True)
    assert result.returncode == 1 and f"{damaged.name} is damaged: its SHA-256 is" in result.stderr
    damaged.unlink()
    result = subprocess.run([*words, str(tmp_path / "again")], capture_output=True, text=True)
    assert result.returncode == 1 and f"{damaged.name} is missing" in result.stderr
    assert not (tmp_path / "again").exists()
