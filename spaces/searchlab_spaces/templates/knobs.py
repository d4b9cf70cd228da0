"""AutoTVM's knobs on ``tvm.s_tir``: their definitions in a template, their printed form, and their form in logs.

Source: Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018) and ``tvm.autotvm.task.space`` (TVM 0.17).
Policies, the order of choices, the printed form and the JSON entities agree with AutoTVM.
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
    interleave,
    list_annotations,
    list_gpu_bindings,
    list_interval_orders,
    list_splits,
)
from .entities import Annotate, Entity, Option, Reorder, Split

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV

LOCATE_CACHE = "locate_cache"

COMMON_MARKS = ("none", "unroll", "vec", "try_unroll", "try_vec", "try_unroll_vec")
"""The marks that are suggested for a misspelled policy, although any combination of MARKS is allowed."""

INDEPENDENCE_REQUIREMENT = "knobs must not depend on choices: define them from the loops of the workload"


# --- knobs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TemplateKnob(Knob):
    """A knob of a template; ``str`` is AutoTVM's printed form."""

    code: ClassVar[str]
    """AutoTVM's name for this kind of knob."""

    @abstractmethod
    def entity_for(self, value: Value) -> Entity:
        """Return ``cfg[name]`` when ``value`` is chosen."""

    def to_entity(self, value: Value) -> Any:
        """Return ``value`` in the form of AutoTVM's logs."""
        return list(value) if isinstance(value, tuple) else value

    def from_entity(self, entity: Any) -> Value:
        """Invert :meth:`to_entity`; the result need not be one of :attr:`choices`."""
        return tuple(entity) if isinstance(entity, list) else cast(Value, entity)


@dataclass(frozen=True)
class SplitKnob(TemplateKnob):
    """A split: a choice consists of the extents of all parts, outermost first. In an entity, the outermost is -1."""

    policy: str
    product: int
    num_outputs: int
    code = "sp"

    def entity_for(self, value: Value) -> Split:
        return Split(cast(Tile, value))

    def to_entity(self, value: Value) -> list[int]:
        return [-1, *cast(Tile, value)[1:]]

    def from_entity(self, entity: Any) -> Tile:
        return cover(self.product, tuple(entity))

    def __str__(self) -> str:
        return (
            f"Split(policy={self.policy}, product={self.product}, num_outputs={self.num_outputs}) "
            f"len={len(self.choices)}"
        )


@dataclass(frozen=True)
class ReorderKnob(TemplateKnob):
    """A loop order: a choice is a permutation as a tuple. The knob's kind is word: distances have no meaning."""

    policy: str
    code = "re"
    kind = "word"

    def entity_for(self, value: Value) -> Reorder:
        return Reorder(cast(Tile, value))

    def __str__(self) -> str:
        return f"Reorder(policy={self.policy}) len={len(self.choices)}"


@dataclass(frozen=True)
class AnnotateKnob(TemplateKnob):
    """Annotations: a choice is one word per loop, as in ``"none,unroll,vec"``, or a tuple of loop positions."""

    policy: str
    code = "an"
    kind = "word"

    def entity_for(self, value: Value) -> Annotate:
        return Annotate(value if isinstance(value, tuple) else tuple(str(value).split(",")))

    def to_entity(self, value: Value) -> list[str] | list[int]:
        return list(self.entity_for(value).anns)  # type: ignore[return-value]

    def from_entity(self, entity: Any) -> Value:
        return tuple(entity) if self.policy == LOCATE_CACHE else ",".join(entity)

    def __str__(self) -> str:
        return f"Annotate(policy={self.policy}) len={len(self.choices)}"


@dataclass(frozen=True)
class OptionKnob(TemplateKnob):
    """A plain knob, whose choices are any values."""

    code = "ot"

    def entity_for(self, value: Value) -> Option:
        return Option(value)

    def __str__(self) -> str:
        return f"OtherOption([{', '.join(map(str, self.choices))}]) len={len(self.choices)}"


def cover(extent: int, tile: Tile) -> Tile:
    """Return ``tile`` with the smallest outermost part (possibly given as -1) that covers ``extent``."""
    inner = math.prod(tile[1:])
    if not tile or min(tile[1:], default=1) < 1 or (tile[0] != -1 and tile[0] * inner < extent):
        raise InvalidConfig(
            f"{list(tile)} does not split a loop of extent {extent}: the product of its parts must be at least the "
            "extent, or the first part must be -1"
        )
    return (math.ceil(extent / inner), *tile[1:])


