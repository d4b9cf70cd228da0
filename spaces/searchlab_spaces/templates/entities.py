"""The chosen values in a template, ``cfg[name]``, with AutoTVM's attributes and their application to loops.

Unlike in AutoTVM, ``apply`` needs neither the operation nor the lengths of its loops: ``tvm.s_tir`` loops know both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from searchlab.errors import InvalidConfig, SearchlabError
from searchlab.space import Value

from ..tiles import Tile

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV, SBlockRV


@dataclass(frozen=True)
class Split:
    """A chosen split.

    Attributes:
        size: The extent of every part, outermost first; in AutoTVM, the outermost is -1.
    """

    size: Tile

    def apply(self, sch: Schedule, loop: LoopRV) -> list[LoopRV]:
        """Split ``loop``, with a guard if the tile extends past its end, and return the loops, outermost first."""
        return list(sch.split(loop, self.size))


@dataclass(frozen=True)
class Reorder:
    """A chosen order.

    Attributes:
        perm: The permutation: perm[i] is the old position of the i-th loop.
    """

    perm: Tile

    def apply(self, sch: Schedule, loops: Sequence[LoopRV]) -> list[LoopRV]:
        """Reorder ``loops`` and return them in their new order.

        If fewer loops are passed than the knob was defined for, missing ones are ignored, as in AutoTVM.
        """
        ordered = [loops[i] for i in self.perm if i < len(loops)]
        sch.reorder(*ordered)
        return ordered


@dataclass(frozen=True)
class Annotate:
    """Chosen annotations.

    Attributes:
        anns: One word per loop; with "locate_cache", the positions of some loops.
    """

    anns: tuple[str, ...] | tuple[int, ...]

    def apply(
        self,
        sch: Schedule,
        loops: Sequence[LoopRV],
        *,
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
        source: Sequence[Sequence[SBlockRV]] | None = None,
    ) -> list[LoopRV]:
        """Annotate or bind loops.

        Args:
            sch: The schedule.
            loops: The loops.
            max_unroll: The maximum extent of an unrolled loop.
            vec_size: The allowed extents of a vectorised loop.
            source: With ``"locate_cache"``, the producer blocks to compute at each of the chosen loops.

        Returns:
            The loops; each fused loop has been merged into the next one.

        Raises:
            InvalidConfig: If a loop's extent is not allowed.
        """
        loops = list(loops)
        if source is not None or any(isinstance(position, int) for position in self.anns):
            if source is None or any(isinstance(position, str) for position in self.anns):
                raise SearchlabError(
                    "'source' must be passed with policy 'locate_cache', and only with that policy; the annotations "
                    f"are {self.anns}"
                )
            for blocks, position in zip(source, cast(Tile, self.anns), strict=False):
                for block in blocks:
                    sch.compute_at(block, loops[position], preserve_unit_loops=True)
            return loops
        if len(loops) != len(self.anns):
            raise SearchlabError(f"the annotations {list(self.anns)} do not match {len(loops)} loops")
        # AutoTVM's virtual threads have no axis, and each is distinct; here, the innermost is x.
        vthread_axes = iter("zyx"[-list(self.anns).count("vthread") :])
        for position, word in enumerate(self.anns):
            loop, extent = loops[position], int(sch.get(loops[position]).extent)
            if word == "fuse":
                loops[position + 1] = sch.fuse(loop, loops[position + 1])
            elif word == "unroll":
                if max_unroll is not None and extent > max_unroll:
                    raise InvalidConfig(
                        f"it unrolls a loop of extent {extent}, but the template allows at most {max_unroll}"
                    )
                sch.unroll(loop)
            elif word == "vec":
                if vec_size is not None and extent not in vec_size:
                    raise InvalidConfig(
                        f"it vectorises a loop of extent {extent}, but the template allows only {list(vec_size)}"
                    )
                sch.vectorize(loop)
            elif word != "none":
                sch.bind(loop, f"vthread.{next(vthread_axes)}" if word == "vthread" else str(word))
        return loops


@dataclass(frozen=True)
class Option:
    """A plain knob's chosen value."""

    val: Value


Entity = Split | Reorder | Annotate | Option
