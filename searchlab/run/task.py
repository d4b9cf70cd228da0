"""What an executor is given: a few runs, to be made wherever it calls :func:`perform`."""

from __future__ import annotations

import errno
import pickle
import socket
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import msgspec

from ..errors import SearchlabError, SearchlabWarning
from ..log.writer import LogBusy
from ..machine.scratch import ScratchFolder
from ..measure.contract import KnownPrograms, Measurer
from ..measure.settings import Settings
from ..plugins import trusting
from .loop import search
from .plan import Run

PATIENCE = 20.0
"""Seconds that a run waits for a process that still writes its log: one that is thought lost may not have ended yet."""


class Measurers:
    """The measurer of each run in turn. Runs that follow each other with the same settings share one."""

    def __init__(self, known: KnownPrograms, base: Path) -> None:
        self._known = known
        self._base = base
        self._settings: Settings | None = None
        self._measurer: Measurer | None = None

    def of(self, run: Run) -> Measurer:
        if self._measurer is None or run.settings != self._settings:
            self.close()
            self._measurer = run.settings.make(run.space.target, self._known, self._base)
            self._settings = run.settings
        return self._measurer

    def close(self) -> None:
        if self._measurer is not None:
            self._measurer.close()
        self._measurer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Surroundings:
    """What all tasks of a study share.

    study: a name that no other call of the study has. base: the directory that relative paths start from. shared: a
    folder that is there wherever the directory of the logs is shared. known: the pickled measurements that every run
    begins with. trusts: whether logs to start from may name any code. kept: whether processes that measure are kept for
    the next run: where nothing ends them after the last run, they are not.
    """

    study: str
    base: Path
    shared: Path
    known: bytes
    trusts: bool
    kept: bool


@dataclass(frozen=True)
class Task:
    """Runs that are made one after the other, in one call.

    runs: pickled, with absolute paths. settings: of each run, as plain data: pickled, they would forget which of them
    were left at their defaults, and the header of a log would differ. held: the log of each run so far, if any, for
    where the directory of the logs is not shared.
    """

    around: Surroundings
    runs: bytes
    settings: tuple[Any, ...]
    held: tuple[bytes | None, ...]


@dataclass(frozen=True)
class Outcome:
    """How a run ended; it is complete if neither text is there.

    refused: the text of a SearchlabError. failed: the traceback of any error. busy: whether another process writes its
    log. warned: its warnings. log: what its log holds now, where the directory of the logs is not shared.
    """

    refused: str = ""
    failed: str = ""
    busy: bool = False
    warned: tuple[str, ...] = ()
    log: bytes | None = None


def perform(task: Task) -> list[Outcome]:
    """Make the runs of ``task``, and say how each ended.

    A process makes one run at a time, however many threads call this: what a run asks of its libraries may not be fit
    for threads. Only a task that cannot be read raises an error.
    """
    with _HERE.lock:
        runs: list[Run] = pickle.loads(task.runs)
        settings = [msgspec.convert(plain, Settings) for plain in task.settings]
        runs = [replace(run, settings=own) for run, own in zip(runs, settings, strict=True)]
        outcomes = []
        for run, held in zip(runs, task.held, strict=True):
            measurers = _HERE.measurers(task.around)
            outcomes.append(_performed(run, held, task.around, measurers))
            if outcomes[-1].failed or not (run.settings.replays or task.around.kept):
                measurers.close()
        return outcomes


class _Here:
    """What this process keeps from task to task: a table that was read answers all runs of a study, and no other."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._study = ""
        self._known: KnownPrograms = {}
        self._measurers = Measurers(self._known, Path())

    def measurers(self, around: Surroundings) -> Measurers:
        if around.study != self._study:
            self._measurers.close()
            self._study, self._measurers = around.study, Measurers(self._known, around.base)
        self._known.clear()
        self._known.update(pickle.loads(around.known))
        return self._measurers


_HERE = _Here()


def _performed(run: Run, held: bytes | None, around: Surroundings, measurers: Measurers) -> Outcome:
    warned: list[str] = []

    def keep(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if category is SearchlabWarning:
            warned.append(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = keep
        if around.shared.exists():
            outcome = _searched(run, around, measurers)
        else:
            with ScratchFolder() as folder:
                log = Path(folder, run.log.name)
                if held is not None:
                    log.write_bytes(held)
                outcome = _searched(replace(run, log=log), around, measurers)
                outcome = replace(
                    outcome,
                    refused=outcome.refused.replace(str(log), str(run.log)),
                    log=log.read_bytes() if log.exists() else None,
                )
    return replace(outcome, warned=tuple(warned))


def _searched(run: Run, around: Surroundings, measurers: Measurers) -> Outcome:
    try:
        with trusting(around.trusts), machine_alone(run.settings.exclusive):
            _patient(lambda: search(run, measurers.of(run)))
    except SearchlabError as error:
        return Outcome(str(error), traceback.format_exc(), isinstance(error, LogBusy))
    except Exception:
        return Outcome(failed=traceback.format_exc())
    return Outcome()


def _patient(search: Callable[[], object]) -> None:
    """Call ``search`` again while another process writes its log, for at most ``PATIENCE``."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            search()
            return
        except LogBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


@contextmanager
def machine_alone(exclusive: bool) -> Iterator[None]:
    """Within, nobody else on this machine is within it, if ``exclusive``.

    Executors are asked to place such runs on different machines. Where two come together all the same, one waits.
    """
    if not exclusive:
        yield
        return
    with socket.socket(socket.AF_UNIX) as place:  # its name is gone with the process, and no file is left
        while True:
            try:
                place.bind("\0searchlab-measures")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            time.sleep(0.5)
        yield
