"""AutoTVM's knobs on ``tvm.s_tir``: what a template defines, and how it applies what was chosen.

After Chen et al., "Learning to optimize tensor programs" (NeurIPS 2018) and ``tvm.autotvm.task.space``, whose
order of choices is kept: the innermost factor varies slowest, every loop's factors are tried in rising order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from searchlab.errors import InvalidConfig
from searchlab.space import Knob, Value

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV

Tile = tuple[int, ...]


def factors(extent: int) -> list[int]:
    """The divisors of ``extent``, rising."""
    small = [d for d in range(1, math.isqrt(extent) + 1) if extent % d == 0]
    return sorted({*small, *(extent // d for d in small)})


def splits(extent: int, num_outputs: int, max_factor: int | None = None) -> list[Tile]:
    """Every way to split ``extent`` into ``num_outputs`` factors, outermost first, in AutoTVM's order.

    max_factor bounds every factor but the outermost.
    """
    candidates = [d for d in factors(extent) if max_factor is None or d <= max_factor]
    inner = itertools.product(candidates, repeat=num_outputs - 1)
    return [(extent // math.prod(part), *reversed(part)) for part in inner if extent % math.prod(part) == 0]


@dataclass(frozen=True)
class Split:
    """A chosen split of a loop."""

    tile: Tile

    @property
    def size(self) -> Tile:
        return self.tile

    def apply(self, sch: Schedule, loop: LoopRV) -> list[LoopRV]:
        """Split ``loop`` so: as many loops as the knob has outputs, outermost first."""
        return list(sch.split(loop, self.tile))


@dataclass(frozen=True)
class Choice:
    """A chosen value of a plain knob."""

    val: Value


class TemplateConfig:
    """The ``cfg`` of a template: it collects the knobs while they are defined, and answers with what was chosen.

    Without choices every knob is at its first one, so that a template runs through while its space is found.
    """

    def __init__(self, chosen: Mapping[str, Value] | None = None) -> None:
        self.knobs: list[Knob] = []
        self._chosen = chosen
        self._values: dict[str, Split | Choice] = {}

    def define_split(
        self,
        name: str,
        extent: int,
        num_outputs: int,
        *,
        max_factor: int | None = None,
        filter: Callable[[Tile], bool] | None = None,
    ) -> None:
        """A knob that splits a loop of ``extent`` into ``num_outputs`` factors that divide it.

        max_factor: the most that any factor but the outermost may be. filter: which tiles are kept.
        """
        tiles = [tile for tile in splits(extent, num_outputs, max_factor) if filter is None or filter(tile)]
        self._define(Knob(name, tiles), Split)

    def define_knob(self, name: str, candidates: Sequence[Value]) -> None:
        """A knob that takes one of ``candidates``."""
        self._define(Knob(name, list(candidates)), Choice)

    def _define(self, knob: Knob, made: Callable[[Any], Split | Choice]) -> None:
        if knob.name in self._values:
            raise InvalidConfig(f"the template defines knob {knob.name!r} twice")
        self.knobs.append(knob)
        value = knob.choices[0] if self._chosen is None else self._chosen[knob.name]
        self._values[knob.name] = made(value)

    def __getitem__(self, name: str) -> Any:
        """The chosen :class:`Split` or :class:`Choice`, as the knob was defined."""
        return self._values[name]
