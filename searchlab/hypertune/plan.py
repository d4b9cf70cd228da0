"""Plan a search over the options of a policy, run it, and compare the options it finds with the default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from optuna.trial import TrialState

from ..analysis.stats.intervals import Interval, mean_of_means_interval
from ..arrays import Floats
from ..errors import SearchlabError, did_you_mean
from ..machine.scratch import ScratchFolder
from ..measure.settings import TableSettings
from ..measure.table import TableMeasurer
from ..plugins import Plugin
from ..policy import POLICIES
from ..run.study import NamedPolicy, Study
from ..workload import parse_workload
from .ranges import Ranges, defaults_of, derive_ranges, parse_options, spelled
from .search import OnTrial, OptionSearch, Problem, Replays, make_problem, open_journal, open_search

HoldOut = tuple[str, ...]
"""The workloads that are hidden from one search."""


class Compared(msgspec.Struct, frozen=True):
    """Mean scores over fresh seeds, and the mean of their differences, seed by seed; each problem counts the same."""

    default: Interval
    found: Interval
    gain: Interval


class ProblemScores(Compared, frozen=True, kw_only=True):
    """The comparison on one problem."""

    workload: str
    space: str
    held_out: bool
    trials: int  # the score is over this many trials, from the first


class Search(msgspec.Struct, frozen=True, kw_only=True, rename={"problems": "tasks"}):
    """One search and its best options."""

    name: str
    held_out: list[str]
    options: dict[str, Any]
    search_score: float  # of these options on the seeds of the search, so it is biased upwards
    trials: int
    refused: int  # trials whose options the policy refused
    problems: list[ProblemScores]


class Hypertuned(msgspec.Struct, frozen=True, kw_only=True):
    """The searches of a policy's options, and the comparison of what they found with the default.

    Attributes:
        policy: The name of the policy.
        searched: The range of each option that was searched.
        not_searched: The value of each other option.
        default_options: The options of the policy without any search.
        options: The best options of the last search: the one on all workloads, or the only one.
        better: Whether they are better on held-out workloads, beyond the noise; None if none was held out.
        verdict: The result in words.
        training: Over the problems that a search with held-out workloads, or the only search, saw.
        held_out: Over the problems that a search did not see; None if none was held out. A problem of several searches
            counts once, with the mean of their scores.
        searches: All searches.
        nearest: The share of the trials on fresh seeds that were answered with the nearest config in the table.
        notes: What to know about the result, one sentence each.
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
        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return plain


