"""Compares task schedulers on models made of a suite's tables, or on the logs of a model, without measuring anything.

    python studies/schedulers.py
    python studies/schedulers.py --networks 200 --policies xgb --trials 32
    searchlab model tune MODEL --scheduler round-robin --trials 2000 --seed 0 --out model-0
    python studies/schedulers.py --logs model-0 --trials 16,32

If each task has its own cost model, what a policy proposes for a task does not depend on when the task gets its trials.
The recorded runs of the suite's baselines therefore show what any scheduler would have found. A network is a random set
of 8 to 24 tables, each of which occurs 1 to 6 times. The oracle knows all runs in advance and divides the rounds
optimally, for each seed. The command prints a Markdown table.

With --logs, the network is the model whose tasks were tuned, and each directory is a run with a seed of its own. A task
gets at most as many rounds as were logged, so tune each for several times as many trials as the replayed budget.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from searchlab.arrays import Floats, Ints
from searchlab.log.result import load_log
from searchlab.measure.suite import Suite, find_suite
from searchlab.model import SCHEDULERS, ScheduledTask
from searchlab.model.decisions import DECISIONS_FILE, DecisionsHeader
from searchlab.model.scheduler import choose_task
from searchlab.model.tune import LOGS_DIR, UNTUNED_DIR
from searchlab.plugins import Plugin
from searchlab.stats.intervals import Interval, mean_interval
from searchlab.suite.trajectories import RecordedTables, read_baselines
from searchlab.workload import parse_workload

NAMES = sorted(SCHEDULERS.entry_points_by_name(), key=lambda name: name != "round-robin")
"""The schedulers, beginning with round robin."""

SIZES = (8, 24)
OCCURS = 6
GAIN = 0.01  # as in searchlab's option stop_after


class Curve(NamedTuple):
    """A recorded run, in rounds as large as the policy's batch."""

    costs: list[list[float]]  # of each round's trials, in seconds
    best: Floats  # after each round; if no trial has succeeded, the cost of the slowest program in the table


@dataclass(frozen=True)
class Network:
    """A model: tables, and how often each occurs."""

    tables: tuple[str, ...]
    weights: tuple[float, ...]


def read_curves(suite: Suite, policy: str, seeds: int) -> tuple[dict[str, list[Curve]], int]:
    """Return the first runs of a baseline on each table, and its batch."""
    (recorded,) = read_baselines(suite, [policy])
    tables = RecordedTables(suite)
    curves: dict[str, list[Curve]] = {}
    for table in suite.tables:
        costs = tables[table.entry.name].log.costs
        slowest = float(costs[np.isfinite(costs)].max())
        curves[table.entry.name] = []
        for run in recorded.runs_on(table).runs[:seeds]:
            rounds = [
                costs[list(run.configs[i : i + recorded.batch])] for i in range(0, len(run.configs), recorded.batch)
            ]
            curves[table.entry.name].append(_curve(rounds, slowest))
    return curves, recorded.batch


def _curve(rounds: Sequence[Floats], slowest: float) -> Curve:
    best = np.minimum.accumulate([costs.min() for costs in rounds])
    return Curve([costs.tolist() for costs in rounds], np.where(np.isfinite(best), best, slowest))


def read_model(directories: Sequence[Path]) -> tuple[Network, dict[str, list[Curve]], int]:
    """Return a tuned model, its tasks' runs in each directory, and their batch.

    The cost of a task's untuned program is one of its first round, as in ``searchlab model tune``.
    """
    curves: dict[str, list[Curve]] = {}
    for directory in directories:
        with (directory / DECISIONS_FILE).open("rb") as file:
            header = msgspec.json.decode(file.readline(), type=DecisionsHeader)
        for path in sorted((directory / LOGS_DIR).glob("*.jsonl")):
            result, untuned = load_log(path), load_log(directory / UNTUNED_DIR / path.name).log.costs
            costs, workload = result.log.costs, result.workload
            rounds = [costs[i : i + header.batch] for i in range(0, len(costs), header.batch)]
            rounds[0] = np.append(rounds[0], untuned)
            slowest = float(max(costs[np.isfinite(costs)].max(initial=0.0), untuned[0]))
            curves.setdefault(str(workload), []).append(_curve(rounds, slowest))
            op = "" if workload.op == "tir" else workload.op
            TASKS[str(workload)] = ScheduledTask(str(workload), flops=workload.flops, op=op)
    names = tuple(curves)
    return Network(names, tuple(float(header.tasks[name]) for name in names)), curves, header.batch


