"""Ansor's transform steps, applied as a schedule of today's TVM.

The logs that ``searchlab import FILE --space parameters`` writes refer to :func:`apply_steps`.

Source: ``include/tvm/auto_scheduler/transform_step.h`` of TVM 0.17. Steps refer to stages and loops by their
positions. In TE, a stage that is moved into its consumer's loops keeps its own, which are shortened to the region
that is read. In s_tir, it gets new loops, so the steps before the move are applied after it, with tiles that do not
exceed the region.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from searchlab.errors import InvalidConfig
from searchlab.space import Value

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV, SBlockRV

ANNOTATIONS = {1: "unroll", 2: "vectorize", 3: "parallel"}
"""The annotations of loops by their numbers."""

THREAD_AXES = {
    4: "vthread.x",
    5: "blockIdx.x",
    6: "threadIdx.x",
    7: "blockIdx.y",
    8: "threadIdx.y",
    9: "blockIdx.z",
    10: "threadIdx.z",
}
"""The axes of a GPU's threads to which other annotations bind a loop."""

UNROLL_PRAGMA = "auto_unroll_max_step$"
"""The pragma that limits the number of statements in an unrolled loop, before that number."""


class Loop(NamedTuple):
    """A loop of a stage."""

    variable: LoopRV
    is_reduction: bool


@dataclass(eq=False)
class Stage:
    """An argument or a block of the computation, in Ansor's order.

    Attributes:
        block: The block, or None for an argument.
        buffer: The name of its result.
        is_cached: Whether it is a copy of what others read.
        awaits_move: Whether a step that has not been applied yet moves it into its consumer's loops.
        delayed: The steps that are applied after that.
    """

    block: SBlockRV | None = None
    buffer: str = ""
    loops: list[Loop] = field(default_factory=list)
    is_cached: bool = False
    awaits_move: bool = False
    delayed: list[Step] = field(default_factory=list)


class Step(NamedTuple):
    """A transform step."""

    number: int
    kind: str
    stage: Stage
    arguments: Sequence[Any]


def apply_steps(sch: Schedule, config: Mapping[str, Value]) -> None:
    """Apply the transform steps of an Ansor record to the schedule of its workload.

    Args:
        sch: The schedule, to which nothing has been applied yet.
        config: The steps in order: ``step0_SP`` is a split's arguments in JSON, or "" if the record has no such step.

    Raises:
        InvalidConfig: If a step is not supported or cannot be applied; the message names it.
    """
    stages = _make_stages(sch)
    split_lengths: dict[int, Sequence[int]] = {}  # of each split
    steps: list[Step] = []
    for name, value in config.items():
        if not value:
            continue
        label, _, kind = name.partition("_")
        number = int(label.removeprefix("step"))
        if kind not in _FUNCTIONS_BY_KIND:
            raise InvalidConfig(f"step {number} ({kind}) is not supported")
        try:
            position, *arguments = json.loads(str(value))
            stage = stages[position]
            if kind == "SP":
                split_lengths[number] = arguments[2]
            elif kind == "FSP":
                arguments[1] = split_lengths[arguments[1]]
            elif kind == "FFSP":
                arguments[1] = [split_lengths[split] for split in arguments[1]]
            elif kind == "CA":
                arguments[0] = stages[arguments[0]]
                stage.awaits_move = True
            elif kind == "CR":
                steps = [step for step in steps if step.kind != "CA" or step.stage is not stage]
                stage.awaits_move = False
            elif kind == "RF":
                stages[position : position + 1] = new_stages = [Stage(), Stage()]
                arguments += new_stages
            elif kind in ("CHR", "CHW"):
                if kind == "CHR":
                    arguments[1] = [stages[reader] for reader in arguments[1]]
                stages.insert(position + 1, Stage(is_cached=kind == "CHR"))
                arguments.append(stages[position + 1])
        except (ValueError, TypeError, LookupError, RecursionError):
            raise InvalidConfig(f"step {number} ({kind}) does not fit the {len(stages)} stages: {value}") from None
        steps.append(Step(number, kind, stage, arguments))
    # What is copied to shared memory depends on which loops are bound to threads, so this is applied last.
    for step in sorted(steps, key=lambda step: step.kind == "CA" and step.stage.is_cached):
        with _convert_errors(f"step {step.number} ({step.kind})"):
            _apply_step(sch, step)
    if any(stage.awaits_move for stage in stages):
        raise InvalidConfig("the steps move stages into each other")
    with _convert_errors("the initialisation of sums"):
        _initialize_sums(sch, steps)


