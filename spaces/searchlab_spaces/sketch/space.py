"""``sketch``: Ansor's way. Sketches derived from the computation alone, and all that they leave open as knobs.

Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning" (OSDI 2020), section 4: a sketch is
the structure of a program, its annotation the numbers in it. Here the sketches are MetaSchedule's: traces whose
sampling instructions are still to be decided (Shao et al., NeurIPS 2022).
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
from .design import KINDS, SEED, Design, derive, structure, thread_limits, use_of

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule
    from tvm.s_tir.meta_schedule.postproc import Postproc
    from tvm.s_tir.schedule import Instruction

PROBES = 8
"""How many random programs of a sketch are made, once, to see how deep its compute locations go."""


class Sketch(Space):
    """The sketches that MetaSchedule's rules derive from the computation, as in Ansor, with their open choices.

    The first knob chooses the sketch, the others are its choices. Knobs are known from the sketch alone, so sampling a
    config creates no schedule. Compute locations offer more choices than are legal, because which loops remain depends
    on the tiles; TVM then takes the nearest legal loop, and ``canonical`` returns the config that this corresponds to.
    Configs with the same canonical form make the same program, which a study measures once.

    On a GPU, tiles that by themselves need too many or too few threads are not offered; anything else beyond its limits
    is an InvalidConfig. Raises UnsupportedWorkload for targets other than ``llvm`` and ``cuda``.
    """

    def __init__(self, workload: Workload, target: Target) -> None:
        if target.kind not in KINDS:
            raise UnsupportedWorkload(f"sketch has schedule rules for {' and '.join(KINDS)}, not for {target.kind}")
        super().__init__(workload, target)
        self._open = tuple(self._find_knobs(number) for number in range(len(self._design.traces)))
        self._limits = tuple(
            thread_limits(trace, target, [knob.choices for knob in knobs])
            for trace, knobs in zip(self._design.traces, self._open, strict=True)
        )
        self._narrowed: dict[tuple[int, int, tuple[int, ...]], Knob] = {}

    @property
    def sketches(self) -> list[str]:
        """Each sketch as TVM prints it: Python that samples where a knob is."""
        return [str(trace) for trace in self._design.traces]

    def dag(self) -> str:
        """The computation that the sketches are of, a line a stage, as Ansor prints it."""
        return print_dag(self.workload.prim_func())

    def decide(self, choose: Choose) -> Config:
        number = cast(int, choose(Knob("sketch", range(len(self._open)), role="sketch")))
        limits = self._limits[number]
        bound = limits.start()
        made: list[tuple[str, Value]] = [("sketch", number)]
        for index, knob in enumerate(self._open[number]):
            value = choose(self._narrow(number, index, bound) if limits.binds(index) else knob)
            bound = limits.after(index, bound, value)
            made.append((knob.name, value))
        return Config(made)

    def schedule(self, config: Mapping[str, Value]) -> Schedule:
        self.knobs(config)
        return self._finished(self._apply(config))

    def _finished(self, sch: Schedule) -> Schedule:
        """``sch`` after the postprocs. Raises InvalidConfig where one refuses it."""
        sch.enter_postproc()
        try:
            refusing = next((post for post in self._design.postprocs if not post.apply(sch)), None)
            if refusing is not None and self.target.kind == "cuda":
                check_gpu(sch.mod, self.target)  # says which limit; VerifyGPUCode says only that there is one
        except RuntimeError as error:
            raise InvalidConfig(f"the sketch cannot be finished: {first_line(error)}") from None
        if refusing is not None:
            raise InvalidConfig(
                f"MetaSchedule's {type(refusing).__name__} refuses the program: "
                f"its tiles make too few threads, or vectors of more than 16 bytes"
            )
        return sch

    def canonical(self, config: Mapping[str, Value]) -> Config:
        """``config`` as it is read back from the program it makes. Raises InvalidConfig where it makes none."""
        self.knobs(config)
        return self._read(cast(int, config["sketch"]), self._apply(config))

    def draw(self, seed: int) -> Schedule:
        from tvm.s_tir import Schedule, Trace

        number = int(np.random.default_rng(seed).integers(len(self._open)))
        sch = Schedule(self.workload.module, seed=seed, error_render_level="fast")
        try:
            Trace(self._design.traces[number].insts, {}).apply_to_schedule(sch, remove_postproc=False)
        except RuntimeError as error:
            raise InvalidConfig(f"the sketch cannot be applied: {first_line(error)}") from None
        return self._finished(sch)

    def config_of(self, schedule: Schedule) -> Config:
        number = self._structures.get(structure(schedule.trace))
        if number is None:
            raise InvalidConfig("the program is of none of the sketches")
        config = self._read(number, schedule)
        self.knobs(config)
        return config

    def finishing(self) -> tuple[tvm.target.Target, Sequence[Postproc]]:
        return self._design.target, self._design.postprocs

    def __getstate__(self) -> dict[str, Any]:
        # TVM's part does not pickle; where it is needed it is derived again, which takes milliseconds.
        derived = ("_design", "_structures")
        return {**{name: value for name, value in vars(self).items() if name not in derived}, "_narrowed": {}}

    @cached_property
    def _design(self) -> Design:
        return derive(self.workload, self.target)

    @cached_property
    def _structures(self) -> dict[str, int]:
        return {structure(trace): number for number, trace in enumerate(self._design.traces)}

    def _read(self, number: int, sch: Schedule) -> Config:
        """The decisions in the trace of ``sch``, a program of the sketch with this number."""
        made: list[tuple[str, Value]] = [("sketch", number)]
        for knob, inst in zip(self._open[number], _taken(sch), strict=True):
            made.append((knob.name, decisions.as_value(inst.kind.name, inst.attrs, sch.trace.get_decision(inst))))
        return Config(made)

    def _narrow(self, number: int, index: int, bound: tuple[int, ...]) -> Knob:
        """A tile's knob with the tiles that fit the threads ``bound`` by those before it."""
        key = (number, index, bound)
        if key not in self._narrowed:
            knob = self._open[number][index]
            tiles = self._limits[number].narrow(index, bound, cast(Sequence[Tile], knob.choices))
            self._narrowed[key] = replace(knob, choices=decisions.Choices(tiles))
        return self._narrowed[key]

    def _apply(self, config: Mapping[str, Value]) -> Schedule:
        """The sketch of ``config`` with its decisions, before any postprocessing."""
        from tvm.s_tir import Schedule, Trace

        number = cast(int, config["sketch"])
        trace, sampling = self._design.traces[number], self._design.sampling[number]
        made = {
            inst: decisions.as_decision(inst.kind.name, inst.attrs, config[knob.name])
            for knob, inst in zip(self._open[number], sampling, strict=True)
        }
        sch = Schedule(self.workload.module, seed=SEED, error_render_level="fast")
        try:
            Trace(trace.insts, made).apply_to_schedule(sch, remove_postproc=False)
        except RuntimeError as error:
            raise InvalidConfig(f"the sketch cannot be applied: {first_line(error)}") from None
        return sch

    def _find_knobs(self, number: int) -> tuple[Knob, ...]:
        """The knobs of a sketch, seen while it is applied.

        The loops that a sketch tiles are those of the computation: their extents depend on no earlier choice. Compute
        locations do. They range to the deepest seen, a range that is closed under TVM's taking the nearest legal one.
        """
        sampling = self._design.sampling[number]
        rng = np.random.default_rng(SEED)
        knobs, _ = self._probe(number, decisions.ROOT, rng)
        if located := [i for i, inst in enumerate(sampling) if inst.kind.name == decisions.COMPUTE_LOCATION]:
            # Deepest where the loops around the innermost ones run once, which is seldom so in a random program.
            met = [self._probe(number, decisions.DEEPEST, None)[1], self._probe(number, decisions.INLINE, rng)[1]]
            met += [self._probe(number, decisions.DEEPEST, rng)[1] for _ in range(PROBES)]
            for i in located:
                ends = [int(taken[i]) for taken in met]
                knobs[i] = replace(knobs[i], choices=range(min(*ends, decisions.ROOT), max(ends) + 1))
        return tuple(knobs)

    def _probe(self, number: int, location: int, rng: np.random.Generator | None) -> tuple[list[Knob], list[Any]]:
        """The knobs of a random program, its compute locations all asked to be ``location``; and TVM's decisions.

        Without ``rng``, that whose innermost loops have the shortest ones around them.
        """
        from tvm.s_tir import Schedule

        trace = self._design.traces[number]
        unique = decisions.Names()
        knobs: list[Knob] = []

        def decide(inst: Instruction, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> Any:
            kind = inst.kind.name
            if kind not in decisions.SAMPLING:
                return decision
            name = use_of(trace, inst) if kind == decisions.CATEGORICAL else decisions.knob_name(sch, kind, inputs)
            # Listing what is legal for a compute location is slow, and depends on the tiles: only its ends are found.
            located = kind == decisions.COMPUTE_LOCATION
            legal = (location,) if located else decisions.legal_choices(sch, kind, inputs, attrs)
            assert legal is not None, "the extents of a workload are constant"
            knobs.append(Knob(unique(name), legal, role=decisions.role_of(kind, name)))
            if rng is None:
                chosen = min(legal, key=lambda choice: choice[-2] if isinstance(choice, tuple) else 0)
            else:
                chosen = legal[int(rng.integers(len(legal)))]
            return decisions.as_decision(kind, attrs, chosen)

        sch = Schedule(self.workload.module, seed=SEED, error_render_level="fast")
        trace.apply_to_schedule(sch, remove_postproc=False, decision_provider=decide)
        return knobs, [sch.trace.get_decision(inst) for inst in _taken(sch)]


def _taken(sch: Schedule) -> list[Instruction]:
    """The sampling instructions in the trace of ``sch``."""
    return [inst for inst in sch.trace.insts if inst.kind.name in decisions.SAMPLING]
