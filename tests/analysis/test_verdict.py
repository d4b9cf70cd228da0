from __future__ import annotations

from pathlib import Path
from statistics import fmean

from searchlab.analysis.read import read_runs
from searchlab.analysis.summary import WorkloadSummary, summarize
from searchlab.analysis.verdict import Outcome, Standing, judge_contrast
from tests.support.analysis.logs import write

Runs = dict[str, list[int | None]]


def workload(directory: Path, runs: Runs) -> WorkloadSummary:
    """Of strategies that find 10 GFLOPS at the given trial of each seed, of eight trials."""
    for name, trials in runs.items():
        for seed, trial in enumerate(trials):
            run = [10.0 if i == trial else 1.0 for i in range(1, 9)]
            write(directory, name, seed, run)
    return summarize(read_runs(directory)).workloads[0]


def standing(directory: Path, runs: Runs) -> Standing:
    facts = workload(directory, runs).standing
    assert facts is not None
    return facts


def test_a_clear_winner(tmp_path: Path) -> None:
    summary = workload(tmp_path, {"a": [1, 2, 3, 2, 2], "b": [4, 5, 6, 5, 5]})
    assert summary.standing is not None and summary.standing.outcome is Outcome.AHEAD
    assert (summary.standing.leader, list(summary.standing.behind)) == ("a", ["b"])
    assert summary.verdict == (
        "a is significantly better than b by area under the curve (p = 0.0079). "
        "Mean area under the curve: a 0.887 [0.789, 0.986], b 0.550 [0.451, 0.649]."
    )


def test_few_seeds_can_show_nothing(tmp_path: Path) -> None:
    summary = workload(tmp_path, {"a": [1, 2, 1], "b": [7, 8, 7]})
    facts = summary.standing
    assert facts is not None and facts.outcome is Outcome.TOO_FEW_SEEDS and facts.undecided.keys() == {"b"}
    assert (facts.seeds, facts.seeds_needed) == (3, 4)
    assert summary.verdict.startswith("No winner: a cannot be told apart from b") and "at least 4." in summary.verdict


def test_seeds_needed_depend_on_the_tests(tmp_path: Path) -> None:
    runs: Runs = {"a": [1, 2, 1], "b": [7, 8, 7]}
    facts = standing(tmp_path, runs | {name: [8, 8, 8] for name in "cdef"})
    assert facts.seeds_needed == 6 and list(facts.undecided) == ["b", "c", "d", "e", "f"]


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    summary = workload(tmp_path, {"a": [1], "b": [7]})
    assert summary.standing is not None and summary.standing.seeds == 1
    assert summary.verdict.endswith("Mean area under the curve: a 1.000, b 0.325.")


def test_a_leader_that_differs_from_some(tmp_path: Path) -> None:
    early, late = [1, 2, 1, 2, 1, 2, 1, 2, 1, 2], [8, 7, 8, 7, 8, 7, 8, 7, 8, 7]
    runs: Runs = {"a": [*early], "b": [2, 1, 2, 1, 2, 1, 2, 1, 3, 2], "c": [*late]}
    summary = workload(tmp_path, runs)
    assert summary.standing is not None and summary.standing.outcome is Outcome.AHEAD_OF_SOME
    assert summary.verdict.startswith("a is first by area under the curve: it is significantly better than c (p = 0.0")
    assert "), but cannot be told apart from b (p = 0.78)" in summary.verdict
    facts = standing(tmp_path, {name: [*late] for name in "defgh"})
    assert (list(facts.undecided), len(facts.behind)) == (["b"], 6)
    facts = standing(tmp_path, {name: [1, 2, 2, 1, 1, 2, 1, 2, 2, 2] for name in "ijkl"})
    assert list(facts.undecided) == ["i", "j", "k", "l", "b"]


def test_a_leader_that_differs_from_all(tmp_path: Path) -> None:
    facts = standing(tmp_path, {"a": [1, 2] * 4, "b": [5, 6] * 4, "c": [6, 7] * 4})
    assert facts.outcome is Outcome.AHEAD and list(facts.behind) == ["b", "c"]


def test_a_mean_that_ranks_contradict(tmp_path: Path) -> None:
    """b is one trial faster with most seeds, but much slower with a few, so that its mean area is smaller."""
    summary = workload(tmp_path, {"a": [5] * 34 + [1] * 6, "b": [4] * 34 + [8] * 6})
    facts = summary.standing
    assert facts is not None
    assert (facts.outcome, facts.leader, list(facts.better)) == (Outcome.CONTRADICTED, "a", ["b"])
    assert summary.verdict.startswith(
        "No winner: a has the largest mean area, but b is significantly better in a test of ranks (p = 0.0"
    )
    (contrast,) = summary.contrasts
    assert judge_contrast(contrast) == judge_contrast(contrast.reversed()) == "undecided"


def test_the_first_of_the_ranking_has_the_largest_mean(tmp_path: Path) -> None:
    """By the median, of trials and of the area, b would be the first."""
    summary = workload(tmp_path, {"a": [4, 4, 4, 4, 4], "b": [3, 3, 3, 8, 8]})
    assert [row.strategy for row in summary.strategies] == ["a", "b"]
    assert summary.standing is not None and summary.standing.leader == "a"
    values = [row.area.value for row in summary.strategies]
    assert values == [fmean(row.area.by_seed) for row in summary.strategies]
    assert f"Mean area under the curve: a {values[0]:.3f}, b {values[1]:.3f} [" in summary.verdict


def test_one_strategy(tmp_path: Path) -> None:
    summary = workload(tmp_path, {"a": [1]})
    assert summary.standing is None
    assert summary.verdict == "a is the only strategy here: there is nothing to compare it with."
