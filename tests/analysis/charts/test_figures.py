from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.analysis import read_runs, summarize
from searchlab.analysis.charts.figures import (
    MAX_POINTS,
    group_workloads,
    list_workload_differences,
    make_charts,
    sample_values,
)
from searchlab.analysis.charts.vegalite import MAX_HIGHLIGHTED, LineStyles
from searchlab.analysis.words import format_ranges
from tests.support.analysis.logs import WORKLOAD, write


@given(st.lists(st.floats(0, 10) | st.just(math.inf)))
def test_a_sample_keeps_the_largest_value(values: list[float]) -> None:
    finite = sorted({value for value in values if value < math.inf})
    assert sample_values(np.array(values)).tolist() == finite, "there are not more than are drawn"
    many = np.array([*values, *range(1000)])
    assert (
        len(sample_values(many)) == MAX_POINTS and {*sample_values(many)} <= {*many} and sample_values(many)[-1] == 999
    )


def test_consecutive_numbers_are_written_as_a_range() -> None:
    assert format_ranges([7, 0, 2, 1, 42, 43]) == "0 to 2, 7, 42, 43" and format_ranges([3]) == "3"


def test_differences_are_those_of_contrasts_and_answers(tmp_path: Path) -> None:
    for workload in (WORKLOAD, "gemm:100x100x500"):
        for seed in range(8):
            for name, gain in (("mine", 3.0), ("tpe", 2.9), ("zzz", 0.0)):
                throughputs = (np.random.default_rng([seed, len(name)]).random(12) + gain).tolist()
                write(
                    tmp_path, name, seed, throughputs, workload=workload, contrasts=(("mine", "zzz"), ("mine", "tpe"))
                )
    summary = summarize(read_runs(tmp_path))
    names = [row.strategy for row in summary.workloads[0].strategies]
    references = LineStyles.from_summary(summary, read_runs(tmp_path)).references(names)
    assert references[0] == "tpe", "of what a strategy was registered to be compared with, the best"
    gaps = {(gap.first, gap.second): gap for gap in summary.contrasts}
    assert gaps.keys() == {("mine", "tpe"), ("mine", "zzz"), ("tpe", "zzz")}, "best first"
    assert gaps["mine", "zzz"].is_significant
    _, answer = summary.answers
    assert gaps["mine", "tpe"].difference == answer.difference, "the number of the answer"


def test_one_workload_has_differences_and_no_pair_has_none(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path, "random", seed, [1, 2, 3 + seed])
    assert summarize(read_runs(tmp_path)).contrasts == []
    for seed in range(3):
        write(tmp_path, "a", seed, [2, 3, 4 + seed])
    summary = summarize(read_runs(tmp_path))
    styles = LineStyles.from_summary(summary, read_runs(tmp_path))
    assert styles.references(["a", "random"]) == ["random", "a"] and len(summary.contrasts) == 1, (
        "random search comes first"
    )


@pytest.mark.parametrize("number", [3, 9, 23])
def test_six_strategies_are_highlighted_in_colours_of_their_own(tmp_path: Path, number: int) -> None:
    for index in range(number):
        for seed in range(2):
            write(tmp_path, f"s{index:02}", seed, [1.0, 2.0 + index], contrasts=(("s01", "s00"),))
    comparison = read_runs(tmp_path)
    looks = LineStyles.from_summary(summarize(comparison), comparison)
    assert looks.subject == "s01" and looks.highlighted[:2] == ["s01", "s00"]
    assert len(looks.highlighted) == min(number, MAX_HIGHLIGHTED)
    assert f"s{number - 1:02}" in looks.highlighted, "the best"
    assert sorted(looks.names) == [f"s{index:02}" for index in range(number)]
    assert len({looks.colour(name) for name in looks.highlighted}) == len(looks.highlighted)
    assert [name for name in looks.names if looks.colour(name) == looks.colour("s01")] == ["s01"]


def test_a_strategy_has_the_same_colour_in_all_reports() -> None:
    baselines = ["random", "evolutionary", "xgb", "tpe", "gp-prior", "baco", "cmaes", "evolutionary-model"]
    styles = LineStyles(baselines, None, baselines, baselines, [])
    assert len({*map(styles.colour, baselines)}) == len(baselines)
    for names in (baselines[:2], ["mine", *baselines], [*baselines, *(f"s{number}" for number in range(30))]):
        other_styles = LineStyles(names, "mine", names[:6], names, [])
        for name in set(names) & set(baselines):
            assert (other_styles.colour(name), other_styles.dash(name)) == (styles.colour(name), styles.dash(name))


