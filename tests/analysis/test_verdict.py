from __future__ import annotations

import math
from pathlib import Path

import pytest

from searchlab.analysis.cells import read_cells
from searchlab.analysis.summary import summarize
from searchlab.analysis.verdict import separable

from .logs import write


def verdict(directory: Path, runs: dict[str, list[int | None]], seconds: dict[str, float] | None = None) -> str:
    """The verdict on strategies by the trial at which each seed finds 10 GFLOPS, of eight trials."""
    for name, found in runs.items():
        for seed, trial in enumerate(found):
            run = [10.0 if i == trial else 1.0 for i in range(1, 9)]
            write(directory, name, seed, run, spent=(0, 0, 0, (seconds or {}).get(name, 1.0)))
    return summarize(read_cells(directory)).workloads[0].verdict


@pytest.mark.parametrize(
    ("ahead", "behind", "expected"),
    [
        ([1, 2, 3], [4, 5, 6], True),
        ([1, 2, 4], [4, 5, 6], False),
        ([1, 2], [4, 5, 6], False),
        ([1, 2, 3], [4], False),
        ([1, 2, 3], [math.inf] * 3, True),
        ([1, 2, math.inf], [math.inf] * 3, False),
    ],
)
def test_separable(ahead: list[float], behind: list[float], expected: bool) -> None:
    assert separable(ahead, behind) is expected


def test_a_clear_winner(tmp_path: Path) -> None:
    assert verdict(tmp_path, {"a": [1, 2, 3], "b": [4, 5, 6], "c": [None, None, 8]}) == (
        "a converges fastest in trials: 95 % of the best known after 2 trials in the median (b: 5 trials), "
        "and every seed of it is ahead of every seed of the others."
    )


def test_two_seeds_separate_nothing(tmp_path: Path) -> None:
    assert verdict(tmp_path, {"a": [1, 2], "b": [7, 8]}) == (
        "a converges fastest in trials: 95 % of the best known after 1.5 trials in the median (b: 7.5 trials), "
        "but it is not separable from b with 2 seeds."
    )


def test_seeds_that_overlap_and_another_leader_in_seconds(tmp_path: Path) -> None:
    found: dict[str, list[int | None]] = {"a": [1, 2, 5], "b": [4, 4, 4], "c": [6, 6, None]}
    assert verdict(tmp_path, found, {"b": 0.1}) == (
        "a converges fastest in trials: 95 % of the best known after 2 trials in the median (b: 4 trials), "
        "but it is not separable from b as their seeds overlap. "
        "In seconds it is b: 0.4 s in the median (a: 2 s), and every seed of it is ahead of every seed of the others."
    )


def test_a_second_that_does_not_get_there(tmp_path: Path) -> None:
    assert "(b: reached by 1 of 3 seeds)" in verdict(tmp_path, {"a": [1, 1, 1], "b": [2, None, None]})


def test_many_rivals_are_not_all_named(tmp_path: Path) -> None:
    runs: dict[str, list[int | None]] = {name: [1, 2, 3] for name in "abcdef"}
    assert "not separable from any other as" in verdict(tmp_path, runs)
    assert "not separable from b, c, d and 2 more as" in verdict(tmp_path, {"z": [7, 7, 7]})


def test_where_hardly_any_seed_gets_there_the_area_decides(tmp_path: Path) -> None:
    text = verdict(tmp_path, {"a": [None, None, 8], "b": [None, None, None]})
    assert text.startswith("a converges fastest by area under the curve (0.10, b 0.10), but it is not separable from b")
    assert text.endswith("; no strategy reaches 95 % of the best known in most of its seeds.")


def test_one_strategy(tmp_path: Path) -> None:
    assert verdict(tmp_path, {"a": [1]}) == "a is the only strategy here: there is nothing to compare it with."
