"""A space whose traces hold what TVM's own rendering of a trace as Python gets wrong, and what it cannot render."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from searchlab.space import Config, Knob, ProductSpace
from searchlab.target import Target
from searchlab.workload import Workload

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

TRACES = (
    "string", "bool", "float", "nan", "infinity", "int64", "float64", "list", "dict", "dict of variables", "expression",
    "split by an expression", "no predication", "constant index", "keyword as index", "same index names",
    "int64 indices", "pad value", "infinite pad value", "called index map", "block layout", "tensor intrinsic",
    "compute location", "nothing",
)  # fmt: skip
UNWRITABLE = ("another module", "no trace", "call")

DOT = """
@T.prim_func(s_tir=True)
def row(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (1, 1), "float32", offset_factor=1)
    B = T.match_buffer(b, (1, 4), "float32", offset_factor=1)
    C = T.match_buffer(c, (1, 4), "float32", offset_factor=1)
    with T.sblock("root"):
        T.reads(C[0:1, 0:4], A[0:1, 0:1], B[0:1, 0:4])
        T.writes(C[0:1, 0:4])
        for i in {loop}:
            with T.sblock("row"):
                v = T.axis.spatial(4, i)
                C[0, v] = C[0, v] + A[0, 0] * B[0, v]
"""


class Odd(ProductSpace):
    """One knob, ``trace``, on a GEMM of float32."""

    def __init__(self, workload: Workload, target: Target) -> None:
        super().__init__(workload, target, [Knob("trace", (*TRACES, *UNWRITABLE))])

    def schedule(self, config: Config) -> Schedule:
        import tvm
        from tvm.s_tir import Schedule
        from tvm.tirx import FloatImm, IndexMap, IntImm, Var

        what = config["trace"]
        sch = Schedule(self.workload.module, enable_check=True)
        block = sch.get_sblock("gemm")
        i = sch.get_loops(block)[0]
        number = sch.sample_categorical([1, 2, 4], [1 / 3, 1 / 3, 1 / 3], decision=1)
        annotations: dict[str, Any] = {
            "string": "a \"quoted\"\n\\back\\slash 'é' 😀",
            "bool": True,
            "float": 1e300,
            "nan": math.nan,
            "infinity": -math.inf,
            "int64": IntImm("int64", 7),
            "float64": FloatImm("float64", 0.1),
            "list": [1, 2.5, "three"],
            "dict": {"one": 1, "many": [1, "two"]},
            "dict of variables": {"number": number},
            "expression": tvm.tirx.max(number * 2, number + 1) // 2,
            "call": tvm.tirx.Cast("int64", number),
        }
        indices = [Var(name, dtype) for name, dtype in self._names(str(what))]
        if what in annotations:
            sch.annotate(block, 'a "key"', annotations[str(what)])
        elif what == "split by an expression":
            sch.split(i, [None, number * 2 + 4])
        elif what == "no predication":
            sch.split(i, [None, 4], preserve_unit_iters=False, disable_predication=True)
        elif what == "constant index":
            sch.transform_layout(block, ("write", 0), lambda i, j: (IntImm("int32", 0), i, j))
        elif indices:
            sch.transform_layout(block, ("write", 0), IndexMap(indices, indices[::-1], None))
        elif what in ("pad value", "infinite pad value"):
            pad = 0.5 if what == "pad value" else math.inf
            sch.transform_layout(block, ("write", 0), lambda i, j: (i // 24, j, i % 24), pad_value=pad)
        elif what == "called index map":
            size = self.workload.shapes["C"][0]
            sch.transform_layout(
                block, ("write", 0), lambda i, j: (i // 24, j, i % 24),
                pad_value=lambda a, b, c: tvm.tirx.Select(a < size, FloatImm("float32", 0), FloatImm("float32", 1)),
            )  # fmt: skip
        elif what == "block layout":
            sch.transform_block_layout(block, lambda i, j, k: (j * 4 + i // 8, i % 8, k))
        elif what == "tensor intrinsic":
            self._tensorize(sch)
        elif what == "compute location":
            sch.sample_compute_location(sch.cache_read(block, 0, "global"), decision=-1)
        elif what == "another module":
            sch = Schedule(tvm.IRModule({"main": self.workload.prim_func().with_attr("global_symbol", "other")}))
        elif what == "no trace":
            sch = Schedule(self.workload.module, enable_check=True)
            sch = sch._create_non_traced(sch.mod, debug_mask=0, error_render_level="none", enable_check=True)
        return sch

    @staticmethod
    def _names(what: str) -> list[tuple[str, str]]:
        return {
            "keyword as index": [("lambda", "int32"), ("is", "int32")],
            "same index names": [("i", "int32"), ("i", "int32")],
            "int64 indices": [("i", "int64"), ("j", "int64")],
        }.get(what, [])

    @staticmethod
    def _tensorize(sch: Schedule) -> None:
        """By an intrinsic that only the process knows that has run this."""
        from tvm.s_tir import TensorIntrin
        from tvm.script import from_source

        loops = ("range(4)", "T.vectorized(4)")
        desc, impl = (from_source(DOT.replace("{loop}", loop)) for loop in loops)
        TensorIntrin.register("tests.support.apply.odd.row", desc, impl, override=True)
        block = sch.get_sblock("gemm")
        i, j, k = sch.get_loops(block)
        j, inner = sch.split(j, [None, 4])
        sch.reorder(i, j, k, inner)
        sch.decompose_reduction(block, k)
        sch.tensorize(inner, "tests.support.apply.odd.row")
