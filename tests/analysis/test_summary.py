from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.analysis.charts.figures import make_charts
from searchlab.analysis.read import read_runs
from searchlab.analysis.summary import Summary, WorkloadSummary, summarize
from searchlab.analysis.verdict import Outcome
from searchlab.log.format import Finalist, FinalistTimes
from searchlab.log.read import read_log
from searchlab.log.writer import LogWriter
from searchlab.plugins import Plugin
from searchlab.records import FAILURES
from searchlab.stats.random_search import RandomDraws
from tests.support.analysis.logs import WORKLOAD, write


def summary(directory: Path) -> Summary:
    return summarize(read_runs(directory))


def summarize_workload(directory: Path) -> WorkloadSummary:
    (item,) = summary(directory).workloads
    return item


def test_every_number_by_hand(tmp_path: Path) -> None:
    write(tmp_path, "slow", 0, [1, "crash", 5, 10], spent=(0.5, 0.25, 2, 1), workers=2, batch=2)
    write(tmp_path, "slow", 1, [2, 4, "invalid", "crash"], spent=(0.5, 0.25, 2, 1), workers=2, batch=2)
    write(tmp_path, "quick", 0, [5, 9.5, 1, 1])
    write(tmp_path, "quick", 1, [10, 1, 1, 1])
    item = summarize_workload(tmp_path)
    assert (item.workload, item.flops, item.horizon) == (WORKLOAD, 10**6, 4)
    assert item.target_gflops == pytest.approx(9.5)
    assert item.best is not None
    assert item.best.gflops == pytest.approx(10) and item.best.seconds == pytest.approx(1e-4)
    assert (item.best.strategy, item.best.seed, item.best.trial) == ("quick", 1, 0)
    assert (item.best.config, item.best.log) == (
        {"tile": [0, 1], "of": "quick 1"},
        "gemm-100x100x50-knob-quick-1.jsonl",
    )

    quick, slow = item.strategies
    assert quick.strategy == "quick" and quick.seeds == [0, 1] and quick.trials_by_seed == [4, 4] and quick.complete
    assert quick.best_gflops.by_seed == pytest.approx([9.5, 10])
    best = quick.best_gflops
    assert (best.lower, best.median, best.upper) == pytest.approx((9.625, 9.75, 9.875))
    assert quick.trials_to_target.by_seed == [2, 1] and quick.trials_to_target.median == 1.5
    assert quick.seconds_to_target.by_seed == [2, 1]
    assert quick.area.by_seed == pytest.approx([(5 + 9.5 * 3) / 40, 1])
    assert sum(quick.failures.values()) == 0

    assert slow.trials_to_target.by_seed == [4, None]
    assert (slow.trials_to_target.reached, slow.trials_to_target.median) == (1, None), "the median of 4 and more than 4"
    assert slow.seconds_to_target.by_seed == [pytest.approx(4 * 2.75), None]
    assert slow.area.by_seed == pytest.approx([(1 + 1 + 5 + 10) / 40, (2 + 4 + 4 + 4) / 40])
    assert slow.failures == {**dict.fromkeys(FAILURES, 0), "crash": 2, "invalid": 1}
    slow_seconds = slow.seconds
    assert (slow_seconds.propose, slow_seconds.train, slow_seconds.build, slow_seconds.run) == pytest.approx(
        (4, 2, 8, 8)
    ), "two workers share 16 s"
    assert slow_seconds.total == pytest.approx(22)


def test_the_median_counts_runs_that_never_reach_the_target(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1, 10, 1])
    write(tmp_path, "a", 1, [1, 1, 10])
    write(tmp_path, "a", 2, [1, 1, 1])
    (row,) = summarize_workload(tmp_path).strategies
    assert (row.trials_to_target.reached, row.trials_to_target.median) == (2, 3)
    assert row.trials_to_target.by_seed == [2, 3, None]


def test_a_seed_that_was_stopped_early_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1, 2, 10, 10])
    write(tmp_path, "a", 1, [1, 2])
    write(tmp_path, "b", 0, [1, 1, 1, 5])
    write(tmp_path, "b", 1, [])
    item = summarize_workload(tmp_path)
    a, b = item.strategies
    assert (a.seeds, a.interrupted, a.trials, a.trials_by_seed, a.complete) == ([0], [1], 4, [4, 2], False)
    assert a.best_gflops.by_seed == pytest.approx([10])
    assert a.trials_to_target.by_seed == [3] and a.trials_to_target.median == 3
    assert item.best is not None and item.best.gflops == pytest.approx(10), "the best known is over all there is"
    assert item.horizon == 4
    assert a.area.by_seed == pytest.approx([(1 + 2 + 10 + 10) / 40])
    assert (b.seeds, b.complete) == ([0], True), "a run without a trial is not counted"
    assert "not complete" in item.verdict
    assert item.notes == [
        "Not counted, because there are no trials yet: gemm-100x100x50-knob-b-1.jsonl.",
        "Stopped before trial 4, and therefore excluded: gemm-100x100x50-knob-a-1.jsonl.",
    ]


