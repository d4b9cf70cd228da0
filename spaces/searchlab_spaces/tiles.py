"""Loop tiles and their factors."""

from __future__ import annotations

import math

Tile = tuple[int, ...]
"""A loop's factors, outermost first."""


def list_divisors(extent: int) -> list[int]:
    """Return the divisors of ``extent`` in ascending order."""
    small_divisors = [d for d in range(1, math.isqrt(extent) + 1) if extent % d == 0]
    return sorted({*small_divisors, *(extent // d for d in small_divisors)})


def list_powers_of_two(extent: int) -> list[int]:
    """Return the powers of two up to ``extent`` in ascending order."""
    return [1 << i for i in range(extent.bit_length())]
