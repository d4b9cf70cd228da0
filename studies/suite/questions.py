"""Answers questions about a suite's tables and the runs over them, without new measurements.

    python studies/suite/questions.py portability hub-v1
    python studies/suite/questions.py importance hub-v1
    python studies/suite/questions.py portfolio hub-v1/test
    python studies/suite/questions.py failures hub-v1/test
    python studies/suite/questions.py rankings v1/test hub-v1/test
    python studies/suite/questions.py real v1/test hub-v1/test --runs results/real --walks results/walks
    python studies/suite/questions.py landscapes v1 hub-v1
    python studies/suite/questions.py losses v1/test
    python studies/suite/questions.py batches hub-v1/dev --runs results/batches

Each command prints Markdown tables. `portability` and `importance` compare tables with the same configs, such as those
of one kernel on several GPUs; `portfolio`, `failures`, `rankings`, `landscapes` and `losses` compare the baselines.
`batches`, and `failures` with `--runs`, use the results of `searchlab suite baselines SUITE LOGS... --out DIR`; `real`
uses the logs of a study that measured programs, those of `walks.py` through the same spaces, and the `summary.json` of
a report on earlier runs (`--earlier`).
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy.stats import rankdata, spearmanr
from sklearn.inspection import permutation_importance
from sklearn.model_selection import KFold, cross_val_score
from xgboost import XGBRegressor

from results import markdown, with_interval
from searchlab.analysis import summarize
from searchlab.analysis.read import read_runs
from searchlab.analysis.runs import ComparedRuns, WorkloadRuns
from searchlab.arrays import Floats
from searchlab.errors import SearchlabError
from searchlab.log.budget import Budget
from searchlab.log.read import read_log
from searchlab.measure.suite import Suite, SuiteTable, find_suite
from searchlab.records import Statistic, compute_cost
from searchlab.space import Config
from searchlab.stats.inference import paired_difference
from searchlab.stats.random_search import parse_difficulty
from searchlab.suite.trajectories import Trajectories, read_baselines, read_results
from searchlab.tables.info import TableInfo
from searchlab.tables.landscape import GOOD_DISTANCE, Landscape, compute_relative_spread, encode_configs

Costs = Mapping[bytes, float]
"""The seconds for each config, as JSON, according to the table's statistic; infinity for a failure."""


@cache
def read_costs(path: Path, statistic: Statistic) -> Costs:
    return {
        msgspec.json.encode(record.config, order="sorted"): compute_cost(record.seconds, record.failure, statistic)
        for record in read_log(path).records
    }


def costs_of(table: SuiteTable) -> Costs:
    return read_costs(table.path, table.settings().statistic)


def device(table: SuiteTable) -> str:
    return table.entry.name.partition("-")[2]


def kernels(suite: Suite) -> Iterator[tuple[str, list[SuiteTable]]]:
    """Yield each group of tables that contain the same configs, with a name for the group."""
    groups: dict[tuple[str, frozenset[bytes]], list[SuiteTable]] = defaultdict(list)
    for table in suite.tables:
        groups[table.entry.family, frozenset(costs_of(table))].append(table)
    for (name, configs), tables in groups.items():
        yield f"{name}, {len(configs):,} configs", tables


def portability(suite: Suite) -> str:
    """Return how fast each device's best config is on the other devices, as a percentage of what is possible there.

    The last column shows the config with the highest harmonic mean of these efficiencies over all devices (Pennycook et
    al., "A metric for performance portability", 2016; applied to configs, as in Schoonhoven et al., "Benchmarking
    optimization algorithms for auto-tuning GPU kernels", 2022).
    """
    parts = []
    for name, tables in kernels(suite):
        if len(tables) < 2:
            continue
        costs = np.array([[costs_of(table)[config] for config in costs_of(tables[0])] for table in tables])
        efficiencies = costs.min(axis=1, keepdims=True) / costs  # 0 where a config fails
        with np.errstate(divide="ignore"):
            harmonic = len(tables) / (1 / efficiencies).sum(axis=0)
        fastest = [*costs.argmin(axis=1).tolist(), int(harmonic.argmax())]
        rows = [
            [label, *(f"{100 * row[index]:.0f}" for index in fastest)]
            for label, row in zip([*map(device, tables), "harmonic mean"], [*efficiencies, harmonic], strict=True)
        ]
        head = ["on", *(f"best on {device(table)}" for table in tables), "best on all"]
        parts.append(f"{name}:\n\n{markdown(head, rows)}")
    return "\n\n".join(parts)


