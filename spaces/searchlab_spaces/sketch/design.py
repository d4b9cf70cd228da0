"""Derive sketches with MetaSchedule's rules, together with their postprocessors and a GPU's limits on their tiles.

Source: Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning" (OSDI 2020), section 4.1,
as implemented in MetaSchedule: schedule rules are applied to a computation's blocks in post order, and every sequence
of alternatives is a sketch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from searchlab.metaschedule import tune_context
from searchlab.space import Value
from searchlab.target import Target
from searchlab.workload import Workload

from .. import decisions
from ..gpu_check import MAX_VTHREAD, SHARED_BYTES, THREADS
from ..tiles import Tile

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Trace
    from tvm.s_tir.meta_schedule.postproc import Postproc
    from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule
    from tvm.s_tir.schedule import Instruction

SEED = 1
"""TVM's seed while it derives sketches; a config's decisions replace all those that TVM draws."""

KINDS = ("llvm", "cuda")
"""The target kinds that have rules."""

VTHREAD, THREAD = "vthread.x", "threadIdx.x"


@dataclass(frozen=True)
class Design:
    """A space's sketches, and what is needed to turn them into programs.

    Attributes:
        sampling: The sampling instructions of each sketch.
        postprocs: The postprocessors, applied in order to finish a program.
        target: The target, which includes the limits that the rules need.
        context: The context, kept alive here because the postprocs do not own a reference to it.
    """

    traces: tuple[Trace, ...]
    sampling: tuple[tuple[Instruction, ...], ...]
    postprocs: tuple[Postproc, ...]
    target: tvm.target.Target
    context: Any


def derive(workload: Workload, target: Target) -> Design:
    """Derive the sketches; the result is the same in every process."""
    from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

    rules, postprocs = _rules(target), _postprocs(target)
    generator = PostOrderApply(sch_rules=rules, postprocs=postprocs, mutator_probs={})
    limited = _with_gpu_limits(target)
    context = tune_context(workload.module, limited, generator, SEED)
    traces = tuple(sch.trace for sch in generator.generate_design_space(workload.module))
    sampling = tuple(tuple(inst for inst in trace.insts if inst.kind.name in decisions.SAMPLING) for trace in traces)
    return Design(traces, sampling, tuple(postprocs), limited, context)


def structure(trace: Trace) -> str:
    """Return a trace's steps as text, without decisions and without the postprocessors' steps."""
    from tvm.s_tir import Trace

    return str(Trace(trace.simplified(remove_postproc=True).insts, {}))


def _with_gpu_limits(target: Target) -> tvm.target.Target:
    """Return TVM's target, with defaults for the GPU limits that MetaSchedule's rules need."""
    import tvm

    if target.kind != "cuda":
        return target.tvm
    limits = {"max_threads_per_block": THREADS, "max_shared_memory_per_block": SHARED_BYTES, "thread_warp_size": 32}
    return tvm.target.Target({**limits, **target.spec})


def _rules(target: Target) -> Sequence[ScheduleRule]:
    """Return MetaSchedule's rules for the target kind, without tensor intrinsics; parallel only on several cores."""
    from tvm.s_tir.meta_schedule import schedule_rule as rule

    if target.kind == "cuda":
        return list(rule.ScheduleRule.create("cuda"))
    jobs = 16 if target.cores > 1 else -1  # per core; -1 disables parallel loops
    return [
        rule.AutoInline(
            into_producer=False,
            into_consumer=True,
            inline_const_tensor=True,
            disallow_if_then_else=True,
            require_injective=True,
            require_ordered=True,
            disallow_op=["tirx.exp"],
        ),
        rule.AddRFactor(max_jobs_per_core=jobs, max_innermost_factor=64),
        rule.MultiLevelTiling(
            structure="SSRSRS",
            max_innermost_factor=64,
            reuse_write=rule.ReuseType(req="may", levels=[1, 2], scope="global"),
        ),
        rule.ParallelizeVectorizeUnroll(
            max_jobs_per_core=jobs, max_vectorize_extent=64, unroll_max_steps=[0, 16, 64, 512], unroll_explicit=True
        ),
        rule.RandomComputeLocation(),
    ]


