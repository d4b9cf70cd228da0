"""Derive sketches with MetaSchedule's rules, together with their postprocessors and a GPU's limits on their tiles.

Source: Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning" (OSDI 2020), section 4.1,
as implemented in MetaSchedule: schedule rules are applied to a computation's blocks in post order, and every sequence
of alternatives is a sketch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from searchlab.metaschedule import tune_context
from searchlab.space import Value
from searchlab.target import Target
from searchlab.workload import Workload

from .. import decisions
from ..gpu_check import MAX_SHARED_BYTES, MAX_THREADS, MAX_VTHREAD
from ..tiles import Tile

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Trace
    from tvm.s_tir.meta_schedule.postproc import Postproc
    from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule
    from tvm.s_tir.schedule import Instruction

SEED = 1
"""TVM's seed while it derives sketches; a config's decisions replace all those that TVM draws."""

TARGET_KINDS = ("llvm", "cuda")
"""The target kinds that have rules."""

VTHREAD, THREAD = "vthread.x", "threadIdx.x"


@dataclass(frozen=True)
class Design:
    """A space's sketches, and what is needed to turn them into programs.

    Attributes:
        sampling_instructions: The sampling instructions of each sketch.
        postprocs: The postprocessors, applied in order to finish a program.
        target: The target, which includes the limits that the rules need.
        context: The context, kept alive here because the postprocs do not own a reference to it.
    """

    traces: tuple[Trace, ...]
    sampling_instructions: tuple[tuple[Instruction, ...], ...]
    postprocs: tuple[Postproc, ...]
    target: tvm.target.Target
    context: Any


def derive_design(workload: Workload, target: Target) -> Design:
    """Derive the sketches; the result is the same in every process."""
    from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

    rules, postprocs = _make_rules(target), _make_postprocs(target)
    generator = PostOrderApply(sch_rules=rules, postprocs=postprocs, mutator_probs={})
    limited_target = _add_gpu_limits(target)
    context = tune_context(workload.module, limited_target, generator, SEED)
    traces = tuple(sch.trace for sch in generator.generate_design_space(workload.module))
    sampling_instructions = tuple(
        tuple(inst for inst in trace.insts if inst.kind.name in decisions.SAMPLING_INSTRUCTIONS) for trace in traces
    )
    return Design(traces, sampling_instructions, tuple(postprocs), limited_target, context)


def print_structure(trace: Trace) -> str:
    """Return a trace's steps as text, without decisions and without the postprocessors' steps."""
    from tvm.s_tir import Trace

    return str(Trace(trace.simplified(remove_postproc=True).insts, {}))


def _add_gpu_limits(target: Target) -> tvm.target.Target:
    """Return TVM's target, with defaults for the GPU limits that MetaSchedule's rules need."""
    import tvm

    if target.kind != "cuda":
        return target.tvm
    limits = {
        "max_threads_per_block": MAX_THREADS,
        "max_shared_memory_per_block": MAX_SHARED_BYTES,
        "thread_warp_size": 32,
    }
    return tvm.target.Target({**limits, **target.spec})


def _make_rules(target: Target) -> Sequence[ScheduleRule]:
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


def _make_postprocs(target: Target) -> list[Postproc]:
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
        item_bytes: The bytes per element, in all its copies: a software pipeline has several.
        strides: For each dimension, the stride of each tile, by its instruction's index.
    """

    item_bytes: int
    strides: tuple[Mapping[int, int], ...]

    def compute_bytes(self, extents: Sequence[int]) -> int:
        """Return the size in bytes, given the extent of each tile within a block."""
        shape = (
            1 + sum(stride * (extents[index] - 1) for index, stride in strides_by_tile.items())
            for strides_by_tile in self.strides
        )
        return math.prod(shape) * self.item_bytes


