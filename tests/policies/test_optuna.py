"""Optuna's samplers as policies: how configs become parameters, and what each sampler finds."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.conformance import toys
from searchlab.errors import InvalidConfig, SearchlabError
from searchlab.policy import Policy
from searchlab.records import Measurement
from searchlab.space import Config, Knob, Space, Value
from searchlab_policies.optuna.adapter import OptunaPolicy
from searchlab_policies.optuna.cmaes import CmaEs
from searchlab_policies.optuna.gp import Gp
from searchlab_policies.optuna.parameters import Parameters, Part, choose_nearest, split_knob
from searchlab_policies.optuna.tpe import Tpe
from searchlab_policies.qmc import Qmc
from searchlab_policies.random import Random
from searchlab_spaces.templates.knobs import ReorderKnob
from tests.support.spaces.products import ORDERS

# --- parameters -------------------------------------------------------------------------------------


def choose_from(values: dict[str, Value]) -> Callable[[Part], Value]:
    return lambda part: values[part.name]


def test_a_tile_is_a_parameter_for_each_factor_that_is_open() -> None:
    parts = split_knob(Knob("t", toys.list_tiles(8, 3)))
    assert [(part.name, list(part.values)) for part in parts] == [("t[2]", [1, 2, 4, 8]), ("t[1]", [1, 2, 4, 8])]
    assert [part.name for part in split_knob(Knob("t", [(1, 2), (2, 2), (1, 3)]))] == ["t[1]", "t[0]"]
    assert [part.position for part in split_knob(Knob("t", [(4, 1), "none", (2, 2)]))] == [None], (
        "of mixed kinds, one whole"
    )
    assert split_knob(Knob("t", ["only"])) == []


def test_an_order_of_loops_is_one_category() -> None:
    knob = ReorderKnob("order", ORDERS, "all")
    (part,) = split_knob(knob)
    assert part.position is None and list(part.values) == list(ORDERS)
    assert isinstance(part.distribution, optuna.distributions.CategoricalDistribution)
    assert choose_nearest(knob, [part], choose_from({"order": (2, 0, 1)})) == (2, 0, 1)


@pytest.mark.parametrize(
    ("inner", "middle", "tile"),
    [(2, 2, (2, 2, 2)), (8, 1, (1, 1, 8)), (8, 8, (1, 1, 8)), (4, 8, (1, 2, 4)), (1, 8, (1, 8, 1))],
)
def test_an_impossible_factor_becomes_the_nearest_possible(inner: int, middle: int, tile: tuple[int, ...]) -> None:
    knob = Knob("t", toys.list_tiles(8, 3))
    assert choose_nearest(knob, split_knob(knob), choose_from({"t[2]": inner, "t[1]": middle})) == tile


def test_numbers_are_indices_and_words_are_categories() -> None:
    parameters = Parameters(toys.Small())
    params, distributions = parameters.encode(Config({"tile": (4, 4), "unroll": 64, "order": "jki", "pack": False}))
    assert [(name.partition(" ")[0], index) for name, index in params.items()] == [
        ("tile[1]", 2),
        ("unroll", 2),
        ("order", 2),
        ("pack", 0),
    ]
    kinds = [type(distribution).__name__.removesuffix("Distribution") for distribution in distributions.values()]
    assert kinds == ["Int", "Int", "Categorical", "Categorical"]


@pytest.mark.parametrize("space", [toys.Small(), toys.Large(), toys.Dependent(), toys.SingleChoice(), toys.NoKnobs()])
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_every_config_comes_back_from_its_parameters(space: Space, seed: int) -> None:
    parameters = Parameters(space)
    config = space.sample(np.random.default_rng(seed))
    params, _ = parameters.encode(config)
    assert parameters.decode(lambda part: part.values[params[part.parameter]]) == config


@pytest.mark.parametrize("space", [toys.Small(), toys.Dependent()])
def test_every_suggestion_is_a_config_and_vice_versa(space: Space) -> None:
    rng = np.random.default_rng(0)

    def anything(part: Part) -> Value:
        return part.values[int(rng.integers(len(part.values)))]

    configs = {Parameters(space).decode(anything) for _ in range(5000)}
    assert configs == set(space.enumerate())


def test_a_config_that_is_no_member_has_no_parameters() -> None:
    with pytest.raises(InvalidConfig, match="'unroll' cannot be 7"):
        Parameters(toys.Small()).encode(Config({"tile": (4, 4), "unroll": 7, "order": "jki", "pack": False}))


def test_what_all_configs_share() -> None:
    assert len(Parameters(toys.Large()).shared_parameters) == 3 + 3 + 1 + 1 + 2
    shared = Parameters(toys.Dependent()).shared_parameters
    assert sorted(name.partition(" ")[0] for name in shared) == ["parallel", "sketch"]


# --- what each is for -------------------------------------------------------------------------------


def best(kind: type[Policy], seed: int, trials: int = 96, **options: Any) -> float:
    return min(
        trial.cost for trial in toys.run_policy(kind(toys.Large(), seed=seed, **options), toys.simulate_smooth, trials)
    )


@pytest.mark.parametrize(("kind", "seeds", "factor"), [(Tpe, 6, 0.85), (CmaEs, 6, 0.85), (Qmc, 24, 1.0)])
def test_beats_random_search_or_is_no_worse(kind: type[Policy], seeds: int, factor: float) -> None:
    bests = [best(kind, seed) for seed in range(seeds)]
    assert np.median(bests) < factor * np.median([best(Random, seed) for seed in range(seeds)])


def test_a_gaussian_process_beats_random_search() -> None:
    pytest.importorskip("torch")
    bests = [best(Gp, seed, 48, candidates=128, local_searches=2) for seed in range(3)]
    assert np.median(bests) < 0.85 * np.median([best(Random, seed, 48) for seed in range(12)])


@pytest.mark.parametrize("kind", [Tpe, CmaEs, Gp])
def test_a_batch_is_not_copies_of_one_config(kind: type[OptunaPolicy]) -> None:
    if kind is Gp:
        pytest.importorskip("torch")
    policy = kind(toys.Large(), seed=0)
    policy.tell(toys.run_policy(Random(toys.Large(), seed=1), toys.simulate_smooth, 32))
    batch = [tuple(policy.parameters.encode(config)[0].values()) for config in policy.ask(8)]
    distances = [
        sum(a != b for a, b in zip(proposal, two, strict=True))
        for proposal in batch
        for two in batch
        if proposal is not two
    ]
    assert np.mean(distances) > 2


@pytest.mark.parametrize("kind", [Tpe, Gp])
def test_learns_which_configs_fail(kind: type[OptunaPolicy]) -> None:
    """Half of the space fails because of one word: after 24 trials, far fewer proposals fail."""
    if kind is Gp:
        pytest.importorskip("torch")

    def cost(config: Config) -> Measurement:
        return toys.simulate_smooth(config) if config["pack"] else toys.failed_measurement("build_error", "made up")

    options: dict[str, Any] = {"candidates": 64, "local_searches": 2} if kind is Gp else {}
    runs = [toys.run_policy(kind(toys.Large(), seed=seed, **options), cost, 48) for seed in (1, 2)]
    failed = np.array([[np.isinf(trial.cost) for trial in trials] for trials in runs])
    assert failed[:, :16].mean() > 0.2
    assert failed[:, 24:].mean() < 0.3


def test_generations_move_the_distribution() -> None:
    """The mean ends nearer to where the trials are fast than where it began, the middle."""
    policy = CmaEs(toys.Large(), seed=0)
    first = policy.ask(32)
    policy.tell(toys.simulate_trials(first, toys.simulate_smooth))
    toys.run_policy(policy, toys.simulate_smooth, 96)
    last_batch = policy.ask(32)
    assert np.median([toys.simulate_smooth(c).cost for c in last_batch]) < 0.8 * np.median(
        [toys.simulate_smooth(c).cost for c in first]
    )


def test_a_sequence_covers_each_knob_evenly() -> None:
    """Of 64 points of a Sobol sequence, each of 4 choices gets 16, give or take what is passed over."""
    policy = Qmc(toys.Large(), seed=3)
    configs = [config for _ in range(8) for config in policy.ask(8)]
    counts = [sum(config["unroll"] == value for config in configs) for value in (0, 16, 64, 512)]
    assert counts == [16] * 4


# --- trials of another log --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Tpe, CmaEs, Qmc, Gp])
@pytest.mark.parametrize("space", [toys.Large(), toys.Dependent()])
def test_trials_of_another_space_change_nothing(kind: type[Policy], space: Space) -> None:
    """But where random numbers come from: so 16 of them, which are no members, are told between those that are."""
    if kind is Gp:
        pytest.importorskip("torch")
    foreign = toys.run_policy(Random(toys.Small(), seed=1), toys.simulate_flaky, 16)
    earlier_trials = toys.run_policy(Random(space, seed=1), toys.simulate_flaky, 24)
    policy = kind(space, seed=0)
    policy.tell(foreign + earlier_trials)
    configs = list(policy.ask(8))
    assert len(configs) == 8 and all(config in space for config in configs)
    if isinstance(policy, OptunaPolicy):
        without_foreign = kind(space, seed=0)
        assert isinstance(without_foreign, OptunaPolicy)
        without_foreign.tell(earlier_trials)
        assert [t.params for t in without_foreign.trials_to_model()] == [t.params for t in policy.trials_to_model()]


def test_the_best_and_the_latest_are_remembered() -> None:
    policy = Tpe(toys.Large(), seed=0, memory=16)
    earlier_trials = toys.run_policy(Random(toys.Large(), seed=1), toys.simulate_smooth, 100)
    policy.tell(earlier_trials)
    log_costs = [np.log(trial.cost) for trial in policy.trials_to_model()]
    costs = [np.log(trial.cost) for trial in earlier_trials]
    assert len(log_costs) == 16
    assert set(np.sort(costs)[:4]) <= set(log_costs)
    assert log_costs[-1] == costs[-1] or costs[-1] == np.inf


# --- manners ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Tpe, CmaEs, Qmc])
@pytest.mark.filterwarnings("error")
def test_optuna_is_as_talkative_as_before(kind: type[Policy], caplog: pytest.LogCaptureFixture) -> None:
    level = optuna.logging.get_verbosity()
    optuna.logging.enable_propagation()
    try:
        with caplog.at_level(logging.DEBUG):
            toys.run_policy(kind(toys.Small(), seed=0), toys.simulate_flaky, 24)
    finally:
        optuna.logging.disable_propagation()
    assert optuna.logging.get_verbosity() == level
    assert not [record for record in caplog.records if record.name.startswith("optuna")]


def test_what_the_gaussian_process_needs_is_named() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from searchlab.errors import SearchlabError\n"
        "from searchlab_policies.optuna.gp import Gp\n"
        "from searchlab.conformance import toys\n"
        "try: Gp(toys.Small(), seed=0)\n"
        "except SearchlabError as error: print(error)\n"
    )
    output = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True).stdout
    assert "the policy 'gp' requires the extra 'gp'" in output and "pip install '.[gp]'" in output


def test_optuna_has_the_settings_that_it_does_not_take() -> None:
    pytest.importorskip("torch")
    sampler = Gp(toys.Small(), seed=0, candidates=3, local_searches=2).make_sampler(0)
    assert vars(sampler).keys() - vars(optuna.samplers.GPSampler()).keys() == {"_parameters"}


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        (Tpe, {"n_startup": 0}, "option 'n_startup' is 0"),
        (Tpe, {"memory": 3}, "option 'memory' is 3; it must be a whole number of at least 4"),
        (CmaEs, {"population": 1}, "option 'population' is 1"),
        (CmaEs, {"sigma": 0}, "option 'sigma' is 0"),
        (Gp, {"local_searches": 1}, "option 'local_searches' is 1"),
    ],
)
def test_bad_options_are_named(kind: Callable[..., Policy], options: dict[str, Any], text: str) -> None:
    if kind is Gp:
        pytest.importorskip("torch")
    with pytest.raises(SearchlabError, match=text):
        kind(toys.Small(), seed=0, **options)