@dataclass(frozen=True, kw_only=True)
class HyperPlan:
    """The searches to run, and the problems to run them on; made by :func:`plan_hypertune`."""

    study: Study
    measurer: TableMeasurer
    problems: list[Problem]
    hold_outs: list[HoldOut]
    ranges: Ranges
    default: dict[str, Any]  # the options of the policy without any search, as the study sets them
    others: dict[str, Any]  # the options that are not searched, with their values
    trials: int  # of each search
    seed: int
    seeds: int  # runs on each problem that judge a set of options
    fresh_seeds: int  # other runs, for the comparison
    notes: list[str]

    def run(self, out: Path | None = None, on_trial: OnTrial = lambda *_: None) -> Hypertuned:
        """Search, then compare.

        Args:
            out: A directory for the journal of all trials, from which a later run resumes.
            on_trial: Called after each trial of a search.

        Raises:
            SearchlabError: The journal belongs to a different search.
        """
        path = out / "optuna.log" if out else None
        with self.measurer, ScratchFolder() as scratch, open_journal(path) as storage:
            replays = Replays(self.measurer, Path(scratch))
            visible = [[one for one in self.problems if one.workload not in hidden] for hidden in self.hold_outs]
            studies = [
                open_search(storage, path, _name(hidden), self._identity(training))
                for hidden, training in zip(self.hold_outs, visible, strict=True)
            ]
            searches = []
            for hidden, training, study in zip(self.hold_outs, visible, studies, strict=True):
                search = OptionSearch(training, self.ranges, self.default, self.seed, self.seeds)
                trials = search.run(study, self.trials, replays, on_trial)
                scored = [trial for trial in trials if trial.state == TrialState.COMPLETE]
                if not scored:
                    raise SearchlabError(
                        f"the policy refused all {len(trials)} sets of options that were tried: "
                        f"{trials[-1].user_attrs['refused']}; give other ranges with --option"
                    )
                best = max(scored, key=lambda trial: trial.values[0])  # the earliest of several
                options = self.default | best.params
                searches.append(
                    Search(
                        name=study.study_name, held_out=list(hidden), options=options, search_score=best.values[0],
                        trials=len(trials), refused=len(trials) - len(scored),
                        problems=[self._scores(problem, options, hidden, replays) for problem in self.problems],
                    )
                )  # fmt: skip
            return self._compared(searches, replays)

    def _fresh(self, problem: Problem, options: dict[str, Any], replays: Replays) -> Floats:
        """Replay runs with the default and with ``options`` on fresh seeds: shape (2, seeds, 3)."""
        seeds = problem.seeds(self.seed, self.fresh_seeds, fresh=True)
        return np.array([replays(problem, each, seeds) for each in (self.default, options)])

    def _scores(self, problem: Problem, options: dict[str, Any], hidden: HoldOut, replays: Replays) -> ProblemScores:
        both = compared([self._fresh(problem, options, replays)[..., 0]])
        return ProblemScores(
            workload=problem.workload, space=problem.space, held_out=problem.workload in hidden,
            trials=problem.random.last, **msgspec.structs.asdict(both),
        )  # fmt: skip

    def _compared(self, searches: list[Search], replays: Replays) -> Hypertuned:
        runs = np.array([[self._fresh(one, search.options, replays) for one in self.problems] for search in searches])
        hidden = np.array([[one.held_out for one in search.problems] for search in searches])
        counted = np.array([bool(search.held_out) or len(searches) == 1 for search in searches])

        def over(which: Any) -> list[Floats]:
            """Average the scores of each problem over the counted searches in ``which``, shape (searches, problems)."""
            which = which & counted[:, np.newaxis]
            return [runs[which[:, n], n][..., 0].mean(axis=0) for n in range(len(self.problems)) if which[:, n].any()]

        training = compared(over(~hidden))
        held_out = compared(over(hidden)) if hidden.any() else None
        nearest, trials = runs[..., 1:].sum(axis=(0, 1, 2, 3))
        return Hypertuned(
            policy=self._policy,
            searched={name: spelled(values) for name, values in self.ranges.items()},
            not_searched=self.others,
            default_options=self.default,
            options=searches[-1].options,
            better=None if held_out is None else above(held_out.gain),
            verdict=verdict(training, held_out, unchanged=all(one.options == self.default for one in searches)),
            training=training,
            held_out=held_out,
            searches=searches,
            nearest=float(nearest / trials) if trials else 0.0,
            notes=self.notes,
        )

    @property
    def _policy(self) -> str:
        return self.problems[0].run.strategy.policy.name

    def _identity(self, training: Sequence[Problem]) -> dict[str, Any]:
        """Return what must be equal for a search to continue with the trials of an earlier one."""
        run = training[0].run
        strategy = run.strategy
        return {
            "policy": self._policy,
            "default options": Plugin(self._policy, self.default).spelled().options,
            "cost model": msgspec.to_builtins(strategy.cost_model) if strategy.cost_model else None,
            "features": strategy.features,
            "options": {name: spelled(values) for name, values in self.ranges.items()},
            "seed": self.seed,
            "seeds": self.seeds,
            "trials": run.trials,
            "batch": run.batch,
            "measure": msgspec.to_builtins(self.study.spec.measure),
            "warm start": list(run.warm_start.digests),
            "tasks": [problem.identity() for problem in training],
        }


def _name(hidden: HoldOut) -> str:
    return f"without {', '.join(hidden)}" if hidden else "on all workloads"


def compared(pairs: Sequence[Floats]) -> Compared:
    """Average the scores over problems. The intervals are over seeds, for just these problems.

    Args:
        pairs: The scores on each problem with the default options and with those that were found, shape (2, seeds).
    """
    columns = [pair[0] for pair in pairs], [pair[1] for pair in pairs], [pair[1] - pair[0] for pair in pairs]
    return Compared(*(mean_of_means_interval(column) for column in columns))


def verdict(training: Compared, held_out: Compared | None, unchanged: bool) -> str:
    """Return the result in words; ``unchanged``: the best options of every search are the default."""
    if unchanged:
        return "No options were found that are better than the default."
    if held_out is None:
        better = "better" if above(training.gain) else "not better"
        return (
            f"On the workload of the search, the options found are {better} beyond the noise: "
            f"{interval_text(training.gain, '+')} in score against the default. No workload was held out, so this does "
            f"not show how good they are on another."
        )
    gain = f"{interval_text(held_out.gain, '+')} in score against the default"
    if above(held_out.gain):
        return f"The options found are better on workloads held out, beyond the noise: {gain}."
    if held_out.gain.upper is not None and held_out.gain.upper < 0:
        return f"The options found are worse on workloads held out, beyond the noise: {gain}. Keep the default."
    fits = ", though they are better on the workloads of the search, which they may overfit"
    return (
        f"The options found are not better on workloads held out beyond the noise"
        f"{fits if above(training.gain) else ''}: {gain}. Keep the default."
    )


def above(gain: Interval) -> bool:
    """Return whether a gain is above 0 beyond the noise."""
    return gain.lower is not None and gain.lower > 0