def random_networks(suite: Suite, count: int, rng: np.random.Generator) -> list[Network]:
    names = [table.entry.name for table in suite.tables]
    networks = []
    for _ in range(count):
        size = int(rng.integers(SIZES[0], SIZES[1] + 1))
        indices = rng.choice(len(names), size, replace=False)
        weights = rng.integers(1, OCCURS + 1, size)
        networks.append(Network(tuple(names[i] for i in indices), tuple(float(weight) for weight in weights)))
    return networks


def resnet50(suite: Suite) -> Network:
    """Return ResNet-50, in which each convolution is represented by the table with the same rank in FLOPs.

    There are fewer tables than convolutions, so some tables represent several; their occurrences are added.
    """
    blocks = {2: 3, 3: 4, 4: 6, 5: 3}
    occurs = {"1": 1.0}
    for stage, count in blocks.items():
        occurs |= {f"{stage}.1{part}": 1.0 for part in "abcs"} | {f"{stage}.2{part}": count - 1.0 for part in "abc"}
    layers = sorted(occurs, key=lambda layer: parse_workload(f"resnet50/conv{layer}").flops)
    played = sorted(
        (table.entry for table in suite.tables if table.entry.workload.startswith("conv2d")),
        key=lambda entry: parse_workload(entry.workload).flops,
    )
    weights = dict.fromkeys((entry.name for entry in played), 0.0)
    for rank, layer in enumerate(layers):
        weights[played[rank * len(played) // len(layers)].name] += occurs[layer]
    return Network(tuple(weights), tuple(weights.values()))


def replay(plugin: Plugin, network: Network, curves: Sequence[Curve], rounds: int, seed: int, patience: int) -> Ints:
    """Return the number of rounds that each task gets, of shape (tasks,).

    Args:
        plugin: The scheduler.
        network: The model.
        curves: The run of each task.
        rounds: The budget.
        seed: The scheduler's seed.
        patience: The number of rounds without a gain of more than 1 % after which a task is left; 0 for never.
    """
    tasks = [
        replace(TASKS[name], weights=(weight,)) for name, weight in zip(network.tables, network.weights, strict=True)
    ]
    scheduler = SCHEDULERS.make(plugin, tasks, seed=seed)
    rounds_by_task = np.zeros(len(tasks), dtype=int)
    open_tasks = list(range(len(tasks)))
    for _ in range(rounds):
        if not open_tasks:
            break
        task = choose_task(scheduler, open_tasks)
        scheduler.tell(task, curves[task].costs[rounds_by_task[task]])
        rounds_by_task[task] += 1
        history = scheduler.histories[task]
        stuck = 0 < patience < len(history) and history[-1 - patience] <= history[-1] * (1 + GAIN)
        if rounds_by_task[task] == len(curves[task].costs) or (stuck and math.isfinite(history[-1])):
            open_tasks.remove(task)
    return rounds_by_task


def oracle(network: Network, curves: Sequence[Curve], rounds: int) -> float:
    """Return the lowest time of the model that any division of ``rounds`` reaches, in seconds, by dynamic programming.

    Each task gets at least one round. ``lowest[r]`` is the lowest time of the tasks so far with r rounds.
    """
    lowest = np.full(rounds + 1, np.inf)
    lowest[0] = 0.0
    for weight, curve in zip(network.weights, curves, strict=True):
        after = np.full(rounds + 1, np.inf)
        for count, best in enumerate(curve.best[:rounds], 1):
            after[count:] = np.minimum(after[count:], lowest[: rounds + 1 - count] + weight * best)
        lowest = after
    return float(lowest.min())


def time_of(network: Network, curves: Sequence[Curve], rounds: Ints) -> float:
    return sum(
        weight * float(curve.best[count - 1])
        for weight, curve, count in zip(network.weights, curves, rounds, strict=True)
    )


def percent(interval: Interval) -> str:
    text = f"{interval.value:+.1%}"
    return text if interval.lower is None else f"{text} ({interval.lower:+.1%} to {interval.upper:+.1%})"


TASKS: dict[str, ScheduledTask] = {}
"""The tasks, by the names of their tables."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="v1")
    parser.add_argument("--policies", default="random,evolutionary,xgb")
    parser.add_argument("--networks", type=int, default=100, help="the number of random networks")
    parser.add_argument("--seeds", type=int, default=10, help="the number of recorded runs for each task")
    parser.add_argument("--trials", default="32,64", help="the budgets: trials per task, on average")
    parser.add_argument("--patience", type=int, default=32, help="trials without a gain after which a task may be left")
    parser.add_argument(
        "--logs",
        type=Path,
        nargs="+",
        help="directories of `searchlab model tune` for the same model, instead of a suite",
    )
    args = parser.parse_args()
    budgets = list(map(int, args.trials.split(",")))
    if args.logs:
        compare_on_logs(args.logs, budgets, args.patience)
        return
    suite = find_suite(args.suite)
    for table in suite.tables:
        workload = parse_workload(table.entry.workload)
        TASKS[table.entry.name] = ScheduledTask(table.entry.name, flops=workload.flops, op=workload.op)
    networks = [*random_networks(suite, args.networks, np.random.default_rng(0)), resnet50(suite)]
    head = (
        "policy",
        "trials per task",
        "scheduler",
        "over the oracle",
        "over round robin",
        f"over the oracle, tasks left after {args.patience} trials",
        "ResNet-50 over the oracle",
    )
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for policy in args.policies.split(","):
        recorded, batch = read_curves(suite, policy, args.seeds)
        for trials in budgets:
            rounds = trials // batch
            if rounds < 1:
                parser.error(f"{policy} was recorded in batches of {batch}; request at least as many trials per task")
            best, robin = times_of(networks, recorded, args.seeds, rounds, None, 0), None
            for name in NAMES:
                times, times_if_left = (
                    times_of(networks, recorded, args.seeds, rounds, Plugin(name), patience)
                    for patience in (0, max(1, args.patience // batch))
                )
                robin = times if robin is None else robin
                cells = [
                    policy,
                    str(trials),
                    name,
                    excess_over(times, best),
                    "-" if times is robin else excess_over(times, robin),
                    excess_over(times_if_left, best),
                    percent(mean_interval((times / best - 1)[-1])),
                ]
                print(f"| {' | '.join(cells)} |", flush=True)


def compare_on_logs(directories: Sequence[Path], budgets: Sequence[int], patience: int) -> None:
    """Print a table with the mean times of a tuned model, and their range over the directories if there are several."""
    network, recorded, batch = read_model(directories)
    head = (
        "trials per task",
        "scheduler",
        "model, ms",
        "over the oracle",
        "over round robin",
        f"over the oracle, tasks left after {patience} trials",
    )
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for trials in budgets:
        rounds = max(1, trials // batch)
        best = times_of([network], recorded, len(directories), rounds, None, 0)[0]
        robin = None
        for name in NAMES:
            times, times_if_left = (
                times_of([network], recorded, len(directories), rounds, Plugin(name), limit)[0]
                for limit in (0, max(1, patience // batch))
            )
            robin = times if robin is None else robin
            texts = [spread(ratio - 1) for ratio in (times / best, times / robin, times_if_left / best)]
            print(f"| {trials} | {name} | {times.mean() * 1e3:.4g} | {' | '.join(texts)} |", flush=True)


def spread(changes: Floats) -> str:
    """Return the mean and, if there are several values, their range."""
    text = f"{changes.mean():+.1%}"
    return text if len(changes) == 1 else f"{text} ({changes.min():+.1%} to {changes.max():+.1%})"


def excess_over(times: Floats, reference: Floats) -> str:
    """Return by how much longer the random networks take: the mean, with an interval over the networks."""
    return percent(mean_interval((times / reference - 1)[:-1].mean(axis=1)))


def times_of(
    networks: Sequence[Network],
    recorded: dict[str, list[Curve]],
    seeds: int,
    rounds: int,
    plugin: Plugin | None,
    patience: int,
) -> Floats:
    """Return the models' times in seconds, of shape (networks, seeds).

    Args:
        networks: The models.
        recorded: The runs of each table.
        seeds: The number of runs.
        rounds: The budget in rounds per task, on average.
        plugin: The scheduler, or None for the oracle.
        patience: As in :func:`replay`.
    """
    times = np.empty((len(networks), seeds))
    for index, network in enumerate(networks):
        for seed in range(seeds):
            curves = [recorded[name][seed] for name in network.tables]
            budget = rounds * len(curves)
            if plugin is None:
                times[index, seed] = oracle(network, curves, budget)
            else:
                rounds_by_task = replay(plugin, network, curves, budget, seed, patience)
                times[index, seed] = time_of(network, curves, rounds_by_task)
    return times


if __name__ == "__main__":
    main()
