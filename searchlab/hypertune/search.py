"""Searching for better options of a policy on recorded tables, and testing them on held-out workloads.

A set of options is judged by replays, which are runs of the policy over a table, as in a study. Each replay is scored
against random search (:class:`~searchlab.stats.random_search.RandomSearch`), because these scores are
comparable between problems. A problem is a workload in a space, together with a table's measurements.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import optuna
from optuna.exceptions import StorageInternalError
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from ..arrays import Floats
from ..errors import SearchlabError, shorten_text
from ..log.format import IDENTITY_FIELDS
from ..log.lease import lock
from ..machine.scratch import ScratchFolder
from ..measure.table import TableMeasurer
from ..run.loop import search
from ..run.plan import Run
from ..stats.random_search import RandomDraws, RandomSearch
from .ranges import Ranges, is_in_range, list_range_values, round_within
from .result import (
    HypertuneResult,
    ProblemScores,
    Search,
    compare_scores,
    is_above_noise,
    write_verdict,
)

DATABASE_NAME = "optuna.db"

HoldOut = tuple[str, ...]
"""The workloads that are hidden from one search."""

OnSearchTrial = Callable[[str, int, float | None], None]
"""A function called with a search's name, a trial's number (from 0), and its score (None if it was rejected)."""


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
    draws = RandomDraws.from_costs(costs, run.trial_count, all_costs.weights if all_costs else None)
    random_search = RandomSearch.from_draws(draws, float(working.min()), run.trial_count, run.start()[0].n_startup)
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
            costs = np.full(problem.run.trial_count, np.inf)  # a run that ends early stays at its best
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
        notes: As in :class:`HypertuneResult`.
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
    notes: list[str]

    def run(self, out: Path | None = None, on_trial: OnSearchTrial = lambda *_: None) -> HypertuneResult:
        """Run the searches, then compare the best options with the defaults.

        Args:
            out: The directory for the database of all trials, from which a later run can resume.
            on_trial: A function called after each trial of a search.

        Raises:
            SearchlabError: If the database belongs to a different search, or if the policy rejects all options.
        """
        searches: list[Search] = []
        score_pairs_by_search: list[list[Floats]] = []
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
                score_pairs_by_search.append(score_pairs)
        return self._make_result(searches, score_pairs_by_search)

    def _make_result(self, searches: list[Search], score_pairs_by_search: list[list[Floats]]) -> HypertuneResult:
        """Return the result of ``searches``, given the scores on each problem for the options that each one found."""
        training_pairs: dict[str, list[Floats]] = {}  # by problem, from the searches that do not see every problem
        held_out_pairs: list[Floats] = []
        for hold_out, score_pairs in zip(self.hold_outs, score_pairs_by_search, strict=True):
            for problem, pair in zip(self.problems, score_pairs, strict=True):
                if problem.run.workload_name in hold_out:
                    held_out_pairs.append(pair)
                elif hold_out or len(self.hold_outs) == 1:
                    training_pairs.setdefault(str(problem), []).append(pair)
        training = compare_scores([np.mean(problem_pairs, axis=0) for problem_pairs in training_pairs.values()])
        held_out = compare_scores(held_out_pairs) if held_out_pairs else None
        unchanged = all(search.options == self.default_options for search in searches)
        return HypertuneResult(
            policy=self.problems[0].run.strategy.policy.name,
            searched={name: list_range_values(option_range) for name, option_range in self.ranges.items()},
            not_searched=self.fixed_options,
            default_options=self.default_options,
            options=searches[-1].options,
            better=None if held_out is None else is_above_noise(held_out.gain),
            verdict=write_verdict(training, held_out, unchanged),
            training=training,
            held_out=held_out,
            searches=searches,
            notes=self.notes,
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
            trial_count=len(trials),
            refused=sum(trial.state == TrialState.PRUNED for trial in trials),
            problems=[
                ProblemScores(
                    workload=problem.run.workload_name,
                    space=problem.run.space_choice.name,
                    held_out=problem.run.workload_name in hold_out,
                    trial_count=problem.random_search.last,
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
        default_options = {
            name: value
            for name, option_range in self.ranges.items()
            if is_in_range(option_range, value := self.default_options.get(name))
        }
        for number in range(self.trial_count):
            if number == len(_finished_trials(study)):
                seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
                study.sampler = TPESampler(seed=seed, constant_liar=False)
                if not number and not study.get_trials(states=[TrialState.WAITING]):
                    study.enqueue_trial(default_options)
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
            facts |= {"trials": problem.run.trial_count, "table": problem.table_digest}
            identity |= {f"{key} on {problem}": fact for key, fact in facts.items()}
        identity = json.loads(json.dumps(identity))
        stored = study.user_attrs.get("identity", {})
        changed = [key for key in stored | identity if stored.get(key) != identity.get(key)]
        if not stored and not study.trials:
            study.set_user_attr("identity", identity)
        elif changed:
            key = changed[0]
            stored_text, current_text = (
                shorten_text(str(identities.get(key)), 200) for identities in (stored, identity)
            )
            raise SearchlabError(
                f"this directory contains a different search {name!r}, with {key} = {stored_text} "
                f"instead of {current_text}; choose a different --out, or restore the search's "
                "original options and code"
            )
        return study


def _finished_trials(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


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
