"""Cost models and policies that fail while a run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from searchlab.costmodel import Array, CostModel, Groups
from searchlab.policy import Policy
from searchlab.records import Trial
from searchlab.space import Config, Space


class BadModel(CostModel):
    """``how`` says what it predicts, or where it raises."""

    def __init__(self, *, seed: int, how: str = "nan") -> None:
        super().__init__(seed=seed)
        self.how = how

    def fit(self, features: Array, scores: Array, groups: Groups) -> None:
        if self.how == "raises in fit":
            raise ZeroDivisionError("no rows")

    def predict(self, features: Array) -> Any:
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
            case "raises in predict":
                raise RuntimeError("no model")
        return np.zeros(n)


MODEL_FAULTS = (
    "nan", "one infinite", "too few", "two columns", "a column", "a number", "words", "raises in fit",
    "raises in predict",
)  # fmt: skip


class BadPolicy(Policy):
    """``how`` says where it raises, or what it gives instead of configs; the first batch is as it should be."""

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
                case "none":
                    return None  # type: ignore[return-value]
                case "numbers":
                    return [1, 2]  # type: ignore[list-item]
        return [next(self.configs) for _ in range(n)]

    def tell(self, trials: Sequence[Trial]) -> None:
        if self.how == "tell":
            np.zeros(2)[5]