def test_one_stopped_seed_in_ten_makes_no_strategy_worse(tmp_path: Path) -> None:
    """Once, all its seeds were cut to the shortest and held against the longer runs of the others."""
    for seed in range(10):
        run = [1, 2, 3, *[4 + (seed + i) % 3 for i in range(6)], 10]
        write(tmp_path, "one", seed, run)
        write(tmp_path, "same", seed, run if seed else run[:2])
    item = summarize_workload(tmp_path)
    same, complete = item.by_strategy["same"], item.by_strategy["one"]
    assert same.area.by_seed == complete.area.by_seed and same.seeds == complete.seeds == list(range(1, 10))
    assert not any(contrast.is_significant for contrast in item.contrasts) and "not complete" in item.verdict


def test_strategies_are_compared_over_the_same_seeds(tmp_path: Path) -> None:
    """Once, means and charts were over all seeds of a strategy, and differences over those that both have."""
    for seed in range(5):
        write(tmp_path, "ahead", seed, [1, 2, 3 + seed, 4 + seed])
        if seed < 3:
            write(tmp_path, "behind", seed, [1, 1, 2 + seed, 5])
    write(tmp_path, "short", 0, [1, 1, 1, 1])
    runs = read_runs(tmp_path)
    (item,) = summarize(runs).workloads
    assert {row.strategy: row.seeds for row in item.strategies} == {
        "ahead": [0, 1, 2],
        "behind": [0, 1, 2],
        "short": [0],
    }
    areas = {row.strategy: row.area.value for row in item.strategies}
    (difference,) = (c.difference.value for c in item.contrasts if {c.first, c.second} == {"ahead", "behind"})
    assert difference == pytest.approx(areas["ahead"] - areas["behind"])
    assert item.notes[0] == (
        "All are compared over the 3 seeds that every strategy has completed: ahead has 5. To compare more, run the "
        "others with these seeds."
    )
    assert item.notes[1].startswith("Compared over fewer seeds than others: short (1 of 3 seeds). ")
    spec = make_charts(summarize(runs), runs)[WORKLOAD]["convergence"].views["trials"]
    medians = {row["strategy"]: row["y"] for row in spec["data"]["values"] if row["x"] == 4}
    assert medians == {"ahead": 5, "behind": 5, "short": 1} and "short (1 of 3 seeds)" in json.dumps(spec)


def test_strategies_are_compared_at_the_common_budget(tmp_path: Path) -> None:
    """Once, each was compared over its own trials: the same strategy with more of them was better, significantly."""
    for seed in range(10):
        run = [1, 2, 3 + seed % 3, 4, 5, 6, 7, 10]
        write(tmp_path, "long", seed, run)
        write(tmp_path, "short", seed, run[:4])
    item = summarize_workload(tmp_path)
    long, short = item.by_strategy["long"], item.by_strategy["short"]
    assert (item.horizon, long.trials, short.trials, long.complete) == (4, 8, 4, True)
    assert (long.area, long.trials_to_target) == (short.area, short.trials_to_target)
    assert {contrast.adjusted_p for contrast in item.contrasts if contrast.p is not None} == {1}
    assert item.notes == [
        "All are compared over the first 4 trials, which every strategy has completed: long completed 8. "
        "To compare more, continue the others."
    ]
    assert "not complete" not in item.verdict


@pytest.mark.parametrize("trials", (2, 6))
def test_an_imported_log_does_not_shorten_the_comparison(tmp_path: Path, trials: int) -> None:
    """Once, comparing a run with an imported log of three trials ignored all but the run's first three."""
    write(tmp_path, "autotvm", 0, [1.0] * trials, measure={"kind": "imported"})
    write(tmp_path, "mine", 0, [1, 2, 3, 4])
    item = summarize_workload(tmp_path)
    assert (item.horizon, item.by_strategy["mine"].trials) == (4, 4)
    assert item.by_strategy["autotvm"].trials == max(trials, 4)
    expected = (
        "ended after 2 of 4 trials, because the imported file has no more; the best program"
        if trials < 4
        else "first 4 trials, which every strategy has completed: autotvm completed 6."
    )
    assert expected in item.notes[0]


