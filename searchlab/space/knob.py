"""Knobs: the open choices of a program, and the steps between their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from ..errors import InvalidConfig, SearchlabError
from ..options import is_numpy, plain

Value = bool | int | float | str | tuple[int, ...]
"""A choice: a number, a word, or a tile (a loop's factors, outermost first)."""

Kind = Literal["number", "tile", "word", "mixed"]
"""The kinds of knobs; see :attr:`Knob.kind`."""


@dataclass(frozen=True)
class Knob:
    """One open choice of a program.

    Attributes:
        name: The name, unique within a config.
        choices: The possible values: at least one, all different. Their order defines each choice's index.
        role: The purpose of the choice, if known: ``unroll``, ``location`` (where a stage is computed), ``parallel``,
            ``sketch`` or ``tile``. It is used by :meth:`Space.mutate_by_role`.

    Raises:
        InvalidConfig: If ``choices`` is empty.

    Example:
        >>> from searchlab import Knob
        >>> Knob("tile", [(1, 64), (8, 8), (64, 1)]).kind
        'tile'
    """

    name: str
    choices: Sequence[Value]
    role: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if type(self.choices) not in (list, tuple, range) and not (
            is_numpy(self.choices) or isinstance(self.choices, Sequence)
        ):
            raise SearchlabError(f"the choices of knob {self.name!r} must be a sequence, not {self.choices!r:.200}")
        if is_numpy(self.choices) or (len(self.choices) > 0 and is_numpy(self.choices[0])):
            choices = [tuple(choice) if isinstance(choice, list) else choice for choice in plain(list(self.choices))]
            object.__setattr__(self, "choices", choices)
        if not self.choices:
            raise InvalidConfig(f"knob {self.name!r} has no legal choice left")

    @cached_property
    def kind(self) -> Kind:
        """How the choices are compared.

        A ``number`` is compared by value, and a ``tile`` by the logarithms of its factors. Choices of kind ``word``,
        such as strings and booleans, are compared only for equality. A ``mixed`` knob has choices of several kinds. A
        subclass whose tuples are not tiles but, for example, permutations should return ``word``.
        """
        kinds = {_find_kind(choice) for choice in self.choices}
        return kinds.pop() if len(kinds) == 1 else "mixed"

    @property
    def default(self) -> Value:
        """The choice in the default config: the middle one, or the first if they have no order, as in ConfigSpace."""
        return self.choices[0 if self.kind == "word" else len(self.choices) // 2]

    def redraw(self, value: Value, rng: np.random.Generator) -> Value:
        """Draw a choice other than ``value``; the knob must have at least one other choice."""
        choices = self.choices
        if value not in choices:
            return choices[int(rng.integers(len(choices)))]
        index = int(rng.integers(len(choices) - 1))  # among the other choices
        return choices[index + (index >= choices.index(value))]

    def move_factor(self, value: Value, rng: np.random.Generator) -> Value:
        """Move a factor (prime or composite) between two levels of the tile ``value``, so that the result is a choice.

        A pair of levels for which this is possible is drawn first, and then the factor. If there is no such pair, or if
        the knob is not a tile, the value is :meth:`redraw`. Source: MetaSchedule's ``mutate_tile_size.cc``.
        """
        if self.kind == "tile" and isinstance(value, tuple):
            level_pairs = _list_level_pairs(value)
            while level_pairs:
                source, destination = level_pairs.pop(int(rng.integers(len(level_pairs))))
                move = value, source, destination
                if move not in self._tiles_by_move:
                    tiles = (_move_factor(*move, factor) for factor in _list_divisors(value[source])[1:])
                    self._tiles_by_move[move] = [tile for tile in tiles if tile in self.choices]
                if legal_tiles := self._tiles_by_move[move]:
                    return legal_tiles[int(rng.integers(len(legal_tiles)))]
        return self.redraw(value, rng)

    def adjacent(self, value: Value) -> Sequence[Value]:
        """Return the choices that are one step away from ``value``, or all other choices if they have no order.

        A step changes a number to the next smaller or larger choice, or moves a prime factor between two levels of a
        tile. If no choice is one step away from a tile, all other choices are returned.
        """
        if value not in self._neighbours_by_choice:
            other_choices: list[Any] = [choice for choice in self.choices if choice != value]
            neighbours: list[Value] = other_choices
            if self.kind == "number":
                neighbours = [
                    *sorted(number for number in other_choices if number < value)[-1:],
                    *sorted(number for number in other_choices if number > value)[:1],
                ]
            elif self.kind == "tile" and isinstance(value, tuple):
                tiles = [
                    _move_factor(value, source, destination, divisor)
                    for source, destination in _list_level_pairs(value)
                    for divisor in _list_divisors(value[source])
                    if len(_list_divisors(divisor)) == 2  # a prime
                ]
                neighbours = [tile for tile in tiles if tile in self.choices] or other_choices
            self._neighbours_by_choice[value] = neighbours
        return self._neighbours_by_choice[value]

    @cached_property
    def _neighbours_by_choice(self) -> dict[Value, Sequence[Value]]:
        return {}  # filled by adjacent()

    @cached_property
    def _tiles_by_move(self) -> dict[tuple[tuple[int, ...], int, int], list[tuple[int, ...]]]:
        return {}  # filled by move_factor(); a move consists of a tile and the levels of the source and destination


def _find_kind(value: Value) -> Kind:
    if isinstance(value, bool | str):
        return "word"
    return "tile" if isinstance(value, tuple) else "number"


def _list_level_pairs(tile: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the pairs of levels between which a factor can be moved."""
    levels = range(len(tile))
    return [
        (source, destination)
        for source in levels
        if tile[source] > 1
        for destination in levels
        if destination != source
    ]


def _move_factor(tile: tuple[int, ...], source: int, destination: int, factor: int) -> tuple[int, ...]:
    factors = list(tile)
    factors[source] //= factor
    factors[destination] *= factor
    return tuple(factors)


@lru_cache(maxsize=4096)
def _list_divisors(n: int) -> list[int]:
    return [divisor for divisor in range(1, n + 1) if n % divisor == 0]


SCALAR_TYPES = frozenset({bool, int, float, str})
"""The types of choices that are not tiles."""


def list_types(value: Value) -> tuple[type, ...]:
    """Return the type of a choice, followed by the types of its factors if it is a tuple."""
    return (tuple, *map(type, value)) if type(value) is tuple else (type(value),)


def check_choice(knob: Knob, value: Any) -> None:
    """Raise InvalidConfig unless ``value`` is a choice of ``knob`` and has its type: 64.0 is not 64, nor is True 1."""
    choices = knob.choices
    is_plain = type(value) in SCALAR_TYPES or (type(value) is tuple and SCALAR_TYPES.issuperset(map(type, value)))
    if not is_plain or value not in choices:
        raise InvalidConfig(
            f"knob {knob.name!r} cannot be {value!r:.200}; it has {len(choices)} choices, such as {choices[0]!r} and "
            f"{choices[-1]!r}"
        )
    choice = choices[choices.index(value)]
    if list_types(choice) != list_types(value):
        raise InvalidConfig(
            f"knob {knob.name!r} cannot be {value!r}: the choice is {choice!r} ({type(choice).__name__}) and not "
            f"{value!r} ({type(value).__name__})"
        )