def _initialize_sums(sch: Schedule, steps: Sequence[Step]) -> None:
    """Initialise sums before their outermost loop and, on a GPU, compute them in registers, as TE does."""
    binds_threads = any(step.kind == "AN" and step.arguments[1] in THREAD_AXES for step in steps)
    moved_stages = [step.stage for step in steps if step.kind == "CA"]
    for stage in dict.fromkeys(step.stage for step in steps):
        if stage.block is not None and (reductions := [loop for loop in stage.loops if loop.is_reduction]):
            if binds_threads and stage in moved_stages:
                sch.set_scope(stage.block, 0, "local")
            sch.decompose_reduction(stage.block, reductions[0].variable)


@contextmanager
def _convert_errors(title: str) -> Iterator[None]:
    """Convert errors to InvalidConfig. TVM prints the complete program before the reason, which alone is kept."""
    try:
        yield
    except (ValueError, TypeError, LookupError, RuntimeError, ArithmeticError) as error:
        reason = str(error).rpartition("Error message: ")[2].strip().partition("\n")[0]
        raise InvalidConfig(f"{title} cannot be applied: {reason}") from None


def _make_stages(sch: Schedule) -> list[Stage]:
    """Return the stages in Ansor's order: each block follows the arguments that it is the first to read."""
    stages: list[Stage] = []
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        for region in sch.get(block).reads:
            if all(region.source.name != stage.buffer for stage in stages):
                stages.append(Stage(buffer=region.source.name))
        stages.append(Stage())
        _set_block(sch, stages[-1], block)
    return stages


def _set_block(sch: Schedule, stage: Stage, block: SBlockRV) -> None:
    """Let ``stage`` be a block that has not been transformed within its outer loops: with a loop for each axis."""
    stage.block, stage.buffer = block, sch.get(block).writes[0].source.name
    axes = sch.get(block).iter_vars
    variables = sch.get_loops(block)[-len(axes) :]
    stage.loops = [
        Loop(variable, axis.iter_type == axis.CommReduce) for variable, axis in zip(variables, axes, strict=True)
    ]


def _apply_step(sch: Schedule, step: Step) -> None:
    stage = step.arguments[0] if step.kind == "CA" else step.stage
    if stage.awaits_move and step.kind not in ("CHR", "CHW"):
        stage.delayed.append(step)
    else:
        _FUNCTIONS_BY_KIND[step.kind](sch, step.stage, *step.arguments)


def _split(sch: Schedule, stage: Stage, position: int, _: int, lengths: Sequence[int], inner_to_outer: int) -> None:
    loop = stage.loops[position]
    extent = getattr(sch.get(loop.variable).extent, "value", None)
    sizes = []
    for length in reversed(lengths) if inner_to_outer else lengths:
        sizes.append(length if extent is None else min(length, extent))
        extent = extent if extent is None else math.ceil(extent / sizes[-1])
    new_loops = sch.split(loop.variable, [None, *reversed(sizes)] if inner_to_outer else [*sizes, None])
    stage.loops[position : position + 1] = [Loop(new_loop, loop.is_reduction) for new_loop in new_loops]


def _follow_split(sch: Schedule, stage: Stage, position: int, lengths: Sequence[int], part_count: int) -> None:
    _split(sch, stage, position, 0, [*lengths[: part_count - 1], math.prod(lengths[part_count - 1 :])], 1)


def _follow_fused_split(
    sch: Schedule, stage: Stage, position: int, splits: Sequence[Sequence[int]], level: int, is_factor: int
) -> None:
    # This is the number of threads, even if the loop has fewer iterations.
    length = math.prod(lengths[level] for lengths in splits)
    loop = stage.loops[position]
    new_loops = sch.split(loop.variable, [None, length] if is_factor else [length, None])
    stage.loops[position : position + 1] = [Loop(new_loop, loop.is_reduction) for new_loop in new_loops]


