"""What the analysis says where the truth is known: strategies simulated on a table of costs."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from searchlab.analysis.contrasts import TestKind
from searchlab.analysis.runs import LoggedRun, WorkloadRuns
from searchlab.analysis.summary import Summary, summarize
from searchlab.analysis.verdict import Outcome
from searchlab.arrays import Floats
from searchlab.log.columns import LogColumns
from searchlab.log.format import Log, Record
from searchlab.stats.intervals import mean_interval
from searchlab.stats.random_search import RandomDraws, RandomSearch
from searchlab.stats.ranks import rank_sum_test, signed_rank_test
from tests.support.analysis.contrasts import contrasts
from tests.support.analysis.logs import WORKLOAD, header

SIGNED_RANK, RANK_SUM = TestKind.SIGNED_RANK, TestKind.RANK_SUM


TABLE = np.random.default_rng(7).lognormal(-7, 0.5, 150)
SHARED, TRIALS = 16, 40

Order = np.ndarray[tuple[int], np.dtype[np.int64]]


def order(random: np.random.Generator, seed: Order, sharp: float = 0.0) -> Order:
    """The configs of one run: those of its seed first, then random ones; ``sharp``: how much better than at random."""
    rest = np.setdiff1d(np.arange(len(TABLE)), seed)
    keys = random.gumbel(size=len(rest)) - sharp * np.log(TABLE[rest])
    return np.concatenate((seed, rest[np.argsort(-keys)]))[:TRIALS]


def runs(random: np.random.Generator, seeds: int, sharps: list[float]) -> list[list[Order]]:
    """Return the runs of each strategy from all seeds; runs from one seed begin with the same configs."""
    starts = [random.permutation(len(TABLE))[:SHARED] for _ in range(seeds)]
    return [[order(random, start, sharp) for start in starts] for sharp in sharps]


def summary(strategies: dict[str, list[Order]], seeds: list[int] | None = None) -> Summary:
    by_strategy = {}
    for name, orders in strategies.items():
        by_strategy[name] = [
            LoggedRun(
                WORKLOAD,
                name,
                LogColumns.from_log(Log(Path(name), header(name, seed), records(configs))),
                f"{name}-{seed}",
            )
            for seed, configs in zip(seeds or range(len(orders)), orders, strict=True)
        ]
    return summarize({WORKLOAD: WorkloadRuns(WORKLOAD, by_strategy)})


def records(configs: Order) -> tuple[Record, ...]:
    return tuple(
        Record(index=i, config={"tile": [int(c), 1]}, seconds=(float(TABLE[c]),), run_seconds=1.0)
        for i, c in enumerate(configs)
    )


def hits(configs: Order) -> float:
    reached = TABLE[configs] <= np.quantile(TABLE, 0.01)
    return float(np.argmax(reached)) + 1 if reached.any() else np.inf


def area(configs: Order) -> float:
    return -float((TABLE.min() / np.minimum.accumulate(TABLE[configs])).mean())


@pytest.mark.parametrize("measure", [hits, area])
@pytest.mark.parametrize(("strategies", "seeds"), [(2, 5), (2, 8), (2, 10), (4, 5), (4, 10)])
def test_equal_strategies_rarely_get_a_verdict(strategies: int, seeds: int, measure: Callable[[Order], float]) -> None:
    random, number, alarms = np.random.default_rng(strategies * 100 + seeds), 300 if strategies == 2 else 100, 0
    for _ in range(number):
        strategy_runs = runs(random, seeds, [0.0] * strategies)
        values = {
            str(i): {s: measure(run) for s, run in enumerate(runs_of_one)}
            for i, runs_of_one in enumerate(strategy_runs)
        }
        pairs = contrasts(values)
        alarms += any(contrast.is_significant for contrast in pairs)
        assert {c.test for c in pairs} == {
            SIGNED_RANK if (strategies, seeds) in ((2, 8), (2, 10), (4, 10)) else RANK_SUM
        }
    assert alarms <= binom.ppf(0.99, number, 0.05)


@pytest.mark.parametrize("seeds", [6, 10])  # unpaired and paired
def test_the_verdict_on_a_strategy_and_itself_is_right(seeds: int) -> None:
    random, number = np.random.default_rng(1), 100
    alarms = 0
    for _ in range(number):
        first, second = runs(random, seeds, [0.0, 0.0])
        standing = summary({"one": first, "other": second}).workloads[0].standing
        assert standing is not None
        alarms += standing.outcome is not Outcome.UNDECIDED
    assert alarms <= 0.05 * number


@pytest.mark.parametrize("measure", [hits, area])
def test_a_better_strategy_is_found_better(measure: Callable[[Order], float]) -> None:
    random, successes = np.random.default_rng(2), 0
    for _ in range(50):
        blunt, sharp = runs(random, 10, [0.0, 6.0])
        (contrast,) = contrasts({n: {s: measure(r) for s, r in enumerate(o)} for n, o in (("b", blunt), ("s", sharp))})
        successes += contrast.is_ahead("s", "b")
        assert not contrast.is_ahead("b", "s")
    assert successes >= 40


def test_pairing_by_seed_finds_more() -> None:
    generator, paired, pooled = np.random.default_rng(9), 0, 0
    for _ in range(60):
        blunt, sharp = (np.array([area(run) for run in sample]) for sample in runs(generator, 10, [0.0, 3.0]))
        paired += signed_rank_test(blunt, sharp) <= 0.05
        pooled += rank_sum_test(blunt, sharp) <= 0.05
    assert paired > pooled + 6


def test_random_search_scores_0_and_an_oracle_1() -> None:
    random, best = np.random.default_rng(3), float(TABLE.min())
    search = RandomSearch.from_draws(RandomDraws.from_costs(TABLE, TRIALS), best, TRIALS)
    covered, means = 0, []
    for _ in range(100):
        costs = np.array([TABLE[random.permutation(len(TABLE))[:TRIALS]] for _ in range(20)])
        scores = search.scores(np.minimum.accumulate(costs, axis=1))
        assert scores is not None
        interval = mean_interval(scores)
        assert interval.lower is not None and interval.upper is not None
        covered += interval.lower <= 0 <= interval.upper
        means.append(scores.mean())
    assert covered >= 90
    assert abs(np.mean(means)) < 4 * np.std(means) / 10
    assert search.scores(np.full((1, TRIALS), best)) == pytest.approx([1])


def test_the_scores_of_a_study() -> None:
    random = np.random.default_rng(4)
    blunt, sharp, second = runs(random, 10, [0.0, 6.0, 0.0])
    oracle = [np.concatenate(([TABLE.argmin()], np.setdiff1d(run, [TABLE.argmin()])))[:TRIALS] for run in blunt]
    rows = {
        row.strategy: row
        for row in summary({"random": blunt, "sharp": sharp, "other": second, "oracle": oracle}).workloads[0].strategies
    }
    scores = {name: row.score for name, row in rows.items()}
    assert all(score is not None for score in scores.values())
    for name in ("random", "other"):
        assert scores[name].lower <= 0 <= scores[name].upper  # type: ignore[union-attr,operator]
    assert scores["sharp"].lower > 0.1  # type: ignore[union-attr,operator]
    oracle_score = scores["oracle"]
    assert oracle_score is not None and (oracle_score.value, oracle_score.lower) == (1, None)
    assert rows["oracle"].trials_to_target.median == 1
    assert rows["oracle"].area.value == 1


def test_shuffled_seeds_change_no_number() -> None:
    """Run and start stay together; which number the seed has does not matter."""
    blunt, sharp = runs(np.random.default_rng(5), 9, [0.0, 2.0])
    first = summary({"random": blunt, "sharp": sharp}).workloads[0]
    seeds = random.Random(0).sample(range(9), 9)
    second = summary({"random": [blunt[i] for i in seeds], "sharp": [sharp[i] for i in seeds]}).workloads[0]
    assert first.verdict == second.verdict
    assert first.contrasts == second.contrasts
    for row, shuffled_row in zip(first.strategies, second.strategies, strict=True):
        for field in ("trials_to_target", "seconds_to_target", "score", "area", "best_gflops"):
            mine, yours = getattr(row, field), getattr(shuffled_row, field)
            for number in set(("value", "lower", "upper") if field in ("area", "score") else mine.__struct_fields__) - {
                "by_seed",
                "note",
            }:
                if getattr(mine, number) is None:
                    assert getattr(yours, number) is None
                else:
                    assert getattr(mine, number) == pytest.approx(getattr(yours, number), rel=1e-12), (field, number)


def test_without_random_search_there_is_no_score() -> None:
    blunt, sharp = runs(np.random.default_rng(6), 3, [0.0, 2.0])
    assert [row.score for row in summary({"a": blunt, "b": sharp}).workloads[0].strategies] == [None, None]


def test_scores_end_where_random_search_does() -> None:
    generator = np.random.default_rng(10)
    draws, other_runs = runs(generator, 4, [0.0, 0.0])
    rows = summary({"random": [run[:9] for run in draws], "other": other_runs}).workloads[0].strategies
    assert {(row.score_first, row.score_trials) for row in rows} == {(1, 9)}, "both go as random search does"


def test_too_few_random_draws_give_no_score() -> None:
    """Once, the estimate ended at the fastest draw, and scores were divided by almost nothing."""
    draws, other_runs = runs(np.random.default_rng(10), 3, [0.0, 0.0])
    rows = summary({"random": draws, "other": other_runs}).workloads[0].strategies
    assert {(row.score, row.score_first, row.score_trials) for row in rows} == {(None, None, None)}


def test_a_baseline_that_covers_the_space_is_exact() -> None:
    """Configs that several runs of random search met count once: together they met the whole space."""
    generator = np.random.default_rng(8)
    permutations = [generator.permutation(len(TABLE)) for _ in range(4)]
    (row,) = summary({"random": permutations}).workloads[0].strategies
    search = RandomSearch.from_draws(RandomDraws.from_costs(TABLE, len(TABLE)), float(TABLE.min()), len(TABLE))
    curves: Floats = np.minimum.accumulate(TABLE[np.array(permutations)], axis=1)
    assert (row.score_first, row.score_trials) == (1, search.last) and search.last < len(TABLE)
    assert row.score and row.score.by_seed == pytest.approx(search.scores(curves))
