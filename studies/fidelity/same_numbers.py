"""Runs the reproductions with the originals' random numbers: ``python same_numbers.py [--json FILE]``.

The recordings of the originals began with ``random.seed(seed)`` and ``numpy.random.seed(seed)``. A reproduction that
draws from the same streams in the same order must propose the same configs. For each recording, the script prints how
many runs agree completely, the number of trials until the first difference, and the ratio of the mean areas.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
from scipy.stats import norm

import searchlab_costmodels.autotvm as cost_model
import searchlab_policies.autotvm.genetic as genetic
import searchlab_policies.autotvm.xgb as xgb
import searchlab_policies.generated as generated
import searchlab_policies.greedy_ils as greedy_ils
import searchlab_policies.hybrid_vndx as hybrid_vndx
import searchlab_policies.one_plus_one as one_plus_one
import searchlab_policies.tabu_grey_wolf as tabu_grey_wolf
from searchlab import load_log
from searchlab.arrays import Array
from searchlab.costmodel import BoundCostModel
from searchlab.costmodel.features import make_features
from searchlab.policy import Policy
from searchlab.records import Measurement, Trial
from searchlab.space import Config, Knob, Value
from searchlab_policies.autotvm.index import AutoTVMGrid
from searchlab_policies.droplet import Droplet
from searchlab_policies.greedy_ils import GreedyIls
from searchlab_policies.hybrid_vndx import HybridVndx
from searchlab_policies.neighbours import vary_knob
from searchlab_policies.one_plus_one import OnePlusOne
from searchlab_policies.tabu_grey_wolf import TabuGreyWolf
from searchlab_spaces.templates.space import KnobTemplate

HERE = Path(__file__).parent
TABLE = HERE / "gemm-knob-template.parquet"

Answers = Mapping[Config, Measurement]


@cache
def table() -> tuple[KnobTemplate, Answers]:
    """Return the searched space and each config's measurement, whose cost is the mean of the repeats."""
    result = load_log(TABLE)
    assert isinstance(result.space, KnobTemplate)
    return result.space, {trial.config: replace(trial.measurement, statistic="mean") for trial in result.trials}


def read_recording(name: str) -> dict[int, list[int]]:
    """Return, by seed, the indices that the original measured. Repeats do not count as trials, and are omitted."""
    runs = json.loads((HERE / "recorded" / f"{name}.json").read_text())
    return {int(seed): list(dict.fromkeys(indices)) for seed, indices in runs.items()}


def search_table(policy: Policy, batch: int, trials: int) -> list[int]:
    """Return the indices of the first ``trials`` configs that ``policy`` proposes when searching the table."""
    space, answers = table()
    indices: list[int] = []
    while len(indices) < trials and (configs := policy.ask(batch)):
        configs = configs[: trials - len(indices)]
        policy.tell([Trial(len(indices) + i, config, answers[config]) for i, config in enumerate(configs)])
        indices += [space.index_of(config) for config in configs]
    return indices


class GlobalNumbers:
    """numpy's global random stream with the methods of a Generator that the tuners use."""

    def integers(self, n: int) -> int:
        return int(np.random.randint(n))

    def random(self, n: int | None = None) -> Any:
        return np.random.random() if n is None else np.random.random(n)

    def choice(self, n: int, **options: Any) -> Any:
        return np.random.choice(np.arange(n), **options)


def sample_ints(n: int) -> Array:
    """Draw ``n`` indices in the same order as AutoTVM: the iteration order of a Python set."""
    indices: set[int] = set()
    while len(indices) < n:
        indices.add(random.randrange(table()[0].size()))
    return np.fromiter(indices, int, len(indices))


def sample_new(space: KnobTemplate, _: object, n: int, seen: Container[Config]) -> list[Config]:
    """Replace ``Space.sample_new`` with AutoTVM's draws: ``sample_ints`` for the chains, and one by one otherwise."""
    if seen == ():
        return [space.config_at(int(index)) for index in sample_ints(n)]
    new: list[Config] = []
    while len(new) < n:
        config = space.config_at(random.randrange(space.size()))
        if config not in seen and config not in new:
            new.append(config)
    return new


