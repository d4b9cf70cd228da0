"""Trials of earlier runs that a run starts from."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ..costmodel import BoundCostModel, OtherTask, scores_of
from ..costmodel.features import FEATURES
from ..errors import SearchlabError, SearchlabWarning
from ..log.format import Log, find_logs, read_log
from ..log.result import Result
from ..plugins import Plugin, trusting
from ..policy import Policy
from ..records import Statistic, Trial
from ..space import Space
from ..store import Store
from ..store.held import in_words, places, spelled_target
from ..store.place import named_store
from ..workload import parse_workload

Source = str | Path | Store | Result
"""What a user names to start from: a log, a directory of logs, a result or a store; ``"store"`` or ``"store:PATH"``, in
words."""


@dataclass(frozen=True)
class EarlierRun:
    """The log of an earlier run, a digest of its content, and the statistic that is the cost in the runs to come.

    stored: whether a store gave it, and no user named it. asked_for: whether its space is the one that a user has named
    to search, and so is imported wherever it is from.
    """

    log: Log
    digest: str
    statistic: Statistic
    stored: bool = field(default=False, compare=False)
    asked_for: bool = field(default=False, compare=False)

    @cached_property
    def trials(self) -> list[Trial]:
        """Its trials, without those that a table answered with the nearest config."""
        return [
            replace(trial, measurement=replace(trial.measurement, statistic=self.statistic))
            for trial in self.log.trials
            if not trial.measurement.nearest
        ]

    @cached_property
    def task(self) -> OtherTask:
        """Its trials, as another search is trained on them; its fastest trial has score 1.

        The space is made again from the header of the log, which imports a plug-in. Raises SearchlabError if there is
        no such space any more.
        """
        return OtherTask(self.space, [trial.config for trial in self.trials], scores_of(self.trials))

    @cached_property
    def space(self) -> Space:
        with trusting(self.asked_for):
            return Result(self.log).space

    def has_knobs_of(self, plugin: Plugin, space: Space) -> bool:
        """Whether it is of another shape in the same space: of the same plug-in and operator, with the same knobs."""
        header = self.log.header
        if header.space != plugin or parse_workload(header.workload).op != space.workload.op:
            return False
        return self.space.knobs_of(self.space.probe()).keys() == space.knobs_of(space.probe()).keys()


@dataclass(frozen=True)
class StoredRuns:
    """The runs in a store that a run may start from, with the statistic that is the cost in the runs to come."""

    store: Store
    statistic: Statistic
    _read: dict[tuple[str, str], list[EarlierRun]] = field(default_factory=dict, compare=False, repr=False)

    def of(self, space: Space, machine: str) -> list[EarlierRun]:
        """The runs that searched ``space``, and so its target, on ``machine``; those of another machine never count.

        Warns (SearchlabWarning) if there is none, and says where the workload was measured.
        """
        key = space.fingerprint, machine
        if key not in self._read:
            held = self.store.find(space.workload)
            own = [one.key for one in held if (one.key.fingerprint, one.key.machine) == key]
            if not own:
                where = in_words(spelled_target(space.target), machine)
                elsewhere = f"; in all, these programs of the workload: {places(held)}" if held else ""
                warnings.warn(
                    f"the store {self.store.path} holds nothing to start from: no trial of {space.workload} in this "
                    f"space for {where}{elsewhere}",
                    SearchlabWarning,
                    stacklevel=2,
                )
            runs = self.store.states(own)
            self._read[key] = [EarlierRun(log, digest, self.statistic, stored=True) for digest, log in runs]
        return self._read[key]


@dataclass(frozen=True)
class WarmStart:
    """The earlier runs that a run starts from: those in its own space, and others.

    stores: the stores that gave some of them. What they gave as the run began counts: see :mod:`.begun`.
    """

    own: tuple[EarlierRun, ...] = ()
    others: tuple[EarlierRun, ...] = ()
    stores: tuple[Store, ...] = ()

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(run.digest for run in (*self.own, *self.others))

    @property
    def trials(self) -> list[Trial]:
        return [trial for run in self.own for trial in run.trials]

    def feed(self, policy: Policy, cost_model: BoundCostModel | None) -> None:
        """Train the cost model on the runs in other spaces, and start the policy from those in its own."""
        if cost_model is not None and self.others:
            cost_model.pretrain([run.task for run in self.others])
        if self.own:
            policy.warm_start(self.trials)


NOTHING = WarmStart()


def earlier_runs(sources: Sequence[Source], statistic: Statistic, base: Path = Path()) -> list[EarlierRun | StoredRuns]:
    """The logs and the stores that ``sources`` name; paths start from ``base``.

    statistic: of the repeats of their trials, the one that is the cost in the runs to come.
    Raises SearchlabError for a log that is unreadable, damaged, without trials, or given twice.
    """
    runs: list[EarlierRun | StoredRuns] = []
    for source in sources:
        path = named_store(source, base) if isinstance(source, str) else None
        if isinstance(source, Store) or path is not None:
            runs.append(StoredRuns(source if isinstance(source, Store) else Store(path), statistic))
            continue
        if isinstance(source, Result):
            source = source.log.path.absolute()
        if not isinstance(source, str | Path):
            raise SearchlabError(
                f"a run starts from a log, a directory of logs, a result or a store, not from {source!r:.200}"
            )
        logs = find_logs(base / source)
        if not logs:
            raise SearchlabError(f"there is no log (*.jsonl) in {base / source} to start from")
        for log in logs:
            run = EarlierRun(read_log(log), hashlib.sha256(log.read_bytes()).hexdigest()[:32], statistic)
            if not run.trials:
                raise SearchlabError(f"{log} has no measured trial to start from")
            if any(isinstance(other, EarlierRun) and other.digest == run.digest for other in runs):
                raise SearchlabError(f"{log} is given twice, or is a copy of another log; give each log once")
            runs.append(run)
    return runs


def taken(earlier: Sequence[EarlierRun | StoredRuns], space: Space, machine: str) -> list[EarlierRun]:
    """The runs of ``earlier``, and those of its stores that searched ``space`` on ``machine``; each once."""
    runs = {one.digest: one for one in earlier if isinstance(one, EarlierRun)}
    named = dict(runs)
    for one in earlier:
        if isinstance(one, StoredRuns):
            named |= {run.digest: run for run in one.of(space, machine) if run.digest not in runs}
    return list(named.values())


def usable(runs: Sequence[EarlierRun], plugin: Plugin, space: Space, features: str) -> WarmStart:
    """The ``runs`` that a search of ``space``, which ``plugin`` names, can use.

    features: those of its cost model; empty without a cost model. Any policy is told the trials in ``space``. Other
    runs only train a cost model: of any space and workload, if its features are of programs; with knob features, those
    of another shape in the same space. The knobs of different spaces have nothing in common.
    """
    own = tuple(run for run in runs if run.log.header.fingerprint == space.fingerprint)
    others = tuple(run for run in runs if run.log.header.fingerprint != space.fingerprint)
    kind = FEATURES.get(features)
    if kind is None:
        return WarmStart(own)
    others = tuple(replace(run, asked_for=run.log.header.space == plugin.spelled()) for run in others)
    if not kind.builds_programs:
        others = tuple(run for run in others if run.has_knobs_of(plugin, space))
    return WarmStart(own, others)


def check_used(earlier: Sequence[EarlierRun | StoredRuns], warm_starts: Sequence[WarmStart]) -> None:
    """Raise SearchlabError if a run of ``earlier`` is in none of ``warm_starts``."""
    used = {digest for warm in warm_starts for digest in warm.digests}
    for run in earlier:
        if isinstance(run, EarlierRun) and run.digest not in used:
            header = run.log.header
            raise SearchlabError(
                f"{run.log.path} cannot warm-start this run: it is a run on {header.workload} in {header.space_name}, "
                f"not in the space that is searched here, and only program features carry over to another space (so do "
                f"per-store, itervar and curve), and knob features to another shape of the same space and knobs; "
                f'set features = "program", with a policy that takes a cost model'
            )


def check_apart(warm_starts: Sequence[WarmStart], logs: Sequence[Path]) -> None:
    """Raise SearchlabError if one of ``logs``, which are about to be written, is in one of ``warm_starts``."""
    written = {path.resolve() for path in logs}
    for run in (run for warm in warm_starts for run in (*warm.own, *warm.others)):
        if run.log.path.resolve() in written:
            raise SearchlabError(f"{run.log.path} is a warm start, and cannot be the log too; choose another log file")
