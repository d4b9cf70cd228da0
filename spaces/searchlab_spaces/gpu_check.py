"""Check whether a GPU can run a scheduled program. Only its loops and lowered buffers are examined; it is not built."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from searchlab.errors import InvalidConfig
from searchlab.target import Target

if TYPE_CHECKING:
    import tvm

MAX_VTHREAD = 8
"""The maximum extent of a virtual thread, as in MetaSchedule's VerifyGPUCode; TVM replicates the body for each."""

# These limits hold on every CUDA GPU (CUDA C++ Programming Guide, table of technical specifications).

MOST = {
    "blockIdx.x": 2**31 - 1,
    "blockIdx.y": 65535,
    "blockIdx.z": 65535,
    "threadIdx.x": 1024,
    "threadIdx.y": 1024,
    "threadIdx.z": 64,
}
"""The maximum number of blocks in a grid and of threads in a block, along each axis."""

THREADS = 1024
"""The maximum number of threads in a block, unless the target sets ``max_threads_per_block``."""

SHARED_BYTES = 48 << 10
"""The maximum static shared memory of a block in bytes, unless the target sets ``max_shared_memory_per_block``."""

LOCAL_BYTES = 512 << 10
"""The maximum local memory of a thread in bytes."""

ALIGNMENT = 64
"""The number of bytes to which TVM aligns every buffer."""


def check_gpu(module: tvm.IRModule, target: Target) -> None:
    """Raise InvalidConfig if a kernel of a scheduled module exceeds a limit of ``target``; the message says which one.

    TVM's own VerifyGPUCode only returns yes or no, and ignores both the grid and the alignment of buffers.
    """
    attributes = target.tvm.attrs
    threads = int(attributes.get("max_threads_per_block", attributes.get("max_num_threads", THREADS)))
    shared = int(attributes.get("max_shared_memory_per_block", SHARED_BYTES))
    for kernel in _kernels(module["main"].body):
        _check_threads(kernel, threads)
    for kernel in _kernels(_lower(module)["main"].body):
        _check_memory(kernel, shared)


def _lower(module: tvm.IRModule) -> tvm.IRModule:
    """Apply the passes of ``tvm.compile`` that determine buffer sizes, in the same order."""
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
            # TVM would launch the extent of the first loop and run the other loop too often.
            raise InvalidConfig(f"a kernel binds both {bound[axis]} and {extent} to {axis}; they must agree")
        most = MAX_VTHREAD if axis.startswith("vthread") else MOST[axis]
        if extent > most:
            raise InvalidConfig(f"a kernel binds {extent} to {axis}, but at most {most} are allowed")
    block = math.prod(extent for axis, extent in bound.items() if axis.startswith("threadIdx"))
    if block > threads:
        raise InvalidConfig(f"a block has {block} threads, but the target allows only {threads}")


def _check_memory(kernel: Any, shared: int) -> None:
    from tvm.tirx import AllocBuffer

    sizes = {"shared": 0, "local": 0}
    for stmt in _statements(kernel):
        if isinstance(stmt, AllocBuffer):
            buffer = stmt.buffer
            size = math.prod(int(extent) for extent in buffer.shape) * int(buffer.dtype.itemsize)
            scope = str(buffer.scope()).partition(".")[0]
            if scope in sizes:
                sizes[scope] += math.ceil(size / ALIGNMENT) * ALIGNMENT
    if sizes["shared"] > shared:
        raise InvalidConfig(
            f"a block uses {sizes['shared']} bytes of shared memory, but the target allows only {shared}"
        )
    if sizes["local"] > LOCAL_BYTES:
        raise InvalidConfig(f"a thread uses {sizes['local']} bytes of local memory, but only {LOCAL_BYTES} are allowed")


def _kernels(stmt: Any) -> Iterator[Any]:
    """Yield the outermost statements that bind a thread; each of them becomes a kernel."""
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
    """Yield the statements directly within ``stmt``; TVM 0.27 provides no visitor in Python."""
    yield from getattr(stmt, "seq", ())
    for part in ("body", "block", "then_case", "else_case"):
        if (inner := getattr(stmt, part, None)) is not None:
            yield inner


def _binds_thread(stmt: Any) -> bool:
    """Return whether ``stmt`` is a loop over threads, before or after lowering."""
    return getattr(stmt, "thread_binding", None) is not None or getattr(stmt, "attr_key", None) == "thread_extent"