class Shuffles:
    """Python's global random stream, with which Kernel Tuner shuffles."""

    def permutation(self, n: int) -> Array:
        order = list(range(n))
        random.shuffle(order)
        return np.array(order)


def kernel_tuner_order(configs: Iterable[Config]) -> list[Config]:
    """Return ``configs`` in the order of Kernel Tuner's list.

    The knob with the fewest choices varies slowest, and the last choice of each knob comes first.
    """
    knobs = sorted(table()[0].axes, key=lambda knob: len(knob.choices))
    return sorted(configs, key=lambda config: [-knob.choices.index(config[knob.name]) for knob in knobs])


@cache
def all_configs() -> list[Config]:
    return kernel_tuner_order(table()[0].enumerate())


def sample(space: KnobTemplate, _: object) -> Config:
    """Replace ``Space.sample`` with Kernel Tuner's draw."""
    return random_sample()[0]


def random_sample(*_: object, n: int = 1) -> list[Config]:
    """Draw like ``Searchspace.get_random_sample``."""
    return [all_configs()[index] for index in np.random.choice(len(all_configs()), size=n, replace=False).tolist()]


def perturb(space: KnobTemplate, config: Config, steps: int, rng: Any) -> Config:
    """Replace ``perturb`` with Kernel Tuner's ``random_walk``, whose ``mutate`` also draws a chance that is 1."""
    for _ in range(steps):
        random.random()
        neighbours = (neighbour for knob in space.knobs(config) for neighbour in vary_knob(space, config, knob, rng))
        config = random.choice(kernel_tuner_order(neighbours))
    return config


class NevergradsNumbers:
    """The random state of Nevergrad's parametrization, and numpy's global one."""

    def __init__(self, seed: int) -> None:
        self.state = np.random.RandomState(seed)

    def standard_normal(self) -> float:
        return float(np.random.randn())

    def random(self, n: int) -> Any:
        return self.state.rand(n)


def redraw(knob: Knob, value: Value, rng: NevergradsNumbers) -> Value:
    """Replace ``redraw`` with Nevergrad's ``significantly_mutate``: a value is a quantile of a normal distribution.

    Each parameter is redrawn as if it had the largest number of values, so one with fewer may keep its value.
    """

    def position(quantile: float, count: int) -> int:
        return int(np.clip(count * norm.cdf(quantile), 0, count - 1))

    most, count = max(len(knob.choices) for knob in table()[0].axes), len(knob.choices)
    before = norm.ppf((knob.choices.index(value) + 0.5) / count)
    while position(draw := rng.state.normal(), most) == position(before, most):
        pass
    return knob.choices[position(draw, count)]


