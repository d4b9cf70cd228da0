"""Searching the options of a policy on recorded tables, and showing on workloads held out whether they are better.

The search is Optuna's tree-structured Parzen estimator over replays: a replay is a run of the policy on a table, as a
study makes it, and its worth is its score against random search (see
:func:`~searchlab.analysis.stats.random_search.score`), which is comparable between tasks. A task is a
workload in a space.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from optuna.trial import FrozenTrial, TrialState

from ..analysis.stats.curves import Floats
from ..errors import SearchlabError, did_you_mean
from ..log import Plugin
from ..measure import TableSettings
from ..measure.table import TableMeasurer
from ..registry import load
from ..study import Named, Study
from ..tuner import Cell
from ..workload import parse_workload
from .options import Ranges, defaults_of, derive_ranges, holds, parse_options, spelled
from .score import Compared, Replays, Task, TaskScores, compared, make_task, mean_scores, verdict
from .search import Journal, Kept, suggest

OnTrial = Callable[[str, int, float | None], None]
"""Called with the name of a search, the number of a trial of it (from 0), and its score; None where it was refused."""


@dataclass(frozen=True)
class Split:
    """One search: it sees the tasks of all workloads but those held out."""

    held_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"without {', '.join(self.held_out)}" if self.held_out else "on all workloads"


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What one search found. search_score: of the options found, on the seeds of the search, so too good to be true."""

    name: str
    held_out: list[str]
    options: dict[str, Any]
    search_score: float
    trials: int
    refused: int
    tasks: list[TaskScores]


