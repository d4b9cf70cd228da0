"""The code in which most of the time passes: kernels without preamble, and the loop that multiplies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from searchlab import gemm, resolve_target
from searchlab.apply.kernel import extract_innermost_loop, extract_kernels
from searchlab.measure.code import compile_program
from searchlab_spaces.guided.gemm import GuidedGemm


@pytest.mark.parametrize(
    ("spec", "instruction"),
    [
        ({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell", "num-cores": 2}, "\tvfmadd"),
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1", "num-cores": 2}, "\tfmla"),
    ],
)
def test_innermost_loop_is_the_one_of_the_micro_kernel(spec: dict[str, Any], instruction: str) -> None:
    target = resolve_target(spec)
    space = GuidedGemm(gemm(128, 128, 128), target)
    config = space.sample(np.random.default_rng(0))
    assembly = str(compile_program(space.schedule(config).mod, target).mod.inspect_source("s"))
    label, *body, jump = extract_innermost_loop(assembly).splitlines()
    assert jump.endswith(label.removesuffix(":"))
    assert sum(line.startswith(instruction) for line in body) > 4
    assert not any(line.startswith(".L") for line in body)


def test_code_without_a_loop_that_multiplies_is_shown_whole() -> None:
    text = "f:\n\timulq\t%rax, %rbx\n.LBB0_1:\n\tincq\t%rax\n\tjne\t.LBB0_1\n\tretq"
    assert extract_innermost_loop(text) == text


def test_kernels_begin_with_the_first_definition() -> None:
    kernel = 'extern "C" __global__ void f(float* x) {\n  x[0] = 1;\n}'
    assert extract_kernels(f'#include <a.h>\nextern "C" __global__ void f(float* x);\n{kernel}') == kernel
    assert extract_kernels("int x;") == "int x;"