def test_equal_runs_from_all_seeds_count_as_one_run(tmp_path: Path) -> None:
    """Once, it was tested as a sample of equal runs."""
    for seed in range(12):
        write(tmp_path, "grid", seed, [1, 1, 1], shared=["x", "y", "z"])
        write(tmp_path, "random", seed, [1, 2, 4 + seed])
        write(tmp_path, "other", seed, [1, 3, 4 + (seed * 7) % 12])
    item = summarize_workload(tmp_path)
    grid = item.by_strategy["grid"]
    assert (grid.seeds, grid.one_run, grid.trials_by_seed) == (list(range(12)), True, [3] * 12)
    assert grid.trials_to_target.lower == grid.trials_to_target.upper
    tests = {(c.first, c.second): c for c in item.contrasts}
    for (first, second), contrast in tests.items():
        one_run = "grid" in (first, second)
        lower = contrast.difference.on_these.difference.lower
        assert (contrast.test == "one run", contrast.p is None, lower is None) == (one_run,) * 3
        assert not (one_run and contrast.is_significant)
        gap = item.by_strategy[first].area.value - item.by_strategy[second].area.value
        assert contrast.difference.value == pytest.approx(gap)
    assert tests["other", "random"].p == tests["other", "random"].adjusted_p, "it is the only test"
    assert item.standing is not None and item.standing.untested == {"grid": "one run"}
    assert item.standing.undecided == pytest.approx({"random": 0.25}, abs=0.005)
    assert "(p = 0.25). There is no test of other against grid (one run). " in item.verdict
    assert item.notes == [
        "grid produces the same run from each of 12 seeds, which does not show how runs vary, so it is not tested."
    ]


def test_a_leader_that_is_one_run_is_not_tested(tmp_path: Path) -> None:
    for seed in range(5):
        write(tmp_path, "grid", seed, [10], shared=["x"])
        write(tmp_path, "a", seed, [1])
    for seed in range(5):
        write(tmp_path, "b", seed, [1])
    item = summarize_workload(tmp_path)
    assert item.standing is not None and item.standing.outcome is Outcome.UNTESTED
    assert item.verdict.startswith("No winner among 3 strategies. There is no test of grid against a and b (one run). ")


def test_a_run_that_ended_after_the_horizon_has_no_note(tmp_path: Path) -> None:
    write(tmp_path, "stops", 0, [1, 2, 5, 10], ended=True)
    write(tmp_path, "running", 0, [1, 2])
    item = summarize_workload(tmp_path)
    assert item.horizon == 2 and not any("ended after" in note for note in item.notes)


def test_a_run_that_ended_early_keeps_its_best_to_the_budget(tmp_path: Path) -> None:
    write(tmp_path, "stops", 0, [1, 10], ended=True)
    write(tmp_path, "stops", 1, [1, 2, 5], ended=True)
    write(tmp_path, "random", 0, [1, 1, 4, 4, 4])
    write(tmp_path, "random", 1, [1, 1, 1, 4, 4])
    item = summarize_workload(tmp_path)
    stops, random = item.strategies
    assert (stops.trials, stops.trials_by_seed, stops.complete, stops.ended) == (5, [2, 3], True, 2)
    assert (random.complete, random.ended, item.horizon) == (True, 0, 5)
    assert stops.best_gflops.by_seed == pytest.approx([10, 5])
    assert stops.area.by_seed == pytest.approx([(1 + 4 * 10) / 50, (1 + 2 + 3 * 5) / 50])
    assert stops.trials_to_target.by_seed == [2, None] and stops.seconds_to_target.by_seed == [2, None]
    assert stops.seconds.total == 5 and "not complete" not in item.verdict
    assert item.notes == [
        "2 runs of stops ended after 2 to 3 of 5 trials, because the policy had nothing more to propose; the best "
        "program found by then counts for the remaining trials."
    ]


