"""The int8 GEMM whose instruction sums four products: right answers wherever its CPU is, and where it is refused."""

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
from searchlab_spaces.guided.gemm_words import suits

CACHES = (Cache(32 << 10, 8), Cache(1 << 20, 16), Cache(32 << 20, 16))
SMALL = (Cache(32 << 10, 8), Cache(64 << 10, 8), Cache(1 << 20, 8))
X86 = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "num-cores": 1}


@pytest.fixture
def vnni(native: Target) -> Target:
    if not suits(native):
        pytest.skip("this CPU has no AVX-512 VNNI")
    return native


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
@pytest.mark.parametrize("cores", [1, 2])
def test_result_is_right(
    spelling: str, options: dict[str, Any], cores: int, vnni: Target, measurer: LocalMeasurer
) -> None:
    target = resolve_target({**vnni.spec, "num-cores": cores})
    space = GuidedGemm(parse_workload(spelling), target, vnni=True, **options)
    results = list(measurer.measure(space, programs(space, 3)))
    assert [result.failure for result in results] == [None] * 3, [result.message for result in results]


def test_the_extremes_of_int8_are_exact(vnni: Target) -> None:
    m, n, k = 5, 40, 300
    space = GuidedGemm(gemm(m, n, k, "int8"), vnni, vnni=True)
    module = tvm.compile(space.schedule(Config({"mr": 4, "nr": 2 * space.lanes})).mod, target=vnni.tvm).jit()
    least, most = np.iinfo(np.int8).min, np.iinfo(np.int8).max
    for left, right in ((least, least), (least, most), (most, least), (most, most)):
        a, b = np.full((m, k), left, np.int8), np.full((k, n), right, np.int8)
        result = tvm.runtime.tensor(np.zeros((m, n), np.int32))
        module["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), result)
        assert (result.numpy() == k * int(left) * int(right)).all()


@pytest.mark.parametrize(("width", "register"), [(512, "zmm"), (256, "ymm")])
@pytest.mark.parametrize("caches", [CACHES, SMALL], ids=["one-block", "several-blocks"])
def test_sums_stay_in_registers(caches: tuple[Cache, ...], width: int, register: str) -> None:
    target = replace(resolve_target({**X86, "mcpu": "cascadelake", "vector-width": width}), caches=caches)
    space = GuidedGemm(gemm(8 * 43, 64, 576, "int8"), target, vnni=True, pack_a=False)
    schedule = space.schedule(Config({"mr": 8, "nr": 2 * space.lanes}))
    assembly = tvm.compile(schedule.mod, target=target.tvm).mod.inspect_source("asm")
    dot, store = rf"vpdpbusd\s.*%{register}", rf"vmov\w+\s+%{register}\d+, .*\("
    kernel = max(re.split(r"\n\.LBB\w+:|\n\tj", assembly), key=lambda part: len(re.findall(dot, part)))
    assert len(re.findall(dot, kernel)) >= 8 * 2 * UNROLLED
    assert len(re.findall(store, kernel)) <= 8 * 2  # after a trip at most, not after each step


def test_it_is_off_unless_asked_for_and_refused_where_it_cannot_be() -> None:
    target = resolve_target({**X86, "mcpu": "cascadelake"})
    workload = gemm(64, 64, 64, "int8")
    config = Config({"mr": 4, "nr": 32})
    assert "vpdpbusd" not in GuidedGemm(workload, target).schedule(config).mod.script()
    assert "vpdpbusd" in GuidedGemm(workload, target, vnni=True).schedule(config).mod.script()
    for spec, dtype, options, why in (
        ("cascadelake", "float32", {}, "it is for int8, not float32"),
        ("cascadelake", "int8", {"variant": "packed"}, "with C in registers"),
        ("cascadelake", "int8", {"algorithm": "C3B2A0"}, "with C in registers"),
        ("skylake-avx512", "int8", {}, "no AVX-512 VNNI"),
        ("haswell", "int8", {}, "no AVX-512 VNNI"),
    ):
        with pytest.raises(SearchlabError, match=why):
            GuidedGemm(gemm(64, 64, 64, dtype), resolve_target({**X86, "mcpu": spec}), vnni=True, **options)  # type: ignore[arg-type]
    with pytest.raises(SearchlabError, match="option 'vnni' is 'yes'; it must be true or false"):
        GuidedGemm(workload, target, vnni="yes")  # type: ignore[arg-type]


def test_a_program_that_no_steps_make_of_the_workload_has_no_script() -> None:
    target = resolve_target({**X86, "mcpu": "cascadelake"})
    space = GuidedGemm(gemm(64, 64, 64, "int8"), target, vnni=True)
    with pytest.raises(SearchlabError, match="cannot be written as"):
        python_script(space.schedule(Config({"mr": 4, "nr": 32})), space.workload, space.target, "a title")
