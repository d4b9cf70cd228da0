"""A run's main loop: *ask, measure, log, tell*.

A log contains a run's trials in order. Resuming a run means running it again: a new policy proposes the same configs
and learns from the logged trials. Only configs that are not in the log yet are measured.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from ..costmodel import compute_scores
from ..costmodel.features import use_extractor
from ..costmodel.quality import ModelQuality, measure_quality
from ..errors import InvalidConfig, SearchlabError, warn
from ..foreign_code import note_interrupts
from ..log.budget import UNLIMITED
from ..log.format import Finalist, FinalistTimes, Log, Record, RunEnd
from ..log.reliability import MARGIN, ROUNDS, find_sentinel_trial
from ..log.writer import LogWriter, OtherRun
from ..measure.contract import CannotMeasure, Measurer, Remeasurer, SpaceCosts
from ..policy import POLICIES
from ..records import Trial, describe_failures, select_first_of_each_program
from ..space import SPACES, Config, Space
from ..stats.random_search import RandomDraws
from ..workload import Function
from .cpu_account import CpuAccount
from .open import discard_log
from .plan import OnChargedTrial, Run
from .progress import announce
from .replay import Replay

FAILURE_WARNING_TRIALS = 16
"""The number of trials after which a run in which all trials failed issues a warning."""

SENTINEL_ROUNDS = 3
"""The number of times that the sentinel is timed for each reading."""


HEADER_DECIMALS = 9
"""The number of decimal places to which the logarithms in a header are rounded."""


def search(run: Run, measurer: Measurer, on_trial: OnChargedTrial | None = None) -> Log:
    """Search until the budget of ``run`` is spent or its policy has nothing more to propose, and return the log.

    The log is created or resumed; ``measurer`` measures only the configs that it does not contain. Raises
    SearchlabError if the log belongs to a different run, or the policy's proposals differ from the logged trials.
    """
    while True:
        try:
            with note_interrupts(), RunLoop(run, measurer, on_trial) as run_loop:
                if run_loop.is_complete:
                    run_loop.replay_remaining_trials()
                while run_loop.step():
                    pass
                run_loop.finish()
                return run_loop.log
        except OtherRun as error:
            discard_log(run, error)
            run = replace(run, existing_log=None, discard=False)


class RunLoop(AbstractContextManager["RunLoop"]):
    """A run that advances batch by batch. Its trials come first from the log, and then from the measurer.

    Use it as a context manager, within which no other process can write the run's log. Several runs can be advanced
    alternately. The arguments and exceptions are the same as for :func:`search`.
    """

    def __init__(self, run: Run, measurer: Measurer, on_trial: OnChargedTrial | None = None) -> None:
        all_costs = measurer.all_costs(run.space)
        header = msgspec.structs.replace(
            run.header,
            workers=measurer.workers,
            optimum=all_costs.optimum if all_costs else None,
            random_draws=summarize_random_draws(all_costs, run.trial_count),
        )
        self._run = run
        self._measurer = measurer
        self._log_writer = LogWriter(
            run.log_path, header, durable=not measurer.repeatable, existing_log=run.existing_log
        )
        self._on_trial = on_trial or (lambda trial, replayed, charged: None)
        self._replay = Replay(run, self._log_writer.log)
        self._driver: PolicyDriver | None = None
        self._trials: list[Trial] = []
        self._best_cost = math.inf
        self._charged_seconds = 0.0
        self._trial_limit = max(run.trial_count, self._replay.compared_count)  # lowered when the run ends earlier
        if not self.is_complete:
            measurer.begin(run.seed)

    def __exit__(self, *error: Any) -> None:
        self._log_writer.__exit__(*error)

    @property
    def log(self) -> Log:
        """The log so far."""
        return self._log_writer.log

    @property
    def is_complete(self) -> bool:
        """Whether the log contains all trials, so that there is nothing to propose or measure."""
        return self._replay.is_current and self._run.budget.is_complete(self.log)

    def step(self, max_trials: int = UNLIMITED) -> Sequence[Trial]:
        """Advance by one batch, and return its trials, or an empty sequence if the run has ended.

        Args:
            max_trials: The maximum number of trials. A batch that has more is cut short, and the run cannot advance
                further.
        """
        start = len(self._trials)
        end = max(min(self._trial_limit, start + max_trials), self._replay.compared_count)
        if start < end:
            with use_extractor(self._measurer.extract):
                self._advance_batch(end)
        return self._trials[start : start + max_trials]

    def _advance_batch(self, end: int) -> None:
        run, replay, start = self._run, self._replay, len(self._trials)
        driver = self._driver = self._driver or PolicyDriver(run, self._measurer.extract_seconds)
        if start >= replay.compared_count and (reason := run.budget.reason_to_end(self.log, start)):
            if start < len(replay.log.records):  # the run previously had a larger budget
                self.replay_remaining_trials()
            else:
                self._end_run(reason)
            return
        configs = driver.ask(run.batch)
        if not configs:
            replay.check_end(start)
            self._end_run(RunEnd(trial_count=start))
            return
        configs = configs[: end - start]  # the rest is measured if the budget is increased later
        for trial in replay.match_trials(configs, start):
            self._add_replayed_trial(trial)
        if new_configs := configs[len(self._trials) - start :]:
            self._measure_configs(new_configs, start, driver)
        driver.tell(self._trials[start:])

    def replay_remaining_trials(self) -> None:
        """Use the log's remaining trials without asking the policy. The run cannot advance any further after that."""
        for trial in self._replay.log.trials[len(self._trials) :]:
            self._add_replayed_trial(trial)
        self._trial_limit = len(self._trials)

    def _measure_configs(self, configs: Sequence[Config], start: int, driver: PolicyDriver) -> None:
        """Measure and log ``configs``, the remainder of the batch that begins with trial ``start``."""
        self._log_code_change()
        cpu, batch_size, batch_index = driver.cpu_account, driver.batch_size, driver.batch_count - 1
        builder_count = min(self._replay.log.header.workers, len(self._trials) - start + len(configs))
        sentinel_seconds = self._time_sentinel(batch_index) if len(self._trials) == start else None
        measurements = self._measurer.measure(self._run.space, configs, self._best_cost)
        for config, measurement in zip(configs, measurements, strict=True):
            trial = Trial(len(self._trials), config, measurement)
            batch = [*self._trials[start:], trial]
            quality = driver.rate_predictions(batch) if len(batch) == batch_size else None
            self._log_writer.append(
                Record.from_trial(
                    trial,
                    batch_number=batch_index,
                    fill_in=config in driver.policy.fill_ins,
                    propose_seconds=cpu.propose_seconds / batch_size,
                    train_seconds=cpu.train_seconds / batch_size,
                    feature_seconds=cpu.feature_seconds / batch_size,
                    model_quality=quality,
                    sentinel_seconds=sentinel_seconds,
                )
            )
            sentinel_seconds = None
            self._charged_seconds += (cpu.propose_seconds + cpu.train_seconds) / batch_size
            self._charged_seconds += measurement.build_seconds / builder_count + measurement.run_seconds
            self._add_trial(trial, False)
        self._log_writer.sync()
        self._warn_of_failures(len(configs))

    def _warn_of_failures(self, new_trial_count: int) -> None:
        """Issue a warning if all of the first trials have failed, the last ``new_trial_count`` of them just now.

        If a function works for other configs, the first one for which it raises an exception or returns no cost is
        enough, because its author may not expect that.
        """
        if self._measurer.repeatable:
            return
        measurements = [trial.measurement for trial in self._trials]
        if isinstance(self._run.space.workload, Function) and math.isfinite(self._best_cost):
            has_errors = [measurement.failure == "run_error" for measurement in measurements]
            if any(has_errors[-new_trial_count:]) and not any(has_errors[:-new_trial_count]):
                index = has_errors.index(True)
                warn(f"trial {index} of {self._log_writer.path} failed: {measurements[index].message}")
        count, threshold = len(measurements), min(FAILURE_WARNING_TRIALS, self._run.trial_count)
        if math.isinf(self._best_cost) and count - new_trial_count < threshold <= count:
            failures = describe_failures((measurement.failure, measurement.message) for measurement in measurements)
            warn(f"all {count} trials of {self._log_writer.path} failed: {failures}")

    def _add_replayed_trial(self, trial: Trial) -> None:
        self._charged_seconds = float(self._replay.log.elapsed_seconds[trial.index])
        self._add_trial(trial, True)

    def _add_trial(self, trial: Trial, is_replayed: bool) -> None:
        self._trials.append(trial)
        self._best_cost = min(self._best_cost, trial.cost)
        self._on_trial(trial, is_replayed, self._charged_seconds)

    def _end_run(self, reason: RunEnd) -> None:
        self._trial_limit = len(self._trials)
        self._log_writer.append(msgspec.structs.replace(reason, recorded_at=round(time.time(), 3)))

    def _time_sentinel(self, batch_index: int) -> float | None:
        """Time the run's first working program again, and return the seconds, or None if it fails or is not due."""
        measurer = self._measurer
        if not isinstance(measurer, Remeasurer) or not measurer.sentinel_every or batch_index % measurer.sentinel_every:
            return None
        trial = find_sentinel_trial(self._trials)
        if trial is None:
            return None
        try:
            return statistics.median(measurer.remeasure(self._run.space, [trial], SENTINEL_ROUNDS)[0])
        except CannotMeasure:
            return None

    def _log_code_change(self) -> None:
        """If other code than the log's has proposed all logged trials again, log that code."""
        if (change := self._replay.accept_code(self._measurer)) is not None:
            self._log_writer.append(change)

    def finish(self) -> None:
        """Measure and log the finalists, if the measurer supports this and the log does not contain them yet.

        Raises OtherRun if code has changed since the log was written, and does not reproduce all its trials.
        """
        while (count := self._replay.compared_count - len(self._trials)) > 0:
            self.step(count)  # the run was told to end before the end of its log
        self._log_code_change()
        measurer, final = self._measurer, self.log.finalist_times
        if not isinstance(measurer, Remeasurer) or not measurer.finalists:
            return
        if final is None or final.trial_count != len(self._trials):
            if not math.isinf(self._best_cost):
                announce(f"measuring the fastest programs in {self._log_writer.path} again")
            final = measure_finalists(measurer, self._run.space, self._trials)
            if final is not None:
                self._log_writer.append(final)