def _postprocs(target: Target) -> list[Postproc]:
    """Return MetaSchedule's postprocessors, except, on a CPU, for RewriteLayout, which would change arguments."""
    from tvm.s_tir.meta_schedule import postproc

    if target.kind == "cuda":
        return list(postproc.Postproc.create("cuda"))
    return [
        postproc.DisallowDynamicLoop(),
        postproc.RewriteParallelVectorizeUnroll(),
        postproc.RewriteReductionBlock(),
    ]


@dataclass(frozen=True)
class SharedBuffer:
    """A part of an argument that a block of threads loads into shared memory.

    Attributes:
        itemsize: The bytes per element, in all its copies: a software pipeline has several.
        strides: For each dimension, the stride of each tile, by its instruction's index.
    """

    itemsize: int
    strides: tuple[Mapping[int, int], ...]

    def size(self, extents: Sequence[int]) -> int:
        """Return the size in bytes, given the extent of each tile within a block."""
        shape = (1 + sum(stride * (extents[index] - 1) for index, stride in each.items()) for each in self.strides)
        return math.prod(shape) * self.itemsize


@dataclass(frozen=True)
class GpuLimits:
    """The limits that a GPU's threads and shared memory set on a sketch's tiles.

    Every tile that these limits exclude leads to a program that MetaSchedule's VerifyGPUCode rejects.

    Attributes:
        most: The maximum extent of each axis.
        least: The minimum number of threads in a block.
        factors: For each sampling instruction, the axis to which each factor is bound.
        reach: For each instruction, the factor by which later ones can multiply the threads.
        shared_bytes: The maximum shared memory of a block.
        inside: For each instruction, the factors whose iterations share memory.
    """

    most: Mapping[str, int]
    least: int
    factors: tuple[Mapping[int, str], ...]
    reach: tuple[int, ...]
    shared: tuple[SharedBuffer, ...]
    shared_bytes: int
    inside: tuple[tuple[int, ...], ...]

    @cached_property
    def start(self) -> tuple[int, ...]:
        """The extents of the axes, and of each tile within a block, before any choice."""
        return (1,) * (len(self.most) + len(self.inside))

    def restricts(self, index: int) -> bool:
        """Return whether the choices of the instruction at ``index`` are limited."""
        return bool(self.factors[index] or self.inside[index])

    def extents_after(self, index: int, extents: tuple[int, ...], value: Value) -> tuple[int, ...]:
        """Return the ``extents`` after the instruction at ``index`` has drawn ``value``."""
        tile = cast(Tile, value)
        counts = dict(zip(self.most, extents, strict=False))
        for position, axis in self.factors[index].items():
            counts[axis] *= tile[position]
        tiles = list(extents[len(self.most) :])
        tiles[index] = math.prod(tile[position] for position in self.inside[index])
        return (*counts.values(), *tiles)

    def threads(self, extents: tuple[int, ...]) -> int:
        """Return the number of threads in a block."""
        return dict(zip(self.most, extents, strict=False))[THREAD]

    def fits(self, extents: tuple[int, ...]) -> bool:
        """Return whether threads and shared memory suffice if all other tiles have extent 1."""
        if any(count > most for count, most in zip(extents, self.most.values(), strict=False)):
            return False
        return sum(buffer.size(extents[len(self.most) :]) for buffer in self.shared) <= self.shared_bytes

    def narrow(self, index: int, extents: tuple[int, ...], tiles: Sequence[Tile]) -> list[Tile]:
        """Return the ``tiles`` that fit, and of these, only those with enough threads if there are any."""
        results = [(tile, self.extents_after(index, extents, tile)) for tile in tiles]
        fitting = [(tile, after) for tile, after in results if self.fits(after)]
        enough = [tile for tile, after in fitting if self.threads(after) * self.reach[index] >= self.least]
        return enough or [tile for tile, _ in fitting] or list(tiles)


