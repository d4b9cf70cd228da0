"""Simulates, over recorded tables, how often a report claims a difference between equal strategies.

    python studies/benchmarks/alarms.py [--pages 400] [--strategies 2 6 14] [--seeds 3 10 30] [--workloads 3]
        [--json FILE]

Every strategy is random search (``simulation.py``), and runs with the same seed share their first trials. As in a
report, a page compares the areas of all pairs, with rank tests on each workload and with a paired t-test over all
workloads. The columns are different corrections for multiple testing:

    each verdict     Holm's correction on each workload separately
    unregistered     Holm's correction over the page, as in a report without registered contrasts
    one contrast     one registered contrast, as in a report: its test over all workloads comes first, then its tests on
                     single workloads; all other pairs are a second family with Holm's correction
    three contrasts  the same with three contrasts of the first strategy (with fewer strategies, as many as possible)

Each column has five figures, in percent. The first two are the shares of pages with a false alarm when all strategies
are equal, among the registered pairs and the other pairs. For the rest, the first strategy is better, because it draws
two configs per trial: the share of pages with a false alarm among the other strategies, the share of pages that detect,
over all workloads, that the first strategy is ahead of the second, and the share of single workloads that detect it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
from simulation import TABLES, Runs, lucky_runs, read_tables

from searchlab.analysis.contrasts import Key, ReportTests, TestKind
from searchlab.arrays import Floats
from searchlab.stats.inference import paired_difference
from searchlab.stats.ranks import ALPHA, rank_sum_test, round_to_largest, signed_rank_test

COLUMNS = ("each verdict", "unregistered", "one contrast", "three contrasts")
Page = list[list[Runs]]
"""The runs, by workload and strategy."""


def rank_test(first: Floats, second: Floats, level: float) -> float:
    """Return the p-value of the paired test, or of the unpaired one if, as in a report, there are too few seeds."""
    paired = 2.0 ** (2 - len(first)) <= level
    return signed_rank_test(first, second) if paired else rank_sum_test(first, second)


def tests_of(page: Page) -> dict[Key, float]:
    """Return the unadjusted p-value of each test, with strategies named by their numbers."""
    pairs = list(combinations(range(len(page[0])), 2))
    level = ALPHA / (len(pairs) * (len(page) + 1))
    tests: dict[Key, float] = {}
    for workload, runs in enumerate(page):
        values = round_to_largest(np.array([strategy_runs.area for strategy_runs in runs]))
        for i, j in pairs:
            tests[f"workload {workload}", TestKind.SIGNED_RANK, str(i), str(j)] = rank_test(values[i], values[j], level)
    for i, j in pairs:
        first, second = ([runs[index].area for runs in page] for index in (i, j))
        p = paired_difference(first, second).on_these.p
        tests["", TestKind.PAIRED_T, str(i), str(j)] = 1.0 if p is None else p
    return tests


def adjust(tests: Mapping[Key, float], registered: Sequence[tuple[str, str]]) -> dict[Key, float]:
    """Return the p-values adjusted as in a report."""
    on_workloads, overall = ([key[2:] for key in tests if bool(key[0]) == single] for single in (True, False))
    return ReportTests(on_workloads, overall, registered).correct_p(tests)


def adjust_each_verdict(tests: Mapping[Key, float]) -> dict[Key, float]:
    """Return the p-values adjusted on each workload separately."""
    adjusted_tests: dict[Key, float] = {}
    for workload in {key[0] for key in tests}:
        adjusted_tests |= adjust({key: p for key, p in tests.items() if key[0] == workload}, [])
    return adjusted_tests


def rates(
    tables: list[Floats], strategies: int, seeds: int, workloads: int, pages: int, random: np.random.Generator
) -> dict[str, tuple[float, ...]]:
    """Return each column's five figures as shares."""
    counts = {column: np.zeros(5) for column in COLUMNS}
    contrasts = [("0", str(j)) for j in range(1, min(4, strategies))]
    for _ in range(pages):
        table_indices = random.choice(len(tables), workloads, replace=False)
        equal = tests_of([lucky_runs(tables[i], (1,) * strategies, seeds, random) for i in table_indices])
        ahead = tests_of([lucky_runs(tables[i], (2,) + (1,) * (strategies - 1), seeds, random) for i in table_indices])
        for column, registered in zip(COLUMNS, ([], [], contrasts[:1], contrasts), strict=True):
            correct = adjust_each_verdict if column == "each verdict" else partial(adjust, registered=registered)
            alarms = {key[2:] in registered for key, p in correct(equal).items() if p <= ALPHA}
            counts[column][:2] += [True in alarms, False in alarms]
            p_values = correct(ahead)
            counts[column][2] += any(p <= ALPHA and "0" not in key[2:] for key, p in p_values.items())
            tests = [(key[0], p <= ALPHA) for key, p in p_values.items() if key[2:] == ("0", "1")]
            counts[column][3] += np.mean([detected for workload, detected in tests if not workload])
            counts[column][4] += np.mean([detected for workload, detected in tests if workload])
    return {column: tuple((tests / pages).tolist()) for column, tests in counts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=400, help="number of pages per combination (400)")
    parser.add_argument("--strategies", type=int, nargs="+", default=[2, 6, 14])
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[3, 10, 30], help="numbers of runs per strategy and workload"
    )
    parser.add_argument("--workloads", type=int, default=3, help="number of workloads on a page (3)")
    parser.add_argument(
        "--tables", type=Path, default=TABLES, metavar="DIR", help="directory of complete tables (default: the suite's)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to which the rows are also written")
    args = parser.parse_args()
    random = np.random.default_rng(0)
    tables = list(read_tables(args.tables).values())
    print(f"{args.pages} pages of {args.workloads} workloads, in %: false alarms of registered pairs, of others")
    print("and among the other strategies; better strategy detected over all workloads, on single workloads")
    print("| strategies | seeds | " + " | ".join(COLUMNS) + " |\n|" + "---|" * (2 + len(COLUMNS)))
    results = []
    for strategies in args.strategies:
        for seeds in args.seeds:
            shares_by_column = rates(tables, strategies, seeds, args.workloads, args.pages, random)
            cells = (" / ".join(f"{100 * share:.1f}" for share in shares) for shares in shares_by_column.values())
            print(f"| {strategies} | {seeds} | " + " | ".join(cells) + " |", flush=True)
            results.append({"strategies": strategies, "seeds": seeds, "rates": shares_by_column})
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