def importance(suite: Suite) -> str:
    """Return the cross-validated R^2 (five folds) of a model of log seconds, and its loss if a knob is permuted."""
    parts = []
    for name, tables in kernels(suite):
        rows: list[list[str]] = []
        knobs: list[str] = []
        for table in tables:
            works = {text: cost for text, cost in costs_of(table).items() if math.isfinite(cost)}
            configs = [Config(msgspec.json.decode(text)) for text in works]
            seconds = np.log(list(works.values()))
            knobs = [knob for knob in configs[0] if len({config[knob] for config in configs}) > 1]
            values = np.array([[float(str(config[knob])) for knob in knobs] for config in configs])
            model = XGBRegressor(n_estimators=400, max_depth=8, learning_rate=0.1, n_jobs=1, random_state=0)
            folds = KFold(5, shuffle=True, random_state=0)
            accuracy = cross_val_score(model, values, seconds, cv=folds, scoring="r2").mean()
            model.fit(values, seconds)
            lost = permutation_importance(model, values, seconds, n_repeats=3, random_state=0).importances_mean
            rows.append([device(table), f"{accuracy:.3f}", *(f"{value:.2f}" for value in lost)])
        parts.append(f"{name}:\n\n" + markdown(["device", "R^2", *(f"`{knob}`" for knob in knobs)], rows))
    return "\n\n".join(parts)


def curves(suite: Suite, runs: Sequence[Trajectories], budget: str | None = None) -> Mapping[str, Mapping[str, Floats]]:
    """Return, by strategy and table, the optimum divided by the best cost so far, of shape (seeds, trials).

    The number of trials is that of the runs, or ``budget``, relative to each table's difficulty, if that is lower.
    """
    curves_by_table: dict[str, dict[str, Floats]] = {strategy_runs.strategy: {} for strategy_runs in runs}
    longest = max(strategy_runs.trial_count for strategy_runs in runs)  # all runs of a strategy may end earlier
    for table in suite.tables:
        costs = np.array(list(costs_of(table).values()))
        limit = parse_difficulty(budget, costs) if budget else len(costs)
        for strategy_runs in runs:
            trials = min(longest, limit)
            rows = []
            for run in strategy_runs.runs_on(table).runs:
                so_far = np.minimum.accumulate(costs[list(run.configs[:trials])])
                rows.append(np.append(so_far, np.full(trials - len(so_far), so_far[-1])))
            curves_by_table[strategy_runs.strategy][table.entry.name] = costs.min() / np.array(rows)
    return curves_by_table


def portfolio(suite: Suite) -> str:
    """Return the best combinations of one, two and three strategies that take turns.

    After t trials, a portfolio has found the best of what its members have found after their shares of t. Its area is
    the mean over tables and seeds, as for a single strategy. Combinations are chosen on the dev split, and compared on
    the test split with the strategy that is best alone on the dev split.
    """

    def area(by_strategy: Mapping[str, Mapping[str, Floats]], members: tuple[str, ...]) -> list[Floats]:
        """Return a portfolio's areas on each table: arrays of shape (seeds,)."""
        areas = []
        for table in by_strategy[members[0]]:
            parts = [by_strategy[name][table] for name in members]
            size, trials = len(members), parts[0].shape[1]
            best_so_far = np.zeros_like(parts[0])
            for position, part in enumerate(parts):
                share = (np.arange(trials) + size - position) // size  # this member's share of the first t trials
                best_so_far = np.maximum(best_so_far, np.where(share > 0, part[:, np.maximum(share - 1, 0)], 0))
            areas.append(best_so_far.mean(axis=1))
        return areas

    dev, test = (curves(part, read_baselines(part)) for part in (suite.select_split("dev"), suite.select_split("test")))
    rows = []
    best_single: list[Floats] = []
    for size in (1, 2, 3):
        ranked = sorted(
            ((float(np.mean(area(dev, some))), some) for some in combinations(sorted(dev), size)), reverse=True
        )
        for on_dev, some in ranked[:3]:
            on_test = area(test, some)
            best_single = best_single or on_test
            which = " + ".join(f"`{name}`" for name in some)
            gain = paired_difference(on_test, best_single).on_these.difference
            difference = "" if on_test is best_single else with_interval(gain.value, gain.lower, gain.upper)
            rows.append([str(size), which, f"{on_dev:.3f}", f"{np.mean(on_test):.3f}", difference])
    return markdown(["strategies", "which", "area, dev", "area, test", "less the best alone (95 % interval)"], rows)


