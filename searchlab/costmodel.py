"""The contract of a cost model, and the surrogate that binds one to a space and a feature extractor."""

from __future__ import annotations

import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from zipfile import BadZipFile, is_zipfile

import msgspec
import numpy as np

from .errors import SearchlabError
from .features import FEATURES, Features, KnobFeatures, make_features
from .log import Plugin
from .records import Trial
from .registry import check_options
from .registry import load as load_plugin
from .space import Config, Space

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


class Rows(NamedTuple):
    """What a cost model is trained on, as :meth:`CostModel.fit` has it."""

    features: Array
    scores: Array
    groups: Groups

    @classmethod
    def of_tasks(cls, tasks: Sequence[tuple[Array, Array]]) -> Rows:
        """The features and scores of each task in turn; at least one task."""
        features, scores = zip(*tasks, strict=True)
        groups = np.repeat(np.arange(len(tasks)), [len(part) for part in scores])
        return cls(np.concatenate(features), np.concatenate(scores), groups)


def scores_of(trials: Sequence[Trial], best: float = np.inf) -> Array:
    """Throughput of each trial over that of a cost of ``best`` seconds; where it is infinite, over the best of them.

    So by default 1 for the fastest; always 0 for one that failed.
    """
    costs = np.array([trial.cost for trial in trials], dtype=np.float64)
    best = best if np.isfinite(best) else np.min(costs, initial=np.inf)
    return best / costs if np.isfinite(best) else np.zeros(len(costs))


class Surrogate:
    """A cost model that speaks of configs: what a policy is given as ``cost_model``.

    best: seconds of the fastest trial it was trained on, which has score 1; infinity where there is none.
    rows: what it was trained on, None before.
    train_seconds: what the last training took. predict_seconds: what all predicting took so far.
    """

    def __init__(self, model: CostModel, features: Features) -> None:
        self.model = model
        self.features = features
        self.best = np.inf
        self.rows: Rows | None = None
        self.train_seconds = 0.0
        self.predict_seconds = 0.0
        self._others: list[tuple[Array, Array]] = []

    @property
    def fitted(self) -> bool:
        return self.rows is not None

    def pretrain(self, tasks: Sequence[tuple[Array, Array]]) -> None:
        """Train on other tasks, each its (features, scores), now and along with the trials of every later fit.

        Raises SearchlabError where the features are knobs, whose columns are those of one space.
        """
        if self.features.name == KnobFeatures.name:
            raise SearchlabError("knob features of other tasks have nothing in common with these; use program features")
        self._others = list(tasks)
        if tasks:
            self.train(Rows.of_tasks(tasks))

    def fit(self, trials: Sequence[Trial]) -> None:
        """Train afresh on all of ``trials``; does nothing while there are none."""
        if trials:
            start = time.perf_counter()
            configs = [trial.config for trial in trials]
            self.features.learn(configs)
            own = self.features(configs), scores_of(trials)
            self.train(Rows.of_tasks([*self._others, own]))
            self.best = min(trial.cost for trial in trials)
            self.train_seconds = time.perf_counter() - start

    def train(self, rows: Rows) -> None:
        """Train afresh on features that were extracted before."""
        start = time.perf_counter()
        self.model.fit(*rows)
        self.rows = rows
        self.train_seconds = time.perf_counter() - start

    def predict(self, configs: Sequence[Config]) -> Array:
        """Scores (n,), higher is faster; zeros before the first fit."""
        if not self.fitted or not configs:
            return np.zeros(len(configs))
        start = time.perf_counter()
        predicted = np.asarray(self.model.predict(self.features(configs)), dtype=np.float64)
        self.predict_seconds += time.perf_counter() - start
        return predicted


# --- saved models -----------------------------------------------------------------------------------


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of a saved model beside its training rows."""

    searchlab_model: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    model: Plugin
    seed: Annotated[int, msgspec.Meta(ge=0)]
    features: str
    columns: list[tuple[str, int | str]]
    fingerprint: str
    space: str


def save(surrogate: Surrogate, path: str | Path) -> None:
    """Write a trained surrogate to the file ``path``.

    What is written is what it was trained on: the model's name, options and seed, the columns of its features, and
    the training rows, as an ``.npz`` of plain arrays. :func:`load` trains again, which gives the same model, since
    training is a function of just these. So one form does for every cost model, and no file runs code.
    Raises SearchlabError where it was never trained, was made by hand, or the file cannot be written.
    """
    model, features = surrogate.model, surrogate.features
    if surrogate.rows is None:
        raise SearchlabError("the cost model was not trained yet, so there is nothing to save")
    if model.plugin is None or features.name not in FEATURES:
        raise SearchlabError("a cost model to save must be made by make_cost_model, and its features by make_features")
    saved = _Saved(
        model=model.plugin.spelled(), seed=model.seed, features=features.name, columns=features.columns,
        fingerprint=features.space.fingerprint, space=_called(features.space),
    )  # fmt: skip
    header = np.frombuffer(msgspec.json.encode(saved), dtype=np.uint8)
    try:
        with open(path, "wb") as file:
            np.savez_compressed(file, header=header, **surrogate.rows._asdict())
    except OSError as error:
        raise SearchlabError(f"cannot write the cost model {path}: {error.strerror}") from None


def load(path: str | Path, space: Space) -> Surrogate:
    """The surrogate saved at ``path``, for configs of ``space``; with the same libraries, the same to the last bit.

    On ``knob`` features it is of use in the space it was trained in alone, on ``program`` features in any.
    Raises SearchlabError where the file is unreadable, damaged, of another space, or names an unknown model.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            saved = msgspec.json.decode(file["header"].tobytes(), type=_Saved)
            rows = Rows(file["features"], file["scores"], file["groups"])
    except OSError as error:
        raise SearchlabError(f"cannot read the cost model {path}: {error.strerror or error}") from None
    except (ValueError, KeyError, EOFError, TypeError, AttributeError, RuntimeError, BadZipFile, zlib.error) as error:
        said = error if is_zipfile(path) else "it is not an .npz archive"
        raise SearchlabError(f"{path} is no cost model that searchlab saved: {said}") from None
    columns = len(saved.columns) if saved.features == "knob" else rows.features.shape[-1]
    shapes = {"features": (rows.scores.size, columns), "scores": (rows.scores.size,), "groups": (rows.scores.size,)}
    for name, part in rows._asdict().items():
        if part.shape != shapes[name] or part.dtype != (np.int64 if name == "groups" else np.float64) or not part.size:
            raise SearchlabError(f"{path} is damaged: its {name} are of shape {part.shape} and type {part.dtype}")
    if saved.features == "knob" and saved.fingerprint != space.fingerprint:
        raise SearchlabError(
            f"{path} was trained on the knobs of {saved.space}, not of {_called(space)}; "
            f"only a model of program features is of use in another space"
        )
    surrogate = Surrogate(make_cost_model(saved.model, saved.seed), make_features(saved.features, space))
    surrogate.features.settle(saved.columns)
    surrogate.train(rows)
    return surrogate


def _called(space: Space) -> str:
    return f"{type(space).__name__} of {space.workload} for {space.target}"
