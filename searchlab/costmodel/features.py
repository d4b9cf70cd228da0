"""The features from which cost models learn: numbers that describe a config, taken from its knobs or its program."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..arrays import Floats
from ..errors import InvalidConfig, SearchlabError, UnsupportedSpace, did_you_mean
from ..metaschedule import tune_context
from ..space import Config, Encoding, Kind, Space, Value, coordinates
from .loops import ANNOTATIONS, Loop, extract_loops

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

COLUMNS_PER_STORE = 164
"""The number of features that MetaSchedule's PerStoreFeature extracts for each store."""

MAX_CACHED_ROWS = 50_000
"""The maximum number of cached rows (about 150 MB). If there are more, the cache is cleared."""

SAMPLES_PER_CURVE = 20
"""The number of points at which a curve is sampled: the powers of 2, starting at 1."""

Columns = list[tuple[str, int | str]]
"""Each column's knob and the part of the knob's value that it contains; empty if the columns are always the same."""


class Features(ABC):
    """Converts configs from one space to a matrix with one row per config.

    Args:
        space: The space of the configs.

    Attributes:
        name: The name of the features in a study file.
        builds_programs: Whether a row requires a scheduled program, which takes milliseconds instead of microseconds.
        columns_per_store: The number of columns for each store if a row concatenates the features of a program's
            stores, or 0 otherwise.
        absent: The value used for padding if the rows for two spaces differ in length.
        columns: A description of each column.
    """

    name: ClassVar[str] = ""
    builds_programs: ClassVar[bool] = False
    columns_per_store: ClassVar[int] = 0
    absent: ClassVar[float] = np.nan

    def __init__(self, space: Space) -> None:
        self.space = space
        self.columns: Columns = []

    def learn(self, configs: Sequence[Config]) -> None:
        """Determine the columns from the configs that are about to be used for training a model."""

    def use_columns(self, columns: Columns) -> None:
        """Use ``columns`` instead of the learned columns."""

    @abstractmethod
    def __call__(self, configs: Sequence[Config]) -> Floats:
        """Return the features of ``configs``, of shape (n, d); NaN marks a feature that a config lacks."""


def pad_columns(matrix: Floats, width: int, absent: float) -> Floats:
    """Pad ``matrix`` of shape (n, d) to ``width`` >= d columns with ``absent``; all-NaN rows are padded with NaN."""
    if matrix.shape[1] == width:
        return matrix
    padded = np.full((len(matrix), width), absent)
    padded[:, : matrix.shape[1]] = matrix
    padded[np.isnan(matrix).all(axis=1)] = np.nan
    return padded


def lay_out(features: Features | type[Features], matrix: Floats, width: int) -> Floats:
    """Return ``matrix`` with the ``width`` columns used in training, except that per-store features are unchanged."""
    return matrix if features.columns_per_store else pad_columns(matrix[:, :width], width, features.absent)


class KnobFeatures(Features):
    """A config's knobs: the log2 of each factor in a tile, unchanged numbers, and one-hot encoded words.

    A tuple that is not a tile, such as a permutation, counts as a word; see :attr:`~searchlab.space.Knob.kind`. The
    features of a knob that a config lacks are NaN.
    """

    name = "knob"

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self._kinds_by_knob: dict[str, Kind] = {}  # of the knobs whose values are tuples
        self.use_columns([])

    def learn(self, configs: Sequence[Config]) -> None:
        columns = (
            (name, part)
            for config in configs
            for name, value in config.items()
            for part, _ in self._represent(value, isinstance(value, tuple) and self._is_word(name, config))
        )
        self.use_columns(list(dict.fromkeys(columns)))

    def use_columns(self, columns: Columns) -> None:
        self.columns = columns
        self._encoding = Encoding(columns, self._represent)

    def __call__(self, configs: Sequence[Config]) -> Floats:
        return self._encoding(configs)

    def _is_word(self, name: str, config: Config) -> bool:
        """Return whether a knob whose values are tuples, such as permutations, is of kind ``word``."""
        if name not in self._kinds_by_knob:
            with suppress(InvalidConfig):  # a config from another space with knobs of the same names
                self._kinds_by_knob |= {knob.name: knob.kind for knob in self.space.knobs(config) if knob.name == name}
        return self._kinds_by_knob.get(name) == "word"

    _represent = staticmethod(coordinates)


