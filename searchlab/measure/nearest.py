"""The nearest of the configs that a table holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ..arrays import Floats
from ..space import Config, Knob, Value

ABSENT = 1e3
"""Distance for a knob that only one of two configs has: more than all that they have in common can differ."""


class Nearest:
    """Finds the config that differs least from a given one, among those that it is made with.

    The distance of two configs is the sum of a distance for each of their knobs, which is in [0, 1], or a little more
    for long tiles. Two tiles: the sum of ``|log2|`` of the ratios of their factors, over twice the largest ``log2`` of
    a factor of this knob. Two numbers: the difference of their ranks among those of this knob, over the largest rank.
    Two words: 0 or 1. So a config with the same knobs always comes before one with others. The first of several that
    are equally near is taken.
    """

    def __init__(self, configs: Sequence[Config], knobs: Mapping[str, Knob] | None = None) -> None:
        words = {name for name, knob in (knobs or {}).items() if knob.kind == "word"}
        self._names = list(dict.fromkeys(name for config in configs for name in config))
        self._knobs = [_Knob([config.get(name) for config in configs], name in words) for name in self._names]

    def index(self, config: Config) -> int:
        """Which config is nearest."""
        total = np.zeros(len(self._knobs[0].codes)) if self._knobs else np.zeros(1)
        for name, knob in zip(self._names, self._knobs, strict=True):
            total += knob.distances(config.get(name))[knob.codes]
        return int(np.argmin(total))


class _Knob:
    """One knob: the values that it has in the table (None where it is absent), and which of them each config has."""

    def __init__(self, values: Sequence[Value | None], words: bool) -> None:
        self._words = words
        position: dict[tuple[type, Value | None], int] = {}
        # True == 1 == 1.0, yet they are different choices.
        self.codes = np.array([position.setdefault((type(v), v), len(position)) for v in values], dtype=np.intp)
        self._values = [value for _, value in position]
        self._numbers = sorted({float(v) for v in self._values if isinstance(v, int | float)})
        self._span = max((abs(_log2(f)) for v in self._values if isinstance(v, tuple) for f in v), default=0.0) or 1.0
        self._known: dict[tuple[type, Value | None], Floats] = {}

    def distances(self, value: Value | None) -> Floats:
        """From ``value`` to each value that the knob has in the table."""
        key = (type(value), value)
        if key not in self._known:
            # Rounded, so that configs that are equally near are so on every machine.
            self._known[key] = np.round([self._distance(value, other) for other in self._values], 9)
        return self._known[key]

    def _distance(self, a: Value | None, b: Value | None) -> float:
        if a is None or b is None:
            return 0.0 if a is b else ABSENT
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) and not self._words:
            return sum(abs(_log2(x) - _log2(y)) for x, y in zip(a, b, strict=True)) / (2 * self._span)
        if isinstance(a, int | float) and isinstance(b, int | float):
            ranks = np.interp([float(a), float(b)], self._numbers, np.arange(len(self._numbers)))
            return float(abs(ranks[0] - ranks[1])) / max(len(self._numbers) - 1, 1)
        return float(a != b)


def _log2(factor: int) -> float:
    return math.log2(factor) if factor > 0 else -1.0