def test_runs_that_ended_and_interrupted_runs_are_combined(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1, 10], ended=True)
    write(tmp_path, "a", 1, [1, 2, 3, 4])
    for seed in range(2):
        write(tmp_path, "b", seed, [1, 1, 1, 1])
    a = summarize_workload(tmp_path).by_strategy["a"]
    assert (a.trials, a.complete, a.ended) == (4, True, 1) and a.best_gflops.by_seed == pytest.approx([10, 4])
    write(tmp_path, "a", 2, [1])
    item = summarize_workload(tmp_path)
    a = item.by_strategy["a"]
    assert (a.trials, a.complete, a.ended) == (4, False, 1) and a.best_gflops.by_seed == pytest.approx([10, 4])
    assert item.notes[:2] == [
        "1 run of a ended after 2 of 4 trials, because the policy had nothing more to propose; the best program "
        "found by then counts for the remaining trials.",
        "Stopped before trial 4, and therefore excluded: gemm-100x100x50-knob-a-2.jsonl.",
    ]


def test_if_all_runs_ended_early_the_longest_is_the_budget(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1, 2], ended=True)
    write(tmp_path, "b", 0, [1, 2, 4, 8], ended=True)
    item = summarize_workload(tmp_path)
    assert item.horizon == 4 and {row.trials for row in item.strategies} == {4}
    assert item.by_strategy["a"].area.by_seed == pytest.approx([(1 + 2 * 3) / 32])


def test_runs_without_trials_are_named_in_one_sentence(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1, 2])
    for seed in range(1, 6):
        write(tmp_path, "a", seed, [])
    (note,) = summarize_workload(tmp_path).notes
    assert note.startswith("Not counted") and note.endswith("knob-a-3.jsonl and 2 more.")


def test_seconds_that_were_not_recorded_are_missing(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1, 2], spent=(0, 0, 0, 2))
    (row,) = summarize_workload(tmp_path).strategies
    assert (row.seconds.propose, row.seconds.train, row.seconds.run, row.seconds.total) == (None, None, 4, 4)


def test_a_workload_without_a_success_has_a_verdict(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, ["crash", "run_timeout"])
    write(tmp_path, "b", 0, [])
    item = summarize_workload(tmp_path)
    (row,) = item.strategies
    assert item.best is None and item.target_gflops is None
    assert row.best_gflops.median == row.area.value == 0
    assert (row.trials_to_target.reached, row.trials_to_target.median) == (0, None)
    assert item.verdict == "No trials have succeeded: see the failures."


def test_a_strategy_that_only_fails_has_zero_throughput(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, ["crash", "crash"])
    write(tmp_path, "b", 0, [1, 2])
    assert [row.best_gflops.median for row in summarize_workload(tmp_path).strategies] == pytest.approx([2, 0])


def test_logs_without_a_trial(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [])
    item = summarize_workload(tmp_path)
    assert item.strategies == [] and item.best is None and item.horizon == 0
    assert item.verdict == "No trials have been measured yet."


def test_spaces_are_named_only_where_a_workload_has_several(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1])
    write(tmp_path, "a", 0, [1], workload="gemm:64x64x64", space=Plugin("other"))
    assert [row.strategy for item in summary(tmp_path).workloads for row in item.strategies] == ["a", "a"]
    write(tmp_path, "a", 0, [2], space=Plugin("sketch"), label="mine")
    names = {item.workload: [row.strategy for row in item.strategies] for item in summary(tmp_path).workloads}
    assert names == {WORKLOAD: ["sketch / mine", "knob / a"], "gemm:64x64x64": ["other / a"]}


def test_spellings_of_one_workload_are_one(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1], workload="gemm:100x100x50")
    write(tmp_path / "x", "b", 0, [1], workload="gemm:100x100x50:float32")
    assert [row.strategy for row in summarize_workload(tmp_path).strategies] == ["a", "b"]


def test_hosts_that_differ_are_noted(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1], host={"cpu": "x"})
    write(tmp_path, "a", 1, [2], host={"cpu": "y"})
    assert summarize_workload(tmp_path).notes == [
        "The logs differ in their host (gemm-100x100x50-knob-a-0.jsonl and gemm-100x100x50-knob-a-1.jsonl): "
        "compare times with care."
    ]


def test_strategies_that_proposed_the_same_are_named(tmp_path: Path) -> None:
    for name, shared in (("a", ["x", "y"]), ("b", ["x", "y"]), ("c", ["x"])):
        for seed in range(2):
            write(tmp_path, name, seed, [1, 2], shared=shared)
    (note,) = [note for note in summarize_workload(tmp_path).notes if "proposed the same" in note]
    assert note.startswith("a and b proposed the same configs in all 2 trials")


