"""The models of a surrogate: what they predict of trials, from the features of configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...costmodel import Array
from ...errors import SearchlabError
from ...records import Failure
from .manifest import Manifest, read_checked
from .trees import Trees

NOISE, BUILD, RUN, FAILURE = "noise", "build", "run", "failure"
"""The models beside the members: log of the standard deviation of the log seconds of repeats; log of build and of run
seconds; and the probability of success and of each kind of failure."""


def member(number: int) -> str:
    """The name of a model of log seconds."""
    return f"seconds-{number}"


def file_of(model: str) -> str:
    """The file of a model, in the directory of the surrogate."""
    return f"models/{model}.npz"


@dataclass(frozen=True)
class Predicted:
    """Predictions for n configs; all but ``failures`` hold where the config succeeds.

    members (m, n): log seconds, as each member predicts them. noise (n,): standard deviation of the log seconds of
    repeats. build, run (n,): seconds. failures: the kind of failure of each config, or None; probability (n,): of that.
    """

    members: Array
    noise: Array
    build: Array
    run: Array
    failures: list[Failure | None]
    probability: Array

    @property
    def log_seconds(self) -> Array:
        """The mean of the members: shape (n,)."""
        return np.asarray(self.members.mean(axis=0))

    @property
    def spread(self) -> Array:
        """Standard deviation over the members: shape (n,)."""
        return np.asarray(self.members.std(axis=0))

    @property
    def succeeds(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each config is predicted to succeed: shape (n,)."""
        return np.array([failure is None for failure in self.failures], dtype=bool)


class TrialModel:
    """Predicts trials of one space from rows of features.

    trees: by name; :data:`NOISE` and :data:`FAILURE` may be absent. kinds: the failures that the model of failures
    knows, in order.
    """

    def __init__(self, trees: Mapping[str, Trees], members: int, kinds: Sequence[Failure]) -> None:
        self._kinds = kinds
        self._members = [trees[member(number)] for number in range(members)]
        self._noise = trees.get(NOISE)
        self._build, self._run = trees[BUILD], trees[RUN]
        self._failure = trees[FAILURE] if kinds else None

    @classmethod
    def load(cls, directory: Path, manifest: Manifest) -> TrialModel:
        """The models in the directory of a surrogate. Raises SearchlabError if one is missing or damaged."""
        members, kinds = manifest.settings.members, list(manifest.failures)
        names = [*map(member, range(members)), BUILD, RUN, *[FAILURE] * bool(kinds)]
        names += [NOISE] * (file_of(NOISE) in manifest.files)
        trees: dict[str, Trees] = {}
        for name in names:
            data = read_checked(directory, manifest, file_of(name))
            try:
                trees[name] = Trees.from_bytes(data, manifest.width, 1 + len(kinds) if name == FAILURE else 1)
            except SearchlabError as error:
                raise SearchlabError(f"{directory / file_of(name)} cannot be used: {error}; train it again") from None
        return cls(trees, members, kinds)

    def predict(self, rows: Array) -> Predicted:
        """rows: (n, d), n >= 1, with the columns that it was trained on."""
        n = len(rows)
        failures: list[Failure | None] = [None] * n
        probability = np.zeros(n)
        if self._failure is not None:
            raw = self._failure.predict(rows)  # (n, 1 + kinds), success first
            classes = np.exp(raw - raw.max(axis=1, keepdims=True))
            classes /= classes.sum(axis=1, keepdims=True)
            probability = 1 - classes[:, 0]
            kind = classes[:, 1:].argmax(axis=1)
            failures = [self._kinds[k] if p > 0.5 else None for k, p in zip(kind, probability, strict=True)]
        return Predicted(
            np.stack([trees.predict(rows) for trees in self._members]),
            np.zeros(n) if self._noise is None else np.exp(self._noise.predict(rows)),
            np.exp(self._build.predict(rows)),
            np.exp(self._run.predict(rows)),
            failures,
            probability,
        )
