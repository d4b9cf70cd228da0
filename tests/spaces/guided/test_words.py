"""GEMMs whose instruction sums products of int8 or bfloat16: right where the CPU has it, and refused elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm

from searchlab.apply.script import python_script
from searchlab.errors import SearchlabError
from searchlab.measure.local import LocalMeasurer
from searchlab.space import Config
from searchlab.target import Cache, Target, resolve_target
from searchlab.workload import gemm, parse_workload
from searchlab_spaces.guided.gemm import GuidedGemm
from searchlab_spaces.guided.gemm_algorithms import UNROLLED
from searchlab_spaces.guided.words import lacks

CACHES = (Cache(32 << 10, 8), Cache(1 << 20, 16), Cache(32 << 20, 16))
SMALL = (Cache(32 << 10, 8), Cache(64 << 10, 8), Cache(1 << 20, 8))
X86 = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "num-cores": 1}


def able(target: Target, dtype: str) -> Target:
    if why := lacks(dtype, target):
        pytest.skip(why)
    return target


def programs(space: GuidedGemm, count: int) -> list[Config]:
    """So many configs at random, of tiles that compile soon."""
    rng = np.random.default_rng(0)
    return [
        Config({**space.sample(rng), "mr": int(rng.integers(1, 9)), "nr": int(rng.integers(1, 4)) * space.lanes})
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("spelling", "options"),
    [
        ("gemm:64x64x64:int8", {}),  # nothing to pad
        ("gemm:1x1x1:int8", {}),
        ("gemm:37x75x131:int8:bias:relu", {"pack_b": "places"}),  # edges in every index, and in a word
        ("gemm:49x100x132:int8", {"pack_a": False, "pack_b": "places"}),  # an edge in a trip, of whole words
        ("gemm:49x100x132:int8:bias", {"pack_a": False, "kc": "knob"}),
        ("gemm:1x1000x512:int8", {"pack_a": False, "pack_b": False, "kc": "knob"}),
        ("gemm:600x48x70:int8", {"blocks": "knobs", "pack_a": "knob"}),
        ("gemm:65x129x256:int8", {"algorithm": "A3B2C0", "pack_a": "places"}),
        *(("gemm:70x90x64:int8:relu", {"parallel": loop}) for loop in ("ic", "jc", "ir", "jr")),
    ],
)
@pytest.mark.parametrize(("dtype", "cores"), [("int8", 1), ("bfloat16", 2)])
def test_result_is_right(
    spelling: str, options: dict[str, Any], dtype: str, cores: int, native: Target, measurer: LocalMeasurer
) -> None:
    workload = parse_workload(spelling.replace("int8", dtype))
    target = resolve_target({**able(native, dtype).spec, "num-cores": cores})
    space = GuidedGemm(workload, target, dot=True, **options)
    results = list(measurer.measure(space, programs(space, 2)))
    assert [result.failure for result in results] == [None] * 2, [result.message for result in results]


def test_the_extremes_of_int8_are_exact(native: Target) -> None:
    m, n, k = 5, 40, 300
    space = GuidedGemm(gemm(m, n, k, "int8"), able(native, "int8"), dot=True)
    module = tvm.compile(space.schedule(Config({"mr": 4, "nr": 2 * space.lanes})).mod, target=native.tvm).jit()
    least, most = np.iinfo(np.int8).min, np.iinfo(np.int8).max
    for left, right in ((least, least), (least, most), (most, least), (most, most)):
        a, b = np.full((m, k), left, np.int8), np.full((k, n), right, np.int8)
        result = tvm.runtime.tensor(np.zeros((m, n), np.int32))
        module["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), result)
        assert (result.numpy() == k * int(left) * int(right)).all()


@pytest.mark.parametrize(("width", "register"), [(512, "zmm"), (256, "ymm")])
@pytest.mark.parametrize("caches", [CACHES, SMALL], ids=["one-block", "several-blocks"])
@pytest.mark.parametrize(("dtype", "name"), [("int8", "vpdpbusd"), ("bfloat16", "vdpbf16ps")])
def test_sums_stay_in_registers(dtype: str, name: str, caches: tuple[Cache, ...], width: int, register: str) -> None:
    target = replace(resolve_target({**X86, "mcpu": "sapphirerapids", "vector-width": width}), caches=caches)
    space = GuidedGemm(gemm(8 * 43, 64, 576, dtype), target, dot=True, pack_a=False)
    schedule = space.schedule(Config({"mr": 8, "nr": 2 * space.lanes}))
    assembly = tvm.compile(schedule.mod, target=target.tvm).mod.inspect_source("asm")
    dot, store = rf"{name}\s.*%{register}", rf"vmov\w+\s+%{register}\d+, .*\("
    kernel = max(re.split(r"\n\.LBB\w+:|\n\tj", assembly), key=lambda part: len(re.findall(dot, part)))
    assert len(re.findall(dot, kernel)) >= 8 * 2 * UNROLLED
    assert len(re.findall(store, kernel)) <= 8 * 2  # after a trip at most, not after each step


def test_it_is_off_unless_asked_for_and_refused_where_it_cannot_be() -> None:
    target = resolve_target({**X86, "mcpu": "cascadelake"})
    workload = gemm(64, 64, 64, "int8")
    config = Config({"mr": 4, "nr": 32})
    assert "searchlab_dot" not in GuidedGemm(workload, target).schedule(config).mod.script()
    assert "searchlab_dot" in GuidedGemm(workload, target, dot=True).schedule(config).mod.script()
    cases: list[tuple[str, str, dict[str, Any], str]] = [
        ("cascadelake", "float32", {}, "for int8 and bfloat16, not for float32"),
        ("cascadelake", "int8", {"variant": "packed"}, "with C in registers"),
        ("cascadelake", "int8", {"algorithm": "C3B2A0"}, "with C in registers"),
        ("skylake-avx512", "int8", {}, "no AVX-512 VNNI"),
        ("haswell", "int8", {}, "no AVX-512 VNNI"),
        ("x86-64", "int8", {}, "no AVX-512 VNNI"),
        ("cascadelake", "bfloat16", {}, "no AVX512-BF16"),
    ]
    for cpu, dtype, options, why in cases:
        with pytest.raises(SearchlabError, match=why):
            GuidedGemm(gemm(64, 64, 64, dtype), resolve_target({**X86, "mcpu": cpu}), dot=True, **options)
    with pytest.raises(SearchlabError, match="option 'dot' is 'yes'; it must be true or false"):
        GuidedGemm(workload, target, dot="yes")  # type: ignore[arg-type]


def test_a_program_that_no_steps_make_of_the_workload_has_no_script() -> None:
    target = resolve_target({**X86, "mcpu": "cascadelake"})
    space = GuidedGemm(gemm(64, 64, 64, "int8"), target, dot=True)
    with pytest.raises(SearchlabError, match="cannot be written as"):
        python_script(space.schedule(Config({"mr": 4, "nr": 32})), space.workload, space.target, "a title")