@lru_cache(maxsize=64)  # a study has many runs over the same table, and weighted draws take a second to compute
def summarize_random_draws(all_costs: SpaceCosts | None, trial_count: int) -> RandomDraws | None:
    """Return the expected results of ``trial_count`` random draws from a space, or None if not all costs are known."""
    if all_costs is None:
        return None
    trial_count = min(trial_count, len(all_costs.costs))  # each config is drawn once
    draws = RandomDraws.from_costs(all_costs.costs, trial_count, all_costs.weights)
    expected = tuple(round(value, HEADER_DECIMALS) for value in draws.expected)
    return RandomDraws(expected, round(draws.median, HEADER_DECIMALS), round(draws.slowest, HEADER_DECIMALS))


def measure_finalists(measurer: Remeasurer, space: Space, trials: Sequence[Trial]) -> FinalistTimes | None:
    """Measure the fastest programs in ``trials`` again.

    Returns None if no program works. If one of the fastest programs now fails, issues a warning and returns None.
    """
    sorted_trials = sorted(trials, key=lambda trial: trial.cost)  # stable: the first of equal trials
    fastest = select_first_of_each_program(trial for trial in sorted_trials if not trial.measurement.pruned)
    candidates = [trial for trial in fastest if trial.cost <= MARGIN * fastest[0].cost]
    contenders = candidates[: measurer.finalists]
    if not contenders:
        return None
    try:
        seconds = measurer.remeasure(space, contenders, ROUNDS)
    except CannotMeasure as error:
        warn(f"the fastest trials could not be measured again ({error}); run this again to retry")
        return None
    finalists = tuple(
        Finalist(trial.index, round_seconds) for trial, round_seconds in zip(contenders, seconds, strict=True)
    )
    return FinalistTimes(trial_count=len(trials), finalists=finalists, recorded_at=round(time.time(), 3))