def _fuse(sch: Schedule, stage: Stage, positions: Sequence[int]) -> None:
    loops = [stage.loops[position] for position in positions]
    fused = sch.fuse(*(loop.variable for loop in loops))
    stage.loops[positions[0] : positions[-1] + 1] = [Loop(fused, any(loop.is_reduction for loop in loops))]


def _reorder(sch: Schedule, stage: Stage, order: Sequence[int]) -> None:
    stage.loops = [stage.loops[position] for position in order]
    sch.reorder(*(loop.variable for loop in stage.loops))


def _annotate(sch: Schedule, stage: Stage, position: int, annotation: int) -> None:
    loop = stage.loops[position].variable
    if annotation in ANNOTATIONS:
        getattr(sch, ANNOTATIONS[annotation])(loop)
    elif annotation in THREAD_AXES:
        sch.bind(loop, THREAD_AXES[annotation])
    else:
        raise ValueError(f"annotation {annotation} is not supported")


def _apply_pragma(sch: Schedule, stage: Stage, position: int, pragma: str) -> None:
    if not pragma.startswith(UNROLL_PRAGMA):
        raise ValueError(f"pragma {pragma!r} is not supported")
    loop = stage.loops[position].variable
    sch.annotate(loop, "pragma_auto_unroll_max_step", int(pragma.removeprefix(UNROLL_PRAGMA)))
    sch.annotate(loop, "pragma_unroll_explicit", 1)


def _cache_write(sch: Schedule, stage: Stage, scope: str, result: Stage) -> None:
    copy = sch.cache_write(stage.block, 0, scope)
    _set_block(sch, stage, stage.block)
    _set_block(sch, result, copy)


def _cache_read(sch: Schedule, stage: Stage, scope: str, readers: Sequence[Stage], result: Stage) -> None:
    blocks = [reader.block for reader in readers]
    _set_block(sch, result, sch.cache_read(blocks[0], stage.buffer, scope, blocks))


def _factor_reduction(sch: Schedule, stage: Stage, position: int, axis: int, partial: Stage, total: Stage) -> None:
    total.block, stage.block = stage.block, None
    partial.block = sch.rfactor(stage.loops[position].variable, axis)
    loops = sch.get_loops(partial.block)[-len(stage.loops) :]
    loops.insert(axis, loops.pop(position))
    sch.reorder(*loops)
    # TVM puts the new axis first in both blocks, but in TE, it is the last one of the total.
    for stage, index in ((partial, axis), (total, len(loops))):
        order = [*range(1, len(sch.get(stage.block).iter_vars))]
        order.insert(index, 0)
        sch.reorder_block_iter_var(stage.block, order)
        _set_block(sch, stage, stage.block)


def _compute_at(sch: Schedule, stage: Stage, consumer: Stage, position: int) -> None:
    sch.compute_at(stage.block, consumer.loops[position].variable, preserve_unit_loops=True)
    _set_block(sch, stage, stage.block)
    stage.awaits_move = False
    for step in stage.delayed:
        _apply_step(sch, step)


def _align_storage(sch: Schedule, stage: Stage, dimension: int, factor: int, offset: int) -> None:
    sch.storage_align(stage.block, 0, dimension, factor, offset)


def _inline(sch: Schedule, stage: Stage) -> None:
    sch.compute_inline(stage.block)
    stage.block = None


_FUNCTIONS_BY_KIND: dict[str, Callable[..., None]] = {
    "AN": _annotate,
    "CA": _compute_at,
    "CHR": _cache_read,
    "CHW": _cache_write,
    "CI": _inline,
    "CR": lambda sch, stage: None,  # unless a step moves it
    "FFSP": _follow_fused_split,
    "FSP": _follow_split,
    "FU": _fuse,
    "PR": _apply_pragma,
    "RE": _reorder,
    "RF": _factor_reduction,
    "SA": _align_storage,
    "SP": _split,
}