class AutoTVMKnobFeatures(KnobFeatures):
    """AutoTVM's features ``knob``: the factors of a tile except the outermost, without logarithms.

    In AutoTVM, the outermost factor is -1 in every config. Source: ``ConfigEntity.get_flatten_feature`` in
    ``python/tvm/autotvm/task/space.py``, TVM 0.17.
    """

    name = "autotvm-knob"

    @staticmethod
    def _represent(value: Value, is_word: bool = False) -> list[tuple[int | str, float]]:
        if isinstance(value, tuple) and not is_word:
            return [(i, float(factor)) for i, factor in enumerate(value) if i]
        return coordinates(value, is_word)


Extractor = Callable[[Space, str, Sequence[Config]], list[Floats] | None]
"""A variant of :meth:`ScheduledFeatures.extract` that uses other processes, or returns None if there are none."""

_extractor: ContextVar[Extractor | None] = ContextVar("extractor", default=None)


@contextmanager
def use_extractor(extractor: Extractor) -> Iterator[None]:
    """Use ``extractor`` to extract all program features within this context, including those for a policy's models.

    The rows do not depend on the process that extracts them.
    """
    token = _extractor.set(extractor)
    try:
        yield
    finally:
        _extractor.reset(token)


class ScheduledFeatures(Features):
    """Features of the scheduled program; the row for a config without a program is NaN.

    A row depends only on the space and the config. Rows are cached, since extraction takes milliseconds.

    Attributes:
        width: The minimum number of columns.
    """

    builds_programs = True
    width: ClassVar[int] = 0

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self._rows_by_config: dict[Config, Floats] = {}
        self._rows_by_hash: dict[int, Floats] = {}

    @abstractmethod
    def rows(self, programs: Sequence[Schedule]) -> list[Floats]:
        """Return each scheduled program's features, of shape (d,); d may differ between programs."""

    def __call__(self, configs: Sequence[Config]) -> Floats:
        if len(self._rows_by_config) > MAX_CACHED_ROWS:
            self._rows_by_config.clear()
        new_configs = [config for config in dict.fromkeys(configs) if config not in self._rows_by_config]
        if new_configs:
            extractor = _extractor.get()
            new_rows = extractor(self.space, self.name, new_configs) if extractor else None
            if new_rows is None:
                new_rows = self.extract(new_configs)
            self._rows_by_config.update(zip(new_configs, new_rows, strict=True))
        rows = [self._rows_by_config[config] for config in configs]
        matrix = np.full((len(rows), max([self.width, *map(len, rows)])), self.absent)
        for index, row in enumerate(rows):
            matrix[index, : len(row)] = row
            if not len(row):
                matrix[index] = np.nan
        return matrix

    def extract(self, configs: Sequence[Config]) -> list[Floats]:
        """Extract each config's features in this process, of shape (d,), or empty for a config without a program."""
        from tvm_ffi import structural_hash

        self.prepare()
        if len(self._rows_by_hash) > MAX_CACHED_ROWS:
            self._rows_by_hash.clear()
        program_hashes: list[int | None] = []
        new_programs: dict[int, Schedule] = {}
        for config in configs:
            try:
                program = self.space.schedule(config)
            except Exception:  # a plug-in may raise any exception; if the config is measured, only its trial fails
                program_hashes.append(None)
                continue
            program_hash: int = structural_hash(program.mod)
            program_hashes.append(program_hash)
            if program_hash not in self._rows_by_hash:
                new_programs[program_hash] = program
        self._rows_by_hash.update(zip(new_programs, self._try_rows(list(new_programs.values())), strict=True))
        rows = [np.empty(0) if program is None else self._rows_by_hash[program] for program in program_hashes]
        return [self.complete(row, config) if len(row) else row for row, config in zip(rows, configs, strict=True)]

    def prepare(self) -> None:
        """Import the modules that extraction needs, which takes seconds."""
        from tvm.s_tir import meta_schedule  # noqa: F401

    def complete(self, row: Floats, config: Config) -> Floats:
        """Return a program's ``row``, to which a subclass may append features of the config itself."""
        return row

    def _try_rows(self, programs: Sequence[Schedule]) -> list[Floats]:
        """Return the result of :meth:`rows`, with an empty row for each program whose extraction fails."""
        try:
            return self.rows(programs) if programs else []
        except Exception:
            if len(programs) == 1:
                return [np.empty(0)]
            return [row for program in programs for row in self._try_rows([program])]

    def stores(self, programs: Sequence[Schedule]) -> list[Floats]:
        """Return MetaSchedule's features of each program, of shape (stores, 164), with the stores in program order."""
        from tvm.s_tir import meta_schedule as ms

        context = tune_context(self.space.workload.module, self.space.target.tvm)
        candidates = [ms.MeasureCandidate(program, []) for program in programs]
        store_arrays = ms.feature_extractor.PerStoreFeature().extract_from(context, candidates)
        return [stores.numpy().astype(np.float64) for stores in store_arrays]