def agreement(first: Floats, second: Floats) -> list[str]:
    """Return the rank correlation of two groups' areas and its interval.

    Args:
        first: The areas of strategies in a group, of shape (strategies, tables, seeds).
        second: Those of the same strategies in another group.
    """
    rng = np.random.default_rng(0)

    def resample(values: Floats) -> Floats:
        _, tables, seeds = values.shape
        picked = values[:, rng.integers(tables, size=tables)]
        return picked[:, :, rng.integers(seeds, size=seeds)].mean(axis=(1, 2))

    ranks = rankdata([(resample(first), resample(second)) for _ in range(2000)], axis=2)
    ranks -= ranks.mean(axis=2, keepdims=True)
    ranks /= np.linalg.norm(ranks, axis=2, keepdims=True)
    lower, upper = np.quantile(ranks.prod(axis=1).sum(axis=1), (0.025, 0.975))
    value = spearmanr(first.mean(axis=(1, 2)), second.mean(axis=(1, 2))).statistic
    return [f"{value:.2f}", f"{lower:.2f} to {upper:.2f}"]


def rankings(suites: Sequence[Suite]) -> str:
    """Return the mean area of each baseline on groups of tables, and how well the groups' rankings agree.

    The groups are the suites, with their own budgets and with budgets that equal each table's difficulty; and, in the
    last suite, the GPUs of either manufacturer, and the tables with and without failing configs. Agreement is
    Spearman's rank correlation of the areas. Its interval contains 95 % of 2,000 bootstrap samples of the tables in
    both groups and of the seeds.
    """
    suite_runs = [read_baselines(suite) for suite in suites]
    common = set.intersection(*({strategy_runs.strategy for strategy_runs in runs} for runs in suite_runs))
    names = [strategy_runs.strategy for strategy_runs in suite_runs[0] if strategy_runs.strategy in common]

    def areas(number: int, budget: str | None, tables: Sequence[SuiteTable]) -> Floats:
        """Return the areas over ``tables``, of shape (strategies, tables, seeds)."""
        runs = [strategy_runs for strategy_runs in suite_runs[number] if strategy_runs.strategy in common]
        part = replace(
            suites[number], spec=msgspec.structs.replace(suites[number].spec, tables=[t.entry for t in tables])
        )
        by_strategy = curves(part, runs, budget)
        return np.array([[by_strategy[name][table.entry.name].mean(axis=1) for table in tables] for name in names])

    last = suites[-1].tables
    amd = [table for table in last if device(table).startswith(("MI", "W"))]
    failing = [table for table in last if not np.isfinite(list(costs_of(table).values())).all()]
    groups = {suite.name: areas(number, None, suite.tables) for number, suite in enumerate(suites)}
    groups |= {
        f"{suite.name}, difficulty": areas(number, "difficulty", suite.tables) for number, suite in enumerate(suites)
    }
    suite_groups = list(groups)
    halves = {
        "NVIDIA": [table for table in last if table not in amd],
        "AMD": amd,
        "no failures": [table for table in last if table not in failing],
        "failures": failing,
    }
    groups |= {name: areas(len(suites) - 1, None, tables) for name, tables in halves.items()}
    order = np.argsort(-groups[suite_groups[0]].mean(axis=(1, 2)))
    ranks = {name: rankdata(-values.mean(axis=(1, 2)).round(6)) for name, values in groups.items()}
    head = ["strategy", *(f"{name} ({groups[name].shape[1]})" for name in groups)]
    rows = [
        [f"`{names[s]}`", *(f"{groups[name][s].mean():.3f} ({ranks[name][s]:g})" for name in groups)] for s in order
    ]

    pairs = [
        (suite_groups[0], suite_groups[1]),
        (suite_groups[2], suite_groups[3]),
        (suite_groups[0], suite_groups[2]),
        (suite_groups[1], suite_groups[3]),
    ]
    pairs += [("NVIDIA", "AMD"), ("no failures", "failures")]
    agreements = markdown(
        ["rankings of", "rank correlation", "95 % interval"],
        ([f"{first} and {second}", *agreement(groups[first], groups[second])] for first, second in pairs),
    )
    return f"{markdown(head, rows)}\n\n{agreements}"


