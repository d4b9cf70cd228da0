"""Export of logs as studies in an Optuna storage, which optuna-dashboard and Optuna's plots and importances read.

Each log becomes a study that minimises the cost in seconds, or that minimises or maximises the number that a function
returned. A knob with only integer values becomes an integer parameter, from the smallest to the largest value that
occurs; any other knob is categorical, and its tiles are JSON.
All else, such as repeats and failures, is in the user attributes of trials, and the header in those of the study.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import SearchlabError, first_line
from ..log.format import Log, Record
from ..units import VALUE, value_of_cost
from .foreign import to_datetime

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

JOURNAL_SUFFIX = ".log"


def export(logs: Sequence[Log], out_path: Path) -> list[str]:
    """Write each log as a study, named like ``"gemm:64x64x64 in sketch, xgb, seed 0"``.

    If ``out_path`` is called ``*.log``, it is a journal, which is written far faster; otherwise it is an SQLite
    database.

    Returns:
        No sentences, because the same parts of every log are omitted.

    Raises:
        SearchlabError: If ``out_path`` is a different kind of file, or if a study's name occurs twice.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from sqlalchemy.exc import SQLAlchemyError

    out_path.parent.mkdir(parents=True, exist_ok=True)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        storage: BaseStorage = (
            JournalStorage(JournalFileBackend(str(out_path)))
            if out_path.suffix == JOURNAL_SUFFIX
            else optuna.storages.RDBStorage(f"sqlite:///{out_path}")
        )
        for log in logs:
            distributions = _make_distributions(log)
            trials = [_make_trial(record, distributions, log.unit) for record in log.records]
            header = log.header
            study_name = f"{header.workload} in {header.space_name}, {header.name}, seed {header.seed}"
            study = optuna.create_study(
                storage=storage, study_name=study_name, direction="maximize" if log.unit == VALUE else "minimize"
            )
            study.set_user_attr("searchlab", msgspec.to_builtins(header))
            study.add_trials(trials)
        return []
    except optuna.exceptions.DuplicatedStudyError:
        raise SearchlabError(
            f"{out_path} already contains a study {study_name!r}; choose a different file as --out, or pass only one "
            f"of its logs"
        ) from None
    except (SQLAlchemyError, RuntimeError, ValueError, LookupError, TypeError) as error:
        raise SearchlabError(
            f"{out_path} is not an Optuna storage: {first_line(error)}; choose a different file as --out"
        ) from None
    finally:
        optuna.logging.set_verbosity(verbosity)


def _make_parameters(record: Record) -> dict[str, Any]:
    return {
        name: msgspec.json.encode(value).decode() if isinstance(value, list | tuple) else value
        for name, value in record.config.items()
    }


def _make_distributions(log: Log) -> dict[str, BaseDistribution]:
    """Return each knob's distribution over the values that occur."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    values_by_knob: dict[str, list[Any]] = defaultdict(list)
    for record in log.records:
        for name, value in _make_parameters(record).items():
            values_by_knob[name].append(value)
    return {
        name: IntDistribution(min(values), max(values))
        if all(type(value) is int for value in values)
        else CategoricalDistribution(list(dict.fromkeys(values)))
        for name, values in values_by_knob.items()
    }


def _make_trial(record: Record, distributions: dict[str, BaseDistribution], unit: str) -> FrozenTrial:
    from optuna.trial import TrialState, create_trial

    params = _make_parameters(record)
    trial = create_trial(
        state=TrialState.COMPLETE if record.failure is None else TrialState.FAIL,
        value=value_of_cost(record.cost, unit) if record.failure is None else None,
        params=params,
        distributions={name: distributions[name] for name in params},
        user_attrs={
            name: value
            for name, value in msgspec.to_builtins(record).items()
            if name not in ("index", "config", "time")
        },
    )
    if record.recorded_at:
        spent_seconds = record.propose_seconds + record.train_seconds + record.build_seconds + record.run_seconds
        local_time = to_datetime(record.recorded_at).astimezone()
        trial.datetime_complete = local_time.replace(tzinfo=None)  # as in Optuna
        trial.datetime_start = trial.datetime_complete - timedelta(seconds=spent_seconds)
    return trial
