"""A space with programs that return a right result once, or on some inputs, but are not right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchlab.space import Config, Knob, ProductSpace
from searchlab.target import Target
from searchlab.workload import Workload

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule

CHEATS = (
    "computes only if poisoned",
    "computes half unless poisoned",
    "initialises only if poisoned",
    "computes unless the first element is right",
    "computes unless the last row is right",
    "omits the last terms",
    "saturates",
    "increments an input",
)


class Cheating(ProductSpace):
    """One knob, ``cheat``, on a square GEMM; see :data:`CHEATS`."""

    def __init__(self, workload: Workload, target: Target) -> None:
        super().__init__(workload, target, [Knob("cheat", ("none", *CHEATS))])

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        return Schedule(_program(self.workload, str(config["cheat"])))


def _program(workload: Workload, cheat: str) -> tvm.IRModule:
    import tvm
    from tvm.script import tirx as T

    if cheat == "none":
        return workload.module
    a, b, c = workload.shapes.values()
    (m, k), n = a, b[1]
    dtype, out = workload.arguments[0].dtype, workload.arguments[-1].dtype
    # A program remembers its result if it first computes some elements of a row anew, and compares them with C.
    tested = {"computes unless the first element is right": (0, 1), "computes unless the last row is right": (m - 1, n)}
    row, columns = tested.get(cheat, (0, 0))
    rows = m // 2 if cheat == "computes half unless poisoned" else 0
    terms = k - 8 if cheat == "omits the last terms" else k
    keeps = cheat == "initialises only if poisoned"
    low, high = -(1 << 15), (1 << 15) - 1

    @T.prim_func(s_tir=True)
    def omits(A: T.Buffer(a, dtype), B: T.Buffer(b, dtype), C: T.Buffer(c, out)):  # type: ignore[no-untyped-def,valid-type]
        for i, j in T.grid(m, n):
            C[i, j] = T.cast(0, out)
            for p in range(terms):
                C[i, j] = C[i, j] + T.cast(A[i, p], out) * T.cast(B[p, j], out)

    @T.prim_func(s_tir=True)
    def increments(A: T.Buffer(a, dtype), B: T.Buffer(b, dtype), C: T.Buffer(c, out)):  # type: ignore[no-untyped-def,valid-type]
        for i, j in T.grid(m, n):
            C[i, j] = T.cast(0, out)
            for p in range(k):
                C[i, j] = C[i, j] + T.cast(A[i, p], out) * T.cast(B[p, j], out)
        A[0, 0] = A[0, 0] + T.cast(1, dtype)

    @T.prim_func(s_tir=True)
    def saturates(A: T.Buffer(a, dtype), B: T.Buffer(b, dtype), C: T.Buffer(c, out)):  # type: ignore[no-untyped-def,valid-type]
        for i, j in T.grid(m, n):
            C[i, j] = T.cast(0, out)
            for p in range(k):
                C[i, j] = T.min(
                    T.max(C[i, j] + T.cast(A[i, p], out) * T.cast(B[p, j], out), T.cast(low, out)), T.cast(high, out)
                )

    @T.prim_func(s_tir=True)
    def recognises(A: T.Buffer(a, dtype), B: T.Buffer(b, dtype), C: T.Buffer(c, out)):  # type: ignore[no-untyped-def,valid-type]
        if T.isnan(C[0, 0]):
            for i, j in T.grid(m, n):
                C[i, j] = T.cast(0, out)
                for p in range(k):
                    C[i, j] = C[i, j] + T.cast(A[i, p], out) * T.cast(B[p, j], out)
        else:
            for i, j in T.grid(rows, n):
                C[i, j] = T.cast(0, out)
                for p in range(k):
                    C[i, j] = C[i, j] + T.cast(A[i, p], out) * T.cast(B[p, j], out)

    @T.prim_func(s_tir=True)
    def accumulates(A: T.Buffer(a, dtype), B: T.Buffer(b, dtype), C: T.Buffer(c, out)):  # type: ignore[no-untyped-def,valid-type]
        if T.isnan(C[0, 0]):
            for i, j in T.grid(m, n):
                C[i, j] = T.cast(0, out)
        for i, j, p in T.grid(m, n, k):
            C[i, j] = C[i, j] + T.cast(A[i, p], out) * T.cast(B[p, j], out)

    @T.prim_func(s_tir=True)
    def remembers(A: T.Buffer(a, dtype), B: T.Buffer(b, dtype), C: T.Buffer(c, out)):  # type: ignore[no-untyped-def,valid-type]
        D = T.alloc_buffer((2,), out)
        D[1] = T.cast(0, out)
        for j in range(columns):
            D[0] = T.cast(0, out)
            for p in range(k):
                D[0] = D[0] + T.cast(A[row, p], out) * T.cast(B[p, j], out)
            if T.isnan(C[row, j]) or D[0] != C[row, j]:
                D[1] = T.cast(1, out)
        if D[1] != T.cast(0, out):
            for i, j in T.grid(m, n):
                C[i, j] = T.cast(0, out)
                for p in range(k):
                    C[i, j] = C[i, j] + T.cast(A[i, p], out) * T.cast(B[p, j], out)

    programs = {"omits the last terms": omits, "saturates": saturates, "increments an input": increments}
    main = accumulates if keeps else remembers if columns else programs.get(cheat, recognises)
    return tvm.IRModule({"main": main.with_attr("global_symbol", "main")})
