"""AutoTVM's knobs on ``tvm.s_tir``: how a template defines them, how they print, how a choice is applied to loops.

After Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018) and ``tvm.autotvm.task.space`` (TVM 0.17),
whose policies, order of choices, printed form and JSON entities are kept.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from searchlab.errors import InvalidConfig, SearchlabError, did_you_mean
from searchlab.space import Knob, Value

from ..tiles import Tile, factors, powers_of_two

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV

REORDER_POLICIES = ("all", "candidate")
ANNOTATE_POLICIES = ("unroll", "vec", "try_unroll", "try_vec", "try_unroll_vec")

INDEPENDENT = "knobs must not depend on what is chosen: define them from the workload's own loops"


# --- the choices of a knob ---------------------------------------------------------------------------------


SPLIT_POLICIES: dict[str, Callable[[int], list[int]]] = {
    "factors": factors,
    "power2": powers_of_two,
    # AutoTVM takes these in the order of a Python set, which nothing defines: here they rise.
    "verbose": lambda extent: sorted({*factors(extent), *powers_of_two(extent)}),
}
"""What each part of a tile but the outermost may be, by policy; ``"candidate"`` lists whole tiles instead."""


def splits(
    extent: int, num_outputs: int, policy: str = "factors", *, max_factor: int | None = None, no_tail: bool = False
) -> list[Tile]:
    """Every way to cut a loop of ``extent`` into ``num_outputs`` nested loops, outermost first, in AutoTVM's order.

    The innermost part varies slowest and every part rises; the outermost is what covers the rest. ``max_factor``
    bounds all parts but that. With ``"power2"`` and ``"verbose"`` a tile may reach past the loop's end, and the
    schedule then guards it, unless ``no_tail``; with ``"factors"`` it never does.
    """
    exact = no_tail or policy == "factors"
    candidates = [f for f in SPLIT_POLICIES[policy](extent) if max_factor is None or f <= max_factor]

    def grow(inner: Tile, size: int) -> Iterator[Tile]:
        if len(inner) == num_outputs - 1:
            yield (math.ceil(extent / size), *inner)
            return
        for factor in candidates:
            if (extent % (size * factor) == 0) if exact else (size * factor <= extent):
                yield from grow((factor, *inner), size * factor)

    return list(grow((), 1))


# --- choices, as a template applies them ------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """A chosen split: ``size`` is the extent of every part, outermost first."""

    size: Tile

    def apply(self, sch: Schedule, loop: LoopRV) -> list[LoopRV]:
        """Split ``loop`` so, guarded where the tile reaches past its end; returns the loops, outermost first."""
        return list(sch.split(loop, self.size))


@dataclass(frozen=True)
class Reorder:
    """A chosen order: ``perm[i]`` says which of the loops comes i-th."""

    perm: Tile

    def apply(self, sch: Schedule, loops: Sequence[LoopRV]) -> list[LoopRV]:
        """Reorder ``loops`` so; returns them in their new order."""
        ordered = [loops[i] for i in self.perm]
        sch.reorder(*ordered)
        return ordered


@dataclass(frozen=True)
class Annotate:
    """Chosen annotations: for each loop ``"none"``, ``"unroll"`` or ``"vec"``."""

    anns: tuple[str, ...]

    def apply(
        self,
        sch: Schedule,
        loops: Sequence[LoopRV],
        *,
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
    ) -> None:
        """Annotate ``loops`` so.

        Raises InvalidConfig for an unrolled loop longer than ``max_unroll``, or a vectorised one whose extent is
        not in ``vec_size``.
        """
        for loop, annotation in zip(loops, self.anns, strict=True):
            extent = int(sch.get(loop).extent)
            if annotation == "unroll":
                if max_unroll is not None and extent > max_unroll:
                    raise InvalidConfig(f"it unrolls a loop of {extent}, and the template allows {max_unroll}")
                sch.unroll(loop)
            elif annotation == "vec":
                if vec_size is not None and extent not in vec_size:
                    raise InvalidConfig(f"it vectorises a loop of {extent}, and the template allows {list(vec_size)}")
                sch.vectorize(loop)


@dataclass(frozen=True)
class Option:
    """A chosen value of a plain knob."""

    val: Value


# --- knobs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TemplateKnob(Knob):
    """A knob of a template. ``str`` is what AutoTVM prints of it; an entity is a choice as AutoTVM's logs write it."""

    code: ClassVar[str]
    """AutoTVM's name of the kind."""

    @abstractmethod
    def chosen(self, value: Value) -> Split | Reorder | Annotate | Option:
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
    """A choice is a word for each loop, in one string: ``"none,unroll,vec"``."""

    policy: str
    code = "an"

    def chosen(self, value: Value) -> Annotate:
        return Annotate(tuple(str(value).split(",")))

    def to_entity(self, value: Value) -> list[str]:
        return str(value).split(",")

    def from_entity(self, entity: Any) -> str:
        return ",".join(entity)

    def __str__(self) -> str:
        return f"Annotate(policy={self.policy}) len={len(self.choices)}"


