"""The contract of a cost model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from ..plugins import Plugin, PluginKind

Array = np.ndarray[Any, np.dtype[np.float64]]
Groups = np.ndarray[Any, np.dtype[np.int64]]


class CostModel(ABC):
    """Predicts how fast a program is from its features.

    Options are keyword arguments of the constructor, with defaults. The same data and seed give the same
    predictions, for any number of threads.
    """

    plugin: Plugin | None = None
    """Its name and options, if :func:`make_cost_model` made it."""

    per_store: ClassVar[bool] = False
    """Whether it can learn from a row that holds the stores of a program, one after the other."""

    store_width: int = 0
    """How many columns each store of such a row has; 0 if a row is a whole. Set before ``fit`` if ``per_store``."""

    def __init__(self, *, seed: int) -> None:
        self.seed = seed

    @abstractmethod
    def fit(self, features: Array, scores: Array, groups: Groups) -> None:
        """Learn from n >= 1 rows, and forget all earlier rows.

        features: (n, d), NaN for a feature that a row lacks. scores: (n,) in [0, 1], 1 for the fastest of its task.
        groups: (n,), the task of each row, ascending: scores of different tasks do not compare.
        """

    def start_from(self, features: Array, scores: Array, groups: Groups) -> bool:
        """Learn from the rows of other tasks, once, before any of the task that is searched; as in :meth:`fit`.

        False, as by default, if they are to be among the rows of every fit instead.
        """
        return False

    @abstractmethod
    def predict(self, features: Array) -> Array:
        """Scores (n,), finite, higher is faster; only their order and differences mean anything."""


COST_MODELS = PluginKind("cost model", "searchlab.costmodels", CostModel, positional=0)  # type: ignore[type-abstract]


def make_cost_model(plugin: Plugin, seed: int) -> CostModel:
    """The cost model that ``plugin`` names. Raises SearchlabError if it or an option is unknown."""
    model = COST_MODELS.make(plugin, seed=seed)
    model.plugin = plugin
    return model
