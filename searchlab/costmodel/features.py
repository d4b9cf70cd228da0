"""What a cost model sees of a config: its knobs, or the program that they make."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InvalidConfig, SearchlabError, did_you_mean
from ..metaschedule import tune_context
from ..space import Config, Space, Value

Array = np.ndarray[Any, np.dtype[np.float64]]
Columns = list[tuple[str, int | str]]
"""The knob and the part of its choice that each column is; empty where the columns are the same for any configs."""


class Features(ABC):
    """Turns configs of one space into a matrix with a row each."""

    name = ""
    """What a study file calls it."""

    builds_programs = False
    """Whether a row takes the time it takes to schedule a program, milliseconds, and not microseconds."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.columns: Columns = []

    def learn(self, configs: Sequence[Config]) -> None:
        """Settle the columns on the configs that a model is about to be trained on."""

    def settle(self, columns: Columns) -> None:
        """Settle the columns on those that were learned elsewhere."""

    @abstractmethod
    def __call__(self, configs: Sequence[Config]) -> Array:
        """Features (n, d); NaN where one does not apply."""


class KnobFeatures(Features):
    """The choices themselves: a tile as log2 of each factor, a number as it is, a word as one 0/1 column each.

    A tuple that is no tile, as a permutation is, is a word: see :attr:`~searchlab.space.Knob.kind`. A knob that a
    config does not have is NaN. No program is built.
    """

    name = "knob"

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        # Knobs met whose choices are tuples: tiles, and orders and the like, which are words.
        self._tiles: set[str] = set()
        self._orders: set[str] = set()
        self.settle([])

    def learn(self, configs: Sequence[Config]) -> None:
        met: dict[tuple[str, int | str], None] = {}
        for config in configs:
            for name, value in config.items():
                if isinstance(value, tuple) and name not in self._tiles:
                    value = self._settled(name, value, config)
                met.update(((name, part), None) for part, _ in _coordinates(value))
        self.settle(list(met))

    def settle(self, columns: Columns) -> None:
        self.columns = columns
        self._columns = {column: i for i, column in enumerate(columns)}
        self._words: dict[str, list[int]] = {}
        for (name, part), i in self._columns.items():
            if isinstance(part, str):
                self._words.setdefault(name, []).append(i)

    def __call__(self, configs: Sequence[Config]) -> Array:
        matrix = np.full((len(configs), len(self.columns)), np.nan)
        for row, config in zip(matrix, configs, strict=True):
            for name, value in config.items():
                if isinstance(value, tuple) and name not in self._tiles:
                    value = self._settled(name, value, config)
                if isinstance(value, str) and name in self._words:
                    row[self._words[name]] = 0.0
                for part, number in _coordinates(value):
                    if (name, part) in self._columns:
                        row[self._columns[name, part]] = number
        return matrix

    def _settled(self, name: str, value: tuple[int, ...], config: Config) -> Value:
        """``value`` where it is a tile, and spelled as a word where it is not."""
        if name not in self._orders:
            try:
                kinds = {knob.name: knob.kind for knob in self.space.knobs(config) if knob.name == name}
            except InvalidConfig:  # a config of another space, which may name its knobs as this one does
                return value
            (self._orders if kinds[name] == "word" else self._tiles).add(name)
        return ",".join(map(str, value)) if name in self._orders else value


def _coordinates(value: Value) -> list[tuple[int | str, float]]:
    """The numbers that a choice is, each with which part of it that is: of a tile a factor, of words one of them."""
    if isinstance(value, tuple):
        return [(i, math.log2(factor) if factor > 0 else -1.0) for i, factor in enumerate(value)]
    return [(value, 1.0)] if isinstance(value, str) else [(0, float(value))]


class ProgramFeatures(Features):
    """MetaSchedule's per-store features of the scheduled module (164 a store), as their maximum and mean.

    Source: Zheng et al., "Ansor" (OSDI 2020), appendix B; ``tvm.s_tir.meta_schedule`` PerStoreFeature. A config
    that makes no program is a row of NaN. Rows are kept, since a program is scheduled for each.
    """

    name = "program"
    builds_programs = True

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self._rows: dict[Config, Array] = {}

    def __call__(self, configs: Sequence[Config]) -> Array:
        new = [config for config in dict.fromkeys(configs) if config not in self._rows]
        if new:
            self._extract(new)
        return np.stack([self._rows[config] for config in configs]) if configs else np.empty((0, 328))

    def _extract(self, configs: Sequence[Config]) -> None:
        from tvm.s_tir import meta_schedule as ms

        extractor = ms.feature_extractor.PerStoreFeature()
        context = tune_context(self.space.workload.module, self.space.target.tvm)
        candidates: list[tuple[Config, Any]] = []
        for config in configs:
            self._rows[config] = np.full(328, np.nan)
            try:
                candidates.append((config, ms.MeasureCandidate(self.space.schedule(config), [])))
            except InvalidConfig:
                continue
        stores = extractor.extract_from(context, [candidate for _, candidate in candidates])
        for (config, _), store in zip(candidates, stores, strict=True):
            matrix = store.numpy().astype(np.float64)
            self._rows[config] = np.concatenate([matrix.max(axis=0), matrix.mean(axis=0)])


FEATURES: dict[str, type[Features]] = {kind.name: kind for kind in (KnobFeatures, ProgramFeatures)}


def make_features(name: str, space: Space) -> Features:
    if name not in FEATURES:
        raise SearchlabError(f"unknown features {name!r}{did_you_mean(name, FEATURES)}")
    return FEATURES[name](space)
