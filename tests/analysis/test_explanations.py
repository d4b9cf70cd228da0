from __future__ import annotations

from pathlib import Path

from searchlab.analysis import read_runs
from searchlab.analysis.explanations import describe_speedup, explain
from tests.support.analysis.logs import WORKLOAD, write

SECOND_WORKLOAD = "gemm:100x100x500"


def test_a_loss_is_explained_by_part_workload_and_trials(tmp_path: Path) -> None:
    for seed in range(2):
        for workload, first in ((WORKLOAD, 1.0), (SECOND_WORKLOAD, 4.0)):
            write(tmp_path, "quick", seed, [10.0] * 16, workload=workload)
            write(tmp_path, "slow", seed, [first, "crash", "crash", first, *[10.0] * 12], workload=workload)
    runs = list(read_runs(tmp_path).values())
    says = explain("slow", "quick", runs)
    assert says.startswith("slow falls behind quick in the first 25 % of the budget, most on gemm:100x100x50 (-0.2")
    assert "50 % failed (quick: 0 %)" in says
    assert explain("quick", "slow", runs) == "" and explain("quick", "none", runs) == ""


def test_a_value_that_the_loser_hardly_tried_is_named(tmp_path: Path) -> None:
    for seed in range(2):
        for name, count in (("quick", 12), ("slow", 2)):
            shared = [*["fast"] * count, *["other"] * (16 - count)]
            write(
                tmp_path,
                name,
                seed,
                [10.0 if of == "fast" else 1.0 + (name == "quick") for of in reversed(shared)],
                shared=shared[::-1],
            )
    says = explain("slow", "quick", list(read_runs(tmp_path).values()))
    assert says.endswith("12 % of its trials had of = fast, as in the fastest config (quick: 75 %).")


def test_the_size_of_a_difference_is_stated_in_practice(tmp_path: Path) -> None:
    for seed in range(2):
        for workload in (WORKLOAD, SECOND_WORKLOAD):
            write(tmp_path, "quick", seed, [4, 10, 12, 12], workload=workload)
            write(tmp_path, "slow", seed, [1, 2, 5, 8], workload=workload)
    runs = list(read_runs(tmp_path).values())
    assert describe_speedup("slow", "quick", runs) == (
        "The best programs of quick are 50.0 % faster than those of slow (geometric mean over 2 workloads), "
        "and it matches them after 50 % of the budget."
    )
    assert describe_speedup("quick", "slow", runs[:1]) == (
        "The best programs of slow are 33.3 % slower than those of quick."
    )
    assert describe_speedup("quick", "none", runs) == ""


def test_large_differences_are_ratios(tmp_path: Path) -> None:
    write(tmp_path, "quick", 0, [12, 12])
    write(tmp_path, "slow", 0, [1, 1])
    runs = list(read_runs(tmp_path).values())
    assert describe_speedup("slow", "quick", runs).startswith(
        "The best programs of quick are 12.0 times as fast as those"
    )


def test_programs_that_are_slower_in_the_end_match_nothing(tmp_path: Path) -> None:
    for workload, final in ((WORKLOAD, 20), (SECOND_WORKLOAD, 2)):
        write(tmp_path, "quick", 0, [8, 8, 8, final], workload=workload)
        write(tmp_path, "slow", 0, [1, 1, 1, 10], workload=workload)
    size = describe_speedup("slow", "quick", list(read_runs(tmp_path).values()))
    assert size.endswith("(geometric mean over 2 workloads).")
