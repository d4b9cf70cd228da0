"""Updates the tables of a suite's baselines in studies/RESULTS.md from the suite's runs.

    python studies/suite/results.py                                     # v1/test
    python studies/suite/results.py --runs studies/reference/costmodels --baselines random,xgb --part costmodels
    python studies/suite/results.py --suite v1 --part proposing --runs results/proposing --layer results/layer

Only the text between `<!-- PART -->` and `<!-- end of PART -->` in RESULTS.md is replaced.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from bayes import bayesian_signed_rank
from searchlab.analysis import summarize
from searchlab.analysis.contrasts import Contrast, pair_by_seed
from searchlab.analysis.measures import OverallStrategy
from searchlab.analysis.runs import ComparedRuns
from searchlab.analysis.summary import Summary, WorkloadSummary
from searchlab.analysis.words import format_p
from searchlab.log.read import find_logs, read_log
from searchlab.measure.suite import find_suite
from searchlab.stats.inference import Answer, paired_difference
from searchlab.suite.compare import group_suite_runs
from searchlab.suite.trajectories import Trajectories, collect_trajectories, read_baselines, read_results

BASELINE = "random"
RESULTS = Path(__file__).parent.parent / "RESULTS.md"
KINDS: dict[str, Callable[[str], bool]] = {
    "GEMM": lambda name: name.startswith("gemm"),
    "conv2d": lambda name: name.startswith("conv2d"),
    "knob": lambda name: "-knob-" in name,
    "guided": lambda name: "-guided-" in name,
    "trace": lambda name: "-trace-" in name,
    "1 thread": lambda name: name.endswith("-1t"),
    "2 threads": lambda name: name.endswith("-2t"),
}
"""The kinds of tables whose means are reported separately, by the tables' names."""


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def with_interval(value: float, lower: float | None, upper: float | None) -> str:
    return f"{value:.3f}" + (f" ({lower:.3f} to {upper:.3f})" if lower is not None and upper is not None else "")


def strategies(summary: Summary) -> str:
    """Return a row for each strategy over all tables, with the largest area first."""
    overall = summary.overall
    assert overall is not None

    def row(strategy: OverallStrategy) -> list[str]:
        strategy_rows = [item.by_strategy[strategy.strategy] for item in summary.workloads]
        reached = sum(strategy_row.trials_to_target.reached for strategy_row in strategy_rows)
        runs = sum(len(strategy_row.seeds) for strategy_row in strategy_rows)
        score = strategy.score
        return [
            strategy.strategy,
            str(strategy_rows[0].batch),
            f"{overall.ranks[strategy.strategy]:.2f}",
            with_interval(strategy.area.value, strategy.area.lower, strategy.area.upper),
            with_interval(score.value, score.lower, score.upper) if score else "",
            f"{100 * reached / runs:.0f} %",
        ]

    head = [
        "strategy",
        "batch",
        "rank",
        "mean area (95 % interval)",
        "score (95 % interval)",
        f"runs that reach {100 * summary.target:.0f} %",
    ]
    return markdown(head, map(row, overall.strategies))


def pairs(summary: Summary) -> str:
    """Return a comparison of the best strategy with each of the others."""
    assert summary.overall is not None

    best = summary.overall.strategies[0].strategy

    def cells(answer: Answer) -> str:
        interval = answer.difference
        return f"{with_interval(interval.value, interval.lower, interval.upper)}, p {_p(answer.p)}" if answer.p else ""

    def row(contrast: Contrast) -> list[str]:
        difference = contrast.difference
        areas = [
            [item.by_strategy[name].area_by_seed for item in summary.workloads] for name in (best, contrast.second)
        ]
        paired = [pair_by_seed(*runs) for runs in zip(*areas, strict=True)]
        posterior = bayesian_signed_rank(np.array([np.nanmean(first - second) for first, second in paired]))
        return [
            contrast.second,
            f"{difference.ahead}, {difference.level}, {difference.behind}",
            cells(difference.on_these),
            cells(difference.on_others),
            f"{posterior.better:.2f}, {posterior.same:.2f}, {posterior.worse:.2f}",
        ]

    head = [
        f"{best} less ...",
        "higher, same, lower",
        "on these workloads",
        "on workloads like these",
        "better, same, worse",
    ]
    return markdown(head, [row(contrast) for contrast in summary.overall.contrasts if contrast.first == best])


def _p(p: float | None) -> str:
    return format_p(p) if p is not None and p < 0.001 else f"= {format_p(p)}" if p is not None else ""


def kinds(summary: Summary) -> str:
    """Return each strategy's mean area over the tables of each kind."""
    assert summary.overall is not None
    inside = {kind: [item for item in summary.workloads if of_it(item.workload)] for kind, of_it in KINDS.items()}
    inside = {kind: items for kind, items in inside.items() if items}
    head = ["area", *(f"{kind} ({len(items)})" for kind, items in inside.items())]

    def area(strategy: str, items: Sequence[WorkloadSummary]) -> str:
        return f"{np.mean([np.mean(item.by_strategy[strategy].area.by_seed) for item in items]):.3f}"

    rows = [
        [row.strategy, *(area(row.strategy, items) for items in inside.values())] for row in summary.overall.strategies
    ]
    return markdown(head, rows)


