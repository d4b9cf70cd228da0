"""A GEMM in strips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchlab import Config, Knob, ProductSpace, Target, UnsupportedWorkload, Workload
from searchlab.options import Count

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


class Strips(ProductSpace):
    """The columns of the result in strips, a vector wide, and the sum unrolled.

    widest: how many columns a strip may have.
    """

    def __init__(self, workload: Workload, target: Target, *, widest: Count = 64) -> None:
        if workload.op != "gemm" or target.kind != "llvm":
            raise UnsupportedWorkload(f"acme-strips has programs for gemm on llvm, not {workload.op} on {target.kind}")
        _, columns = list(workload.shapes.values())[-1]
        widths = [width for width in range(1, widest + 1) if columns % width == 0]
        super().__init__(workload, target, [Knob("width", widths), Knob("unroll", (1, 2, 4, 8))])

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        self.knobs(config)
        made = Schedule(self.workload.module)
        i, j, k = made.get_loops(made.get_sblock("gemm"))
        strip, column = made.split(j, [None, config["width"]])
        step, part = made.split(k, [None, config["unroll"]])
        made.reorder(i, strip, step, part, column)
        made.unroll(part)
        made.vectorize(column)
        return made