class ProgramFeatures(ScheduledFeatures):
    """MetaSchedule's features of each store (164 numbers), reduced to the maximum and mean over all stores.

    Source: Zheng et al., "Ansor" (OSDI 2020), appendix B; ``tvm.s_tir.meta_schedule`` PerStoreFeature.
    """

    name = "program"
    width = 2 * COLUMNS_PER_STORE

    def rows(self, programs: Sequence[Schedule]) -> list[Floats]:
        return [np.concatenate([stores.max(axis=0), stores.mean(axis=0)]) for stores in self.stores(programs)]


class PerStoreFeatures(ScheduledFeatures):
    """MetaSchedule's features of each store (164 numbers), concatenated over all stores and padded with NaN.

    Only a cost model that sums over stores can learn from them (:attr:`~searchlab.costmodel.CostModel.per_store`).
    Source: see :class:`ProgramFeatures`.
    """

    name = "per-store"
    width = COLUMNS_PER_STORE
    columns_per_store = COLUMNS_PER_STORE

    def rows(self, programs: Sequence[Schedule]) -> list[Floats]:
        return [stores.reshape(-1) for stores in self.stores(programs)]


_COPY_SUFFIX = re.compile(r"(_(global|shared|local|warp|dyn|reindex))+$")
"""The suffix of a buffer copy, as in A_shared_local."""


class LoopFeatures(ScheduledFeatures):
    """AutoTVM's features of each loop or buffer, followed by the config's numeric values.

    These features let a cost model transfer to other shapes, because all shapes in one template have the same columns.
    Shorter rows are padded with zeros. The differences from AutoTVM are listed in :mod:`.loops`.

    Source: Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018), section 3 and appendix. In TVM 0.17:
    ``GetItervarFeatureFlatten`` and ``GetCurveSampleFeatureFlatten`` in ``src/autotvm/touch_extractor.cc``, and
    ``_extract_itervar_feature_index``, ``_extract_curve_feature_index`` and ``_get_feature`` in
    ``python/tvm/autotvm/tuner/xgboost_cost_model.py``.
    """

    absent = 0.0

    @abstractmethod
    def extract_from_loops(self, loops: Sequence[Loop]) -> list[float]:
        """Return a program's features, given its loops."""

    def rows(self, programs: Sequence[Schedule]) -> list[Floats]:
        return [np.array(self.extract_from_loops(extract_loops(program.mod)), dtype=np.float64) for program in programs]

    def complete(self, row: Floats, config: Config) -> Floats:
        return np.append(row, [float(value) for value in config.values() if isinstance(value, int | float)])


