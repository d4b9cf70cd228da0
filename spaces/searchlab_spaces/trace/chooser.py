"""A schedule that asks for its samples, so the caller of a stochastic trace function makes the choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm.s_tir.schedule import ExprRV, LoopRV, SBlockRV

from searchlab.errors import SearchlabError
from searchlab.space import Knob, Value

from .. import decisions
from ..unchecked import Unchecked

ChooseSample = Callable[[Knob, int], Value]
"""Chooses a knob's value, given its position among all samples, counted from 0."""


class AllSamplesDrawn(Exception):
    """All samples have been drawn, and the program itself is not needed."""


class Chooser(Unchecked):  # type: ignore[misc]
    """A TVM schedule that calls ``choose`` for each sample without a given decision. A copy is a plain schedule.

    Args:
        module: The program to schedule.
        choose: Makes the choices.
        samples_only: Whether to raise :class:`Sampled` after the last sample, if the function declares which it is.
    """

    __slots__ = ("_choose", "_has_ended", "_make_unique", "_sample_count", "_samples_only")

    def __init__(self, module: tvm.IRModule, choose: ChooseSample, *, samples_only: bool = False) -> None:
        super().__init__(module, seed=1, error_render_level="fast")
        self._choose = choose
        self._make_unique = decisions.UniqueNames()
        self._sample_count = 0
        self._samples_only = samples_only
        self._has_ended = False

    def end_samples(self) -> None:
        self._has_ended = True
        if self._samples_only:
            raise AllSamplesDrawn

    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16, decision: list[int] | None = None
    ) -> list[ExprRV]:
        choice = self._choose_decision(decision, decisions.PERFECT_TILE, loop, [n, max_innermost_factor])
        return list(super().sample_perfect_tile(loop, n, max_innermost_factor, decision=choice))

    def sample_partitioned_tile(
        self, loop: LoopRV, n: int, partition_pos: int = 0, innerpart_factor: int = 1, decision: list[int] | None = None
    ) -> list[ExprRV]:
        choice = self._choose_decision(decision, decisions.PARTITIONED_TILE, loop, [n, partition_pos, innerpart_factor])
        return list(super().sample_partitioned_tile(loop, n, partition_pos, innerpart_factor, decision=choice))

    def sample_categorical(self, candidates: list[int], probs: list[float], decision: int | None = None) -> ExprRV:
        choice = self._choose_decision(decision, decisions.CATEGORICAL, None, [candidates, probs])
        return super().sample_categorical(candidates, probs, decision=choice)

    def sample_compute_location(self, block: SBlockRV | str, decision: int | None = None) -> LoopRV:
        block = self.get_sblock(block) if isinstance(block, str) else block
        choice = self._choose_decision(decision, decisions.COMPUTE_LOCATION, block, [])
        return super().sample_compute_location(block, decision=choice)

    def _choose_decision(
        self, decision: Any, instruction: str, loop_or_block: LoopRV | SBlockRV | None, attrs: Sequence[Any]
    ) -> Any:
        """Return the given decision or, if there is none, the chosen one."""
        position = self._sample_count
        self._sample_count += 1
        if self._has_ended:
            raise SearchlabError("a trace function must not draw another sample after calling last_sample")
        if decision is not None:
            return decision
        choices = decisions.list_legal_choices(self, instruction, [loop_or_block], attrs)
        if choices is None:
            return None
        name = self._make_unique(decisions.make_knob_name(self, instruction, [loop_or_block]))
        knob = Knob(name, choices, role=decisions.find_role(instruction))
        return decisions.to_decision(instruction, attrs, self._choose(knob, position))


class RandomSchedule(Unchecked):  # type: ignore[misc]
    """A TVM schedule that draws its samples at random and raises ValueError where TVM would search endlessly."""

    __slots__ = ()

    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16, decision: list[int] | None = None
    ) -> list[ExprRV]:
        if decision is None and max_innermost_factor < 1 and max_innermost_factor != decisions.NO_LIMIT:
            raise ValueError(f"no tile has a last factor of at most {max_innermost_factor}")
        return list(super().sample_perfect_tile(loop, n, max_innermost_factor, decision=decision))
