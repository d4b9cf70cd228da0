"""Planning a search over the options of a policy, and running the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from ..errors import SearchlabError, did_you_mean
from ..machine.scratch import ScratchFolder
from ..measure.settings import TableSettings
from ..measure.table import TableMeasurer
from ..plugins import Plugin
from ..policy import POLICIES
from ..run.study import NamedPolicy, Study
from ..workload import parse_workload
from .compare import Comparison, above, verdict
from .journal import Journal
from .model import HoldOut, Hypertuned
from .ranges import Ranges, defaults_of, derive_ranges, parse_options, spelled
from .replays import Problem, Replays, Seeds, make_problem
from .search import OnTrial, OptionSearch


@dataclass(frozen=True, kw_only=True)
class HyperPlan:
    """The searches to run, and on which problems; made by :func:`plan_hypertune`.

    default: the options that the policy has without any search, as the study sets them. others: the options that are
    not searched, with their values. trials: of each search. seeds: of the runs that options are judged by.
    """

    study: Study
    measurer: TableMeasurer
    problems: list[Problem]
    hold_outs: list[HoldOut]
    ranges: Ranges
    default: dict[str, Any]
    others: dict[str, Any]
    trials: int
    seeds: Seeds
    notes: list[str]

    def run(self, out: Path | None = None, on_trial: OnTrial = lambda *_: None) -> Hypertuned:
        """Search, then compare. ``out``: a directory whose journal keeps the trials; a later run goes on with them.

        Raises SearchlabError if the journal belongs to another search.
        """
        with self.measurer, ScratchFolder() as scratch, Journal(out / "optuna.log" if out else None) as journal:
            replays = Replays(self.measurer, Path(scratch))
            logs = [journal.open(one.name, self._identity(self._training(one))) for one in self.hold_outs]
            searched = [
                OptionSearch(self._training(one), self.ranges, self.default, self.seeds).run(
                    log, self.trials, replays, on_trial
                )
                for one, log in zip(self.hold_outs, logs, strict=True)
            ]
            comparison = Comparison(self.problems, self.default, self.seeds, replays)
            only = len(self.hold_outs) == 1
            searches = [comparison.add(*pair, only) for pair in zip(self.hold_outs, searched, strict=True)]
        training, held_out = comparison.training(), comparison.held_out()
        return Hypertuned(
            policy=self._policy,
            searched={name: spelled(distribution) for name, distribution in self.ranges.items()},
            not_searched=self.others,
            default_options=self.default,
            options=searches[-1].options,
            better=None if held_out is None else above(held_out.gain),
            verdict=verdict(training, held_out, unchanged=all(one.options == self.default for one in searches)),
            training=training,
            held_out=held_out,
            searches=searches,
            nearest=comparison.nearest_share(),
            notes=self.notes,
        )

    @property
    def _policy(self) -> str:
        return self.problems[0].run.strategy.policy.name

    def _training(self, hold_out: HoldOut) -> list[Problem]:
        """The problems that a search sees."""
        return [problem for problem in self.problems if problem.workload not in hold_out.workloads]

    def _identity(self, training: Sequence[Problem]) -> dict[str, Any]:
        """A search goes on with the trials of an earlier one only if the two are equal in this."""
        run, spec = training[0].run, self.study.spec
        strategy = run.strategy
        return {
            "policy": strategy.policy.name,
            "default options": Plugin(strategy.policy.name, self.default).spelled().options,
            "cost model": msgspec.to_builtins(strategy.cost_model) if strategy.cost_model else None,
            "features": strategy.features,
            "options": {name: spelled(distribution) for name, distribution in self.ranges.items()},
            "seed": self.seeds.seed,
            "seeds": self.seeds.search,
            "trials": run.trials,
            "batch": run.batch,
            "measure": msgspec.to_builtins(spec.measure),
            "warm start": list(run.warm_start.digests),
            "tasks": [problem.identity() for problem in training],
        }


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

    policy: the label or name of an entry of the study, whose options are then the default; or any other policy.
    options: the options to search, as :func:`~searchlab.hypertune.ranges.parse_options` takes them; if none, those for
        which :func:`~searchlab.hypertune.ranges.derive_ranges` has a range.
    hold_out: workloads that no search sees. By default each is held out in turn (leave-one-out cross-validation), and
        one more search on all workloads gives the options to recommend.
    trials: sets of options that each search tries. seeds: runs on each problem that judge a set of options.
    fresh_seeds: other runs on each problem, for the comparison; no search sees them.
    Raises SearchlabError for bad input.
    """
    for name, value, low in (
        ("trials", trials, 1), ("seeds", seeds, 1), ("fresh seeds", fresh_seeds, 2), ("seed", seed, 0),
    ):  # fmt: skip
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
            "options are judged by runs of a given number of trials; set trials, and leave out seconds and stop_after"
        )
    models = spec.cost_models[:1]
    cls = POLICIES.load(entry.name)
    asked = parse_options(options, entry.name, cls)
    changed = msgspec.structs.replace(spec, policies=[entry], cost_models=models, seeds=[seed])
    runs, left_out = replace(study, spec=changed).plan()
    notes = list(left_out)
    own = entry.cost_model or cls.traits.own_model
    if len(spec.cost_models) > 1 and not own and (model := runs[0].strategy.cost_model):
        notes.append(f"only the first of the study's cost models is used: {model.name}")
    if any(run.warm_start.digests for run in runs):
        notes.append("every run starts from the logs of warm_start, also from their trials on workloads held out")
    if not runs[0].strategy.policy_class.traits.uses_seed:
        notes.append("the runs of this policy are the same from every seed, so the intervals have no width")
    measurer = spec.measure.make(runs[0].space.target, {}, study.base)
    problems = []
    for run in runs:
        problem = make_problem(measurer, run)
        if problem is None:
            where = f"{run.workload} in {run.searched.name}"
            notes.append(f"{where} is left out: no config there is faster than another, so no option can be better")
        else:
            problems.append(problem)
    if not problems:
        raise SearchlabError("there is no problem to search on: " + "; ".join(notes))
    defaults = defaults_of(cls, entry.options)
    if asked:
        ranges, others = asked, {name: value for name, value in defaults.items() if name not in asked}
    else:
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
        seeds=Seeds(seed, seeds, fresh_seeds),
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
    hidden = [str(parse_workload(text)) for text in asked]
    for workload in hidden:
        if workload not in workloads:
            raise SearchlabError(
                f"{workload} cannot be held out: it is not searched{did_you_mean(workload, workloads)}"
            )
    if hidden:
        if not set(workloads) - set(hidden):
            raise SearchlabError("all workloads are held out, so there is none to search on; leave out a --hold-out")
        return [HoldOut(tuple(dict.fromkeys(hidden)))]
    if len(workloads) < 2:
        notes.append(
            f"{workloads[0]} is the only workload, so none can be held out, and the result will not show whether the "
            f"options are good for another"
        )
        return [HoldOut()]
    return [*(HoldOut((workload,)) for workload in workloads), HoldOut()]
