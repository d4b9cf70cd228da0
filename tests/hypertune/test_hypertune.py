"""Searching the options of policies: planted optima are found, and held-out workloads stay hidden."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import os
import resource
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from typer.testing import CliRunner, Result

from searchlab.cli.app import app
from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.hypertune.plan import plan_hypertune
from searchlab.hypertune.ranges import derive_ranges, list_range_values, make_range
from searchlab.hypertune.result import HypertuneResult
from searchlab.hypertune.search import HyperPlan, open_storage
from searchlab.options import Between, Count, UnitInterval
from searchlab.policy import NeverTwice
from searchlab.run.study import Study
from searchlab.space import Config, Space
from searchlab.workload import parse_workload
from tests.support.logs import write_table
from tests.support.suites import write_suite

WORKLOADS = ["gemm:64x64x64", "gemm:32x32x32", "gemm:16x16x16"]
PLANTED = "tests.hypertune.test_hypertune:Planted"
QUICK: dict[str, Any] = {"trials": 12, "seeds": 2, "fresh_seeds": 8}


class Planted(NeverTwice):
    """Knows the cost of every config, and exploits it as much as its options allow.

    aim: probability that a proposal is the best config left. only: the workload on which it is the best; on any other
    it is the worst.
    """

    def __init__(self, space: Space, *, seed: int, aim: UnitInterval = 0.05, only: str = "any", idle: int = 0) -> None:
        super().__init__(space, seed=seed)
        self.aim = aim
        best_first = only in ("any", str(space.workload))
        self._order = sorted(
            space.enumerate(), key=lambda config: toys.simulate_smooth(config).cost, reverse=not best_first
        )

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        unseen = (config for config in self._order if config not in self.seen)
        for _ in range(n):
            yield next(unseen) if rng.random() < self.aim else self.space.sample(rng)


class Mortal(Planted):
    """Kills the process after as many instances as an environment variable says."""

    def __init__(self, space: Space, *, seed: int, aim: UnitInterval = 0.05) -> None:
        super().__init__(space, seed=seed, aim=aim)
        if lives := int(os.environ.get("LIVES", 0)):
            os.environ["LIVES"] = str(lives - 1)
            if lives == 1:
                os.kill(os.getpid(), signal.SIGKILL)


class Picky(Planted):
    """Refuses some values that its annotation allows."""

    def __init__(self, space: Space, *, seed: int, aim: UnitInterval = 0.05) -> None:
        super().__init__(space, seed=seed, aim=aim)
        if aim > 0.5:
            raise SearchlabError(f"option 'aim' is {aim}")


class Broken(NeverTwice):
    """Refuses every value of its option except the default."""

    def __init__(self, space: Space, *, seed: int, knob: int = 2) -> None:
        super().__init__(space, seed=seed)
        if knob != 2:
            raise SearchlabError(f"option 'knob' is {knob}")

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        return []


def tables(directory: Path, workloads: Sequence[str], cost: toys.SimulateFunction = toys.simulate_smooth) -> None:
    for text in workloads:
        workload = parse_workload(text)
        (directory / f"{text.replace(':', '_')}.jsonl").unlink(missing_ok=True)
        write_table(directory / f"{text.replace(':', '_')}.jsonl", toys.Small(workload), cost)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    tables(tmp_path / "tables", WORKLOADS[:2])
    return make_study(tmp_path, WORKLOADS[:2])


def make_study(base: Path, workloads: Sequence[str], **more: Any) -> Study:
    spec = {
        "workloads": list(workloads),
        "spaces": [{"name": "searchlab.conformance.toys:Small", "label": "small"}],
        "policies": [PLANTED],
        "trials": 16,
        "batch": 4,
        "measure": {"kind": "table", "path": "tables"},
    }
    return Study.from_dict({**spec, **more}, base)


def trials_in(out: Path) -> dict[str, list[tuple[dict[str, Any], list[float] | None]]]:
    """Return the options that each search tried, with their scores, in finished trials."""
    storage = f"sqlite:///{out / 'optuna.db'}"
    return {
        study.study_name: [(trial.params, trial.values) for trial in study.trials if trial.state.is_finished()]
        for study in (
            optuna.load_study(study_name=name, storage=storage) for name in optuna.get_all_study_names(storage)
        )
    }


def test_a_planted_option_is_found_and_generalises(study: Study, tmp_path: Path) -> None:
    result = plan_hypertune(study, PLANTED, options={"aim": [0, 1]}, **QUICK).run()
    assert result.options["aim"] > 0.5 and result.default_options == {"aim": 0.05}
    assert all(search.options["aim"] == float(f"{search.options['aim']:.3g}") for search in result.searches)
    assert result.better and "better than the default on held-out workloads" in result.verdict
    assert result.held_out is not None and result.held_out.tuned.value > result.held_out.default.value + 0.1
    assert [search.held_out for search in result.searches] == [[WORKLOADS[0]], [WORKLOADS[1]], []]
    assert json.loads(json.dumps(result.to_json()))["options"] == result.options


def test_options_are_searched_on_the_dev_split_of_a_suite(tmp_path: Path) -> None:
    write_suite(tmp_path / "mini")
    data = {"suite": "mini/dev", "policies": [PLANTED], "trials": 16, "batch": 4}
    result = plan_hypertune(Study.from_dict(data, tmp_path), PLANTED, options={"aim": [0, 1]}, **QUICK).run()
    assert result.options["aim"] > 0.5 and [problem.workload for problem in result.searches[0].problems] == [
        "gemm:4x5x6"
    ]
    for suite in ("mini", "mini/test", "mini/gemm-16x16x16-guided-1t"):
        with pytest.raises(SearchlabError, match="has tables of the test split, .* use mini/dev"):
            plan_hypertune(Study.from_dict({**data, "suite": suite}, tmp_path), PLANTED)


def test_options_that_overfit_are_detected(study: Study) -> None:
    options: dict[str, list[Any]] = {"only": ["none", *WORKLOADS[:2]], "aim": [0.5]}
    result = plan_hypertune(study, PLANTED, options=options, **QUICK).run()
    assert [search.options["only"] for search in result.searches[:2]] == [WORKLOADS[1], WORKLOADS[0]]
    assert not result.better and "Keep the default" in result.verdict
    assert result.training.gain.lower > 0 > result.held_out.gain.value  # type: ignore[union-attr]


def test_the_search_never_sees_what_is_held_out(tmp_path: Path) -> None:
    """The held-out workload does not change the trials of a search."""
    results: list[HypertuneResult] = []
    for name, cost in (
        ("as it is", toys.simulate_smooth),
        ("other", lambda config: toys.successful_measurement(len(str(config.to_json())) / 7e4)),
    ):
        tables(tmp_path / name / "tables", WORKLOADS[:1])
        tables(tmp_path / name / "tables", WORKLOADS[1:2], cost)
        plan = plan_hypertune(
            make_study(tmp_path / name, WORKLOADS[:2]),
            PLANTED,
            options={"aim": [0, 1]},
            hold_out=[WORKLOADS[1]],
            **QUICK,
        )
        results.append(plan.run(tmp_path / name))
    first, second = (trials_in(tmp_path / name) for name in ("as it is", "other"))
    assert first == second and list(first) == [f"without {WORKLOADS[1]}"]
    for with_one, with_other in zip(*(result.searches[0].problems for result in results), strict=True):
        assert (with_one.tuned == with_other.tuned) is not with_one.held_out


def test_an_interrupted_search_ends_as_an_uninterrupted_one(study: Study, tmp_path: Path) -> None:
    plan = plan_hypertune(study, PLANTED, options={"aim": [0.01, 1], "idle": [0, 3]}, **{**QUICK, "trials": 5})
    uninterrupted = plan.run(tmp_path / "whole")
    calls: list[int] = []

    def interrupt(*_: object) -> None:
        calls.append(0)
        if len(calls) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan.run(tmp_path / "parts", interrupt)
    assert sum(map(len, trials_in(tmp_path / "parts").values())) == 7
    assert plan.run(tmp_path / "parts") == uninterrupted == plan.run()
    assert trials_in(tmp_path / "parts") == trials_in(tmp_path / "whole")


@pytest.mark.parametrize("lives", [1, 9, 40])
def test_killed_search_is_resumed_exactly(
    lives: int, study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan() -> HyperPlan:
        return plan_hypertune(study, f"{Mortal.__module__}:Mortal", options={"aim": [0, 1]}, **{**QUICK, "trials": 4})

    mortal = plan()
    monkeypatch.setenv("LIVES", str(lives))
    process = multiprocessing.get_context("fork").Process(target=mortal.run, args=(tmp_path / "killed",))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    monkeypatch.delenv("LIVES")
    assert plan().run(tmp_path / "killed") == plan().run(tmp_path / "whole")
    assert trials_in(tmp_path / "killed") == trials_in(tmp_path / "whole")


def test_a_search_continues_with_more_trials(study: Study, tmp_path: Path) -> None:
    for out, counts in (("steps", (3, 6)), ("whole", (6,))):
        for trials in counts:
            plan_hypertune(study, PLANTED, options={"aim": [0, 1]}, **{**QUICK, "trials": trials}).run(tmp_path / out)
    assert trials_in(tmp_path / "steps") == trials_in(tmp_path / "whole")


def test_a_database_of_another_program_is_refused(study: Study, tmp_path: Path) -> None:
    optuna.create_study(storage=f"sqlite:///{tmp_path / 'optuna.db'}", study_name="on all workloads").add_trial(
        optuna.create_trial(value=1.0)
    )
    with pytest.raises(SearchlabError, match="different search 'on all workloads'"):
        plan_hypertune(study, PLANTED, **QUICK).run(tmp_path)


def test_a_search_does_not_go_on_with_other_code(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {**QUICK, "trials": 2}
    plan_hypertune(study, PLANTED, options={"aim": [0, 1]}, **quick).run(tmp_path)
    plan = plan_hypertune(study, PLANTED, options={"aim": [0, 1]}, **quick)
    for problem in plan.problems:
        monkeypatch.setitem(problem.run.code_digests, "policy", "0" * 16)
    with pytest.raises(SearchlabError, match="code on .* = "):
        plan.run(tmp_path)


def test_another_search_in_the_same_directory_is_refused(study: Study, tmp_path: Path) -> None:
    quick = {**QUICK, "trials": 2}
    plan_hypertune(study, PLANTED, options={"aim": [0, 1]}, **quick).run(tmp_path / "out")
    for change, message in (
        ({"options": {"aim": [0, 0.5]}}, "options = .*0.0, 1.0.* instead of .*0.0, 0.5"),
        ({"options": {"aim": [0, 1]}, "seed": 1}, "seed = 0 instead of 1"),
    ):
        with pytest.raises(SearchlabError, match=message):
            plan_hypertune(study, PLANTED, **change, **quick).run(tmp_path / "out")
    tables(tmp_path / "tables", WORKLOADS[:1], toys.simulate_flaky)
    with pytest.raises(SearchlabError, match="with table on .* = "):
        plan_hypertune(study, PLANTED, options={"aim": [0, 1]}, **quick).run(tmp_path / "out")


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + bytes(4080), b"\xff" * 5000])
def test_damaged_database_is_one_sentence(content: bytes, study: Study, tmp_path: Path) -> None:
    (tmp_path / "optuna.db").write_bytes(content)
    with pytest.raises(SearchlabError, match="cannot use .*optuna.db: .*change --out") as raised:
        plan_hypertune(study, PLANTED, **QUICK).run(tmp_path)
    assert "\n" not in str(raised.value) and (tmp_path / "optuna.db").read_bytes() == content


def test_two_searches_in_one_directory_are_refused(study: Study, tmp_path: Path) -> None:
    plan = plan_hypertune(study, PLANTED, **{**QUICK, "trials": 2})
    with open_storage(tmp_path), pytest.raises(SearchlabError, match="another search is writing .*optuna.db"):
        plan.run(tmp_path)
    plan.run(tmp_path)


def test_a_full_disk_is_one_sentence_and_the_search_resumes(study: Study, tmp_path: Path) -> None:
    quick = {**QUICK, "trials": 4}
    plan = plan_hypertune(study, PLANTED, options={"aim": [0, 1]}, **quick)
    plan.run(tmp_path / "whole")
    size = (tmp_path / "whole" / "optuna.db").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write then fails with EFBIG
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size * 2 // 3, before[1]))
        with pytest.raises(SearchlabError, match="cannot use .*optuna.db: .*repeat the command"):
            plan_hypertune(study, PLANTED, options={"aim": [0, 1]}, **quick).run(tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    plan_hypertune(study, PLANTED, options={"aim": [0, 1]}, **quick).run(tmp_path / "out")
    assert trials_in(tmp_path / "out") == trials_in(tmp_path / "whole")


def test_the_seed_decides_what_is_tried(study: Study, tmp_path: Path) -> None:
    for seed in (0, 1):
        quick = {**QUICK, "trials": 4, "seed": seed}
        plan_hypertune(study, PLANTED, options={"aim": [0, 1]}, **quick).run(tmp_path / str(seed))
    first, second = (trials_in(tmp_path / seed)["on all workloads"] for seed in "01")
    assert [params for params, _ in first[:1]] == [params for params, _ in second[:1]] == [{"aim": 0.05}]
    assert not {params["aim"] for params, _ in first[1:]} & {params["aim"] for params, _ in second[1:]}


def test_options_that_a_policy_refuses_are_pruned(study: Study, tmp_path: Path) -> None:
    plan = plan_hypertune(study, f"{Picky.__module__}:Picky", options={"aim": [0, 1]}, **QUICK).run(tmp_path)
    refused = [params["aim"] for params, values in trials_in(tmp_path)["on all workloads"] if values is None]
    assert refused and min(refused) > 0.5 and len(refused) == plan.searches[-1].refused
    assert plan.options["aim"] <= 0.5
    with pytest.raises(SearchlabError, match="rejected all 3 sets of options .*option 'knob' is"):
        plan_hypertune(
            study, "tests.hypertune.test_hypertune:Broken", options={"knob": [3, 9]}, **{**QUICK, "trials": 3}
        ).run()


def test_with_one_workload_no_gain_is_shown_on_others(tmp_path: Path) -> None:
    tables(tmp_path / "tables", WORKLOADS[:1])
    plan = plan_hypertune(make_study(tmp_path, WORKLOADS[:1]), PLANTED, options={"aim": [0, 1]}, **QUICK)
    assert "is the only workload, so none can be held out" in plan.notes[0]
    result = plan.run()
    assert result.better is None and result.held_out is None and "gain +" in result.verdict
    assert "does not show how good they are on other workloads" in result.verdict


def test_a_task_where_nothing_can_be_gained_is_left_out(tmp_path: Path) -> None:
    tables(tmp_path / "tables", WORKLOADS[:2])
    tables(tmp_path / "tables", WORKLOADS[2:], toys.simulate_equal)
    plan = plan_hypertune(make_study(tmp_path, WORKLOADS), PLANTED, **QUICK)
    assert "gemm:16x16x16 in small is omitted" in plan.notes[0]
    assert [problem.run.workload_name for problem in plan.problems] == WORKLOADS[:2]
    with pytest.raises(SearchlabError, match="no workload is left for the search: gemm:16x16x16 in small is omitted"):
        plan_hypertune(make_study(tmp_path, WORKLOADS[2:]), PLANTED, **QUICK)


def test_random_search_scores_as_random_search(tmp_path: Path) -> None:
    """If an option has no effect, its score is 0 within the noise, and no options are found."""
    tables(tmp_path / "tables", WORKLOADS[:2], toys.simulate_flaky)
    plan = plan_hypertune(
        make_study(tmp_path, WORKLOADS[:2]),
        PLANTED,
        options={"aim": [0.0], "idle": [0, 9]},
        trials=3,
        seeds=2,
        fresh_seeds=50,
    )
    result = plan.run()
    assert result.held_out is not None
    assert result.held_out.tuned.lower < 0 < result.held_out.tuned.upper
    assert not result.better


def test_configs_that_a_table_lacks_are_warned_about(tmp_path: Path) -> None:
    tables(tmp_path / "tables", WORKLOADS[:2])
    for table in (tmp_path / "tables").iterdir():
        table.write_bytes(b"".join(table.read_bytes().splitlines(keepends=True)[:61]))
    measure = {"kind": "table", "path": "tables", "missing": "nearest"}
    study = make_study(tmp_path, WORKLOADS[:2], measure=measure)
    with pytest.warns(match="does not contain every config"):
        plan_hypertune(study, PLANTED, **{**QUICK, "trials": 2}).run()
    with pytest.raises(SearchlabError, match="contain no measurement of .*missing = "):
        plan_hypertune(make_study(tmp_path, WORKLOADS[:2]), PLANTED, **QUICK).run()


def test_the_options_of_the_study_are_the_default(tmp_path: Path) -> None:
    tables(tmp_path / "tables", WORKLOADS[:2])
    entries = [{"name": PLANTED, "label": label, "options": {"aim": aim}} for label, aim in (("a", 1), ("b", 0.5))]
    study = make_study(tmp_path, WORKLOADS[:2], policies=entries)
    plan = plan_hypertune(study, "a", **QUICK)
    assert plan.default_options == {"aim": 1.0} and list_range_values(plan.ranges["aim"]) == [0.25, 1]
    assert plan.fixed_options == {"only": "any", "idle": 0}
    with pytest.raises(SearchlabError, match="several entries for the policy .*: 'a', 'b'"):
        plan_hypertune(study, PLANTED, **QUICK)


class Same(Planted, uses_seed=False):
    pass


def test_settings_that_affect_the_result_are_noted(tmp_path: Path) -> None:
    tables(tmp_path / "tables", WORKLOADS[:2])
    study = make_study(tmp_path, WORKLOADS[:2], cost_models=["ridge", "xgboost"], warm_start=["tables"])
    plan = plan_hypertune(study, "xgb", **QUICK)
    assert {problem.run.strategy.cost_model.name for problem in plan.problems if problem.run.strategy.cost_model} == {
        "ridge"
    }
    ranges = {name: list_range_values(values) for name, values in plan.ranges.items()}
    assert ranges["epsilon"] == [0.0125, 0.2] and ranges["failures"] == ["score", "model"]
    assert plan.fixed_options == {"predictions": None}
    first, second = plan.notes
    assert "only the study's first cost model, ridge, is used" in first and "warm_start logs" in second
    assert "the same for every seed" in plan_hypertune(study, "tests.hypertune.test_hypertune:Same", **QUICK).notes[-1]


@pytest.mark.parametrize(
    ("values", "declared", "expected"),
    [
        ([4, 64], int, IntDistribution(4, 64, log=True)),
        ([0, 64], int, IntDistribution(0, 64)),
        ([0.1, 0.5], UnitInterval, FloatDistribution(0.1, 0.5, log=True)),
        ([0, 1], UnitInterval, FloatDistribution(0.0, 1.0)),
        ([1, 2, 8], int, CategoricalDistribution([1, 2, 8])),
        ([False, True], bool, CategoricalDistribution([False, True])),
        (["few"], Literal["few", "many"], CategoricalDistribution(["few"])),
        ([None, 0.5], inspect.Parameter.empty, CategoricalDistribution([None, 0.5])),
    ],
)
def test_two_numbers_are_a_range_and_others_are_choices(values: list[Any], declared: Any, expected: Any) -> None:
    option_range = make_range("name", values, declared)
    assert option_range == expected
    assert make_range("name", list_range_values(option_range), declared) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("4..64", r"cannot be searched over '4..64'; specify the two ends of a range, as in population=\[2,64\]"),
        ([], "cannot be searched over"),
        ([64, 4], "cannot be searched over .*64, 4"),
        ([0, 4], "option 'population' is 0; it must be a whole number of at least 1"),
        ([1.5, 4], "option 'population' is 1.5; it must be a whole number"),
    ],
)
def test_invalid_range_is_one_sentence(values: Any, message: str) -> None:
    with pytest.raises(SearchlabError, match=message) as raised:
        make_range("population", values, Count)
    assert "\n" not in str(raised.value)


def test_ranges_follow_from_defaults_and_annotations() -> None:
    defaults = {"population": 16, "rate": 0.85, "elites": 2, "shuffle": True, "start": None, "limit": None, "none": 0}
    annotations = {
        "rate": UnitInterval,
        "elites": Annotated[int, Between(2, 4)],
        "start": Literal["a", "b"] | None,
    }
    ranges = derive_ranges(defaults, annotations)
    assert {name: list_range_values(option_range) for name, option_range in ranges.items()} == {
        "population": [4, 64],
        "rate": [0.212, 1],
        "elites": [2, 4],
        "shuffle": [False, True],
        "start": ["a", "b", None],
    }


@pytest.mark.parametrize(
    ("change", "policy", "arguments", "message"),
    [
        ({"measure": {"kind": "local"}}, PLANTED, {}, "measures on a machine, where .*would take days"),
        ({"measure": {"kind": "table", "path": "absent"}}, PLANTED, {}, "absent"),
        ({"workloads": ["gemm:8x8x8"]}, PLANTED, {}, "gemm:8x8x8"),
        ({}, "evolutionry", {}, "unknown policy 'evolutionry'; did you mean 'evolutionary'"),
        ({}, "random", {}, "no option from whose default a range can be derived"),
        ({}, PLANTED, {"options": {"aims": [0, 1]}}, "has no option 'aims'; did you mean 'aim'"),
        (
            {},
            PLANTED,
            {"hold_out": ["gemm:32x32x33"]},
            "gemm:32x32x33 cannot be held out.*did you mean 'gemm:32x32x32'",
        ),
        ({}, PLANTED, {"hold_out": WORKLOADS[:2]}, "all workloads are held out"),
        ({}, PLANTED, {"seeds": 0}, "option 'seeds' is 0"),
    ],
)
def test_a_wrong_argument_is_one_sentence(
    change: dict[str, Any], policy: str, arguments: dict[str, Any], message: str, study: Study, tmp_path: Path
) -> None:
    with pytest.raises(SearchlabError, match=message) as raised:
        plan_hypertune(make_study(tmp_path, **{"workloads": WORKLOADS[:2], **change}), policy, **{**QUICK, **arguments})
    assert "\n" not in str(raised.value)


def test_the_command_prints_its_plan_and_results(study: Study, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(
        f'workloads = {json.dumps(WORKLOADS[:2])}\nspaces = ["searchlab.conformance.toys:Small"]\n'
        'policies = ["random"]\ntrials = 12\n'
        'measure = { kind = "table", path = "tables" }\n'
    )

    def command(*words: str) -> Result:
        return CliRunner().invoke(app, ["hypertune", str(tmp_path / "study.toml"), *words])

    common = ["--policy", "evolutionary", "--trials", "3", "--seeds", "2", "--fresh-seeds", "4"]
    result = command(*common, "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    for text in ("searched: population=[4, 64] (default 16)", "all held out", "search on all workloads"):
        assert text in result.stdout
    again = command(*common, "--out", str(tmp_path / "out"), "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout) == json.loads((tmp_path / "out" / "hypertune.json").read_text())
    wrong = command("--policy", "evolutionary", "--hold-out", "gemm:1x1x1")
    assert isinstance(wrong.exception, SearchlabError) and "cannot be held out" in str(wrong.exception)
