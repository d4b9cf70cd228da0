"""Searching for better options of a policy on recorded tables, and testing them on held-out workloads.

A set of options is judged by replays, which are runs of the policy over a table, as in a study. Each replay is scored
against random search (:class:`~searchlab.stats.random_search.RandomSearch`), because these scores are
comparable between problems. A problem is a workload in a space, together with a table's measurements.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import StorageInternalError
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from .arrays import Floats
from .errors import SearchlabError, did_you_mean, shorten_text
from .log.format import IDENTITY_FIELDS
from .log.lease import lock
from .machine.scratch import ScratchFolder
from .measure.settings import TableSettings
from .measure.table import TableMeasurer
from .options import Between, Seed, SeedCount, Trials, check_option, checks_arguments, find_numeric_type, list_literals
from .policy import POLICIES
from .run.loop import search
from .run.plan import Run
from .run.spec import PolicyEntry
from .run.study import Study
from .stats.intervals import Interval, mean_of_means_interval
from .stats.random_search import RandomDraws, RandomSearch
from .workload import parse_workload

RANGE_FACTOR = 4
"""A derived range extends from the default divided by this factor to the default multiplied by it."""

DATABASE_NAME = "optuna.db"

VERDICT_TEMPLATES = {
    "better": "The options found are better than the default on held-out workloads (gain in score {gain}).",
    "not better": "Keep the default: on held-out workloads, the options found are not better (gain in score {gain}).",
    "overfitted": "Keep the default: on held-out workloads, the options found are not better (gain in score {gain}). "
    "They are better on the searched workloads, which they may overfit.",
    "unknown": "The options found gain {gain} in score on the searched workload. No workload was held out, so "
    "this does not show how good they are on other workloads.",
}
"""The result of a search in words, for each outcome."""

Range = IntDistribution | FloatDistribution | CategoricalDistribution

Ranges = dict[str, Range]
"""The values to search, by option name."""

HoldOut = tuple[str, ...]
"""The workloads that are hidden from one search."""

OnSearchTrial = Callable[[str, int, float | None], None]
"""A function called with a search's name, a trial's number (from 0), and its score (None if it was rejected)."""


class ScoreComparison(msgspec.Struct, frozen=True):
    """The mean scores over fresh seeds, and the mean of their differences for each seed. All problems count equally."""

    default: Interval
    tuned: Interval
    gain: Interval


class ProblemScores(ScoreComparison, frozen=True, kw_only=True):
    """The comparison on one problem.

    Attributes:
        trials: The number of trials, from the first, that the score covers.
    """

    workload: str
    space: str
    held_out: bool
    trials: int


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one search, with its best options.

    Attributes:
        search_score: The options' score on the search's seeds, which is biased upwards.
        refused: The number of trials whose options the policy rejected.
    """

    name: str
    held_out: list[str]
    options: dict[str, Any]
    search_score: float
    trials: int
    refused: int
    problems: list[ProblemScores]


class HypertuneResult(msgspec.Struct, frozen=True, kw_only=True):
    """The searches over a policy's options, and a comparison of the best options with the defaults.

    Attributes:
        policy: The policy's name.
        searched: The values of each searched option: the ends of a range, or choices.
        not_searched: The value of each remaining option.
        default_options: The policy's options before any search.
        options: The best options from the last search, which is the search on all workloads or the only search.
        better: Whether the options found are better on held-out workloads, beyond the noise, or None if none was held
            out.
        verdict: The result in words.
        training: The comparison on the problems used by the searches with held-out workloads, or by the only search.
            A problem used by several searches counts once, with its mean score over the searches.
        held_out: The comparison on the problems that were held out from each search, or None if there are none.
        searches: All searches.
        notes: Caveats about the result, one sentence each.
    """

    policy: str
    searched: dict[str, list[Any]]
    not_searched: dict[str, Any]
    default_options: dict[str, Any]
    options: dict[str, Any]
    better: bool | None
    verdict: str
    training: ScoreComparison
    held_out: ScoreComparison | None
    searches: list[Search]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return plain


