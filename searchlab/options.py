"""Checks of the options that a study file sets, for the constructors of plug-ins."""

from __future__ import annotations

import math
from collections.abc import Collection

from .errors import SearchlabError, did_you_mean


def whole(name: str, value: int, low: int, high: float = math.inf) -> int:
    """``value``, a whole number in [``low``, ``high``]. Raises SearchlabError for any other value."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise SearchlabError(f"option {name!r} is {value!r}; it must be a whole number {_range(low, high)}")
    return value


def real(name: str, value: float, low: float, high: float = math.inf) -> float:
    """``value``, a finite number in [``low``, ``high``]. Raises SearchlabError for any other value."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not low <= value <= high:
        raise SearchlabError(f"option {name!r} is {value!r}; it must be a number {_range(low, high)}")
    return float(value)


def one_of(name: str, value: str, choices: Collection[str]) -> str:
    """``value``, one of ``choices``. Raises SearchlabError for any other value."""
    if value not in list(choices):
        raise SearchlabError(f"option {name!r} cannot be {value!r}{did_you_mean(str(value), choices)}")
    return value


def _range(low: float, high: float) -> str:
    return f"of at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