@dataclass(frozen=True)
class GpuLimits:
    """The limits that a GPU's threads and shared memory set on a sketch's tiles.

    Every tile that these limits exclude leads to a program that MetaSchedule's VerifyGPUCode rejects.

    Attributes:
        max_extents: The maximum extent of each axis.
        min_threads: The minimum number of threads in a block.
        axes_by_factor: For each sampling instruction, the axis to which each factor is bound.
        later_threads: For each instruction, the factor by which later ones can multiply the threads.
        shared_bytes: The maximum shared memory of a block.
        inner_factors: For each instruction, the factors whose iterations share memory.
    """

    max_extents: Mapping[str, int]
    min_threads: int
    axes_by_factor: tuple[Mapping[int, str], ...]
    later_threads: tuple[int, ...]
    shared_buffers: tuple[SharedBuffer, ...]
    shared_bytes: int
    inner_factors: tuple[tuple[int, ...], ...]

    @cached_property
    def initial_extents(self) -> tuple[int, ...]:
        """The extents of the axes, and of each tile within a block, before any choice."""
        return (1,) * (len(self.max_extents) + len(self.inner_factors))

    def restricts(self, index: int) -> bool:
        """Return whether the choices of the instruction at ``index`` are limited."""
        return bool(self.axes_by_factor[index] or self.inner_factors[index])

    def compute_extents_after(self, index: int, extents: tuple[int, ...], value: Value) -> tuple[int, ...]:
        """Return the ``extents`` after the instruction at ``index`` has drawn ``value``."""
        tile = cast(Tile, value)
        extents_by_axis = dict(zip(self.max_extents, extents, strict=False))
        for position, axis in self.axes_by_factor[index].items():
            extents_by_axis[axis] *= tile[position]
        tiles = list(extents[len(self.max_extents) :])
        tiles[index] = math.prod(tile[position] for position in self.inner_factors[index])
        return (*extents_by_axis.values(), *tiles)

    def count_threads(self, extents: tuple[int, ...]) -> int:
        """Return the number of threads in a block."""
        return dict(zip(self.max_extents, extents, strict=False))[THREAD]

    def can_fit(self, extents: tuple[int, ...]) -> bool:
        """Return whether threads and shared memory suffice if all other tiles have extent 1."""
        if any(count > max_extent for count, max_extent in zip(extents, self.max_extents.values(), strict=False)):
            return False
        tile_extents = extents[len(self.max_extents) :]
        return sum(buffer.compute_bytes(tile_extents) for buffer in self.shared_buffers) <= self.shared_bytes

    def narrow_tiles(self, index: int, extents: tuple[int, ...], tiles: Sequence[Tile]) -> list[Tile]:
        """Return the ``tiles`` that fit, and of these, only those with enough threads if there are any."""
        results = [(tile, self.compute_extents_after(index, extents, tile)) for tile in tiles]
        fitting = [(tile, new_extents) for tile, new_extents in results if self.can_fit(new_extents)]
        tiles_with_enough_threads = [
            tile
            for tile, new_extents in fitting
            if self.count_threads(new_extents) * self.later_threads[index] >= self.min_threads
        ]
        return tiles_with_enough_threads or [tile for tile, _ in fitting] or list(tiles)


