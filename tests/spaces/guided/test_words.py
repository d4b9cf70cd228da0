"""Programs whose instruction sums products of int8 or bfloat16: right where the CPU has it, refused elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm

from searchlab.errors import SearchlabError
from searchlab.measure.local import LocalMeasurer
from searchlab.space import Config, Space
from searchlab.target import Cache, Target, resolve_target
from searchlab.workload import gemm, parse_workload
from searchlab_spaces.guided.common import UNROLLED_STEPS
from searchlab_spaces.guided.conv2d import GuidedConv2d
from searchlab_spaces.guided.gemm import GuidedGemm
from searchlab_spaces.guided.words import explain_missing_instruction

CACHES = (Cache(32 << 10, 8), Cache(1 << 20, 16), Cache(32 << 20, 16))
SMALL = (Cache(32 << 10, 8), Cache(64 << 10, 8), Cache(1 << 20, 8))
X86 = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "num-cores": 1}


def skip_unless_supported(target: Target, dtype: str) -> Target:
    if why := explain_missing_instruction(dtype, target):
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
    target = resolve_target({**skip_unless_supported(native, dtype).spec, "num-cores": cores})
    space = GuidedGemm(workload, target, dot=True, **options)
    results = list(measurer.measure(space, programs(space, 2)))
    assert [result.failure for result in results] == [None] * 2, [result.message for result in results]


@pytest.mark.parametrize(
    ("spelling", "options"),
    [
        ("conv2d:1x14x14x16x16x1x1", {}),  # nothing to pad
        ("conv2d:2x13x7x37x33x3x3:p1:bias:relu", {}),  # edges in every index, and in a word
        ("conv2d:1x28x28x8x3x7x7:s2:p3", {}),
        ("conv2d:3x10x10x20x12x5x5:s2:bias", {}),
        ("conv2d:1x15x15x12x10x3x3:d2:p2:relu", {"blocks": "knobs"}),
        ("conv2d:2x9x9x40x32x1x1:s2:bias", {"blocks": "knobs"}),
        ("conv2d:1x2x2x1x4x1x1", {}),  # one word
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
@pytest.mark.parametrize("lowering", ["direct", "im2row"])
def test_a_convolution_is_right(
    spelling: str, options: dict[str, Any], lowering: str, dtype: str, native: Target, measurer: LocalMeasurer
) -> None:
    target = resolve_target({**skip_unless_supported(native, dtype).spec, "num-cores": 2})
    space = GuidedConv2d(parse_workload(f"{spelling}:{dtype}"), target, dot=True, **options)
    rng = np.random.default_rng(0)
    configs = [config for config in (space.sample(rng) for _ in range(99)) if config["lowering"] == lowering][:1]
    assert all("searchlab_dot" in space.schedule(config).mod.script() for config in configs)
    (result,) = measurer.measure(space, configs)
    assert result.failure is None, result.message


EXTREMES = [-128, 127]


@pytest.mark.parametrize("right", EXTREMES)
@pytest.mark.parametrize("left", EXTREMES)
def test_the_extremes_of_int8_are_exact(left: int, right: int, native: Target) -> None:
    skip_unless_supported(native, "int8")
    lanes = native.simd_bytes // 4
    product, image = parse_workload("gemm:5x40x300:int8"), parse_workload("conv2d:1x3x3x40x9x3x3:int8:p1")
    programs: list[tuple[Space, dict[str, Any]]] = [
        (GuidedGemm(product, native, dot=True), {"mr": 4, "nr": 2 * lanes}),
        (GuidedConv2d(image, native, dot=True), {"lowering": "direct", "channels": lanes, "width": 3, "height": 3}),
        (GuidedConv2d(image, native, dot=True), {"lowering": "im2row", "channels": 16, "pixels": lanes}),
    ]
    for space, config in programs:
        module = tvm.compile(space.schedule(Config(config)).mod, target=native.tvm).jit()
        shapes = list(space.workload.shapes.values())
        operands = [np.full(shape, value, np.int8) for shape, value in zip(shapes, (left, right), strict=False)]
        result = tvm.runtime.tensor(np.zeros(shapes[-1], np.int32))
        module["main"](*map(tvm.runtime.tensor, operands), result)
        names = list(space.workload.shapes)[:2]
        expected = space.workload.reference(dict(zip(names, operands, strict=True)))
        np.testing.assert_array_equal(result.numpy(), expected)
        assert abs(expected).max() >= 81 * abs(left * right)


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
    assert len(re.findall(dot, kernel)) >= 8 * 2 * UNROLLED_STEPS
    assert len(re.findall(store, kernel)) <= 8 * 2  # after a trip at most, not after each step


def test_words_are_optional_and_refused_where_impossible() -> None:
    target = resolve_target({**X86, "mcpu": "cascadelake"})
    workload = gemm(64, 64, 64, "int8")
    config = Config({"mr": 4, "nr": 32})
    assert "searchlab_dot" not in GuidedGemm(workload, target).schedule(config).mod.script()
    assert "searchlab_dot" in GuidedGemm(workload, target, dot=True).schedule(config).mod.script()
    cases: list[tuple[str, str, dict[str, Any], str]] = [
        ("cascadelake", "float32", {}, "for int8 and bfloat16, not for float32"),
        ("cascadelake", "int8", {"variant": "packed"}, "keeps C resident"),
        ("cascadelake", "int8", {"algorithm": "C3B2A0"}, "keeps C resident"),
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


@pytest.mark.parametrize(
    "choices",
    [
        {"lowering": "im2row", "pixels": 16, "channels": 12},
        {"lowering": "direct", "channels": 16, "width": 8, "height": 2},
    ],
)
def test_a_convolution_uses_dot_products_where_requested(choices: dict[str, Any]) -> None:
    target = resolve_target({**X86, "mcpu": "sapphirerapids"})
    for dtype, name in (("int8", "vpdpbusd"), ("bfloat16", "vdpbf16ps")):
        workload = parse_workload(f"conv2d:1x8x8x24x16x3x3:p1:{dtype}")
        for dot in (False, True):
            schedule = GuidedConv2d(workload, target, dot=dot).schedule(Config(choices))
            assembly = tvm.compile(schedule.mod, target=target.tvm).mod.inspect_source("asm")
            assert (len(re.findall(rf"{name}\s.*%zmm", assembly)) >= 12 * UNROLLED_STEPS) == dot


def test_a_convolution_refuses_impossible_dot_products() -> None:
    target = resolve_target({**X86, "mcpu": "sapphirerapids"})
    with pytest.raises(SearchlabError, match="not for float32"):
        GuidedConv2d(parse_workload("conv2d:1x8x8x24x16x3x3:p1"), target, dot=True)
    with pytest.raises(SearchlabError, match="option 'dot' is 1; it must be true or false"):
        GuidedConv2d(parse_workload("conv2d:1x8x8x24x16x3x3:int8"), target, dot=1)  # type: ignore[arg-type]
