"""Planning a search over a policy's options: its problems, its hold-outs, and the ranges of the options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from ..errors import SearchlabError, did_you_mean
from ..measure.settings import TableSettings
from ..options import Between, Seed, SeedCount, Trials, check_option, checks_arguments
from ..policy import POLICIES
from ..run.plan import Run
from ..run.spec import PolicyEntry
from ..run.study import Study
from ..workload import parse_workload
from .ranges import Ranges, derive_ranges, make_range
from .search import HoldOut, HyperPlan, Problem, make_problem


@checks_arguments
def plan_hypertune(
    study: Study,
    policy: str,
    *,
    options: Mapping[str, Sequence[Any]] | None = None,
    hold_out: Sequence[str] = (),
    trials: Trials = 50,
    seeds: SeedCount = 5,
    fresh_seeds: Annotated[int, Between(2)] = 20,
    seed: Seed = 0,
) -> HyperPlan:
    """Plan a search over the options of ``policy`` on the tables of ``study``.

    Args:
        study: A study whose measurements come from tables.
        policy: The label or name of a study entry, whose options then serve as the default, or any other policy.
        options: The values of each option to search: the two ends of a range of numbers, or any other list of choices.
            By default, all options for which :func:`derive_ranges` finds a range are searched.
        hold_out: The workloads that no search sees. By default, each is held out in turn (leave-one-out
            cross-validation), and one more search on all workloads finds the options to recommend.
        trials: The number of sets of options that each search tries.
        seeds: The number of runs on each problem for judging a set of options.
        fresh_seeds: The number of further runs on each problem, for the final comparison; no search sees them.
        seed: The seed that determines which options are tried and the seeds of all runs.

    Raises:
        SearchlabError: If the input is invalid.
    """
    entry = _find_entry(study, policy)
    _check_study(study, entry, trials, seeds)
    cost_models = study.spec.cost_models[:1]
    spec = msgspec.structs.replace(study.spec, policies=[entry], cost_models=cost_models, seeds=[seed])
    runs, skipped = replace(study, spec=spec).plan()
    problems, omitted = _make_problems(runs)
    notes = [*skipped, *_list_notes(study, entry, runs), *omitted]
    if not problems:
        raise SearchlabError("no workload is left for the search: " + "; ".join(notes))
    workloads = list(dict.fromkeys(problem.run.workload_name for problem in problems))
    hold_outs = _choose_hold_outs(workloads, hold_out)
    if not any(hold_outs):
        notes.append(
            f"{workloads[0]} is the only workload, so none can be held out, and the result will not show whether the "
            f"options suit other workloads"
        )
    ranges, defaults = _collect_ranges_and_defaults(entry, options)
    return HyperPlan(
        problems=problems,
        hold_outs=hold_outs,
        ranges=ranges,
        default_options=entry.options | {name: defaults[name] for name in ranges if name in defaults},
        fixed_options={name: value for name, value in defaults.items() if name not in ranges},
        trial_count=trials,
        seed=seed,
        seed_count=seeds,
        fresh_seed_count=fresh_seeds,
        notes=notes,
    )


def _check_study(study: Study, entry: PolicyEntry, trials: int, seeds: int) -> None:
    """Raise SearchlabError unless the study's runs have a fixed number of trials over tables that may be used."""
    spec = study.spec
    if study.suite is None and not isinstance(spec.measure, TableSettings):
        raise SearchlabError(
            f"the study measures on a machine, where {trials} trials with {seeds} runs each would take days; record "
            f"tables with `searchlab table build`, and "
            f'set measure = {{ kind = "table", path = ... }}'
        )
    if study.suite and any(table.entry.split == "test" for table in study.suite.tables):
        raise SearchlabError(
            f"the suite {study.suite.name} has tables of the test split, to which no option may be fitted; use "
            f"{study.suite.spec.version}/dev"
        )
    if any(
        isinstance(budget.trials, str) or (budget.seconds, budget.stop_after) != (None, None)
        for budget in (entry, spec)
    ):
        raise SearchlabError(
            "options are judged by runs with a fixed number of trials; set trials to a number, and omit seconds and "
            "stop_after"
        )


def _list_notes(study: Study, entry: PolicyEntry, runs: Sequence[Run]) -> Iterator[str]:
    """Yield caveats about the result, one sentence each."""
    strategy = runs[0].strategy
    traits = strategy.policy_class.traits
    if strategy.cost_model and len(study.spec.cost_models) > 1 and not (entry.cost_model or traits.own_model):
        yield f"only the study's first cost model, {strategy.cost_model.name}, is used"
    if any(run.warm_start.digests for run in runs):
        yield "every run learns from the warm_start logs, including their trials on held-out workloads"
    if not traits.uses_seed:
        yield "this policy's runs are the same for every seed, so the intervals have no width"


def _make_problems(runs: Sequence[Run]) -> tuple[list[Problem], list[str]]:
    """Return the problems of ``runs``, and a sentence for each run that is none."""
    problems: list[Problem] = []
    omitted: list[str] = []
    for run in runs:
        assert isinstance(run.settings, TableSettings)
        if problem := make_problem(run, run.settings.make(run.space.target, {}, run.base_dir)):
            problems.append(problem)
        else:
            omitted.append(
                f"{run.workload_name} in {run.space_choice.name} is omitted: all its configs are equally fast, so no "
                "option can be better"
            )
    return problems, omitted


def _collect_ranges_and_defaults(
    entry: PolicyEntry, options: Mapping[str, Sequence[Any]] | None
) -> tuple[Ranges, dict[str, Any]]:
    """Return the ranges to search, which are derived unless specified, and the default of each option that has one."""
    cls = POLICIES.load(entry.name)
    parameters = POLICIES.options_of(cls)
    annotations = {name: parameter.annotation for name, parameter in parameters.items()}
    defaults = {name: parameter.default for name, parameter in parameters.items()} | entry.options
    defaults = {
        name: check_option(name, value, annotations.get(name, Any))
        for name, value in defaults.items()
        if value is not inspect.Parameter.empty
    }
    if options:
        POLICIES.check_names(entry.name, cls, options)
        return {
            name: make_range(name, values, annotations.get(name, Any)) for name, values in options.items()
        }, defaults
    if ranges := derive_ranges(defaults, annotations):
        return ranges, defaults
    raise SearchlabError(
        f"policy {entry.name!r} has no option from whose default a range can be derived; "
        f"specify a range with --option name=[low,high]"
    )


def _find_entry(study: Study, policy: str) -> PolicyEntry:
    entries = study.spec.policy_entries
    matches = [entry for entry in entries if entry.label == policy] or [e for e in entries if e.name == policy]
    if len(matches) > 1:
        labels = ", ".join(repr(entry.title) for entry in matches)
        raise SearchlabError(f"the study has several entries for the policy {policy!r}; specify a label: {labels}")
    return matches[0] if matches else PolicyEntry(policy)


def _choose_hold_outs(workloads: Sequence[str], workload_names: Sequence[str]) -> list[HoldOut]:
    hold_out = tuple(dict.fromkeys(str(parse_workload(text)) for text in workload_names))
    for workload in hold_out:
        if workload not in workloads:
            raise SearchlabError(
                f"{workload} cannot be held out, because it is not one of the searched "
                f"workloads{did_you_mean(workload, workloads)}"
            )
    if hold_out:
        if not set(workloads) - set(hold_out):
            raise SearchlabError(
                "all workloads are held out, so none is left for the search; remove a --hold-out option"
            )
        return [hold_out]
    if len(workloads) == 1:
        return [()]
    return [*((workload,) for workload in workloads), ()]
