"""The best program of a log: as a schedule, as text, and as a library that TVM alone calls."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tvm_ffi import structural_equal

import searchlab
from searchlab import SearchlabError
from searchlab.apply import TEXT_FORMS, program_text
from searchlab.apply.best import export_library
from searchlab.log.read import read_header
from tests.support.apply.logs import invoke, write_log
from tests.support.apply.models import write_log_of
from tests.support.limits import file_size_limit
from tests.support.spaces.programs import assert_right, valid_configs

CUDA = {"kind": "cuda", "arch": "sm_90"}


@pytest.fixture(scope="module")
def cuda_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    space = searchlab.resolve_target(CUDA)
    from searchlab_spaces.templates import KnobTemplate

    template = KnobTemplate(searchlab.parse_workload("gemm:32x32x32"), space)
    (config,) = valid_configs(template, np.random.default_rng(0), 1)
    return write_log(
        tmp_path_factory.mktemp("cuda") / "a.jsonl", [config.to_json()], "knob-template", "gemm:32x32x32", CUDA
    )


def test_apply_best_returns_the_winner_and_its_module(real_log: Path) -> None:
    result = searchlab.load_log(real_log)
    schedule, module = applied = searchlab.apply_best(real_log)
    assert applied.schedule is schedule and structural_equal(applied.module, module)
    assert structural_equal(module, result.best.schedule().mod) and structural_equal(schedule.mod, module)
    assert structural_equal(searchlab.apply_best(result).module, module)
    assert_right(result.space.workload, schedule, result.space.target)


def test_each_text_shows_the_best_program(real_log: Path, cuda_log: Path) -> None:
    best = searchlab.load_log(real_log).best
    expected = {
        "trace": "sch.split",
        "python": "tvm.script.from_source",
        "tir": "T.sblock",
        "lowered": "T.func_attr",
        "llvm": "define ",
        "source": "define ",
        "kernel": "\t",
        "asm": ".globl\t__tvm_ffi_main",
    }
    assert set(expected) == set(TEXT_FORMS)
    for form, excerpt in expected.items():
        assert excerpt in program_text(best, form), form
    assert "T.sblock(" not in program_text(best, "lowered") and "__tvm_ffi_main" in program_text(best, "lowered")
    with pytest.raises(SearchlabError, match="did you mean 'llvm'"):
        program_text(best, "lvm")
    best = searchlab.load_log(cuda_log).best
    assert "__global__" in program_text(best, "source") and "define " in program_text(best, "llvm")
    assert program_text(best, "kernel").startswith('extern "C" __global__') and program_text(best, "kernel").endswith(
        "}"
    )
    assert "#" not in program_text(best, "kernel").partition("{")[0]
    assert "threadIdx" in program_text(best, "lowered")


def test_a_program_without_a_trace_has_no_such_text(tmp_path: Path) -> None:
    log = write_log_of(tmp_path / "a.jsonl", "conv2d:1x9x9x8x8x3x3:p1:g8", "guided-conv2d")
    with pytest.raises(SearchlabError, match="without schedule primitives; use --show tir"):
        program_text(searchlab.load_log(log).best, "trace")


def test_ptx_requires_a_compiler(cuda_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = searchlab.load_log(cuda_log).best
    if shutil.which("nvcc"):
        assert ".visible .entry main_kernel" in program_text(best, "asm")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("TVM_CUDA_COMPILE_MODE", raising=False)
    if not find_spec("cuda"):  # with nvrtc
        with pytest.raises(SearchlabError, match="add the CUDA toolkit's nvcc to PATH"):
            program_text(best, "asm")


def test_best_prints_a_program_with_show(real_log: Path) -> None:
    code, output = invoke("best", real_log, "--show", "python", "--json")
    record = json.loads(output)
    assert code == 0 and record["config"] and "from_source" in record["python"]
    assert (
        invoke("best", real_log, "--show", "asm")[1].strip()
        == program_text(searchlab.load_log(real_log).best, "asm").strip()
    )


CALL = """
import sys
sys.modules["searchlab"] = None
import numpy as np, tvm
if "orcjit" in sys.argv[1]:
    import tvm_ffi_orcjit
