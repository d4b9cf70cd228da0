"""One search over the options of a policy: Optuna's tree-structured Parzen estimator over the scores of replays."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from optuna.samplers import TPESampler
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from ..analysis.stats.random_search import Draws, RandomSearch
from ..arrays import Floats
from ..errors import SearchlabError, cut
from ..log.writer import lock
from ..measure.table import TableMeasurer
from ..run.loop import search
from ..run.plan import Run
from .ranges import Ranges, holds, rounded

OnTrial = Callable[[str, int, float | None], None]
"""Called with the name of a search, the number of its trial (from 0), and the score; None if it was refused."""

N_STARTUP = 10
"""Trials drawn at random before the model is used."""


@dataclass(frozen=True)
class Problem:
    """A workload in a space, and what random search achieves on the measurements that a table has of it."""

    run: Run  # replays differ from it in options and seed
    random: RandomSearch
    digest: str  # of the measurements

    @property
    def workload(self) -> str:
        return self.run.workload

    @property
    def space(self) -> str:
        return self.run.searched.name

    def __str__(self) -> str:
        return f"{self.workload} in {self.space}"

    def identity(self) -> dict[str, Any]:
        fingerprint = self.run.space.fingerprint
        return {"workload": self.workload, "space": self.space, "fingerprint": fingerprint, "table": self.digest}

    def seeds(self, seed: int, count: int, *, fresh: bool) -> list[int]:
        """Draw the seeds of ``count`` runs: even ones for a search; odd ones, if ``fresh``, which no search sees.

        Each problem has its own seeds, so that its runs are independent of those on other problems.
        """
        entropy = [seed, zlib.crc32(str(self).encode()), int(fresh)]
        drawn = np.random.SeedSequence(entropy).generate_state(count)
        return [int(number) >> 2 << 1 | fresh for number in drawn]  # 31 bits: XGBoost takes no larger seed


def make_problem(measurer: TableMeasurer, run: Run) -> Problem | None:
    """Return the problem of ``run``; None if no config is faster than another.

    Random search is exact if the table holds the complete space, and estimated if it holds a random sample of it. The
    score starts after the trials that the policy draws at random by default: no option changes these.
    """
    costs = np.array([measurement.cost for measurement in measurer.recorded(run.space)])
    working = costs[np.isfinite(costs)]
    if len(working) == 0 or working.min() == working.max():
        return None
    whole = measurer.whole(run.space)
    draws = Draws.of(costs, run.trials, whole.weights if whole else None)
    digest = hashlib.sha256(costs.tobytes()).hexdigest()[:12]
    policy, _ = run.start()
    return Problem(run, RandomSearch.of(draws, float(working.min()), run.trials, policy.n_startup), digest)


@dataclass
class Replays:
    """Runs on the tables. Each is replayed once, in ``directory``."""

    measurer: TableMeasurer
    directory: Path
    known: dict[tuple[str, str, int], tuple[float, int, int]] = field(default_factory=dict)

    def __call__(self, problem: Problem, options: Mapping[str, Any], seeds: Sequence[int]) -> Floats:
        """Replay a run from each seed: its score, the trials answered with the nearest config, and all its trials.

        Returns:
            Floats: Shape (seeds, 3).

        Raises:
            SearchlabError: The policy does not take the options.
        """
        return np.array([self._replay(problem, options, seed) for seed in seeds])

    def _replay(self, problem: Problem, options: Mapping[str, Any], seed: int) -> tuple[float, int, int]:
        key = (str(problem), json.dumps(options, sort_keys=True, default=str), seed)
        if key not in self.known:
            log = self.directory / "replay.jsonl"
            log.unlink(missing_ok=True)
            run = replace(problem.run.with_options(options), seed=seed, log=log)
            trials = search(run, self.measurer).trials
            costs = np.full(run.trials, np.inf)  # a run that ends early stays at its best
            costs[: len(trials)] = [trial.cost for trial in trials]
            scores = problem.random.scores(np.minimum.accumulate(costs)[np.newaxis])
            assert scores is not None  # a problem where nothing can be gained is left out
            nearest = sum(trial.measurement.nearest for trial in trials)
            self.known[key] = (float(scores[0]), nearest, len(trials))
        return self.known[key]


@dataclass(frozen=True)
class OptionSearch:
    """A search for the options with the best mean score over problems and seeds."""

    problems: Sequence[Problem]
    ranges: Ranges
    default: dict[str, Any]  # the options of the policy without any search
    seed: int
    seeds: int  # runs on each problem that judge a set of options

    def run(self, study: optuna.Study, count: int, replays: Replays, on_trial: OnTrial) -> list[FrozenTrial]:
        """Try ``count`` sets of options, the default first if it is in the ranges; ``study`` may hold some already."""
        trials = study.trials
        for number in range(count):
            if number == len(trials):
                trial = self._tried(self._params(trials), replays)
                with _storing():
                    study.add_trial(trial)  # it is on disk before the next one is tried
                trials = study.trials
            on_trial(study.study_name, number, trials[number].value)
        return trials[:count]

    def _params(self, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
        default = {name: self.default[name] for name in self.ranges if name in self.default}
        in_ranges = all(name in default and holds(self.ranges[name], default[name]) for name in self.ranges)
        return default if not trials and in_ranges else suggest(trials, self.ranges, [self.seed, len(trials)])

    def _tried(self, params: dict[str, Any], replays: Replays) -> FrozenTrial:
        options = self.default | params
        tried: dict[str, Any] = {"params": params, "distributions": dict(self.ranges)}
        try:
            for problem in self.problems:
                problem.run.with_options(options).start()
        except SearchlabError as error:
            return create_trial(state=TrialState.PRUNED, user_attrs={"refused": str(error)}, **tried)
        scores = {}
        for problem in self.problems:
            runs = replays(problem, options, problem.seeds(self.seed, self.seeds, fresh=False))
            scores[str(problem)] = float(runs[:, 0].mean())
        return create_trial(value=float(np.mean(list(scores.values()))), user_attrs={"scores": scores}, **tried)


def suggest(trials: Sequence[FrozenTrial], ranges: Ranges, seed: Sequence[int]) -> dict[str, Any]:
    """Return the options to try after ``trials``: a function of these, the ranges and the seed, so searches can resume.

    Numbers are rounded, so that they can be typed into a study file.

    Source: Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NeurIPS 2011), as implemented by Optuna.
    """
    sampler = TPESampler(n_startup_trials=N_STARTUP, seed=int(np.random.SeedSequence(seed).generate_state(1)[0]))
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
    """Open a file in Optuna's journal format, which optuna-dashboard can show, for this process alone; or a memory.

    Raises:
        SearchlabError: Another process has it open, or it is damaged, or it cannot be written.
    """
    with ExitStack() as ends:
        ends.callback(optuna.logging.set_verbosity, optuna.logging.get_verbosity())
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        if path is None:
            yield InMemoryStorage()
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock(ends.enter_context(path.open("ab")))
            if not (data := path.read_bytes()).endswith(b"\n"):  # a kill can tear the last line; Optuna cannot read it
                path.write_bytes(data[: data.rfind(b"\n") + 1])
            # A search that was killed leaves Optuna's lock behind: while we hold ours, it is nobody's.
            path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
            storage = JournalStorage(JournalFileBackend(str(path)))
        except BlockingIOError:
            raise SearchlabError(f"another search is writing {path}; wait for it, or choose another --out") from None
        except OSError as error:
            raise SearchlabError(f"cannot write {path}: {error.strerror}") from None
        except (ValueError, KeyError) as error:
            raise SearchlabError(f"{path} is damaged, or is not an Optuna journal: {error}") from None
        yield storage


def open_search(storage: BaseStorage, path: Path | None, name: str, identity: Mapping[str, Any]) -> optuna.Study:
    """Open or begin the search ``name``. Raises SearchlabError if the stored one has another identity."""
    with _storing():
        study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
        known = study.user_attrs
        for key, wanted in identity.items():
            if key not in known:
                study.set_user_attr(key, wanted)
            elif known[key] != wanted:
                raise SearchlabError(
                    f"{path} holds a different search {name!r}, with {key} = {cut(str(known[key]), 200)}, not "
                    f"{cut(str(wanted), 200)}; choose another --out, or repeat the options that it was started with"
                )
    return study


@contextmanager
def _storing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SearchlabError(
            f"cannot write the journal of the search: {error.strerror}; free space or check the disk, then repeat the "
            f"command, which continues from what was written"
        ) from None
