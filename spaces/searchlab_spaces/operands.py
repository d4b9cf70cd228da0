"""The parts of a product's program: how it reads B, and what follows the product."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import SBlockRV


def is_transposed(sch: Schedule, product: SBlockRV) -> bool:
    """Return whether the block ``product``, a GEMM or a batch of them, reads B as [n, k]."""
    block = sch.get(product)
    return bool(block.reads[1].region[-2].min.same_as(block.iter_vars[-2].var))


def make_panel_map(width: int, nt: bool) -> Callable[..., tuple[Any, ...]]:
    """Return the index map that stores B in panels of ``width`` columns; ``nt`` says that B is read as [n, k]."""

    def map_indices(*indices: Any) -> tuple[Any, ...]:
        *batch, first, second = indices
        j, p = (first, second) if nt else (second, first)
        return *batch, j // width, p, j % width

    return map_indices


def find_blocks_after(sch: Schedule, name: str) -> list[SBlockRV]:
    """Return the blocks after the product, the block ``name``: those of the epilogue, if the workload has one."""
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    block_names = [str(sch.get(block).name_hint) for block in blocks]
    return list(blocks[block_names.index(name) + 1 :])
