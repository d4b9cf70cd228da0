"""AutoTVM's knobs on ``tvm.s_tir``: how a template defines them, how they print, how a log writes them.

After Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018) and ``tvm.autotvm.task.space`` (TVM 0.17),
whose policies, order of choices, printed form and JSON entities are kept.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from searchlab.errors import InvalidConfig, SearchlabError, did_you_mean
from searchlab.space import Knob, Value

from ..tiles import Tile
from .choices import (
    GPU_LEVELS,
    MARKS,
    REORDER_POLICIES,
    SPLIT_POLICIES,
    gpu_binding,
    interleaved,
    intervals,
    marked,
    splits,
)
from .entities import Annotate, Entity, Option, Reorder, Split

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV

LOCATE_CACHE = "locate_cache"
COMMON_MARKS = ("none", "unroll", "vec", "try_unroll", "try_vec", "try_unroll_vec")

INDEPENDENT = "knobs must not depend on what is chosen: define them from the workload's own loops"


# --- knobs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TemplateKnob(Knob):
    """A knob of a template. ``str`` is what AutoTVM prints of it; an entity is a choice as AutoTVM's logs write it."""

    code: ClassVar[str]
    """AutoTVM's name of the kind."""

    @abstractmethod
    def chosen(self, value: Value) -> Entity:
        """What ``cfg[name]`` is when ``value`` is chosen."""

    def to_entity(self, value: Value) -> Any:
        return list(value) if isinstance(value, tuple) else value

    def from_entity(self, entity: Any) -> Value:
        """The choice that ``entity`` stands for, which need not be one of :attr:`choices`."""
        return tuple(entity) if isinstance(entity, list) else cast(Value, entity)


@dataclass(frozen=True)
class SplitKnob(TemplateKnob):
    """A choice is the extents of all parts, outermost first; an entity has -1 for the outermost."""

    policy: str
    product: int
    num_outputs: int
    code = "sp"

    def chosen(self, value: Value) -> Split:
        return Split(cast(Tile, value))

    def to_entity(self, value: Value) -> list[int]:
        return [-1, *cast(Tile, value)[1:]]

    def from_entity(self, entity: Any) -> Tile:
        return covering(self.product, tuple(entity))

    def __str__(self) -> str:
        return (
            f"Split(policy={self.policy}, product={self.product}, num_outputs={self.num_outputs}) "
            f"len={len(self.choices)}"
        )


@dataclass(frozen=True)
class ReorderKnob(TemplateKnob):
    """A choice is a permutation of the loops, written as a tuple, but no tile: two orders are the same or not."""

    policy: str
    code = "re"
    kind = "word"

    def chosen(self, value: Value) -> Reorder:
        return Reorder(cast(Tile, value))

    def __str__(self) -> str:
        return f"Reorder(policy={self.policy}) len={len(self.choices)}"


@dataclass(frozen=True)
class AnnotateKnob(TemplateKnob):
    """A choice is a word for each loop, in one string: ``"none,unroll,vec"``; or positions of loops, in a tuple."""

    policy: str
    code = "an"
    kind = "word"

    def chosen(self, value: Value) -> Annotate:
        return Annotate(value if isinstance(value, tuple) else tuple(str(value).split(",")))

    def to_entity(self, value: Value) -> list[str] | list[int]:
        return list(self.chosen(value).anns)  # type: ignore[return-value]

    def from_entity(self, entity: Any) -> Value:
        return tuple(entity) if self.policy == LOCATE_CACHE else ",".join(entity)

    def __str__(self) -> str:
        return f"Annotate(policy={self.policy}) len={len(self.choices)}"


@dataclass(frozen=True)
class OptionKnob(TemplateKnob):
    """A choice is any value."""

    code = "ot"

    def chosen(self, value: Value) -> Option:
        return Option(value)

    def __str__(self) -> str:
        return f"OtherOption([{', '.join(map(str, self.choices))}]) len={len(self.choices)}"


def covering(extent: int, tile: Tile) -> Tile:
    """``tile`` with the outermost part, given as -1 or not, that just covers ``extent``."""
    inner = math.prod(tile[1:])
    if not tile or min(tile[1:], default=1) < 1 or (tile[0] != -1 and tile[0] * inner < extent):
        raise InvalidConfig(
            f"{list(tile)} does not split a loop of {extent}: its parts must cover it, or start with -1"
        )
    return (math.ceil(extent / inner), *tile[1:])