def interval_text(estimate: Interval, sign: str = "") -> str:
    text = f"{estimate.value:{sign}.3f}"
    return text if estimate.lower is None else f"{text} [{estimate.lower:{sign}.3f}, {estimate.upper:{sign}.3f}]"


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
    """Plan to search the options of ``policy`` on the tables of ``study``.

    Args:
        study: A study that measures from a table.
        policy: The label or name of an entry of the study, whose options are then the default; or any other policy.
        options: The options to search, as :func:`~searchlab.hypertune.ranges.parse_options` takes them; if none, those
            for which :func:`~searchlab.hypertune.ranges.derive_ranges` has a range.
        hold_out: Workloads that no search sees. By default each is held out in turn (leave-one-out cross-validation),
            and one more search on all workloads finds the options to recommend.
        trials: Sets of options that each search tries.
        seeds: Runs on each problem that judge a set of options.
        fresh_seeds: Other runs on each problem, for the comparison; no search sees them.
        seed: Determines the options that are tried, and the seeds of all runs.

    Raises:
        SearchlabError: The input is invalid.
    """
    least = {"trials": (trials, 1), "seeds": (seeds, 1), "fresh seeds": (fresh_seeds, 2), "seed": (seed, 0)}
    for name, (value, low) in least.items():
        if value < low:
            raise SearchlabError(f"{name} must be at least {low}, not {value}")
    spec = study.spec
    if spec.suite:
        raise SearchlabError(
            "options are not searched on a suite yet; name workloads and spaces, and set "
            'measure = { kind = "table", path = ... } with tables of the suite'
        )
    if not isinstance(spec.measure, TableSettings):
        raise SearchlabError(
            f"the study is measured on a machine (measure.kind is {spec.measure.__struct_config__.tag!r}), where "
            f"{trials} trials of {seeds} runs each would take days; record tables with `searchlab table build`, and "
            f'set measure = {{ kind = "table", path = ... }}'
        )
    entry = _entry(study, policy)
    budget = spec.budget(entry)
    if budget.seconds is not None or budget.stop_after is not None:
        raise SearchlabError(
            "options are judged by runs of a fixed number of trials; set trials, and omit seconds and stop_after"
        )
    cls = POLICIES.load(entry.name)
    ranges = parse_options(options, entry.name, cls)
    changed = msgspec.structs.replace(spec, policies=[entry], cost_models=spec.cost_models[:1], seeds=[seed])
    runs, left_out = replace(study, spec=changed).plan()
    notes = list(left_out)
    own = entry.cost_model or cls.traits.own_model
    if len(spec.cost_models) > 1 and not own and (model := runs[0].strategy.cost_model):
        notes.append(f"only the first of the study's cost models is used: {model.name}")
    if any(run.warm_start.digests for run in runs):
        notes.append("every run learns from the logs of warm_start, including their trials on workloads held out")
    if not runs[0].strategy.policy_class.traits.uses_seed:
        notes.append("the runs of this policy are the same from every seed, so the intervals have no width")
    measurer = spec.measure.make(runs[0].space.target, {}, study.base)
    problems = []
    for run in runs:
        if problem := make_problem(measurer, run):
            problems.append(problem)
        else:
            where = f"{run.workload} in {run.searched.name}"
            notes.append(f"{where} is left out: no config there is faster than another, so no option can be better")
    if not problems:
        raise SearchlabError("there is no problem to search on: " + "; ".join(notes))
    defaults = defaults_of(cls, entry.options)
    others = {name: value for name, value in defaults.items() if name not in ranges}
    if not ranges:
        ranges, others = derive_ranges(defaults, cls)
    if not ranges:
        raise SearchlabError(
            f"policy {entry.name!r} has no option with a default that a range can be derived from; "
            f"give one with --option name=low..high"
        )
    return HyperPlan(
        study=study,
        measurer=measurer,
        problems=problems,
        hold_outs=_hold_outs(list(dict.fromkeys(problem.workload for problem in problems)), hold_out, notes),
        ranges=ranges,
        default=entry.options | {name: defaults[name] for name in ranges if name in defaults},
        others=others,
        trials=trials,
        seed=seed,
        seeds=seeds,
        fresh_seeds=fresh_seeds,
        notes=notes,
    )


def _entry(study: Study, policy: str) -> NamedPolicy:
    entries = study.spec.policy_entries
    own = [entry for entry in entries if entry.label == policy] or [e for e in entries if e.name == policy]
    if len(own) > 1:
        labels = ", ".join(repr(entry.label or entry.name) for entry in own)
        raise SearchlabError(f"the study has several entries of the policy {policy!r}; name one by its label: {labels}")
    return own[0] if own else NamedPolicy(policy)


def _hold_outs(workloads: Sequence[str], asked: Sequence[str], notes: list[str]) -> list[HoldOut]:
    hidden = tuple(dict.fromkeys(str(parse_workload(text)) for text in asked))
    for workload in hidden:
        if workload not in workloads:
            raise SearchlabError(
                f"{workload} cannot be held out: it is not searched{did_you_mean(workload, workloads)}"
            )
    if hidden:
        if not set(workloads) - set(hidden):
            raise SearchlabError("all workloads are held out, so there is none to search on; omit a --hold-out")
        return [hidden]
    if len(workloads) == 1:
        notes.append(
            f"{workloads[0]} is the only workload, so none can be held out, and the result will not show whether the "
            f"options are good for another"
        )
        return [()]
    return [*((workload,) for workload in workloads), ()]