# --- the cfg of a template --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Axis:
    """A loop for which knobs can be defined before the loop exists.

    Attributes:
        length: The length, or None if it depends on a choice.
    """

    length: int | None = None


class TemplateConfig:
    """A template's ``cfg``, with AutoTVM's interface: it collects the knobs and returns the chosen values.

    The knobs and their choices must not depend on the chosen values. A knob may be defined for the schedule's loops or
    for lengths (see :meth:`axis`). A knob other than a split may also be defined for the result of a ``define_``
    method, which stands for the loops that exist once that knob has been applied.

    Args:
        schedule: The schedule.
        choices: The chosen values, or None while the knobs are being collected, with every knob at its first choice.
    """

    def __init__(self, schedule: Schedule, choices: Mapping[str, Value] | None = None) -> None:
        self.knobs: dict[str, TemplateKnob] = {}
        self.filter: Callable[[Mapping[str, Any]], bool] | None = None
        self._schedule = schedule
        self._values_by_knob = choices

    def axis(self, loop: LoopRV | int) -> Axis:
        """Return an axis of the same length as ``loop``, for which knobs can be defined."""
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
        """Define a knob that splits a loop.

        Args:
            name: The name of the knob.
            axis: The loop.
            num_outputs: The number of nested loops.
            policy: Which parts to allow: divisors of the extent (``"factors"``), powers of two (``"power2"``), either
                of these (``"verbose"``), or the tiles in ``candidate`` (``"candidate"``).
            filter: A function of a split; only splits for which it returns true are choices.
            max_factor: See :func:`~.choices.splits`.
            no_tail: See :func:`~.choices.splits`.
            candidate: The tiles to choose from; the first part of each may be -1.

        Returns:
            The nested loops.

        Raises:
            SearchlabError: If the arguments are invalid.
        """
        extent = axis.length if isinstance(axis, Axis) else self.axis(axis).length
        if extent is None:
            raise SearchlabError(f"knob {name!r} splits the result of another knob; {INDEPENDENCE_REQUIREMENT}")
        if not isinstance(num_outputs, int) or num_outputs < 1:
            raise SearchlabError(
                f"knob {name!r}: num_outputs is {num_outputs!r}; it must be a whole number of at least 1 (pass "
                f"the policy as a keyword: policy=...)"
            )
        if policy == "candidate":
            if any(len(tile) != num_outputs for tile in candidate):
                raise SearchlabError(f"knob {name!r}: its candidates must have {num_outputs} parts, not {candidate}")
            tiles = list(dict.fromkeys(cover(extent, tuple(tile)) for tile in candidate))
        else:
            _check_policy("split", name, policy, (*SPLIT_POLICIES, "candidate"))
            tiles = list_splits(extent, num_outputs, policy, max_factor=max_factor, no_tail=no_tail)
        legal_tiles = [tile for tile in tiles if filter is None or filter(Split(tile))]
        self._add_knob(SplitKnob(name, legal_tiles, policy, extent, num_outputs))
        return [Axis() for _ in range(num_outputs)]

    def define_knob(self, name: str, candidate: Sequence[Value]) -> None:
        """Define a knob whose choices are ``candidate``."""
        self._add_knob(OptionKnob(name, list(candidate)))

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
        """Define a knob that orders loops.

        Args:
            name: The name of the knob.
            axes: The loops.
            policy: Which orders to offer: only the current one (``"identity"``), all (``"all"``), all orders of the
                positions in ``interval`` (``"interval_all"``), those in ``candidate`` (``"candidate"``), or the single
                order that results from merging the chains ``spatial`` and ``reduce`` (``"interleave"``,
                ``"interleave_cuda"``; see :func:`~.choices.interleave`).
            interval: The first position and the position after the last.
            candidate: Orders of some or all loops; the other loops keep their places.
            spatial: Chains of spatial loops.
            reduce: Chains of reduction loops.

        Returns:
            The loops in the new order.

        Raises:
            SearchlabError: If the arguments are invalid.
        """
        _check_policy("reorder", name, policy, REORDER_POLICIES)
        axes = list(axes)
        try:
            candidate_orders, spatial_chains, reduction_chains = (
                [tuple(axes.index(axis) for axis in chain) for chain in chains]
                for chains in (candidate, spatial, reduce)
            )
        except ValueError:
            raise SearchlabError(f"knob {name!r} orders a loop that is not one of its {len(axes)} loops") from None
        if policy == "identity":
            orders: list[Tile] = [tuple(range(len(axes)))]
        elif policy == "all":
            orders = list(itertools.permutations(range(len(axes))))
        elif policy == "interval_all":
            if interval is None or not 0 <= interval[0] <= interval[1] <= len(axes):
                raise SearchlabError(
                    f"knob {name!r}: the interval {interval} must have the form (begin, end) and lie within the knob's "
                    "loops"
                )
            orders = list_interval_orders(len(axes), *interval)
        elif policy == "candidate":
            orders = candidate_orders
        else:
            orders = [interleave(spatial_chains, reduction_chains, cuda=policy == "interleave_cuda")]
        if any(not order or len(set(order)) < len(order) for order in orders):
            raise SearchlabError(f"knob {name!r}: the orders for policy {policy!r} must not repeat a loop: {orders}")
        self._add_knob(ReorderKnob(name, list(dict.fromkeys(orders)), policy))
        return [Axis() for _ in axes]

    def define_annotate(
        self, name: str, axes: Sequence[LoopRV | Axis | int], policy: str, *, num_anchor: int | None = None
    ) -> list[Axis]:
        """Define a knob that annotates loops.

        Args:
            name: The name of the knob.
            axes: The loops.
            policy: Words from MARKS, joined by ``_``: each loop gets one of them, and at most one loop is vectorised.
                ``"unroll"`` unrolls all loops; ``"try_unroll"`` may unroll each of them. ``"bind_gpu"`` and
                ``"bind_gpu_virtual"`` bind the loops to a GPU's threads; see :func:`~.choices.gpu_binding`.
                ``"locate_cache"`` chooses ``num_anchor`` of the loops.
            num_anchor: The number of loops that ``"locate_cache"`` chooses.

        Returns:
            The annotated loops, as many as ``axes``.

        Raises:
            SearchlabError: If the arguments are invalid.
        """
        if policy == LOCATE_CACHE:
            if num_anchor is None:
                raise SearchlabError(f"knob {name!r}: policy {policy!r} requires num_anchor, the number of loops")
            choices: list[Value] = list(itertools.combinations(range(len(axes)), num_anchor))
        elif policy in GPU_LEVELS:
            if len(axes) < (min_loops := len(GPU_LEVELS[policy])):
                raise SearchlabError(
                    f"knob {name!r}: policy {policy!r} requires at least {min_loops} loops, not {len(axes)}"
                )
            choices = [",".join(list_gpu_bindings(len(axes), policy))]
        else:
            marks_allowed = list(dict.fromkeys(policy.replace("try", "none").split("_")))
            if not set(marks_allowed) <= set(MARKS):
                _check_policy("annotate", name, policy, (*COMMON_MARKS, *GPU_LEVELS, LOCATE_CACHE))
            choices = [",".join(marks) for marks in list_annotations(len(axes), marks_allowed)]
        self._add_knob(AnnotateKnob(name, choices, policy))
        return [Axis() for _ in axes]

    def multi_filter(self, filter: Callable[[Mapping[str, Any]], bool]) -> None:
        """Keep only the configs for which ``filter`` returns true. This replaces any earlier filter.

        Args:
            filter: A function that is called with a mapping from each knob's name to ``cfg[name]``, once for every
                combination of choices of the knobs that it reads.
        """
        self.filter = filter

    def _add_knob(self, knob: TemplateKnob) -> None:
        if knob.name in self.knobs:
            raise SearchlabError(f"the template defines knob {knob.name!r} twice")
        if self._values_by_knob is not None and knob.name not in self._values_by_knob:
            raise SearchlabError(
                f"the template defines knob {knob.name!r} only for some choices; {INDEPENDENCE_REQUIREMENT}"
            )
        self.knobs[knob.name] = knob

    def __getitem__(self, name: str) -> Any:
        """Return the chosen :class:`Split`, :class:`Reorder`, :class:`Annotate` or :class:`Option`."""
        if name not in self.knobs:
            raise SearchlabError(
                f"the template uses knob {name!r}, which it does not define{did_you_mean(name, self.knobs)}"
            )
        knob = self.knobs[name]
        return knob.entity_for(knob.choices[0] if self._values_by_knob is None else self._values_by_knob[name])


def _check_policy(knob_type: str, name: str, policy: str, policies: Sequence[str]) -> None:
    if policy not in policies:
        raise SearchlabError(f"knob {name!r}: unknown {knob_type} policy {policy!r}{did_you_mean(policy, policies)}")
