"""Comparison of the programs that a space builds now with those that were measured.

A time belongs to a program, not to a config. Whatever builds a program from a log, or uses a log's times for a space,
compares the hash of the program with the recorded one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import SearchlabError
from ..machine.host import library_versions
from ..records import Trial
from ..space import Space
from ..workload import program_hash

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

SAMPLE_SIZE = 16
"""The number of configs whose programs are compared before all times in a log or a table are used."""


class ChangedProgram(SearchlabError):
    """Raised if a config builds a different program than the one that was measured.

    Attributes:
        trial: The trial's index.
        measured_hash: The hash of the program that was measured.
        built_hash: The hash of the program that the config builds now, or "" if it builds none.
        where_and_what: A sentence that names the log, the trial and both programs, without a remedy.
    """

    def __init__(
        self, path: Path | str, trial: int, measured_hash: str, built_hash: str, versions: Mapping[str, str]
    ) -> None:
        self.trial, self.measured_hash, self.built_hash = trial, measured_hash, built_hash
        self.where_and_what = f"{path}, trial {trial}: {describe_program_change(measured_hash, built_hash, versions)}"
        super().__init__(
            f"{self.where_and_what}; use the code that wrote the log, or measure again with a different log (--out)"
        )


def describe_program_change(measured_hash: str, built_hash: str, versions: Mapping[str, str]) -> str:
    """Return a clause which states that a config builds a different program, and what has changed since ``versions``.

    ``built_hash`` is the hash of the program that the config builds now, or "" if it builds none.
    """
    changes = list_version_changes(versions)
    cause = f"since then, these versions have changed: {', '.join(changes)}" if changes else "the space has changed"
    outcome = f"builds the program {built_hash}" if built_hash else "builds no program"
    return f"its config now {outcome}, but {measured_hash} was measured ({cause})"


def list_version_changes(versions: Mapping[str, str]) -> list[str]:
    """Return the differences between recorded versions of libraries and the installed ones, as "name old -> new"."""
    installed = library_versions()
    changes = ((name, version, installed.get(name)) for name, version in versions.items())
    return [f"{name} {recorded} -> {current}" for name, recorded, current in changes if current != recorded]


def check_program(path: Path | str, trial: Trial, schedule: Schedule, versions: Mapping[str, str]) -> None:
    """Raise ChangedProgram unless ``schedule`` is the program of ``trial`` that was measured, if its hash is recorded.

    ``versions`` are those of the libraries with which the programs of the log at ``path`` were last built.
    """
    measured_hash = get_recorded_program(trial)
    if measured_hash and (built_hash := program_hash(schedule.mod)) != measured_hash:
        raise ChangedProgram(path, trial.index, measured_hash, built_hash, versions)


def get_recorded_program(trial: Trial) -> str:
    """Return the hash of the trial's own program, or "" if it is unknown."""
    return "" if trial.measurement.nearest else trial.measurement.program


def check_sample(path: Path | str, trials: Sequence[Trial], space: Space, versions: Mapping[str, str]) -> int:
    """Check the programs of at most :data:`SAMPLE_SIZE` of the ``trials`` with :func:`check_program`.

    The trials are drawn at random, but always the same; those without a recorded program are ignored. Returns the
    number of programs that were compared.
    """
    with_programs = [trial for trial in trials if get_recorded_program(trial)]
    indices = np.random.default_rng(0).permutation(len(with_programs))[:SAMPLE_SIZE].tolist()
    for trial in (with_programs[index] for index in indices):
        try:
            schedule = space.schedule(trial.config)
        except Exception:  # a plug-in may raise any exception
            raise ChangedProgram(path, trial.index, get_recorded_program(trial), "", versions) from None
        check_program(path, trial, schedule, versions)
    return len(indices)
