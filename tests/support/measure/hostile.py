"""A space whose programs and schedules exhaust a machine: its memory, its time, and the space for output."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from searchlab.errors import InvalidConfig
from searchlab.space import Config, Knob, ProductSpace
from searchlab.target import Target
from searchlab.workload import Workload

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule

FAULTS = (
    "none",
    "spins",
    "prints",
    "eats memory",
    "asks for too much",
    "schedule eats memory",
    "compiler has no end",
    "kills its parent",
    "schedule kills its parent",
    "writes to its inputs",
)


class Hostile(ProductSpace):
    """One knob, ``fault``, on a GEMM."""

    def __init__(self, workload: Workload, target: Target) -> None:
        super().__init__(workload, target, [Knob("fault", FAULTS)])

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        fault = str(config["fault"])
        if fault == "none":
            return Schedule(self.workload.module)
        if fault == "schedule eats memory":
            arrays = []
            while True:
                arrays.append(b"x" * (1 << 20))
        if fault == "schedule kills its parent":
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()
        return Schedule(_program(self.workload, fault))


class Telltale(ProductSpace):
    """The config ``"tell"`` is invalid; its message lists the modules that the build process has imported."""

    def __init__(self, workload: Workload, target: Target) -> None:
        super().__init__(workload, target, [Knob("do", ("build", "tell"))])

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        if config["do"] == "tell":
            raise InvalidConfig(" ".join(sys.modules))
        return Schedule(self.workload.module)


def _program(workload: Workload, fault: str) -> tvm.IRModule:
    import tvm
    from tvm.script import tirx as T

    a, b, c = workload.shapes.values()
    line = "x" * 1000 + "\n"
    mega = T.uint64(1 << 20)

    @T.prim_func(s_tir=True)
    def spins(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
        for _ in range(T.int64(1 << 60)):
            T.evaluate(T.call_extern("int32", "getpid"))

    @T.prim_func(s_tir=True)
    def prints(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
        for _ in range(1 << 20):  # a gigabyte
            T.evaluate(T.call_extern("int32", "puts", line))
        for _ in range(1 << 17):
            T.evaluate(T.call_extern("int32", "dprintf", 2, line))

    @T.prim_func(s_tir=True)
    def eats(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
        for _ in range(T.int64(1 << 60)):
            memory = T.call_extern("handle", "mmap", T.uint64(0), mega, 3, 0x22, -1, T.int64(0))
            T.evaluate(T.call_extern("handle", "memset", memory, 1, mega))

    @T.prim_func(s_tir=True)
    def asks(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
        D = T.alloc_buffer((T.int64(1 << 36),), "float32")
        for i in range(T.int64(1 << 36)):
            D[i] = A[0, 0]
        for i in range(8):
            C[0, i] = D[i * 1024]

    @T.prim_func(s_tir=True)
    def endless(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
        for i in T.unroll(1 << 24):
            C[i % 8, 0] = C[i % 8, 0] + A[i % 8, i % 7]

    @T.prim_func(s_tir=True)
    def kills(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
        T.evaluate(T.call_extern("int32", "kill", T.call_extern("int32", "getppid"), 9))

    @T.prim_func(s_tir=True)
    def writes(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
        for i, j in T.grid(8, 8):
            C[i, j] = T.float32(0)
            for k in range(8):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
        A[0, 0] = T.float32(7)

    programs = {
        "spins": spins,
        "prints": prints,
        "eats memory": eats,
        "asks for too much": asks,
        "compiler has no end": endless,
        "kills its parent": kills,
        "writes to its inputs": writes,
    }
    return tvm.IRModule({"main": programs[fault].with_attr("global_symbol", "main")})
