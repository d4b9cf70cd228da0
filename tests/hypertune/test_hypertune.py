"""Searching the options of policies: planted optima are found, and held-out workloads stay hidden."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from typer.testing import CliRunner, Result

from searchlab.cli.app import app
from searchlab.errors import SearchlabError
from searchlab.hypertune import (
    Hypertuned,
    defaults_of,
    derive_ranges,
    open_journal,
    parse_options,
    plan_hypertune,
    spelled,
)
from searchlab.options import UnitInterval
from searchlab.policy import POLICIES, NeverTwice
from searchlab.run.study import Study
from searchlab.space import Config, Space
from searchlab.workload import parse_workload
from tests.support import toys
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
        self._order = sorted(space.enumerate(), key=lambda config: toys.smooth(config).cost, reverse=not best_first)

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        left = (config for config in self._order if config not in self.seen)
        for _ in range(n):
            yield next(left) if rng.random() < self.aim else self.space.sample(rng)


class Broken(NeverTwice):
    """Refuses every value of its option except the default."""

    def __init__(self, space: Space, *, seed: int, knob: int = 2) -> None:
        super().__init__(space, seed=seed)
        if knob != 2:
            raise SearchlabError(f"option 'knob' is {knob}")

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        return []


def tables(directory: Path, workloads: Sequence[str], cost: toys.Cost = toys.smooth) -> None:
    for text in workloads:
        workload = parse_workload(text)
        (directory / f"{text.replace(':', '_')}.jsonl").unlink(missing_ok=True)
        write_table(directory / f"{text.replace(':', '_')}.jsonl", toys.Small(workload), cost)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    tables(tmp_path / "tables", WORKLOADS[:2])
    return made(tmp_path, WORKLOADS[:2])


def made(base: Path, workloads: Sequence[str], **more: Any) -> Study:
    spec = {
        "workloads": list(workloads),
        "spaces": [{"name": "tests.support.toys:Small", "label": "small"}],
        "policies": [PLANTED],
        "trials": 16,
        "batch": 4,
        "measure": {"kind": "table", "path": "tables"},
    }
    return Study.from_dict({**spec, **more}, base)


def journal(out: Path) -> dict[str, list[tuple[dict[str, Any], list[float] | None]]]:
    """Return the options that each search tried, with their scores."""
    storage = JournalStorage(JournalFileBackend(str(out / "optuna.log")))
    return {
        study.study_name: [(trial.params, trial.values) for trial in study.trials]
        for study in (
            optuna.load_study(study_name=name, storage=storage) for name in optuna.get_all_study_names(storage)
        )
    }


def test_a_planted_option_is_found_and_generalises(study: Study, tmp_path: Path) -> None:
    found = plan_hypertune(study, PLANTED, options=["aim=0..1"], **QUICK).run()
    assert found.options["aim"] > 0.5 and found.default_options == {"aim": 0.05}
    assert found.better and "better than the default on held-out workloads, judging by" in found.verdict
    assert found.held_out is not None and found.held_out.found.value > found.held_out.default.value + 0.1
    assert [search.held_out for search in found.searches] == [[WORKLOADS[0]], [WORKLOADS[1]], []]
    assert json.loads(json.dumps(found.to_json()))["options"] == found.options


def test_options_are_searched_on_the_dev_split_of_a_suite(tmp_path: Path) -> None:
    write_suite(tmp_path / "mini")
    data = {"suite": "mini/dev", "policies": [PLANTED], "trials": 16, "batch": 4}
    found = plan_hypertune(Study.from_dict(data, tmp_path), PLANTED, options=["aim=0..1"], **QUICK).run()
    assert found.options["aim"] > 0.5 and [one.workload for one in found.searches[0].problems] == ["gemm:4x5x6"]
    for suite in ("mini", "mini/test", "mini/gemm-16x16x16-guided-1t"):
        with pytest.raises(SearchlabError, match="has tables of the test split, .* use mini/dev"):
            plan_hypertune(Study.from_dict({**data, "suite": suite}, tmp_path), PLANTED)


def test_options_that_overfit_are_detected(study: Study) -> None:
    options = [f"only=none,{WORKLOADS[0]},{WORKLOADS[1]}", "aim=0.5"]
    found = plan_hypertune(study, PLANTED, options=options, **QUICK).run()
    assert [search.options["only"] for search in found.searches[:2]] == [WORKLOADS[1], WORKLOADS[0]]
    assert not found.better and "Keep the default" in found.verdict
    assert found.training.gain.lower > 0 > found.held_out.gain.value  # type: ignore[union-attr]


def test_the_search_never_sees_what_is_held_out(tmp_path: Path) -> None:
    """The held-out workload does not change the trials of a search."""
    results: list[Hypertuned] = []
    for name, cost in (
        ("as it is", toys.smooth),
        ("other", lambda config: toys.timed(len(str(config.to_json())) / 7e4)),
    ):
        tables(tmp_path / name / "tables", WORKLOADS[:1])
        tables(tmp_path / name / "tables", WORKLOADS[1:2], cost)
        plan = plan_hypertune(
            made(tmp_path / name, WORKLOADS[:2]), PLANTED, options=["aim=0..1"], hold_out=[WORKLOADS[1]], **QUICK
        )
        results.append(plan.run(tmp_path / name))
    ours, theirs = (journal(tmp_path / name) for name in ("as it is", "other"))
    assert ours == theirs and list(ours) == [f"without {WORKLOADS[1]}"]
    for seen, unseen in zip(*(result.searches[0].problems for result in results), strict=True):
        assert (seen.found == unseen.found) is not seen.held_out


def test_interrupted_anywhere_it_ends_as_if_it_had_not_been(study: Study, tmp_path: Path) -> None:
    plan = plan_hypertune(study, PLANTED, options=["aim=0.01..1:log", "idle=0..3"], **QUICK)
    whole = plan.run(tmp_path / "whole")
    told: list[int] = []

    def interrupt(*_: object) -> None:
        told.append(0)
        if len(told) == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan.run(tmp_path / "parts", interrupt)
    assert sum(map(len, journal(tmp_path / "parts").values())) == 17
    with open(tmp_path / "parts" / "optuna.log", "ab") as file:
        file.write(b'{"op_code": 4, "wor')  # a line that was cut off by a kill
    assert plan.run(tmp_path / "parts") == whole == plan.run()
    assert journal(tmp_path / "parts") == journal(tmp_path / "whole")


def test_it_goes_on_with_more_trials(study: Study, tmp_path: Path) -> None:
    for out, counts in (("steps", (5, 12)), ("whole", (12,))):
        for trials in counts:
            plan_hypertune(study, PLANTED, options=["aim=0..1"], **{**QUICK, "trials": trials}).run(tmp_path / out)
    assert journal(tmp_path / "steps") == journal(tmp_path / "whole")


def test_a_search_does_not_go_on_with_other_code(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_hypertune(study, PLANTED, options=["aim=0..1"], **{**QUICK, "trials": 2})
    plan.run(tmp_path)
    for problem in plan.problems:
        monkeypatch.setitem(problem.run.code, "policy", "0" * 16)  # type: ignore[arg-type]
    with pytest.raises(SearchlabError, match="code = "):
        plan.run(tmp_path)


def test_another_search_in_the_same_directory_is_refused(study: Study, tmp_path: Path) -> None:
    quick = {**QUICK, "trials": 2}
    plan_hypertune(study, PLANTED, options=["aim=0..1"], **quick).run(tmp_path / "out")
    for change, said in (
        ({"options": ["aim=0..0.5"]}, "options = .*0.0..1.0.* instead of .*0.0..0.5"),
        ({"options": ["aim=0..1"], "seed": 1}, "seed = 0 instead of 1"),
    ):
        with pytest.raises(SearchlabError, match=said):
            plan_hypertune(study, PLANTED, **change, **quick).run(tmp_path / "out")
    tables(tmp_path / "tables", WORKLOADS[:1], toys.flaky)
    with pytest.raises(SearchlabError, match="with tasks = "):
        plan_hypertune(study, PLANTED, options=["aim=0..1"], **quick).run(tmp_path / "out")


def test_a_damaged_journal_is_one_sentence(study: Study, tmp_path: Path) -> None:
    (tmp_path / "optuna.log").write_text("no journal\nat all\n")
    with pytest.raises(SearchlabError, match="optuna.log is damaged"):
        plan_hypertune(study, PLANTED, **QUICK).run(tmp_path)


def test_two_searches_in_one_directory_are_refused(study: Study, tmp_path: Path) -> None:
    """The journal of a running search may end within a line, which a second search must not cut."""
    plan = plan_hypertune(study, PLANTED, **QUICK)
    with open_journal(tmp_path / "optuna.log"):
        (tmp_path / "optuna.log").write_text("half a line")
        with pytest.raises(SearchlabError, match="another search is writing .*optuna.log"):
            plan.run(tmp_path)
        assert (tmp_path / "optuna.log").read_text() == "half a line"
    plan.run(tmp_path)
    assert not (tmp_path / "optuna.log.lock").exists()


def test_a_full_disk_is_one_sentence_and_the_search_resumes(study: Study, tmp_path: Path) -> None:
    quick = {**QUICK, "trials": 4}
    plan = plan_hypertune(study, PLANTED, options=["aim=0..1"], **quick)
    plan.run(tmp_path / "whole")
    size = (tmp_path / "whole" / "optuna.log").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write then fails with EFBIG
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size * 2 // 3, before[1]))
        with pytest.raises(SearchlabError, match="cannot write the search's journal: .*repeat the command"):
            plan_hypertune(study, PLANTED, options=["aim=0..1"], **quick).run(tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    plan_hypertune(study, PLANTED, options=["aim=0..1"], **quick).run(tmp_path / "out")
    assert journal(tmp_path / "out") == journal(tmp_path / "whole")


def test_the_seed_decides_what_is_tried(study: Study, tmp_path: Path) -> None:
    for seed in (0, 1):
        plan_hypertune(study, PLANTED, options=["aim=0..1"], **QUICK, seed=seed).run(tmp_path / str(seed))
    ours, theirs = (journal(tmp_path / seed)["on all workloads"] for seed in "01")
    assert [params for params, _ in ours[:1]] == [params for params, _ in theirs[:1]] == [{"aim": 0.05}]
    assert not {params["aim"] for params, _ in ours[1:]} & {params["aim"] for params, _ in theirs[1:]}


def test_options_that_a_policy_refuses_are_pruned(study: Study, tmp_path: Path) -> None:
    found = plan_hypertune(study, PLANTED, options=["aim=0..2"], **QUICK).run(tmp_path)
    refused = [params["aim"] for params, values in journal(tmp_path)["on all workloads"] if values is None]
    assert refused and min(refused) > 1 and len(refused) == found.searches[-1].refused
    assert found.options["aim"] <= 1
    with pytest.raises(SearchlabError, match="rejected all 3 sets of options .*option 'knob' is"):
        plan_hypertune(
            study, "tests.hypertune.test_hypertune:Broken", options=["knob=3..9"], **{**QUICK, "trials": 3}
        ).run()


def test_with_one_workload_there_is_no_proof_and_it_is_said(tmp_path: Path) -> None:
    tables(tmp_path / "tables", WORKLOADS[:1])
    plan = plan_hypertune(made(tmp_path, WORKLOADS[:1]), PLANTED, options=["aim=0..1"], **QUICK)
    assert "is the only workload, so none can be held out" in plan.notes[0]
    found = plan.run()
    assert found.better is None and found.held_out is None and "gain in score: +" in found.verdict
    assert "does not show how good they are on other workloads" in found.verdict


def test_a_task_where_nothing_can_be_gained_is_left_out(tmp_path: Path) -> None:
    tables(tmp_path / "tables", WORKLOADS[:2])
    tables(tmp_path / "tables", WORKLOADS[2:], toys.all_equal)
    plan = plan_hypertune(made(tmp_path, WORKLOADS), PLANTED, **QUICK)
    assert "gemm:16x16x16 in small is omitted" in plan.notes[0]
    assert [problem.workload for problem in plan.problems] == WORKLOADS[:2]
    with pytest.raises(SearchlabError, match="no workload is left for the search: gemm:16x16x16 in small is omitted"):
        plan_hypertune(made(tmp_path, WORKLOADS[2:]), PLANTED, **QUICK)


def test_random_search_scores_as_random_search(tmp_path: Path) -> None:
    """If an option has no effect, its score is 0 within the noise, and no options are found."""
    tables(tmp_path / "tables", WORKLOADS[:2], toys.flaky)
    plan = plan_hypertune(
        made(tmp_path, WORKLOADS[:2]), PLANTED, options=["aim=0.0", "idle=0..9"], trials=3, seeds=2, fresh_seeds=50
    )
    found = plan.run()
    assert found.held_out is not None
    assert found.held_out.found.lower < 0 < found.held_out.found.upper
    assert not found.better


def test_trials_that_the_table_does_not_hold_are_counted(tmp_path: Path) -> None:
    tables(tmp_path / "tables", WORKLOADS[:2])
    for table in (tmp_path / "tables").iterdir():
        table.write_bytes(b"".join(table.read_bytes().splitlines(keepends=True)[:61]))
    measure = {"kind": "table", "path": "tables", "missing": "nearest"}
    study = made(tmp_path, WORKLOADS[:2], measure=measure)
    with pytest.warns(match="does not contain every config"):
        found = plan_hypertune(study, PLANTED, **{**QUICK, "trials": 2}).run()
    assert 0.2 < found.nearest < 0.8
    with pytest.raises(SearchlabError, match="contain no measurement of .*missing = "):
        plan_hypertune(made(tmp_path, WORKLOADS[:2]), PLANTED, **QUICK).run()


def test_the_options_of_the_study_are_the_default(tmp_path: Path) -> None:
    tables(tmp_path / "tables", WORKLOADS[:2])
    entries = [{"name": PLANTED, "label": label, "options": {"aim": aim}} for label, aim in (("a", 1), ("b", 0.5))]
    study = made(tmp_path, WORKLOADS[:2], policies=entries)
    plan = plan_hypertune(study, "a", **QUICK)
    assert plan.default == {"aim": 1.0} and spelled(plan.ranges["aim"]) == "0.25..1.0:log"
    assert plan.others == {"only": "any", "idle": 0}
    with pytest.raises(SearchlabError, match="several entries for the policy .*: 'a', 'b'"):
        plan_hypertune(study, PLANTED, **QUICK)


class Same(Planted, uses_seed=False):
    pass


def test_what_bears_on_the_result_is_noted(tmp_path: Path) -> None:
    tables(tmp_path / "tables", WORKLOADS[:2])
    study = made(tmp_path, WORKLOADS[:2], cost_models=["ridge", "xgboost"], warm_start=["tables"])
    plan = plan_hypertune(study, "xgb", **QUICK)
    assert {problem.run.strategy.cost_model.name for problem in plan.problems if problem.run.strategy.cost_model} == {
        "ridge"
    }
    assert spelled(plan.ranges["epsilon"]) == "0.0125..0.2:log" and plan.others == {
        "predictions": None,
        "failures": "score",
        "acquisition": "mean",
    }
    first, second = plan.notes
    assert "only the study's first cost model, ridge, is used" in first and "warm_start logs" in second
    assert "the same for every seed" in plan_hypertune(study, "tests.hypertune.test_hypertune:Same", **QUICK).notes[-1]


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("population=4..64", "4..64"),
        ("population=4..64:log", "4..64:log"),
        ("mutation_prob=0.1..0.5", "0.1..0.5"),
        ("mutation_prob=0..1", "0.0..1.0"),
        ("mutation_prob=1e-3..0.5:log", "0.001..0.5:log"),
        ("elites=1,2,8", "1,2,8"),
        ("elites=many", "many"),
        ("elites=true,null,0.5,few", "true,null,0.5,few"),
    ],
)
def test_what_an_option_says(text: str, distribution: str) -> None:
    ((name, found),) = parse_options([text], "evolutionary", POLICIES.load("evolutionary")).items()
    assert name == text.partition("=")[0] and spelled(found) == distribution


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["populatoin=4..64"], "has no option 'populatoin'; did you mean 'population'"),
        (["population"], "has no values to search"),
        (["population="], "has no values to search"),
        (["population=64..4"], "lower end of a range must be less than the upper"),
        (["population=a..b"], "the ends of a range must be numbers"),
        (["elites=0..4:log"], "must begin above 0"),
        (["elites=1,1"], "contains a duplicate choice"),
        (["elites=1", "elites=2"], "--option elites is specified twice"),
    ],
)
def test_what_is_wrong_with_an_option_is_said(texts: list[str], said: str) -> None:
    with pytest.raises(SearchlabError, match=said):
        parse_options(texts, "evolutionary", POLICIES.load("evolutionary"))


def test_ranges_follow_from_defaults_within_the_declared_bounds() -> None:
    cls = POLICIES.load("evolutionary")
    given = {"mutation_prob": 0.85, "shuffle": True, "start": "first", "limit": None, "none": 0}
    ranges, others = derive_ranges({**defaults_of(cls, {}), **given}, cls)
    assert {name: spelled(distribution) for name, distribution in ranges.items() if name != "mutation_prob"} == {
        "population": "4..64:log",
        "elites": "1..16:log",
        "shuffle": "false,true",
    }
    assert others == {"start": "first", "limit": None, "none": 0}
    assert spelled(ranges["mutation_prob"]) == "0.212..1.0:log"


@pytest.mark.parametrize(
    ("change", "policy", "asked", "said"),
    [
        ({"measure": {"kind": "local"}}, PLANTED, {}, "measures on a machine .*'local'.*would take days"),
        ({"measure": {"kind": "table", "path": "absent"}}, PLANTED, {}, "absent"),
        ({"workloads": ["gemm:8x8x8"]}, PLANTED, {}, "gemm:8x8x8"),
        ({}, "evolutionry", {}, "unknown policy 'evolutionry'; did you mean 'evolutionary'"),
        ({}, "random", {}, "no option from whose default a range can be derived"),
        ({}, PLANTED, {"options": ["aims=0..1"]}, "has no option 'aims'; did you mean 'aim'"),
        (
            {},
            PLANTED,
            {"hold_out": ["gemm:32x32x33"]},
            "gemm:32x32x33 cannot be held out.*did you mean 'gemm:32x32x32'",
        ),
        ({}, PLANTED, {"hold_out": WORKLOADS[:2]}, "all workloads are held out"),
        ({}, PLANTED, {"seeds": 0}, "seeds must be at least 1"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    change: dict[str, Any], policy: str, asked: dict[str, Any], said: str, study: Study, tmp_path: Path
) -> None:
    with pytest.raises(SearchlabError, match=said) as raised:
        plan_hypertune(made(tmp_path, **{"workloads": WORKLOADS[:2], **change}), policy, **{**QUICK, **asked})
    assert "\n" not in str(raised.value)


def test_the_command(study: Study, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(
        f'workloads = {json.dumps(WORKLOADS[:2])}\nspaces = ["tests.support.toys:Small"]\n'
        'policies = ["random"]\ntrials = 12\n'
        'measure = { kind = "table", path = "tables" }\n'
    )

    def command(*words: str) -> Result:
        return CliRunner().invoke(app, ["hypertune", str(tmp_path / "study.toml"), *words])

    common = ["--policy", "evolutionary", "--trials", "3", "--seeds", "2", "--fresh-seeds", "4"]
    shown = command(*common, "--out", str(tmp_path / "out"))
    assert shown.exit_code == 0, shown.output
    for text in ("searched: population=4..64:log (default 16)", "all held out", "search on all workloads"):
        assert text in shown.stdout
    again = command(*common, "--out", str(tmp_path / "out"), "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout) == json.loads((tmp_path / "out" / "hypertune.json").read_text())
    wrong = command("--policy", "evolutionary", "--hold-out", "gemm:1x1x1")
    assert isinstance(wrong.exception, SearchlabError) and "cannot be held out" in str(wrong.exception)


@pytest.mark.parametrize("line", [b"garbage\n", b"{}\n", b"[1]\n", b"\xff\xfe\n", b'{"op_code": 99}\n', b"null\n"])
def test_a_damaged_line_of_the_journal_is_one_sentence(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "optuna.log"
    path.write_bytes(line)
    with pytest.raises(SearchlabError, match=r"optuna\.log is damaged"), open_journal(path):
        pass
    assert path.read_bytes() == line
