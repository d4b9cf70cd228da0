"""The parts that the guided spaces share: the vector registers, when threads pay, how TVM peels a loop's edges."""

from __future__ import annotations

from searchlab.target import Target

EDGE = "pragma_loop_partition_hint"
"""Makes TVM peel the trips of a loop that meet an edge, so that the others need no bound checks."""

FORK = 2_000_000
"""FLOP from which a parallel loop pays: waking the workers takes as long as about so many on one core."""


def registers(target: Target) -> int:
    """How many vector registers the target has: 16 on x86 before AVX-512, 32 elsewhere."""
    from tvm.target.codegen import target_has_features

    return 16 if target_has_features("sse2", target.tvm) and not target_has_features("avx512f", target.tvm) else 32
