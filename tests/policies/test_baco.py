"""BaCO, and its Gaussian process: held against scikit-learn's, and what the policy does with failures and types."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

from searchlab.arrays import Floats
from searchlab.conformance import toys
from searchlab.records import Measurement
from searchlab.space import Config, Knob, ProductSpace
from searchlab_policies.acquisition import expected_improvement
from searchlab_policies.baco import Baco, FeasibleImprovement
from searchlab_policies.gaussian_process import (
    Encoding,
    GaussianProcess,
    Prior,
    compute_squared_distances,
    gamma_prior,
    lognormal_prior,
    select_trials_to_model,
)
from searchlab_policies.model_guided import SuccessClassifier
from searchlab_policies.random import Random

KNOBS = np.arange(3)


def observe(n: int = 24, seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    rows = rng.random((n, 3))
    return rows, np.sin(6 * rows[:, 0]) + rows[:, 1] ** 2 + 0.01 * rng.standard_normal(n)


def reference(process: GaussianProcess, rows: Floats, values: Floats) -> GaussianProcessRegressor:
    """scikit-learn's process with the same hyperparameters, in units of our signal variance."""
    kernel = Matern(length_scale=process.lengths, nu=2.5) + WhiteKernel(process.noise)
    return GaussianProcessRegressor(kernel, optimizer=None).fit(rows, values - process.mean)


def test_it_predicts_what_scikit_learns_does() -> None:
    rows, values = observe()
    process = GaussianProcess(rows, values, KNOBS)
    new = np.random.default_rng(1).random((50, 3))
    for _ in range(2):
        mean, deviation = process.predict(new)
        expected_mean, expected_deviation = reference(process, process.rows, process.values).predict(
            new, return_std=True
        )
        assert np.allclose(mean, expected_mean + process.mean, atol=1e-6)
        without_noise = np.sqrt(process.variance * (expected_deviation**2 - process.noise))
        assert np.allclose(deviation, without_noise, atol=1e-4)
        process.believe(new[7], 0.5)  # as if it had been trained on it with the same hyperparameters


@pytest.mark.parametrize("prior", [gamma_prior, lognormal_prior])
def test_its_loss_has_the_gradient_it_returns_and_is_minimised(prior: Prior) -> None:
    rows, values = observe()
    process = GaussianProcess(rows, values, KNOBS, prior)
    process._distances = np.stack([compute_squared_distances(rows[:, [k]], rows[:, [k]]) for k in KNOBS], axis=-1)
    fitted = np.log([*process.lengths, process.noise])
    for parameters in (fitted, np.log([0.3, 2.0, 1.0, 0.05])):
        error = check_grad(
            lambda p: process._compute_loss(p)[0], lambda p: process._compute_loss(p)[1], parameters, epsilon=1e-6
        )
        assert error < 1e-3
        assert process._compute_loss(fitted)[0] <= process._compute_loss(parameters)[0]
    assert process.lengths[2] > 3 * process.lengths[0], "the values do not depend on the third knob"


def test_equal_values_do_not_matter() -> None:
    process = GaussianProcess(observe()[0], np.ones(24), KNOBS)
    mean, deviation = process.predict(np.random.default_rng(1).random((5, 3)))
    assert np.allclose(mean, 1.0)
    assert np.isfinite(deviation).all()


def test_expected_improvement_is_the_mean_over_draws() -> None:
    draws = norm(1.0, 0.5).rvs(400_000, random_state=0)
    expected = np.maximum(0.8 - draws, 0).mean()
    assert expected_improvement(np.array([1.0]), np.array([0.5]), 0.8)[0] == pytest.approx(expected, rel=0.02)


class Permutations(Knob):
    kind = "word"


