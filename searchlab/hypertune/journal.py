"""Searches kept in a journal of Optuna: an interrupted search goes on, and ends as an uninterrupted one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import optuna
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from ..errors import SearchlabError
from ..log.writer import lock
from .ranges import Ranges


class SearchLog:
    """The trials of one search, in order. An added trial is on the disk before the next one is tried."""

    def __init__(self, study: optuna.Study) -> None:
        self._study = study
        self.name = study.study_name
        self.trials = study.trials

    def add(self, params: Mapping[str, Any], ranges: Ranges, score: float | None, attributes: dict[str, Any]) -> None:
        """score: None for options that the policy refused."""
        trial = create_trial(
            state=TrialState.PRUNED if score is None else TrialState.COMPLETE,
            params=dict(params),
            distributions=dict(ranges),
            value=score,
            user_attrs=attributes,
        )
        with _storing():
            self._study.add_trial(trial)
        self.trials = self._study.trials


class Journal:
    """Searches by name, in a file of Optuna's journal format that optuna-dashboard opens; or in memory.

    One process at a time has the file, as a context manager. Raises SearchlabError where another one has it, and for a
    file that is damaged or cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._storage: BaseStorage = InMemoryStorage()
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        if self._path is None:
            return self
        with self._ends:
            self._open(self._path)
            self._ends = self._ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock(self._ends.enter_context(path.open("ab")))
            _cut_torn_line(path)
            optunas = path.with_name(f"{path.name}.lock")
            optunas.unlink(missing_ok=True)  # left by a search that was killed: while we have the file, it is nobody's
            self._storage = JournalStorage(JournalFileBackend(str(path)))
        except BlockingIOError:
            raise SearchlabError(f"another search is writing {path}; wait for it, or choose another --out") from None
        except OSError as error:
            raise SearchlabError(f"cannot write {path}: {error.strerror}") from None
        except (ValueError, KeyError) as error:
            raise SearchlabError(f"{path} is damaged, or is not an Optuna journal: {error}") from None

    def open(self, name: str, identity: Mapping[str, Any]) -> SearchLog:
        """The search ``name``, begun if it is not there. Raises SearchlabError if it has another identity."""
        with quiet(), _storing():
            study = optuna.create_study(
                storage=self._storage, study_name=name, direction="maximize", load_if_exists=True
            )
        for key, wanted in identity.items():
            kept = study.user_attrs.get(key, wanted)
            if kept != wanted:
                raise SearchlabError(
                    f"{self._path} holds another search {name!r}, with {key} = {_shown(kept)}, not {_shown(wanted)}; "
                    f"choose another --out, or repeat the options that this search was started with"
                )
            if key not in study.user_attrs:
                with _storing():
                    study.set_user_attr(key, wanted)
        return SearchLog(study)


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:200] + " ..."


def _cut_torn_line(path: Path) -> None:
    """A kill can tear the last line. Optuna would append to the torn line, and then could not read the file."""
    if not (data := path.read_bytes()).endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])


@contextmanager
def _storing() -> Iterator[None]:
    """Raises SearchlabError for what the disk refuses."""
    try:
        yield
    except OSError as error:
        raise SearchlabError(
            f"cannot write the journal of the search: {error.strerror}; free space or check the disk, then repeat the "
            f"command, which continues from what was written"
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
