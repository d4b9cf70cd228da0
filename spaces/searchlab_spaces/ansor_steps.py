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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from searchlab.errors import InvalidConfig
from searchlab.space import Value

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV, SBlockRV

UNSUPPORTED = {
    "CHR": "a cached operand",
    "CR": "computing at the root",
    "FFSP": "a split that follows fused splits",
    "RF": "a factored reduction",
    "SA": "aligned storage",
}
"""The kinds of steps without a counterpart here: mostly those of programs for GPUs."""

ANNOTATIONS = {1: "unroll", 2: "vectorize", 3: "parallel"}
"""The annotations of loops on CPUs by their numbers in records. Others bind loops to a GPU's threads."""

UNROLL = "auto_unroll_max_step$"
"""The pragma that limits the number of statements in an unrolled loop, before that number."""


class Loop(NamedTuple):
    """A loop of a stage."""

    variable: LoopRV
    is_reduction: bool


@dataclass(eq=False)
class Stage:
    """An argument or a block of the computation, in Ansor's order."""

    block: SBlockRV | None = None  # None for an argument
    loops: list[Loop] = field(default_factory=list)
    awaits_move: bool = False  # whether a step that has not been applied yet moves it into its consumer's loops
    delayed: list[Step] = field(default_factory=list)  # the steps that are applied after that


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
        InvalidConfig: If a step has no counterpart or cannot be applied; the message names it.
    """
    stages = _stages(sch)
    lengths: dict[int, Sequence[int]] = {}  # of each split
    steps: list[Step] = []
    for name, value in config.items():
        if not value:
            continue
        label, _, kind = name.partition("_")
        number = int(label.removeprefix("step"))
        if kind not in _APPLY:
            raise InvalidConfig(f"step {number} ({UNSUPPORTED.get(kind, kind)}) has no counterpart in the schedule")
        try:
            position, *arguments = json.loads(str(value))
            stage = stages[position]
            if kind == "SP":
                lengths[number] = arguments[2]
            elif kind == "FSP":
                arguments[1] = lengths[arguments[1]]
            elif kind == "CA":
                arguments[0] = stages[arguments[0]]
                stage.awaits_move = True
            elif kind == "CHW":
                stages.insert(position + 1, Stage())
                arguments[0:0] = [stages[position + 1]]
        except (ValueError, TypeError, LookupError, RecursionError):
            raise InvalidConfig(f"step {number} ({kind}) does not fit the {len(stages)} stages: {value}") from None
        steps.append(Step(number, kind, stage, arguments))
    for step in steps:
        try:
            _apply(sch, step)
        except (ValueError, TypeError, LookupError, RuntimeError, ArithmeticError) as error:
            # TVM prints the complete program before the reason.
            reason = str(error).rpartition("Error message: ")[2].strip().partition("\n")[0]
            raise InvalidConfig(f"step {step.number} ({step.kind}) cannot be applied: {reason}") from None
    for stage in stages:
        if stage.block is not None and (reductions := [loop for loop in stage.loops if loop.is_reduction]):
            sch.decompose_reduction(stage.block, reductions[0].variable)  # as TE initialises sums


def _stages(sch: Schedule) -> list[Stage]:
    """Return the stages in Ansor's order: each block follows the arguments that it is the first to read."""
    stages = []
    buffers: set[str] = set()
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        for region in sch.get(block).reads:
            if region.source.name not in buffers:
                buffers.add(region.source.name)
                stages.append(Stage())
        buffers.update(region.source.name for region in sch.get(block).writes)
        stages.append(Stage(block, _loops(sch, block)))
    return stages


def _loops(sch: Schedule, block: SBlockRV) -> list[Loop]:
    """Return the loops of a block that has not been transformed within its outer loops: one for each axis."""
    axes = sch.get(block).iter_vars
    variables = sch.get_loops(block)[-len(axes) :]
    return [Loop(variable, axis.iter_type == axis.CommReduce) for variable, axis in zip(variables, axes, strict=True)]


def _apply(sch: Schedule, step: Step) -> None:
    stage = step.arguments[0] if step.kind == "CA" else step.stage
    if stage.awaits_move and step.kind != "CHW":
        stage.delayed.append(step)
    else:
        _APPLY[step.kind](sch, step.stage, *step.arguments)


def _split(sch: Schedule, stage: Stage, position: int, _: int, lengths: Sequence[int], inner_to_outer: int) -> None:
    loop = stage.loops[position]
    extent = getattr(sch.get(loop.variable).extent, "value", None)
    sizes = []
    for length in reversed(lengths) if inner_to_outer else lengths:
        sizes.append(length if extent is None else min(length, extent))
        extent = extent if extent is None else math.ceil(extent / sizes[-1])
    parts = sch.split(loop.variable, [None, *reversed(sizes)] if inner_to_outer else [*sizes, None])
    stage.loops[position : position + 1] = [Loop(part, loop.is_reduction) for part in parts]


def _follow_split(sch: Schedule, stage: Stage, position: int, lengths: Sequence[int], parts: int) -> None:
    _split(sch, stage, position, 0, [*lengths[: parts - 1], math.prod(lengths[parts - 1 :])], 1)


def _fuse(sch: Schedule, stage: Stage, positions: Sequence[int]) -> None:
    loops = [stage.loops[position] for position in positions]
    fused = sch.fuse(*(loop.variable for loop in loops))
    stage.loops[positions[0] : positions[-1] + 1] = [Loop(fused, any(loop.is_reduction for loop in loops))]


def _reorder(sch: Schedule, stage: Stage, order: Sequence[int]) -> None:
    stage.loops = [stage.loops[position] for position in order]
    sch.reorder(*(loop.variable for loop in stage.loops))


def _annotate(sch: Schedule, stage: Stage, position: int, annotation: int) -> None:
    if annotation not in ANNOTATIONS:
        raise ValueError(f"annotation {annotation} has no counterpart")
    getattr(sch, ANNOTATIONS[annotation])(stage.loops[position].variable)


def _pragma(sch: Schedule, stage: Stage, position: int, pragma: str) -> None:
    if not pragma.startswith(UNROLL):
        raise ValueError(f"pragma {pragma!r} has no counterpart")
    loop = stage.loops[position].variable
    sch.annotate(loop, "pragma_auto_unroll_max_step", int(pragma.removeprefix(UNROLL)))
    sch.annotate(loop, "pragma_unroll_explicit", 1)


def _cache_write(sch: Schedule, stage: Stage, result: Stage, scope: str) -> None:
    result.block = sch.cache_write(stage.block, 0, scope)
    stage.loops, result.loops = _loops(sch, stage.block), _loops(sch, result.block)


def _compute_at(sch: Schedule, stage: Stage, consumer: Stage, position: int) -> None:
    sch.compute_at(stage.block, consumer.loops[position].variable, preserve_unit_loops=True)
    stage.loops, stage.awaits_move = _loops(sch, stage.block), False
    for step in stage.delayed:
        _apply(sch, step)


def _inline(sch: Schedule, stage: Stage) -> None:
    sch.compute_inline(stage.block)
    stage.block = None


_APPLY: dict[str, Callable[..., None]] = {
    "AN": _annotate,
    "CA": _compute_at,
    "CHW": _cache_write,
    "CI": _inline,
    "FSP": _follow_split,
    "FU": _fuse,
    "PR": _pragma,
    "RE": _reorder,
    "SP": _split,
}
