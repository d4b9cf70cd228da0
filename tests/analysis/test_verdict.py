from __future__ import annotations

from pathlib import Path

from searchlab.analysis.read import read_runs
from searchlab.analysis.summary import summarize
from tests.support.analysis.logs import write


def verdict(directory: Path, runs: dict[str, list[int | None]], seconds: dict[str, float] | None = None) -> str:
    """The verdict on strategies by the trial at which each seed finds 10 GFLOPS, of eight trials."""
    for name, found in runs.items():
        for seed, trial in enumerate(found):
            run = [10.0 if i == trial else 1.0 for i in range(1, 9)]
            write(directory, name, seed, run, spent=(0, 0, 0, (seconds or {}).get(name, 1.0)))
    return summarize(read_runs(directory)).workloads[0].verdict


def test_a_clear_winner(tmp_path: Path) -> None:
    assert verdict(tmp_path, {"a": [1, 2, 3, 2, 2], "b": [4, 5, 6, 5, 5]}) == (
        "a reaches 95 % of the best known in 2 trials [1, 3], compared with 5 trials [4, 6] for b; "
        "by area under the curve, the difference is significant, p = 0.008."
    )


def test_one_trial_is_singular(tmp_path: Path) -> None:
    assert "in 1 trial [1, 1], compared with 5 trials" in verdict(tmp_path, {"a": [1] * 5, "b": [5] * 5})


def test_few_seeds_can_show_nothing_and_how_many_could(tmp_path: Path) -> None:
    text = verdict(tmp_path, {"a": [1, 2, 1], "b": [7, 8, 7]})
    assert text.startswith(
        "No winner: by area under the curve, 3 seeds cannot separate a from b "
        "(a significant result needs at least 4 seeds). a reaches 95 % of the best known in 1 trial, compared with "
        "7 trials for b. "
    )
    assert text.endswith("An interval for a median needs 5 runs; there are 3.")
    text = verdict(tmp_path, {name: [8, 8, 8] for name in "cdef"})
    assert text.startswith(
        "No winner: by area under the curve, 3 seeds cannot separate a from b, c, d, e and f "
        "(a significant result needs at least 6 seeds, corrected for 15 tests). "
    ), "all that are tied are named"


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    assert verdict(tmp_path, {"a": [1], "b": [7]}) == (
        "No winner: by area under the curve, 1 seed cannot separate a from b "
        "(a significant result needs at least 4 seeds). a reaches 95 % of the best known in 1 trial, compared with "
        "7 trials for b. "
        "An interval for a median needs 5 runs; there is 1."
    )


def test_another_leader_in_seconds(tmp_path: Path) -> None:
    found: dict[str, list[int | None]] = {"a": [1, 2, 5, 2, 4, 5], "b": [4, 4, 4, 5, 3, 4]}
    assert verdict(tmp_path, found, {"b": 0.1}) == (
        "No winner: by area under the curve, no difference between a and b is significant with 6 seeds (p = 0.5). "
        "a reaches 95 % of the best known in 3 trials [1.4, 5], compared with 4 trials [3.4, 4.6] for b. "
        "In terms of time, b reaches the target in 0.4 s [0.34, 0.46], compared with 3 s [1.4, 5] for a."
    )


def test_a_second_that_does_not_get_there(tmp_path: Path) -> None:
    assert "compared with 1 of 3 seeds for b." in verdict(tmp_path, {"a": [1, 1, 1], "b": [2, None, None]})


def test_an_interval_that_does_not_end(tmp_path: Path) -> None:
    assert "a reaches 95 % of the best known in 2 trials [1, not reached], compared with" in verdict(
        tmp_path, {"a": [1, 2, 2, 3, None], "b": [3, 3, 3, 4, None]}
    )


def test_a_leader_that_differs_from_some(tmp_path: Path) -> None:
    early, late = [1, 2, 1, 2, 1, 2, 1, 2, 1, 2], [8, 7, 8, 7, 8, 7, 8, 7, 8, 7]
    text = verdict(tmp_path, {"a": early, "b": [2, 1, 2, 1, 2, 1, 2, 1, 3, 2], "c": late})
    assert text.startswith(
        "a is tied with b: by area under the curve, no difference between a and b is significant with 10 seeds (p = "
        "0.78); "
        "a is significantly ahead of c, p = 0.006. a reaches 95 % of the best known in "
    )
    text = verdict(tmp_path, {name: late for name in "defgh"})
    assert text.startswith("a is tied with b: ") and "a is significantly ahead of c, d, e and 3 more, p < 0.001" in text
    text = verdict(tmp_path, {name: [1, 2, 2, 1, 1, 2, 1, 2, 2, 2] for name in "ijkl"})
    assert text.startswith(
        "a is tied with b, i, j, k and l: by area under the curve, no difference between a and these is "
    )


def test_a_leader_that_differs_from_all(tmp_path: Path) -> None:
    runs: dict[str, list[int | None]] = {"a": [1, 2] * 4, "b": [5, 6] * 4, "c": [6, 7] * 4}
    assert "; by area under the curve, its difference from each of the others is significant, p at most 0.0" in verdict(
        tmp_path, runs
    )


def test_a_median_that_misleads_is_not_called_no_difference(tmp_path: Path) -> None:
    """a has the lower median, since just over half of its seeds take 4 trials; but b is the quicker in most pairs."""
    text = verdict(tmp_path, {"a": [4] * 11 + [8] * 9, "b": [1] * 9 + [5] * 11})
    assert text.startswith("a reaches 95 % of the best known in 4 trials")
    assert "; yet by area under the curve, b is significantly better, run for run, p < 0.001." in text


def test_where_hardly_any_seed_gets_there_the_area_decides(tmp_path: Path) -> None:
    text = verdict(tmp_path, {"a": [None, None, 8], "b": [None, None, None]})
    assert text.startswith(
        "No winner: 3 seeds cannot separate a from b (a significant result needs at least 4 seeds). "
    )
    assert text.endswith(
        " a has the largest median area under the curve (0.100, compared with 0.100 for b). "
        "No strategy reaches 95 % of the best known in most of its seeds."
    )


def test_the_start_that_both_share_is_said_where_it_got_there(tmp_path: Path) -> None:
    for seed, found in enumerate([[1, 10, 1, 1], [10, 1, 1, 1], [1, 1, 1, 10]]):
        for name in "ab":
            write(tmp_path, name, seed, found, shared=[f"start {seed} {trial}" for trial in range(2)])
    said = summarize(read_runs(tmp_path)).workloads[0].verdict
    assert "2 trials for b; in 2 of 3 seeds, their shared random start had already reached it." in said


def test_one_strategy(tmp_path: Path) -> None:
    assert verdict(tmp_path, {"a": [1]}) == "a is the only strategy here: there is nothing to compare it with."
