"""Choices as a template sees them: ``cfg[name]``, with AutoTVM's attributes, and how they are applied to loops.

AutoTVM's ``apply`` took the operation, too, and the lengths of its loops. A loop of ``tvm.s_tir`` knows both.
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
    """A chosen split: ``size`` is the extent of every part, outermost first. AutoTVM has -1 for the outermost."""

    size: Tile

    def apply(self, sch: Schedule, loop: LoopRV) -> list[LoopRV]:
        """Split ``loop`` so, guarded where the tile reaches past its end; returns the loops, outermost first."""
        return list(sch.split(loop, self.size))


@dataclass(frozen=True)
class Reorder:
    """A chosen order: ``perm[i]`` says which of the loops comes i-th."""

    perm: Tile

    def apply(self, sch: Schedule, loops: Sequence[LoopRV]) -> list[LoopRV]:
        """Reorder ``loops`` so; returns them in their new order.

        Where there are fewer than the knob was defined for, the others are left out, as in AutoTVM.
        """
        ordered = [loops[i] for i in self.perm if i < len(loops)]
        sch.reorder(*ordered)
        return ordered


@dataclass(frozen=True)
class Annotate:
    """Chosen annotations: a word for each loop, or with ``"locate_cache"`` the positions of some loops."""

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
        """Annotate or bind ``loops`` so; returns them, each that was fused being gone into the next.

        source: for ``"locate_cache"``, the blocks to compute at each of the chosen loops, which all produce what is
        used there. Raises InvalidConfig for an unrolled loop longer than ``max_unroll``, or a vectorised one whose
        extent is not in ``vec_size``.
        """
        loops = list(loops)
        if source is not None:
            for blocks, at in zip(source, cast(Tile, self.anns), strict=False):
                for block in blocks:
                    sch.compute_at(block, loops[at], preserve_unit_loops=True)
            return loops
        if len(loops) != len(self.anns):
            raise SearchlabError(f"the annotations {list(self.anns)} are not for {len(loops)} loops")
        # AutoTVM's virtual threads have no axis, and each is another one: here the innermost is x.
        virtual = iter("zyx"[-list(self.anns).count("vthread") :])
        for at, word in enumerate(self.anns):
            loop, extent = loops[at], int(sch.get(loops[at]).extent)
            if word == "fuse":
                loops[at + 1] = sch.fuse(loop, loops[at + 1])
            elif word == "unroll":
                if max_unroll is not None and extent > max_unroll:
                    raise InvalidConfig(f"it unrolls a loop of {extent}, and the template allows {max_unroll}")
                sch.unroll(loop)
            elif word == "vec":
                if vec_size is not None and extent not in vec_size:
                    raise InvalidConfig(f"it vectorises a loop of {extent}, and the template allows {list(vec_size)}")
                sch.vectorize(loop)
            elif word != "none":
                sch.bind(loop, f"vthread.{next(virtual)}" if word == "vthread" else str(word))
        return loops


@dataclass(frozen=True)
class Option:
    """A chosen value of a plain knob."""

    val: Value


Entity = Split | Reorder | Annotate | Option
