"""A model of other tasks leads at first; the model of a task's own trials takes over."""

from __future__ import annotations

import numpy as np
import pytest

from searchlab.arrays import Floats
from searchlab_costmodels.pretrained import Pretrained
from searchlab_costmodels.xgboost import XGBoost

RNG = np.random.default_rng(0)
OTHER_TASKS, OWN_TASK, UNSEEN = RNG.random((300, 3)), RNG.random((128, 3)), RNG.random((200, 3))
GROUPS = np.zeros(128, np.int64)


def pretrain(prior: float = 32.0) -> Pretrained:
    """Other tasks are fast where the first feature is large."""
    model = Pretrained(seed=0, prior=prior)
    assert model.start_from(OTHER_TASKS, OTHER_TASKS[:, 0], np.repeat([0, 1], 150))
    return model


def fit(model: Pretrained, n: int) -> Pretrained:
    """Its own task is fast where the second feature is large."""
    model.fit(OWN_TASK[:n], OWN_TASK[:n, 1], GROUPS[:n])
    return model


def agreement(model: Pretrained, features: Floats = UNSEEN) -> tuple[float, float]:
    """The correlation of predictions with the first and the second feature."""
    predicted = model.predict(features)
    return tuple(float(np.corrcoef(predicted, UNSEEN[:, column])[0, 1]) for column in (0, 1))  # type: ignore[return-value]


def test_other_tasks_lose_weight_with_every_trial() -> None:
    first, second = agreement(pretrain())
    assert first > 0.9 and abs(second) < 0.3
    weights, firsts, seconds = [], [], []
    for n in (8, 32, 128):
        model = fit(pretrain(), n)
        weights.append(model.weight)
        first, second = agreement(model)
        firsts.append(first)
        seconds.append(second)
    assert weights == [0.8, 0.5, 0.2]
    assert firsts == sorted(firsts, reverse=True) and seconds == sorted(seconds)
    assert seconds[-1] > 0.9


@pytest.mark.parametrize("model", [Pretrained(seed=0), pretrain(prior=0.0)])
def test_without_other_tasks_or_weight_it_is_the_ranking_model(model: Pretrained) -> None:
    ranking = XGBoost(seed=0, objective="rank")
    ranking.fit(OWN_TASK, OWN_TASK[:, 1], GROUPS)
    np.testing.assert_array_equal(fit(model, 128).predict(UNSEEN), ranking.predict(UNSEEN))


def test_columns_that_other_tasks_lack_are_for_its_own_model() -> None:
    model = pretrain()
    wide = np.column_stack([OWN_TASK, 1 - OWN_TASK[:, 1]])
    model.fit(wide, wide[:, 3], GROUPS)
    first, second = agreement(model, np.column_stack([UNSEEN, 1 - UNSEEN[:, 1]]))
    assert first > 0 and second < -0.9


def test_stores_of_programs_are_ranked_by_their_sum() -> None:
    """Programs have two stores of two columns each, and their scores add up."""
    rows = RNG.random((200, 4))
    scores = (rows[:, 0] + rows[:, 2]) / 2
    model = Pretrained(seed=0)
    model.columns_per_store = 2
    model.start_from(rows[:100], scores[:100], np.zeros(100, np.int64))
    model.fit(rows[:16, :2], rows[:16, 0], np.zeros(16, np.int64))  # programs with one store
    assert np.corrcoef(model.predict(rows[100:]), scores[100:])[0, 1] > 0.8
