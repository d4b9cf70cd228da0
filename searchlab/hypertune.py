"""Searching for better options of a policy on recorded tables, and testing them on held-out workloads.

A set of options is judged by replays, which are runs of the policy over a table, as in a study. Each replay is scored
against random search (:class:`~searchlab.analysis.stats.random_search.RandomSearch`), because these scores are
comparable between problems. A problem is a workload in a space, together with a table's measurements.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import optuna
from msgspec.inspect import FloatType
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from .analysis.stats.intervals import Interval, mean_of_means_interval
from .analysis.stats.random_search import Draws, RandomSearch
from .arrays import Floats
from .errors import SearchlabError, cut, described, did_you_mean
from .files import check_regular, read_bytes
from .log.writer import lock
from .machine.host import library_versions
from .machine.scratch import ScratchFolder
from .measure.settings import TableSettings
from .measure.table import TableMeasurer
from .options import number_of
from .plugins import Plugin
from .policy import POLICIES
from .run.loop import search
from .run.plan import Run
from .run.study import NamedPolicy, Study
from .workload import parse_workload

FACTOR = 4
"""A derived range extends from the default divided by this factor to the default multiplied by it."""

Range = IntDistribution | FloatDistribution | CategoricalDistribution
Ranges = dict[str, Range]  # the values to search, by option name
HoldOut = tuple[str, ...]  # the workloads that are hidden from one search

OnTrial = Callable[[str, int, float | None], None]
"""A function called with a search's name, a trial's number (from 0), and its score (None if it was rejected)."""


class Compared(msgspec.Struct, frozen=True):
    """The mean scores over fresh seeds, and the mean of their differences for each seed. All problems count equally."""

    default: Interval
    found: Interval
    gain: Interval


class ProblemScores(Compared, frozen=True, kw_only=True):
    """The comparison on one problem."""

    workload: str
    space: str
    held_out: bool
    trials: int  # the number of trials, from the first, that the score covers


class Search(msgspec.Struct, frozen=True, kw_only=True, rename={"problems": "tasks"}):
    """The result of one search, with its best options."""

    name: str
    held_out: list[str]
    options: dict[str, Any]
    search_score: float  # the options' score on the search's seeds, which is biased upwards
    trials: int
    refused: int  # the number of trials whose options the policy rejected
    problems: list[ProblemScores]


class Hypertuned(msgspec.Struct, frozen=True, kw_only=True):
    """The searches over a policy's options, and a comparison of the best options with the defaults.

    Attributes:
        policy: The policy's name.
        searched: The range of each searched option.
        not_searched: The value of each remaining option.
        default_options: The policy's options before any search.
        options: The best options from the last search, which is the search on all workloads or the only search.
        better: Whether these options are better on held-out workloads, beyond the noise, or None if none was held out.
        verdict: The result in words.
        training: The comparison on the problems used by the searches with held-out workloads, or by the only search.
            A problem used by several searches counts once, with its mean score over the searches.
        held_out: The comparison on the problems that were held out, or None if there are none.
        searches: All searches.
        nearest: The share of trials with fresh seeds for which the nearest config in the table was used.
        notes: Caveats about the result, one sentence each.
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


@dataclass(frozen=True)
class Problem:
    """A workload in a space, and the performance of random search on its measurements in a table."""

    run: Run  # the run from which replays differ only in options and seed
    measurer: TableMeasurer
    random: RandomSearch
    digest: str  # a digest of the measurements

    @property
    def workload(self) -> str:
        return self.run.workload

    @property
    def space(self) -> str:
        return self.run.space_choice.name

    def __str__(self) -> str:
        return getattr(self.run.settings, "name", "") or f"{self.workload} in {self.space}"

    def seeds(self, seed: int, count: int, *, fresh: bool) -> list[int]:
        """Draw seeds for ``count`` runs: even seeds for a search or, if ``fresh``, odd seeds that no search sees.

        Each problem has different seeds, so its runs are independent of the runs on other problems.
        """
        entropy = [seed, zlib.crc32(str(self).encode()), int(fresh)]
        drawn = np.random.SeedSequence(entropy).generate_state(count)
        return [int(number) >> 2 << 1 | fresh for number in drawn]  # 31 bits: XGBoost does not accept larger seeds


