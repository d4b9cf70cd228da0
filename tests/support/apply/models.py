"""Relax modules of a few functions, and logs of what they compute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir.transform import Sequential
from tvm_ffi import structural_equal

from searchlab import apply_history_best, resolve_target
from searchlab.arrays import Array
from searchlab.errors import SearchlabWarning
from searchlab.log.format import Header, Record
from searchlab.log.writer import LogWriter
from searchlab.plugins import Plugin
from searchlab.records import Measurement, Trial
from searchlab.space import SPACES
from searchlab.workload import parse_workload

HERE: dict[str, Any] = {"kind": "llvm", "num-cores": 2}
"""A target whose programs run on every machine."""

Emit = Callable[..., Any]


def write_log_of(
    path: Path,
    workload: str,
    space: str | Plugin = "sketch",
    seconds: float = 1e-3,
    seed: int = 0,
    target: dict[str, Any] = HERE,
) -> Path:
    """Write a log of one random config with a synthetic time."""
    plugin, resolved = Plugin(space) if isinstance(space, str) else space, resolve_target(target)
    log_space = SPACES.make(plugin, parse_workload(workload), resolved)
    header = Header(
        workload=workload,
        space=plugin,
        fingerprint=log_space.fingerprint,
        policy=Plugin("random"),
        seed=seed,
        batch=1,
        target=resolved.to_json(),
        measure={},
    )
    writer = LogWriter(path, header, durable=False)
    (config,) = log_space.sample_new(np.random.default_rng(seed), 1, ())
    writer.append(Record.from_trial(Trial(0, config, Measurement((seconds,)))))
    writer.close()
    return path


def build_graph(emit: Emit, *shapes: tuple[int, ...], dtype: str = "float32") -> tvm.IRModule:
    """A Relax module whose ``main`` is ``emit(builder, *operands)``."""
    builder = relax.BlockBuilder()
    operands = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    with builder.function("main", operands):
        with builder.dataflow():
            result = builder.emit_output(emit(builder, *operands))
        builder.emit_func_output(result)
    return builder.get()


def legalize(emit: Emit, *shapes: tuple[int, ...], dtype: str = "float32") -> tvm.IRModule:
    return relax.transform.LegalizeOps()(build_graph(emit, *shapes, dtype=dtype))


def fuse(emit: Emit, *shapes: tuple[int, ...], dtype: str = "float32") -> tvm.IRModule:
    passes = [relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(), relax.transform.FuseTIR()]
    return Sequential(passes)(legalize(emit, *shapes, dtype=dtype))


def build_call(functions: list[Any], *shapes: tuple[int, ...], out: tuple[int, ...], dtype: str = "float32") -> Any:
    """A Relax module that calls the last of ``functions`` with operands of ``shapes``."""
    builder = relax.BlockBuilder()
    operands = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    with builder.function("main", operands):
        for function in functions:
            variable = builder.add_func(function.without_attr("global_symbol"), "tir")
        result = builder.emit(relax.call_tir(variable, operands, relax.TensorType(out, dtype)))
        builder.emit_func_output(result)
    return builder.get()


def scheduled_functions(module: tvm.IRModule) -> set[str]:
    return {
        variable.name_hint
        for variable, function in module.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc) and function.attrs.get("tirx.is_scheduled", False)
    }


def run(module: tvm.IRModule, *arrays: Array) -> Array:
    machine = relax.VirtualMachine(tvm.compile(module, target=resolve_target(HERE).tvm), tvm.cpu())
    result: Array = machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()
    return result


def draw_operands(module: tvm.IRModule) -> list[Array]:
    rng = np.random.default_rng(0)
    shapes = [
        ([int(extent) for extent in parameter.ty.shape], str(parameter.ty.dtype)) for parameter in module["main"].params
    ]
    return [rng.integers(-8, 8, shape).astype(dtype) for shape, dtype in shapes]  # whose sums are exact in any order


def apply_without_effect(module: tvm.IRModule, logs: Path) -> tvm.IRModule:
    with pytest.warns(SearchlabWarning, match="no function in the module computes"):
        applied = apply_history_best(module, logs)
    assert structural_equal(applied, module)
    return applied


def emit_bias(builder: relax.BlockBuilder, a: Any, b: Any, bias: Any) -> Any:
    return relax.op.add(builder.emit(relax.op.matmul(a, b)), bias)


def emit_bias_relu(builder: relax.BlockBuilder, a: Any, b: Any, bias: Any) -> Any:
    return relax.op.nn.relu(builder.emit(emit_bias(builder, a, b, bias)))


def emit_residual(builder: relax.BlockBuilder, a: Any, b: Any, bias: Any, residual: Any) -> Any:
    return relax.op.add(residual, builder.emit(emit_bias(builder, a, b, bias)))


def conv2d_emitter(**options: Any) -> Emit:
    def emit(builder: relax.BlockBuilder, data: Any, weight: Any, bias: Any) -> Any:
        result = builder.emit(relax.op.nn.conv2d(data, weight, **options))
        flat = len(bias.ty.shape) == 1
        broadcast = builder.emit(relax.op.reshape(bias, (1, bias.ty.shape[0], 1, 1))) if flat else bias
        return relax.op.nn.relu(builder.emit(relax.op.add(result, broadcast)))

    return emit


FUSED = [
    ("gemm:8x12x20:bias:relu", "sketch", emit_bias_relu, ((8, 20), (20, 12), (12,))),
    ("gemm:1x16x32:bias:relu", "knob-template", emit_bias_relu, ((1, 32), (32, 16), (1, 16))),
    ("gemm:8x12x20:bias", "guided-gemm", emit_bias, ((1, 8, 20), (20, 12), (1, 1, 12))),
    (
        "conv2d:1x8x8x16x4x3x3:p1:bias:relu",
        "guided-conv2d",
        conv2d_emitter(padding=1),
        ((1, 4, 8, 8), (16, 4, 3, 3), (1, 16, 1, 1)),
    ),
    (
        "conv2d:2x8x9x6x4x1x3:s2x1:bias:relu",
        "knob-template",
        conv2d_emitter(strides=(2, 1)),
        ((2, 4, 8, 9), (6, 4, 1, 3), (6,)),
    ),
    (
        "conv2d:1x8x8x6x4x3x3:p0x2:d1x2:bias:relu",
        "sketch",
        conv2d_emitter(padding=(0, 2), dilation=(1, 2)),
        ((1, 4, 8, 8), (6, 4, 3, 3), (1, 6, 1, 1)),
    ),
    ("gemm:8x12x20:bias:add", "guided-gemm", emit_residual, ((8, 20), (20, 12), (12,), (8, 12))),
]
