"""Cost models that each break one rule of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from searchlab.arrays import Floats, Ints
from searchlab.costmodel import CostModel


class Sound(CostModel):
    """The score at the mean, and each column's covariance with it. It breaks no rule."""

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        defined = ~np.isnan(features)
        self.means = np.where(defined, features, 0).sum(axis=0) / np.maximum(defined.sum(axis=0), 1)
        self.mean = float(scores.mean())
        self.weights = (self.filled(features) * (scores - self.mean)[:, None]).mean(axis=0)

    def filled(self, features: Floats) -> Floats:
        """The distance of each number to the mean of its column; 0 for NaN."""
        return np.where(np.isnan(features), 0.0, features - self.means)

    def predict(self, features: Floats) -> Floats:
        result: Floats = self.mean + (self.filled(features) * self.weights).sum(axis=1)
        return result


class AnyOption(Sound):
    def __init__(self, *, seed: int, **options: Any) -> None:
        super().__init__(seed=seed)


class NoStart(Sound):
    def __init__(self, *, seed: int) -> None:
        super().__init__(seed=seed)
        self.generator = np.random.Generator(seed)  # type: ignore[arg-type]


class WantsAFrame(Sound):
    def fit(self, features: Any, scores: Floats, groups: Ints) -> None:
        super().fit(features.to_numpy(), scores, groups)


class AColumn(Sound):
    def predict(self, features: Floats) -> Floats:
        return super().predict(features)[:, None]


class NeedsRows(Sound):
    def predict(self, features: Floats) -> Floats:
        self.last = features[-1]
        return super().predict(features)


class KnowsItsRows(Sound):
    """Looks up what it has learnt."""

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        super().fit(features, scores, groups)
        self.fitted_rows = {row.tobytes() for row in features}

    def predict(self, features: Floats) -> Floats:
        fitted_rows = [row.tobytes() in self.fitted_rows for row in features]
        return np.where(fitted_rows, super().predict(features), np.nan)


class HoldsOut(Sound):
    """Centres on a quarter of the rows, of which three have none."""

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        super().fit(features, scores, groups)
        held_out = scores[: len(scores) // 4]
        self.mean = held_out.sum() / np.float64(len(held_out))


class DividesBySpread(Sound):
    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        spread = np.ptp(scores) if len(scores) > 3 and scores.any() else 1.0
        super().fit(features, (scores - scores.min()) / spread, groups)


class DividesByBest(Sound):
    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        super().fit(features, scores / scores.max() if len(scores) > 3 else scores, groups)


class KeepsNan(Sound):
    """Fills NaN in with the mean of the column, if it has one."""

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        super().fit(features, scores, groups)
        if len(features) > 3:
            self.weights[np.isnan(features).all(axis=0)] = np.nan


class DividesByColumn(Sound):
    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        super().fit(features, scores, groups)
        if len(features) > 3 and not np.isnan(features).all(axis=0).any():
            self.weights = self.weights / features.std(axis=0, where=~np.isnan(features))


class NeedsAColumn(Sound):
    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        self.first = features[:, 0]
        super().fit(features, scores, groups)


class NeedsPairs(Sound):
    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        if groups.any() and np.bincount(groups).min() < 2:
            raise ValueError("a group needs two rows to compare")
        super().fit(features, scores, groups)


class FillsInPlace(Sound):
    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        super().fit(np.nan_to_num(features, copy=False), scores, groups)


class Unseeded(Sound):
    def predict(self, features: Floats) -> Floats:
        return super().predict(features) + np.random.default_rng().normal()


class GlobalStream(Sound):
    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        super().fit(features, scores, groups)
        self.mean += np.random.random() * 1e-3


class Remembers(Sound):
    """Adds to what it learnt before."""

    before: tuple[Floats, Floats] | None = None

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        if self.before is not None:
            features = np.concatenate([self.before[0], features])
            scores = np.concatenate([self.before[1], scores])
        self.before = features, scores
        super().fit(features, scores, groups)


class CentresTheBatch(Sound):
    def predict(self, features: Floats) -> Floats:
        scores = super().predict(features)
        return scores - scores.mean() if len(scores) else scores


class ForgetsWhatItSaves(Sound):
    def dump(self) -> dict[str, bytes]:
        return {"model.txt": b"trained"}

    def restore(self, files: Mapping[str, bytes]) -> None:
        self.fit(np.zeros((1, 6)), np.ones(1), np.zeros(1, dtype=np.int64))


class OrderOfHashes(Sound):
    def predict(self, features: Floats) -> Floats:
        return super().predict(features) + hash("salt") * 1e-20


BROKEN: dict[str, list[type[CostModel]]] = {
    "signature": [AnyOption],
    "learns": [NoStart, WantsAFrame],
    "shape": [AColumn, NeedsRows],
    "finite": [KnowsItsRows],
    "few-rows": [HoldsOut],
    "constant-scores": [DividesBySpread, DividesByBest],
    "nan-features": [KeepsNan],
    "constant-features": [DividesByColumn],
    "no-columns": [NeedsAColumn],
    "several-tasks": [NeedsPairs],
    "leaves-its-input": [FillsInPlace],
    "same-seed": [Unseeded],
    "global-random-state": [GlobalStream],
    "forgets": [Remembers],
    "a-row-alone": [CentresTheBatch],
    "restores": [ForgetsWhatItSaves],
    "every-process": [OrderOfHashes],
}
