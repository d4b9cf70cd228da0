"""How often a report calls equal strategies different, somewhere on its page, in simulation over recorded tables.

    python studies/benchmarks/alarms.py [--pages 400] [--strategies 2 6 10] [--seeds 3 10 30] [--workloads 3]
        [--json FILE]

Every strategy is random search (``simulation.py``); runs of one seed share their start. A page compares all pairs by
area and by trials to the target on each workload, and by area over all. The rows say what counts as one family:

    each verdict     the pairs of one workload and measure, with Holm's correction, by the rank tests of the report
    all tests        all p-values of the page
    areas            all p-values of areas, the default measure; trials are described and not tested
    areas, one apart the same, where one contrast on each workload was registered before the runs
    areas, by t      as ``areas``, by the paired t test of ``paired_difference``

Beside them the part of the pages on which a strategy that draws two configs a trial is told from the first other one,
over all workloads, where the rest are equal: what the correction costs. It takes about ten minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Hashable, Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
from simulation import TABLES, Runs, lucky_runs, read_tables

from searchlab.analysis.stats.family import one_family
from searchlab.analysis.stats.inference import paired_difference
from searchlab.analysis.stats.ranks import ALPHA, holm, rank_sum_test, signed_rank_test
from searchlab.arrays import Floats

ROWS = ("each verdict", "all tests", "areas", "areas, one apart", "areas, by t")
OVERALL = "all workloads"

Page = list[list[Runs]]
"""The runs by workload and strategy."""
Tests = dict[Hashable, float]
"""(workload, measure, pair) -> p-value of that pair alone."""


def rank_test(first: Floats, second: Floats, tests: int) -> float:
    """The paired test where the seeds are enough for Holm's correction over ``tests`` with one to spare, as reports."""
    paired = 2.0 ** (2 - len(first)) <= ALPHA / tests
    return signed_rank_test(first, second) if paired else rank_sum_test(first, second)


def rank_tests(page: Page) -> Tests:
    strategies = len(page[0])
    which = list(combinations(range(strategies), 2))
    tests: Tests = {}
    for workload, runs in enumerate(page):
        for measure in ("area", "hits"):
            values = [np.round(getattr(own, measure), 12) for own in runs]
            for i, j in which:
                tests[workload, measure, (i, j)] = rank_test(values[i], values[j], len(which))
    for i, j in which:
        tests[OVERALL, "area", (i, j)] = rank_test(*(pooled(page, place) for place in (i, j)), len(which))
    return tests


def pooled(page: Page, strategy: int) -> Floats:
    return np.round(np.concatenate([runs[strategy].area for runs in page]), 12)


def t_test(first: list[Floats], second: list[Floats]) -> float:
    p = paired_difference(first, second).on_these.p
    return 1.0 if p is None else p


def t_tests(page: Page) -> Tests:
    tests: Tests = {}
    for i, j in combinations(range(len(page[0])), 2):
        ours, theirs = ([runs[place].area for runs in page] for place in (i, j))
        for workload in range(len(page)):
            one = slice(workload, workload + 1)
            tests[workload, "area", (i, j)] = t_test(ours[one], theirs[one])
        tests[OVERALL, "area", (i, j)] = t_test(ours, theirs)
    return tests


def adjusted(page: Page) -> dict[str, Mapping[Hashable, float]]:
    """The adjusted p-values by each of ``ROWS``."""
    tests = rank_tests(page)
    verdicts: dict[Hashable, float] = {}
    for family in dict.fromkeys(key[:2] for key in tests):
        own = [key for key in tests if key[:2] == family]
        verdicts |= zip(own, holm(np.array([tests[key] for key in own])).tolist(), strict=True)
    areas = {key: p for key, p in tests.items() if key[1] == "area"}
    registered = [key for key in areas if key[2] == (0, 1)]
    families = (
        verdicts,
        one_family(tests),
        one_family(areas),
        one_family(areas, registered),
        one_family(t_tests(page)),
    )
    return dict(zip(ROWS, families, strict=True))


def rates(
    tables: list[Floats], strategies: int, seeds: int, workloads: int, pages: int, random: np.random.Generator
) -> dict[str, tuple[float, float]]:
    """Of each row: the part of pages with a false alarm, and the part that see the better strategy."""
    alarms, seen = dict.fromkeys(ROWS, 0), dict.fromkeys(ROWS, 0)
    for _ in range(pages):
        which = random.choice(len(tables), workloads, replace=False)
        page = [lucky_runs(tables[i], (1,) * strategies, seeds, random) for i in which]
        for row, found in adjusted(page).items():
            alarms[row] += min(found.values()) <= ALPHA
        page = [lucky_runs(tables[i], (2,) + (1,) * (strategies - 1), seeds, random) for i in which]
        for row, found in adjusted(page).items():
            seen[row] += found[OVERALL, "area", (0, 1)] <= ALPHA
    return {row: (alarms[row] / pages, seen[row] / pages) for row in ROWS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=400, help="for each number (400)")
    parser.add_argument("--strategies", type=int, nargs="+", default=[2, 6, 10])
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 10, 30], help="runs of a strategy on a workload")
    parser.add_argument("--workloads", type=int, default=3, help="of a page (3)")
    parser.add_argument(
        "--tables", type=Path, default=TABLES, metavar="DIR", help="complete tables (those of the suite)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows here")
    args = parser.parse_args()
    random = np.random.default_rng(0)
    tables = list(read_tables(args.tables).values())
    print(f"{args.pages} pages of {args.workloads} workloads: false alarms / the better strategy seen, in %")
    print(f"{'strategies, seeds':20}" + "".join(f"{row:>18}" for row in ROWS))
    results = []
    for strategies in args.strategies:
        for seeds in args.seeds:
            found = rates(tables, strategies, seeds, args.workloads, args.pages, random)
            cells = (f"{100 * alarms:.1f} / {100 * seen:.0f}" for alarms, seen in found.values())
            print(f"{f'{strategies}, {seeds}':20}" + "".join(f"{cell:>18}" for cell in cells), flush=True)
            results.append({"strategies": strategies, "seeds": seeds, "rates": found})
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
