"""Replay logs: what a log contains is not measured again, and code that has changed must reproduce it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..errors import warn
from ..log.format import CodeChange, Log, Record
from ..log.writer import OtherRun, describe_remedies
from ..machine.host import library_versions
from ..measure.contract import Measurer
from ..records import Trial
from ..space import Config
from ..workload import Function
from .plan import Run

_PROGRAM_ROLES = ("core", "workload", "space", "table")
"""The roles whose code determines the programs and, in a table, their times; see :attr:`Header.code_digests`."""


class Replay:
    """The trials that a run's log contained when the run began. The policy must propose them again.

    Attributes:
        log: The log when the run began.
        is_current: Whether today's code and libraries wrote the log, or have reproduced it.
        compared_count: The number of trials that other code than the log's must reproduce, whatever the budget is.
    """

    def __init__(self, run: Run, log: Log) -> None:
        self.log = log
        self.is_current = run.is_current(log)
        self.compared_count = 0 if self.is_current else len(log.records)
        self._run = run

    def match_trials(self, configs: Sequence[Config], start: int) -> list[Trial]:
        """Return the logged trials of ``configs``, a batch that begins with trial ``start``, as far as it is logged.

        Raises OtherRun if the log contains other configs.
        """
        trials = self.log.trials[start : start + len(configs)]
        for config, trial in zip(configs, trials, strict=False):
            if config != trial.config:
                raise self._make_proposal_error(trial.index, f"proposes {config.to_json()}")
        return trials

    def check_end(self, trial_count: int) -> None:
        """Raise OtherRun if the log has more trials than the ``trial_count`` that the policy proposes."""
        if trial_count < len(self.log.records):
            raise self._make_proposal_error(trial_count, "has nothing more to propose")

    def accept_code(self, measurer: Measurer) -> CodeChange | None:
        """Return the line that records today's code once it has reproduced the log, or None if it is recorded already.

        Raises OtherRun if the code yields other programs for the logged configs.
        """
        if self.is_current:
            return None
        self._check_programs(measurer)
        self.is_current = True
        return CodeChange(
            trial_count=len(self.log.records),
            code_digests=dict(self._run.code_digests),
            versions=dict(library_versions()),
            recorded_at=round(time.time(), 3),
        )

    def _check_programs(self, measurer: Measurer) -> None:
        """Raise OtherRun if the space now yields another program, or the table another time, for a logged config."""
        log, run, space = self.log, self._run, self._run.space
        digests = {role: digest for role, digest in run.code_digests.items() if role in _PROGRAM_ROLES}
        has_same_code = all(log.code_digests.get(role) == digest for role, digest in digests.items())
        if has_same_code and log.versions.get("apache-tvm") == library_versions().get("apache-tvm"):
            return
        if measurer.repeatable:
            measurements = measurer.measure(space, [trial.config for trial in log.trials])
            for record, measurement in zip(log.records, measurements, strict=True):
                if (measurement.seconds, measurement.failure) != (record.seconds, record.failure):
                    times_text = f"{list(record.seconds)} s, not {list(measurement.seconds)} s"
                    raise self._make_trial_error(record, f"took {times_text}")
            return
        if isinstance(space.workload, Function):
            return  # there is no program, and open_runs has compared the function
        records = [record for record in log.records if record.program]
        programs = measurer.program_hashes(space, [record.trial.config for record in records])
        if programs is None and records:
            warn(f"{log.path} was written by other code, and its programs cannot be compared with today's")
        for record, program in zip(records, programs or (), strict=False):
            if program != record.program:
                raise self._make_trial_error(
                    record, f"yields the program {program or '(none)'} instead of {record.program}"
                )

    def _make_proposal_error(self, index: int, action: str) -> OtherRun:
        record = self.log.records[index]
        return self._make_trial_error(record, f"is {record.config}, but the policy now {action}")

    def _make_trial_error(self, record: Record, change: str) -> OtherRun:
        return make_reproduction_error(self._run, self.log, f"Trial {record.index} {change}")


def make_reproduction_error(run: Run, log: Log, detail: str) -> OtherRun:
    """Return the error to raise if the code of ``run`` does not reproduce ``log``; ``detail`` is a sentence."""
    changes = run.changes_since(log)
    cause = f"these have changed: {changes}" if changes else "the policy or space is not deterministic"
    return OtherRun(
        f"{log.path} cannot be continued, since {cause}",
        f"restore what wrote it, {describe_remedies(log.header)}. {detail}",
    )
