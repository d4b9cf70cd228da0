"""Kernel Tuner's greedy iterated local search.

Sources: Schoonhoven, van Werkhoven and Batenburg, "Benchmarking optimization algorithms for auto-tuning GPU kernels"
(IEEE Transactions on Evolutionary Computation, 2022, arXiv 2210.01465); ``greedy_ils.py`` and ``hillclimbers.py`` in
``kernel_tuner/strategies`` of Kernel Tuner 1.0. Since version 1.4, a climb ends at the first improvement, and a scan
changes the next knob without returning to its base first.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from searchlab.options import Count, UnitInterval
from searchlab.policy import NeverTwice, Origin, private_rng
from searchlab.records import Trial
from searchlab.space import Config, Space

from .neighbours import perturb, vary_knob

MAX_SCANS = 256
"""The maximum number of scans per ask. If they find nothing new, a random config is proposed."""


@dataclass(frozen=True, eq=False)
class Scan:
    """A scan through the neighbours of a config.

    Attributes:
        number: The scan's number, which determines its random numbers.
        idle_climb_count: The number of consecutive climbs without progress.
    """

    number: int
    centre: Config
    idle_climb_count: int
    neighbours: Iterable[Config]


class GreedyIls(NeverTwice):
    """Kernel Tuner's greedy iterated local search: hill climbs from perturbations of the last local optimum.

    A climb goes through the knobs in random order and tries all other values of each, also in random order. It moves to
    the first faster config and starts over from there. It ends at a local optimum, where changing a single knob does
    not lead to a faster config. The next climb starts a few random steps away from this optimum, or from a random
    config if the search has been idle for too long. Use ``batch = 1``: larger batches include neighbours that the climb
    would not have needed. With a warm start, the first climb starts from the fastest trial.

    Args:
        no_improvement: The number of consecutive climbs that do not end at a faster config than the first of the run,
            after which climbs start from random configs.
        random_walk: The number of steps from a local optimum to the start of the next climb, as a fraction of the
            number of knobs; at least one step is taken. A step changes a single knob.
    """

    origin = Origin(
        "Kernel Tuner's greedy_ils",
        "kernel_tuner 1.0",
        "kernel_tuner/strategies/greedy_ils.py",
        "reproduction",
        (
            "a batch contains the configs that come next if none of them is faster; batch = 1 is the original",
            "a knob that cannot be changed alone is changed together with those that depend on it",
            "a random config follows 256 scans in which all configs were known",
        ),
    )

    def __init__(self, space: Space, *, seed: int, no_improvement: Count = 50, random_walk: UnitInterval = 0.3) -> None:
        super().__init__(space, seed=seed)
        self.no_improvement = no_improvement
        self.random_walk = random_walk
        self._costs: dict[Config, float] = {}
        self._first_config = space.sample(private_rng(seed, "greedy-ils: start"))
        self._scan = self._make_scan(0, self._first_config, 0)

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        """Follow the search while costs are known, and then continue as if no config in this batch were faster."""
        scan, is_certain = self._scan, True
        for _ in range(MAX_SCANS):
            requests = self._scan_neighbours(scan)
            cost = None
            while True:
                try:
                    config = requests.send(cost)
                except StopIteration as end:
                    scan = end.value
                    break
                cost = self._costs.get(config)
                if cost is None:
                    is_certain = False
                    yield config
            if is_certain:
                self._scan = scan

    def _scan_neighbours(self, scan: Scan) -> Generator[Config, float | None, Scan]:
        """Yield the configs of a scan, receive the cost of each (None if unknown), and return the next scan."""
        cost = yield scan.centre
        if cost is None:
            cost = -math.inf
        for config in scan.neighbours:
            neighbour_cost = yield config
            if neighbour_cost is not None and neighbour_cost < cost:
                return self._make_scan(scan.number + 1, config, scan.idle_climb_count)
        # Kernel Tuner compares each local optimum with the first config of the run, not with the best so far.
        idle_climb_count = 0 if cost < self._costs.get(self._first_config, math.inf) else scan.idle_climb_count + 1
        rng = private_rng(self.seed, "greedy-ils: walk", scan.number)
        if idle_climb_count >= self.no_improvement:
            return self._make_scan(scan.number + 1, self.space.sample(rng), idle_climb_count)
        step_count = max(1, int(self.random_walk * len(scan.centre)))
        return self._make_scan(scan.number + 1, perturb(self.space, scan.centre, step_count, rng), idle_climb_count)

    def _make_scan(self, number: int, centre: Config, idle_climb_count: int) -> Scan:
        return Scan(number, centre, idle_climb_count, ReusableConfigs(self._generate_neighbours(number, centre)))

    def _generate_neighbours(self, number: int, centre: Config) -> Iterator[Config]:
        rng = private_rng(self.seed, "greedy-ils", number)
        knobs = self.space.knobs(centre)
        for i in rng.permutation(len(knobs)).tolist():
            values = [value for value in knobs[i].choices if value != centre[knobs[i].name]]
            order = rng.permutation(len(values)).tolist()
            yield from vary_knob(self.space, centre, knobs[i], rng, [values[j] for j in order])

    def warm_start(self, trials: Sequence[Trial]) -> None:
        super().warm_start(trials)
        if self.trials:
            self._first_config = min(self.trials, key=lambda trial: trial.cost).config
            self._scan = self._make_scan(0, self._first_config, 0)

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        self._costs.update((trial.config, trial.cost) for trial in trials if trial.config in self.seen)


class ReusableConfigs(Iterable[Config]):
    """The configs of an iterator, stored for repeated iteration because producing each may take milliseconds."""

    def __init__(self, source: Iterator[Config]) -> None:
        self._source = source
        self._configs: list[Config] = []

    def __iter__(self) -> Iterator[Config]:
        yield from self._configs
        for config in self._source:
            self._configs.append(config)
            yield config
