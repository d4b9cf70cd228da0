"""Features of the choices of a config."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import Floats
from ...errors import InvalidConfig
from ...space import Config, Space, Value, coordinates
from .base import Columns, Features

_Cells = tuple[list[int], list[float]]
"""Columns, and the number in each."""


class KnobFeatures(Features):
    """The choices of a config: tiles as log2 of each factor, numbers unchanged, words as a 0/1 column per word.

    A tuple that is not a tile, such as a permutation, counts as a word. A knob that a config does not have is NaN.
    """

    name = "knob"

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        # Names of the knobs seen so far whose choices are tuples: tiles, and others (orders), which are words.
        self._tiles: set[str] = set()
        self._orders: set[str] = set()
        self.settle([])

    def learn(self, configs: Sequence[Config]) -> None:
        columns: dict[tuple[str, int | str], None] = {}
        for config in configs:
            for name, value in config.items():
                if isinstance(value, tuple) and name not in self._tiles:
                    value = self._settled(name, value, config)
                columns.update(((name, part), None) for part, _ in self._coordinates(value))
        self.settle(list(columns))

    def settle(self, columns: Columns) -> None:
        self.columns = columns
        self._cells: dict[tuple[str, Value], _Cells] = {}
        self._columns = {column: i for i, column in enumerate(columns)}
        self._words: dict[str, list[int]] = {}
        for (name, part), i in self._columns.items():
            if isinstance(part, str):
                self._words.setdefault(name, []).append(i)

    def __call__(self, configs: Sequence[Config]) -> Floats:
        counts: list[int] = []
        columns: list[int] = []
        numbers: list[float] = []
        for config in configs:
            before = len(columns)
            for name, value in config.items():
                cells = self._cells.get((name, value)) or self._filled(name, value, config)
                columns += cells[0]
                numbers += cells[1]
            counts.append(len(columns) - before)
        matrix = np.full((len(configs), len(self.columns)), np.nan)
        rows = np.repeat(np.arange(len(configs)), np.array(counts, dtype=np.intp))
        matrix[rows, np.array(columns, dtype=np.intp)] = numbers
        return matrix

    def _filled(self, name: str, value: Value, config: Config) -> _Cells:
        """The columns that a choice fills, and the number in each; kept for all configs with this choice."""
        spelled = value
        if isinstance(value, tuple) and name not in self._tiles:
            spelled = self._settled(name, value, config)
        row: dict[int, float] = {}
        if isinstance(spelled, str):
            row.update(dict.fromkeys(self._words.get(name, ()), 0.0))
        for part, number in self._coordinates(spelled):
            if (name, part) in self._columns:
                row[self._columns[name, part]] = number
        cells = list(row), list(row.values())
        if not isinstance(value, tuple) or name in self._tiles or name in self._orders:
            self._cells[name, value] = cells
        return cells

    def _settled(self, name: str, value: tuple[int, ...], config: Config) -> Value:
        """``value`` if it is a tile, or else the word that spells it."""
        if name not in self._orders:
            try:
                kinds = {knob.name: knob.kind for knob in self.space.knobs(config) if knob.name == name}
            except InvalidConfig:  # a config of another space with knobs of the same names
                return value
            (self._orders if kinds[name] == "word" else self._tiles).add(name)
        return ",".join(map(str, value)) if name in self._orders else value

    _coordinates = staticmethod(coordinates)


class AutoTVMKnobFeatures(KnobFeatures):
    """The choices as AutoTVM's ``knob`` features encode them: tile factors as they are, without the outermost one.

    Source: ``ConfigEntity.get_flatten_feature`` in ``python/tvm/autotvm/task/space.py`` of TVM 0.17, where the
    outermost factor is -1 for every config.
    """

    name = "autotvm-knob"

    @staticmethod
    def _coordinates(value: Value, is_word: bool = False) -> list[tuple[int | str, float]]:
        if isinstance(value, tuple):
            return [(i, float(factor)) for i, factor in enumerate(value) if i]
        return coordinates(value, is_word)
