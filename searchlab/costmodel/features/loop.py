"""AutoTVM's features of the loops of a program, by which a cost model carries over to other shapes.

Source: Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018), section 3 and appendix. In Apache TVM 0.17:
``GetItervarFeatureFlatten`` and ``GetCurveSampleFeatureFlatten`` of ``src/autotvm/touch_extractor.cc``, and
``_extract_itervar_feature_index``, ``_extract_curve_feature_index`` and ``_get_feature`` of
``python/tvm/autotvm/tuner/xgboost_cost_model.py``. Where the loops themselves are seen differently: see :mod:`.nest`.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...arrays import Floats
from ...space import Config
from .nest import ANNOTATIONS, Loop, loops_of
from .program import ScheduledFeatures

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

SAMPLES = 20
"""Points of a curve that are sampled, at the powers of 2 from 1 on."""

_COPY = re.compile(r"(_(global|shared|local|warp|dyn|reindex))+$")
"""The end of the name of a buffer that is a copy of another one, for example ``A_shared_local``."""


class LoopFeatures(ScheduledFeatures):
    """Features of each loop or buffer, one after the other, and then the numbers among the choices of the config.

    So two shapes of one template have the same columns. A row that is shorter than others ends in zeros.
    """

    absent = 0.0

    @abstractmethod
    def of_loops(self, loops: Sequence[Loop]) -> list[float]:
        """The features of a program."""

    def rows(self, programs: Sequence[Schedule]) -> list[Floats]:
        return [np.array(self.of_loops(loops_of(program.mod)), dtype=np.float64) for program in programs]

    def completed(self, row: Floats, config: Config) -> Floats:
        return np.append(row, [float(value) for value in config.values() if isinstance(value, int | float)])


class ItervarFeatures(LoopFeatures):
    """AutoTVM's features of each loop: its length, position and kind, its arithmetic, and how it accesses each buffer.

    Numbers x are encoded as log2(1 + abs(x)) with the sign of x, except for the position and the kind. Buffers are
    ordered by their names, as words.
    """

    name = "itervar"

    def of_loops(self, loops: Sequence[Loop]) -> list[float]:
        return [number for loop in loops for number in _of_loop(loop)]


class CurveFeatures(LoopFeatures):
    """AutoTVM's curves: four curves over the loops, sampled at 20 points, for each buffer of the innermost loops.

    The curves are reuse over count, count over reuse, the product of the lengths up to a loop over count, and count
    over that product. A point holds the value of the curve and the distance to the point from which it was taken, both
    as logarithms to base 2. If a buffer is accessed several times, only the last access counts; AutoTVM takes an
    arbitrary one, because it iterates over a hash map.
    """

    name = "curve"

    def of_loops(self, loops: Sequence[Loop]) -> list[float]:
        deepest = max((loop.level for loop in loops), default=0)
        last: dict[str, str] = {}
        for loop in reversed(loops):
            if loop.level == deepest:
                for touched in reversed(loop.touches):
                    last.setdefault(_COPY.sub("", touched.rpartition("_")[0]), touched)
        row: list[float] = []
        for touched in sorted(last.values()):
            around = [(loop.touches[touched], loop) for loop in loops if touched in loop.touches]
            counts = _curve([touch.count for touch, _ in around])
            reuses = _curve([touch.reuse for touch, _ in around])
            products = _curve([loop.topdown for _, loop in around])
            for x, y in ((counts, reuses), (reuses, counts), (counts, products), (products, counts)):
                row += _sampled(x, y)
        return row


def _of_loop(loop: Loop) -> list[float]:
    row = [_log(loop.length), float(loop.level), _log(loop.topdown), _log(loop.bottomup)]
    row += [float(loop.annotation == annotation) for annotation in ANNOTATIONS]
    row += [_log(loop.adds), _log(loop.multiplies), _log(loop.divides)]
    for touched in sorted(loop.touches):
        touch = loop.touches[touched]
        modulus = -1  # AutoTVM has a column for it, and never finds one
        numbers = (touch.stride, modulus, touch.count, touch.reuse, touch.thread_count, touch.thread_reuse)
        row += [_log(number) for number in numbers]
    return row


def _log(number: int) -> float:
    return math.copysign(math.log2(abs(number) + 1), number)


def _curve(values: Sequence[int]) -> list[float]:
    return sorted([0.0, *(math.log2(value) if value > 0 else 0.0 for value in values)])


def _sampled(x: Sequence[float], y: Sequence[float]) -> list[float]:
    row: list[float] = []
    for point in range(SAMPLES):
        below = max(i for i, at in enumerate(x) if point > at - 1e-6)
        row += [y[below], point - x[below]]
    return row
