"""A space of right programs that sleep for a given time and count how often they are run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from searchlab.space import Config, Knob, ProductSpace
from searchlab.target import Target
from searchlab.workload import Workload

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

MICROSECONDS = (200, 300, 4000, 60000)


class Counted(ProductSpace):
    """One knob, ``us``: how long the program sleeps in addition to its GEMM."""

    def __init__(self, workload: Workload, target: Target, folder: str) -> None:
        super().__init__(workload, target, [Knob("us", MICROSECONDS)])
        self.folder = folder

    def file(self, us: int) -> Path:
        return Path(self.folder, str(us))

    def count(self, us: int) -> int:
        """Return how often the program has been run since the last call."""
        runs = self.file(us).stat().st_size if self.file(us).exists() else 0
        self.file(us).unlink(missing_ok=True)
        return runs

    def schedule(self, config: Config) -> Schedule:
        import tvm
        from tvm.s_tir import Schedule
        from tvm.script import tirx as T

        a, b, c = self.workload.shapes.values()
        m, k = a
        _, n = b
        us = int(str(config["us"]))
        path = str(self.file(us))
        append, mode, increment = 0o2101, 0o644, T.uint64(1)  # O_WRONLY | O_CREAT | O_APPEND

        @T.prim_func(s_tir=True)
        def main(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
            T.evaluate(
                T.call_extern("int32", "write", T.call_extern("int32", "open", path, append, mode), "x", increment)
            )
            T.evaluate(T.call_extern("int32", "usleep", us))
            for i, j in T.grid(m, n):
                C[i, j] = T.float32(0)
                for x in range(k):
                    C[i, j] = C[i, j] + A[i, x] * B[x, j]

        return Schedule(tvm.IRModule({"main": main.with_attr("global_symbol", "main")}))
