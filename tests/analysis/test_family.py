from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from searchlab.analysis.comparison import Comparison
from searchlab.analysis.contrasts import Key, ReportTests, TestKind
from searchlab.analysis.read import read_runs
from searchlab.analysis.summary import Summary, summarize
from searchlab.analysis.terminal import summary_table
from searchlab.plugins import Plugin
from searchlab.stats.ranks import holm
from tests.support.analysis.logs import write

PAIRED_T, SIGNED_RANK = TestKind.PAIRED_T, TestKind.SIGNED_RANK

WORKLOADS = ["gemm:100x100x50", "gemm:64x64x64"]


def summary(directory: Path, contrasts: list[tuple[str, str]], late: str = "") -> Summary:
    """Of three strategies on two workloads; ``late``: the strategy of which one run began before the registration."""
    directory.mkdir(exist_ok=True)
    for workload in WORKLOADS:
        for seed in range(4):
            for index, name in enumerate(("a", "b", "c")):
                registered = () if (name, seed) == (late, 0) else tuple(contrasts)
                throughputs = [1.0 + index, 4 + seed % 2 + index, 9, 10 + (seed + index) % 3]
                write(directory, name, seed, throughputs, workload=workload, contrasts=registered)
    return summarize(read_runs(directory))


def keys(strategies: int, workloads: int) -> list[Key]:
    """The tests of a report: of each pair of strategies over all workloads and on each of them."""
    tests = [("", PAIRED_T), *((f"workload {number}", SIGNED_RANK) for number in range(workloads))]
    return [(*test, *map(str, pair)) for test in tests for pair in combinations(range(strategies), 2)]


def page_tests(tests: list[Key], registered: list[tuple[str, str]]) -> ReportTests:
    """What a report knows of its tests before it performs them."""
    on_workloads = [key[2:] for key in tests if key[0]]
    return ReportTests(on_workloads, [key[2:] for key in tests if not key[0]], registered)


def correct_by_holm(p: dict[Key, float], family: list[Key]) -> list[float]:
    """The p-values of a family after Holm's procedure."""
    adjusted: list[float] = holm(np.array([p[key] for key in family])).tolist()
    return adjusted


def test_contrasts_and_other_pairs_are_two_families() -> None:
    tests = keys(4, 3)
    p = dict(zip(tests, np.random.default_rng(0).random(len(tests)) / 50, strict=True))
    contrasts = [("0", "1"), ("1", "3")]
    adjusted = page_tests(tests, [("1", "0"), ("1", "3")]).correct_p(p)
    overall = [key for key in tests if key[2:] in contrasts and not key[0]]
    on_workloads = [key for key in tests if key[2:] in contrasts and key[0]]
    other_pairs = [key for key in tests if key[2:] not in contrasts]
    for family in (overall, other_pairs):
        assert [adjusted[key] for key in family] == correct_by_holm(p, family)
    last = max(adjusted[key] for key in overall)
    assert [adjusted[key] for key in on_workloads] == [max(last, value) for value in correct_by_holm(p, on_workloads)]
    assert page_tests(tests, []).correct_p(p) == dict(zip(tests, correct_by_holm(p, tests), strict=True))


def test_workloads_are_tested_if_contrasts_are_significant() -> None:
    tests = keys(3, 2)
    p = dict.fromkeys(tests, 0.001) | {("", PAIRED_T, "0", "1"): 0.2}
    adjusted = page_tests(tests, [("0", "1"), ("0", "2")]).correct_p(p)
    assert adjusted["", PAIRED_T, "0", "2"] == 0.002 and adjusted["workload 0", SIGNED_RANK, "0", "2"] == 0.2
    assert adjusted["workload 0", SIGNED_RANK, "1", "2"] == pytest.approx(0.003), "exploratory"


def test_single_and_other_workloads_share_the_level() -> None:
    tests = [*keys(2, 2), ("", "workloads like these", "0", "1")]
    page = page_tests(tests, [("0", "1")])
    adjusted = page.correct_p({key: 0.01 if key[1] != PAIRED_T else 0.001 for key in tests})
    assert list(adjusted.values()) == pytest.approx([0.001, 0.02, 0.04, 0.04])
    assert page.compute_level("0", "1") == 0.05 / 4


def test_contrast_without_an_overall_test_is_tested_on_workloads() -> None:
    tests = [key for key in keys(3, 2) if key[0]]
    adjusted = page_tests(tests, [("0", "1")]).correct_p(dict.fromkeys(tests, 0.01))
    assert {key: value for key, value in adjusted.items() if key[2:] == ("0", "1")} == pytest.approx(
        {(f"workload {number}", SIGNED_RANK, "0", "1"): 0.02 for number in range(2)}
    )
    assert [value for key, value in adjusted.items() if key[2:] != ("0", "1")] == pytest.approx([0.04] * 4)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("registered", [[], [("0", "1")], [("0", "1"), ("0", "2"), ("1", "2")]])