WARM = 64
"""The number of trials after which proposals are compared with the fastest trials so far."""

NOISY = 1.5
"""A reading that is larger than the lowest of its trial by more than this factor does not show the program's time."""


def reality(
    suites: Sequence[Suite],
    directories: Sequence[Path],
    walks: Sequence[Path] = (),
    trials: int | None = None,
    earlier: Path | None = None,
) -> str:
    """Return the mean area of each strategy in runs that measured programs and on each suite, and how well they agree.

    The first table also contains the best GFLOPS of a run (median and quartiles), and the seconds for proposing and
    training, relative to those for building and running.

    Only strategies that a suite and the runs have in common are ranked together. An area in the runs is relative to the
    best known program. With ``trials``, only the first trials of each run count, but the best program of all trials.
    ``earlier`` is the ``summary.json`` of a report on other runs with the same workloads and strategies.
    """
    runs = read_runs(*directories)
    if trials is not None:
        runs = {name: item.truncate(Budget(trials), item.runs_by_strategy) for name, item in runs.items()}
    summary = summarize(runs)
    by_seed = {
        name: [item.by_strategy[name].area.by_seed for item in summary.workloads]
        for name in summary.workloads[0].by_strategy
        if all(name in item.by_strategy and item.by_strategy[name].area.by_seed for item in summary.workloads)
    }
    seeds = min((len(areas) for group in by_seed.values() for areas in group), default=0)  # others may still run
    if not seeds:
        raise SearchlabError("no strategy has finished a run on every workload; wait for the runs, or repeat the study")
    measured = {name: np.array([areas[:seeds] for areas in group]) for name, group in by_seed.items()}
    names = sorted(measured, key=lambda name: -measured[name].mean())
    tables = {
        suite.name: {
            name: np.array([curve.mean(axis=1) for curve in by_table.values()])
            for name, by_table in curves(suite, read_baselines(suite)).items()
        }
        for suite in suites
    }
    groups = {f"real runs ({len(summary.workloads)})": measured}
    groups |= {f"{suite.name} ({len(suite.tables)})": tables[suite.name] for suite in suites}
    rows = []
    for name in names:
        items = [item.by_strategy[name] for item in summary.workloads]
        best = [item.best_gflops for item in items]
        own_seconds, measuring = (
            sum(getattr(item.seconds, part) or 0 for item in items for part in parts)
            for parts in (("propose", "train"), ("build", "run"))
        )
        rows.append(
            [
                f"`{name}`",
                str(items[0].batch),
                *(f"{interval.median:.0f} ({interval.lower:.0f} to {interval.upper:.0f})" for interval in best),
                f"{100 * own_seconds / measuring:.0f} %" if measuring else "",
                *(f"{group[name].mean():.3f}" if name in group else "" for group in groups.values()),
            ]
        )
    agreements = []
    for suite, areas in tables.items():
        common = [name for name in names if name in areas]
        pair = [np.array([group[name] for name in common]) for group in (measured, areas)]
        cells = agreement(*pair) if len(common) > 1 else ["", ""]
        agreements.append([f"real runs and {suite}", str(len(common)), *cells])
    layer_names = [f"`{item.workload}`" for item in summary.workloads]
    layers = [f"GFLOPS on {name}" for name in layer_names]
    head = ["strategy", "batch", *layers, "proposing, relative to measuring", *(f"area, {group}" for group in groups)]
    agreement_head = ["rankings of", "strategies in common", "rank correlation", "95 % interval"]
    parts = [markdown(head, rows), markdown(agreement_head, agreements)]
    before = areas_in(earlier, [item.workload for item in summary.workloads], names) if earlier else None
    parts.append(repeatability(layer_names, np.array([measured[name] for name in names]), before))
    return "\n\n".join([*parts, unreliable(runs), at_random(runs, walks, suites), far_from_the_best(runs, names)])


def areas_in(file: Path, workloads: Sequence[str], strategies: Sequence[str]) -> Floats:
    """Return the mean areas in a report's ``summary.json``, of shape (strategies, workloads); NaN if one is missing."""
    try:
        areas = {
            (item["workload"], row["strategy"]): row["area"]["value"]
            for item in msgspec.json.decode(file.read_bytes())["workloads"]
            for row in item["strategies"]
        }
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise SearchlabError(f"{file} is not the summary.json of a report: {type(error).__name__}: {error}") from None
    return np.array([[areas.get((workload, name), np.nan) for workload in workloads] for name in strategies])


