"""Whether a GPU can run a scheduled program: counted on its loops and on its lowered buffers, without building it."""

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
    """Raise InvalidConfig where a kernel of a scheduled module exceeds a GPU of ``target``. It names the limit.

    TVM's own VerifyGPUCode answers only yes or no, and counts neither the grid nor the alignment of buffers.
    """
    attributes = target.tvm.attrs
    threads = int(attributes.get("max_threads_per_block", attributes.get("max_num_threads", THREADS)))
    shared = int(attributes.get("max_shared_memory_per_block", SHARED_BYTES))
    for kernel in _kernels(module["main"].body):
        _check_threads(kernel, threads)
    for kernel in _kernels(_lowered(module)["main"].body):
        _check_memory(kernel, shared)


def _lowered(module: tvm.IRModule) -> tvm.IRModule:
    """``module`` with buffers as large as they will be: the passes of ``tvm.compile`` that decide it, in its order."""
    from tvm.ir.transform import Sequential
    from tvm.s_tir import transform as s_tir
    from tvm.tirx import transform as tirx

    return Sequential(
        [
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
            tirx.VectorizeLoop(),
            s_tir.InjectVirtualThread(),
            tirx.StorageRewrite(),
        ]
    )(module)


def _check_threads(kernel: Any, threads: int) -> None:
    bound: dict[str, int] = {}
    for loop in filter(_binds_thread, _statements(kernel)):
        axis, extent = str(loop.thread_binding.thread_tag), int(loop.extent)
        if bound.setdefault(axis, extent) != extent:
            # TVM would launch as many as the first loop has, and run the other too often.
            raise InvalidConfig(f"one kernel has {bound[axis]} and {extent} of {axis}; they must agree")
        most = MAX_VTHREAD if axis.startswith("vthread") else MOST[axis]
        if extent > most:
            raise InvalidConfig(f"a kernel has {extent} of {axis}, and at most {most} are allowed")
    block = math.prod(extent for axis, extent in bound.items() if axis.startswith("threadIdx"))
    if block > threads:
        raise InvalidConfig(f"a block has {block} threads, and the target allows {threads}")


def _check_memory(kernel: Any, shared: int) -> None:
    from tvm.tirx import AllocBuffer

    used = {"shared": 0, "local": 0}
    for stmt in _statements(kernel):
        if isinstance(stmt, AllocBuffer):
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
    for part in ("body", "block", "then_case", "else_case"):
        if (inner := getattr(stmt, part, None)) is not None:
            yield inner


def _binds_thread(stmt: Any) -> bool:
    """Whether ``stmt`` is a loop over threads, before or after lowering."""
    return getattr(stmt, "thread_binding", None) is not None or getattr(stmt, "attr_key", None) == "thread_extent"
