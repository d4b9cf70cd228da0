"""The models of a surrogate: what they predict of trials, from the features of configs."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...costmodel import Array
from ...errors import SearchlabError, last_line
from ...records import Failure
from .manifest import Manifest, read_checked

if TYPE_CHECKING:
    import lightgbm

NOISE, BUILD, RUN, FAILURE = "noise", "build", "run", "failure"
"""The models beside the members: log of the standard deviation of the log seconds of repeats; log of build and of run
seconds; and the probability of success and of each kind of failure."""


def member(number: int) -> str:
    """The name of a model of log seconds."""
    return f"seconds-{number}"


def file_of(model: str) -> str:
    """The file of a model, in the directory of the surrogate."""
    return f"models/{model}.txt.gz"


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

    texts: LightGBM's text of each model, by its name; :data:`NOISE` and :data:`FAILURE` may be absent. kinds: the
    failures that the model of failures knows, in order. Raises SearchlabError for a text that is no model.
    """

    def __init__(self, texts: Mapping[str, str], members: int, kinds: list[Failure]) -> None:
        self._kinds = kinds
        self._members = [_trees(texts, member(number)) for number in range(members)]
        self._noise = _trees(texts, NOISE) if NOISE in texts else None
        self._build, self._run = _trees(texts, BUILD), _trees(texts, RUN)
        self._failure = _trees(texts, FAILURE) if kinds else None

    @classmethod
    def load(cls, directory: Path, manifest: Manifest) -> TrialModel:
        """The models in the directory of a surrogate. Raises SearchlabError if one is missing or damaged."""
        texts: dict[str, str] = {}
        for name in manifest.files:
            if name.startswith("models/"):
                try:
                    text = gzip.decompress(read_checked(directory, manifest, name)).decode()
                except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
                    raise SearchlabError(f"{directory / name} is damaged: {error}") from None
                texts[Path(name).name.removesuffix(".txt.gz")] = text
        return cls(texts, manifest.settings.members, list(manifest.failures))

    def predict(self, rows: Array) -> Predicted:
        """rows: (n, d), n >= 1, with the columns that it was trained on."""
        n = len(rows)
        failures: list[Failure | None] = [None] * n
        probability = np.zeros(n)
        if self._failure is not None:
            classes = _predict(self._failure, rows)  # (n, 1 + kinds), success first
            probability = 1 - classes[:, 0]
            kind = classes[:, 1:].argmax(axis=1)
            failures = [self._kinds[k] if p > 0.5 else None for k, p in zip(kind, probability, strict=True)]
        return Predicted(
            np.stack([_predict(trees, rows) for trees in self._members]),
            np.zeros(n) if self._noise is None else np.exp(_predict(self._noise, rows)),
            np.exp(_predict(self._build, rows)),
            np.exp(_predict(self._run, rows)),
            failures,
            probability,
        )


def _trees(texts: Mapping[str, str], name: str) -> lightgbm.Booster:
    import lightgbm

    if name not in texts:
        raise SearchlabError(f"the surrogate has no model {name!r}; train it again")
    try:
        return lightgbm.Booster(model_str=texts[name])
    except lightgbm.basic.LightGBMError as error:
        raise SearchlabError(f"the model {name!r} of the surrogate is damaged: {last_line(error)}") from None


def _predict(trees: lightgbm.Booster, rows: Array) -> Array:
    return np.asarray(trees.predict(rows, num_threads=1), dtype=np.float64)
