"""Cost model checks: a function for each rule in the contract of :class:`~searchlab.costmodel.CostModel`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Floats, Ints
from ..costmodel import COST_MODELS, CostModel
from ..options import to_library_seed
from ..plugins import PluginSpec
from .check import (
    TIME_LIMIT,
    Breach,
    Check,
    Subject,
    check_constructor,
    rule,
    rules_in,
    seed_global_streams,
)

BASIC_RULES = ("signature", "learns")
"""The rules that must hold for all others to be meaningful."""

SEEDED_RULES = (*BASIC_RULES, "shape", "finite", "same-seed", "global-random-state")


class CostModelSubject(Subject):
    """A cost model to check."""

    result_name = "prediction"

    def instantiate_model(self) -> CostModel:
        """Instantiate the model. Raises Refused if it rejects the options."""
        rejection_text = f"cost model {self.plugin.name!r} rejected its options"
        model: CostModel = self.instantiate(
            CostModel, rejection_text, seed=to_library_seed(self.seed), **self.plugin.options
        )
        return model

    def train(self) -> tuple[CostModel, Floats]:
        """Instantiate the model and train it on 100 rows of :func:`make_data`; return the model and the features."""
        cost_model = self.instantiate_model()
        features, scores = make_data(100)
        cost_model.fit(features, scores, make_single_group(features))
        return cost_model, features

    def compute_results(self) -> list[Any]:
        """Return the model's predictions after training on 400 trials."""
        return list(train_and_predict(self, *make_data(400)).tolist())


def make_data(row_count: int, column_count: int = 6, seed: int = 0) -> tuple[Floats, Floats]:
    """Return features of shape (n, d), and scores of shape (n,) in [0, 1] that depend on two of the features.

    10 % of the features are NaN, and 20 % of the scores are 0.
    """
    rng = np.random.default_rng(seed)
    features = rng.random((row_count, max(column_count, 2)))
    scores = (features[:, 0] + features[:, 1] * (features[:, 0] > 0.5)) / 2
    features[rng.random(features.shape) < 0.1] = np.nan
    scores[rng.random(row_count) < 0.2] = 0.0
    return features[:, :column_count], scores / np.max(scores, initial=1e-9)


def train_and_predict(
    subject: CostModelSubject, features: Floats, scores: Floats, groups: Ints | None = None
) -> Floats:
    """Train a new model on the given data, and return its predictions for the same rows and for 20 new rows."""
    cost_model = subject.instantiate_model()
    cost_model.fit(features, scores, make_single_group(features) if groups is None else groups)
    return np.asarray(cost_model.predict(np.concatenate([features, make_data(20, features.shape[1], seed=9)[0]])))


def make_single_group(features: Floats) -> Ints:
    return np.zeros(len(features), dtype=np.int64)


@rule("give every option a default, and accept no *args or **kwargs: def __init__(self, *, seed, rounds=100)")
def check_signature(subject: CostModelSubject) -> None:
    """The constructor accepts seed and options by keyword; each option has a default."""
    check_constructor(subject.plugin_class, 0, requires_seed=True)


@rule("accept arrays of these shapes: features (n, d), scores and groups (n,)")
def check_learns(subject: CostModelSubject) -> None:
    """It learns from a hundred trials of one task and predicts scores."""
    train_and_predict(subject, *make_data(100))


@rule("return one float64 per row: return np.asarray(..., dtype=np.float64).reshape(len(features))", BASIC_RULES)
def check_shape(subject: CostModelSubject) -> None:
    """predict returns an array of floats of shape (n,), also if there are no rows."""
    with seed_global_streams(0):
        cost_model, features = subject.train()
        for count in (100, 7, 1, 0):
            predictions: Any = cost_model.predict(features[:count])
            if (
                not isinstance(predictions, np.ndarray)
                or predictions.shape != (count,)
                or predictions.dtype.kind != "f"
            ):
                array_form = f"{getattr(predictions, 'dtype', '')} {getattr(predictions, 'shape', '')}".strip()
                raise Breach(f"for {count} rows, it returns {type(predictions).__name__} {array_form}".rstrip())


@rule("replace NaN in features, clip values that may overflow, and guard against division by 0", BASIC_RULES)
def check_finite(subject: CostModelSubject) -> None:
    """Its predictions are finite, including those for new rows."""
    _require_finite(subject, *make_data(100))


@rule("predict the mean score until there are enough rows to learn from", [*BASIC_RULES, "finite"])
def check_few_rows(subject: CostModelSubject) -> None:
    """It learns even from only one, two or three trials."""
    for count in (1, 2, 3):
        _require_finite(subject, *make_data(count))


@rule("predict that score; do not divide by the scores' spread, maximum or sum", [*BASIC_RULES, "finite"])
def check_constant_scores(subject: CostModelSubject) -> None:
    """It learns from trials that are all equally fast, and from those that all failed and therefore have score 0."""
    features, _ = make_data(40)
    for score in (1.0, 0.0):
        _require_finite(subject, features, np.full(40, score))


@rule("replace NaN with the mean of its column, or with 0 if the entire column is NaN", [*BASIC_RULES, "finite"])
def check_nan_features(subject: CostModelSubject) -> None:
    """It learns from features in which one column or all columns are NaN."""
    features, scores = make_data(40)
    features[:, 2] = np.nan
    _require_finite(subject, features, scores)
    _require_finite(subject, np.full((40, 3), np.nan), scores)


