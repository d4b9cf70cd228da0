"""A tuned function for a GPU goes through Relax's pipeline, which fuses what may be fused."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import relax
from tvm.s_tir import Schedule

from searchlab.apply.history import apply_history_best
from searchlab.conformance import toys
from searchlab.run.tune import tune
from searchlab.target import resolve_target
from searchlab.workload import gemm
from searchlab_spaces.trace import Trace
from tests.support.logs import write_table

CUDA = {"kind": "cuda", "arch": "sm_90"}


def columns(sch: Schedule) -> None:
    """A block for each row, and a thread for some columns."""
    block = sch.get_sblock("gemm")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, sch.sample_perfect_tile(j, n=2, max_innermost_factor=16))
    sch.bind(sch.fuse(i, j0), "blockIdx.x")
    sch.bind(j1, "threadIdx.x")
    sch.decompose_reduction(block, k)


def test_a_tuned_function_is_fused_with_no_other(tmp_path: Path) -> None:
    workload = gemm(16, 16, 16)
    table = write_table(
        tmp_path / "t.jsonl", Trace(workload, resolve_target(CUDA), function=columns), toys.simulate_smooth
    )
    result = tune(
        workload,
        space={"name": "trace", "options": {"function": columns}},
        policy="random",
        log=tmp_path / "a.jsonl",
        trials=2,
        target=CUDA,
        measure={"kind": "table", "path": str(table)},
    )
    a, b, bias = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in zip(("a", "b", "bias"), ((16, 16), (16, 16), (16,)), strict=True)
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [a, b, bias]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.relu(relax.op.add(relax.op.matmul(a, b), bias)))
        builder.emit_func_output(out)
    model = apply_history_best(relax.transform.LegalizeOps()(builder.get()), result)
    with result.space.target.tvm:
        fused = tvm.transform.Sequential(
            [relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(), relax.transform.FuseTIR()]
        )(model)
    names = {variable.name_hint for variable in fused.functions}
    assert names == {"main", "matmul", "fused_add_relu"}
    tvm.compile(model, result.space.target.tvm)
