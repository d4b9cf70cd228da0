"""AutoTVM's cost model: where its training ends, and what it takes over from other tasks."""

from __future__ import annotations

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel
from searchlab.costmodel.bound import OtherTask, compute_scores
from searchlab.costmodel.features import make_features
from searchlab.errors import SearchlabError
from searchlab.space import Knob, ProductSpace
from searchlab_costmodels.autotvm import AutoTVM

RNG = np.random.default_rng(0)
GROUP = np.zeros(600, dtype=np.int64)


def rows(n: int, slope: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    features = RNG.random((n, 3))
    return features, np.clip(features[:, 0] * slope, 0, 1)


@pytest.mark.parametrize("loss", ["reg", "rank", "rank-binary"])
def test_it_ranks_what_it_learned(loss: str) -> None:
    features, scores = rows(200)
    model = AutoTVM(seed=0, loss=loss)
    model.fit(features, scores, GROUP[:200])
    unseen, truth = rows(200)
    assert np.corrcoef(model.predict(unseen), truth)[0, 1] > 0.8


def test_a_base_model_loses_weight_and_is_dropped() -> None:
    model = AutoTVM(seed=0, transfer="base-margin", plan_size=8)
    assert model.start_from(*rows(600), GROUP)
    unseen, truth = rows(100)
    base = model.predict(unseen)
    assert np.corrcoef(base, truth)[0, 1] > 0.9, "before any trial of its own"
    features = RNG.random((64, 3))
    model.fit(features, np.full(64, 0.5), GROUP[:64])
    assert model._discount == 0.5
    assert model._predict_base_margin(unseen) == pytest.approx(base)
    assert np.corrcoef(model.predict(unseen), truth)[0, 1] < 0.9, "its own trials say that all is the same"
    model.fit(RNG.random((277, 3)), np.full(277, 0.5), GROUP[:277])
    assert model._base_model is None, "2^(-277 / 64) is below 0.05"


def test_pooling_is_the_default_and_too_few_trials_are_refused() -> None:
    assert not AutoTVM(seed=0).start_from(*rows(600), GROUP)
    with pytest.raises(SearchlabError, match="at least 500 trials of other tasks, as in AutoTVM, but only 499"):
        AutoTVM(seed=0, transfer="base-margin").start_from(*rows(499), GROUP[:499])


class Wide(toys.Small):
    """600 configs and more, so that a base model has enough."""

    def __init__(self) -> None:
        ProductSpace.__init__(self, toys.WORKLOAD, toys.TARGET, [Knob(name, tuple(range(9))) for name in "abc"])


def test_a_bound_cost_model_starts_from_other_tasks_once() -> None:
    space = Wide()
    trials = toys.simulate_trials(list(space.enumerate()), toys.simulate_smooth)
    bound = BoundCostModel(AutoTVM(seed=0, transfer="base-margin"), make_features("knob", space))
    bound.pretrain([OtherTask(space, [trial.config for trial in trials], compute_scores(trials))])
    assert bound.fitted and bound.started
    first = bound.predict([trial.config for trial in trials])
    assert np.corrcoef(first, compute_scores(trials))[0, 1] > 0.8
    bound.fit(trials[:16])
    assert bound.rows is not None and len(bound.rows.scores) == 16, "the others are no rows of this training"
    assert np.corrcoef(bound.predict([trial.config for trial in trials]), compute_scores(trials))[0, 1] > 0.7