@dataclass
class _TileTracer:
    """Follows a sketch's tiles through splits and fuses to thread bindings and shared buffers.

    Attributes:
        max_extents: The maximum extent of each axis to which loops are bound.
        sampled_factors: The instruction and the position of each sampled factor.
        tiling_instructions: The instruction that tiles each loop of the computation.
        factors_by_loop: The sampled factors whose product is the extent of a loop.
        shared_reads: The reading block and the number of the read, for each shared buffer.
        axes_by_factor: For each sampling instruction, the axis to which each factor is bound.
        inner_factors: The factors whose iterations share memory.
        copy_count: The number of copies of each shared buffer.
    """

    max_extents: Mapping[str, int]
    sampled_factors: dict[Any, tuple[int, int]] = field(default_factory=dict)
    tiling_instructions: dict[Any, int] = field(default_factory=dict)
    factors_by_loop: dict[Any, list[tuple[int, int]]] = field(default_factory=dict)
    loops_by_block: dict[Any, Sequence[Any]] = field(default_factory=dict)
    block_names: dict[Any, str] = field(default_factory=dict)
    loop_order: Sequence[Any] = ()
    shared_reads: dict[Any, tuple[Any, int]] = field(default_factory=dict)
    axes_by_factor: list[dict[int, str]] = field(default_factory=list)
    inner_factors: set[tuple[int, int]] = field(default_factory=set)
    min_threads: int = 1
    copy_count: int = 1

    def follow(self, inst: Instruction) -> None:
        """Follow the next instruction of the sketch."""
        instruction = inst.kind.name
        if instruction in decisions.SAMPLING_INSTRUCTIONS:
            if instruction == decisions.PERFECT_TILE:
                self.sampled_factors.update(
                    (number, (len(self.axes_by_factor), position)) for position, number in enumerate(inst.outputs)
                )
                self.tiling_instructions[inst.inputs[0]] = len(self.axes_by_factor)
            self.axes_by_factor.append({})
        elif instruction == "GetSBlock":
            self.block_names[inst.outputs[0]] = str(inst.attrs[0])
        elif instruction == "GetLoops":
            self.loops_by_block[inst.inputs[0]] = inst.outputs
        elif instruction == "Split":
            for loop, number in zip(inst.outputs, inst.inputs[1:], strict=True):
                self.factors_by_loop[loop] = [self.sampled_factors[number]] if number in self.sampled_factors else []
        elif instruction == "Reorder":
            self.loop_order = list(inst.inputs)
        elif instruction == "Fuse":
            self.factors_by_loop[inst.outputs[0]] = [
                factor for loop in inst.inputs for factor in self.factors_by_loop.get(loop, [])
            ]
        elif instruction == "Bind" and (axis := str(inst.attrs[0])) in self.max_extents:
            for index, position in self.factors_by_loop.get(inst.inputs[0], []):
                self.axes_by_factor[index][position] = axis
                self.inner_factors.add((index, position))
        elif instruction == "CacheRead" and inst.attrs[1] == "shared":
            self.shared_reads[inst.outputs[0]] = inst.inputs[0], int(inst.attrs[0])
        elif instruction == "ComputeAt" and inst.inputs[0] in self.shared_reads and inst.inputs[1] in self.loop_order:
            for loop in self.loop_order[self.loop_order.index(inst.inputs[1]) + 1 :]:
                self.inner_factors.update(self.factors_by_loop[loop])
        elif instruction == "Annotate" and inst.attrs[0] == "meta_schedule.thread_extent_low_inclusive":
            self.min_threads = int(inst.inputs[1])
        elif instruction == "Annotate" and inst.attrs[0] == "software_pipeline_stage":
            self.copy_count = 1 + max(map(int, inst.inputs[1]))


def derive_gpu_limits(
    workload: Workload, trace: Trace, target: Target, choices: Sequence[Sequence[Value]]
) -> GpuLimits:
    """Return a sketch's limits by following its tiles through splits and fuses to thread bindings and shared buffers.

    Args:
        workload: The workload.
        trace: The sketch.
        target: The target.
        choices: The choices of each sampling instruction.
    """
    max_extents = {VTHREAD: MAX_VTHREAD, THREAD: int(target.spec.get("max_threads_per_block", MAX_THREADS))}
    tracer = _TileTracer(max_extents)
    for inst in trace.insts:
        tracer.follow(inst)
    extents = [
        math.prod(cast(Tile, legal_choices[0])) if THREAD in axes.values() else 1
        for axes, legal_choices in zip(tracer.axes_by_factor, choices, strict=True)
    ]
    return GpuLimits(
        max_extents,
        tracer.min_threads,
        tuple(tracer.axes_by_factor),
        tuple(math.prod(extents[index + 1 :]) for index in range(len(extents))),
        tuple(
            _make_shared_buffer(
                workload,
                tracer.block_names[block],
                read,
                [tracer.tiling_instructions.get(loop) for loop in tracer.loops_by_block[block]],
                tracer.copy_count,
            )
            for block, read in tracer.shared_reads.values()
        ),
        int(target.spec.get("max_shared_memory_per_block", MAX_SHARED_BYTES)),
        tuple(
            tuple(position for i, position in sorted(tracer.inner_factors) if i == index)
            for index in range(len(tracer.axes_by_factor))
        ),
    )


def _make_shared_buffer(
    workload: Workload, block_name: str, read: int, tiles: Sequence[int | None], copy_count: int
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
        tile_strides = zip(tiles, coefficients, strict=False)
        strides.append({tile: abs(int(stride)) for tile, stride in tile_strides if tile is not None and int(stride)})
    return SharedBuffer(int(region.source.dtype.itemsize) * copy_count, tuple(strides))


def find_use(trace: Trace, instruction: Instruction) -> str:
    """Return what a sampled number is used for: its annotation's key, or else the first step that uses it."""
    (number,) = instruction.outputs
    for inst in trace.insts:
        if any(number.same_as(argument) for argument in inst.inputs if hasattr(argument, "same_as")):
            return str(inst.attrs[0]).rpartition(".")[2] if inst.kind.name == "Annotate" else inst.kind.name.lower()
    return "pick"
