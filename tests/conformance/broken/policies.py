"""Policies that each break one rule of the contract."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from searchlab.costmodel import BoundCostModel
from searchlab.policy import NeverTwice, Policy
from searchlab.records import Trial
from searchlab.space import Config, Space


class Sound(NeverTwice):
    """Random search, which breaks no rule."""

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        return self.space.sample_new(rng, n, self.seen)


class AnyOption(Sound):
    def __init__(self, space: Space, *, seed: int, **options: Any) -> None:
        super().__init__(space, seed=seed)


class HidesItsModel(Sound):
    """Uses a cost model without declaring it."""

    def __init__(self, space: Space, *, seed: int, cost_model: BoundCostModel | None = None) -> None:
        super().__init__(space, seed=seed)


class NeedsKnobs(Sound):
    def __init__(self, space: Space, *, seed: int) -> None:
        super().__init__(space, seed=seed)
        self.widest = max(len(knob.choices) for knob in space.knobs(next(space.enumerate())))


class NeedsSuccess(Sound):
    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        self.latest = [trial.measurement.seconds[0] for trial in trials]


class Scribbles(Sound):
    """Leaves a note in its configs."""

    def ask(self, n: int) -> Sequence[Config]:
        if n < 2 or not (batch := list(super().ask(n - 1))):
            return super().ask(n)
        return [*batch, Config({**batch[-1], "note": "mine"})]


class Floats(Sound):
    """Proposes 64.0 where the choice is 64, as arithmetic on choices does."""

    def ask(self, n: int) -> Sequence[Config]:
        return [
            Config({name: float(value) if type(value) is int else value for name, value in config.items()})
            for config in super().ask(n)
        ]


class OneMore(Sound):
    def ask(self, n: int) -> Sequence[Config]:
        return super().ask(n + 1)


class Twins(Sound):
    """Proposes the last config of a batch twice."""

    def ask(self, n: int) -> Sequence[Config]:
        if n < 2 or not (batch := list(super().ask(n - 1))):
            return super().ask(n)
        return [*batch, batch[-1]]


class Unseeded(Sound):
    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        return self.space.sample_new(np.random.default_rng(), n, self.seen)


class GlobalStream(Sound):
    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        return self.space.sample_new(np.random.default_rng(np.random.randint(2**31)), n, self.seen)


class SeedsGlobalStream(Sound):
    """Draws from no global stream, but sets its seed."""

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        np.random.seed(self.seed)
        return super().propose(n, rng)


class DeafToSeed(Sound):
    def __init__(self, space: Space, *, seed: int) -> None:
        super().__init__(space, seed=0)


class SaysSeedless(Sound, uses_seed=False):
    pass


class SeedFromClock(Sound):
    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        fortnight = int(time.time() / 1e6)
        return self.space.sample_new(np.random.default_rng([fortnight, self.seed, len(self.seen)]), n, self.seen)


class OrderOfHashes(Sound):
    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        return sorted(self.space.sample_new(rng, 4 * n, self.seen), key=hash)


class CountsAsks(Sound):
    def __init__(self, space: Space, *, seed: int) -> None:
        super().__init__(space, seed=seed)
        self.asks = 0

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        self.asks += 1
        return self.space.sample_new(np.random.default_rng([self.seed, self.asks]), n, self.seen)


class KeepsTheList(Sound):
    history: list[Trial] | None = None

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        if self.history is None:
            self.history = trials  # type: ignore[assignment]
        else:
            self.history += trials


class KnowsItsOwn(Sound):
    def tell(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            if trial.config not in self.seen:
                raise KeyError(f"{trial.config} was not asked for")
        super().tell(trials)


class ProposesTheKnown(Policy):
    """Never repeats its own proposals, but proposes configs that it was told about."""

    def __init__(self, space: Space, *, seed: int) -> None:
        super().__init__(space, seed=seed)
        self.proposed: dict[Config, None] = {}
        self.best: Trial | None = None

    def ask(self, n: int) -> Sequence[Config]:
        rng = np.random.default_rng([self.seed, len(self.proposed)])
        first = [self.best.config] if self.best and self.best.config not in self.proposed and n else []
        batch = first + self.space.sample_new(rng, n - len(first), {*self.proposed, *first})
        self.proposed.update(dict.fromkeys(batch))
        return batch

    def tell(self, trials: Sequence[Trial]) -> None:
        members = [trial for trial in trials if trial.config in self.space]
        self.best = min([*members, *([self.best] if self.best else [])], key=lambda trial: trial.cost, default=None)


class ForgetsOtherRuns(Sound):
    """Remembers only the best config of other runs, and proposes it again."""

    best: Trial | None = None

    def warm_start(self, trials: Sequence[Trial]) -> None:
        members = [trial for trial in trials if trial.config in self.space]
        self.best = min(members, key=lambda trial: trial.cost, default=None)

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        return [*([self.best.config] if self.best else []), *super().propose(n, rng)]


class StartsAtRandom(Sound):
    """Draws the trials of other runs from which it starts from an unseeded stream."""

    chance: int | None = None

    def warm_start(self, trials: Sequence[Trial]) -> None:
        super().warm_start(trials)
        self.chance = int(np.random.default_rng().integers(2**31))

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        if self.chance is not None:
            rng = np.random.default_rng([self.chance, len(self.seen)])
        return super().propose(n, rng)


class TakesTheWarmStart(Sound):
    """Empties the list that it starts from."""

    def warm_start(self, trials: Sequence[Trial]) -> None:
        super().warm_start(trials)
        trials.clear()  # type: ignore[attr-defined]


class ClimbsFromAnything(Sound):
    """Mutates the best of all trials, even if it belongs to another space."""

    best: Trial | None = None

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        self.best = min([*trials, *([self.best] if self.best else [])], key=lambda trial: trial.cost)

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        return [self.space.mutate(self.best.config, rng)] if self.best else []


class NeedsOneSuccess(Sound):
    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        if self.trials:
            best = min(trial.cost for trial in self.trials if np.isfinite(trial.cost))
            assert best > 0
        return super().propose(n, rng)


class GivesUp(Sound):
    """Ends its search once 20 trials in a row have failed."""

    def ask(self, n: int) -> Sequence[Config]:
        last = self.trials[-20:]
        return [] if len(last) == 20 and all(trial.measurement.failure for trial in last) else super().ask(n)


class NeedsSpread(Sound):
    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        costs = [trial.cost for trial in self.trials if np.isfinite(trial.cost)]
        if len(costs) > 2:
            self.normalised = [(cost - min(costs)) / (max(costs) - min(costs)) for cost in costs]
        return super().propose(n, rng)


class NeverEnds(Policy):
    """Draws until the batch is full."""

    def __init__(self, space: Space, *, seed: int) -> None:
        super().__init__(space, seed=seed)
        self.seen: dict[Config, None] = {}

    def ask(self, n: int) -> Sequence[Config]:
        rng = np.random.default_rng([self.seed, len(self.seen)])
        batch: list[Config] = []
        while len(batch) < n:
            config = self.space.sample(rng)
            if config not in self.seen:
                self.seen[config] = None
                batch.append(config)
        return batch

    def tell(self, trials: Sequence[Trial]) -> None:
        self.seen.update((trial.config, None) for trial in trials if trial.config in self.space)


class MissesSome(Sound):
    """Never proposes the last configs of a small space."""

    def ask(self, n: int) -> Sequence[Config]:
        size = self.space.size(1000)
        count = n if size is None or size > 1000 else max(0, min(n, size - 3 - len(self.seen)))
        return super().ask(count)


class ComparesAll(Sound):
    """Takes time in proportion to the fifth power of the number of trials."""

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        self.pairs = sum(1 for _ in product(range(len(self.trials) // 10), repeat=5))
        return super().propose(n, rng)


BROKEN: dict[str, list[type[Policy]]] = {
    "signature": [AnyOption, HidesItsModel],
    "starts": [NeedsKnobs],
    "runs": [NeedsSuccess],
    "members": [Scribbles, Floats],
    "batch-size": [OneMore],
    "no-repeats": [Twins],
    "same-seed": [Unseeded],
    "global-random-state": [GlobalStream, SeedsGlobalStream],
    "other-seed": [DeafToSeed, SaysSeedless],
    "clock": [SeedFromClock],
    "every-process": [OrderOfHashes],
    "leaves-what-it-is-told": [KeepsTheList],
    "warm-start": [KnowsItsOwn, ProposesTheKnown, ForgetsOtherRuns],
    "same-warm-start": [StartsAtRandom, TakesTheWarmStart],
    "foreign-trials": [ClimbsFromAnything],
    "state-is-what-was-told": [CountsAsks],
    "nothing-succeeds": [NeedsOneSuccess, GivesUp],
    "all-is-equal": [NeedsSpread],
    "exhausts": [NeverEnds, MissesSome],
    "bounded-time": [ComparesAll],
}