def test_json_is_plain_and_finite(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1, 2])
    write(tmp_path, "b", 0, ["crash"])
    plain = summary(tmp_path).to_json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["target"] == 0.95 and plain["workloads"][0]["strategies"][1]["trials_to_target"]["median"] is None


throughput = st.floats(0.1, 100) | st.sampled_from(FAILURES)
runs = st.lists(st.lists(throughput, min_size=1, max_size=6), min_size=2, max_size=6)


@settings(max_examples=25)
@given(runs, st.randoms(use_true_random=False))
def test_the_order_of_seeds_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, throughputs: list[list[float]], order: random.Random
) -> None:
    def numbers(runs: list[list[float]]) -> list[object]:
        directory = tmp_path_factory.mktemp("logs")
        for seed, run in enumerate(runs):
            write(directory, "a", seed, run)
            write(directory, "b", seed, [1, 2, 3])
        item = summarize_workload(directory)
        rows = sorted(item.strategies, key=lambda row: row.strategy)
        return [
            (r.trials, r.best_gflops.median, r.best_gflops.upper, r.trials_to_target.median, r.failures) for r in rows
        ] + [
            item.best and item.best.gflops,
            [round(row.area.value, 12) for row in rows],
            [row.strategy for row in item.strategies],
        ]

    shuffled = list(throughputs)
    order.shuffle(shuffled)
    assert numbers(throughputs) == numbers(shuffled)


def test_the_optimum_of_a_complete_table_is_the_best_known(tmp_path: Path) -> None:
    """20 GFLOPS: no run found more than 10, which is half of it."""
    options = {"optimum": 5e-5, "policy": Plugin("random")}
    write(tmp_path, "random", 0, [5, 10, 1], **options)
    for seed in (1, 2, 3):
        write(tmp_path, "random", seed, [1, 5, 5], **options)
    write(tmp_path, "other", 0, [10, 1, 1], optimum=5e-5)
    item = summarize_workload(tmp_path)
    assert item.best is not None and item.best.gflops == pytest.approx(20) and item.best.seconds == 5e-5
    assert (item.best.strategy, item.best.trial, item.best.log) == (None, None, None)
    assert item.target_gflops == pytest.approx(19)
    good, randomly = item.strategies
    assert good.area.by_seed == pytest.approx([0.5]) and good.trials_to_target.by_seed == [None]
    assert randomly.score is not None and randomly.score.value < 0.5 and good.score is not None
    assert good.score.value < 1, "it did not find the optimum of the space"


def test_a_run_that_found_the_optimum_is_named_despite_noise(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [5, 20], optimum=1e6 / 20 / 1e9)
    assert (best := summarize_workload(tmp_path).best) is not None and (best.strategy, best.trial) == ("a", 1)
    write(tmp_path, "b", 0, [5, 25], optimum=1e6 / 20 / 1e9)
    assert (best := summarize_workload(tmp_path).best) is not None and (best.strategy, best.gflops) == (
        "b",
        pytest.approx(25),
    )


def test_a_lucky_draw_of_noise_is_no_target(tmp_path: Path) -> None:
    """Once, one draw of 25 GFLOPS of a program that has 20 was what all others had to reach."""
    noisy = {"measure": {"kind": "table", "noise": True}, "shared": ["x", "y"]}
    write(tmp_path, "a", 0, [5, 25], **noisy)
    write(tmp_path, "b", 0, [5, 20], **noisy)
    write(tmp_path, "b", 1, [5, 19.8], **noisy)
    item = summarize_workload(tmp_path)
    assert item.best is not None and (item.best.gflops, item.best.strategy) == (pytest.approx(20), None)
    assert [row.trials_to_target.reached for row in item.strategies] == [1, 1]
    assert max(item.by_strategy["a"].area.by_seed) == pytest.approx((5 / 20 + 1) / 2)
    for path in tmp_path.iterdir():
        path.unlink()
    write(tmp_path, "a", 0, [5, 25], optimum=1e6 / 20 / 1e9, **noisy)
    assert (best := summarize_workload(tmp_path).best) is not None and best.gflops == pytest.approx(20)


def test_a_note_says_that_finalists_were_measured_again(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 0, [5, 10])
    writer = LogWriter(path, read_log(path).header)
    writer.append(FinalistTimes(trial_count=2, finalists=(Finalist(1, (1e-4,)), Finalist(0, (2e-4,)))))
    writer.close()
    (note,) = summarize_workload(tmp_path).notes
    assert note.startswith(
        "The fastest trials of 1 run were measured again after the search. The best programs are shown with these "
        "times;"
    )