class ItervarFeatures(LoopFeatures):
    """AutoTVM's features of each loop: length, depth, kind, arithmetic operations, and accesses to each buffer.

    Each number x is converted to sign(x) log2(|x| + 1), except for the depth and the one-hot encoded kind. Buffers are
    sorted by name.
    """

    name = "itervar"

    def extract_from_loops(self, loops: Sequence[Loop]) -> list[float]:
        return [number for loop in loops for number in _describe_loop(loop)]


class CurveFeatures(LoopFeatures):
    """AutoTVM's curves for each buffer that the innermost loops access, sampled at 20 points.

    For each loop, the count is the number of elements that it touches. Two curves relate the count to the elements'
    reuse, one in each direction, and two relate it to the product of the loop lengths from the outermost loop down. A
    sample contains a curve's value and the distance to the sampled point, both as log2. Among the copies of a buffer,
    only the last one accessed is used; AutoTVM uses an arbitrary copy, because it iterates over a hash map.
    """

    name = "curve"

    def extract_from_loops(self, loops: Sequence[Loop]) -> list[float]:
        deepest_level = max((loop.level for loop in loops), default=0)
        last_accesses: dict[str, str] = {}  # by buffer
        for loop in reversed(loops):
            if loop.level == deepest_level:
                for access in reversed(loop.touches):
                    last_accesses.setdefault(_COPY_SUFFIX.sub("", access.rpartition("_")[0]), access)
        row: list[float] = []
        for access in sorted(last_accesses.values()):
            outer_loops = [(loop.touches[access], loop) for loop in loops if access in loop.touches]
            counts = _make_curve([touch.count for touch, _ in outer_loops])
            reuses = _make_curve([touch.reuse for touch, _ in outer_loops])
            products = _make_curve([loop.topdown for _, loop in outer_loops])
            for x, y in ((counts, reuses), (reuses, counts), (counts, products), (products, counts)):
                row += _sample_curve(x, y)
        return row


def _describe_loop(loop: Loop) -> list[float]:
    row = [_log_signed(loop.length), float(loop.level), _log_signed(loop.topdown), _log_signed(loop.bottomup)]
    row += [float(loop.annotation == annotation) for annotation in ANNOTATIONS]
    row += [_log_signed(loop.adds), _log_signed(loop.multiplies), _log_signed(loop.divides)]
    for access in sorted(loop.touches):
        touch = loop.touches[access]
        modulus = -1  # AutoTVM has this column, but never finds a modulus
        numbers = (touch.stride, modulus, touch.count, touch.reuse, touch.thread_count, touch.thread_reuse)
        row += [_log_signed(number) for number in numbers]
    return row


@lru_cache(1 << 16)
def _log_signed(number: int) -> float:
    return math.copysign(math.log2(abs(number) + 1), number)


def _make_curve(values: Sequence[int]) -> list[float]:
    return sorted([0.0, *(math.log2(value) if value > 0 else 0.0 for value in values)])


def _sample_curve(x: Sequence[float], y: Sequence[float]) -> list[float]:
    row: list[float] = []
    for point in range(SAMPLES_PER_CURVE):
        index = max(i for i, coordinate in enumerate(x) if point > coordinate - 1e-6)
        row += [y[index], point - x[index]]
    return row


FEATURES: dict[str, type[Features]] = {
    kind.name: kind
    for kind in (KnobFeatures, AutoTVMKnobFeatures, ProgramFeatures, PerStoreFeatures, ItervarFeatures, CurveFeatures)
}


def make_features(name: str, space: Space) -> Features:
    """Create the feature extractor called ``name``.

    Args:
        name: A key in :data:`FEATURES`.
        space: The space of the configs.

    Raises:
        SearchlabError: If no features have this name.
        UnsupportedSpace: If the features require programs and the space has none.
    """
    if name not in FEATURES:
        raise SearchlabError(f"unknown feature set {name!r}{did_you_mean(name, FEATURES)}")
    if issubclass(FEATURES[name], ScheduledFeatures) and not space.has_programs:
        raise UnsupportedSpace(
            f"features {name!r} are extracted from programs, but configs for {space.workload} have none; use 'knob'"
        )
    return FEATURES[name](space)
