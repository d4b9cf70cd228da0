"""Cost models and policies that fail during a run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from searchlab.arrays import Floats, Ints
from searchlab.costmodel import BoundCostModel, CostModel
from searchlab.policy import NeverTwice, Policy
from searchlab.records import Trial
from searchlab.space import Config, Space


class BadModel(CostModel):
    """Predicts invalid values or raises an error, as specified by ``how``."""

    def __init__(self, *, seed: int, how: str = "nan") -> None:
        super().__init__(seed=seed)
        self.how = how

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        if self.how == "raises in fit":
            raise ZeroDivisionError("no rows")

    def predict(self, features: Floats) -> Any:
        n = len(features)
        match self.how:
            case "nan":
                return np.full(n, np.nan)
            case "one infinite":
                return np.where(np.arange(n) == n - 1, np.inf, 0.5)
            case "too few":
                return np.zeros(n // 2)
            case "two columns":
                return np.zeros((n, 2))
            case "a column":
                return np.zeros((n, 1))
            case "a number":
                return 0.5
            case "words":
                return ["fast"] * n
            case "objects":
                return np.array([object()] * n)
            case "complex":
                return np.full(n, 1j)
            case "times":
                return np.full(n, "2020-01-01", dtype="datetime64[s]")
            case "masked":
                return np.ma.masked_all(n)
            case "ragged":
                return [[0.0]] * (n - 1) + [[0.0, 1.0]]
            case "raises in predict":
                raise RuntimeError("no model")
        return np.zeros(n)


MODEL_FAULTS = (
    "nan",
    "one infinite",
    "too few",
    "two columns",
    "a column",
    "a number",
    "words",
    "objects",
    "complex",
    "times",
    "masked",
    "ragged",
    "raises in fit",
    "raises in predict",
)


class NotAnException(BaseException):
    """No ``except Exception`` catches it."""


class Negative(list[Config]):
    def __len__(self) -> int:
        return -1


class BadPolicy(Policy):
    """Raises an error or returns invalid proposals, as specified by ``how``; its first batch is correct."""

    def __init__(self, space: Space, *, seed: int, how: str = "constructor") -> None:
        super().__init__(space, seed=seed)
        self.how = how
        self.configs = space.enumerate()
        self.asks = 0
        if how == "constructor":
            raise KeyError("no such thing")

    def ask(self, n: int) -> Sequence[Config]:
        self.asks += 1
        if self.asks > 1:
            match self.how:
                case "ask":
                    return [min([], key=len)]
                case "exit":
                    raise SystemExit(0)
                case "own":
                    raise NotAnException("own")
                case "length":
                    return Negative()
                case "forks":
                    if os.fork() == 0:
                        return [next(self.configs) for _ in range(n)]
                    os.wait()
                case "endless":
                    while True:
                        pass
                case "none":
                    return None  # type: ignore[return-value]
                case "numbers":
                    return [1, 2]  # type: ignore[list-item]
        return [next(self.configs) for _ in range(n)]

    def tell(self, trials: Sequence[Trial]) -> None:
        if self.how == "tell":
            np.zeros(2)[5]


class Slow(CostModel):
    """Takes a twentieth of a second of the CPU to train."""

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        end = time.process_time() + 0.05
        while time.process_time() < end:
            pass

    def predict(self, features: Floats) -> Floats:
        return np.zeros(len(features))


class Trains(NeverTwice, takes_cost_model=True):
    """Trains its cost model when it is told, or when it proposes."""

    def __init__(self, space: Space, *, seed: int, cost_model: BoundCostModel, when: str = "tell") -> None:
        super().__init__(space, seed=seed)
        self.cost_model = cost_model
        self.when = when

    def propose(self, n: int, rng: np.random.Generator) -> list[Config]:
        if self.when == "propose" and self.trials:
            self.cost_model.fit(self.trials)
        return self.space.sample_new(rng, n, self.seen)

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        if self.when == "tell":
            self.cost_model.fit(self.trials)
