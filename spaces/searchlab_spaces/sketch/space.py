"""``sketch``: the search space of Ansor and MetaSchedule, derived from the computation alone.

Source: Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning" (OSDI 2020), section 4: a
sketch is a program's structure, and annotations are its parameters. The sketches here are MetaSchedule's: traces with
open sampling instructions (Shao et al., NeurIPS 2022).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from searchlab.errors import InvalidConfig, UnsupportedWorkload, first_line
from searchlab.space import Choose, Config, Knob, Space, Value
from searchlab.target import Target
from searchlab.workload import Workload

from .. import decisions
from ..gpu_check import check_gpu
from ..tiles import Tile
from .dag import print_dag
from .design import SEED, TARGET_KINDS, Design, GpuLimits, derive_design, derive_gpu_limits, find_use, print_structure

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule
    from tvm.s_tir.meta_schedule.postproc import Postproc
    from tvm.s_tir.schedule import Instruction

PROBE_COUNT = 8
"""The number of random programs to generate from a sketch to determine the range of its compute locations."""


MAX_NARROWED_KNOBS = 10_000
"""The number of narrowed knobs to keep, which together take some 30 MB."""


class Sketch(Space):
    """The sketches that MetaSchedule's rules derive from the computation, as in Ansor, with their open choices.

    The first knob chooses the sketch; the others are the sketch's open choices. Knobs are known from the sketch alone,
    so sampling a config creates no schedule. Compute locations offer more choices than are legal, because the tiles
    determine which loops remain. TVM replaces an illegal location with the nearest legal one, and ``canonical`` returns
    the corresponding config. Configs with the same canonical form yield the same program, which a study measures only
    once.

    On a GPU, tiles that need too many or too few threads, or too much shared memory, are not offered; configs that
    exceed any other limit raise InvalidConfig. Raises UnsupportedWorkload for targets other than ``llvm`` and ``cuda``.
    """

    def __init__(self, workload: Workload, target: Target) -> None:
        if target.kind not in TARGET_KINDS:
            raise UnsupportedWorkload(
                f"sketch supports only targets of kind {' and '.join(TARGET_KINDS)}, not {target.kind}"
            )
        super().__init__(workload, target)
        _ = self._design  # fails if no sketch can be derived
        self._narrowed_knobs: dict[tuple[int, int, tuple[int, ...]], Knob] = {}

    @property
    def sketches(self) -> list[str]:
        """The sketches as Python code printed by TVM, with a sampling step for each knob."""
        return [str(trace) for trace in self._design.traces]

    def dag(self) -> str:
        """Return the computation, one line per stage, as Ansor prints it."""
        return print_dag(self.workload.prim_func())

    def decide(self, choose: Choose) -> Config:
        sketch_index = cast(int, choose(Knob("sketch", range(len(self._knobs_by_sketch)), role="sketch")))
        limits = self._limits_by_sketch[sketch_index]
        extents = limits.initial_extents
        values: dict[str, Value] = {"sketch": sketch_index}
        for index, knob in enumerate(self._knobs_by_sketch[sketch_index]):
            if limits.restricts(index):
                values[knob.name] = value = choose(self._narrow_knob(sketch_index, index, extents))
                extents = limits.compute_extents_after(index, extents, value)
            else:
                values[knob.name] = choose(knob)
        return Config.wrap(values)

    def schedule(self, config: Mapping[str, Value]) -> Schedule:
        self.knobs(config)
        return self._postprocess(self._apply_sketch(config))

    def _postprocess(self, sch: Schedule) -> Schedule:
        """Apply the postprocessors to ``sch``. Raises InvalidConfig if one of them rejects it."""
        sch.enter_postproc()
        try:
            rejecting = next((post for post in self._design.postprocs if not post.apply(sch)), None)
            if rejecting is not None and self.target.kind == "cuda":
                check_gpu(sch.mod, self.target)  # reports the limit, unlike VerifyGPUCode
        except RuntimeError as error:
            raise InvalidConfig(f"the postprocessors fail: {first_line(error)}") from None
        if rejecting is not None:
            raise InvalidConfig(
                f"MetaSchedule's {type(rejecting).__name__} rejects the program: "
                f"its tiles lead to too few threads, or to vectors of more than 16 bytes"
            )
        return sch

    def canonical(self, config: Mapping[str, Value]) -> Config:
        """Return ``config`` as read back from its program. Raises InvalidConfig if it has none."""
        self.knobs(config)
        return self._read_config(cast(int, config["sketch"]), self._apply_sketch(config))

    def draw(self, seed: int) -> Schedule:
        from tvm.s_tir import Schedule, Trace

        sketch_index = int(np.random.default_rng(seed).integers(len(self._knobs_by_sketch)))
        sch = Schedule(self.workload.module, seed=seed, error_render_level="fast")
        try:
            Trace(self._design.traces[sketch_index].insts, {}).apply_to_schedule(sch, remove_postproc=False)
        except RuntimeError as error:
            raise InvalidConfig(f"the sketch cannot be applied: {first_line(error)}") from None
        return self._postprocess(sch)

    def config_of(self, schedule: Schedule) -> Config:
        sketch_index = self._sketches_by_structure.get(print_structure(schedule.trace))
        if sketch_index is None:
            raise InvalidConfig("the program belongs to none of the sketches")
        config = self._read_config(sketch_index, schedule)
        self.knobs(config)
        return config

    def postprocessing(self) -> tuple[tvm.target.Target, Sequence[Postproc]]:
        return self._design.target, self._design.postprocs

    def __getstate__(self) -> dict[str, Any]:
        # TVM's objects cannot be pickled; they are derived again when needed, which takes milliseconds. The knobs take
        # longer, and a copy can sample without TVM.
        _ = self._knobs_by_sketch, self._limits_by_sketch
        derived_attributes = ("_design", "_sketches_by_structure")
        return {
            **{name: value for name, value in vars(self).items() if name not in derived_attributes},
            "_narrowed_knobs": {},
        }

    @cached_property
    def _design(self) -> Design:
        return derive_design(self.workload, self.target)

    @cached_property
    def _knobs_by_sketch(self) -> tuple[tuple[Knob, ...], ...]:
        """The open choices of each sketch."""
        return tuple(self._find_knobs(sketch_index) for sketch_index in range(len(self._design.traces)))

    @cached_property
    def _limits_by_sketch(self) -> tuple[GpuLimits, ...]:
        """The limits that a GPU sets on the tiles of each sketch."""
        return tuple(
            derive_gpu_limits(self.workload, trace, self.target, [knob.choices for knob in knobs])
            for trace, knobs in zip(self._design.traces, self._knobs_by_sketch, strict=True)
        )

    @cached_property
    def _sketches_by_structure(self) -> dict[str, int]:
        return {print_structure(trace): sketch_index for sketch_index, trace in enumerate(self._design.traces)}

    def _read_config(self, sketch_index: int, sch: Schedule) -> Config:
        """Read the config from the trace of ``sch``, a program generated from the sketch with this number."""
        values: list[tuple[str, Value]] = [("sketch", sketch_index)]
        for knob, inst in zip(self._knobs_by_sketch[sketch_index], _sampling_instructions(sch), strict=True):
            values.append((knob.name, decisions.to_value(inst.kind.name, inst.attrs, sch.trace.get_decision(inst))))
        return Config(values)

    def _narrow_knob(self, sketch_index: int, index: int, extents: tuple[int, ...]) -> Knob:
        """Return a tile's knob, restricted to the tiles that fit the ``extents`` of earlier ones."""
        key = (sketch_index, index, extents)
        if key not in self._narrowed_knobs:
            if len(self._narrowed_knobs) == MAX_NARROWED_KNOBS:
                self._narrowed_knobs.clear()
            knob = self._knobs_by_sketch[sketch_index][index]
            tiles = self._limits_by_sketch[sketch_index].narrow_tiles(
                index, extents, cast(Sequence[Tile], knob.choices)
            )
            self._narrowed_knobs[key] = replace(knob, choices=decisions.Choices(tiles))
        return self._narrowed_knobs[key]

    def _apply_sketch(self, config: Mapping[str, Value]) -> Schedule:
        """Apply the sketch and the decisions of ``config``, without postprocessing."""
        from tvm.s_tir import Schedule, Trace

        sketch_index = cast(int, config["sketch"])
        trace, sampling_instructions = (
            self._design.traces[sketch_index],
            self._design.sampling_instructions[sketch_index],
        )
        values = {
            inst: decisions.to_decision(inst.kind.name, inst.attrs, config[knob.name])
            for knob, inst in zip(self._knobs_by_sketch[sketch_index], sampling_instructions, strict=True)
        }
        sch = Schedule(self.workload.module, seed=SEED, error_render_level="fast")
        try:
            Trace(trace.insts, values).apply_to_schedule(sch, remove_postproc=False)
        except RuntimeError as error:
            raise InvalidConfig(f"the sketch cannot be applied: {first_line(error)}") from None
        return sch

    def _find_knobs(self, sketch_index: int) -> tuple[Knob, ...]:
        """Determine the knobs of a sketch by applying it.

        A sketch tiles the computation's loops, whose extents do not depend on earlier choices. Compute locations do
        depend on them: they range up to the deepest location seen. If a location is illegal, TVM uses the nearest legal
        one, which is also in that range.
        """
        sampling_instructions = self._design.sampling_instructions[sketch_index]
        rng = np.random.default_rng(SEED)
        knobs, _ = self._probe_sketch(sketch_index, decisions.ROOT, rng)
        if indices := [
            i for i, inst in enumerate(sampling_instructions) if inst.kind.name == decisions.COMPUTE_LOCATION
        ]:
            # Locations are deepest if the loops around the innermost ones have extent 1, which random draws rarely
            # produce.
            probes = [
                self._probe_sketch(sketch_index, decisions.DEEPEST, None)[1],
                self._probe_sketch(sketch_index, decisions.INLINE, rng)[1],
            ]
            probes += [self._probe_sketch(sketch_index, decisions.DEEPEST, rng)[1] for _ in range(PROBE_COUNT)]
            for i in indices:
                ends = [int(probe[i]) for probe in probes]
                knobs[i] = replace(knobs[i], choices=range(min(*ends, decisions.ROOT), max(ends) + 1))
        return tuple(knobs)

    def _probe_sketch(
        self, sketch_index: int, location: int, rng: np.random.Generator | None
    ) -> tuple[list[Knob], list[Any]]:
        """Return the knobs of a random program, and TVM's decisions if all compute locations request ``location``.

        Without ``rng``, use the program whose loops around the innermost ones are shortest.
        """
        from tvm.s_tir import Schedule

        trace = self._design.traces[sketch_index]
        make_unique = decisions.UniqueNames()
        knobs: list[Knob] = []

        def decide(inst: Instruction, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> Any:
            instruction = inst.kind.name
            if instruction not in decisions.SAMPLING_INSTRUCTIONS:
                return decision
            name = (
                find_use(trace, inst)
                if instruction == decisions.CATEGORICAL
                else decisions.make_knob_name(sch, instruction, inputs)
            )
            # Listing the legal compute locations is slow and depends on the tiles, so only the ends are determined.
            is_location = instruction == decisions.COMPUTE_LOCATION
            choices = (location,) if is_location else decisions.list_legal_choices(sch, instruction, inputs, attrs)
            assert choices is not None, "the extents of a workload are constant"
            knobs.append(Knob(make_unique(name), choices, role=decisions.find_role(instruction, name)))
            if rng is None:
                value = min(choices, key=lambda choice: choice[-2] if isinstance(choice, tuple) else 0)
            else:
                value = choices[int(rng.integers(len(choices)))]
            return decisions.to_decision(instruction, attrs, value)

        sch = Schedule(self.workload.module, seed=SEED, error_render_level="fast")
        trace.apply_to_schedule(sch, remove_postproc=False, decision_provider=decide)
        return knobs, [sch.trace.get_decision(inst) for inst in _sampling_instructions(sch)]


def _sampling_instructions(sch: Schedule) -> list[Instruction]:
    """Return the sampling instructions in the trace of ``sch``."""
    return [inst for inst in sch.trace.insts if inst.kind.name in decisions.SAMPLING_INSTRUCTIONS]