def gpu_limits(workload: Workload, trace: Trace, target: Target, choices: Sequence[Sequence[Value]]) -> GpuLimits:
    """Return a sketch's limits by following its tiles through splits and fuses to thread bindings and shared buffers.

    Args:
        workload: The workload.
        trace: The sketch.
        target: The target.
        choices: The choices of each sampling instruction.
    """
    most = {VTHREAD: MAX_VTHREAD, THREAD: int(target.spec.get("max_threads_per_block", THREADS))}
    least = stages = 1
    sampled: dict[Any, tuple[int, int]] = {}
    tiled: dict[Any, int] = {}  # the instruction that tiles each loop of the computation
    loops: dict[Any, list[tuple[int, int]]] = {}
    nests: dict[Any, Sequence[Any]] = {}  # the loops of each block
    names: dict[Any, str] = {}
    order: Sequence[Any] = ()
    reads: dict[Any, tuple[Any, int]] = {}  # the reading block and the number of the read, for each shared buffer
    factors: list[dict[int, str]] = []
    inside: set[tuple[int, int]] = set()
    for inst in trace.insts:
        kind = inst.kind.name
        if kind in decisions.SAMPLING:
            if kind == decisions.PERFECT_TILE:
                sampled.update((number, (len(factors), position)) for position, number in enumerate(inst.outputs))
                tiled[inst.inputs[0]] = len(factors)
            factors.append({})
        elif kind == "GetSBlock":
            names[inst.outputs[0]] = str(inst.attrs[0])
        elif kind == "GetLoops":
            nests[inst.inputs[0]] = inst.outputs
        elif kind == "Split":
            for loop, number in zip(inst.outputs, inst.inputs[1:], strict=True):
                loops[loop] = [sampled[number]] if number in sampled else []
        elif kind == "Reorder":
            order = list(inst.inputs)
        elif kind == "Fuse":
            loops[inst.outputs[0]] = [factor for loop in inst.inputs for factor in loops.get(loop, [])]
        elif kind == "Bind" and (axis := str(inst.attrs[0])) in most:
            for index, position in loops.get(inst.inputs[0], []):
                factors[index][position] = axis
                inside.add((index, position))
        elif kind == "CacheRead" and inst.attrs[1] == "shared":
            reads[inst.outputs[0]] = inst.inputs[0], int(inst.attrs[0])
        elif kind == "ComputeAt" and inst.inputs[0] in reads and inst.inputs[1] in order:
            for loop in order[order.index(inst.inputs[1]) + 1 :]:
                inside.update(loops[loop])
        elif kind == "Annotate" and inst.attrs[0] == "meta_schedule.thread_extent_low_inclusive":
            least = int(inst.inputs[1])
        elif kind == "Annotate" and inst.attrs[0] == "software_pipeline_stage":
            stages = 1 + max(map(int, inst.inputs[1]))
    extents = [
        math.prod(cast(Tile, legal[0])) if THREAD in bound.values() else 1
        for bound, legal in zip(factors, choices, strict=True)
    ]
    return GpuLimits(
        most,
        least,
        tuple(factors),
        tuple(math.prod(extents[index + 1 :]) for index in range(len(extents))),
        tuple(
            _shared_buffer(workload, names[block], read, [tiled.get(loop) for loop in nests[block]], stages)
            for block, read in reads.values()
        ),
        int(target.spec.get("max_shared_memory_per_block", SHARED_BYTES)),
        tuple(tuple(position for i, position in sorted(inside) if i == index) for index in range(len(factors))),
    )


def _shared_buffer(
    workload: Workload, block_name: str, read: int, tiles: Sequence[int | None], copies: int
) -> SharedBuffer:
    """Return the buffer that caches a read of a block, whose loops are tiled by the instructions ``tiles``."""
    from tvm.s_tir import Schedule
    from tvm.sym import detect_linear_equation

    sch = Schedule(workload.module)
    block = sch.get(sch.get_sblock(block_name))
    region = block.reads[read]
    variables = [axis.var for axis in block.iter_vars]
    strides = []
    for dimension in region.region:
        coefficients = detect_linear_equation(dimension.min, variables)  # empty if the index is not linear
        pairs = zip(tiles, coefficients, strict=False)
        strides.append({tile: abs(int(stride)) for tile, stride in pairs if tile is not None and int(stride)})
    return SharedBuffer(int(region.source.dtype.itemsize) * copies, tuple(strides))


def use_of(trace: Trace, sampled: Instruction) -> str:
    """Return what a sampled number is used for: its annotation's key, or else the first step that uses it."""
    (number,) = sampled.outputs
    for inst in trace.insts:
        if any(number.same_as(argument) for argument in inst.inputs if hasattr(argument, "same_as")):
            return str(inst.attrs[0]).rpartition(".")[2] if inst.kind.name == "Annotate" else inst.kind.name.lower()
    return "pick"