def make_problem(run: Run, measurer: TableMeasurer) -> Problem | None:
    """Return the problem for ``run``, or None if all working configs are equally fast.

    The performance of random search is exact if the table contains the complete space, and estimated if it contains a
    random sample. The score starts after the trials that the policy draws at random by default, because no option
    affects those trials.
    """
    costs = np.array([measurement.cost for measurement in measurer.recorded(run.space)])
    working = costs[np.isfinite(costs)]
    if len(working) == 0 or working.min() == working.max():
        return None
    whole = measurer.all_costs(run.space)
    draws = Draws.of(costs, run.trials, whole.weights if whole else None)
    random = RandomSearch.of(draws, float(working.min()), run.trials, run.start()[0].n_startup)
    return Problem(run, measurer, random, hashlib.sha256(costs.tobytes()).hexdigest()[:12])


@dataclass
class Replays:
    """The replays of runs over tables, with logs in ``directory``. Each run is replayed only once."""

    directory: Path
    known: dict[tuple[str, str, int], tuple[float, int, int]] = field(default_factory=dict)

    def __call__(self, problem: Problem, options: Mapping[str, Any], seeds: Sequence[int]) -> Floats:
        """Replay one run per seed.

        Returns:
            Floats: For each seed, the score, the number of trials for which the nearest config was used, and the number
                of all trials; shape (seeds, 3).

        Raises:
            SearchlabError: If the policy does not accept the options.
        """
        return np.array([self._replay(problem, options, seed) for seed in seeds])

    def _replay(self, problem: Problem, options: Mapping[str, Any], seed: int) -> tuple[float, int, int]:
        key = (str(problem), json.dumps(options, sort_keys=True, default=str), seed)
        if key not in self.known:
            log = self.directory / "replay.jsonl"
            log.unlink(missing_ok=True)
            trials = search(replace(problem.run.with_options(options), seed=seed, log=log), problem.measurer).trials
            costs = np.full(problem.run.trials, np.inf)  # a run that ends early stays at its best
            costs[: len(trials)] = [trial.cost for trial in trials]
            scores = problem.random.scores(np.minimum.accumulate(costs)[np.newaxis])
            assert scores is not None  # problems where nothing can be gained are omitted
            self.known[key] = float(scores[0]), sum(trial.measurement.nearest for trial in trials), len(trials)
        return self.known[key]