class NevergradsOnePlusOne(OnePlusOne):
    """The policy with Nevergrad's random numbers and its first config: the middle of every knob."""

    def __init__(self, seed: int) -> None:
        super().__init__(table()[0], seed=seed)
        np.random.seed(seed)  # the first config is not drawn
        self.parent = self.space.decide(lambda knob: knob.choices[(len(knob.choices) - 1) // 2])
        self._numbers = NevergradsNumbers(seed)

    def propose(self, n: int, rng: Any) -> Iterator[Config]:
        return super().propose(n, self._numbers)  # type: ignore[arg-type]


@contextmanager
def originals_numbers(seed: int) -> Iterator[None]:
    """Within this context, the reproductions draw the random numbers that the originals drew from ``seed``."""
    table()  # loading it draws samples
    random.seed(seed)
    np.random.seed(seed)
    with (
        patch.object(genetic, "private_rng", lambda *_: GlobalNumbers()),
        patch.object(xgb, "private_rng", lambda *_: GlobalNumbers()),
        patch.object(cost_model, "shuffle", lambda _, n: np.random.permutation(n)),
        patch.object(KnobTemplate, "sample_new", sample_new),
        patch.object(greedy_ils, "private_rng", lambda *_: Shuffles()),
        patch.object(greedy_ils, "perturb", perturb),
        patch.object(KnobTemplate, "sample", sample),
        patch.object(one_plus_one, "redraw", redraw),
        patch.object(one_plus_one, "MAX_MUTATIONS", 10_000),
    ):
        yield


def genetic_tuner(seed: int, **options: Any) -> Policy:
    space, _ = table()
    policy = genetic.AutoTVMGenetic(space, seed=seed, **options)
    random.seed(seed)
    np.random.seed(seed)
    policy._genes = [space.config_at(int(index)) for index in set(sample_ints(policy.population))]
    return policy


def xgb_tuner(seed: int, loss: Literal["reg", "rank"] = "reg", plan_size: int = 64) -> Policy:
    space, _ = table()
    model = BoundCostModel(
        cost_model.AutoTVM(seed=seed, loss=loss, plan_size=plan_size), make_features("autotvm-knob", space)
    )
    return xgb.AutoTVMXgb(space, seed=seed, cost_model=model, plan_size=plan_size)


def droplet_tuner(seed: int) -> Policy:
    index = json.loads((HERE / "recorded" / "droplet-starts.json").read_text())[seed]
    start = []
    for knob in table()[0].axes:
        index, position = divmod(index, len(knob.choices))
        start.append(position)
    return Droplet(table()[0], seed=seed, start=start)


class PythonsNumbers(GlobalNumbers):
    """Python's global random stream with the methods of a Generator that the strategies use."""

    def integers(self, n: int) -> int:
        return random.randrange(n)

    def random(self, n: int | None = None) -> float:
        return random.random()

    def choice(self, n: int, **options: Any) -> list[int]:
        return random.sample(range(n), options["size"])


def first_pack(space: object, rng: object, n: int, seen: object) -> list[Config]:
    """Replace ``Space.sample_new``; a batch that is full draws nothing."""
    return random_sample(n=n) if n else []


@cache
def get_neighbors(config: Config, kind: str) -> list[Config]:
    """Return the same as ``Searchspace.get_neighbors``, in the same order."""
    space, _ = table()
    indices = space.indices(all_configs())
    steps_apart = np.abs(indices - space.indices([config])[0])
    is_neighbour = np.count_nonzero(steps_apart, axis=1) == 1 if kind == "Hamming" else steps_apart.max(axis=1) == 1
    return [all_configs()[index] for index in is_neighbour.nonzero()[0]]


def draw_neighbours(space: object, config: Config, kind: str, n: int, rng: object) -> list[Config]:
    neighbours = get_neighbors(config, kind)
    return random.sample(neighbours, min(n, len(neighbours)))


def crossover(_: object, a: Config, b: Config, rng: object) -> Config:
    return Config([(name, random.choice((a[name], b[name]))) for name in a])


def redraw_one_knob(space: object, config: Config, rng: object) -> Config:
    name = random.choice(list(config))
    donor = random.choice(random_sample())  # consumes a random number, even for a single config
    return Config({**config, name: donor[name]})


@contextmanager
def generated_numbers(seed: int) -> Iterator[None]:
    """Extend :func:`originals_numbers` to the generated optimisers, whose numbers are Python's."""
    all_configs()
    with (
        originals_numbers(seed),
        patch.object(np.random, "default_rng", lambda *_: PythonsNumbers()),
        patch.object(generated, "private_rng", lambda *_: PythonsNumbers()),
        patch.object(tabu_grey_wolf, "private_rng", lambda *_: PythonsNumbers()),
        patch.object(hybrid_vndx, "draw_neighbours", draw_neighbours),
        patch.object(tabu_grey_wolf, "draw_neighbours", draw_neighbours),
        patch.object(tabu_grey_wolf, "redraw_one_knob", redraw_one_knob),
        patch.object(KnobTemplate, "sample_new", first_pack),
        patch.object(KnobTemplate, "crossover", crossover),
    ):
        yield


TUNERS: dict[str, tuple[int, Callable[[int], Policy]]] = {
    "grid-b8": (8, lambda seed: AutoTVMGrid(table()[0], seed=seed)),
    "ga-b8": (8, genetic_tuner),
    "ga-b64": (64, genetic_tuner),
    "ga-p16e4-b8": (8, lambda seed: genetic_tuner(seed, population=16, elites=4)),
    "xgb-knob-reg-plan64-b64": (64, xgb_tuner),
    "xgb-knob-rank-plan64-b64": (64, lambda seed: xgb_tuner(seed, loss="rank")),
    "xgb-knob-reg-plan8-b8": (8, lambda seed: xgb_tuner(seed, plan_size=8)),
    "droplet-b8": (8, lambda seed: Droplet(table()[0], seed=seed)),
    "droplet-b64": (64, lambda seed: Droplet(table()[0], seed=seed)),
    "droplet-starts-b8": (8, droplet_tuner),
    "droplet-starts-b64": (64, droplet_tuner),
    "greedy-ils-b1": (1, lambda seed: GreedyIls(table()[0], seed=seed)),
    "greedy-ils-restarts-b1": (1, lambda seed: GreedyIls(table()[0], seed=seed, no_improvement=1, random_walk=0.6)),
    "one-plus-one-b1": (1, NevergradsOnePlusOne),
    "hybrid-vndx-b1": (1, lambda seed: HybridVndx(table()[0], seed=seed)),
    "hybrid-vndx-cold-b1": (1, lambda seed: HybridVndx(table()[0], seed=seed, temperature=0.01, restart=5)),
    "tabu-grey-wolf-b1": (1, lambda seed: TabuGreyWolf(table()[0], seed=seed)),
    "tabu-grey-wolf-cold-b1": (1, lambda seed: TabuGreyWolf(table()[0], seed=seed, budget=400, patience=8)),
}
"""For each recording, the batch size and a function that creates the reproduction from a seed."""


GENERATED = ("hybrid-vndx-b1", "hybrid-vndx-cold-b1", "tabu-grey-wolf-b1", "tabu-grey-wolf-cold-b1")
"""The recordings of generated optimisers."""


def repeat_run(name: str, seed: int, trials: int) -> list[int]:
    """Return the reproduction's first ``trials`` indices, with a recorded run's random numbers."""
    batch, tuner = TUNERS[name]
    with (generated_numbers if name in GENERATED else originals_numbers)(seed):
        return search_table(tuner(seed), batch, trials)


def area(indices: list[int]) -> float:
    space, answers = table()
    best = min(measurement.cost for measurement in answers.values())
    shares = [best / answers[space.config_at(index)].cost for index in indices]
    return float(np.maximum.accumulate(shares).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("names", nargs="*", default=list(TUNERS))
    options = parser.parse_args()
    figures: dict[str, dict[str, Any]] = {}
    print("| recording | runs | identical | trials alike, median | area over the original's |\n|---|---|---|---|---|")
    for name in options.names:
        runs = read_recording(name)
        shared_lengths, areas = [], []
        for seed, expected in runs.items():
            indices = repeat_run(name, seed, len(expected))
            differs = (
                i
                for i, (index, expected_index) in enumerate(zip(indices, expected, strict=True))
                if index != expected_index
            )
            shared_lengths.append(next(differs, len(expected)))
            areas.append(area(indices))
        identical = sum(count == len(expected) for count, expected in zip(shared_lengths, runs.values(), strict=True))
        ratio = float(np.mean(areas) / np.mean([area(expected) for expected in runs.values()]))
        figures[name] = {
            "runs": len(runs),
            "identical": identical,
            "alike": float(np.median(shared_lengths)),
            "ratio": ratio,
        }
        print(f"| `{name}` | {len(runs)} | {identical} | {np.median(shared_lengths):g} | {ratio:.4f} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
