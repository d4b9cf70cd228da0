"""Programs of the guided spaces that take constant weights packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.target.codegen import target_has_features

import searchlab
from searchlab.errors import SearchlabError
from searchlab.measure.code import pack_inputs
from searchlab.plugins import Plugin
from searchlab.space import SPACES, Config, Space
from searchlab.target import Target, resolve_target
from searchlab.workload import packed_arguments, parse_workload
from searchlab_spaces.guided.words import INSTRUCTIONS
from tests.support.spaces.targets import UNOPTIMIZED


@pytest.fixture(scope="module")
def native() -> Target:
    return resolve_target({**UNOPTIMIZED, "num-cores": 2})


def make_packed_space(space: str, workload: str, target: Target, **options: Any) -> Space:
    parsed = parse_workload(workload)
    dtype = parsed.arguments[0].dtype
    if options.get("dot") and not target_has_features(INSTRUCTIONS[dtype].feature, target.tvm):
        pytest.skip(f"this CPU has no dot products of {dtype}")
    return SPACES.make(Plugin(space, {**options, "weights": "packed"}), parsed, target)


SPACES_AND_OPTIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("guided-conv2d", "conv2d:2x7x8x30x17x3x3:p1:bias:relu", {"blocks": "knobs"}),
    ("guided-conv2d", "conv2d:2x9x8x30x17x1x1:s2x1:relu", {"blocks": "knobs"}),
    ("guided-conv2d", "conv2d:1x9x8x32x17x1x1:s2:p1", {}),
    ("guided-conv2d", "conv2d:1x8x7x32x16x3x3:s2:p0x0x1x2", {}),
    ("guided-conv2d", "conv2d:2x7x8x30x17x3x3:p1:int8", {"dot": True, "blocks": "knobs"}),
    ("guided-conv2d", "conv2d:1x7x7x32x16x1x1:bias:add:int8", {"dot": True}),
    ("guided-conv2d", "conv2d:1x7x7x30x17x3x3:bfloat16", {"dot": True}),
    ("guided-gemm", "gemm:37x53x29:bias:relu", {"variant": "packed"}),
    ("guided-gemm", "gemm:40x96x64", {"algorithm": "A3C2B0"}),
    ("guided-gemm", "gemm:40x96x64", {"algorithm": "A3B2C0", "blocks": "knobs"}),
    ("guided-gemm", "gemm:40x96x64", {"algorithm": "B3C2A0"}),
    ("guided-gemm", "gemm:7x48x95:bias:int8", {"dot": True, "tiles": "fitting", "kc": "knob"}),
]


@pytest.mark.parametrize(("name", "workload", "options"), SPACES_AND_OPTIONS)
def test_the_answer_is_right_and_the_weights_are_packed_once(
    name: str, workload: str, options: dict[str, Any], native: Target
) -> None:
    space = make_packed_space(name, workload, native, **options)
    weights = {"guided-conv2d": "weight", "guided-gemm": "B"}[name]
    inputs = {operand: tvm.runtime.tensor(array) for operand, array in space.workload.inputs().items()}
    *_, result = space.workload.arguments
    rtol, atol = space.workload.tolerance()
    for config in space.sample_new(np.random.default_rng(2), 3, ()):
        module = space.schedule(config).mod
        packed = packed_arguments(module)
        assert list(packed) == [weights]
        program = tvm.compile(module, target=native.tvm).jit()
        operands = pack_inputs(program, packed, inputs)
        assert [array.shape for array in operands[weights]] == [operand.shape for operand in packed[weights]]
        computed = tvm.runtime.tensor(result.unwritten())
        program["main"](*(array for arrays in operands.values() for array in arrays), computed)
        expected = space.workload.reference(space.workload.inputs())
        np.testing.assert_allclose(computed.numpy(), expected, rtol=rtol, atol=atol)


def test_winograd_takes_transformed_weights(native: Target) -> None:
    space = make_packed_space("guided-conv2d", "conv2d:1x9x9x16x8x3x3:p1", native, winograd=True)
    (kernels,) = packed_arguments(space.schedule(Config({"lowering": "winograd", "pixels": 16, "channels": 14})).mod)[
        "weight"
    ]
    assert kernels.shape[1:3] == (6, 6)


def test_row_sums_of_int8_weights_are_packed_too(native: Target) -> None:
    space = make_packed_space("guided-conv2d", "conv2d:1x7x7x32x16x1x1:int8", native, dot=True)
    arrays = packed_arguments(space.schedule(space.sample(np.random.default_rng(0))).mod)["weight"]
    assert [array.shape for array in arrays if array.name == "sums"] == [(32,)] and len(arrays) == 2


@pytest.mark.parametrize(
    ("workload", "taps"),
    [
        ("conv2d:1x1x8x16x4x3x3:p1", (slice(None), slice(None), [0, 2], slice(None))),
        ("conv2d:1x8x1x16x4x3x3:p1", (slice(None), slice(None), slice(None), [0, 2])),
    ],
)
def test_products_with_padding_are_omitted(workload: str, taps: tuple[Any, ...], native: Target) -> None:
    """Weights that only meet padding may be anything, even NaN."""
    space = make_packed_space("guided-conv2d", workload, native)
    inputs = space.workload.inputs()
    expected = space.workload.reference(inputs)
    inputs["weight"][taps] = np.nan
    configs = [candidate for candidate in space.enumerate() if candidate["lowering"] == "direct"]
    for config in configs[:2]:
        module = space.schedule(config).mod
        program = tvm.compile(module, target=native.tvm).jit()
        tensors = {name: tvm.runtime.tensor(array) for name, array in inputs.items()}
        operands = pack_inputs(program, packed_arguments(module), tensors)
        result = tvm.runtime.empty(expected.shape)
        program["main"](*(array for arrays in operands.values() for array in arrays), result)
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{"variant": "blocked"}, {"pack_b": False}, {"pack_b": "panel"}])
def test_a_gemm_whose_b_cannot_be_packed_is_refused(options: dict[str, Any], native: Target) -> None:
    with pytest.raises(SearchlabError, match="weights='packed' requires variant"):
        make_packed_space("guided-gemm", "gemm:8x8x8", native, **options)


def test_a_run_resumes_and_a_table_replays_it(tmp_path: Path, native: Target) -> None:
    log, space = tmp_path / "a.jsonl", {"name": "guided-gemm", "options": {"weights": "packed"}}
    options: dict[str, Any] = {
        "space": space,
        "policy": "random",
        "batch": 2,
        "seed": 3,
        "target": native,
        "measure": {"kind": "local", "repeat": 1, "min_repeat_ms": 0, "finalists": 0, "sentinel": 0},
    }
    complete = searchlab.tune("gemm:8x16x8", trials=4, log=log, **options)
    assert [trial.measurement.failure for trial in complete.trials] == [None] * 4
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:3]))
    resumed = searchlab.tune("gemm:8x16x8", trials=4, log=log, **options)
    assert [trial.config for trial in resumed.trials] == [trial.config for trial in complete.trials]
    assert searchlab.load_log(log).space.made_with == {"weights": "packed"}
    table = {"measure": {"kind": "table", "path": str(log)}}
    replayed = searchlab.tune("gemm:8x16x8", trials=4, log=tmp_path / "b.jsonl", **{**options, **table})
    assert [trial.cost for trial in replayed.trials] == [trial.cost for trial in resumed.trials]
