"""One open choice of a program, and how it may change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from .errors import InvalidConfig

Value = bool | int | float | str | tuple[int, ...]
"""A choice: a number, a word, or a tile (the factors of a loop, outermost first)."""

Kind = Literal["number", "tile", "word", "mixed"]
"""The kinds of knobs: see :attr:`Knob.kind`."""


@dataclass(frozen=True)
class Knob:
    """One open choice of a program.

    Attributes:
        name: Its name, unique in the space.
        choices: The values, in the order that defines the index of a choice.
        role: What the choice is for, if known: ``unroll``, ``location`` (where a stage is computed), ``parallel``,
            ``sketch`` or ``tile``. :meth:`~searchlab.space.Space.mutate_by_role` uses it.

    Example:
        >>> from searchlab import Knob
        >>> Knob("tile", [(1, 64), (8, 8), (64, 1)]).kind
        'tile'
    """

    name: str
    choices: Sequence[Value]
    role: str = field(default="", kw_only=True)

    @cached_property
    def kind(self) -> Kind:
        """How its choices compare.

        Numbers lie on a line. Tiles are near each other if the logarithms of their factors are. Words are equal or not,
        and a switch is a word. A subclass whose tuples are not tiles, but for example permutations, overrides this with
        "word".
        """
        kinds = {_kind(value) for value in self.choices}
        return kinds.pop() if len(kinds) == 1 else "mixed"

    def __post_init__(self) -> None:
        if not self.choices:
            raise InvalidConfig(f"knob {self.name!r} has no legal choice left")

    def redrawn(self, value: Value, rng: np.random.Generator) -> Value:
        """Another choice than ``value``. There must be one."""
        choices = self.choices
        if value not in choices:
            return choices[int(rng.integers(len(choices)))]
        other = int(rng.integers(len(choices) - 1))
        return choices[other + (other >= choices.index(value))]

    def moved(self, value: Value, rng: np.random.Generator) -> Value:
        """The tile ``value`` with one factor, prime or composite, moved from one level to another; it stays a choice.

        The two levels are drawn among those between which there is such a factor, then the factor. If there is none, or
        if the knob is no tile, this is :meth:`redrawn`. Source: ``mutate_tile_size.cc`` of MetaSchedule.
        """
        if self.kind == "tile" and isinstance(value, tuple):
            pairs = [(x, y) for x, factor in enumerate(value) if factor > 1 for y in range(len(value)) if y != x]
            while pairs:
                x, y = pairs.pop(int(rng.integers(len(pairs))))
                if (value, x, y) not in self._moves:
                    moves = (_moved(value, x, y, factor) for factor in _divisors(value[x])[1:])
                    self._moves[value, x, y] = [tile for tile in moves if tile in self.choices]
                if legal := self._moves[value, x, y]:
                    return legal[int(rng.integers(len(legal)))]
        return self.redrawn(value, rng)

    @cached_property
    def _moves(self) -> dict[tuple[Value, int, int], list[tuple[int, ...]]]:
        """The choices that a tile becomes if a factor moves from one level to another; filled as they are asked for."""
        return {}


def _moved(tile: tuple[int, ...], x: int, y: int, factor: int) -> tuple[int, ...]:
    """``tile`` with ``factor`` moved from level ``x`` to level ``y``."""
    levels = list(tile)
    levels[x] //= factor
    levels[y] *= factor
    return tuple(levels)


@lru_cache(maxsize=4096)
def _divisors(n: int) -> list[int]:
    return [divisor for divisor in range(1, n + 1) if n % divisor == 0]


def _kind(value: Value) -> Kind:
    if isinstance(value, bool | str):
        return "word"
    return "tile" if isinstance(value, tuple) else "number"


def coordinates(value: Value, is_word: bool = False) -> list[tuple[int | str, float]]:
    """A choice as numbers, each with its part of the choice: the index of a factor, or the word.

    Args:
        value: The choice.
        is_word: Whether a tuple is no tile, but for example a permutation.
    """
    if is_word and isinstance(value, tuple):
        value = ",".join(map(str, value))
    if isinstance(value, tuple):
        return [(i, math.log2(factor) if factor > 0 else -1.0) for i, factor in enumerate(value)]
    return [(value, 1.0)] if isinstance(value, str) else [(0, float(value))]