def halfway(comparison: ComparedRuns, trials: int) -> str:
    """Return how much faster each strategy's best program is than random search's, after half of the trials."""
    by_strategy: dict[str, list[dict[int, float]]] = {}
    for item in comparison.values():
        best: dict[str, dict[int, float]] = {}
        for run in item.runs:  # a run that ended early keeps its best
            best.setdefault(run.log.header.name, {})[run.seed] = math.log(run.curve[min(trials, len(run.curve)) - 1])
        for name, by_seed in best.items():
            by_strategy.setdefault(name, []).append(by_seed)
    base = by_strategy.pop(BASELINE)
    rows = []
    for name, by_workload in by_strategy.items():
        pairs = [
            (first, second, sorted(first.keys() & second.keys()))
            for first, second in zip(by_workload, base, strict=True)
        ]
        difference = paired_difference(
            [np.array([first[seed] for seed in seeds]) for first, _, seeds in pairs],
            [np.array([second[seed] for seed in seeds]) for _, second, seeds in pairs],
        )
        rows.append(
            (
                difference.value,
                [
                    name,
                    f"{difference.ahead}, {difference.level}, {difference.behind}",
                    _factor(difference.on_these),
                    _factor(difference.on_others),
                ],
            )
        )
    head = [
        f"over {BASELINE}, after {trials} trials",
        "faster, same, slower",
        "on these workloads",
        "on workloads like these",
    ]
    return markdown(head, [row for _, row in sorted(rows, reverse=True)])


def _factor(answer: Answer) -> str:
    """Convert a logarithm's mean and interval to a factor."""
    ends = answer.difference
    if ends.lower is None or ends.upper is None:
        return ""
    return f"{with_interval(*(math.exp(value) for value in (ends.value, ends.lower, ends.upper)))}, p {_p(answer.p)}"


def proposing_costs(runs: Iterable[Trajectories], layer: float) -> str:
    """Return each strategy's CPU time per trial, cheapest first, relative to the time to build and run a trial.

    Args:
        runs: The runs of the strategies.
        layer: The seconds for building and running a trial of a real layer.
    """
    costs: list[tuple[float, str, int]] = []
    for strategy_runs in runs:
        lengths = [len(run.configs) for table in strategy_runs.tables.values() for run in table.runs]
        costs.append((strategy_runs.own_seconds / float(np.mean(lengths)), strategy_runs.strategy, strategy_runs.batch))
    rows = [
        [name, str(batch), f"{cost:.2g}", f"{float(f'{100 * cost / layer:.2g}'):g} %"]
        for cost, name, batch in sorted(costs)
    ]
    head = ["strategy", "batch", "proposing and training, seconds a trial", f"of a layer's trial ({layer:.2g} s)"]
    return markdown(head, rows)


def layer_seconds(directory: Path) -> float:
    """Return the mean seconds for building and running a trial in the logs in ``directory``."""
    return float(
        np.mean(np.concatenate([read_log(path).charged_seconds[:, 2:].sum(axis=1) for path in find_logs(directory)]))
    )


def replace_part(part: str, text: str) -> None:
    """Put ``text`` between the marks for ``part``. Exits if RESULTS.md has no such marks."""
    marks = f"<!-- {part} -->", f"<!-- end of {part} -->"
    before = RESULTS.read_text()
    after, count = re.subn(
        f"{marks[0]}.*?{marks[1]}", lambda _: f"{marks[0]}\n\n{text}\n\n{marks[1]}", before, flags=re.DOTALL
    )
    if count != 1:
        sys.exit(f"{RESULTS} has no marks {' and '.join(marks)}")
    RESULTS.write_text(after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="v1/test", help="suite, or one of its splits (v1/test)")
    parser.add_argument(
        "--runs", type=Path, nargs="*", default=[], metavar="DIR", help="directories of results to compare with"
    )
    parser.add_argument("--baselines", metavar="NAMES", help="use only these baselines, such as random,xgb")
    parser.add_argument("--part", default="baselines", help="part of RESULTS.md (baselines)")
    parser.add_argument("--layer", type=Path, metavar="DIR", help="directory of runs on a real layer, for the costs")
    options = parser.parse_args()
    suite = find_suite(options.suite)
    baseline_runs = read_baselines(suite, options.baselines and options.baselines.split(","))
    if options.layer:
        other_runs = [runs for directory in options.runs for runs in collect_trajectories(suite, find_logs(directory))]
        replace_part(options.part, proposing_costs([*baseline_runs, *other_runs], layer_seconds(options.layer)))
        return
    comparison = group_suite_runs(suite, read_results(options.runs), baseline_runs, range(suite.spec.seeds))
    summary = summarize(comparison)
    if summary.overall is None:
        sys.exit("fewer than two strategies have runs on all tables")
    half = halfway(comparison, suite.spec.trials // 2)
    sentences = [*(answer.sentence for answer in summary.answers), summary.overall.verdict]
    replace_part(options.part, "\n\n".join([*sentences, strategies(summary), pairs(summary), kinds(summary), half]))


if __name__ == "__main__":
    main()
