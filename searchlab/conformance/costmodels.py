"""Cost model checks: a function for each rule in the contract of :class:`~searchlab.costmodel.CostModel`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Floats, Ints
from ..costmodel import COST_MODELS, CostModel
from ..options import library_seed
from ..plugins import PluginSpec
from .check import (
    TIME_LIMIT,
    Breach,
    Check,
    Subject,
    check_constructor,
    global_streams,
    in_two_processes,
    rule,
    rules_in,
)

BASIC = ("signature", "learns")
"""The rules that must hold for all others to be meaningful."""

SEEDED = (*BASIC, "shape", "finite", "same-seed", "global-random-state")


class CostModelSubject(Subject):
    """A cost model to check."""

    def start(self) -> CostModel:
        """Instantiate the model. Raises Refused if it rejects the options."""
        rejection = f"cost model {self.plugin.name!r} rejected its options"
        model: CostModel = self.make(CostModel, rejection, seed=library_seed(self.seed), **self.plugin.options)
        return model

    def train(self, n: int = 100) -> tuple[CostModel, Floats]:
        """Instantiate the model and train it on ``n`` rows of :func:`data`; return the model and the features."""
        instance = self.start()
        features, scores = data(n)
        instance.fit(features, scores, one_task(features))
        return instance, features


def data(n: int, d: int = 6, seed: int = 0) -> tuple[Floats, Floats]:
    """Return features of shape (n, d), and scores of shape (n,) in [0, 1] that depend on two of the features.

    10 % of the features are NaN, and 20 % of the scores are 0.
    """
    rng = np.random.default_rng(seed)
    features = rng.random((n, max(d, 2)))
    scores = (features[:, 0] + features[:, 1] * (features[:, 0] > 0.5)) / 2
    features[rng.random(features.shape) < 0.1] = np.nan
    scores[rng.random(n) < 0.2] = 0.0
    return features[:, :d], scores / np.max(scores, initial=1e-9)


def train_and_predict(model: CostModelSubject, features: Floats, scores: Floats, groups: Ints | None = None) -> Floats:
    """Train a new model on the given data, and return its predictions for the same rows and for 20 new rows."""
    with global_streams(0):
        instance = model.start()
        instance.fit(features, scores, one_task(features) if groups is None else groups)
        return np.asarray(instance.predict(np.concatenate([features, data(20, features.shape[1], seed=9)[0]])))


def one_task(features: Floats) -> Ints:
    return np.zeros(len(features), dtype=np.int64)


@rule("give every option a default, and accept no *args or **kwargs: def __init__(self, *, seed, rounds=100)")
def signature(model: CostModelSubject) -> None:
    """The constructor accepts seed and options by keyword; each option has a default."""
    check_constructor(model.cls, 0, seeded=True)


@rule("accept arrays of these shapes: features (n, d), scores and groups (n,)")
def learns(model: CostModelSubject) -> None:
    """It learns from a hundred trials of one task and predicts scores."""
    train_and_predict(model, *data(100))


@rule("return one float64 per row: return np.asarray(..., dtype=np.float64).reshape(len(features))", BASIC)
def shape(model: CostModelSubject) -> None:
    """predict returns an array of floats of shape (n,), also if there are no rows."""
    with global_streams(0):
        instance, features = model.train()
        for count in (100, 7, 1, 0):
            scored: Any = instance.predict(features[:count])
            if not isinstance(scored, np.ndarray) or scored.shape != (count,) or scored.dtype.kind != "f":
                form = f"{getattr(scored, 'dtype', '')} {getattr(scored, 'shape', '')}".strip()
                raise Breach(f"for {count} rows, it returns {type(scored).__name__} {form}".rstrip())


@rule("replace NaN in features, clip values that may overflow, and guard against division by 0", BASIC)
def finite(model: CostModelSubject) -> None:
    """Its predictions are finite, including those for new rows."""
    _check_finite(model, *data(100))


@rule("predict the mean score until there are enough rows to learn from", [*BASIC, "finite"])
def few_rows(model: CostModelSubject) -> None:
    """It learns even from only one, two or three trials."""
    for count in (1, 2, 3):
        _check_finite(model, *data(count))


@rule("predict that score; do not divide by the scores' spread, maximum or sum", [*BASIC, "finite"])
def constant_scores(model: CostModelSubject) -> None:
    """It learns from trials that are all equally fast, and from those that all failed and therefore have score 0."""
    features, _ = data(40)
    for score in (1.0, 0.0):
        _check_finite(model, features, np.full(40, score))


@rule("replace NaN with the mean of its column, or with 0 if the entire column is NaN", [*BASIC, "finite"])
def nan_features(model: CostModelSubject) -> None:
    """It learns from features in which one column or all columns are NaN."""
    features, scores = data(40)
    features[:, 2] = np.nan
    _check_finite(model, features, scores)
    _check_finite(model, np.full((40, 3), np.nan), scores)


@rule("do not divide by a column's spread", [*BASIC, "finite"])
def constant_features(model: CostModelSubject) -> None:
    """It learns from features that are all equal."""
    _check_finite(model, np.ones((40, 3)), data(40)[1])


@rule("predict the mean score if features has no columns, since a space may have no knobs", [*BASIC, "finite"])
def no_columns(model: CostModelSubject) -> None:
    """It learns from features without columns."""
    _check_finite(model, np.empty((5, 0)), np.array([0.0, 0.2, 0.5, 1.0, 1.0]))


@rule("compare trials only within a group; a group may have a single row or equal scores", [*BASIC, "finite"])
def several_tasks(model: CostModelSubject) -> None:
    """It learns from several tasks (groups) at once, including one with a single trial and one with only failures."""
    features, scores = data(61)
    scores[40:60] = 0.0
    _check_finite(model, features, scores, np.repeat([0, 1, 2], [40, 20, 1]))


def _check_finite(model: CostModelSubject, features: Floats, scores: Floats, groups: Ints | None = None) -> None:
    scored = train_and_predict(model, features, scores, groups)
    if wrong := np.flatnonzero(~np.isfinite(scored).reshape(len(scored), -1).all(axis=1)).tolist():
        description = f"{scored[wrong[0]]} in {len(wrong)} of {len(scored)} rows"
        raise Breach(f"trained on features of shape {features.shape}, it predicts {description}")


@rule("pass the seed to everything random, and use a single thread where the summation order matters", BASIC)
def same_seed(model: CostModelSubject) -> None:
    """The same data and seed give the same predictions."""
    _check_same(
        train_and_predict(model, *data(100)), train_and_predict(model, *data(100)), "when trained again, it predicts"
    )


@rule("copy arrays before changing them: use np.nan_to_num(features) without copy=False", BASIC)
def leaves_its_input(model: CostModelSubject) -> None:
    """It does not modify its arguments."""
    features, scores = data(100)
    groups = one_task(features)
    before = {"features": features.copy(), "scores": scores.copy(), "groups": groups.copy()}
    with global_streams(0):
        instance = model.start()
        instance.fit(features, scores, groups)
        instance.predict(features)
    for name, array in (("features", features), ("scores", scores), ("groups", groups)):
        if not np.array_equal(array, before[name], equal_nan=True):
            raise Breach(f"it modified {name}")


@rule("draw from your own generator: np.random.default_rng(seed)", [*BASIC, "same-seed"])
def global_random_state(model: CostModelSubject) -> None:
    """It neither draws from nor seeds the global random streams of Python and NumPy."""
    scored = []
    for seed in (1, 2):
        with global_streams(seed, untouched=True):
            instance, features = model.train()
            scored.append(instance.predict(features))
    _check_same(scored[0], scored[1], "with different global random streams, it predicts")


@rule("reset the model in fit", [*BASIC, "same-seed", "global-random-state"])
def forgets(model: CostModelSubject) -> None:
    """fit discards the data of earlier fits."""
    features, scores = data(100)
    with global_streams(0):
        once, twice = model.start(), model.start()
        twice.fit(*data(30, seed=1), np.zeros(30, dtype=np.int64))
        for instance in (once, twice):
            instance.fit(features, scores, one_task(features))
        _check_same(once.predict(features), twice.predict(features), "after training on other data, it predicts")


@rule("predict each row independently: do not use statistics of the other rows", [*BASIC, "shape", "same-seed"])
def a_row_alone(model: CostModelSubject) -> None:
    """The prediction for a row does not depend on the other rows."""
    with global_streams(0):
        instance, features = model.train()
        predictions = instance.predict(features)
        _check_same(predictions[10:20], instance.predict(features[10:20]), "for ten rows alone, it predicts", 1e-6)
        _check_same(predictions[::-1], instance.predict(features[::-1]), "for rows in reverse order, it predicts", 1e-6)


@rule("return from dump all that fit has learned, and set it in restore; or define neither", SEEDED)
def restores(model: CostModelSubject) -> None:
    """A model restored from the files of a trained model predicts the same."""
    instance, features = model.train()
    if files := instance.dump():
        restored_model = model.start()
        restored_model.restore(files)
        _check_same(instance.predict(features), restored_model.predict(features), "after dump and restore, it predicts")


@rule("use one thread, or sums that do not depend on the number of threads; do not iterate over sets", SEEDED)
def every_process(model: CostModelSubject) -> None:
    """Its predictions are the same in every process and with any number of threads."""
    first, second = in_two_processes(predictions, model)
    _check_same(np.array(first), np.array(second), "in another process, on one thread, it predicts")


def predictions(model: CostModelSubject) -> list[float]:
    """Return the model's predictions after training on 400 trials."""
    return list(train_and_predict(model, *data(400)).tolist())


def _check_same(before: Floats, after: Floats, when: str, tolerance: float = 0.0) -> None:
    """Raise Breach if predictions differ by more than ``tolerance``."""
    if before.shape != after.shape:
        raise Breach(f"{when} scores of shape {after.shape} instead of {before.shape}")
    differences = np.abs(before - after).reshape(len(before), -1).max(axis=1, initial=0.0)
    if (differences > tolerance).any():
        row = int(np.argmax(differences))
        raise Breach(f"{when} {after[row]} instead of {before[row]} for row {row}")


RULES = rules_in(__name__)


def cost_model_checks(plugin: PluginSpec, *, seed: int = 0) -> list[Check]:
    """Return the checks for a cost model, in order.

    Args:
        plugin: The cost model.
        seed: The cost model's seed.

    Raises:
        SearchlabError: If the plug-in or an option is unknown.
    """
    resolved, cls = COST_MODELS.resolve(plugin)
    COST_MODELS.check_options(resolved.name, cls, resolved.options)
    subject = CostModelSubject(resolved, cls, seed, TIME_LIMIT)
    return [Check(rule, subject) for rule in RULES]
