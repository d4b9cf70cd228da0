"""TVM's evolutionary search through ask and tell: proposals are members, and the same in every run."""

from __future__ import annotations

import inspect
import warnings
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tvm_ffi import structural_equal

from searchlab.conformance import toys
from searchlab.errors import InvalidConfig, SearchlabError, SearchlabWarning, UnsupportedSpace
from searchlab.metaschedule import TracedSpace
from searchlab.records import Measurement, Trial
from searchlab.run.study import Study
from searchlab.space import Config, Space
from searchlab.target import Target
from searchlab.workload import parse_workload
from searchlab_policies.metaschedule import MAX_FRUITLESS, MIN_UNMEASURED, MetaSchedule
from searchlab_policies.random import Random
from searchlab_spaces.guided.gemm import GuidedGemm
from searchlab_spaces.sketch import Sketch
from searchlab_spaces.trace import Trace

CPU = Target({"kind": "llvm", "num-cores": 2})
CUDA = Target({"kind": "cuda", "arch": "sm_90", "host": "llvm"})
CONV2D = "conv2d:1x9x9x16x8x3x3:p1:bias:relu"


def sketch(workload: str = "gemm:64x64x64", target: Target = CPU) -> Sketch:
    return Sketch(parse_workload(workload), target)


def trace(workload: str = "gemm:64x64x64") -> Trace:
    return Trace(parse_workload(workload), CPU)


SPACES = [
    pytest.param(sketch, id="sketch-gemm"),
    pytest.param(trace, id="trace-gemm"),
    pytest.param(lambda: sketch(CONV2D), id="sketch-conv2d"),
    pytest.param(lambda: trace(CONV2D), id="trace-conv2d"),
    pytest.param(lambda: sketch(target=CUDA), id="sketch-cuda"),
]
every_space = pytest.mark.parametrize("make_space", SPACES)


def policy(space: Space, seed: int = 0, **options: Any) -> MetaSchedule:
    return MetaSchedule(space, seed=seed, **{"population": 24, "generations": 2, "n_startup": 16, **options})


def tiles_cost(config: Config) -> Measurement:
    """Innermost factors of 8 and outer ones of 2 are best, and how far up it is unrolled matters a little."""
    error = 0.0
    for value in config.values():
        if isinstance(value, tuple):
            logs = np.log2(value)
            error += abs(logs[-1] - 3) + 0.3 * np.abs(logs[:-1] - 1).sum()
        else:
            error += 0.01 * abs(int(value) - 2)
    return toys.successful_measurement(1e-3 * (1 + error))


# --- what the spaces give -----------------------------------------------------------------------------


@every_space
def test_a_drawn_program_is_that_of_the_config_read_from_it(make_space: Any) -> None:
    space = make_space()
    assert isinstance(space, TracedSpace)
    configs = set()
    for seed in range(1, 13):
        try:
            schedule = space.draw(seed)
            config = space.config_of(schedule)
        except InvalidConfig:  # as some are on a GPU, or where TVM knows deeper compute locations than the space
            continue
        assert config in space
        assert structural_equal(schedule.mod, space.schedule(config).mod)
        assert space.config_of(space.draw(seed)) == config, "the same seed, the same program"
        configs.add(config)
    assert len(configs) > 1


@every_space
def test_a_config_is_read_back_from_its_program(make_space: Any) -> None:
    space = make_space()
    rng = np.random.default_rng(0)
    read = 0
    for config in (space.sample(rng) for _ in range(10)):
        try:
            schedule = space.schedule(config)
        except InvalidConfig:
            continue
        assert space.config_of(schedule) == space.canonical(config)
        read += 1
    assert read


def test_a_program_of_another_space_is_no_config() -> None:
    foreign = trace().draw(1)
    with pytest.raises(InvalidConfig, match="none of the sketches"):
        sketch().config_of(foreign)
    with pytest.raises(InvalidConfig):
        trace(CONV2D).config_of(foreign)


# --- the policy -------------------------------------------------------------------------------------


@every_space
def test_proposes_new_members_and_evolves_them(make_space: Any) -> None:
    space = make_space()
    trials = toys.run_policy(policy(space, population=12, generations=1, n_startup=8), tiles_cost, 16)
    assert len(trials) == min(16, space.size(16) or 16)
    assert len({trial.config for trial in trials}) == len(trials)
    assert all(trial.config in space for trial in trials)


def test_what_it_proposes_is_evolved_and_not_filled_up_at_random() -> None:
    searching = policy(sketch(), n_startup=8)
    searching.tell(toys.run_policy(Random(sketch(), seed=3), tiles_cost, 16))
    rng = np.random.default_rng(0)
    proposed = list(searching.propose(8, rng))
    assert len(set(proposed)) == 8
    assert not set(proposed) & set(searching.seen)


def test_same_seed_same_proposals_and_another_seed_others() -> None:
    first, repeated, other_seed = (
        toys.run_policy(policy(sketch(), seed, population=12), tiles_cost, 24) for seed in (5, 5, 6)
    )
    assert first == repeated
    assert first != other_seed


@pytest.mark.parametrize("where", [sketch, lambda: trace(CONV2D)])
def test_a_resumed_policy_continues_as_the_original(where: Any) -> None:
    """After ``n_startup`` trials, a policy that is told about them continues as the policy that proposed them."""
    options = {"population": 8, "generations": 1, "n_startup": 8}
    original = policy(where(), **options)
    trials = toys.run_policy(original, tiles_cost, 16)
    resumed = policy(where(), **options)
    resumed.tell(trials[:6])
    resumed.tell(trials[6:])
    for _ in range(2):
        configs = list(original.ask(8))
        assert list(resumed.ask(8)) == configs
        for each in (original, resumed):
            each.tell(toys.simulate_trials(configs, tiles_cost, 16))


