from __future__ import annotations

from pathlib import Path

import pytest

from searchlab.analysis.comparison import Comparison
from searchlab.analysis.model import Summary
from searchlab.analysis.read import read_runs
from searchlab.analysis.report import summary_table
from searchlab.analysis.stats.ranks import one_family
from searchlab.analysis.summary import summarize
from searchlab.analysis.words import number_text
from searchlab.plugins import Plugin
from tests.support.analysis.logs import write

WORKLOADS = ["gemm:100x100x50", "gemm:64x64x64"]


def summary(directory: Path, contrasts: list[tuple[str, str]], late: str = "") -> Summary:
    """Of three strategies on two workloads; ``late``: the strategy of which one run began before the registration."""
    directory.mkdir(exist_ok=True)
    for workload in WORKLOADS:
        for seed in range(4):
            for place, name in enumerate(("a", "b", "c")):
                known = () if (name, seed) == (late, 0) else tuple(contrasts)
                found = [1.0 + place, 4 + seed % 2 + place, 9, 10 + (seed + place) % 3]
                write(directory, name, seed, found, workload=workload, contrasts=known)
    return summarize(read_runs(directory))


def test_all_tests_of_a_report_are_one_family(tmp_path: Path) -> None:
    found = summary(tmp_path, [])
    assert found.overall is not None
    compared = [c for item in found.workloads for c in item.contrasts] + found.overall.contrasts
    tested = {number: c.p for number, c in enumerate(compared) if c.p is not None}
    assert len(tested) == found.family.tests == 9 and {compared[number].measure for number in tested} == {"area"}
    adjusted = one_family(tested)
    assert {number: compared[number].adjusted for number in tested} == pytest.approx(adjusted)
    assert "9 tests" in found.family.says and "No contrast was registered" in found.family.says


def test_a_contrast_is_registered_if_every_log_names_it(tmp_path: Path) -> None:
    found = summary(tmp_path / "all", [("b", "a")])
    assert found.family.registered == [("b", "a")] and "Registered before the runs: b against a" in found.family.says
    explored = summary(tmp_path / "none", [])
    assert found.overall is not None and explored.overall is not None
    registered, alone = (
        next(c for c in one.overall.contrasts if {c.first, c.second} == {"a", "b"}) for one in (found, explored)
    )
    assert registered.p == alone.p and registered.adjusted is not None and alone.adjusted is not None
    assert registered.adjusted < alone.adjusted
    assert registered.adjusted == pytest.approx(min(1, (registered.p or 0) / 0.8)), "one test over all workloads"
    assert summary(tmp_path / "late", [("b", "a")], late="a").family.registered == []
    assert summary(tmp_path / "other", [("b", "a")], late="c").family.registered == [("b", "a")]


def test_registered_contrasts_are_answered_in_order(tmp_path: Path) -> None:
    found = summary(tmp_path, [("b", "a"), ("a", "c")])
    assert [(one.first, one.second) for one in found.answers] == [("b", "a"), ("a", "c")]
    answer = found.answers[1]
    assert answer.verdict == ("better" if answer.difference.value > 0 else "worse")
    ends = answer.difference.on_these.difference
    assert ends.lower is not None and ends.upper is not None and ends.lower < answer.difference.value < ends.upper
    assert answer.says.startswith(
        f"a is {answer.verdict} than c: area under the curve {answer.difference.value:+.3f}, "
    )
    assert "on these 2 workloads" in answer.says and "like these" not in answer.says
    comparison = Comparison(read_runs(tmp_path))
    says = [one.says for one in found.answers]
    assert comparison.verdict.splitlines()[:2] == says
    shown = [str(one) for one in summary_table(found)[:2]]
    assert shown == says, "before all tables"
    page = (comparison.save(tmp_path / "report")).read_text()
    assert page.index(says[0].split(": ")[0]) < page.index(says[1].split(": ")[0]) < page.index('id="family"')
    assert summary(tmp_path / "none", []).answers == []


def test_the_overall_verdict_does_not_repeat_the_answers(tmp_path: Path) -> None:
    none, some, every = (
        summary(tmp_path / str(number), contrasts).overall
        for number, contrasts in enumerate([[], [("b", "a"), ("a", "c")], [("c", "a"), ("b", "c")]])
    )
    assert none and some and every
    assert "its difference from each of the others is significant" in none.verdict and "c minus b" in none.verdict
    assert some.verdict.startswith("Apart from the registered contrasts, c is tied with b across 2 workloads: ")
    assert "c minus b" in some.verdict and " a " not in some.verdict.replace("a fair", "")
    area, second = (number_text(row.area.value, 3) for row in every.strategies[:2])
    assert every.verdict.startswith(f"Across 2 workloads, c has the largest mean area under the curve ({area} [")
    assert f", compared with {second} [" in every.verdict and " p " not in every.verdict and "less" not in every.verdict


def test_a_contrast_on_one_workload_is_answered_by_its_test(tmp_path: Path) -> None:
    for seed in range(6):
        for place, name in enumerate(("a", "b")):
            write(tmp_path, name, seed, [1.0 + seed / 50, 5, 9 - 3 * place, 10], contrasts=(("b", "a"),))
    found = summarize(read_runs(tmp_path))
    (answer,), (contrast,) = found.answers, [c for c in found.workloads[0].contrasts if c.measure == "area"]
    assert answer.difference.on_these.p == contrast.adjusted and answer.difference.value < 0
    assert answer.verdict == ("worse" if contrast.significant else "undecided") and "on this workload" in answer.says


def test_a_contrast_is_registered_in_each_space(tmp_path: Path) -> None:
    for space in ("x", "y"):
        for name in ("a", "b"):
            write(tmp_path, name, 0, [1, 2], space=Plugin(space), contrasts=(("a", "b"),))
    assert summarize(read_runs(tmp_path)).family.registered == [("x / a", "x / b"), ("y / a", "y / b")]
