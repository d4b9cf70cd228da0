"""The recorded trials that a surrogate is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...costmodel import Array
from ...costmodel.features import Columns, make_features
from ...errors import SearchlabError
from ...log.format import Log, find_logs, read_log
from ...log.header import Header
from ...log.result import Result
from ...measure.surrogate.manifest import ModelSettings
from ...records import Trial
from ...space import Space

FEWEST = 32
"""The least number of successful trials to train on."""

RANDOM = "random"
"""The policy whose trials are a random sample of the space."""

Indices = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True)
class TrainingData:
    """The trials of some logs of one space: a config that several hold counts once, the first time.

    rows (n, d): the features of each trial, with these columns. sampled: the indices of the trials of random search;
    of all trials where there are none.
    """

    logs: Sequence[Log]
    space: Space
    trials: Sequence[Trial]
    rows: Array
    columns: Columns
    sampled: Indices

    @property
    def header(self) -> Header:
        return self.logs[0].header

    @classmethod
    def read(cls, where: Sequence[Path], settings: ModelSettings) -> TrainingData:
        """The trials of the logs ``where``, and in the directories among them. Nearest answers are left out.

        Raises SearchlabError for logs that are unreadable, of several spaces or protocols, over a surrogate, or too
        short.
        """
        paths = list(dict.fromkeys(path for given in where for path in find_logs(given)))
        if not paths:
            raise SearchlabError(f"there is no log (*.jsonl) in {', '.join(map(str, where))}")
        logs = [read_log(path) for path in paths]
        for log in logs:
            _check_same(logs[0], log)
        trials: dict[Any, Trial] = {}
        sampled: list[int] = []
        for log in logs:
            for trial in log.trials:
                if trial.config not in trials and not trial.measurement.nearest:
                    if log.header.policy.name == RANDOM:
                        sampled.append(len(trials))
                    trials[trial.config] = trial
        successes = sum(trial.measurement.failure is None for trial in trials.values())
        if successes < FEWEST:
            raise SearchlabError(
                f"the logs hold {successes} different configs that succeeded, but a surrogate is trained on at least "
                f"{FEWEST}; measure more of the space"
            )
        space = Result(logs[0]).space
        features = make_features(settings.features, space)
        features.learn(list(trials))
        return cls(
            logs,
            space,
            list(trials.values()),
            features(list(trials)),
            features.columns,
            np.array(sampled or range(len(trials)), dtype=np.intp),
        )


def _check_same(first: Log, other: Log) -> None:
    """Raise SearchlabError where trials of two logs cannot train one surrogate."""
    if other.header.surrogate:
        raise SearchlabError(
            f"the trials of {other.path} are predictions of a surrogate; train on logs of measured trials"
        )
    for name in ("workload", "fingerprint", "target", "measure", "workers"):
        one, two = getattr(first.header, name), getattr(other.header, name)
        if one != two:
            raise SearchlabError(
                f"{first.path} and {other.path} differ in their {name}: {one} and {two}; train one surrogate on logs "
                f"of one space that were measured in one way"
            )
