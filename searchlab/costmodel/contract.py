"""The contract of a cost model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from ..arrays import Floats, Ints
from ..errors import SearchlabError, described
from ..options import ChecksOptions
from ..plugins import Plugin, PluginKind, place_of


class CostModel(ChecksOptions, ABC):
    """Predicts how fast a program is from its features.

    Options are keyword arguments of the constructor, with defaults. The same data and seed give the same predictions,
    for any number of threads.

    Args:
        seed: Determines everything random in training.

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
    """Its name and options, if :func:`make_cost_model` made it."""

    per_store: ClassVar[bool] = False
    """Whether it can learn from the features ``per-store``, whose rows hold the stores of a program in turn."""

    columns_per_store: int = 0
    """How many columns each store of such a row has; 0 if a row is a whole. Set before ``fit`` if ``per_store``."""

    def __init__(self, *, seed: int) -> None:
        self.seed = seed

    @abstractmethod
    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        """Learn from n >= 1 rows, and forget all earlier rows.

        features: (n, d), NaN for a feature that a row lacks. scores: (n,) in [0, 1], 1 for the fastest of its task.
        groups: (n,), the task of each row, ascending: scores of different tasks do not compare.
        """

    def start_from(self, features: Floats, scores: Floats, groups: Ints) -> bool:
        """Learn from the rows of other tasks, once, before any of the task that is searched; as in :meth:`fit`.

        False, as by default, if they are to be among the rows of every fit instead.
        """
        return False

    @abstractmethod
    def predict(self, features: Floats) -> Floats:
        """Scores (n,), finite, higher is faster; only their order and differences mean anything."""


COST_MODELS = PluginKind("cost model", "searchlab.costmodels", CostModel, positional=0)  # type: ignore[type-abstract]


def fit_model(model: CostModel, features: Floats, scores: Floats, groups: Ints) -> None:
    """Have ``model`` :meth:`~CostModel.fit`. Raises SearchlabError, which names it, for whatever it raises."""
    with COST_MODELS.blamed(type(model), "fit"):
        model.fit(features, scores, groups)


def predictions(model: CostModel, features: Floats) -> Floats:
    """What ``model`` predicts, held against its contract: (n,), finite.

    Raises SearchlabError, which names it, for anything else, and for whatever it raises.
    """
    with COST_MODELS.blamed(type(model), "predict"):
        predicted = model.predict(features)
    scores, wrong = _real(predicted)
    if wrong:
        pass
    elif scores.shape != (len(features),):
        wrong = f"it was asked for scores of shape ({len(features)},) and gave {scores.shape}"
    elif not np.isfinite(scores).all():
        at = int(np.argmin(np.isfinite(scores)))
        wrong = f"it was asked for finite scores and gave {scores[at]} for row {at} of {len(scores)}"
    if wrong:
        raise SearchlabError(
            f"cost model {COST_MODELS.name_of(type(model))!r} broke its contract: {wrong} "
            f"({place_of(type(model).predict)}); choose another cost model, or check this one against its contract: "
            f"searchlab check costmodel"
        )
    return scores


def _real(predicted: Any) -> tuple[Floats, str]:
    """``predicted`` as 64-bit floats; or, as words, what it is instead of real numbers."""
    nothing = np.empty(0)
    if isinstance(predicted, np.ma.MaskedArray) and np.ma.is_masked(predicted):
        return (
            nothing,
            f"it was asked for scores and masked {int(np.ma.getmaskarray(predicted).sum())} of {predicted.size}",
        )
    try:
        array = np.asarray(predicted)
    except Exception as error:
        return nothing, f"it was asked for an array of scores and gave {type(predicted).__name__}: {described(error)}"
    if array.dtype.kind not in "fiub":
        return nothing, f"it was asked for real numbers and gave an array of {array.dtype}"
    return array.astype(np.float64), ""


def make_cost_model(plugin: Plugin, seed: int) -> CostModel:
    """The cost model that ``plugin`` names. Raises SearchlabError if it or an option is unknown."""
    model = COST_MODELS.make(plugin, seed=seed)
    model.plugin = plugin
    return model
