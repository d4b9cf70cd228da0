"""Exporting logs as studies in an Optuna storage, for Optuna's dashboard, plots and importance evaluators.

Each log becomes a study with the same trials that minimises the cost in seconds. A knob with only integer values
becomes an integer parameter, ranging from the smallest to the largest value that occurs. Any other knob becomes
categorical, with the values that occur; tiles are encoded as JSON. Everything else (repeats, failures, times charged,
the header) is stored in the user attributes of the trials and the study.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import SearchlabError, first_line
from ..log.format import Log, Record
from .foreign import moment

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

JOURNAL = (".log", ".journal")


def export(logs: Sequence[tuple[str, Log]], out: Path) -> None:
    """Write each log, under its name, to a new or existing storage.

    Args:
        logs: The logs, each with its name.
        out: The file to write: a journal if its name ends in one of :data:`JOURNAL`, otherwise an SQLite database.

    Raises:
        SearchlabError: If ``out`` is not an Optuna storage or already contains a study with one of the names.
    """
    import optuna

    storage, taken = _open(out)
    if again := taken & {name for name, _ in logs}:
        raise SearchlabError(f"{out} already contains a study {sorted(again)[0]!r}; choose a different file as --out")
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        for name, log in logs:
            study = optuna.create_study(storage=storage, study_name=name, direction="minimize")
            study.set_user_attr("searchlab", msgspec.to_builtins(log.header))
            distributions = _distributions(log)
            study.add_trials([_trial(record, distributions) for record in log.records])
    finally:
        optuna.logging.set_verbosity(verbosity)


def _open(out: Path) -> tuple[BaseStorage, set[str]]:
    """Return the storage and the names of its studies."""
    import optuna
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend
    from sqlalchemy.exc import SQLAlchemyError

    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        journal = out.name.endswith(JOURNAL)
        storage = JournalStorage(JournalFileBackend(str(out))) if journal else RDBStorage(f"sqlite:///{out}")
        return storage, set(optuna.get_all_study_names(storage))
    except (SQLAlchemyError, RuntimeError, ValueError, LookupError, TypeError) as error:
        raise SearchlabError(
            f"{out} is not an Optuna storage: {first_line(error)}; choose a different file as --out"
        ) from None


def _parameters(record: Record) -> dict[str, Any]:
    return {
        name: json.dumps(value) if isinstance(value, list | tuple) else value for name, value in record.config.items()
    }


def _distributions(log: Log) -> dict[str, BaseDistribution]:
    """Return each knob's distribution, derived from the values that occur."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    seen: dict[str, list[Any]] = {}
    for record in log.records:
        for name, value in _parameters(record).items():
            seen.setdefault(name, []).append(value)
    return {
        name: IntDistribution(min(values), max(values))
        if all(type(value) is int for value in values)
        else CategoricalDistribution(list(dict.fromkeys(values)))
        for name, values in seen.items()
    }


def _trial(record: Record, distributions: dict[str, BaseDistribution]) -> FrozenTrial:
    from optuna.trial import TrialState, create_trial

    params = _parameters(record)
    failed = record.failure is not None
    attributes = msgspec.to_builtins(record).items()
    trial = create_trial(
        state=TrialState.FAIL if failed else TrialState.COMPLETE,
        value=None if failed else record.cost,
        params=params,
        distributions={name: distributions[name] for name in params},
        user_attrs={name: value for name, value in attributes if name not in ("index", "config", "time")},
    )
    if record.time:
        spent = record.propose_seconds + record.train_seconds + record.build_seconds + record.run_seconds
        trial.datetime_complete = moment(record.time).astimezone().replace(tzinfo=None)  # local time, as in Optuna
        trial.datetime_start = trial.datetime_complete - timedelta(seconds=spent)
    return trial