def repeatability(workloads: Sequence[str], areas: Floats, earlier: Floats | None = None) -> str:
    """Return how well the order of strategies in some runs agrees with that in others, to compare suites with.

    Agreement is the rank correlation of the strategies' mean areas. Between halves of the seeds, it is the mean over
    all ways to divide the seeds in two (as equally as possible).

    Args:
        workloads: The names of the workloads.
        areas: The areas, of shape (strategies, workloads, seeds).
        earlier: The mean areas in earlier runs, of shape (strategies, workloads); NaN if there were none.
    """
    parts = [list(part) for part in combinations(range(areas.shape[2]), areas.shape[2] // 2)]

    def row(name: str, indices: Sequence[int]) -> list[str]:
        """Return the row for the workloads at ``indices``."""
        group = areas[:, indices]
        other_areas = np.delete(areas, indices, axis=1).mean(axis=(1, 2)) if len(indices) < len(workloads) else None
        halves = [
            correlation(group[..., part].mean(axis=(1, 2)), np.delete(group, part, axis=2).mean(axis=(1, 2)))
            for part in parts
            if part
        ]
        cells = [float(np.mean(halves)) if halves else None]
        cells += [correlation(group.mean(axis=(1, 2)), other_areas) if other_areas is not None else None]
        if earlier is not None:
            recorded = np.isfinite(earlier[:, indices]).all(axis=1)
            before = group[recorded].mean(axis=(1, 2)), earlier[recorded][:, indices].mean(axis=1)
            cells += [correlation(*before) if recorded.sum() > 1 else None]
        return [name, *("" if cell is None else f"{cell:.2f}" for cell in cells)]

    rows = [row(name, [index]) for index, name in enumerate(workloads)]
    if len(workloads) > 1:
        rows.append(row("all", range(len(workloads))))
    head = ["rank correlation", "between halves of the seeds", "with the other workloads"]
    return markdown([*head, *(["with the earlier runs"] if earlier is not None else [])], rows)


def unreliable(runs: ComparedRuns) -> str:
    """Return how many trials with several readings have one, or a median, above :data:`NOISY` times the lowest."""
    rows = []
    for item in runs.values():
        readings = [
            times for run in item.runs for times in np.split(run.log.readings, np.cumsum(run.log.reading_counts)[:-1])
        ]
        ratios = np.array(
            [(times.max() / times.min(), np.median(times) / times.min()) for times in readings if len(times) > 1]
        )
        shares = [f"{share:.1%}" for share in np.mean(ratios > NOISY, axis=0)] if len(ratios) else ["", ""]
        rows.append([f"`{item.workload}`", f"{len(ratios):,}", *shares])
    head = ["workload", "trials with several readings", f"one is {NOISY} times the lowest", "the median is"]
    return markdown(head, rows)


def far_from_the_best(runs: ComparedRuns, names: Sequence[str]) -> str:
    """Return how much each strategy explores: the proportion of its trials that are far from all fast ones so far.

    A trial is far from another if they differ in more than half of the knobs. Those after the first 64 are compared
    with the four fastest so far. The cells contain the median of the runs.
    """
    rows = []
    for name in names:
        cells = []
        for item in runs.values():
            shares = []
            for run in item.runs_by_strategy[name]:
                codes = encode_configs([Config(msgspec.json.decode(text)) for text in run.log.configs])
                later = range(WARM, len(codes))
                fastest = [np.argsort(run.log.costs[:i], kind="stable")[:4] for i in later]
                is_far = [
                    np.mean(codes[i] != codes[best], axis=1).min() > 0.5 for i, best in zip(later, fastest, strict=True)
                ]
                shares += [np.mean(is_far)] if is_far else []  # a run may have no later trials
            cells.append(f"{np.median(shares):.0%}" if shares else "")
        rows.append([f"`{name}`", *cells])
    return markdown(["trials far from the fastest", *(f"`{workload}`" for workload in runs)], rows)


def at_random(runs: ComparedRuns, walks: Sequence[Path], suites: Sequence[Suite]) -> str:
    """Return measures of random programs and random walks, by workload, and the same measures of the suites' tables.

    All programs that the runs of random search measured count. What is near the best is relative to the best program
    that any run found, which may be far from the optimum.
    """
    walked = {item.workload: item for item in read_runs(*walks).values()} if walks else {}
    rows = []
    for item in runs.values():
        assert item.best
        logs = [run.log for run in item.runs if run.is_random]
        if not logs:
            raise SearchlabError(f"{item.workload} has no run of the policy 'random', from which a space is described")
        costs = np.concatenate([log.costs for log in logs])
        works = np.isfinite(costs)
        texts = np.concatenate([log.configs for log in logs])[works]
        codes = encode_configs([Config(msgspec.json.decode(text)) for text in texts])
        cells = [
            len(costs),
            1 - works.mean(),
            np.mean(costs <= item.best.seconds / (1 - GOOD_DISTANCE)),
            item.best.seconds / np.median(costs),
            compute_relative_spread(codes, np.log(costs[works])),
        ]
        rows.append([f"`{item.workload}`", *format_measures(cells), *_walk(walked.get(item.workload))])
    for suite in suites:
        infos = [TableInfo(read_log(table.path)) for table in suite.tables]
        medians = [
            np.median([measure(info) for info in infos])
            for measure in (
                MEASURES["configs"],
                MEASURES["failures"],
                MEASURES["near the best"],
                lambda info: np.min(info.log.costs) / np.median(info.log.costs),
                MEASURES["spread of the best"],
            )
        ]
        smooth = np.median([MEASURES["autocorrelation"](info) for info in infos])
        rows.append([f"{suite.name}, median of {len(infos)} tables", *format_measures(medians), f"{smooth:.2f}", ""])
    head = [
        "workload",
        "random programs",
        "failed",
        "within 5 % of the best known",
        "median, relative to the best known",
        "spread of the best 1 %",
        "autocorrelation of neighbours",
        "steps of random walks",
    ]
    return markdown(head, rows)


def format_measures(cells: Sequence[Any]) -> list[str]:
    count, failed, near, median, spread = cells
    return [f"{count:,.0f}", f"{failed:.1%}", f"{near:.2%}", f"{median:.2f}", f"{spread:.2f}"]


def _walk(walked: WorkloadRuns | None) -> list[str]:
    """Return the autocorrelation of log seconds between neighbours in random walks, and the number of steps."""
    if walked is None:
        return ["", ""]
    log = read_log(walked.runs[0].log.path)
    landscape = Landscape.from_log(log, is_exhaustive=False)
    return [f"{landscape.autocorrelation:.2f}" if landscape.distance == 1 else "", f"{len(log.records):,}"]


MEASURES: Mapping[str, Callable[[TableInfo], float]] = {
    "configs": lambda info: len(info.log.records),
    "autocorrelation": lambda info: info.landscape.autocorrelation or 0.0,
    "local optima": lambda info: info.landscape.local_optima or 0.0,
    "good optima": lambda info: info.landscape.good_optima or 0.0,
    "spread of the best": lambda info: info.landscape.spread or 0.0,
    "near the best": lambda info: info.count_near_best(0.05) / info.config_count,
    "failures": lambda info: info.landscape.failure_share,
    "noise": lambda info: info.noise or 0.0,
}
"""Measures of a table, by title."""

LOCAL = {"annealing", "autotvm-ga", "droplet", "dual-annealing", "evolutionary", "greedy-ils", "one-plus-one"}
"""The baselines that move from good configs to their neighbours, without a model."""


def landscapes(suites: Sequence[Suite]) -> str:
    """Return how the advantage of each strategy depends on measures of a table's landscape.

    The advantage on a table is the strategy's area less the mean area of all common baselines; on all tables of the
    suites, its rank correlation with each measure is computed. The last row is the mean area of local searches less
    that of the strategies with a model. The intervals contain 95 % of 2,000 bootstrap samples of the tables; tables of
    one kernel are drawn together.
    """
    suite_runs = [read_baselines(suite) for suite in suites]
    common = set.intersection(*({strategy_runs.strategy for strategy_runs in runs} for runs in suite_runs))
    common_runs = [strategy_runs for strategy_runs in suite_runs[0] if strategy_runs.strategy in common]
    names = [strategy_runs.strategy for strategy_runs in common_runs]
    columns, infos, clusters = [], [], []
    for suite, runs in zip(suites, suite_runs, strict=True):
        by_strategy = curves(suite, [strategy_runs for strategy_runs in runs if strategy_runs.strategy in common])
        for table in suite.tables:
            columns.append([by_strategy[name][table.entry.name].mean() for name in names])
            infos.append(TableInfo(read_log(table.path)))
            clusters.append(table.entry.family if table.is_imported else table.name)
    areas = np.array(columns).T  # (strategies, tables)
    advantages = dict(zip((f"`{name}`" for name in names), areas - areas.mean(axis=0), strict=True))
    local = [index for index, strategy_runs in enumerate(common_runs) if strategy_runs.policy.name in LOCAL]
    guided = [index for index, strategy_runs in enumerate(common_runs) if strategy_runs.cost_model is not None]
    title = f"{len(local)} local searches less {len(guided)} with a model"
    advantages[title] = areas[local].mean(axis=0) - areas[guided].mean(axis=0)
    measured = {title: np.array([measure(info) for info in infos]) for title, measure in MEASURES.items()}
    groups = [np.flatnonzero(np.array(clusters) == cluster) for cluster in dict.fromkeys(clusters)]
    rng = np.random.default_rng(0)
    draws = [np.concatenate([groups[i] for i in rng.integers(len(groups), size=len(groups))]) for _ in range(2000)]
    clear = 0

    def cell(advantage: Floats, measure: Floats) -> str:
        nonlocal clear
        resampled = [correlation(advantage[indices], measure[indices]) for indices in draws]
        lower, upper = np.quantile(resampled, (0.025, 0.975))
        clear += bool(lower > 0 or upper < 0)
        mark = "**" if lower > 0 or upper < 0 else ""
        return f"{mark}{correlation(advantage, measure):.2f}{mark} ({lower:.2f} to {upper:.2f})"

    rows = [
        [name, *(cell(advantage, measure) for measure in measured.values())] for name, advantage in advantages.items()
    ]
    ordered = sorted(rows[:-1], key=lambda row: -float(areas[names.index(row[0].strip("`"))].mean()))
    count = len(rows) * len(measured)
    summary = (
        f"{len(infos)} tables in {len(groups)} independent groups. {clear} of the {count} intervals, in bold, do not "
        f"contain 0; if nothing depended on anything, {0.05 * count:.0f} would be expected."
    )
    return f"{markdown(['strategy', *measured], [*ordered, rows[-1]])}\n\n{summary}"


def correlation(first: Floats, second: Floats) -> float:
    """Return Spearman's rank correlation; 0 if either is constant."""
    first_ranks, second_ranks = rankdata(first), rankdata(second)
    if np.ptp(first_ranks) == 0 or np.ptp(second_ranks) == 0:
        return 0.0
    return float(np.corrcoef(first_ranks, second_ranks)[0, 1])


def batches(suite: Suite, runs: Sequence[Trajectories]) -> str:
    """Return the mean area of each strategy for each batch size, from runs labelled ``STRATEGY, BATCH``."""
    by_label = curves(suite, runs)
    by_strategy: dict[str, dict[int, Floats]] = defaultdict(dict)
    for name, tables in by_label.items():
        strategy, _, batch = name.rpartition(", ")
        by_strategy[strategy][int(batch)] = np.array([curve.mean(axis=1) for curve in tables.values()])
    sizes = sorted({size for by_size in by_strategy.values() for size in by_size})

    def cell(by_size: Mapping[int, Floats], size: int) -> str:
        if size == sizes[0]:
            return f"{by_size[size].mean():.3f}"
        answer = paired_difference(list(by_size[size]), list(by_size[sizes[0]])).on_these.difference
        return with_interval(answer.value, answer.lower, answer.upper)

    ordered = sorted(by_strategy.items(), key=lambda item: -item[1][sizes[0]].mean())
    rows = [[f"`{name}`", *(cell(by_size, size) for size in sizes)] for name, by_size in ordered]
    return markdown(["strategy", f"batch {sizes[0]}", *(f"{size} less {sizes[0]}" for size in sizes[1:])], rows)


def failures(suite: Suite, other_runs: Sequence[Trajectories] = ()) -> str:
    """Return the share of trials that each strategy spends on configs that fail, over the tables with such configs.

    Runs labelled ``STRATEGY, failures`` are compared with the baseline STRATEGY.
    """
    tables = [table for table in suite.tables if not np.isfinite(list(costs_of(table).values())).all()]
    if other_runs:
        tables = [
            table for table in tables if all(table.entry.name in strategy_runs.tables for strategy_runs in other_runs)
        ]
    failing = {table.name: ~np.isfinite(list(costs_of(table).values())) for table in tables}
    part = replace(suite, spec=msgspec.structs.replace(suite.spec, tables=[table.entry for table in tables]))
    runs = [*read_baselines(suite), *other_runs]
    areas = {name: [curve.mean(axis=1) for curve in by_table.values()] for name, by_table in curves(part, runs).items()}
    rows = []
    for strategy_runs in runs:
        shares = []
        late_shares = []
        for table in tables:
            fails = failing[table.name]
            failed = [fails[list(run.configs)] for run in strategy_runs.runs_on(table).runs]
            shares.append(np.mean([run.mean() for run in failed]) / fails.mean())
            late_shares.append(np.mean([run[len(run) // 2 :].mean() for run in failed]) / fails.mean())
        origin = strategy_runs.strategy.removesuffix(", failures")
        gain = ""
        if origin != strategy_runs.strategy:
            answer = paired_difference(areas[strategy_runs.strategy], areas[origin]).on_these.difference
            gain = with_interval(answer.value, answer.lower, answer.upper)
        cells = [
            f"`{strategy_runs.strategy}`",
            f"{np.mean(shares):.2f}",
            f"{np.mean(late_shares):.2f}",
            f"{np.mean(areas[strategy_runs.strategy]):.3f}",
        ]
        rows.append((float(np.mean(shares)), [*cells, gain]))
    head = ["strategy", "failures, relative to random draws", "in the second half of a run", "area", "gain in area"]
    rows_text = markdown(head, [row for _, row in sorted(rows)])
    return f"{len(tables)} tables:\n\n{rows_text}"


def losses(suite: Suite) -> str:
    """Return the area that each baseline loses in each part of its runs, and a bound on its area after 8 trials.

    The lost parts and the area in a row add up to 1. The bound is the area of a run that has the same first 8 trials,
    and then the optimum.
    """
    rows: list[tuple[float, list[str]]] = []
    for name, tables in curves(suite, runs := read_baselines(suite)).items():
        lost = np.mean([(1 - curve).mean(axis=0) for curve in tables.values()], axis=0)
        parts = [float(lost[a:b].sum()) / len(lost) for a, b in pairwise([0, 8, 32, len(lost)])]
        area = 1 - float(lost.mean())
        rows.append((area, [f"`{name}`", f"{area:.3f}", *(f"{part:.3f}" for part in parts), f"{1 - parts[0]:.3f}"]))
    last = max(strategy_runs.trial_count for strategy_runs in runs)
    head = ["strategy", "area", "lost in trials 1 to 8", "9 to 32", f"33 to {last}", "bound after 8 trials"]
    return markdown(head, [row for _, row in sorted(rows, reverse=True)])


QUESTIONS: Mapping[str, Callable[[Sequence[Suite], argparse.Namespace], str]] = {
    "portability": lambda suites, _: portability(suites[0]),
    "importance": lambda suites, _: importance(suites[0]),
    "portfolio": lambda suites, _: portfolio(suites[0]),
    "failures": lambda suites, options: failures(suites[0], read_results(options.runs)),
    "rankings": lambda suites, _: rankings(suites),
    "real": lambda suites, options: reality(suites, options.runs, options.walks, options.trials, options.earlier),
    "landscapes": lambda suites, _: landscapes(suites),
    "losses": lambda suites, _: losses(suites[0]),
    "batches": lambda suites, options: batches(suites[0], read_results(options.runs)),
}


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument(
        "suite", nargs="+", help="suite, such as hub-v1 or hub-v1/test; `rankings` and `real` take several"
    )
    parser.add_argument("--runs", type=Path, nargs="+", default=[], help="directories of results or logs")
    parser.add_argument("--walks", type=Path, nargs="+", default=[], help="for `real`: directories of random walks")
    parser.add_argument("--trials", type=int, help="for `real`: the number of trials of each run that count (all)")
    parser.add_argument("--earlier", type=Path, help="for `real`: summary.json of a report on earlier runs, to compare")
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.trials is not None and options.trials < 1:
        parser.error(f"--trials must be at least 1, not {options.trials}")
    suites = [find_suite(name) for name in options.suite]
    try:
        print(QUESTIONS[options.question](suites, options))
    except SearchlabError as error:
        parser.exit(1, f"error: {error}\n")


if __name__ == "__main__":
    main()
