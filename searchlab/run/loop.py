"""The loop: *ask, measure, log, tell*.

A log holds the trials of a run in order, so resuming is running again: a new policy asks for the same configs, and is
told the logged trials. The configs that follow are measured.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import msgspec

from ..analysis.stats.random_search import Draws
from ..costmodel import scores_of
from ..costmodel.features import extracted_by
from ..costmodel.quality import ModelQuality, model_quality
from ..errors import InvalidConfig, SearchlabError, SearchlabWarning
from ..log.format import Ended, Final, Finalist, Log, RandomDraws, Record
from ..log.result import MARGIN, ROUNDS, sentinel
from ..log.writer import LogWriter
from ..machine.host import library_versions
from ..measure.contract import CannotMeasure, Measurer, Remeasurer, Whole
from ..policy import POLICIES
from ..records import Trial
from ..space import Config, Space
from .plan import OnTrial, Run


def search(
    run: Run, measurer: Measurer, on_trial: OnTrial = lambda trial, replayed: None, held: Log | None = None
) -> Log:
    """Search until the budget of ``run`` is spent, or its policy has nothing more to propose. Gives the complete log.

    held: the log, if it was read before. Raises SearchlabError if the log is of another run, or if the policy asks for
    another config than the log holds.
    """
    header = run.header(
        measurer.workers,
        measurer.optimum(run.space),
        random_draws(measurer.whole(run.space), run.trials),
    )
    with LogWriter(run.log, header, durable=not measurer.repeatable, held=held) as writer:
        measurer.begin(run.seed)
        if run.budget.complete(writer.log):
            done = writer.log.trials
            for trial in done:
                on_trial(trial, True)
        else:
            with extracted_by(measurer.extract):
                done = _loop(run, measurer, writer, on_trial)
        finish(run.space, measurer, writer, done)
        return writer.log


def _loop(run: Run, measurer: Measurer, writer: LogWriter, on_trial: OnTrial) -> list[Trial]:
    searcher = Searcher(run, measurer.extract_seconds)
    replay = Replay(writer, on_trial)
    recorder = Recorder(run, writer, measurer, searcher, on_trial)
    done: list[Trial] = []
    while len(done) < run.trials:
        if ended := run.budget.ends(writer.log, len(done)):
            if len(done) < len(writer.records):  # it had a larger budget before
                return done + replay.rest()
            recorder.end(ended)
            break
        configs = searcher.ask(run.batch)
        if not configs:
            replay.check_end()
            recorder.end(Ended(trials=len(done)))
            break
        configs = configs[: run.trials - len(done)]  # a later run with more trials measures the rest
        batch = replay.take(configs)
        batch += recorder.measure(configs[len(batch) :], batch, done)
        done += batch
        searcher.tell(batch)
    return done


DIGITS = 9
"""Digits of a logarithm in a header, after the point."""


@lru_cache(maxsize=64)  # the runs of a study over one table are many, and where draws are unequal it takes a second
def random_draws(whole: Whole | None, trials: int) -> RandomDraws | None:
    """What ``trials`` random draws find in a space; None if the space is not known in full."""
    if whole is None:
        return None
    draws = Draws.of(whole.costs, min(trials, len(whole.costs)), whole.weights)  # no run has more trials
    expected = tuple(round(value, DIGITS) for value in draws.expected.tolist())
    return RandomDraws(expected, round(draws.median, DIGITS), round(draws.slowest, DIGITS))


class Searcher:
    """A new policy that has learned from the warm start of its run.

    batches: how many batches it was asked for. batch_size: how many configs the last of them has.
    train_seconds, propose_seconds: of the CPU, to learn from the last batch, and to propose the batch after that. Other
        work on the machine is not charged. elsewhere: tells the seconds that other processes have taken for the policy.
    """

    def __init__(self, run: Run, elsewhere: Callable[[], float] = lambda: 0.0) -> None:
        self.policy, self.cost_model = run.start()
        if self.cost_model is not None:
            self.cost_model.clock = self._seconds
        self.batches = 0
        self.propose_seconds = 0.0
        self._run = run
        self._asked: set[Config] = set()
        self.batch_size = 0
        self._predict_seconds = 0.0
        self._elsewhere = elsewhere
        start = self._seconds()
        with POLICIES.blamed(type(self.policy), "warm_start"):
            run.warm_start.feed(self.policy, self.cost_model)
        self.train_seconds = self._seconds() - start

    def ask(self, n: int) -> Sequence[Config]:
        """The next batch; empty if the policy has no more. Raises SearchlabError for a breach of the contract."""
        predicted = self.cost_model.predict_seconds if self.cost_model else 0.0
        trained = self.cost_model.fit_seconds if self.cost_model else 0.0
        start = self._seconds()
        with POLICIES.blamed(type(self.policy), "ask"), taking(self._run.strategy.policy.name, "ask"):
            configs = self.policy.ask(n)
            if isinstance(configs, Sequence):
                configs = list(configs)  # its __len__ and __iter__ are the plug-in's code
        taken = self._seconds() - start
        # A policy that trains its cost model while proposing is charged like one that trains it in `tell`.
        trained = self.cost_model.fit_seconds - trained if self.cost_model else 0.0
        self.train_seconds += trained
        self.propose_seconds = taken - trained
        self._predict_seconds = self.cost_model.predict_seconds - predicted if self.cost_model else 0.0
        self._check(configs, n)
        self._asked.update(configs)
        self.batch_size = len(configs)
        self.batches += 1
        return configs

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from a batch if it is whole. If a run ends within a batch, a resumed run completes it first."""
        if len(trials) == self.batch_size:
            start = self._seconds()
            with POLICIES.blamed(type(self.policy), "tell"), taking(self._run.strategy.policy.name, "tell"):
                self.policy.tell(trials)
            self.train_seconds = self._seconds() - start

    def _seconds(self) -> float:
        return time.process_time() + self._elsewhere()

    @property
    def share(self) -> float:
        """The share of its batch's time that each trial is charged."""
        return 1 / self.batch_size

    def quality(self, batch: Sequence[Trial]) -> ModelQuality | None:
        """How well the cost model predicted a whole batch before it was told; None before it is trained.

        The fastest quarter of a batch counts as its top, since many batches have only eight trials.
        """
        cost_model = self.cost_model
        if cost_model is None or not cost_model.fitted:
            return None
        predicted = cost_model.predict([trial.config for trial in batch])
        return model_quality(
            predicted, scores_of(batch, cost_model.best), max(1, len(batch) // 4),
            train_seconds=cost_model.train_seconds, predict_seconds=self._predict_seconds,
        )  # fmt: skip

    def _check(self, configs: Sequence[Config], n: int) -> None:
        broken = f"policy {self._run.strategy.policy.name!r} broke its contract: it was asked for"
        if not isinstance(configs, Sequence) or not all(isinstance(config, Config) for config in configs):
            raise SearchlabError(f"{broken} a list of configs and gave {configs!r:.200}")
        if len(configs) > n:
            raise SearchlabError(f"{broken} {n} configs and gave {len(configs)}")
        fresh: set[Config] = set()
        for config in configs:
            if config in self._asked or config in fresh:
                raise SearchlabError(f"{broken} new configs and repeated {config.to_json()}")
            fresh.add(config)
            try:
                self._run.space.knobs(config)
            except InvalidConfig as error:
                self._run.space.check_repeats()
                raise SearchlabError(f"{broken} configs of its space and gave {config.to_json()}: {error}") from None


class Replay:
    """Gives the trials of a log in order, while the policy asks for their configs."""

    def __init__(self, log: LogWriter, on_trial: OnTrial) -> None:
        self._log = log
        self._on_trial = on_trial
        self._taken = 0

    def take(self, configs: Sequence[Config]) -> list[Trial]:
        """The logged trials of ``configs``; fewer if the log ends.

        Raises SearchlabError, which names the first difference, if the log holds another config.
        """
        trials = []
        for config, record in zip(configs, self._log.records[self._taken : self._taken + len(configs)], strict=False):
            trial = record.trial
            if trial.config != config:
                raise SearchlabError(self._difference(f"asks for {config.to_json()}", record))
            trials.append(trial)
            self._on_trial(trial, True)
        self._taken += len(trials)
        return trials

    def rest(self) -> list[Trial]:
        """The logged trials that were not taken."""
        trials = [record.trial for record in self._log.records[self._taken :]]
        for trial in trials:
            self._on_trial(trial, True)
        self._taken += len(trials)
        return trials

    def check_end(self) -> None:
        """Raise SearchlabError if the policy has nothing more to propose, and the log holds more trials."""
        for record in self._log.records[self._taken : self._taken + 1]:
            raise SearchlabError(self._difference("has nothing more to propose", record))

    def _difference(self, now_does: str, record: Record) -> str:
        now = library_versions()
        versions = self._log.header.versions
        changed = [f"{name} {old} -> {now.get(name)}" for name, old in versions.items() if now.get(name) != old]
        return (
            f"{self._log.path} cannot be resumed: its trial {record.index} is {record.config}, but the policy now "
            f"{now_does}; "
            + (f"since then these changed: {', '.join(changed)}" if changed else "the policy or the space has changed")
            + ". Resume it with the versions that wrote it, or choose another log file"
        )


class Recorder:
    """Measures configs, appends their trials to the log, and forces each batch to the disk."""

    def __init__(self, run: Run, log: LogWriter, measurer: Measurer, searcher: Searcher, on_trial: OnTrial) -> None:
        self._space = run.space
        self._log = log
        self._measurer = measurer
        self._searcher = searcher
        self._on_trial = on_trial
        self._best: float | None = None

    def measure(self, configs: Sequence[Config], batch: Sequence[Trial], done: Sequence[Trial]) -> list[Trial]:
        """A trial of each config. batch: the trials of its batch that the log held; done: those of earlier batches."""
        if not configs:
            return []
        if self._best is None:
            self._best = min((trial.cost for trial in (*done, *batch)), default=math.inf)
        searcher, share = self._searcher, self._searcher.share
        reading = None if batch else self._sentinel(done)
        trials: list[Trial] = []
        for config, measurement in zip(configs, self._measurer.measure(self._space, configs, self._best), strict=True):
            trial = Trial(len(done) + len(batch) + len(trials), config, measurement)
            trials.append(trial)
            whole = len(batch) + len(trials) == searcher.batch_size
            quality = searcher.quality([*batch, *trials]) if whole else None
            self._log.append(
                Record.of(
                    trial,
                    searcher.propose_seconds * share,
                    searcher.train_seconds * share,
                    quality,
                    reading,
                    searcher.batches - 1,
                )
            )
            reading = None
            self._best = min(self._best, trial.cost)
            self._on_trial(trial, False)
        self._log.sync()
        return trials

    def end(self, ended: Ended) -> None:
        """Log why the run ended."""
        self._log.append(msgspec.structs.replace(ended, time=round(time.time(), 3)))
        self._log.sync()

    def _sentinel(self, done: Sequence[Trial]) -> float | None:
        """Seconds that the first program of the run takes now; None if it is not timed before this batch."""
        measurer = self._measurer
        if not isinstance(measurer, Remeasurer) or not measurer.sentinel:
            return None
        first = sentinel(done) if (self._searcher.batches - 1) % measurer.sentinel == 0 else None
        return time_sentinel(measurer, self._space, first) if first else None


PATIENCE = 60.0
"""Seconds that a call of a policy may take before the user sees a warning."""

LOOK_SECONDS = 1.0


class _Doing:
    """A call of a policy."""

    def __init__(self, policy: str, method: str) -> None:
        self.policy = policy
        self.method = method
        self.since = time.monotonic()
        self.warned = False


_doing: list[_Doing] = []
_watch: threading.Thread | None = None


def busy(least: float = 0.0) -> str:
    """What a policy of this process has been doing for ``least`` seconds or more, a sentence; empty if nothing."""
    for doing in _doing[-1:]:
        if (seconds := time.monotonic() - doing.since) >= least:
            return f"{doing.method} of policy {doing.policy!r} has taken {seconds:.0f} s"
    return ""


@contextmanager
def taking(policy: str, method: str) -> Iterator[None]:
    """Within, ``method`` of ``policy`` is called. Warns (SearchlabWarning) once where it takes longer than PATIENCE."""
    global _watch
    if _watch is None or not _watch.is_alive():  # it ends with a process, and a fork has none
        _watch = threading.Thread(target=_look, daemon=True)
        _watch.start()
    doing = _Doing(policy, method)
    _doing.append(doing)
    try:
        yield
    finally:
        _doing.remove(doing)


def _look() -> None:
    while True:
        time.sleep(LOOK_SECONDS)
        for doing in _doing[-1:]:
            if not doing.warned and (said := busy(PATIENCE)):
                doing.warned = True
                text = f"{said}, and it may never end; Ctrl-C ends the run and keeps what was measured"
                warnings.warn(text, SearchlabWarning, stacklevel=1)


SENTINEL_ROUNDS = 3
"""How many times the sentinel is timed at a reading."""


def time_sentinel(measurer: Remeasurer, space: Space, trial: Trial) -> float | None:
    """Seconds that the program of ``trial`` takes now; None if it fails now."""
    try:
        return statistics.median(measurer.remeasure(space, [trial], SENTINEL_ROUNDS)[0])
    except CannotMeasure:
        return None


def measure_finalists(measurer: Remeasurer, space: Space, trials: Sequence[Trial]) -> Final | None:
    """Measure the fastest programs of ``trials`` again; None if there is none, or (with a warning) if one fails now."""
    fastest: dict[str, Trial] = {}
    for trial in sorted(trials, key=lambda trial: trial.cost):  # stable: the first of equal trials
        if math.isfinite(trial.cost) and not trial.measurement.pruned:
            fastest.setdefault(trial.measurement.program, trial)
    close = [trial for trial in fastest.values() if trial.cost <= MARGIN * next(iter(fastest.values())).cost]
    chosen = close[: measurer.finalists]
    if not chosen:
        return None
    try:
        seconds = measurer.remeasure(space, chosen, ROUNDS)
    except CannotMeasure as error:
        warnings.warn(
            f"the fastest trials could not be measured again ({error}); run this again to try once more",
            SearchlabWarning,
            stacklevel=2,
        )
        return None
    finalists = tuple(Finalist(trial.index, values) for trial, values in zip(chosen, seconds, strict=True))
    return Final(trials=len(trials), finalists=finalists, time=round(time.time(), 3))


def finish(space: Space, measurer: Measurer, log: LogWriter, trials: Sequence[Trial]) -> None:
    """End a run: measure its finalists again and log them, if the measurer can and the log has none yet."""
    has_final = log.final is not None and log.final.trials == len(trials)
    if isinstance(measurer, Remeasurer) and measurer.finalists and not has_final:
        final = measure_finalists(measurer, space, trials)
        if final is not None:
            log.append(final)
            log.sync()
