"""The forms of a workload in Relax: after LegalizeOps alone, and after FuseOps and FuseTIR too.

``relax.transform.MetaScheduleApplyDatabase`` finds a function only if all but its names is equal. The forms in Relax
differ from the tuned workload: they have 64-bit indices, the bias of a conv2d is [1, co, 1, 1], an input without
padding is copied, and a function that was not fused has an ``op_pattern``.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import Var
from tvm.s_tir import SBlock, Schedule
from tvm_ffi import structural_equal, structural_map

from ..workload import Conv2d, Workload


def relax_forms(workload: Workload) -> list[tvm.IRModule]:
    """Modules of one function ``main``, whose blocks have the same names as in the module of ``workload``."""
    legal = relax.transform.LegalizeOps()(_graph(workload))
    fused = tvm.ir.transform.Sequential([
        relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(), relax.transform.FuseTIR(),
    ])(legal)  # fmt: skip
    forms: list[tvm.IRModule] = []
    for module in (legal, fused):
        functions = [function for function in module.functions.values() if isinstance(function, tvm.tirx.PrimFunc)]
        if len(functions) > 1:
            continue  # the epilogue is in other functions, which are no workloads
        form = tvm.IRModule({"main": _named(functions[0], workload).with_attr("global_symbol", "main")})
        if not any(structural_equal(form, other) for other in forms):
            forms.append(form)
    return forms


def replayed(trace: Any, form: tvm.IRModule) -> Schedule:
    """``form`` after ``trace``, which is of the same workload."""
    schedule = Schedule(form)
    if COPY in [schedule.get(block).name_hint for block in schedule.get_child_blocks(schedule.get_sblock("root"))]:
        schedule.compute_inline(schedule.get_sblock(COPY))
    trace.apply_to_schedule(schedule, remove_postproc=False)
    return schedule


COPY = "copy"
"""The name of the block that copies the input of a conv2d without padding."""


def _graph(workload: Workload) -> tvm.IRModule:
    """A Relax function ``main`` of the workload's operands."""
    builder = relax.BlockBuilder()
    shapes = {name: list(shape) for name, shape in list(workload.shapes.items())[:-1]}
    if isinstance(workload, Conv2d) and workload.bias:
        shapes["bias"] = [1, workload.co, 1, 1]
    operands = [
        relax.Var(name, relax.TensorType(shape, workload.out_dtype if name == "bias" else workload.dtype))
        for name, shape in shapes.items()
    ]
    with builder.function("main", operands):
        with builder.dataflow():
            result = builder.emit_output(_finished(builder, workload, operands))
        builder.emit_func_output(result)
    return builder.get()


def _finished(builder: relax.BlockBuilder, workload: Workload, operands: list[relax.Var]) -> relax.Expr:
    first, second = operands[:2]
    if isinstance(workload, Conv2d):
        result = relax.op.nn.conv2d(
            first, second, workload.stride, workload.padding, workload.dilation, out_dtype=workload.out_dtype
        )
    else:
        result = relax.op.matmul(first, second, workload.out_dtype)
    if workload.bias:
        result = relax.op.add(builder.emit(result), operands[2])
    return relax.op.nn.relu(builder.emit(result)) if workload.relu else result


def _named(function: Any, workload: Workload) -> Any:
    """``function`` with the names of the workload's blocks and buffers, which are in the same order.

    A trace finds blocks by name, and a block that packs or pads a buffer is named after the buffer.
    """
    blocks, buffers = _parts(function)
    own_blocks, own_buffers = _parts(workload.prim_func())
    inputs = len(function.params)
    names = [COPY] * (len(blocks) - len(own_blocks)) + own_blocks
    renamed = dict(zip(blocks, names, strict=True))
    copied = [COPY] * (len(buffers) - len(own_buffers))
    own_names = [buffer.name for buffer in own_buffers]
    titles = [*own_names[:inputs], *copied, *own_names[inputs:]]
    variables = {buffer: Var(title, buffer.ty) for buffer, title in zip(buffers, titles, strict=True)}

    def rename(block: Any) -> Any:
        if block.name_hint not in renamed:
            return block
        return SBlock(
            block.iter_vars, block.reads, block.writes, renamed[block.name_hint], block.body, block.init,
            block.alloc_buffers, block.match_buffers, block.annotations,
        )  # fmt: skip

    return structural_map(function, [(SBlock, rename), (Var, lambda variable: variables.get(variable, variable))])


def _parts(function: Any) -> tuple[list[str], list[Any]]:
    """Names of the blocks of a function, in order, and its buffers: parameters, then allocated ones."""
    schedule = Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    blocks = [str(schedule.get(block).name_hint) for block in schedule.get_child_blocks(schedule.get_sblock("root"))]
    return blocks, [*function.params, *function.body.block.alloc_buffers]
