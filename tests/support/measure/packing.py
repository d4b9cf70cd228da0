"""A space whose programs take B packed, in ways that are right, wrong or harmful."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from searchlab.space import Config, Knob, ProductSpace
from searchlab.target import Target
from searchlab.workload import Workload

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

EXPECTED = {  # the failure that must be recorded; None for a right program
    "none": None,
    "packs": None,
    "packs nothing": "wrong_answer",
    "packs too much": "run_error",
    "packing does not link": "run_error",
    "packing segfaults": "crash",
}


class Packing(ProductSpace):
    """One knob, ``kind``, on a GEMM whose B is transposed before the program runs."""

    def __init__(self, workload: Workload, target: Target) -> None:
        super().__init__(workload, target, [Knob("kind", (*EXPECTED, "spoils"))])

    def schedule(self, config: Config) -> Schedule:
        import tvm
        from tvm.s_tir import Schedule
        from tvm.script import tirx as T

        self.knobs(config)
        kind = str(config["kind"])
        if kind == "none":
            return Schedule(self.workload.module)
        a, b, c = self.workload.shapes.values()
        columns, depth, rows = b[1], b[0], a[0]
        packed = (columns, 1 << 60 if kind == "packs too much" else depth)
        spoiled = T.float32(kind == "spoils")

        @T.prim_func(s_tir=True)
        def main(A: T.Buffer(a, "float32"), B: T.Buffer(packed, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
            for i, j, p in T.grid(rows, columns, depth):
                with T.sblock("gemm"):
                    vi, vj, vp = T.axis.remap("SSR", [i, j, p])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vp] * B[vj, vp]
            for j in range(columns):
                with T.sblock("after"):
                    vj = T.axis.spatial(columns, j)
                    B[vj, 0] = B[vj, 0] + spoiled

        @T.prim_func(s_tir=True)
        def pack(B: T.Buffer(b, "float32"), P: T.Buffer(packed, "float32")):  # type: ignore[no-untyped-def,valid-type]
            for j, p in T.grid(columns, depth):
                with T.sblock("pack"):
                    vj, vp = T.axis.remap("SS", [j, p])
                    P[vj, vp] = B[vp, vj]

        @T.prim_func(s_tir=True)
        def nothing(B: T.Buffer(b, "float32"), P: T.Buffer(packed, "float32")):  # type: ignore[no-untyped-def,valid-type]
            T.evaluate(0)

        @T.prim_func(s_tir=True)
        def unknown(B: T.Buffer(b, "float32"), P: T.Buffer(packed, "float32")):  # type: ignore[no-untyped-def,valid-type]
            T.evaluate(T.call_extern("int32", "there_is_no_such_function"))

        @T.prim_func(s_tir=True)
        def segfault(B: T.Buffer(b, "float32"), P: T.Buffer(packed, "float32")):  # type: ignore[no-untyped-def,valid-type]
            T.evaluate(T.call_extern("int32", "raise", int(signal.SIGSEGV)))

        packs = {"packs nothing": nothing, "packing does not link": unknown, "packing segfaults": segfault}
        functions = {"main": main, "pack_B": packs.get(kind, pack)}
        with_symbols = {name: function.with_attr("global_symbol", name) for name, function in functions.items()}
        return Schedule(tvm.IRModule(with_symbols))