@rule("do not divide by a column's spread", [*BASIC_RULES, "finite"])
def check_constant_features(subject: CostModelSubject) -> None:
    """It learns from features that are all equal."""
    _require_finite(subject, np.ones((40, 3)), make_data(40)[1])


@rule("predict the mean score if features has no columns, since a space may have no knobs", [*BASIC_RULES, "finite"])
def check_no_columns(subject: CostModelSubject) -> None:
    """It learns from features without columns."""
    _require_finite(subject, np.empty((5, 0)), np.array([0.0, 0.2, 0.5, 1.0, 1.0]))


@rule("compare trials only within a group; a group may have a single row or equal scores", [*BASIC_RULES, "finite"])
def check_several_tasks(subject: CostModelSubject) -> None:
    """It learns from several tasks (groups) at once, including one with a single trial and one with only failures."""
    features, scores = make_data(61)
    scores[40:60] = 0.0
    _require_finite(subject, features, scores, np.repeat([0, 1, 2], [40, 20, 1]))


def _require_finite(subject: CostModelSubject, features: Floats, scores: Floats, groups: Ints | None = None) -> None:
    predictions = train_and_predict(subject, features, scores, groups)
    if infinite_rows := np.flatnonzero(~np.isfinite(predictions).reshape(len(predictions), -1).all(axis=1)).tolist():
        description = f"{predictions[infinite_rows[0]]} in {len(infinite_rows)} of {len(predictions)} rows"
        raise Breach(f"trained on features of shape {features.shape}, it predicts {description}")


@rule("pass the seed to everything random, and use a single thread where the summation order matters", BASIC_RULES)
def check_same_seed(subject: CostModelSubject) -> None:
    """The same data and seed give the same predictions."""
    subject.require_same(subject.results, subject.compute_with_seeded_streams(), "with the same seed")


@rule("copy arrays before changing them: use np.nan_to_num(features) without copy=False", BASIC_RULES)
def check_leaves_its_input(subject: CostModelSubject) -> None:
    """It does not modify its arguments."""
    features, scores = make_data(100)
    groups = make_single_group(features)
    copies_by_name = {"features": features.copy(), "scores": scores.copy(), "groups": groups.copy()}
    with seed_global_streams(0):
        cost_model = subject.instantiate_model()
        cost_model.fit(features, scores, groups)
        cost_model.predict(features)
    for name, array in (("features", features), ("scores", scores), ("groups", groups)):
        if not np.array_equal(array, copies_by_name[name], equal_nan=True):
            raise Breach(f"it modified {name}")


@rule("draw from your own generator: np.random.default_rng(seed)", [*BASIC_RULES, "same-seed"])
def check_global_random_state(subject: CostModelSubject) -> None:
    """It neither draws from nor seeds the global random streams of Python and NumPy."""
    subject.require_private_randomness()


@rule("reset the model in fit", [*BASIC_RULES, "same-seed", "global-random-state"])
def check_forgets(subject: CostModelSubject) -> None:
    """fit discards the data of earlier fits."""
    features, scores = make_data(100)
    with seed_global_streams(0):
        trained_once, trained_twice = subject.instantiate_model(), subject.instantiate_model()
        trained_twice.fit(*make_data(30, seed=1), np.zeros(30, dtype=np.int64))
        for cost_model in (trained_once, trained_twice):
            cost_model.fit(features, scores, make_single_group(features))
        _require_same(trained_once.predict(features), trained_twice.predict(features), "after training on other data")


@rule("predict each row independently: do not use statistics of the other rows", [*BASIC_RULES, "shape", "same-seed"])
def check_a_row_alone(subject: CostModelSubject) -> None:
    """The prediction for a row does not depend on the other rows."""
    with seed_global_streams(0):
        cost_model, features = subject.train()
        predictions = cost_model.predict(features)
        _require_same(predictions[10:20], cost_model.predict(features[10:20]), "for ten rows alone", 1e-6)
        _require_same(predictions[::-1], cost_model.predict(features[::-1]), "for rows in reverse order", 1e-6)


@rule("return from dump all that fit has learned, and set it in restore; or define neither", SEEDED_RULES)
def check_restores(subject: CostModelSubject) -> None:
    """A model restored from the files of a trained model predicts the same."""
    cost_model, features = subject.train()
    if files := cost_model.dump():
        restored_model = subject.instantiate_model()
        restored_model.restore(files)
        _require_same(cost_model.predict(features), restored_model.predict(features), "after dump and restore")


@rule("use one thread, or sums that do not depend on the number of threads; do not iterate over sets", SEEDED_RULES)
def check_every_process(subject: CostModelSubject) -> None:
    """Its predictions are the same in every process and with any number of threads."""
    subject.require_same_in_every_process()


def _require_same(expected_scores: Floats, actual_scores: Floats, condition: str, tolerance: float = 0.0) -> None:
    """Raise Breach if predictions differ by more than ``tolerance``."""
    differences = np.abs(expected_scores - actual_scores).reshape(len(expected_scores), -1).max(axis=1, initial=0.0)
    if (differences > tolerance).any():
        row = int(np.argmax(differences))
        raise Breach(f"{condition}, it predicts {actual_scores[row]} instead of {expected_scores[row]} for row {row}")


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
    COST_MODELS.check_options(resolved, cls)
    subject = CostModelSubject(resolved, cls, seed, TIME_LIMIT)
    return [Check(rule, subject) for rule in RULES]
