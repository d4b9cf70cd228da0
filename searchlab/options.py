"""Checks of the options that a study file sets, for the constructors of plug-ins."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .errors import SearchlabError, did_you_mean

_noted: ContextVar[dict[str, str] | None] = ContextVar("noted", default=None)


@contextmanager
def noted() -> Iterator[dict[str, str]]:
    """Within, each option that is checked is added, with what it may be: ``{"population": "a whole number ..."}``."""
    seen: dict[str, str] = {}
    token = _noted.set(seen)
    try:
        yield seen
    finally:
        _noted.reset(token)


def whole(name: str, value: int, low: int, high: float = math.inf) -> int:
    """``value``, a whole number in [``low``, ``high``]. Raises SearchlabError for any other value."""
    must = _note(name, f"a whole number {_range(low, high)}")
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise SearchlabError(f"option {name!r} is {value!r}; it must be {must}")
    return value


def real(name: str, value: float, low: float, high: float = math.inf) -> float:
    """``value``, a finite number in [``low``, ``high``]. Raises SearchlabError for any other value."""
    must = _note(name, f"a number {_range(low, high)}")
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not low <= value <= high:
        raise SearchlabError(f"option {name!r} is {value!r}; it must be {must}")
    return float(value)


def one_of(name: str, value: str, choices: Collection[str]) -> str:
    """``value``, one of ``choices``. Raises SearchlabError for any other value."""
    _note(name, f"one of {', '.join(map(repr, choices))}")
    if value not in list(choices):
        raise SearchlabError(f"option {name!r} cannot be {value!r}{did_you_mean(str(value), choices)}")
    return value


def _note(name: str, what: str) -> str:
    seen = _noted.get()
    if seen is not None:
        seen[name] = what
    return what


def _range(low: float, high: float) -> str:
    return f"of at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
