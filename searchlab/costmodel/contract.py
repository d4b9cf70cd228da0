"""The contract of a cost model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ..errors import SearchlabError
from ..log import Plugin
from ..registry import check_options
from ..registry import load as load_plugin

Array = np.ndarray[Any, np.dtype[np.float64]]
Groups = np.ndarray[Any, np.dtype[np.int64]]


class CostModel(ABC):
    """Predicts how fast a program is from its features.

    Options are keyword arguments of the constructor, with defaults. The same data and seed give the same
    predictions, for any number of threads.
    """

    plugin: Plugin | None = None
    """Its name and options, where :func:`make_cost_model` made it."""

    def __init__(self, *, seed: int) -> None:
        self.seed = seed

    @abstractmethod
    def fit(self, features: Array, scores: Array, groups: Groups) -> None:
        """Learn afresh from n >= 1 rows.

        features: (n, d), NaN where one does not apply. scores: (n,) in [0, 1], 1 for the fastest of its task.
        groups: (n,), the task of each row, ascending: scores of different tasks do not compare.
        """

    @abstractmethod
    def predict(self, features: Array) -> Array:
        """Scores (n,), finite, higher is faster; only their order and differences mean anything."""


def make_cost_model(plugin: Plugin, seed: int) -> CostModel:
    """Raises SearchlabError where there is no such cost model, or it has no such option."""
    cls = load_plugin("cost model", plugin.name)
    if not issubclass(cls, CostModel):  # before it is called: the name may come from a stranger's file
        raise SearchlabError(f"cost model {plugin.name!r} is no searchlab.CostModel; name one of `searchlab list`")
    check_options("cost model", plugin.name, cls, 0, plugin.options)
    model = cls(seed=seed, **plugin.options)
    model.plugin = plugin
    return model
