"""``sketch``: Ansor's way. Sketches derived from the computation alone, and everything they leave open as knobs.

Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning" (OSDI 2020), section 4, as it lives
on in MetaSchedule: schedule rules are applied to the blocks of a computation in post order, and each way through them
is a sketch, a trace whose sampling instructions are still to be decided (Shao et al., NeurIPS 2022).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from searchlab.errors import InvalidConfig, UnsupportedWorkload
from searchlab.space import Choose, Config, Knob, Space, Value
from searchlab.target import Target
from searchlab.workload import Workload

from . import decisions
from .dag import print_dag
from .gpu_check import SHARED_BYTES, THREADS, check_gpu

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule, Trace
    from tvm.s_tir.meta_schedule.postproc import Postproc
    from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule
    from tvm.s_tir.meta_schedule.space_generator import SpaceGenerator
    from tvm.s_tir.schedule import Instruction

SEED = 1
"""Of what TVM draws while it derives sketches. None of it is kept: every decision is replaced by a config's."""

PROBES = 16
"""How many random programs of a sketch are made, once, to see how deep compute locations go."""


@dataclass(frozen=True)
class Design:
    """What TVM holds of a space: the sketches, each with its sampling instructions, and what finishes a program."""

    traces: tuple[Trace, ...]
    sampling: tuple[tuple[Instruction, ...], ...]
    postprocs: tuple[Postproc, ...]
    context: Any  # keeps alive what the postprocs refer to