@dataclass(frozen=True, kw_only=True)
class HyperPlan:
    """The searches to run, and the problems on which to run them; created by :func:`plan_hypertune`."""

    problems: list[Problem]
    hold_outs: list[HoldOut]  # one per search
    ranges: Ranges
    default: dict[str, Any]  # the policy's options before any search, as the study sets them
    others: dict[str, Any]  # the options that are not searched, with their values
    trials: int  # per search
    seed: int
    seeds: int  # the number of runs on each problem for judging a set of options
    fresh_seeds: int  # the number of further runs on each problem, for the final comparison
    notes: list[str]

    def run(self, out: Path | None = None, on_trial: OnTrial = lambda *_: None) -> Hypertuned:
        """Run the searches, then compare the best options with the defaults.

        Args:
            out: The directory for the journal of all trials, from which a later run can resume.
            on_trial: A function called after each trial of a search.

        Raises:
            SearchlabError: If the journal belongs to a different search, or if the policy rejects all options.
        """
        path = out / "optuna.log" if out else None
        with ExitStack() as stack, ScratchFolder() as scratch, open_journal(path) as storage:
            for problem in self.problems:
                stack.enter_context(problem.measurer)
            replays = Replays(Path(scratch))
            studies = [self._open_search(storage, path, hidden) for hidden in self.hold_outs]
            searches = []
            runs = []  # each search's replays on fresh seeds
            for hidden, study in zip(self.hold_outs, studies, strict=True):
                trials = self._search(study, self._visible(hidden), replays, on_trial)
                scored = [trial for trial in trials if trial.state == TrialState.COMPLETE]
                if not scored:
                    raise SearchlabError(
                        f"the policy rejected all {len(trials)} sets of options that were tried: "
                        f"{trials[-1].user_attrs['refused']}; specify different ranges with --option"
                    )
                best = max(scored, key=lambda trial: trial.values[0])  # the earliest one if several are equal
                options = self.default | best.params
                fresh = [self._fresh(problem, options, replays) for problem in self.problems]
                runs.append(fresh)
                problems = [
                    ProblemScores(
                        workload=problem.workload,
                        space=problem.space,
                        held_out=problem.workload in hidden,
                        trials=problem.random.last,
                        **msgspec.structs.asdict(compared([pair[..., 0]])),
                    )
                    for problem, pair in zip(self.problems, fresh, strict=True)
                ]
                searches.append(
                    Search(
                        name=study.study_name,
                        held_out=list(hidden),
                        options=options,
                        search_score=best.values[0],
                        trials=len(trials),
                        refused=len(trials) - len(scored),
                        problems=problems,
                    )
                )
        return self._result(searches, np.array(runs))

    def _visible(self, hidden: HoldOut) -> list[Problem]:
        return [problem for problem in self.problems if problem.workload not in hidden]

    def _search(
        self, study: optuna.Study, problems: Sequence[Problem], replays: Replays, on_trial: OnTrial
    ) -> list[FrozenTrial]:
        """Try sets of options, starting with the default if it is in range; trials already in ``study`` are kept."""
        trials = study.trials
        for number in range(self.trials):
            if number == len(trials):
                trial = self._tried(self._params(trials), problems, replays)
                with _storing():
                    study.add_trial(trial)  # written to disk before the next one is tried
                trials = study.trials
            on_trial(study.study_name, number, trials[number].value)
        return trials[: self.trials]

    def _params(self, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
        default = {name: self.default[name] for name in self.ranges if name in self.default}
        in_ranges = all(name in default and holds(values, default[name]) for name, values in self.ranges.items())
        return default if not trials and in_ranges else suggest(trials, self.ranges, [self.seed, len(trials)])

    def _tried(self, params: dict[str, Any], problems: Sequence[Problem], replays: Replays) -> FrozenTrial:
        options = self.default | params
        tried: dict[str, Any] = {"params": params, "distributions": dict(self.ranges)}
        try:
            for problem in problems:
                problem.run.with_options(options).start()
        except SearchlabError as error:
            return create_trial(state=TrialState.PRUNED, user_attrs={"refused": str(error)}, **tried)
        scores = {}
        for problem in problems:
            runs = replays(problem, options, problem.seeds(self.seed, self.seeds, fresh=False))
            scores[str(problem)] = float(runs[:, 0].mean())
        return create_trial(value=float(np.mean(list(scores.values()))), user_attrs={"scores": scores}, **tried)

    def _fresh(self, problem: Problem, options: dict[str, Any], replays: Replays) -> Floats:
        """Replay runs with the default options and with ``options`` on fresh seeds: shape (2, seeds, 3)."""
        seeds = problem.seeds(self.seed, self.fresh_seeds, fresh=True)
        return np.array([replays(problem, each, seeds) for each in (self.default, options)])

    def _result(self, searches: list[Search], runs: Floats) -> Hypertuned:
        """Compare the options on all problems. ``runs`` has shape (searches, problems, 2, seeds, 3)."""
        hidden = np.array([[one.held_out for one in search.problems] for search in searches])
        counted = np.array([[bool(search.held_out) or len(searches) == 1] for search in searches])

        def over(which: Any) -> Compared:
            """Average each problem's scores over the counted searches in ``which``, of shape (searches, problems)."""
            which = which & counted
            return compared([runs[which[:, n], n][..., 0].mean(axis=0) for n in np.flatnonzero(which.any(axis=0))])

        training = over(~hidden)
        held_out = over(hidden) if hidden.any() else None
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

    def _open_search(self, storage: BaseStorage, path: Path | None, hidden: HoldOut) -> optuna.Study:
        """Open or create a search. Raises SearchlabError if a stored one differs in more than its number of trials."""
        problems = self._visible(hidden)
        run = problems[0].run
        strategy = run.strategy
        identity = {
            "policy": self._policy,
            "default options": Plugin(self._policy, self.default).to_spec().options,
            "cost model": msgspec.to_builtins(strategy.cost_model) if strategy.cost_model else None,
            "features": strategy.features,
            "options": {name: spelled(values) for name, values in self.ranges.items()},
            "seed": self.seed,
            "seeds": self.seeds,
            "trials": run.trials,
            "batch": run.batch,
            "measure": run.settings.identity(),
            "warm start": list(run.warm_start.digests),
            "code": [{role: digest for role, digest in one.run.code.items() if role != "table"} for one in problems],
            "versions": dict(library_versions()),
            "tasks": [
                {
                    "workload": one.workload,
                    "space": one.space,
                    "fingerprint": one.run.space.fingerprint,
                    "table": one.digest,
                }
                for one in problems
            ],
        }
        name = f"without {', '.join(hidden)}" if hidden else "on all workloads"
        with _storing():
            study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
            known, has_trials = study.user_attrs, bool(study.trials)
            for key, wanted in identity.items():
                if key not in known and not has_trials:
                    study.set_user_attr(key, wanted)
                elif known.get(key) != wanted:
                    raise SearchlabError(
                        f"{path} contains a different search {name!r}, with {key} = {cut(str(known.get(key)), 200)} "
                        f"instead of {cut(str(wanted), 200)}; choose a different --out, or restore the search's "
                        "original options and code"
                    )
        return study


def compared(pairs: Sequence[Floats]) -> Compared:
    """Average the scores over problems. The intervals reflect only variation by seed, for exactly these problems.

    Args:
        pairs: For each problem, the scores with the default options and with the options found, of shape (2, seeds).
    """
    columns = [pair[0] for pair in pairs], [pair[1] for pair in pairs], [pair[1] - pair[0] for pair in pairs]
    return Compared(*map(mean_of_means_interval, columns))


def verdict(training: Compared, held_out: Compared | None, unchanged: bool) -> str:
    """Return a sentence with the result.

    Args:
        training: The comparison on the problems that the searches used.
        held_out: The comparison on held-out problems, if any.
        unchanged: Whether the best options for every search are the defaults.
    """
    if unchanged:
        return "No options better than the default were found."
    if held_out is None:
        better = "better" if above(training.gain) else "not better"
        return (
            f"On the searched workload, the options found are {better} than the default, judging by the interval of "
            f"the gain in score: {interval_text(training.gain, '+')}. No workload was held out, so this does not "
            "show how good they are on other workloads."
        )
    gain = interval_text(held_out.gain, "+")
    if above(held_out.gain):
        return (
            "The options found are better than the default on held-out workloads, judging by the interval of the "
            f"gain in score: {gain}."
        )
    if held_out.gain.upper is not None and held_out.gain.upper < 0:
        return (
            "The options found are worse than the default on held-out workloads, judging by the interval of the "
            f"gain in score: {gain}. Keep the default."
        )
    fits = ", though they are better on the searched workloads, which they may overfit"
    return (
        "The options found are not better than the default on held-out "
        f"workloads{fits if above(training.gain) else ''}, judging by the interval of the gain in score: {gain}. "
        "Keep the default."
    )


def above(gain: Interval) -> bool:
    """Return whether a gain is above 0 beyond the noise."""
    return gain.lower is not None and gain.lower > 0


def interval_text(estimate: Interval, sign: str = "") -> str:
    text = f"{estimate.value:{sign}.3f}"
    return text if estimate.lower is None else f"{text} [{estimate.lower:{sign}.3f}, {estimate.upper:{sign}.3f}]"


# --- planning ---------------------------------------------------------------------------------------


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
    """Plan a search over the options of ``policy`` on the tables of ``study``.

    Args:
        study: A study whose measurements come from tables.
        policy: The label or name of a study entry, whose options then serve as the default, or any other policy.
        options: The options to search, in the form that :func:`parse_options` accepts. By default, all options for
            which :func:`derive_ranges` finds a range are searched.
        hold_out: The workloads that no search sees. By default, each is held out in turn (leave-one-out
            cross-validation), and one more search on all workloads finds the options to recommend.
        trials: The number of sets of options that each search tries.
        seeds: The number of runs on each problem for judging a set of options.
        fresh_seeds: The number of further runs on each problem, for the final comparison; no search sees them.
        seed: The seed that determines which options are tried and the seeds of all runs.

    Raises:
        SearchlabError: If the input is invalid.
    """
    least = {"trials": (trials, 1), "seeds": (seeds, 1), "fresh seeds": (fresh_seeds, 2), "seed": (seed, 0)}
    for name, (value, low) in least.items():
        if value < low:
            raise SearchlabError(f"{name} must be at least {low}, not {value}")
    spec = study.spec
    if study.suite is None and not isinstance(spec.measure, TableSettings):
        raise SearchlabError(
            f"the study measures on a machine (measure.kind is {spec.measure.__struct_config__.tag!r}), where "
            f"{trials} trials with {seeds} runs each would take days; record tables with `searchlab table build`, and "
            f'set measure = {{ kind = "table", path = ... }}'
        )
    if study.suite and any(table.entry.split == "test" for table in study.suite.tables):
        raise SearchlabError(
            f"the suite {study.suite.name} has tables of the test split, to which no option may be fitted; use "
            f"{study.suite.spec.version}/dev"
        )
    entry = _entry(study, policy)
    if any(isinstance(one.trials, str) or (one.seconds, one.stop_after) != (None, None) for one in (entry, spec)):
        raise SearchlabError(
            "options are judged by runs with a fixed number of trials; set trials to a number, and omit seconds and "
            "stop_after"
        )
    cls = POLICIES.load(entry.name)
    ranges = parse_options(options, entry.name, cls)
    changed = msgspec.structs.replace(spec, policies=[entry], cost_models=spec.cost_models[:1], seeds=[seed])
    runs, left_out = replace(study, spec=changed).plan()
    notes = list(left_out)
    own = entry.cost_model or cls.traits.own_model
    if len(spec.cost_models) > 1 and not own and (model := runs[0].strategy.cost_model):
        notes.append(f"only the study's first cost model, {model.name}, is used")
    if any(run.warm_start.digests for run in runs):
        notes.append("every run learns from the warm_start logs, including their trials on held-out workloads")
    if not runs[0].strategy.policy_class.traits.uses_seed:
        notes.append("this policy's runs are the same for every seed, so the intervals have no width")
    problems = []
    for run in runs:
        assert isinstance(run.settings, TableSettings)
        if problem := make_problem(run, run.settings.make(run.space.target, {}, study.base)):
            problems.append(problem)
        else:
            where = f"{run.workload} in {run.space_choice.name}"
            notes.append(f"{where} is omitted: all its configs are equally fast, so no option can be better")
    if not problems:
        raise SearchlabError("no workload is left for the search: " + "; ".join(notes))
    defaults = defaults_of(cls, entry.options)
    others = {name: value for name, value in defaults.items() if name not in ranges}
    if not ranges:
        ranges, others = derive_ranges(defaults, cls)
    if not ranges:
        raise SearchlabError(
            f"policy {entry.name!r} has no option from whose default a range can be derived; "
            f"specify a range with --option name=low..high"
        )
    return HyperPlan(
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
        raise SearchlabError(f"the study has several entries for the policy {policy!r}; specify a label: {labels}")
    return own[0] if own else NamedPolicy(policy)


def _hold_outs(workloads: Sequence[str], asked: Sequence[str], notes: list[str]) -> list[HoldOut]:
    hidden = tuple(dict.fromkeys(str(parse_workload(text)) for text in asked))
    for workload in hidden:
        if workload not in workloads:
            raise SearchlabError(
                f"{workload} cannot be held out, because it is not one of the searched "
                f"workloads{did_you_mean(workload, workloads)}"
            )
    if hidden:
        if not set(workloads) - set(hidden):
            raise SearchlabError(
                "all workloads are held out, so none is left for the search; remove a --hold-out option"
            )
        return [hidden]
    if len(workloads) == 1:
        notes.append(
            f"{workloads[0]} is the only workload, so none can be held out, and the result will not show whether the "
            f"options suit other workloads"
        )
        return [()]
    return [*((workload,) for workload in workloads), ()]


# --- ranges -----------------------------------------------------------------------------------------


def parse_options(texts: Sequence[str], name: str, cls: type[Any]) -> Ranges:
    """Parse the ranges in ``texts`` for options of the policy ``name``, whose class is ``cls``.

    ``option=low..high`` is a range; it contains only integers if both ends are integers and the option is not a float.
    ``option=low..high:log`` is a range on a logarithmic scale. ``option=a,b,c`` lists choices, each parsed as JSON if
    possible and as text otherwise.

    Raises:
        SearchlabError: If a text has a different form, or specifies an unknown option or the same option twice.
    """
    ranges: Ranges = {}
    for text in texts:
        option, _, given = text.partition("=")
        if not option or not given:
            raise SearchlabError(
                f"--option {text!r} has no values to search; write name=low..high, name=low..high:log or name=a,b,c"
            )
        POLICIES.check_names(name, cls, [option])
        if option in ranges:
            raise SearchlabError(f"--option {option} is specified twice; pass it once, with all values to search")
        if ends := re.fullmatch(r"(.+?)\.\.(.+?)(:log)?", given):
            parameter = POLICIES.options_of(cls).get(option)
            ranges[option] = _range(text, ends, parameter is not None and _is_float(parameter))
        else:
            ranges[option] = _choices(text, given)
    return ranges


def _is_float(parameter: inspect.Parameter) -> bool:
    return isinstance(number_of(parameter.annotation), FloatType) or isinstance(parameter.default, float)


def _range(text: str, ends: re.Match[str], is_float: bool) -> Range:
    try:
        low, high = (int(end) if re.fullmatch(r"[+-]?\d+", end) else float(end) for end in ends.group(1, 2))
    except ValueError:
        raise SearchlabError(f"--option {text!r}: the ends of a range must be numbers, as in name=0.1..0.5") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SearchlabError(f"--option {text!r}: the lower end of a range must be less than the upper end")
    if ends[3] and low <= 0:
        raise SearchlabError(f"--option {text!r}: a range on a logarithmic scale must begin above 0")
    if isinstance(low, int) and isinstance(high, int) and not is_float:
        return IntDistribution(low, high, log=bool(ends[3]))
    return FloatDistribution(low, high, log=bool(ends[3]))


def _choices(text: str, given: str) -> Range:
    choices = []
    for choice in given.split(","):
        try:
            choices.append(json.loads(choice))
        except json.JSONDecodeError:
            choices.append(choice)
    if any(isinstance(choice, list | dict) for choice in choices):
        raise SearchlabError(f"--option {text!r}: a choice must be a number, a word, true, false or null")
    if len({(type(choice), choice) for choice in choices}) < len(choices):
        raise SearchlabError(f"--option {text!r} contains a duplicate choice; list each choice once")
    return CategoricalDistribution(choices)


def defaults_of(cls: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return each option's value before any search: the value in ``given``, or else the constructor's default."""
    defaults = dict(given)
    for name, parameter in POLICIES.options_of(cls).items():
        value = given.get(name, parameter.default)
        if _is_float(parameter) and type(value) is int:
            value = float(value)  # otherwise, only integers would be searched
        if value is not inspect.Parameter.empty:
            defaults[name] = value
    return defaults


def derive_ranges(defaults: Mapping[str, Any], cls: type[Any]) -> tuple[Ranges, dict[str, Any]]:
    """Return ranges around ``defaults``, and the defaults that suggest no range, such as words, lists, 0 and None.

    A positive number is searched from a quarter to four times its value, on a logarithmic scale, within the bounds that
    the policy class ``cls`` declares. For a switch, both values are searched.
    """
    ranges: Ranges = {}
    options = POLICIES.options_of(cls)
    for name, default in defaults.items():
        if isinstance(default, bool):
            ranges[name] = CategoricalDistribution([False, True])
        elif isinstance(default, int | float) and math.isfinite(default) and default > 0:
            is_int = isinstance(default, int)
            low: float = max(1, round(default / FACTOR)) if is_int else rounded(default / FACTOR)
            high: float = default * FACTOR if is_int else rounded(default * FACTOR)
            declared = number_of(options[name].annotation) if name in options else None
            if declared is not None:
                low = low if declared.ge is None else max(low, declared.ge)
                high = high if declared.le is None else min(high, declared.le)
            if low < high and is_int:
                ranges[name] = IntDistribution(int(low), int(high), log=True)
            elif low < high:
                ranges[name] = FloatDistribution(low, high, log=True)
    return ranges, {name: default for name, default in defaults.items() if name not in ranges}


def rounded(value: float) -> float:
    """Round to three significant digits, so that the value is easy to type into a study file."""
    return float(f"{value:.3g}")


def spelled(values: Range) -> str:
    """Return the range in the form that ``--option`` accepts."""
    if isinstance(values, CategoricalDistribution):
        return ",".join(choice if isinstance(choice, str) else json.dumps(choice) for choice in values.choices)
    return f"{values.low}..{values.high}" + (":log" if values.log else "")


def holds(values: Range, value: Any) -> bool:
    """Return whether ``value`` is in the range."""
    if isinstance(values, CategoricalDistribution):
        return any(type(choice) is type(value) and choice == value for choice in values.choices)
    numbers = (int,) if isinstance(values, IntDistribution) else (int, float)
    return type(value) in numbers and values.low <= value <= values.high


def suggest(trials: Sequence[FrozenTrial], ranges: Ranges, seed: Sequence[int]) -> dict[str, Any]:
    """Return the options to try after ``trials``.

    The result depends only on the trials, the ranges and the seed, so a search can be resumed. Numbers are rounded to
    make them easy to type into a study file.

    Source: Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NeurIPS 2011), as implemented by Optuna.
    """
    sampler = TPESampler(n_startup_trials=10, seed=int(np.random.SeedSequence(seed).generate_state(1)[0]))
    study = optuna.create_study(sampler=sampler, direction="maximize")
    study.add_trials(trials)
    params = study.ask(dict(ranges)).params
    for name, values in ranges.items():
        if isinstance(values, FloatDistribution):
            params[name] = min(max(rounded(params[name]), values.low), values.high)
    return params


# --- Optuna's journal -------------------------------------------------------------------------------


@contextmanager
def open_journal(path: Path | None) -> Iterator[BaseStorage]:
    """Open a file in Optuna's journal format for this process alone, or an in-memory storage if ``path`` is None.

    optuna-dashboard can display the file.

    Raises:
        SearchlabError: If the file is open in another process, damaged, or not writable.
    """
    with ExitStack() as ends:
        ends.callback(optuna.logging.set_verbosity, optuna.logging.get_verbosity())
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        if path is None:
            yield InMemoryStorage()
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                check_regular(os.stat(path), f"write {path}")
            journal = ends.enter_context(path.open("ab"))
            lock(journal)
            data = read_bytes(path)
            complete = data[: data.rfind(b"\n") + 1]
            journal.truncate(len(complete))  # Optuna cannot read a last line cut off by a kill
            for line in complete.splitlines():  # Optuna ignores a damaged last line, and fails when it adds another
                msgspec.json.decode(line, type=dict[str, Any])
            # A killed search leaves Optuna's lock behind. While we hold our own lock, no other process holds Optuna's.
            path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
            storage = JournalStorage(JournalFileBackend(str(path)))
        except BlockingIOError:
            raise SearchlabError(f"another search is writing {path}; wait for it, or change --out") from None
        except OSError as error:
            raise SearchlabError(f"cannot write {path}: {error.strerror}") from None
        except SearchlabError:
            raise
        except Exception as error:  # Optuna checks no line, so a damaged one may cause any error
            raise SearchlabError(
                f"{path} is damaged or not an Optuna journal: {described(error)}; remove the damaged line, or change "
                f"--out"
            ) from None
        yield storage


@contextmanager
def _storing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SearchlabError(
            f"cannot write the search's journal: {error.strerror}; free some space or check the disk, then repeat the "
            f"command to continue the search"
        ) from None
