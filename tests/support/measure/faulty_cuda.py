"""Kernels that a GPU refuses, or that harm the process that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchlab.space import Config, Knob, ProductSpace
from searchlab.target import Target
from searchlab.workload import Workload

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule

FAULTS = (
    "none",
    "traps",
    "too many threads",
    "writes nothing",
    "does not compile",
    "never ends",
    "writes out of bounds",
    "takes too much memory",
)

FAR = 1 << 40
"""Number of elements: more than fits the memory of any GPU, and beyond any allocation."""


class FaultyCuda(ProductSpace):
    """One knob, ``fault``, on a GEMM whose rows are blocks and whose columns are threads."""

    def __init__(self, workload: Workload, target: Target) -> None:
        super().__init__(workload, target, [Knob("fault", FAULTS)])

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        fault = str(config["fault"])
        if fault == "none":
            schedule = Schedule(self.workload.module)
            i, j, _ = schedule.get_loops(schedule.get_sblock("gemm"))
            schedule.bind(i, "blockIdx.x")
            schedule.bind(j, "threadIdx.x")
            return schedule
        if fault in ("never ends", "writes out of bounds", "takes too much memory"):
            return Schedule(_harmful(self.workload, fault))
        threads = 2048 if fault == "too many threads" else 32
        called = {"traps": "__trap", "does not compile": "there_is_no_such_function"}.get(fault, "__syncthreads")
        return Schedule(_kernel(self.workload, called, threads))


def _kernel(workload: Workload, function: str, threads: int) -> tvm.IRModule:
    """A program with the workload's arguments whose one kernel only calls a function of CUDA C++."""
    import tvm
    from tvm.script import tirx as T

    a, b, c = workload.shapes.values()

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
        for _ in T.thread_binding(threads, thread="threadIdx.x"):
            T.evaluate(T.call_extern("int32", function))

    return tvm.IRModule({"main": main.with_attr("global_symbol", "main")})


def _harmful(workload: Workload, fault: str) -> tvm.IRModule:
    """A program with the workload's arguments that does harm when it runs."""
    import tvm
    from tvm.script import tirx as T

    a, b, c = workload.shapes.values()
    long, nap = 1 << 30, 1_000_000  # naps of a millisecond, for twelve days
    stride = FAR // 32  # TVM would shrink the buffer to the elements that are used

    @T.prim_func(s_tir=True)
    def never_ends(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
        for _ in T.thread_binding(32, thread="threadIdx.x"):
            for _nap in range(long):
                T.evaluate(T.call_extern("int32", "__nanosleep", T.uint32(nap)))

    @T.prim_func(s_tir=True)
    def out_of_bounds(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
        for _ in T.thread_binding(32, thread="threadIdx.x"):
            C[0, T.int64(FAR)] = T.float32(1)

    @T.prim_func(s_tir=True)
    def memory(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
        between = T.sblock_alloc_buffer((T.int64(FAR),), "float32")
        for thread in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("write"):
                between[T.Cast("int64", thread) * T.int64(stride)] = A[0, 0]
        for thread in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("read"):
                C[0, 0] = between[T.Cast("int64", thread) * T.int64(stride)]

    main = {"never ends": never_ends, "writes out of bounds": out_of_bounds, "takes too much memory": memory}[fault]
    return tvm.IRModule({"main": main.with_attr("global_symbol", "main")})