def test_it_finds_faster_programs_than_random_search() -> None:
    def best(trials: list[Trial]) -> float:
        return min(trial.cost for trial in trials)

    bests = [best(toys.run_policy(policy(sketch(), seed, population=24), tiles_cost, 48, 16)) for seed in (0, 1)]
    by_chance = [best(toys.run_policy(Random(sketch(), seed=seed), tiles_cost, 48)) for seed in range(8)]
    assert np.median(bests) < np.median(by_chance)


def test_measured_programs_are_proposed_once_in_any_encoding() -> None:
    """Two configs whose compute locations are equal to TVM are one program."""
    space = sketch(CONV2D)
    rng = np.random.default_rng(1)
    sampled = (space.sample(rng) for _ in range(200))
    equivalent = list(islice((config for config in sampled if space.canonical(config) != config), 8))
    assert equivalent
    searching = policy(space, n_startup=8)
    searching.tell(toys.simulate_trials(equivalent, tiles_cost))
    assert not {space.canonical(config) for config in equivalent} & set(searching.propose(16, rng))


def test_trials_without_a_program_are_ignored() -> None:
    searching = policy(sketch(), n_startup=1)
    stray = [Config({"no such knob": 1}), Config({"sketch": 99})]
    searching.tell(toys.simulate_trials(stray, lambda _: toys.successful_measurement(1e-9)))
    assert len(searching.ask(4)) == 4


def test_a_run_without_a_success_continues() -> None:
    assert len(toys.run_policy(policy(sketch()), toys.simulate_invalid, 24)) == 24


def test_a_small_space_is_proposed_wholly() -> None:
    space = sketch("gemm:1x1x2")
    trials = toys.run_policy(policy(space), tiles_cost, 1000)
    assert {trial.config for trial in trials} == set(space.enumerate())


@pytest.mark.parametrize("space", [toys.Small(), GuidedGemm(parse_workload("gemm:64x64x64"), CPU)])
def test_a_space_without_traces_is_refused(space: Space) -> None:
    with pytest.raises(UnsupportedSpace, match=f"cannot search {type(space).__name__}: .*evolutionary-model"):
        policy(space)


def test_a_study_leaves_out_the_spaces_that_it_cannot_search() -> None:
    spec = {
        "workloads": ["gemm:64x64x64"],
        "spaces": ["sketch", "guided-gemm"],
        "policies": ["random", "metaschedule"],
        "seeds": 2,
    }
    runs, left_out = Study.from_dict(spec).plan()
    assert sorted({str(run.log_path.parent) for run in runs}) == [
        "gemm_64x64x64/guided-gemm/random",
        "gemm_64x64x64/sketch/metaschedule",
        "gemm_64x64x64/sketch/random",
    ]
    assert len(left_out) == 1 and left_out[0].startswith("gemm_64x64x64/guided-gemm/metaschedule is not searched: ")
    with pytest.raises(SearchlabError, match="no policy in the study can search any of its spaces"):
        Study.from_dict({**spec, "spaces": ["guided-gemm"], "policies": ["metaschedule"]}).plan()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("population", 0),
        ("generations", -1),
        ("measured_ratio", 1.5),
        ("mutation_prob", -1),
        ("retries", -1),
        ("epsilon", 2),
        ("n_startup", 0),
    ],
)
def test_bad_options_are_named(option: str, value: Any) -> None:
    with pytest.raises(SearchlabError, match=f"option '{option}' is {value}"):
        policy(cast(Space, sketch()), **{option: value})


def test_its_numbers_are_tvms() -> None:
    """The defaults are those of the installed TVM's search strategy and cost model."""
    from tvm.s_tir.meta_schedule.cost_model import XGBModel
    from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig
    from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch

    def defaults(callable: Any) -> dict[str, Any]:
        return {name: parameter.default for name, parameter in inspect.signature(callable).parameters.items()}

    tvm_defaults, own_defaults = defaults(EvolutionarySearch), defaults(MetaSchedule)
    names = {
        "population_size": "population",
        "genetic_num_iters": "generations",
        "init_measured_ratio": "measured_ratio",
        "genetic_mutate_prob": "mutation_prob",
        "genetic_max_fail_count": "retries",
        "eps_greedy": "epsilon",
    }
    assert {name: tvm_defaults[name] for name in names} == {
        name: own_defaults[own_name] for name, own_name in names.items()
    }
    assert (
        own_defaults["population"] == 512
        and own_defaults["n_startup"] == defaults(XGBModel)["num_warmup_samples"] == 100
    )
    assert tvm_defaults["init_min_unmeasured"] == MIN_UNMEASURED and tvm_defaults["max_fail_count"] == MAX_FRUITLESS
    model = MetaSchedule(sketch(), seed=0)._model
    assert model.config == XGBConfig(nthread=1) and not model.adaptive_training
    assert (model.config.max_depth, model.config.gamma, model.config.min_child_weight) == (10, 0.001, 0)


def test_a_run_that_never_trains_its_cost_model_is_warned_of(tmp_path: Path) -> None:
    study = {
        "workloads": ["gemm:64x64x64"],
        "spaces": ["sketch"],
        "policies": ["metaschedule"],
        "target": {"kind": "llvm", "num-cores": 2},
        "trials": 64,
    }
    with pytest.warns(SearchlabWarning, match="'metaschedule' does not use what it has learned until after 100 trials"):
        Study.from_dict(study, tmp_path).plan()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Study.from_dict(study | {"trials": 256, "batch": 64}, tmp_path).plan()
