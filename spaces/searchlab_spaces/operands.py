"""The parts of a product's program: how it reads B, and what follows the product."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import SBlockRV


def is_transposed(sch: Schedule, gemm: SBlockRV) -> bool:
    """Return whether the block ``gemm`` reads B as [n, k]."""
    block = sch.get(gemm)
    return bool(block.reads[1].region[0].min.same_as(block.iter_vars[1].var))


def panels(width: int, nt: bool) -> Callable[[Any, Any], tuple[Any, ...]]:
    """Return the index map that stores B in panels of ``width`` columns; ``nt`` says that B is read as [n, k]."""
    return (lambda j, p: (j // width, p, j % width)) if nt else (lambda p, j: (j // width, p, j % width))


def blocks_after(sch: Schedule, name: str) -> list[SBlockRV]:
    """Return the blocks after the product, the block ``name``: those of the epilogue, if the workload has one."""
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    names = [str(sch.get(block).name_hint) for block in blocks]
    return list(blocks[names.index(name) + 1 :])
