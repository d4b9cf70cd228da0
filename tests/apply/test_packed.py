"""Programs that take weights packed, in Relax modules and in libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import searchlab
from searchlab import apply_history_best
from searchlab.apply.best import export_library
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.plugins import Plugin
from tests.support.apply.models import draw_operands, legalize, run, scheduled_functions, write_log_of

PACKED = Plugin("guided-conv2d", {"weights": "packed"})
CONV2D = "conv2d:1x8x8x16x4x3x3:p1"


def weights(*shape: int, seed: int = 0) -> Any:
    return relax.const(np.random.default_rng(seed).integers(-8, 8, shape).astype("float32"))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log_of(tmp_path_factory.mktemp("logs") / "a.jsonl", CONV2D, PACKED)


def shapes(module: tvm.IRModule, called: str) -> list[list[list[int]]]:
    """The shapes of the arguments in each call of a function."""
    values = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    calls = [value for value in values if isinstance(value, tvm.ir.Call) and "call_tir" in str(value.op)]
    return [
        [[int(extent) for extent in argument.ty.shape] for argument in value.args[1]]
        for value in calls
        if value.args[0].name_hint == called
    ]


def test_constant_weights_are_packed_once(log: Path) -> None:
    def twice(builder: relax.BlockBuilder, x: Any) -> Any:
        first, second = weights(16, 4, 3, 3), weights(16, 4, 3, 3, seed=1)
        conv = builder.emit(relax.op.nn.conv2d(x, first, padding=1))
        return relax.op.add(conv, builder.emit(relax.op.nn.conv2d(x, second, padding=1)))

    module = legalize(twice, (1, 4, 8, 8))
    scheduled = apply_history_best(module, log)
    assert scheduled_functions(scheduled) == {"conv2d_packed"}
    assert "conv2d" not in {variable.name_hint for variable in scheduled.functions}
    (packed,) = searchlab.workload.packed_arguments(searchlab.apply_best(log).module)["weight"]
    assert shapes(scheduled, "conv2d_packed") == [[[1, 4, 8, 8], list(packed.shape)]] * 2
    (x,) = draw_operands(module)
    np.testing.assert_array_equal(run(scheduled, x), run(module, x))


def test_weights_that_are_not_constant_are_packed_in_every_call(log: Path) -> None:
    module = legalize(lambda _, x, w: relax.op.nn.conv2d(x, w, padding=1), (1, 4, 8, 8), (16, 4, 3, 3))
    with pytest.warns(SearchlabWarning, match=r"for conv2d take packed weights, .* relax.transform.BindParams"):
        scheduled = apply_history_best(module, log)
    assert scheduled_functions(scheduled) == {"conv2d_packed", "conv2d_pack_weight"}
    arrays = draw_operands(module)
    np.testing.assert_array_equal(run(scheduled, *arrays), run(module, *arrays))
    bound = relax.transform.BindParams("main", {"x1": arrays[1]})(module)
    np.testing.assert_array_equal(run(apply_history_best(bound, log), arrays[0]), run(module, *arrays))


def test_a_fused_gemm_whose_arguments_have_other_shapes(tmp_path: Path) -> None:
    options = {"weights": "packed", "tiles": "fitting"}
    log = write_log_of(tmp_path / "a.jsonl", "gemm:8x12x20:bias", Plugin("guided-gemm", options))
    passes = [relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(), relax.transform.FuseTIR()]

    def emit(builder: relax.BlockBuilder, x: Any, bias: Any) -> Any:
        return relax.op.add(builder.emit(relax.op.matmul(x, weights(20, 12))), bias)

    module = tvm.ir.transform.Sequential(passes)(legalize(emit, (1, 8, 20), (1, 1, 12)))
    scheduled = apply_history_best(module, log)
    assert scheduled_functions(scheduled) == {"fused_matmul_add_packed"}
    arrays = draw_operands(module)
    np.testing.assert_array_equal(run(scheduled, *arrays), run(module, *arrays))


def test_a_function_that_is_used_otherwise_is_refused(log: Path) -> None:
    module = legalize(lambda _, x: relax.op.nn.conv2d(x, weights(16, 4, 3, 3), padding=1), (1, 4, 8, 8))
    rewritten = relax.transform.CallTIRRewrite()(module)
    with pytest.raises(
        SearchlabError, match="'conv2d', whose program takes packed weights, is used by something other"
    ):
        apply_history_best(rewritten, log)


CALL = """
import sys
import numpy as np
import tvm
rng = np.random.default_rng(0)
data, weight = (tvm.runtime.tensor(rng.standard_normal(shape, "float32")) for shape in ((1, 4, 8, 8), (16, 4, 3, 3)))
out = tvm.runtime.empty((1, 16, 8, 8))
for statement in sys.argv[1:]:
    exec(statement)
print(float(out.numpy()[0, 3, 1, 1]), float((data.numpy()[0, :, :3, :3] * weight.numpy()[3]).sum()))
"""


def test_a_library_contains_the_function_that_packs(log: Path, tmp_path: Path) -> None:
    exported = export_library([log], tmp_path / "best.o")
    assert len(exported.pack_statements) == 2 and "weight_packed" in exported.call_expression
    load = f"import tvm_ffi_orcjit; library = {exported.call_expression.partition('[')[0]}"
    statements = [*exported.pack_statements, exported.call_expression]
    rest = [text.replace(exported.call_expression.partition("[")[0], "library") for text in statements]
    result = subprocess.run([sys.executable, "-c", CALL, load, *rest], capture_output=True, text=True, check=True)
    computed, expected = map(float, result.stdout.split())
    assert computed == pytest.approx(expected, rel=1e-4)


def test_its_texts_contain_the_function_that_packs(log: Path) -> None:
    best = searchlab.load_log(log).best
    for name in ("tir", "python"):
        assert "def pack_weight" in searchlab.apply.program_text(best, name)