class PolicyDriver:
    """Creates a run's policy, trains it on the run's warm start, and accounts for the CPU time that it then uses.

    For ``other_cpu_seconds``, see :class:`CpuAccount`.

    Attributes:
        batch_count: The number of proposed batches.
        batch_size: The number of configs in the last batch.
    """

    def __init__(self, run: Run, other_cpu_seconds: Callable[[], float] = lambda: 0.0) -> None:
        self.policy, self.cost_model = run.start()
        self.cpu_account = CpuAccount(self.cost_model, other_cpu_seconds)
        self.batch_count = 0
        self.batch_size = 0
        self._run = run
        self._proposed_configs: set[Config] = set()
        if not run.warm_start.includes_default_config:
            self._warm_start(())

    def _warm_start(self, trials: Sequence[Trial]) -> None:
        """Learn from the run's warm start, and from ``trials`` of the run itself."""
        with self.cpu_account.charge_training(), POLICIES.convert_errors(type(self.policy), "warm_start"):
            self._run.warm_start.feed(self.policy, self.cost_model, trials)

    def ask(self, n: int) -> Sequence[Config]:
        """Return the next batch, which is empty if the policy has nothing more to propose.

        If the run starts from the default config of its space, this is the first batch.

        Raises SearchlabError if the policy breaks its contract.
        """
        if self._run.warm_start.includes_default_config and not self.batch_count:
            space = self._run.space
            with SPACES.convert_errors(type(space), "default_config"):
                return self._begin_batch([space.default_config()])
        with self.cpu_account.charge_proposing(), POLICIES.convert_errors(type(self.policy), "ask"):
            configs = self.policy.ask(n)
            if isinstance(configs, Sequence):
                configs = list(configs)  # may call plug-in code: __len__ and __iter__
        self._check_contract(configs, n)
        return self._begin_batch(configs)

    def _begin_batch(self, configs: Sequence[Config]) -> Sequence[Config]:
        self._proposed_configs.update(configs)
        self.batch_size = len(configs)
        self.batch_count += 1
        return configs

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from a batch if it is complete. If a run ends within a batch, the resumed run first completes it."""
        if self._run.warm_start.includes_default_config and self.batch_count == 1:
            self._warm_start(trials)
        elif len(trials) == self.batch_size:
            with self.cpu_account.charge_training(), POLICIES.convert_errors(type(self.policy), "tell"):
                self.policy.tell(trials)

    def rate_predictions(self, batch: Sequence[Trial]) -> ModelQuality | None:
        """Return the quality of the cost model's predictions for a new batch, or None if the model is untrained.

        The fastest quarter of the batch counts as its top, because many batches have only eight trials.
        """
        cost_model = self.cost_model
        if cost_model is None or not cost_model.fitted:
            return None
        with self.cpu_account.charge_nothing():
            predicted_scores = cost_model.predict([trial.config for trial in batch])
        return measure_quality(
            predicted_scores,
            compute_scores(batch, cost_model.best),
            max(1, len(batch) // 4),
            train_seconds=cost_model.train_seconds,
            predict_seconds=self.cpu_account.predict_seconds,
        )

    def _check_contract(self, configs: Sequence[Config], n: int) -> None:
        complaint = f"policy {self._run.strategy.policy.name!r} broke its contract: it was asked for"
        if not isinstance(configs, Sequence) or not all(isinstance(config, Config) for config in configs):
            raise SearchlabError(f"{complaint} a list of configs and returned {configs!r:.200}")
        if len(configs) > n:
            raise SearchlabError(f"{complaint} {n} configs and returned {len(configs)}")
        batch: set[Config] = set()
        for config in configs:
            try:
                self._run.space.knobs(config)
            except InvalidConfig as error:
                self._run.space.check_repeats()
                raise SearchlabError(
                    f"{complaint} configs of its space and returned {config.to_json()}: {error}"
                ) from None
            if config in self._proposed_configs or config in batch:
                raise SearchlabError(f"{complaint} new configs and repeated {config.to_json()}")
            batch.add(config)
