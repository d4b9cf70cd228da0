"""Answers questions about a suite's tables and the runs over them, without new measurements.

    python studies/suite/questions.py portability hub-v1
    python studies/suite/questions.py importance hub-v1
    python studies/suite/questions.py portfolio hub-v1/test
    python studies/suite/questions.py failures hub-v1/test

Each command prints a Markdown table. `portability` and `importance` compare tables with the same configs, such as those
of one kernel on several GPUs; `portfolio` and `failures` compare the baselines.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
from sklearn.inspection import permutation_importance
from sklearn.model_selection import KFold, cross_val_score
from xgboost import XGBRegressor

from results import markdown
from searchlab.arrays import Floats
from searchlab.log.format import read_log
from searchlab.measure.suite import Suite, SuiteTable, find_suite
from searchlab.records import Statistic, cost_of
from searchlab.space import Config
from searchlab.suite.trajectories import Trajectories, baselines

Costs = Mapping[bytes, float]
"""config as JSON -> seconds, according to the table's statistic; infinity for a failure."""


@cache
def read_costs(path: Path, statistic: Statistic) -> Costs:
    return {
        msgspec.json.encode(record.config, order="sorted"): cost_of(record.seconds, record.failure, statistic)
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
        places = [*costs.argmin(axis=1).tolist(), int(harmonic.argmax())]
        rows = [
            [on, *(f"{100 * row[place]:.0f}" for place in places)]
            for on, row in zip([*map(device, tables), "harmonic mean"], [*efficiencies, harmonic], strict=True)
        ]
        head = ["on", *(f"best on {device(table)}" for table in tables), "best on all"]
        parts.append(f"{name}:\n\n{markdown(head, rows)}")
    return "\n\n".join(parts)


def importance(suite: Suite) -> str:
    """Return how much cross-validated R^2 (five folds) a model of log seconds loses if one knob is permuted."""
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


def curves(suite: Suite, runs: Sequence[Trajectories]) -> Mapping[str, Mapping[str, Floats]]:
    """strategy -> table -> the optimum divided by the best cost so far, shape (seeds, trials); 1 is the optimum."""
    found: dict[str, dict[str, Floats]] = {one.strategy: {} for one in runs}
    for table in suite.tables:
        costs = np.array(list(costs_of(table).values()))
        for one in runs:
            trials = min(one.trials, len(costs))
            rows = []
            for run in one.runs_on(table).runs:
                so_far = np.minimum.accumulate(costs[list(run.configs)])
                rows.append(np.append(so_far, np.full(trials - len(so_far), so_far[-1])))
            found[one.strategy][table.entry.name] = costs.min() / np.array(rows)
    return found


def portfolio(suite: Suite) -> str:
    """Return the best combinations of one, two and three strategies that take turns.

    After t trials, a portfolio has found the best of what its members have found after their shares of t. Its area is
    the mean over tables and seeds, as for a single strategy.
    """
    known = curves(suite, baselines(suite))

    def area(members: tuple[str, ...]) -> float:
        each = []
        for table in known[members[0]]:
            parts = [known[name][table] for name in members]
            size, trials = len(members), parts[0].shape[1]
            found = np.zeros_like(parts[0])
            for place, part in enumerate(parts):
                share = (np.arange(trials) + size - place) // size  # this member's share of the first t trials
                found = np.maximum(found, np.where(share > 0, part[:, np.maximum(share - 1, 0)], 0))
            each.append(found.mean())
        return float(np.mean(each))

    rows = []
    for size in (1, 2, 3):
        ranked = sorted(((area(some), some) for some in combinations(sorted(known), size)), reverse=True)
        rows += [[str(size), " + ".join(f"`{name}`" for name in some), f"{value:.3f}"] for value, some in ranked[:3]]
    return markdown(["strategies", "which", "mean area"], rows)


def failures(suite: Suite) -> str:
    """Return the share of trials that each strategy spends on configs that fail, over the tables with such configs."""
    rows = []
    tables = [table for table in suite.tables if not np.isfinite(list(costs_of(table).values())).all()]
    failing = {table.name: ~np.isfinite(list(costs_of(table).values())) for table in tables}
    for one in baselines(suite):
        shares = []
        late = []
        for table in tables:
            fails = failing[table.name]
            runs = [fails[list(run.configs)] for run in one.runs_on(table).runs]
            shares.append(np.mean([run.mean() for run in runs]) / fails.mean())
            late.append(np.mean([run[len(run) // 2 :].mean() for run in runs]) / fails.mean())
        rows.append((float(np.mean(shares)), [f"`{one.strategy}`", f"{np.mean(shares):.2f}", f"{np.mean(late):.2f}"]))
    head = ["strategy", "failures, relative to random draws", "in the second half of a run"]
    return markdown(head, [row for _, row in sorted(rows)])


QUESTIONS = {"portability": portability, "importance": importance, "portfolio": portfolio, "failures": failures}


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("suite", help="suite, such as hub-v1 or hub-v1/test")
    given = parser.parse_args(None if arguments is None else list(arguments))
    print(QUESTIONS[given.question](find_suite(given.suite)))


if __name__ == "__main__":
    main()