@dataclass(frozen=True)
class Problem:
    """A workload in a space, and the performance of random search on its measurements in a table.

    Attributes:
        run: The run from which replays differ only in options and seed.
        table_digest: A digest of the measurements.
    """

    run: Run
    measurer: TableMeasurer
    random_search: RandomSearch
    table_digest: str

    def __str__(self) -> str:
        return getattr(self.run.settings, "name", "") or f"{self.run.workload_name} in {self.run.space_choice.name}"

    def draw_seeds(self, seed: int, count: int, *, fresh: bool) -> list[int]:
        """Draw seeds for ``count`` runs: even seeds for a search or, if ``fresh``, odd seeds that no search sees.

        Each problem has different seeds, so its runs are independent of the runs on other problems.
        """
        entropy = [seed, zlib.crc32(str(self).encode()), int(fresh)]
        numbers = np.random.SeedSequence(entropy).generate_state(count)
        return [int(number) >> 2 << 1 | fresh for number in numbers]  # 31 bits: XGBoost does not accept larger seeds


def make_problem(run: Run, measurer: TableMeasurer) -> Problem | None:
    """Return the problem for ``run``, or None if all working configs are equally fast.

    The performance of random search is exact if the table contains the complete space, and estimated if it contains a
    random sample. The score starts after the trials that the policy draws at random by default, because no option
    affects those trials.
    """
    costs = np.array([measurement.cost for measurement in measurer.list_measurements(run.space)])
    working = costs[np.isfinite(costs)]
    if len(working) == 0 or working.min() == working.max():
        return None
    all_costs = measurer.all_costs(run.space)
    draws = RandomDraws.from_costs(costs, run.trials, all_costs.weights if all_costs else None)
    random_search = RandomSearch.from_draws(draws, float(working.min()), run.trials, run.start()[0].n_startup)
    return Problem(run, measurer, random_search, hashlib.sha256(costs.tobytes()).hexdigest()[:12])


@dataclass
class Replays:
    """The scores of runs that are replayed over tables, with logs in ``directory``. Each run is replayed only once."""

    directory: Path
    scores: dict[tuple[str, str, int], float] = field(default_factory=dict)

    def score(self, problem: Problem, options: Mapping[str, Any], seeds: Sequence[int]) -> Floats:
        """Return the score of one run per seed. Raises SearchlabError if the policy does not accept the options."""
        return np.array([self._score_run(problem, options, seed) for seed in seeds])

    def _score_run(self, problem: Problem, options: Mapping[str, Any], seed: int) -> float:
        key = (str(problem), json.dumps(options, sort_keys=True, default=str), seed)
        if key not in self.scores:
            log_path = self.directory / "replay.jsonl"
            log_path.unlink(missing_ok=True)
            run = replace(problem.run.with_options(options), seed=seed, log_path=log_path)
            trials = search(run, problem.measurer).trials
            costs = np.full(problem.run.trials, np.inf)  # a run that ends early stays at its best
            costs[: len(trials)] = [trial.cost for trial in trials]
            scores = problem.random_search.scores(np.minimum.accumulate(costs)[np.newaxis])
            assert scores is not None  # problems where nothing can be gained are omitted
            self.scores[key] = float(scores[0])
        return self.scores[key]


