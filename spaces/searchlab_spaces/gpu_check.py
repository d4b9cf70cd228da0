"""Whether a GPU can run a scheduled program: counted on the lowered program, without building it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from searchlab.errors import InvalidConfig
from searchlab.target import Target

if TYPE_CHECKING:
    import tvm

MAX_VTHREAD = 8
"""The most of one virtual thread, as in MetaSchedule's VerifyGPUCode: the body is written out once for each."""

# What follows is the same on every CUDA GPU (CUDA C++ Programming Guide, table of technical specifications).

MOST = {
    "blockIdx.x": 2**31 - 1, "blockIdx.y": 65535, "blockIdx.z": 65535,
    "threadIdx.x": 1024, "threadIdx.y": 1024, "threadIdx.z": 64,
}  # fmt: skip
"""The most blocks of a grid, and threads of a block, along each axis."""

THREADS = 1024
"""The most threads of a block; a target may say otherwise (``max_threads_per_block``)."""

SHARED_BYTES = 48 << 10
"""Static shared memory of a block; a target may say otherwise (``max_shared_memory_per_block``)."""

LOCAL_BYTES = 512 << 10
"""Local memory of a thread."""

ALIGNMENT = 64
"""TVM starts every buffer at a multiple of so many bytes."""


def check_gpu(module: tvm.IRModule, target: Target) -> None:
    """Raise InvalidConfig where a kernel of ``module`` is more than a GPU of ``target`` takes, saying what.

    TVM's own VerifyGPUCode answers only yes or no, and counts neither the grid nor the alignment of buffers.
    """
    import tvm
    from tvm.s_tir import transform as s_tir
    from tvm.tirx import transform as tirx

    # The passes that tvm.compile runs on the way to kernels with flat buffers, in its order.
    lowering = [
        s_tir.CanonicalizeLoop(),
        s_tir.LowerCrossThreadReduction(),
        s_tir.LowerInitBlock(),
        s_tir.PlanAndUpdateBufferAllocationLocation(),
        s_tir.ConvertBlocksToOpaque(),
        s_tir.LiftThreadBinding(),
        s_tir.ManifestSharedMemoryLocalStage(),
        s_tir.CompactBufferAllocation(),
        s_tir.LowerAutoCopy(),
        s_tir.UnifyThreadBinding(),
        s_tir.LowerMatchBuffer(),
        s_tir.InjectSoftwarePipeline(),
        s_tir.LowerOpaqueBlock(),
        tirx.FlattenBuffer(),
    ]
    attributes = target.tvm.attrs
    threads = int(attributes.get("max_threads_per_block", attributes.get("max_num_threads", THREADS)))
    shared = int(attributes.get("max_shared_memory_per_block", SHARED_BYTES))

    lowered = tvm.ir.transform.Sequential(lowering)(module)
    for kernel in _kernels(lowered["main"].body):
        _check_threads(kernel, threads)
    # Only now, as it takes as long as the code grows: each virtual thread gets its own copy.
    expanded = tvm.ir.transform.Sequential([s_tir.InjectVirtualThread(), tirx.StorageRewrite()])(lowered)
    for kernel in _kernels(expanded["main"].body):
        _check_memory(kernel, shared)


def _check_threads(kernel: Any, threads: int) -> None:
    bound: dict[str, int] = {}
    for stmt in _statements(kernel):
        if _binds_thread(stmt):
            axis, extent = str(stmt.node.thread_tag), int(stmt.value)
            if bound.setdefault(axis, extent) != extent:
                raise InvalidConfig(f"one kernel has {bound[axis]} and {extent} of {axis}; they must agree")
            most = MAX_VTHREAD if axis.startswith("vthread") else MOST[axis]
            if extent > most:
                raise InvalidConfig(f"a kernel has {extent} of {axis}, and at most {most} are allowed")
    block = math.prod(extent for axis, extent in bound.items() if axis.startswith("threadIdx"))
    if block > threads:
        raise InvalidConfig(f"a block has {block} threads, and the target allows {threads}")


def _check_memory(kernel: Any, shared: int) -> None:
    used = {"shared": 0, "local": 0}
    for stmt in _statements(kernel):
        if type(stmt).__name__ == "AllocBuffer":
            buffer = stmt.buffer
            size = math.prod(int(extent) for extent in buffer.shape) * int(buffer.dtype.itemsize)
            scope = str(buffer.scope()).partition(".")[0]
            if scope in used:
                used[scope] += math.ceil(size / ALIGNMENT) * ALIGNMENT
    if used["shared"] > shared:
        raise InvalidConfig(f"a block uses {used['shared']} bytes of shared memory, and the target allows {shared}")
    if used["local"] > LOCAL_BYTES:
        raise InvalidConfig(f"a thread uses {used['local']} bytes of local memory; {LOCAL_BYTES} are allowed")


def _kernels(stmt: Any) -> Iterator[Any]:
    """The outermost statements that bind a thread: each becomes a kernel."""
    if _binds_thread(stmt):
        yield stmt
    else:
        for inner in _inside(stmt):
            yield from _kernels(inner)


def _statements(stmt: Any) -> Iterator[Any]:
    yield stmt
    for inner in _inside(stmt):
        yield from _statements(inner)


def _inside(stmt: Any) -> Iterator[Any]:
    """The statements directly in ``stmt``; TVM 0.27 has no visitor for Python."""
    yield from getattr(stmt, "seq", ())
    for part in ("body", "then_case", "else_case"):
        if (inner := getattr(stmt, part, None)) is not None:
            yield inner


def _binds_thread(stmt: Any) -> bool:
    return getattr(stmt, "attr_key", None) in ("thread_extent", "virtual_thread")
