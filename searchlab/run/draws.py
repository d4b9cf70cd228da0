"""What random search finds in a space that a table holds in full, for the header of each run there."""

from __future__ import annotations

from functools import lru_cache

from ..analysis.stats.random_search import Draws
from ..log.header import RandomDraws
from ..measure.contract import Whole

DIGITS = 9
"""Digits of a logarithm in a header, after the point."""


@lru_cache(maxsize=64)  # the runs of a study over one table are many, and where draws are unequal it takes a second
def random_draws(whole: Whole | None, trials: int) -> RandomDraws | None:
    """What so many random draws find in a space; None if it is not known in full."""
    if whole is None:
        return None
    draws = Draws.of(whole.costs, min(trials, len(whole.costs)), whole.weights)  # no run has more trials
    expected = tuple(round(value, DIGITS) for value in draws.expected.tolist())
    return RandomDraws(expected, round(draws.median, DIGITS), round(draws.slowest, DIGITS))
