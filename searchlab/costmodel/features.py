"""Features of a config for cost models: its knobs, or its program."""

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
"""For each column its knob, and which part of the choice it holds; empty if all configs have the same columns."""


class Features(ABC):
    """Turns configs of one space into a matrix with a row for each."""

    name = ""
    """Its name in a study file."""

    builds_programs = False
    """Whether a row needs a scheduled program, which takes milliseconds and not microseconds."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.columns: Columns = []

    def learn(self, configs: Sequence[Config]) -> None:
        """Choose the columns from the configs that a model is about to be trained on."""

    def settle(self, columns: Columns) -> None:
        """Take the columns that were learned elsewhere."""

    @abstractmethod
    def __call__(self, configs: Sequence[Config]) -> Array:
        """Features (n, d); NaN for a feature that a config does not have."""


class KnobFeatures(Features):
    """The choices of a config: a tile as log2 of each factor, a number unchanged, a word as a 0/1 column for each word.

    A tuple that is no tile, for example a permutation, counts as a word: see :attr:`~searchlab.space.Knob.kind`. A knob
    that a config does not have is NaN. No program is built.
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
                columns.update(((name, part), None) for part, _ in _coordinates(value))
        self.settle(list(columns))

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
        """``value`` if it is a tile, or else the word that spells it."""
        if name not in self._orders:
            try:
                kinds = {knob.name: knob.kind for knob in self.space.knobs(config) if knob.name == name}
            except InvalidConfig:  # a config of another space with knobs of the same names
                return value
            (self._orders if kinds[name] == "word" else self._tiles).add(name)
        return ",".join(map(str, value)) if name in self._orders else value


def _coordinates(value: Value) -> list[tuple[int | str, float]]:
    """The numbers of a choice, each with its part of the choice: the index of a factor, or the word."""
    if isinstance(value, tuple):
        return [(i, math.log2(factor) if factor > 0 else -1.0) for i, factor in enumerate(value)]
    return [(value, 1.0)] if isinstance(value, str) else [(0, float(value))]


class ProgramFeatures(Features):
    """MetaSchedule's per-store features of the scheduled module (164 a store), as their maximum and mean.

    Source: Zheng et al., "Ansor" (OSDI 2020), appendix B; ``tvm.s_tir.meta_schedule`` PerStoreFeature. A config
    that makes no program has a row of NaN. Rows are kept, since each takes a scheduled program.
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