@dataclass(frozen=True, kw_only=True)
class HyperPlan:
    """The searches to run, and the problems on which to run them; created by :func:`plan_hypertune`.

    Attributes:
        hold_outs: The hold-out of each search.
        default_options: The policy's options before any search, as the study sets them.
        fixed_options: The options that are not searched, with their values.
        trial_count: The number of trials of each search.
        seed_count: The number of runs on each problem for judging a set of options.
        fresh_seed_count: The number of further runs on each problem, for the final comparison.
    """

    problems: list[Problem]
    hold_outs: list[HoldOut]
    ranges: Ranges
    default_options: dict[str, Any]
    fixed_options: dict[str, Any]
    trial_count: int
    seed: int
    seed_count: int
    fresh_seed_count: int
    caveats: list[str]

    def run(self, out: Path | None = None, on_trial: OnSearchTrial = lambda *_: None) -> HypertuneResult:
        """Run the searches, then compare the best options with the defaults.

        Args:
            out: The directory for the database of all trials, from which a later run can resume.
            on_trial: A function called after each trial of a search.

        Raises:
            SearchlabError: If the database belongs to a different search, or if the policy rejects all options.
        """
        searches: list[Search] = []
        training_pairs: dict[str, list[Floats]] = {}  # by problem, from the searches that do not see every problem
        held_out_pairs: list[Floats] = []
        with ScratchFolder() as scratch, ExitStack() as stack:
            for problem in self.problems:
                stack.enter_context(problem.measurer)
            storage = stack.enter_context(open_storage(out or Path(scratch) / "search"))
            replays = Replays(Path(scratch))
            studies = [self._create_study(storage, hold_out) for hold_out in self.hold_outs]
            for hold_out, study in zip(self.hold_outs, studies, strict=True):
                best = self._find_best_trial(study, self._select_visible_problems(hold_out), replays, on_trial)
                options = self._resolve_options(best.params)
                score_pairs = [self._score_options(problem, options, replays) for problem in self.problems]
                searches.append(self._describe_search(study, hold_out, best, options, score_pairs))
                for problem, pair in zip(self.problems, score_pairs, strict=True):
                    if problem.run.workload_name in hold_out:
                        held_out_pairs.append(pair)
                    elif hold_out or len(self.hold_outs) == 1:
                        training_pairs.setdefault(str(problem), []).append(pair)
        training = compare_scores([np.mean(problem_pairs, axis=0) for problem_pairs in training_pairs.values()])
        held_out = compare_scores(held_out_pairs) if held_out_pairs else None
        return HypertuneResult(
            policy=self.problems[0].run.strategy.policy.name,
            searched={name: list_range_values(option_range) for name, option_range in self.ranges.items()},
            not_searched=self.fixed_options,
            default_options=self.default_options,
            options=searches[-1].options,
            better=None if held_out is None else is_above_noise(held_out.gain),
            verdict=write_verdict(
                training, held_out, unchanged=all(result.options == self.default_options for result in searches)
            ),
            training=training,
            held_out=held_out,
            searches=searches,
            notes=self.caveats,
        )

    def _describe_search(
        self,
        study: optuna.Study,
        hold_out: HoldOut,
        best: FrozenTrial,
        options: dict[str, Any],
        score_pairs: list[Floats],
    ) -> Search:
        """Return the result of a search, whose best options have the scores ``score_pairs`` on the problems."""
        trials = _finished_trials(study)[: self.trial_count]
        return Search(
            name=study.study_name,
            held_out=list(hold_out),
            options=options,
            search_score=best.values[0],
            trials=len(trials),
            refused=sum(trial.state == TrialState.PRUNED for trial in trials),
            problems=[
                ProblemScores(
                    workload=problem.run.workload_name,
                    space=problem.run.space_choice.name,
                    held_out=problem.run.workload_name in hold_out,
                    trials=problem.random_search.last,
                    **msgspec.structs.asdict(compare_scores([pair])),
                )
                for problem, pair in zip(self.problems, score_pairs, strict=True)
            ],
        )

    def _select_visible_problems(self, hold_out: HoldOut) -> list[Problem]:
        return [problem for problem in self.problems if problem.run.workload_name not in hold_out]

    def _resolve_options(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the policy's options for the parameters of a trial, rounded unless they are the default."""
        return self.default_options | {
            name: value if value == self.default_options.get(name) else round_within(self.ranges[name], value)
            for name, value in params.items()
        }

    def _find_best_trial(
        self, study: optuna.Study, problems: Sequence[Problem], replays: Replays, on_trial: OnSearchTrial
    ) -> FrozenTrial:
        """Try sets of options, starting with the default values that are in range, and return the best trial.

        Finished trials that are already in ``study`` are kept. What is tried next depends only on these and the seed,
        so a search can be resumed.

        Source: Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NeurIPS 2011), as implemented by Optuna.
        """
        default = {name: self.default_options.get(name) for name in self.ranges}
        default = {name: value for name, value in default.items() if is_in_range(self.ranges[name], value)}
        for number in range(self.trial_count):
            if number == len(_finished_trials(study)):
                seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
                study.sampler = TPESampler(seed=seed, constant_liar=False)
                if not number and not study.get_trials(states=[TrialState.WAITING]):
                    study.enqueue_trial(default)
                self._score_trial(study, problems, replays)
            on_trial(study.study_name, number, _finished_trials(study)[number].value)
        trials = _finished_trials(study)[: self.trial_count]
        complete_trials = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        if not complete_trials:
            raise SearchlabError(
                f"the policy rejected all {len(trials)} sets of options that were tried: "
                f"{trials[-1].user_attrs['refused']}; specify different ranges with --option"
            )
        return max(complete_trials, key=lambda trial: trial.values[0])  # the earliest one if several are equal

    def _score_trial(self, study: optuna.Study, problems: Sequence[Problem], replays: Replays) -> None:
        trial = study.ask(dict(self.ranges))
        options = self._resolve_options(trial.params)
        try:
            for problem in problems:
                problem.run.with_options(options).start()
        except SearchlabError as error:
            trial.set_user_attr("refused", str(error))
            study.tell(trial, state=TrialState.PRUNED)
            return
        scores = {
            str(problem): float(
                replays.score(problem, options, problem.draw_seeds(self.seed, self.seed_count, fresh=False)).mean()
            )
            for problem in problems
        }
        trial.set_user_attr("scores", scores)
        study.tell(trial, float(np.mean(list(scores.values()))))

    def _score_options(self, problem: Problem, options: dict[str, Any], replays: Replays) -> Floats:
        """Return the scores with the default options and with ``options`` on fresh seeds: shape (2, seeds)."""
        seeds = problem.draw_seeds(self.seed, self.fresh_seed_count, fresh=True)
        return np.array([replays.score(problem, self.default_options, seeds), replays.score(problem, options, seeds)])

    def _create_study(self, storage: RDBStorage, hold_out: HoldOut) -> optuna.Study:
        """Create or load a search. Raises SearchlabError if a stored one differs in more than its number of trials."""
        name = f"without {', '.join(hold_out)}" if hold_out else "on all workloads"
        study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
        identity = {
            "options": {name: list_range_values(option_range) for name, option_range in self.ranges.items()},
            "seed": self.seed,
            "seeds": self.seed_count,
        }
        for problem in self._select_visible_problems(hold_out):
            header = msgspec.to_builtins(problem.run.header)
            header["code"].pop("table", None)  # it includes the tables of workloads that are held out
            facts = {key: header[key] for key in (*IDENTITY_FIELDS, "code", "defaults", "versions")}
            facts |= {"trials": problem.run.trials, "table": problem.table_digest}
            identity |= {f"{key} on {problem}": fact for key, fact in facts.items()}
        identity = json.loads(json.dumps(identity))
        stored = study.user_attrs.get("identity", {})
        changed = [key for key in stored | identity if stored.get(key) != identity.get(key)]
        if not stored and not study.trials:
            study.set_user_attr("identity", identity)
        elif changed:
            key = changed[0]
            old, new = (shorten_text(str(identities.get(key)), 200) for identities in (stored, identity))
            raise SearchlabError(
                f"this directory contains a different search {name!r}, with {key} = {old} "
                f"instead of {new}; choose a different --out, or restore the search's "
                "original options and code"
            )
        return study


def _finished_trials(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def compare_scores(score_pairs: Sequence[Floats]) -> ScoreComparison:
    """Average the scores over problems. The intervals reflect only variation by seed, for exactly these problems.

    Args:
        score_pairs: For each problem, the scores with the default options and with the options found, of shape
            (2, seeds).
    """
    columns = (
        [pair[0] for pair in score_pairs],
        [pair[1] for pair in score_pairs],
        [pair[1] - pair[0] for pair in score_pairs],
    )
    return ScoreComparison(*map(mean_of_means_interval, columns))


def write_verdict(training: ScoreComparison, held_out: ScoreComparison | None, unchanged: bool) -> str:
    """Return the result in words. ``unchanged`` is whether the best options for every search are the defaults."""
    if unchanged:
        return "No options better than the default were found."
    gain = (held_out or training).gain
    if held_out is None:
        outcome = "unknown"
    elif is_above_noise(gain):
        outcome = "better"
    else:
        outcome = "overfitted" if is_above_noise(training.gain) else "not better"
    return VERDICT_TEMPLATES[outcome].format(gain=gain.text("+"))


def is_above_noise(gain: Interval) -> bool:
    """Return whether a gain is above 0 beyond the noise."""
    return gain.lower is not None and gain.lower > 0


# --- planning ---------------------------------------------------------------------------------------


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
    caveats = [*skipped, *_list_caveats(study, entry, runs), *omitted]
    if not problems:
        raise SearchlabError("no workload is left for the search: " + "; ".join(caveats))
    workloads = list(dict.fromkeys(problem.run.workload_name for problem in problems))
    hold_outs = _choose_hold_outs(workloads, hold_out)
    if not any(hold_outs):
        caveats.append(
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
        caveats=caveats,
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


def _list_caveats(study: Study, entry: PolicyEntry, runs: Sequence[Run]) -> Iterator[str]:
    """Yield sentences on what limits the result."""
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


# --- ranges -----------------------------------------------------------------------------------------


def make_range(name: str, values: Sequence[Any], annotation: Any) -> Range:
    """Return the range between two numbers, on a logarithmic scale if both are positive, or any other list of choices.

    Raises SearchlabError if ``annotation`` does not allow a value, or ``values`` are no list.
    """
    if not isinstance(values, list | tuple):
        raise SearchlabError(
            f"option {name!r} cannot be searched over {values!r}; specify the two ends of a range, as in "
            f"{name}=[2,64], or a list of choices"
        )
    values = [check_option(name, value, annotation) for value in values]
    try:
        if len(values) != 2 or not all(type(value) in (int, float) for value in values):
            return CategoricalDistribution(values)
        low, high = values
        kind = FloatDistribution if float in map(type, values) else IntDistribution
        return kind(low, high, log=low > 0)
    except ValueError as error:
        raise SearchlabError(f"option {name!r} cannot be searched over {values}: {error}") from None


def derive_ranges(defaults: Mapping[str, Any], annotations: Mapping[str, Any]) -> Ranges:
    """Return the ranges that follow from options' defaults and annotations, which may suggest none.

    Of a switch and of an option that is one of several words, all values are searched. A positive number is searched
    from a quarter to four times its value, within the declared bounds.
    """
    ranges: Ranges = {}
    for name, default in defaults.items():
        annotation = annotations.get(name, Any)
        if isinstance(default, bool):
            ranges[name] = make_range(name, [False, True], annotation)
        elif words := list_literals(annotation):
            ranges[name] = make_range(name, list(dict.fromkeys([*words, default])), annotation)
        elif isinstance(default, int | float) and default > 0:
            low, high = round_number(default / RANGE_FACTOR), round_number(default * RANGE_FACTOR)
            if isinstance(default, int):
                low, high = max(1, round(default / RANGE_FACTOR)), default * RANGE_FACTOR
            if (bounds := find_numeric_type(annotation)) is not None:
                low = low if bounds.ge is None else max(low, bounds.ge)
                high = high if bounds.le is None else min(high, bounds.le)
            if low < high:
                ranges[name] = make_range(name, [low, high], annotation)
    return ranges


def list_range_values(option_range: Range) -> list[Any]:
    """Return the two ends of a range, or the choices, as :func:`make_range` accepts them."""
    if isinstance(option_range, CategoricalDistribution):
        return list(option_range.choices)
    return [option_range.low, option_range.high]


def is_in_range(option_range: Range, value: Any) -> bool:
    if isinstance(option_range, CategoricalDistribution):
        return value in option_range.choices
    return isinstance(value, int | float) and option_range.low <= value <= option_range.high


def round_number(value: float) -> float:
    """Round to three significant digits, so that the value is easy to type into a study file."""
    return float(f"{value:.3g}")


def round_within(option_range: Range, value: Any) -> Any:
    """Round a number that Optuna has drawn from a range of floats, and return any other value as it is."""
    if not isinstance(option_range, FloatDistribution):
        return value
    return min(max(round_number(value), option_range.low), option_range.high)


# --- the database -----------------------------------------------------------------------------------


@contextmanager
def open_storage(directory: Path) -> Iterator[RDBStorage]:
    """Open the SQLite database in ``directory`` for this process alone.

    Raises:
        SearchlabError: If the database is open in another process, damaged, or not writable.
    """
    path = directory / DATABASE_NAME
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            handle = os.open(directory, os.O_RDONLY)
            stack.callback(os.close, handle)
            lock(handle)
        except BlockingIOError:
            raise SearchlabError(f"another search is writing {path}; wait for it, or change --out") from None
        except OSError as error:
            raise SearchlabError(f"cannot write {path}: {error.strerror}") from None
        stack.callback(optuna.logging.set_verbosity, optuna.logging.get_verbosity())
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            yield RDBStorage("sqlite://", {"creator": lambda: sqlite3.connect(path)})  # a URL would restrict the path
        except (SQLAlchemyError, StorageInternalError) as error:
            cause: BaseException = error
            while cause.__cause__:
                cause = cause.__cause__
            raise SearchlabError(
                f"cannot use {path}: {cause}; check the disk and repeat the command to continue the search, or change "
                "--out"
            ) from None