class Typed(toys.Small):
    """A knob of each type."""

    def __init__(self) -> None:
        knobs = [
            Knob("number", (1, 2, 4, 8, 16)),
            Knob("signed", (-1, 0, 3)),
            Knob("tile", [(16, 1), (8, 2), (4, 4), (1, 16)]),
            Permutations("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 0, 2)]),
            Knob("word", ("a", "b", "c")),
            Knob("mixed", ("auto", 4)),
        ]
        ProductSpace.__init__(self, toys.WORKLOAD, toys.TARGET, knobs)


def test_distances_suit_the_types_of_knobs() -> None:
    space = Typed()
    encoding = Encoding(space)
    base = {"number": 1, "signed": -1, "tile": (16, 1), "order": (0, 1, 2), "word": "a", "mixed": "auto"}

    def distance(**changed: object) -> float:
        a, b = encoding([Config(base), Config({**base, **changed})])
        return float(np.linalg.norm(a - b))

    assert distance(number=16) == pytest.approx(2 * distance(number=4)) == pytest.approx(4 * distance(number=2))
    assert distance(signed=3) == pytest.approx(4 * distance(signed=0)), "linear, because one is negative"
    assert distance(tile=(4, 4)) == pytest.approx(2 * distance(tile=(8, 2)))
    assert distance(tile=(1, 16)) == pytest.approx(4 * distance(tile=(8, 2)))
    assert distance(order=(2, 1, 0)) == pytest.approx(2 * distance(order=(0, 2, 1))), "Spearman: squares 8 and 2"
    assert distance(word="b") == distance(word="c") == distance(mixed=4) == pytest.approx(1.0)
    assert max(distance(number=16), distance(tile=(1, 16)), distance(order=(2, 1, 0))) <= 1 + 1e-9


def test_a_knob_that_one_config_lacks_is_far_away() -> None:
    space = toys.Dependent()
    encoding = Encoding(space)
    plain = Config({"sketch": "plain", "parallel": False})
    tiled = next(c for c in space.enumerate() if c["sketch"] == "tiled" and not c["parallel"])
    assert float(np.sum(np.diff(encoding([plain, tiled]), axis=0) ** 2)) >= 1 + 2  # the sketch, its tile and its vector


def test_it_beats_random_search() -> None:
    bests = [
        min(t.cost for t in toys.run_policy(Baco(toys.Large(), seed=s, points=300), toys.simulate_smooth, 48))
        for s in range(2)
    ]
    chance = [
        min(t.cost for t in toys.run_policy(Random(toys.Large(), seed=s), toys.simulate_smooth, 48)) for s in range(2)
    ]
    assert np.mean(bests) < 0.8 * np.mean(chance)


def test_it_learns_which_configs_fail() -> None:
    def cost(config: Config) -> Measurement:
        return toys.simulate_smooth(config) if config["pack"] else toys.failed_measurement("build_error", "made up")

    trials = toys.run_policy(Baco(toys.Large(), seed=0, points=200), cost, 64)
    failures = [math.isinf(trial.cost) for trial in trials]
    assert np.mean(failures[16:]) < 0.5 * np.mean(failures[:16])


def test_an_acquisition_below_the_threshold_is_worth_nothing() -> None:
    space = toys.Large()
    trials = toys.simulate_trials(space.sample_new(np.random.default_rng(0), 60, ()), toys.simulate_flaky)
    works = SuccessClassifier(space, 0)
    works.fit(trials)
    acquisition = FeasibleImprovement([t for t in trials if math.isfinite(t.cost)], Encoding(space), works)
    new = space.sample_new(np.random.default_rng(1), 100, ())
    probabilities = works.predict_probabilities(new)
    values = acquisition(new)
    assert (values > 0).all()
    acquisition.threshold = float(np.median(probabilities))
    assert ((acquisition(new) > 0) == (probabilities >= acquisition.threshold)).all()
    best = new[int(np.argmax(values))]
    acquisition.believe(best)
    assert acquisition([best])[0] < 0.5 * values.max(), "what is believed is not worth a second trial"


def test_the_probability_of_success_is_scikit_learns() -> None:
    """It is computed tree by tree, without scikit-learn's checks."""
    space, rng = toys.Dependent(), np.random.default_rng(0)
    works = SuccessClassifier(space, 0)
    works.fit(toys.simulate_trials(space.sample_new(rng, 80, ()), toys.simulate_flaky))
    configs = [space.sample(rng) for _ in range(100)]
    assert works._trees is not None
    expected = works._trees.predict_proba(np.array([space.features(config) for config in configs]))[:, 1]
    np.testing.assert_array_equal(works.predict_probabilities(configs), expected)


def test_predictions_are_limited() -> None:
    policy = Baco(toys.Large(), seed=0, predictions=100)
    assert policy.effective == {"points": 50}
    toys.run_policy(policy, toys.simulate_smooth, 24)
    assert len(policy.ask(8)) == 8


def test_many_trials_are_thinned_to_the_fastest_and_the_latest() -> None:
    trials = toys.simulate_trials(toys.Large().sample_new(np.random.default_rng(0), 40, ()), toys.simulate_smooth)
    ranked = sorted((t for t in trials if math.isfinite(t.cost)), key=lambda t: t.cost)
    selected = select_trials_to_model(ranked, 10)
    assert selected[:5] == ranked[:5]
    assert [t.index for t in selected[5:]] == sorted(t.index for t in ranked[5:])[-5:]
