"""Configs as rows of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ..arrays import Floats, Ints
from .knob import Value

Column = tuple[str, int | str]
"""The key of a number that represents a config: the knob's name, and a part of its value; see :func:`coordinates`."""


def coordinates(value: Value, is_word: bool = False) -> list[tuple[int | str, float]]:
    """Represent a choice by pairs (part, number); a part is the index of a factor, 0 for a plain number, or the word.

    Args:
        value: The choice.
        is_word: Whether the knob's kind is ``word``, in which case a tuple is not a tile.
    """
    if is_word and isinstance(value, tuple):
        value = ",".join(map(str, value))
    if isinstance(value, tuple):
        return [(i, math.log2(factor) if factor > 0 else -1.0) for i, factor in enumerate(value)]
    return [(value, 1.0)] if isinstance(value, str) else [(0, float(value))]


def represent_config(config: Mapping[str, Value]) -> dict[Column, float]:
    """Return the numbers that represent a config, by column; see :func:`coordinates`."""
    return {(name, part): number for name, value in config.items() for part, number in coordinates(value)}


def number_choices(choices: Iterable[Value | None]) -> tuple[list[Value | None], Ints]:
    """Return the distinct choices, in order, and the position of each choice among them.

    True, 1 and 1.0 are equal, but distinct choices.
    """
    position_by_choice: dict[tuple[type, Value | None], int] = {}
    positions = [position_by_choice.setdefault((type(choice), choice), len(position_by_choice)) for choice in choices]
    return [choice for _, choice in position_by_choice], np.array(positions, dtype=np.int64)


class Encoding:
    """Converts configs to rows of numbers: the log2 of each factor in a tile, numbers, and one-hot encoded words.

    Args:
        columns: The columns. Repetitions are ignored.
        represent: A function that replaces :func:`coordinates`.
    """

    def __init__(
        self,
        columns: Iterable[Column],
        represent: Callable[[Value, bool], list[tuple[int | str, float]]] = coordinates,
    ) -> None:
        self._indices_by_column = {column: i for i, column in enumerate(dict.fromkeys(columns))}
        self._represent = represent
        self._word_indices_by_knob: dict[str, list[int]] = {}
        for (knob_name, part), index in self._indices_by_column.items():
            if isinstance(part, str):
                self._word_indices_by_knob.setdefault(knob_name, []).append(index)
        self._encoded_choices: dict[tuple[str, Value], tuple[list[int], list[float]]] = {}

    def __call__(self, configs: Sequence[Mapping[str, Value]]) -> Floats:
        """Return an array of shape (n, columns), with NaN in the columns of knobs that a config lacks."""
        lengths: list[int] = []
        indices: list[int] = []
        numbers: list[float] = []
        for config in configs:
            start = len(indices)
            for choice in config.items():
                choice_indices, choice_numbers = self._encoded_choices.get(choice) or self._encode_choice(*choice)
                indices += choice_indices
                numbers += choice_numbers
            lengths.append(len(indices) - start)
        matrix = np.full((len(configs), len(self._indices_by_column)), np.nan)
        row_indices = np.repeat(np.arange(len(configs)), np.array(lengths, dtype=np.intp))
        matrix[row_indices, np.array(indices, dtype=np.intp)] = numbers
        return matrix

    def _encode_choice(self, knob_name: str, value: Value) -> tuple[list[int], list[float]]:
        """Return the indices of the columns that depend on the choice, and the numbers in them."""
        word_indices = self._word_indices_by_knob.get(knob_name, [])
        represented = self._represent(value, bool(word_indices) and (knob_name, 0) not in self._indices_by_column)
        has_word = any(isinstance(part, str) for part, _ in represented)
        numbers_by_index = dict.fromkeys(word_indices if has_word else [], 0.0)
        for part, number in represented:
            if (knob_name, part) in self._indices_by_column:
                numbers_by_index[self._indices_by_column[knob_name, part]] = number
        encoded = list(numbers_by_index), list(numbers_by_index.values())
        return self._encoded_choices.setdefault((knob_name, value), encoded)