# --- the cfg of a template --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Axis:
    """A loop that knobs are defined for before there is one; no length where that follows from a choice."""

    length: int | None = None


class TemplateConfig:
    """The ``cfg`` of a template: it collects the knobs while they are defined, and answers with what was chosen.

    Without choices every knob is at its first one, so that a template runs through while its space is found. Which
    knobs there are, and their choices, must not depend on what is chosen. The words are AutoTVM's. A knob may be
    defined for loops of the schedule, for lengths (see :meth:`axis`), and but for a split, for what a
    ``define_`` method returned: the loops that there will be once the knob is applied.
    """

    def __init__(self, schedule: Schedule, chosen: Mapping[str, Value] | None = None) -> None:
        self.knobs: dict[str, TemplateKnob] = {}
        self.filter: Callable[[Mapping[str, Any]], bool] | None = None
        self._schedule = schedule
        self._chosen = chosen

    def axis(self, loop: LoopRV | int) -> Axis:
        """A loop as long as ``loop``, to define knobs for."""
        return Axis(loop if isinstance(loop, int) else int(self._schedule.get(loop).extent))

    reduce_axis = axis

    def define_split(
        self,
        name: str,
        axis: LoopRV | Axis | int,
        num_outputs: int,
        policy: str = "factors",
        *,
        filter: Callable[[Split], bool] | None = None,
        max_factor: int | None = None,
        no_tail: bool | None = None,
        candidate: Sequence[Sequence[int]] = (),
    ) -> list[Axis]:
        """A knob that splits a loop into ``num_outputs`` nested loops, which are returned.

        policy: the parts are divisors of its extent (``"factors"``), powers of two (``"power2"``), either
        (``"verbose"``), or the tiles listed in ``candidate``, whose first part may be -1. filter: which splits
        are kept. max_factor, no_tail: see :func:`~.choices.splits`. Raises SearchlabError for anything else.
        """
        extent = axis.length if isinstance(axis, Axis) else self.axis(axis).length
        if extent is None:
            raise SearchlabError(f"knob {name!r} splits what another knob makes; {INDEPENDENT}")
        if policy == "candidate":
            if any(len(tile) != num_outputs for tile in candidate):
                raise SearchlabError(f"knob {name!r}: its candidates must have {num_outputs} parts, not {candidate}")
            tiles = list(dict.fromkeys(covering(extent, tuple(tile)) for tile in candidate))
        else:
            _check_policy("split", name, policy, (*SPLIT_POLICIES, "candidate"))
            tiles = splits(extent, num_outputs, policy, max_factor=max_factor, no_tail=no_tail)
        kept = [tile for tile in tiles if filter is None or filter(Split(tile))]
        self._define(SplitKnob(name, kept, policy, extent, num_outputs))
        return [Axis() for _ in range(num_outputs)]

    def define_knob(self, name: str, candidate: Sequence[Value]) -> None:
        """A knob that takes one of ``candidate``."""
        self._define(OptionKnob(name, list(candidate)))

    def define_reorder(
        self,
        name: str,
        axes: Sequence[LoopRV | Axis],
        policy: str = "all",
        *,
        interval: tuple[int, int] | None = None,
        candidate: Sequence[Sequence[LoopRV | Axis]] = (),
        spatial: Sequence[Sequence[LoopRV | Axis]] = (),
        reduce: Sequence[Sequence[LoopRV | Axis]] = (),
    ) -> list[Axis]:
        """A knob that orders ``axes``; returns as many.

        policy: as they are (``"identity"``), in any way (``"all"``), in any way from position ``interval[0]`` up to
        ``interval[1]`` (``"interval_all"``), or as one of ``candidate``, which may leave loops where they are.
        ``"interleave"`` and ``"interleave_cuda"`` merge the chains of loops ``spatial`` and ``reduce`` into one order:
        see :func:`~.choices.interleaved`.
        """
        _check_policy("reorder", name, policy, REORDER_POLICIES)
        axes = list(axes)
        try:
            listed, tiled, reduced = (
                [tuple(axes.index(axis) for axis in chain) for chain in chains]
                for chains in (candidate, spatial, reduce)
            )
        except ValueError:
            raise SearchlabError(f"knob {name!r} orders a loop that is none of its {len(axes)} loops") from None
        if policy == "identity":
            orders: list[Tile] = [tuple(range(len(axes)))]
        elif policy == "all":
            orders = list(itertools.permutations(range(len(axes))))
        elif policy == "interval_all":
            if interval is None or not 0 <= interval[0] <= interval[1] <= len(axes):
                raise SearchlabError(f"knob {name!r}: interval is {interval}; it must be (begin, end) in its loops")
            orders = intervals(len(axes), *interval)
        elif policy == "candidate":
            orders = listed
        else:
            orders = [interleaved(tiled, reduced, cuda=policy == "interleave_cuda")]
        if any(not order or len(set(order)) < len(order) for order in orders):
            raise SearchlabError(f"knob {name!r}: {policy} must give orders of loops, none of them twice, not {orders}")
        self._define(ReorderKnob(name, list(dict.fromkeys(orders)), policy))
        return [Axis() for _ in axes]

    def define_annotate(
        self, name: str, axes: Sequence[LoopRV | Axis | int], policy: str, *, num_anchor: int | None = None
    ) -> list[Axis]:
        """A knob that says what becomes of ``axes``; returns as many.

        policy: words of MARKS joined by ``_``, for any loop to be any of them, but only one vectorised: ``"unroll"``
        unrolls all, ``"try_unroll_vec"`` any. ``"bind_gpu"`` and ``"bind_gpu_virtual"`` bind the innermost to the
        threads of a GPU: see :func:`~.choices.gpu_binding`. ``"locate_cache"`` chooses ``num_anchor`` of them.
        """
        if policy == LOCATE_CACHE:
            if num_anchor is None:
                raise SearchlabError(f"knob {name!r}: the policy {policy!r} needs num_anchor, a number of loops")
            choices: list[Value] = list(itertools.combinations(range(len(axes)), num_anchor))
        elif policy in GPU_LEVELS:
            if len(axes) < (least := len(GPU_LEVELS[policy])):
                raise SearchlabError(f"knob {name!r}: {policy} takes {least} loops or more, not {len(axes)}")
            choices = [",".join(gpu_binding(len(axes), policy))]
        else:
            words = list(dict.fromkeys(policy.replace("try", "none").split("_")))
            if not set(words) <= set(MARKS):
                _check_policy("annotate", name, policy, (*COMMON_MARKS, *GPU_LEVELS, LOCATE_CACHE))
            choices = [",".join(marks) for marks in marked(len(axes), words)]
        self._define(AnnotateKnob(name, choices, policy))
        return [Axis() for _ in axes]

    def multi_filter(self, filter: Callable[[Mapping[str, Any]], bool]) -> None:
        """Keep only the configs for which ``filter`` is true, given what ``cfg[name]`` would be by name.

        It replaces an earlier one. Its calls are as many as there are ways to choose the knobs that it looks at.
        """
        self.filter = filter

    def _define(self, knob: TemplateKnob) -> None:
        if knob.name in self.knobs:
            raise SearchlabError(f"the template defines knob {knob.name!r} twice")
        if self._chosen is not None and knob.name not in self._chosen:
            raise SearchlabError(f"the template defines knob {knob.name!r} for some choices only; {INDEPENDENT}")
        self.knobs[knob.name] = knob

    def __getitem__(self, name: str) -> Any:
        """The chosen :class:`Split`, :class:`Reorder`, :class:`Annotate` or :class:`Option`, as it was defined."""
        if name not in self.knobs:
            raise SearchlabError(f"the template asks for knob {name!r}{did_you_mean(name, self.knobs)}")
        knob = self.knobs[name]
        return knob.chosen(knob.choices[0] if self._chosen is None else self._chosen[name])


def _check_policy(kind: str, name: str, policy: str, known: Sequence[str]) -> None:
    if policy not in known:
        raise SearchlabError(f"knob {name!r}: there is no {kind} policy {policy!r}{did_you_mean(policy, known)}")