@dataclass(frozen=True)
class OptionKnob(TemplateKnob):
    """A choice is any value."""

    code = "ot"

    def chosen(self, value: Value) -> Option:
        return Option(value)

    def __str__(self) -> str:
        return f"OtherOption({list(self.choices)}) len={len(self.choices)}"


def covering(extent: int, tile: Tile) -> Tile:
    """``tile`` with the outermost part, given as -1 or not, that just covers ``extent``."""
    inner = math.prod(tile[1:])
    if not tile or min(tile[1:], default=1) < 1 or (tile[0] != -1 and tile[0] * inner < extent):
        raise InvalidConfig(
            f"{list(tile)} does not split a loop of {extent}: its parts must cover it, or start with -1"
        )
    return (math.ceil(extent / inner), *tile[1:])


# --- the cfg of a template --------------------------------------------------------------------------------


class TemplateConfig:
    """The ``cfg`` of a template: it collects the knobs while they are defined, and answers with what was chosen.

    Without choices every knob is at its first one, so that a template runs through while its space is found. Which
    knobs there are, and their choices, must not depend on what is chosen.
    """

    def __init__(self, schedule: Schedule, chosen: Mapping[str, Value] | None = None) -> None:
        self.knobs: dict[str, TemplateKnob] = {}
        self._schedule = schedule
        self._chosen = chosen

    def define_split(
        self,
        name: str,
        loop: LoopRV,
        num_outputs: int,
        policy: str = "factors",
        *,
        filter: Callable[[Split], bool] | None = None,
        max_factor: int | None = None,
        no_tail: bool = False,
        candidate: Sequence[Sequence[int]] = (),
    ) -> None:
        """A knob that splits ``loop`` into ``num_outputs`` nested loops.

        policy: the parts are divisors of its extent (``"factors"``), powers of two (``"power2"``), either
        (``"verbose"``), or the tiles listed in ``candidate``, whose first part may be -1. filter: which splits
        are kept. max_factor, no_tail: see :func:`splits`. Raises SearchlabError for anything else.
        """
        extent = int(self._schedule.get(loop).extent)
        if policy == "candidate":
            if any(len(tile) != num_outputs for tile in candidate):
                raise SearchlabError(f"knob {name!r}: its candidates must have {num_outputs} parts, not {candidate}")
            tiles = list(dict.fromkeys(covering(extent, tuple(tile)) for tile in candidate))
        else:
            _check_policy("split", name, policy, (*SPLIT_POLICIES, "candidate"))
            tiles = splits(extent, num_outputs, policy, max_factor=max_factor, no_tail=no_tail)
        kept = [tile for tile in tiles if filter is None or filter(Split(tile))]
        self._define(SplitKnob(name, kept, policy, extent, num_outputs))

    def define_knob(self, name: str, candidates: Sequence[Value]) -> None:
        """A knob that takes one of ``candidates``."""
        self._define(OptionKnob(name, list(candidates)))

    def define_reorder(
        self,
        name: str,
        loops: Sequence[LoopRV],
        policy: str = "all",
        *,
        candidate: Sequence[Sequence[LoopRV]] = (),
    ) -> None:
        """A knob that orders ``loops``: in any way (``"all"``), or as one of ``candidate`` (``"candidate"``)."""
        _check_policy("reorder", name, policy, REORDER_POLICIES)
        identity = range(len(loops))
        if policy == "all":
            orders = list(itertools.permutations(identity))
        else:
            orders = [tuple(i for loop in order for i in identity if loops[i].same_as(loop)) for order in candidate]
            if any(sorted(order) != list(identity) for order in orders):
                raise SearchlabError(f"knob {name!r}: each candidate must be an order of all of its {len(loops)} loops")
        self._define(ReorderKnob(name, list(dict.fromkeys(orders)), policy))

    def define_annotate(self, name: str, loops: Sequence[LoopRV], policy: str) -> None:
        """A knob that unrolls or vectorises ``loops``, at most one of them vectorised.

        policy: ``"unroll"`` and ``"vec"`` do it to all, ``"try_unroll"``, ``"try_vec"`` and ``"try_unroll_vec"``
        to any of them.
        """
        _check_policy("annotate", name, policy, ANNOTATE_POLICIES)
        words = policy.replace("try", "none").split("_")
        marks = [m for m in itertools.product(words, repeat=len(loops)) if m.count("vec") <= 1]
        self._define(AnnotateKnob(name, [",".join(m) for m in marks], policy))

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