def test_lines_of_the_same_colour_have_different_dashes() -> None:
    names = [f"s{number}" for number in range(23)]
    styles = LineStyles(names, None, names[:6], names, [])
    assert len({(styles.colour(name), tuple(styles.dash(name))) for name in names}) == 23


def test_a_pair_without_a_test_has_no_interval(tmp_path: Path) -> None:
    """A strategy that makes the same run from every seed does not show how runs vary."""
    for seed in range(5):
        write(tmp_path, "random", seed, [1, 2 + seed, 3 + seed])
        write(tmp_path, "grid", seed, [1, 2, 3], shared=["a", "b", "c"])
    (difference,) = summarize(read_runs(tmp_path)).contrasts
    assert difference.p is None and difference.difference.on_these.difference.lower is None


def test_the_area_is_the_mean_of_its_eighths(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path, "random", seed, np.random.default_rng(seed).exponential(1, 40).tolist())
    runs = read_runs(tmp_path)
    (row,) = summarize(runs).workloads[0].strategies
    parts = runs[WORKLOAD].strategies["random"].budget_parts
    assert parts.areas.shape == (8,) and parts.areas.mean() == pytest.approx(row.area.value)


def test_trials_are_near_the_best_slow_or_failed(tmp_path: Path) -> None:
    """The median of random search is 2 GFLOPS."""
    write(tmp_path, "random", 0, [1, 2, 3] * 5 + [2])
    write(tmp_path, "a", 0, ["crash", 5, 5, 4.9, 5, 1, 5, 3, "crash", "crash", 10, 9, 1, 1, 10, 2])
    parts = read_runs(tmp_path)[WORKLOAD].strategies["a"].budget_parts
    assert parts.near_best_shares.tolist() == [0.5, 1, 0.5, 0.5, 0, 0.5, 0, 0.5], "5 is not near once 10 is found"
    assert parts.slow_shares.tolist() == [0, 0, 0.5, 0, 0, 0, 1, 0]
    assert parts.failed_shares.tolist() == [0.5, 0, 0, 0, 1, 0, 0, 0]


def test_a_budget_of_few_trials_has_empty_eighths(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1, 2, 4])
    parts = read_runs(tmp_path)[WORKLOAD].strategies["a"].budget_parts
    assert parts.areas.mean() == pytest.approx((1 + 2 + 4) / 3 / 4) and np.isnan(parts.slow_shares).all()
    assert parts.near_best_shares[~np.isnan(parts.near_best_shares)].tolist() == [1, 1, 1], (
        "a part without trials has no share"
    )


def test_differences_on_workloads_average_to_the_difference(tmp_path: Path) -> None:
    conv2d = "conv2d:1x14x14x64x64x3x3:p1"
    for workload, gain in ((WORKLOAD, 1.0), (conv2d, 3.0)):
        for seed in range(4):
            for name, best in (("mine", gain), ("random", 2.0)):
                target = {"kind": "llvm", "num-cores": 1 + (workload == conv2d)}
                write(tmp_path, name, seed, [1, best + seed / 10], workload=workload, target=target)
    runs = read_runs(tmp_path)
    summary = summarize(runs)
    rows = list_workload_differences(summary)
    (gap,) = summary.contrasts
    signs = [1 if row["first"] == "mine" else -1 for row in rows]
    signed = {row["workload"]: sign * row["difference"] for row, sign in zip(rows, signs, strict=True)}
    assert np.mean(list(signed.values())) == pytest.approx(
        (1 if gap.first == "mine" else -1) * gap.difference.value, abs=1e-4
    )
    groups = list(group_workloads(runs).values())
    assert groups == ["conv2d, 2 threads", "gemm, 1 thread"]
    (spec,) = make_charts(summary, runs)[""]["workloads"].views.values()
    colours = spec["layer"][-1]["encoding"]["color"]["scale"]
    assert colours["domain"] == groups, "a group has the same colour for all pairs of strategies"
    assert signed[0] > 0 > signed[1] and all(row["lower"] <= row["difference"] <= row["upper"] for row in rows)
