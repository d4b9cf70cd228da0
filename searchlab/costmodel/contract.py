"""The contract for cost models, and functions that call them and check their predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from ..arrays import Floats, Ints
from ..errors import SearchlabError, describe
from ..foreign_code import find_definition
from ..options import ChecksOptions, to_library_seed
from ..plugins import Plugin, PluginKind


class CostModel(ChecksOptions, ABC):
    """A model that predicts from a program's features how fast the program is.

    Options are keyword arguments of the constructor, and have defaults. The same data and seed must produce the same
    predictions with any number of threads.

    Args:
        seed: The seed for all random decisions in training, in [0, 2^32).

    Attributes:
        plugin: The model's name and options, if :func:`make_cost_model` created it.
        per_store: Whether the model can learn from the features ``per-store``, in which each row concatenates the
            features of a program's stores.
        columns_per_store: The number of columns for each store in such a row, set before ``fit``; 0 for other features.
        uncertainty: The source of an ensemble whose disagreement measures the uncertainty of a prediction: ``members``
            if the model defines :meth:`members`, ``bootstrap`` if searchlab is to train copies of the model on
            bootstrap samples, or empty if the model cannot estimate uncertainty.

    Example:
        >>> import numpy as np
        >>> from searchlab import CostModel
        >>> class Mean(CostModel):
        ...     def fit(self, features, scores, groups):
        ...         self.mean = scores.mean()
        ...     def predict(self, features):
        ...         return np.full(len(features), self.mean)
        >>> model = Mean(seed=0)
        >>> model.fit(np.zeros((2, 3)), np.array([0.5, 1.0]), np.zeros(2, int))
        >>> float(model.predict(np.zeros((1, 3)))[0])
        0.75
    """

    plugin: Plugin | None = None
    per_store: ClassVar[bool] = False
    uncertainty: ClassVar[Literal["", "members", "bootstrap"]] = ""
    columns_per_store: int = 0

    def __init__(self, *, seed: int) -> None:
        self.seed = seed

    @abstractmethod
    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        """Learn from n >= 1 rows, and discard all earlier rows.

        Args:
            features: The features, of shape (n, d). NaN marks a feature that a row lacks.
            scores: The scores in [0, 1], of shape (n,). Each task's fastest row has score 1.
            groups: The task of each row in ascending order, of shape (n,). Scores for different tasks are not
                comparable.
        """

    def start_from(self, features: Floats, scores: Floats, groups: Ints) -> bool:
        """Learn once from other tasks, before learning from any row of the searched task.

        Args:
            features: The features, as in :meth:`fit`.
            scores: The scores, as in :meth:`fit`.
            groups: The tasks, as in :meth:`fit`.

        Returns:
            True if the model has learned from these rows. If False (the default), every fit includes them instead.
        """
        return False

    @abstractmethod
    def predict(self, features: Floats) -> Floats:
        """Return finite scores of shape (n,), where higher is faster; only their order and differences matter."""

    def dump(self) -> dict[str, bytes]:
        """Return the trained model as files of any names, for :meth:`restore`, in the format of its own library.

        By default there are none: a saved model is trained again on its data when it is loaded. Files must not contain
        anything that reading executes, such as pickled objects.
        """
        return {}

    def restore(self, files: Mapping[str, bytes]) -> None:
        """Become the model that :meth:`dump` has returned. Raises any exception if the files are damaged."""
        raise NotImplementedError

    def members(self, features: Floats) -> Floats:
        """Return the scores that each member of an ensemble predicts, of shape (members, n).

        :meth:`predict` returns their mean. Only models that declare ``uncertainty = "members"`` define this method.
        """
        raise NotImplementedError


COST_MODELS = PluginKind("cost model", "searchlab.costmodels", CostModel, positional=0)  # type: ignore[type-abstract]


def fit_model(model: CostModel, features: Floats, scores: Floats, groups: Ints) -> None:
    """Call :meth:`~CostModel.fit`. Raises SearchlabError, which names the model, if the call raises any exception."""
    with COST_MODELS.convert_errors(type(model), "fit"):
        model.fit(features, scores, groups)


def predict_scores(model: CostModel, features: Floats) -> Floats:
    """Return the finite scores of shape (n,) that ``model`` predicts.

    Raises:
        SearchlabError: If the model returns anything else or raises an exception; the message names the model.
    """
    with COST_MODELS.convert_errors(type(model), "predict"):
        predicted = model.predict(features)
    try:
        return _check_scores(predicted, len(features))
    except ValueError as error:
        raise SearchlabError(
            f"cost model {COST_MODELS.name_of(type(model))!r} broke its contract: {error} "
            f"({find_definition(type(model).predict)}); choose a different cost model, or check this one with "
            f"`searchlab check costmodel`"
        ) from None


def predict_member_scores(model: CostModel, features: Floats) -> Floats:
    """Return the finite scores of shape (members, n) of the members of ``model``; see :func:`predict_scores`."""
    with COST_MODELS.convert_errors(type(model), "members"):
        return np.array([_check_scores(predicted, len(features)) for predicted in model.members(features)])


def _check_scores(predicted: Any, row_count: int) -> Floats:
    """Convert ``predicted`` to float64. Raises ValueError unless it consists of ``row_count`` finite real numbers."""
    is_masked = isinstance(predicted, np.ma.MaskedArray)
    if masked_count := np.count_nonzero(np.ma.getmaskarray(predicted)) if is_masked else 0:
        raise ValueError(f"predict masked {masked_count} of {predicted.size} scores")
    try:
        array = np.asarray(predicted)
    except Exception as error:
        raise ValueError(f"predict must return an array, not {type(predicted).__name__}: {describe(error)}") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"predict must return an array of real numbers, not an array of dtype {array.dtype}")
    if array.shape != (row_count,):
        raise ValueError(f"predict must return scores of shape ({row_count},), not {array.shape}")
    scores = array.astype(np.float64)
    if (non_finite_rows := np.flatnonzero(~np.isfinite(scores))).size:
        first = non_finite_rows[0]
        raise ValueError(f"predict returned {scores[first]} for row {first} of {row_count}; scores must be finite")
    return scores


def make_cost_model(plugin: Plugin, seed: int) -> CostModel:
    """Create the cost model that ``plugin`` specifies. Raises SearchlabError if the name or an option is unknown."""
    model = COST_MODELS.make(plugin, seed=to_library_seed(seed))
    model.plugin = plugin
    return model