class Hypertuned(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it.

    better: whether the options found are, on what was held out, beyond the noise; None where nothing was.
    options: those found: of the search on all workloads, or on all but those held out by name. training, held_out:
    over the tasks that the searches which held out something saw, and over those that they did not; None where nothing
    was held out, and then ``training`` is of the only search. A task that several searches saw counts once, at the mean
    over these. nearest: the share of the trials on fresh seeds that the
    table does not hold, and that were given the measurement of the nearest config there.
    """

    policy: str
    searched: dict[str, str]
    not_searched: dict[str, Any]
    default_options: dict[str, Any]
    options: dict[str, Any]
    better: bool | None
    verdict: str
    training: Compared
    held_out: Compared | None
    searches: list[Search]
    nearest: float
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """As plain dicts, lists, strings and numbers."""
        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return plain


@dataclass(frozen=True, kw_only=True)
class HyperPlan:
    """What is to be searched and on what; made by :func:`plan_hypertune`.

    default: the options that the policy has without any search, as the study sets them. others: those that are not
    searched, by what they are. Each options' worth in a search is its mean score over ``seeds`` seeds of each task.
    """

    study: Study
    measurer: TableMeasurer
    tasks: list[Task]
    splits: list[Split]
    ranges: Ranges
    default: dict[str, Any]
    others: dict[str, Any]
    trials: int
    seeds: int
    fresh_seeds: int
    seed: int
    notes: list[str]

    def run(self, out: Path | None = None, on_trial: OnTrial = lambda *_: None) -> Hypertuned:
        """Search, then compare. ``out``: a directory whose journal keeps the trials, which goes on with them.

        Raises SearchlabError where that is of another search.
        """
        with tempfile.TemporaryDirectory() as scratch:
            replays = Replays(self.measurer, Path(scratch), self.study.spec.trials)
            journal = Journal(out / "optuna.log" if out else None)
            kept = [journal.open(split.name, self._identity(self._sees(split))) for split in self.splits]
            found = [self._search(*pair, replays, on_trial) for pair in zip(self.splits, kept, strict=True)]
            return self._compare(found, replays)

    def _seeds(self, task: Task, fresh: bool = False) -> list[int]:
        """Of the runs of a task: even ones in searches, odd ones (``fresh``) to compare by.

        They are of each task its own, so that its runs are independent of those of another.
        """
        entropy = [self.seed, zlib.crc32(f"{task.workload} in {task.space}".encode()), int(fresh)]
        drawn = np.random.SeedSequence(entropy).generate_state(self.fresh_seeds if fresh else self.seeds)
        return [int(number) >> 2 << 1 | fresh for number in drawn]  # of 31 bits: XGBoost takes no larger ones

    def _sees(self, split: Split) -> list[Task]:
        return [task for task in self.tasks if task.workload not in split.held_out]

    def _search(self, split: Split, kept: Kept, replays: Replays, on_trial: OnTrial) -> list[FrozenTrial]:
        """The trials of one search; the first is the default where that is in the ranges."""
        training = self._sees(split)
        first = {name: self.default[name] for name in self.ranges if name in self.default}
        usable = first.keys() == self.ranges.keys() and all(holds(self.ranges[name], first[name]) for name in first)
        for number in range(self.trials):
            if number == len(kept.trials):
                params = first if usable and number == 0 else suggest(kept.trials, self.ranges, [self.seed, number])
                options = self.default | params
                try:
                    for task in training:
                        replace(task.cell, policy=Plugin(task.cell.policy.name, options)).start_policy()
                except SearchlabError as error:
                    kept.add(params, self.ranges, None, {"refused": str(error)})
                else:
                    scores = [float(replays.scores(task, options, self._seeds(task)).mean()) for task in training]
                    by_task = {f"{t.workload} in {t.space}": score for t, score in zip(training, scores, strict=True)}
                    kept.add(params, self.ranges, float(np.mean(scores)), {"scores": by_task})
            on_trial(split.name, number, kept.trials[number].value)
        return kept.trials[: self.trials]

    def _identity(self, training: Sequence[Task]) -> dict[str, Any]:
        """What must agree for a search to be gone on with."""
        cell, spec = training[0].cell, self.study.spec
        return {
            "policy": cell.policy.name,
            "default options": Plugin(cell.policy.name, self.default).spelled().options,
            "cost model": msgspec.to_builtins(cell.cost_model.plugin) if cell.cost_model else None,
            "features": cell.cost_model.features if cell.cost_model else "",
            "options": {name: spelled(distribution) for name, distribution in self.ranges.items()},
            "seed": self.seed,
            "seeds": self.seeds,
            "trials": spec.trials,
            "batch": spec.batch,
            "measure": msgspec.to_builtins(spec.measure),
            "warm start": list(cell.warm_start.digests),
            "tasks": [task.identity() for task in training],
        }

    def _compare(self, found: Sequence[Sequence[FrozenTrial]], replays: Replays) -> Hypertuned:
        searches: list[Search] = []
        # (default, found) scores of each task where it was in a search's training or held out, by its number.
        seen: dict[int, list[tuple[Floats, Floats]]] = {}
        unseen: dict[int, list[tuple[Floats, Floats]]] = {}
        nearest = total = 0
        for split, trials in zip(self.splits, found, strict=True):
            best = _best(trials)
            options = self.default | best.params
            rows = []
            for number, task in enumerate(self.tasks):
                fresh = self._seeds(task, fresh=True)
                pair = replays.scores(task, self.default, fresh), replays.scores(task, options, fresh)
                hidden = task.workload in split.held_out
                if hidden or split.held_out or len(self.splits) == 1:  # else it is the search on all, beside the others
                    (unseen if hidden else seen).setdefault(number, []).append(pair)
                both = compared([pair])
                rows.append(
                    TaskScores(
                        workload=task.workload, space=task.space, held_out=hidden, trials=len(task.random.baseline),
                        default=both.default, found=both.found, gain=both.gain,
                    )
                )  # fmt: skip
                for run in (self.default, options):
                    by_nearest, of = replays.nearest(task, run, fresh)
                    nearest, total = nearest + by_nearest, total + of
            refused = sum(trial.state == TrialState.PRUNED for trial in trials)
            searches.append(
                Search(
                    name=split.name, held_out=list(split.held_out), options=options, search_score=best.values[0],
                    trials=len(trials), refused=refused, tasks=rows,
                )
            )  # fmt: skip
        training = compared([mean_scores(pairs) for pairs in seen.values()])
        held_out = compared([mean_scores(pairs) for pairs in unseen.values()]) if unseen else None
        return Hypertuned(
            policy=self.tasks[0].cell.policy.name,
            searched={name: spelled(distribution) for name, distribution in self.ranges.items()},
            not_searched=self.others,
            default_options=self.default,
            options=searches[-1].options,
            better=None if held_out is None else held_out.gain.lower > 0,
            verdict=verdict(training, held_out, unchanged=all(s.options == self.default for s in searches)),
            training=training,
            held_out=held_out,
            searches=searches,
            nearest=nearest / total if total else 0.0,
            notes=self.notes,
        )


def plan_hypertune(
    study: Study,
    policy: str,
    *,
    options: Sequence[str] = (),
    hold_out: Sequence[str] = (),
    trials: int = 50,
    seeds: int = 5,
    fresh_seeds: int = 20,
    seed: int = 0,
) -> HyperPlan:
    """What searching the options of ``policy`` on the tables of ``study`` comes to.

    policy: the label or name of an entry of the study, whose options are then the default; or any other policy.
    options: what to search, as :func:`~searchlab.hypertune.options.parse_options` takes it; if none, what
        :func:`~searchlab.hypertune.options.derive_ranges` makes of the default.
    hold_out: workloads that no search sees. Without any, each is held out in turn (leave-one-out cross-validation),
        and what is recommended comes from one more search on all. trials: of Optuna, in each search.
    fresh_seeds: how many runs of each task the comparison takes, none of them seen in a search.
    Raises SearchlabError for bad input.
    """
    for name, value, low in (
        ("trials", trials, 1), ("seeds", seeds, 1), ("fresh seeds", fresh_seeds, 2), ("seed", seed, 0),
    ):  # fmt: skip
        if value < low:
            raise SearchlabError(f"{name} must be at least {low}, not {value}")
    spec = study.spec
    if not isinstance(spec.measure, TableSettings):
        raise SearchlabError(
            f"the study is measured on a machine (measure.kind is {spec.measure.__struct_config__.tag!r}), where "
            f"{trials} trials of {seeds} runs each would take days; record tables with `searchlab table build`, and "
            f'set measure = {{ kind = "table", path = ... }}'
        )
    entry = _entry(study, policy)
    models = spec.cost_models[:1]
    changed = msgspec.structs.replace(spec, policies=[entry], cost_models=models, seeds=[seed])
    cls = load("policy", entry.name)
    asked = parse_options(options, entry.name, cls)
    cells, notes = Study(changed, study.base).cells()
    notes = list(notes)
    if len(spec.cost_models) > 1 and cells[0].cell.cost_model:
        notes.append(f"of the study's cost models the first is used, {cells[0].cell.cost_model.plugin.name}")
    if spec.warm_start:
        notes.append("every run starts from the logs of warm_start, also from what they hold of workloads held out")
    if not cells[0].cell.policy_class.uses_seed:
        notes.append("the runs of this policy are the same from every seed, so the intervals have no width")
    measurer = TableMeasurer(spec.measure.paths(study.base), spec.measure.missing, spec.measure.noise)
    tasks = []
    for item in cells:
        task = make_task(measurer, item.cell, spec.trials)
        if task is None:
            where = f"{item.cell.space.workload} in {item.cell.space_label or item.cell.space_plugin.name}"
            notes.append(f"{where} is left out: no config there is faster than another, so no option can be better")
        else:
            tasks.append(task)
    if not tasks:
        raise SearchlabError("nothing can be searched on: " + "; ".join(notes))
    defaults = defaults_of(cls, entry.options)
    ranges, others = asked, {name: value for name, value in defaults.items() if name not in asked}
    if not asked:
        ranges, others = derive_ranges(defaults, lambda name, value: _takes(cells[0].cell, {name: value}))
    if not ranges:
        raise SearchlabError(
            f"policy {entry.name!r} has no option from whose default a range follows; "
            f"give one with --option name=low..high"
        )
    default = entry.options | {name: defaults[name] for name in ranges if name in defaults}
    splits = _splits(list(dict.fromkeys(task.workload for task in tasks)), hold_out, notes)
    return HyperPlan(
        study=study, measurer=measurer, tasks=tasks, splits=splits, ranges=ranges, default=default, others=others,
        trials=trials, seeds=seeds, fresh_seeds=fresh_seeds, seed=seed, notes=notes,
    )  # fmt: skip


def _entry(study: Study, policy: str) -> Named:
    entries = [Named(entry) if isinstance(entry, str) else entry for entry in study.spec.policies]
    own = [entry for entry in entries if entry.label == policy] or [e for e in entries if e.name == policy]
    if len(own) > 1:
        labels = ", ".join(repr(entry.label or entry.name) for entry in own)
        raise SearchlabError(f"the study has several entries of the policy {policy!r}; name one by its label: {labels}")
    return own[0] if own else Named(policy)


def _takes(cell: Cell, options: Mapping[str, Any]) -> bool:
    try:
        replace(cell, policy=Plugin(cell.policy.name, cell.policy.options | dict(options))).start_policy()
    except SearchlabError:
        return False
    return True


def _splits(workloads: Sequence[str], hold_out: Sequence[str], notes: list[str]) -> list[Split]:
    named = [str(parse_workload(text)) for text in hold_out]
    for workload in named:
        if workload not in workloads:
            raise SearchlabError(
                f"{workload} cannot be held out: it is not searched{did_you_mean(workload, workloads)}"
            )
    if named:
        if not set(workloads) - set(named):
            raise SearchlabError("all workloads are held out, so there is none to search on; leave out a --hold-out")
        return [Split(tuple(dict.fromkeys(named)))]
    if len(workloads) < 2:
        notes.append(
            f"{workloads[0]} is the only workload, so none can be held out, and nothing will show whether the options "
            f"found are good for another"
        )
        return [Split()]
    return [*(Split((workload,)) for workload in workloads), Split()]


def _best(trials: Sequence[FrozenTrial]) -> FrozenTrial:
    """The one with the highest score, the earliest of several."""
    scored = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not scored:
        raise SearchlabError(
            f"the policy took none of the {len(trials)} options that were tried: {trials[-1].user_attrs['refused']}; "
            f"give it other ranges with --option"
        )
    return max(scored, key=lambda trial: trial.values[0])