@pytest.mark.parametrize("ahead", [set(), {"overall"}, {"overall", "0"}])
def test_each_family_alarms_in_five_of_a_hundred(
    registered: list[tuple[str, str]], ahead: set[str], wide: bool
) -> None:
    """A small version of studies/benchmarks/alarms.py.

    ``ahead``: the strategies and kinds of tests with differences that are found for certain. ``wide``: there are
    enough workloads for tests on workloads like these.
    """
    random, tests = np.random.default_rng(0), keys(4, 3)
    tests += [("", "workloads like these", *key[2:]) for key in tests if wide and not key[0]]
    page = page_tests(tests, registered)
    equal = [key for key in tests if not (key[1] == PAIRED_T and "overall" in ahead) and not set(key[2:]) & ahead]
    alarms: dict[bool, list[bool]] = {True: [], False: []}
    for p in random.random((1500, len(tests))).tolist():
        adjusted = page.correct_p({key: value if key in equal else 1e-9 for key, value in zip(tests, p, strict=True)})
        for is_registered, minima in alarms.items():
            family = [adjusted[key] for key in equal if (key[2:] in registered) == is_registered]
            minima.append(min(family, default=1.0) <= 0.05)
    assert 0.03 <= np.mean(alarms[False]) <= 0.067
    assert np.mean(alarms[True]) <= 0.067
    if registered and not ahead:
        assert np.mean(alarms[True]) >= 0.035


def test_without_contrasts_all_tests_are_one_family(tmp_path: Path) -> None:
    explored = summary(tmp_path, [])
    assert explored.overall is not None
    all_contrasts = [c for item in explored.workloads for c in item.contrasts] + explored.overall.contrasts
    tested = {number: c.p for number, c in enumerate(all_contrasts) if c.p is not None}
    assert len(tested) == explored.family.test_count == 9
    adjusted = holm(np.array(list(tested.values())))
    assert [all_contrasts[number].adjusted_p for number in tested] == pytest.approx(adjusted)
    assert "9 tests" in explored.family.description and "No contrast was registered" in explored.family.description


def test_a_contrast_is_registered_if_every_log_names_it(tmp_path: Path) -> None:
    facts = summary(tmp_path / "all", [("b", "a")])
    assert facts.family.registered_pairs == [("b", "a")]
    assert "Registered before the runs: b against a" in facts.family.description
    explored = summary(tmp_path / "none", [])
    assert facts.overall is not None and explored.overall is not None
    registered, unregistered = (
        next(c for c in facts_of_study.overall.contrasts if {c.first, c.second} == {"a", "b"})
        for facts_of_study in (facts, explored)
    )
    assert registered.p == unregistered.p and registered.adjusted_p is not None and unregistered.adjusted_p is not None
    assert registered.adjusted_p < unregistered.adjusted_p
    assert registered.adjusted_p == registered.p, "one test over all workloads"
    late = summary(tmp_path / "late", [("b", "a")], late="a").family
    assert (late.registered_pairs, late.late_pairs) == ([], [("b", "a")])
    assert "not registered: b against a. To register this, run the study again with a new --out." in late.description
    assert summary(tmp_path / "other", [("b", "a")], late="c").family.registered_pairs == [("b", "a")]


def test_registered_contrasts_are_answered_in_order(tmp_path: Path) -> None:
    facts = summary(tmp_path, [("b", "a"), ("a", "c")])
    assert [(contrast.first, contrast.second) for contrast in facts.answers] == [("b", "a"), ("a", "c")]
    answer = facts.answers[1]
    assert answer.verdict == ("better" if answer.difference.value > 0 else "worse")
    ends = answer.difference.on_these.difference
    assert ends.lower is not None and ends.upper is not None and ends.lower < answer.difference.value < ends.upper
    assert answer.sentence.startswith(
        f"a is {answer.verdict} than c: area under the curve {answer.difference.value:+.3f}, "
    )
    assert "on these 2 workloads" in answer.sentence and "like these" not in answer.sentence
    comparison = Comparison(read_runs(tmp_path))
    sentences = [contrast.sentence for contrast in facts.answers]
    assert comparison.verdict.splitlines()[:2] == sentences
    first_lines = [str(contrast).split("\n")[0] for contrast in summary_table(facts)[:2]]
    assert first_lines == sentences, "before all tables"
    page = (comparison.save(tmp_path / "report")).read_text()
    assert page.index(sentences[0].split(": ")[0]) < page.index(sentences[1].split(": ")[0]) < page.index('id="family"')
    assert summary(tmp_path / "none", []).answers == []


def test_the_overall_verdict_does_not_repeat_the_answers(tmp_path: Path) -> None:
    none, partial, complete = (
        summary(tmp_path / str(number), contrasts).overall
        for number, contrasts in enumerate([[], [("b", "a"), ("a", "c")], [("c", "a"), ("b", "c")]])
    )
    assert none and partial and complete
    for overall in (none, partial, complete):
        assert overall.standing.leader == "c" and overall.standing.behind.keys() == {"a", "b"}
    assert ["c is better than b:" in overall.verdict for overall in (none, partial, complete)] == [True, True, False]


def test_a_contrast_on_one_workload_is_answered_by_its_test(tmp_path: Path) -> None:
    for seed in range(6):
        for index, name in enumerate(("a", "b")):
            write(tmp_path, name, seed, [1.0 + seed / 50, 5, 9 - 3 * index, 10], contrasts=(("b", "a"),))
    facts = summarize(read_runs(tmp_path))
    (answer,), (contrast,) = facts.answers, facts.workloads[0].contrasts
    assert answer.difference.on_these.p == contrast.adjusted_p and answer.difference.value < 0
    assert answer.verdict == ("worse" if contrast.is_significant else "undecided")
    assert "on this workload" in answer.sentence


def test_a_contrast_is_registered_in_each_space(tmp_path: Path) -> None:
    for space in ("x", "y"):
        for name in ("a", "b"):
            write(tmp_path, name, 0, [1, 2], space=Plugin(space), contrasts=(("a", "b"),))
    assert summarize(read_runs(tmp_path)).family.registered_pairs == [("x / a", "x / b"), ("y / a", "y / b")]