class Sketch(Space):
    """The programs of all sketches of a workload. The first knob is which sketch, the rest are what it leaves open.

    Knobs are known from the sketch alone, so that a config is sampled without a schedule. Where that leaves a choice
    too wide, it is that of a compute location: its loops depend on the tiles. TVM takes the nearest legal loop, so such
    a config is legal too and :meth:`canonical` says which one it stands for; two that stand for the same one make the
    same program, which a study measures once. Mutation and crossover work on configs as they were asked for, so that a
    location that a tile hid comes back with the next tile.

    Raises UnsupportedWorkload for a target that is neither ``llvm`` nor ``cuda``.
    """

    def __init__(self, workload: Workload, target: Target) -> None:
        if target.kind not in ("llvm", "cuda"):
            raise UnsupportedWorkload(f"sketch has schedule rules for llvm and cuda, not for {target.kind}")
        super().__init__(workload, target)
        self._knobs = tuple(self._find_knobs(number) for number in range(len(self._design.traces)))

    @property
    def sketches(self) -> list[str]:
        """Each sketch as TVM prints it: Python that samples where a knob is."""
        return [str(trace) for trace in self._design.traces]

    def dag(self) -> str:
        """The computation that the sketches are of, a line a stage, as Ansor prints it."""
        return print_dag(self.workload.prim_func())

    def decide(self, choose: Choose) -> Config:
        number = cast(int, choose(Knob("sketch", range(len(self._knobs)))))
        return Config([("sketch", number), *((knob.name, choose(knob)) for knob in self._knobs[number])])

    def schedule(self, config: Mapping[str, Value]) -> Schedule:
        self.knobs(config)
        sch = self._apply(config)
        sch.enter_postproc()
        try:
            refused = [next((post for post in self._design.postprocs if not post.apply(sch)), None)]
        except RuntimeError as error:
            raise InvalidConfig(f"the sketch cannot be finished: {_first_line(error)}") from None
        return sch

    def canonical(self, config: Mapping[str, Value]) -> Config:
        """``config`` as it is read back from the program it makes. Raises InvalidConfig where it makes none."""
        self.knobs(config)
        trace = self._apply(config).trace
        made: list[tuple[str, Value]] = [("sketch", config["sketch"])]
        taken = [inst for inst in trace.insts if inst.kind.name in decisions.SAMPLING]
        for knob, inst in zip(self._knobs[cast(int, config["sketch"])], taken, strict=True):
            made.append((knob.name, decisions.as_value(inst.kind.name, inst.attrs, trace.get_decision(inst))))
        return Config(made)

    def __getstate__(self) -> dict[str, Any]:
        # TVM's part does not pickle. It is derived again where it is needed, which takes milliseconds.
        return {name: value for name, value in vars(self).items() if name != "_design"}

    @cached_property
    def _design(self) -> Design:
        from tvm.s_tir import meta_schedule as ms

        rules, postprocs = _rules(self.target), _postprocs(self.target)
        generator = ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=postprocs, mutator_probs={})
        context = _context(self.workload.module, with_limits(self.target), generator)
        traces = tuple(sch.trace for sch in generator.generate_design_space(self.workload.module))
        sampling = tuple(
            tuple(inst for inst in trace.insts if inst.kind.name in decisions.SAMPLING) for trace in traces
        )
        return Design(traces, sampling, tuple(postprocs), context)

    def _apply(self, config: Mapping[str, Value]) -> Schedule:
        """The sketch of ``config`` with its decisions, before any postprocessing."""
        from tvm.s_tir import Schedule, Trace

        number = cast(int, config["sketch"])
        trace, sampling = self._design.traces[number], self._design.sampling[number]
        made = {
            inst: decisions.as_decision(inst.kind.name, inst.attrs, config[knob.name])
            for knob, inst in zip(self._knobs[number], sampling, strict=True)
        }
        sch = Schedule(self.workload.module, seed=SEED, error_render_level="fast")
        try:
            Trace(trace.insts, made).apply_to_schedule(sch, remove_postproc=False)
        except RuntimeError as error:
            raise InvalidConfig(f"the sketch cannot be applied: {_first_line(error)}") from None
        return sch

    def _find_knobs(self, number: int) -> tuple[Knob, ...]:
        """The knobs of a sketch, seen while it is applied.

        Extents of sampled loops are those of the computation and do not depend on earlier tiles. Compute locations
        do: they range to the deepest seen, which is closed under TVM's taking the nearest legal one below.
        """
        from tvm.s_tir import Schedule

        trace, sampling = self._design.traces[number], self._design.sampling[number]
        rng = np.random.default_rng(SEED)
        seen: list[list[Knob]] = []

        def decide(inst: Instruction, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> Any:
            if inst.kind.name not in decisions.SAMPLING:
                return decision
            knob = decisions.sampling_knob(sch, inst.kind.name, inputs, attrs)
            assert knob is not None, "extents of a workload are constant"
            seen[-1].append(knob)
            return decisions.as_decision(inst.kind.name, attrs, knob.choices[int(rng.integers(len(knob.choices)))])

        located = any(inst.kind.name == decisions.COMPUTE_LOCATION for inst in sampling)
        for _ in range(PROBES if located else 1):
            seen.append([])
            sch = Schedule(self.workload.module, seed=SEED, error_render_level="fast")
            trace.apply_to_schedule(sch, remove_postproc=False, decision_provider=decide)

        names = decisions.Names()
        knobs = []
        for inst, *met in zip(sampling, *seen, strict=True):
            name, choices = met[0].name, met[0].choices
            if inst.kind.name == decisions.COMPUTE_LOCATION:
                ends = [cast(int, location) for knob in met for location in (knob.choices[0], knob.choices[-1])]
                choices = range(min(ends), max(ends) + 1)
            elif inst.kind.name == decisions.CATEGORICAL:
                name = _use(trace, inst) or name
            knobs.append(Knob(names(name), choices))
        return tuple(knobs)


def _use(trace: Trace, sampled: Instruction) -> str:
    """What a sampled number is for: the key of the annotation it becomes, or else what takes it."""
    (variable,) = sampled.outputs
    for inst in trace.insts:
        if any(variable.same_as(used) for used in inst.inputs if hasattr(used, "same_as")):
            return str(inst.attrs[0]).rpartition(".")[2] if inst.kind.name == "Annotate" else inst.kind.name.lower()
    return ""


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _context(module: tvm.IRModule, target: tvm.target.Target, generator: SpaceGenerator) -> Any:
    """A TuneContext, made without its Python constructor: that imports every tensor intrinsic there is, for 15 s."""
    from tvm.s_tir.meta_schedule import _ffi_api

    context = _ffi_api.TuneContext(module, target, generator, None, "main", 1, SEED, None)
    _ffi_api.TuneContextInitialize(context)
    return context


def _rules(target: Target) -> Sequence[ScheduleRule]:
    """MetaSchedule's rules for the target; those that need tensor intrinsics are in neither list."""
    from tvm.s_tir.meta_schedule import schedule_rule as rule

    if target.kind == "cuda":
        return list(rule.ScheduleRule.create("cuda"))
    jobs = 16 if target.cores > 1 else -1  # -1: no parallel loops
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
    """MetaSchedule's postprocs, but RewriteLayout on a CPU: it would change the layout of an argument."""
    from tvm.s_tir.meta_schedule import postproc

    if target.kind == "cuda":
        return list(postproc.Postproc.create("cuda"))
    return [
        postproc.DisallowDynamicLoop(),
        postproc.RewriteParallelVectorizeUnroll(),
        postproc.RewriteReductionBlock(),
    ]
