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

MAX_EXTENTS = {
    "blockIdx.x": 2**31 - 1,
    "blockIdx.y": 65535,
    "blockIdx.z": 65535,
    "threadIdx.x": 1024,
    "threadIdx.y": 1024,
    "threadIdx.z": 64,
}
"""The maximum number of blocks in a grid and of threads in a block, along each axis."""

MAX_THREADS = 1024
"""The maximum number of threads in a block, unless the target sets ``max_threads_per_block``."""

MAX_SHARED_BYTES = 48 << 10
"""The maximum static shared memory of a block in bytes, unless the target sets ``max_shared_memory_per_block``."""

MAX_LOCAL_BYTES = 512 << 10
"""The maximum local memory of a thread in bytes."""

ALIGNMENT = 64
"""The number of bytes to which TVM aligns every buffer."""


def check_gpu(module: tvm.IRModule, target: Target) -> None:
    """Raise InvalidConfig if a kernel of a scheduled module exceeds a limit of ``target``; the message says which one.

    TVM's own VerifyGPUCode only returns yes or no, and ignores both the grid and the alignment of buffers.
    """
    attributes = target.tvm.attrs
    max_threads = int(attributes.get("max_threads_per_block", attributes.get("max_num_threads", MAX_THREADS)))
    max_shared_bytes = int(attributes.get("max_shared_memory_per_block", MAX_SHARED_BYTES))
    for kernel in _find_kernels(module["main"].body):
        _check_threads(kernel, max_threads)
    for kernel in _find_kernels(_lower(module)["main"].body):
        _check_memory(kernel, max_shared_bytes)


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


def _check_threads(kernel: Any, max_threads: int) -> None:
    extents_by_axis: dict[str, int] = {}
    for loop in filter(_binds_thread, _walk_statements(kernel)):
        axis, extent = str(loop.thread_binding.thread_tag), int(loop.extent)
        if extents_by_axis.setdefault(axis, extent) != extent:
            # TVM would launch the extent of the first loop and run the other loop too often.
            raise InvalidConfig(f"a kernel binds both {extents_by_axis[axis]} and {extent} to {axis}; they must agree")
        max_extent = MAX_VTHREAD if axis.startswith("vthread") else MAX_EXTENTS[axis]
        if extent > max_extent:
            raise InvalidConfig(f"a kernel binds {extent} to {axis}, but at most {max_extent} are allowed")
    thread_count = math.prod(extent for axis, extent in extents_by_axis.items() if axis.startswith("threadIdx"))
    if thread_count > max_threads:
        raise InvalidConfig(f"a block has {thread_count} threads, but the target allows only {max_threads}")


def _check_memory(kernel: Any, max_shared_bytes: int) -> None:
    from tvm.tirx import AllocBuffer

    bytes_by_scope = {"shared": 0, "local": 0}
    for stmt in _walk_statements(kernel):
        if isinstance(stmt, AllocBuffer):
            buffer = stmt.buffer
            buffer_bytes = math.prod(int(extent) for extent in buffer.shape) * int(buffer.dtype.itemsize)
            scope = str(buffer.scope()).partition(".")[0]
            if scope in bytes_by_scope:
                bytes_by_scope[scope] += math.ceil(buffer_bytes / ALIGNMENT) * ALIGNMENT
    if bytes_by_scope["shared"] > max_shared_bytes:
        raise InvalidConfig(
            f"a block uses {bytes_by_scope['shared']} bytes of shared memory, but the target allows only "
            f"{max_shared_bytes}"
        )
    if bytes_by_scope["local"] > MAX_LOCAL_BYTES:
        raise InvalidConfig(
            f"a thread uses {bytes_by_scope['local']} bytes of local memory, but only {MAX_LOCAL_BYTES} are allowed"
        )


def _find_kernels(stmt: Any) -> Iterator[Any]:
    """Yield the outermost statements that bind a thread; each of them becomes a kernel."""
    if _binds_thread(stmt):
        yield stmt
    else:
        for inner in _list_children(stmt):
            yield from _find_kernels(inner)


def _walk_statements(stmt: Any) -> Iterator[Any]:
    yield stmt
    for inner in _list_children(stmt):
        yield from _walk_statements(inner)


def _list_children(stmt: Any) -> Iterator[Any]:
    """Yield the statements directly within ``stmt``; TVM 0.27 provides no visitor in Python."""
    yield from getattr(stmt, "seq", ())
    for field_name in ("body", "block", "then_case", "else_case"):
        if (child := getattr(stmt, field_name, None)) is not None:
            yield child


def _binds_thread(stmt: Any) -> bool:
    """Return whether ``stmt`` is a loop over threads, before or after lowering."""
    return getattr(stmt, "thread_binding", None) is not None or getattr(stmt, "attr_key", None) == "thread_extent"
