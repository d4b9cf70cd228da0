"""Optuna trials that are kept in a journal: a search that is a function of its seed, wherever it was interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from optuna.samplers import TPESampler
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from ..errors import SearchlabError
from .options import Ranges, rounded

STARTUP = 10
"""Trials drawn at random before the model is asked."""


def suggest(trials: Sequence[FrozenTrial], ranges: Ranges, seed: Sequence[int]) -> dict[str, Any]:
    """What to try after ``trials``: a function of these, the ranges and the seed, so that a search can be resumed.

    Numbers are rounded, so that they can be typed into a study file.

    Source: Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NeurIPS 2011), as Optuna has it.
    """
    with _quiet():
        sampler = TPESampler(n_startup_trials=STARTUP, seed=int(np.random.SeedSequence(seed).generate_state(1)[0]))
        study = optuna.create_study(storage=InMemoryStorage(), sampler=sampler, direction="maximize")
        study.add_trials(trials)
        params = study.ask(ranges).params
    for name, distribution in ranges.items():
        if isinstance(distribution, FloatDistribution):
            params[name] = min(max(rounded(params[name]), distribution.low), distribution.high)
    return params


class Kept:
    """The trials of one search, in order; what is added is on the disk before anything else is tried."""

    def __init__(self, study: optuna.Study) -> None:
        self._study = study
        self.trials = study.trials

    def add(self, params: Mapping[str, Any], ranges: Ranges, score: float | None, attributes: dict[str, Any]) -> None:
        """score: None for options that were refused."""
        trial = create_trial(
            state=TrialState.PRUNED if score is None else TrialState.COMPLETE,
            params=dict(params),
            distributions=dict(ranges),
            value=score,
            user_attrs=attributes,
        )
        self._study.add_trial(trial)
        self.trials = self._study.trials


class Journal:
    """Searches by name, in a file of Optuna's journal format that optuna-dashboard opens; or in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._storage: BaseStorage = InMemoryStorage()
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _cut_torn_line(path)
            self._storage = JournalStorage(JournalFileBackend(str(path)))
        except OSError as error:
            raise SearchlabError(f"cannot write {path}: {error.strerror}") from None
        except (ValueError, KeyError) as error:
            raise SearchlabError(f"{path} is damaged, or no journal of Optuna: {error}") from None

    def open(self, name: str, identity: Mapping[str, Any]) -> Kept:
        """The search ``name``, begun where it is not there. Raises SearchlabError where it is not of ``identity``."""
        with _quiet():
            study = optuna.create_study(
                storage=self._storage, study_name=name, direction="maximize", load_if_exists=True
            )
        for key, now in identity.items():
            before = study.user_attrs.get(key, now)
            if before != now:
                raise SearchlabError(
                    f"{self._path} holds another search {name!r}, with {key} = {_shown(before)}, not {_shown(now)}; "
                    f"choose another --out, or ask for what this one was made with"
                )
            if key not in study.user_attrs:
                study.set_user_attr(key, now)
        return Kept(study)


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:200] + " ..."


def _cut_torn_line(path: Path) -> None:
    """Optuna writes on after a line that a kill tore, and then cannot read the file."""
    if path.exists() and not (data := path.read_bytes()).endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])


@contextmanager
def _quiet() -> Iterator[None]:
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
