"""Tiles of loops, and the factors that they are made of."""

from __future__ import annotations

import math

Tile = tuple[int, ...]
"""Factors of a loop, outermost first."""


def factors(extent: int) -> list[int]:
    """The divisors of ``extent``, rising."""
    small = [d for d in range(1, math.isqrt(extent) + 1) if extent % d == 0]
    return sorted({*small, *(extent // d for d in small)})


def powers_of_two(extent: int) -> list[int]:
    """The powers of two up to ``extent``, rising."""
    return [1 << i for i in range(extent.bit_length())]
