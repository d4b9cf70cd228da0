"""The trials that a log holds already: they are not measured again, but given to the policy that asks for them."""

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
    """Gives back the trials of a log in order, as long as what is asked for is what the log says."""

    def __init__(self, log: LogWriter, on_trial: OnTrial) -> None:
        self._log = log
        self._on_trial = on_trial
        self._taken = 0

    def take(self, configs: Sequence[Config]) -> list[Trial]:
        """The trials of the first of ``configs``, as far as the log goes.

        Raises SearchlabError, naming the first difference, where the log holds another config.
        """
        trials = []
        for config, record in zip(configs, self._log.records[self._taken : self._taken + len(configs)], strict=False):
            trial = record.trial
            if trial.config != config:
                raise SearchlabError(self._difference(config, record))
            trials.append(trial)
            self._on_trial(trial)
        self._taken += len(trials)
        return trials

    def _difference(self, config: Config, record: Record) -> str:
        now = library_versions()
        versions = self._log.header.versions
        changed = [f"{name} {old} -> {now.get(name)}" for name, old in versions.items() if now.get(name) != old]
        return (
            f"{self._log.path} cannot be resumed: its trial {record.index} is {record.config}, but the policy now asks "
            f"for {config.to_json()}; "
            + (f"changed since then: {', '.join(changed)}" if changed else "the policy or the space has changed since")
            + ". Go on with the versions that made it, or choose another log file"
        )