def test_the_shared_random_start_is_excluded_from_the_score(tmp_path: Path) -> None:
    """Once, a score was the mean over trials that were mostly this start, and all strategies had much the same."""
    for seed in range(4):
        start = [f"start {seed} {trial}" for trial in range(4)]
        write(tmp_path, "random", seed, [1, 2, 3, 4, 4, 5, 5, 5 + seed], shared=start)
        write(tmp_path, "learns", seed, [1, 2, 3, 4, 9, 9, 9, 9], shared=start)
        write(tmp_path, "own", seed, [1, 2, 3, 4, 9, 9, 9, 9])
    item = summarize_workload(tmp_path)
    rows = item.by_strategy
    assert {row.score_first for row in rows.values()} == {5} and rows["random"].score_trials == 8
    learns, own = rows["learns"].score, rows["own"].score
    assert learns and own and learns.by_seed == own.by_seed == pytest.approx([1] * 4)


def test_exhaustive_random_search_matches_its_expected_curve(tmp_path: Path) -> None:
    gflops = np.array([1.0, 2, 4, 8, 16, 3, 5])
    costs = 1e-3 / gflops
    random_draws = RandomDraws.from_costs(costs, 7)
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(7)
        run, names = gflops[order].tolist(), [f"config {i}" for i in order]
        write(tmp_path / "runs", "random", seed, run, shared=names)
        write(
            tmp_path / "table", "random", seed, run, shared=names, random_draws=random_draws, optimum=float(costs.min())
        )
        write(tmp_path / "table", "other", seed, [16.0] * 7)
    (row,) = summarize_workload(tmp_path / "runs").strategies
    rows = summarize_workload(tmp_path / "table").by_strategy
    random, other = rows["random"].score, rows["other"].score
    assert row.score and random and row.score.by_seed == pytest.approx(random.by_seed)
    assert other and other.by_seed == pytest.approx([1] * 4)


def timed_study(directory: Path) -> Path:
    """In 20 seconds, one strategy has 20 quick trials, and one has 4 that are better per trial."""
    for seed in range(6):
        quick = [2 + index + seed / 100 for index in range(20)]
        write(directory, "quick", seed, quick, ended=20.0)
        write(directory, "slow", seed, [5, 9, 13, 18 + seed / 100], spent=(1, 0, 0, 4), ended=20.0)
    return directory


def test_runs_limited_by_seconds_are_compared_over_seconds(tmp_path: Path) -> None:
    runs = read_runs(timed_study(tmp_path))
    summary = summarize(runs)
    (item,) = summary.workloads
    assert summary.by == "seconds" and runs[WORKLOAD].seconds_horizon == 20
    assert [row.strategy for row in item.strategies] == ["quick", "slow"]
    assert all(row.area == row.area_by_seconds for row in item.strategies)
    assert "area under the curve over seconds" in item.verdict and "over seconds" in summary.family.description
    assert not any("trials" in note for note in item.notes), "the numbers of trials do not matter"
    charts = make_charts(summary, runs)[WORKLOAD]
    assert next(iter(charts["convergence"].views)) == "seconds", "the first view shows what is tested"
    for group in runs[WORKLOAD].strategies.values():
        assert group.budget_parts.areas.mean() == pytest.approx(item.by_strategy[group.strategy].area.value)


def test_the_area_over_trials_is_compared_on_demand(tmp_path: Path) -> None:
    summary = summarize(read_runs(timed_study(tmp_path), by="trials"))
    (item,) = summary.workloads
    assert summary.by == "trials" and [row.strategy for row in item.strategies] == ["slow", "quick"]
    assert all(row.area != row.area_by_seconds for row in item.strategies) and "over seconds" not in item.verdict


def test_a_limit_in_seconds_on_some_runs_changes_nothing(tmp_path: Path) -> None:
    write(timed_study(tmp_path), "endless", 0, [1, 2, 3])
    assert summarize(read_runs(tmp_path)).by == "trials"


def test_runs_that_have_not_spent_their_seconds_are_left_out(tmp_path: Path) -> None:
    timed_study(tmp_path)
    write(tmp_path, "slow", 6, [5, 9], spent=(1, 0, 0, 4))
    (item,) = summarize(read_runs(tmp_path, by="seconds")).workloads
    assert item.by_strategy["slow"].seeds == list(range(6))
    (note,) = item.notes
    assert note.startswith("Stopped before 20 seconds, and therefore excluded")
