"""Replaying a log: the policy is told the trials that the log holds, and they are not measured again."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import SearchlabError
from ..log.format import Record
from ..log.writer import LogWriter
from ..machine.host import library_versions
from ..records import Trial
from ..space import Config
from .plan import OnTrial


class Replay:
    """Gives the trials of a log in order, while the policy asks for their configs."""

    def __init__(self, log: LogWriter, on_trial: OnTrial) -> None:
        self._log = log
        self._on_trial = on_trial
        self._taken = 0

    def take(self, configs: Sequence[Config]) -> list[Trial]:
        """The logged trials of ``configs``; fewer if the log ends.

        Raises SearchlabError, which names the first difference, if the log holds another config.
        """
        trials = []
        for config, record in zip(configs, self._log.records[self._taken : self._taken + len(configs)], strict=False):
            trial = record.trial
            if trial.config != config:
                raise SearchlabError(self._difference(f"asks for {config.to_json()}", record))
            trials.append(trial)
            self._on_trial(trial, True)
        self._taken += len(trials)
        return trials

    def rest(self) -> list[Trial]:
        """The logged trials that were not taken."""
        trials = [record.trial for record in self._log.records[self._taken :]]
        for trial in trials:
            self._on_trial(trial, True)
        self._taken += len(trials)
        return trials

    def check_end(self) -> None:
        """Raise SearchlabError if the policy has nothing more to propose, and the log holds more trials."""
        for record in self._log.records[self._taken : self._taken + 1]:
            raise SearchlabError(self._difference("has nothing more to propose", record))

    def _difference(self, now_does: str, record: Record) -> str:
        now = library_versions()
        versions = self._log.header.versions
        changed = [f"{name} {old} -> {now.get(name)}" for name, old in versions.items() if now.get(name) != old]
        return (
            f"{self._log.path} cannot be resumed: its trial {record.index} is {record.config}, but the policy now "
            f"{now_does}; "
            + (f"since then these changed: {', '.join(changed)}" if changed else "the policy or the space has changed")
            + ". Resume it with the versions that wrote it, or choose another log file"
        )
