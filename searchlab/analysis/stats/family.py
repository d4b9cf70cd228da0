"""Which p-values of a page belong together: all of them, so that a page alarms as seldom as one test."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

import numpy as np

from .ranks import holm

RESERVED = 0.8
"""Of the 5 % of false alarms that a page may have, the part for the contrasts that were registered before the runs."""

Key = TypeVar("Key", bound=Hashable)


def one_family(p: Mapping[Key, float], registered: Collection[Key] = ()) -> dict[Key, float]:
    """The adjusted p-value of every test of a page: the page calls any two equal strategies different in at most 5 %.

    p: of every test that a reader may take for a claim, on whatever workload and measure. registered: the tests that
    were named before the runs were made. Without any, the correction is Holm's over all. Else it is Holm's with
    weights: the registered tests share ``RESERVED`` of the weight, however many others there are, and the others share
    the rest; those are exploratory. A test that is rejected leaves its weight to all that are not.

    Raises ValueError where a registered test is not among ``p``.
    """
    if missing := [key for key in registered if key not in p]:
        raise ValueError(f"registered, but not tested: {', '.join(map(str, missing))}")
    chosen = np.array([key in registered for key in p], dtype=bool)
    first, others = int(chosen.sum()), int((~chosen).sum())
    weights = np.where(chosen, RESERVED / max(first, 1), (1 - RESERVED) / max(others, 1))
    values = np.array(list(p.values()), dtype=np.float64)
    adjusted = holm(values, weights if first and others else None)
    return dict(zip(p, adjusted.tolist(), strict=True))
