from __future__ import annotations

from pathlib import Path

import pytest

from searchlab.analysis.model import Summary
from searchlab.analysis.read import read_runs
from searchlab.analysis.stats.family import one_family
from searchlab.analysis.summary import summarize
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


def test_a_contrast_counts_as_registered_where_every_log_of_both_names_it(tmp_path: Path) -> None:
    found = summary(tmp_path / "all", [("b", "a")])
    assert found.family.registered == [("a", "b")] and "Registered before the runs: a and b" in found.family.says
    explored = summary(tmp_path / "none", [])
    for one, other in zip(found.workloads, explored.workloads, strict=True):
        pairs = [(c, o) for c, o in zip(one.contrasts, other.contrasts, strict=True) if c.p is not None]
        (registered, alone) = next((c, o) for c, o in pairs if {c.first, c.second} == {"a", "b"})
        assert registered.adjusted is not None and alone.adjusted is not None
        assert registered.adjusted < alone.adjusted
    assert summary(tmp_path / "late", [("b", "a")], late="a").family.registered == []
    assert summary(tmp_path / "other", [("b", "a")], late="c").family.registered == [("a", "b")]


def test_a_contrast_is_registered_in_each_space(tmp_path: Path) -> None:
    for space in ("x", "y"):
        for name in ("a", "b"):
            write(tmp_path, name, 0, [1, 2], space=Plugin(space), contrasts=(("a", "b"),))
    assert summarize(read_runs(tmp_path)).family.registered == [("x / a", "x / b"), ("y / a", "y / b")]
