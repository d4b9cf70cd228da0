"""Tuned programs in Relax modules: which functions are replaced, which are not, and that results stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, topi
from tvm.s_tir import Schedule
from tvm.s_tir import dlight as dl
from tvm.script import tirx as T
from tvm_ffi import structural_equal

from searchlab import apply_history_best, load_log, resolve_target
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.exchange.exports import export_logs
from tests.support.apply.models import (
    FUSED,
    HERE,
    Emit,
    apply_without_effect,
    build_call,
    build_graph,
    conv2d_emitter,
    draw_operands,
    emit_bias,
    emit_bias_relu,
    fuse,
    legalize,
    run,
    scheduled_functions,
    write_log_of,
)
from tests.support.exchange import TARGET as OTHER
from tests.support.exchange import write_log


@pytest.mark.parametrize(("workload", "space", "emit", "shapes"), FUSED)
def test_fused_functions_are_replaced(
    workload: str, space: str, emit: Emit, shapes: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    module = fuse(emit, *shapes)
    result = load_log(write_log_of(tmp_path / "a.jsonl", workload, space))
    scheduled = apply_history_best(module, result)
    (name,) = scheduled_functions(scheduled)
    assert name.startswith("fused_")
    assert not scheduled_functions(module)
    for variable, function in module.functions.items():
        if variable.name_hint != name:
            assert structural_equal(scheduled[variable.name_hint], function)
    before, after = module[name], scheduled[name]
    assert list(after.params) == list(before.params)
    assert dict(after.attrs.items()) == {**dict(before.attrs.items()), "tirx.is_scheduled": True, "op_pattern": 8}
    assert structural_equal(after.body.seq[-1], result.best.schedule().mod["main"].body, map_free_vars=True)

    arrays = draw_operands(module)
    shapes_of = list(result.space.workload.shapes.items())[:-1]
    inputs = {name: array.reshape(shape) for (name, shape), array in zip(shapes_of, arrays, strict=True)}
    results = run(scheduled, *arrays)
    np.testing.assert_array_equal(results, run(module, *arrays))
    np.testing.assert_array_equal(results.ravel(), result.space.workload.reference(inputs).ravel())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int8"])
def test_functions_that_relax_did_not_fuse_are_replaced(dtype: str, tmp_path: Path) -> None:
    out = {"int8": "int32", "bfloat16": "float32"}.get(dtype, dtype)
    module = legalize(lambda _, a, b: relax.op.matmul(a, b, out), (8, 20), (20, 12), dtype=dtype)
    scheduled = apply_history_best(module, write_log_of(tmp_path / "a.jsonl", f"gemm:8x12x20:{dtype}"))
    assert scheduled_functions(scheduled) == {"matmul"}
    arrays = draw_operands(module)
    np.testing.assert_array_equal(run(scheduled, *arrays), run(module, *arrays))


def two_layers(builder: relax.BlockBuilder, x: Any, w0: Any, b0: Any, w1: Any, b1: Any) -> Any:
    return emit_bias(builder, builder.emit(emit_bias_relu(builder, x, w0, b0)), w1, b1)


LAYERS = ((4, 24), (24, 16), (16,), (16, 8), (8,))


def test_only_tuned_functions_are_replaced_and_dlight_keeps_them(tmp_path: Path) -> None:
    module = fuse(two_layers, *LAYERS)
    scheduled = apply_history_best(module, write_log_of(tmp_path / "a.jsonl", "gemm:4x16x24:bias:relu"))
    assert scheduled_functions(scheduled) == {"fused_matmul_add_relu"}
    with resolve_target(HERE).tvm:
        by_dlight = dl.ApplyDefaultSchedule(dl.cpu.GEMV())(scheduled)
    assert structural_equal(by_dlight["fused_matmul_add_relu"], scheduled["fused_matmul_add_relu"])
    by_both = apply_history_best(scheduled, write_log_of(tmp_path / "b.jsonl", "gemm:4x8x16:bias"))
    assert len(scheduled_functions(by_both)) == 2
    arrays = draw_operands(module)
    np.testing.assert_array_equal(run(by_both, *arrays), run(module, *arrays))


def test_a_directory_of_logs_schedules_every_matching_function(tmp_path: Path) -> None:
    def emit(builder: relax.BlockBuilder, x: Any, w: Any, b: Any) -> Any:
        once = builder.emit(emit_bias_relu(builder, x, w, b))
        return emit_bias(builder, builder.emit(relax.op.matmul(once, w)), w, b)

    write_log_of(tmp_path / "logs" / "a.jsonl", "gemm:16x16x16:bias:relu")
    write_log_of(tmp_path / "logs" / "deep" / "b.jsonl", "gemm:16x16x16:bias", "knob-template")
    write_log_of(tmp_path / "c.jsonl", "gemm:16x16x16")
    module = fuse(emit, (16, 16), (16, 16), (16,))
    scheduled = apply_history_best(module, [tmp_path / "logs", str(tmp_path / "c.jsonl")])
    assert len(scheduled_functions(scheduled)) == 3
    arrays = draw_operands(module)
    np.testing.assert_array_equal(run(scheduled, *arrays), run(module, *arrays))


@pytest.mark.parametrize("faster", [0, 1])
def test_the_faster_of_two_logs_counts(faster: int, tmp_path: Path) -> None:
    logs = [
        write_log_of(tmp_path / f"{i}.jsonl", "gemm:8x12x20", seconds=1e-3 / (1 + (i == faster)), seed=i)
        for i in range(2)
    ]
    programs = [load_log(log).best.schedule().mod["main"].body for log in logs]
    assert not structural_equal(*programs, map_free_vars=True)
    scheduled = apply_history_best(legalize(lambda _, a, b: relax.op.matmul(a, b), (8, 20), (20, 12)), logs)
    assert structural_equal(scheduled["matmul"].body.seq[-1], programs[faster], map_free_vars=True)


# --- functions from elsewhere -------------------------------------------------------------------------


@T.prim_func(s_tir=True)
def by_hand(
    bias: T.Buffer((12,), "float32"),
    weight: T.Buffer((20, 12), "float32"),
    x: T.Buffer((8, 20), "float32"),
    z: T.Buffer((8, 12), "float32"),
) -> None:
    y = T.sblock_alloc_buffer((8, 12), "float32")
    for i, j, k in T.grid(8, 12, 20):
        with T.sblock("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + x[vi, vk] * weight[vk, vj]
    for i, j in T.grid(8, 12):
        with T.sblock("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            z[vi, vj] = y[vi, vj] + bias[vj]


def test_arguments_in_another_order(tmp_path: Path) -> None:
    module = build_call([by_hand], (12,), (20, 12), (8, 20), out=(8, 12))
    scheduled = apply_history_best(module, write_log_of(tmp_path / "a.jsonl", "gemm:8x12x20:bias"))
    assert scheduled_functions(scheduled) == {"tir"}
    bias, weight, x = draw_operands(module)
    np.testing.assert_array_equal(run(scheduled, bias, weight, x), x @ weight + bias)


def product(scale: float = 1.0, start: float = 0.0, transposed: bool = False, leak: float | None = None) -> Any:
    """Return a GEMM 8x12x20 written in TE, or a similar computation."""
    a = te.placeholder((8, 20), name="x")
    b = te.placeholder((12, 20) if transposed else (20, 12), name="w")
    k = te.reduce_axis((0, 20), "k")
    plus = te.comm_reducer(lambda x, y: x + y, lambda dtype: tvm.tirx.const(start, dtype))

    def term(i: Any, j: Any) -> Any:
        factor = a[i, k] * (b[j, k] if transposed else b[k, j])
        return factor if scale == 1.0 else factor * tvm.tirx.const(scale, "float32")

    c = te.compute((8, 12), lambda i, j: plus(term(i, j), axis=k), name="y")
    return te.create_prim_func([a, b, c if leak is None else topi.nn.leaky_relu(c, leak)])


def test_functions_from_te_are_replaced(tmp_path: Path) -> None:
    module = build_call([product()], (8, 20), (20, 12), out=(8, 12))
    scheduled = apply_history_best(module, write_log_of(tmp_path / "a.jsonl", "gemm:8x12x20"))
    assert scheduled_functions(scheduled) == {"tir"}
    a, b = draw_operands(module)
    np.testing.assert_array_equal(run(scheduled, a, b), a @ b)


@pytest.mark.parametrize(
    ("near", "workload"),
    [
        ({"scale": 2.0}, "gemm:8x12x20"),
        ({"start": 1.0}, "gemm:8x12x20"),
        ({"leak": 0.01}, "gemm:8x12x20:relu"),
        ({"leak": 0.0}, "gemm:8x12x20"),
        ({}, "gemm:8x12x20:relu"),
        ({}, "gemm:8x20x12"),
    ],
)
def test_near_misses_are_left(near: dict[str, Any], workload: str, tmp_path: Path) -> None:
    module = build_call([product(**near)], (8, 20), (20, 12), out=(8, 12))
    apply_without_effect(module, write_log_of(tmp_path / "a.jsonl", workload))


def test_another_dtype_stride_or_axis_of_the_bias_is_left(tmp_path: Path) -> None:
    half = legalize(lambda _, a, b: relax.op.matmul(a, b), (8, 20), (20, 12), dtype="float16")
    apply_without_effect(half, write_log_of(tmp_path / "a.jsonl", "gemm:8x12x20"))
    columns = fuse(emit_bias, (16, 20), (20, 16), (16, 1))
    apply_without_effect(columns, write_log_of(tmp_path / "b.jsonl", "gemm:16x16x20:bias"))
    strided = fuse(conv2d_emitter(padding=1, dilation=2), (1, 4, 9, 9), (6, 4, 3, 3), (6,))
    apply_without_effect(strided, write_log_of(tmp_path / "c.jsonl", "conv2d:1x9x9x6x4x3x3:p1:s2x1:bias:relu"))


def test_transposed_weights_are_named(tmp_path: Path) -> None:
    square = tmp_path / "b.jsonl"
    module = build_call([product(transposed=True)], (8, 20), (12, 20), out=(8, 12))
    with pytest.warns(
        SearchlabWarning, match=r"; tir stores B in the other order: tune gemm:8x12x20:nt instead"
    ) as caught:
        apply_history_best(module, write_log_of(tmp_path / "a.jsonl", "gemm:8x12x20"))
    assert "tir(float32[8, 20], float32[12, 20], float32[8, 12])" in str(caught[0].message)
    write_log_of(square, "gemm:16x16x16")
    a, b = te.placeholder((16, 16), name="a"), te.placeholder((16, 16), name="b")
    function = te.create_prim_func([a, b, topi.matmul(a, b, transp_b=True)])
    apply_without_effect(build_call([function], (16, 16), (16, 16), out=(16, 16)), square)


@T.prim_func(s_tir=True)
def through_a_window(
    x: T.Buffer((8, 20), "float32"), w: T.Buffer((20, 12), "float32"), y: T.Buffer((8, 12), "float32")
) -> None:
    for i, j, k in T.grid(8, 12, 20):
        with T.sblock("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(x[vi, vk], w[vk, vj])
            T.writes(y[vi, vj])
            window = T.match_buffer(x[vi, vk], (1, 1), "float32", strides=("s0", "s1"), offset_factor=1)
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + window[0, 0] * w[vk, vj]


def test_functions_that_lower_differently_are_not_replaced(tmp_path: Path) -> None:
    module = build_call([through_a_window], (8, 20), (20, 12), out=(8, 12))
    apply_without_effect(module, write_log_of(tmp_path / "a.jsonl", "gemm:8x12x20"))


def test_a_module_that_was_not_lowered(tmp_path: Path) -> None:
    module = build_graph(lambda _, a, b: relax.op.matmul(a, b), (8, 20), (20, 12))
    with pytest.warns(
        SearchlabWarning, match="functions in the module: none; relax.transform.LegalizeOps creates them"
    ):
        apply_history_best(module, write_log_of(tmp_path / "a.jsonl", "gemm:8x12x20"))


def test_unknown_shapes_and_scheduled_functions_are_left(tmp_path: Path) -> None:
    log = write_log_of(tmp_path / "a.jsonl", "gemm:8x12x20")
    n = te.var("n", "int64")
    a, b = te.placeholder((n, 20), name="a"), te.placeholder((20, 12), name="b")
    dynamic = tvm.IRModule({"f": te.create_prim_func([a, b, topi.matmul(a, b)])})
    with pytest.warns(SearchlabWarning, match=r": f\(of unknown shape\)$"):
        assert structural_equal(apply_history_best(dynamic, log), dynamic)
    already_scheduled = tvm.IRModule({"f": product().with_attr("tirx.is_scheduled", True)})
    apply_without_effect(already_scheduled, log)
    schedule = Schedule(tvm.IRModule({"main": product()}))
    schedule.parallel(schedule.get_loops(schedule.get_sblock("y"))[0])
    apply_without_effect(schedule.mod, log)


# --- logs ---------------------------------------------------------------------------------------------


def test_logs_of_another_target_do_not_count(tmp_path: Path) -> None:
    module = legalize(lambda _, a, b: relax.op.matmul(a, b), (64, 64), (64, 64))
    fast = write_log(tmp_path / "fast.jsonl", "knob-template").path  # its best takes less than 1e-3
    slow = write_log_of(tmp_path / "slow.jsonl", "gemm:64x64x64", "knob-template")
    with pytest.raises(SearchlabError, match="the logs are for 2 targets: .* choose one of them with target="):
        apply_history_best(module, tmp_path)
    for target, log in ((HERE, slow), (OTHER, fast)):
        scheduled = apply_history_best(module, tmp_path, target)
        program = load_log(log).best.schedule().mod["main"].body
        assert structural_equal(scheduled["matmul"].body.seq[-1], program, map_free_vars=True)
    with pytest.raises(SearchlabError, match="none of the logs is for the target .*they are for .*skylake-avx512"):
        apply_history_best(module, fast, HERE)


def test_logs_from_machines_with_other_caches_have_one_target(tmp_path: Path) -> None:
    fast = write_log_of(tmp_path / "a.jsonl", "gemm:8x12x20")
    slow = write_log_of(
        tmp_path / "b.jsonl", "gemm:8x12x20", seconds=1.0, target=HERE | {"caches": [[4096, 4], [65536, 8]]}
    )
    assert resolve_target(load_log(slow).log.header.target) != resolve_target(HERE)
    scheduled = apply_history_best(legalize(lambda _, a, b: relax.op.matmul(a, b), (8, 20), (20, 12)), [slow, fast])
    program = load_log(fast).best.schedule().mod["main"].body
    assert structural_equal(scheduled["matmul"].body.seq[-1], program, map_free_vars=True)


def test_logs_without_anything_to_apply_are_refused(tmp_path: Path) -> None:
    module = legalize(lambda _, a, b: relax.op.matmul(a, b), (8, 20), (20, 12))
    with pytest.raises(SearchlabError, match="no logs"):
        apply_history_best(module, tmp_path)
    with pytest.raises(SearchlabError, match="an empty list"):
        apply_history_best(module, [])
    with pytest.raises(SearchlabError, match="cannot read"):
        apply_history_best(module, tmp_path / "none.jsonl")
    log = write_log_of(tmp_path / "a.jsonl", "gemm:8x12x20")
    header = log.read_text().splitlines()[0]
    log.write_text(f"{header}\n")
    with pytest.raises(SearchlabError, match="no log has a successful trial"):
        apply_history_best(module, log)


# --- the way through a MetaSchedule database ----------------------------------------------------------


@pytest.mark.parametrize(("workload", "space", "emit", "shapes"), [FUSED[0], FUSED[3], FUSED[4], FUSED[5]])
def test_metaschedule_applies_an_exported_database(
    workload: str, space: str, emit: Emit, shapes: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    module = fuse(emit, *shapes)
    log = write_log_of(tmp_path / "a.jsonl", workload, space)
    assert export_logs([log], "metaschedule", tmp_path / "db") == (1, [])
    with resolve_target(HERE).tvm:
        scheduled = relax.transform.MetaScheduleApplyDatabase(str(tmp_path / "db"))(module)
    assert scheduled_functions(scheduled) == scheduled_functions(apply_history_best(module, log))
    arrays = draw_operands(module)
    np.testing.assert_array_equal(run(scheduled, *arrays), run(module, *arrays))


@pytest.mark.parametrize("make", [legalize, fuse])
def test_metaschedule_puts_back_a_product_alone(make: Any, tmp_path: Path) -> None:
    module = make(lambda _, a, b: relax.op.matmul(a, b), (8, 20), (20, 12))
    export_logs([write_log_of(tmp_path / "a.jsonl", "gemm:8x12x20")], "metaschedule", tmp_path / "db")
    with resolve_target(HERE).tvm:
        scheduled = relax.transform.MetaScheduleApplyDatabase(str(tmp_path / "db"))(module)
    assert scheduled_functions(scheduled) == {"matmul"}
