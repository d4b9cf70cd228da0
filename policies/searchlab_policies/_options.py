"""Checks of the options that a study file sets."""

from __future__ import annotations

import math

from searchlab.errors import SearchlabError


def whole(name: str, value: int, low: int) -> int:
    """``value``, which must be a whole number of at least ``low``; SearchlabError where it is not."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise SearchlabError(f"option {name!r} is {value!r}; it must be a whole number of at least {low}")
    return value


def real(name: str, value: float, low: float, high: float = math.inf) -> float:
    """``value``, which must be a finite number in [``low``, ``high``]; SearchlabError where it is not."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not low <= value <= high:
        allowed = f"of at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
        raise SearchlabError(f"option {name!r} is {value!r}; it must be a number {allowed}")
    return float(value)
