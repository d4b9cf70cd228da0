"""The bandit: credits by the formula, arms chosen by their credits, and all of them told of everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.conformance import toys
from searchlab.costmodel.features import ProgramFeatures
from searchlab.errors import SearchlabError
from searchlab.policy import NeverTwice
from searchlab.records import Measurement, Trial
from searchlab.space import Config, ProductSpace
from searchlab_costmodels.random import Random as RandomModel
from searchlab_policies.bandit import Bandit
from searchlab_policies.droplet import Droplet
from searchlab_policies.evolutionary import Evolutionary
from searchlab_policies.random import Random
from searchlab_policies.xgb import Xgb

HERE = "tests.policies.test_bandit"


def index_of(config: Config) -> int:
    return cast(ProductSpace, toys.Small()).index_of(config)


class Packed(NeverTwice):
    """Proposes the packed configs of the small toy in order."""

    pack = True

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        for config in self.space.enumerate():
            if config["pack"] == self.pack and config not in self.seen:
                yield config


class Unpacked(Packed):
    """Proposes the others."""

    pack = False


def bandit(*arms: Any, **options: Any) -> Bandit:
    return Bandit(toys.Small(), seed=options.pop("seed", 0), arms=list(arms), **options)


def packed_improves(config: Config) -> Measurement:
    """Every packed config is better than those before it, and no other is as good as any."""
    return toys.successful_measurement(1e-3 / (1 + index_of(config)) if config["pack"] else 1.0)


def shares(trials: Sequence[Trial]) -> float:
    """How many of the trials are of packed configs, from 0 to 1."""
    return float(np.mean([bool(trial.config["pack"]) for trial in trials]))


# --- credit -----------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=40))
def test_credit_is_the_area_under_the_curve(history: list[tuple[int, bool]]) -> None:
    policy = bandit("random", "random", "random")
    policy.history.extend(history)
    for arm in range(3):
        curve, best = [0], [0]  # drawn from the newest result back, the second if all had been new bests
        for which, improved in reversed(history):
            if which == arm:
                curve.append(curve[-1] + improved)
                best.append(best[-1] + 1)
        # A new best raises the curve at its own place and at all the older ones.
        assert policy.credit_arm(arm) == pytest.approx(sum(curve) / sum(best) if sum(best) else 0.0)


def test_credit_by_hand() -> None:
    policy = bandit("random", "random")
    policy.history.extend([(0, True), (1, False), (0, False), (1, True), (0, True)])
    assert policy.credit_arm(0) == pytest.approx(2 / (3 * 4) * (1 + 3))
    assert policy.credit_arm(1) == pytest.approx(2 / (2 * 3) * 2)
    assert policy.score_arm(0, []) == pytest.approx(4 / 6 + 0.05 * np.sqrt(2 * np.log2(5) / 3))
    assert policy.score_arm(0, [0, 1]) == pytest.approx(4 / 6 + 0.05 * np.sqrt(2 * np.log2(7) / 4))


def test_an_arm_that_was_never_used_comes_first() -> None:
    policy = bandit("random", "random", exploration=0)
    policy.history.append((0, True))
    assert policy.choose_arm([], set(), np.random.default_rng(0)) == 1
    assert policy.choose_arm([1], set(), np.random.default_rng(0)) == 0
    assert policy.choose_arm([1], {0}, np.random.default_rng(0)) == 1


def test_only_the_window_counts() -> None:
    policy = bandit("random", "random", window=2)
    policy.history.extend([(0, True), (1, False), (1, False)])
    assert policy.credit_arm(0) == 0.0


def test_only_a_new_best_counts_for_the_arm_that_proposed_it() -> None:
    policy = bandit(f"{HERE}:Packed", f"{HERE}:Unpacked")
    trials = toys.run_policy(policy, packed_improves, 40)
    best, expected = np.inf, []
    for trial in trials:
        expected.append((0 if trial.config["pack"] else 1, trial.cost < best))
        best = min(best, trial.cost)
    assert list(policy.history) == expected


def test_trials_of_another_log_are_no_arms_but_set_the_best() -> None:
    policy = bandit(f"{HERE}:Packed", f"{HERE}:Unpacked")
    policy.tell(
        toys.simulate_trials([next(iter(toys.Small().enumerate()))], lambda config: toys.successful_measurement(1e-9))
    )
    assert not policy.history
    toys.run_policy(policy, packed_improves, 16)
    assert len(policy.history) == 16
    assert not any(improved for _, improved in policy.history)


# --- choice -----------------------------------------------------------------------------------------


def test_the_arm_that_finds_improvements_is_chosen() -> None:
    trials = toys.run_policy(bandit(f"{HERE}:Unpacked", f"{HERE}:Packed"), packed_improves, 48)
    assert shares(trials[:8]) == 0.5
    assert shares(trials[16:]) > 0.8


def test_the_choice_follows_a_change() -> None:
    """After 20 good ones the packed configs are all alike, and the others begin to get better than these."""

    def cost(config: Config) -> Measurement:
        if config["pack"]:
            return toys.successful_measurement(1e-3 / min(1 + index_of(config), 80))
        return toys.successful_measurement(1e-5 / (1 + index_of(config)) if index_of(config) >= 4 else 1.0)

    trials = toys.run_policy(bandit(f"{HERE}:Unpacked", f"{HERE}:Packed", exploration=0.2, window=24), cost, 80)
    assert shares(trials[-16:]) < 0.5


def test_exploration_shares_trials_out() -> None:
    few, many = (
        shares(toys.run_policy(bandit(f"{HERE}:Unpacked", f"{HERE}:Packed", exploration=c), packed_improves, 48))
        for c in (0.0, 10.0)
    )
    assert few > many
    assert 0.4 < many < 0.6


def test_a_batch_is_shared_out_while_nothing_is_known() -> None:
    policy = bandit("random", "evolutionary", "tpe")
    policy.ask(9)
    proposers = list(policy._arms_by_config.values())
    assert [proposers.count(arm) for arm in range(3)] == [3, 3, 3]


# --- arms -------------------------------------------------------------------------------------------


def test_every_arm_is_told_every_trial() -> None:
    policy = bandit("random", "evolutionary", {"name": "xgb", "options": {"chains": 8, "steps": 4}})
    trials = toys.run_policy(policy, toys.simulate_flaky, 40)
    for arm in policy.arms:
        assert isinstance(arm, NeverTwice)
        assert arm.trials == trials


def test_a_config_of_two_arms_counts_for_the_first() -> None:
    policy = bandit("grid", "grid")
    trials = toys.run_policy(policy, toys.simulate_flaky, 1000)
    assert len({trial.config for trial in trials}) == len(trials) == 120
    assert len(policy.history) == 120, "one was proposed by no arm"


def test_where_an_arm_has_no_more_the_others_go_on() -> None:
    class Exhausted(NeverTwice):
        def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
            yield from ()

        def ask(self, n: int) -> Sequence[Config]:
            return []

    policy = bandit("random", "random")
    policy.arms[0] = Exhausted(policy.space, seed=0)
    assert len(toys.run_policy(policy, toys.simulate_smooth, 40)) == 40
    assert {arm for arm, _ in policy.history} == {1}


def test_arms_of_the_same_name_draw_differently() -> None:
    first, second = bandit("random", "random").arms
    assert isinstance(first, Random)
    assert first.seed != second.seed


def test_an_arm_gets_its_options_and_its_own_cost_model() -> None:
    model = {"name": "xgb", "cost_model": "random", "features": "program", "options": {"chains": 3}}
    plain, xgb, second_xgb = bandit({"name": "evolutionary", "options": {"population": 5}}, model, "xgb").arms
    assert isinstance(plain, Evolutionary) and plain.population == 5
    assert isinstance(xgb, Xgb) and isinstance(second_xgb, Xgb)
    assert isinstance(xgb.cost_model.model, RandomModel) and isinstance(xgb.cost_model.features, ProgramFeatures)
    assert xgb.cost_model is not second_xgb.cost_model
    assert xgb.chains == 3


@pytest.mark.parametrize(
    ("arms", "text"),
    [
        ([], "option 'arms' is \\[\\]; it must be a list of at least one policy"),
        ("random", "option 'arms' is 'random'"),
        (["evolutionery"], "unknown policy 'evolutionery'; did you mean 'evolutionary'"),
        ([{"options": {}}], "a policy must be a name or"),
        ([7], "a policy must be a name or"),
        ([{"name": "random", "option": {}}], "'option': {}}; did you mean 'options'"),
        ([{"name": "evolutionary", "options": {"popul": 5}}], "no option 'popul'; did you mean 'population'"),
        ([{"name": "random", "cost_model": "xgboost"}], "arm 'random' does not use a cost model"),
        ([{"name": "xgb", "cost_model": "xgbost"}], "unknown cost model 'xgbost'"),
        ([{"name": "xgb", "cost_model": 3}], "a cost model must be a name"),
    ],
)
def test_bad_arms_are_named(arms: Any, text: str) -> None:
    with pytest.raises(SearchlabError, match=text):
        Bandit(toys.Small(), seed=0, arms=arms)


@pytest.mark.parametrize(("option", "value"), [("exploration", -1), ("window", 0)])
def test_bad_options_are_named(option: str, value: Any) -> None:
    with pytest.raises(SearchlabError, match=f"option '{option}' is {value}"):
        bandit("random", **{option: value})


def test_every_arm_starts_from_the_trials_of_other_runs() -> None:
    """The droplet begins at the fastest of them, as it does alone."""
    earlier_trials = toys.run_policy(Random(toys.Large(), seed=1), toys.simulate_smooth, 24)
    bandit = Bandit(toys.Large(), seed=0, arms=["droplet"])
    bandit.warm_start(earlier_trials)
    droplet = Droplet(toys.Large(), seed=0)
    droplet.warm_start(earlier_trials)
    steps = droplet.ask(8)
    assert steps and bandit.ask(8)[: len(steps)] == steps, "random configs fill the rest of a batch"
    assert bandit.trials == earlier_trials