rng = np.random.default_rng(5)
arrays = [rng.standard_normal(shape, dtype="float32") for shape in ((64, 32), (32, 48), (48,))]
A, B, bias, C = map(tvm.runtime.tensor, (*arrays, np.full((64, 48), np.nan, "float32")))
exec(sys.argv[1])
np.testing.assert_allclose(C.numpy(), arrays[0] @ arrays[1] + arrays[2], rtol=1e-4, atol=1e-4)
print("right")
"""


@pytest.mark.parametrize("name", ["best.so", "best.o"])
def test_a_library_is_called_as_documented_without_searchlab(
    name: str, real_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        if name == "best.o":  # which takes no compiler
            patch.setenv("PATH", "")
            patch.delenv("CXX", raising=False)
        code, line = invoke("export", real_log, "--out", name)
    assert code == 0, line
    call, _, hint = line.strip().partition(" from tvm.runtime.tensor: ")[2].partition("\n")
    cores = searchlab.load_log(real_log).space.target.cores
    assert f"TVM_NUM_THREADS={cores} in the process that calls the library" in hint
    if name == "best.so":
        assert call == 'tvm.runtime.load_module("best.so")["main"](A, B, bias, C)'
    result = subprocess.run([sys.executable, "-c", CALL, call], capture_output=True, text=True, cwd=tmp_path)
    assert result.stdout == "right\n", result.stderr


def test_an_impossible_library_is_refused_in_a_sentence(
    real_log: Path, cuda_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(message: str, *logs: Path, out: str = "best.so") -> None:
        with pytest.raises(SearchlabError, match=message):
            export_library(logs, tmp_path / out)

    refused("2 logs were given", real_log, cuda_log)
    refused("0 logs were given", tmp_path)
    refused("unsupported library file", real_log, out="best.dll")
    refused("cannot write .*: No such file", real_log, out="no/best.so")
    refused("more than one object file", cuda_log, out="best.o")
    with file_size_limit(500):
        refused("cannot write .*best.o: it ends the process with exit code 1 in LLVM", real_log, out="best.o")
    spec = read_header(real_log).target
    foreign = {**spec, "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}
    config = searchlab.load_log(real_log).best.config.to_json()
    arm = write_log(tmp_path / "arm.jsonl", [config], "knob-template", "gemm:64x48x32:bias", foreign)
    refused("is for aarch64-linux-gnu, for which this machine's compiler .* export it to", arm)
    export_library([arm], tmp_path / "arm.o")
    assert (tmp_path / "arm.o").read_bytes()[18] == 183  # the machine that an ELF file is for: AArch64
    refused("already exists", arm, out="arm.o")
    monkeypatch.setenv("CXX", str(tmp_path / "absent"))
    refused("cannot link", real_log)
    assert not (tmp_path / "best.so").exists()
    monkeypatch.delenv("CXX")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    refused(r"no C compiler was found .* or export to \*\.o", real_log)


def test_a_library_for_cuda_holds_its_kernels(cuda_log: Path, tmp_path: Path) -> None:
    library = export_library([cuda_log], tmp_path / "best.so")
    assert "load_module" in library.call_expression and not library.environment_setting
    assert b"main_kernel" in (tmp_path / "best.so").read_bytes()


def test_logs_that_cannot_be_applied_are_rejected(tmp_path: Path) -> None:
    def refused(log: Path, message: str) -> None:
        with pytest.raises(SearchlabError, match=message):
            searchlab.apply_best(log)

    refused(write_log(tmp_path / "none.jsonl", []), "has no successful trial: it has no trials yet")
    refused(
        write_log(tmp_path / "bug.jsonl", [{"fault": "schedule raises"}]),
        "failed in schedule",
    )
    refused(write_log(tmp_path / "invalid.jsonl", [{"fault": "invalid"}]), "invalid on purpose")
    log = write_log(tmp_path / "gone.jsonl", [{"fault": "none"}])
    text = log.read_text()
    log.write_text(text.replace("tests.support.measure.faulty:Faulty", "someone.elses:Space"))
    refused(log, "cannot be loaded.*install its package")
    log.write_text(text.replace('"fingerprint":"', '"fingerprint":"autotvm:'))
    refused(log, "was imported for analysis")
    log.write_text(text.replace('"fingerprint":"', '"fingerprint":"other'))
    refused(log, "a different version of the space")


def test_a_config_is_shown_as_it_is_spelled(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", [{"fault": "none"}])
    log.write_text(log.read_text().replace('{"fault":"none"}', '{"fault":"[/red] [bold]"}'))
    code, output = invoke("best", log)
    assert code == 0 and "  fault = [/red] [bold]\n" in output


def test_a_library_with_a_quote_in_its_name(real_log: Path, tmp_path: Path) -> None:
    call = export_library([real_log], tmp_path / 'a"b.o').call_expression
    assert ast.literal_eval(call.partition("load_module(")[2].partition(")[")[0]) == str(tmp_path / 'a"b.o')


def test_export_without_a_format(real_log: Path, tmp_path: Path) -> None:
    code, output = invoke("export", real_log, "--out", tmp_path / "best")
    assert code == 2 and output.startswith("specify the format of") and "metaschedule, kernel-tuner" in output
    code, output = invoke("export", real_log, "--out", tmp_path / "best", "--to", "library")
    assert code == 2 and "unsupported library file" in output and not list(tmp_path.iterdir())
