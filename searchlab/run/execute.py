"""Execute runs, either one after the other in this process or on an executor. A failing run does not end the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from ..errors import RunsFailed, SearchlabError, warn
from ..executors.contract import RunExecutor
from ..log.format import Log
from ..log.reliability import describe_disagreement
from ..machine.host import observe_load
from ..units import VALUES
from .dispatch import Dispatch, Outcomes
from .loop import search
from .open import MeasurerCache, open_runs
from .plan import OnChargedRun, Run
from .progress import announce


def execute(
    runs: Sequence[Run],
    *,
    on_run: OnChargedRun,
    executor: RunExecutor | None = None,
    on_ready: Callable[[], None] = lambda: None,
    study_runs: Sequence[Run] = (),
) -> list[Log]:
    """Execute ``runs``, which must all have the same target and kind of measurement, or must all use tables.

    First, all existing logs are checked against their runs. Programs in these logs are not measured again.

    Args:
        runs: The runs. Runs with an existing log are resumed.
        on_run: Called when a run begins.
        executor: Where to execute the runs, or None to execute them one after the other in this process. On an
            executor, runs share only the measurements in existing logs, so the results do not depend on which runs
            finish first.
        on_ready: Called when the existing logs have been checked.
        study_runs: All runs of the study, if ``runs`` are only a part of them.

    Returns:
        The complete log of each run.

    Raises:
        RunsFailed: If any runs failed. It is raised at the end, when all other runs are complete.
    """
    with closing(MeasurerCache()) as measurers:
        if executor is None or not runs[0].settings.exclusive:  # else an executor may measure other machines
            measurers.for_run(runs[0])  # rejects invalid settings before any log is read
        runs = open_runs(runs, study_runs or runs, on_this_machine=executor is None)
        for run in runs:
            measurers.add_logged_measurements(run)
        _announce_logs(runs)
        on_ready()
        if executor is None:
            outcomes = _search_in_process(runs, measurers, on_run)
        else:
            measurers.close()
            outcomes = Dispatch(executor, runs, measurers.measurements, on_run).execute_runs()
        outcomes_by_log = {run.log_path: outcome for run, outcome in outcomes}
    outcomes_in_order = {run.log_path: outcomes_by_log[run.log_path] for run in runs}
    failures = {path: error for path, error in outcomes_in_order.items() if isinstance(error, SearchlabError)}
    if failures:
        reasons = {path: str(error) for path, error in failures.items()}
        raise RunsFailed(reasons, len(runs)) from next(iter(failures.values()))
    return [log for log in outcomes_in_order.values() if isinstance(log, Log)]


def execute_run(run: Run, on_run: OnChargedRun) -> Log:
    """Execute ``run`` in this process and return its log. If the run fails, its SearchlabError is raised."""
    try:
        (log,) = execute([run], on_run=on_run)
        return log
    except RunsFailed as runs_failed:
        assert runs_failed.__cause__ is not None
        error = runs_failed.__cause__
    raise error


def _search_in_process(runs: Sequence[Run], measurers: MeasurerCache, on_run: OnChargedRun) -> Outcomes:
    for number, run in enumerate(runs, 1):
        on_trial = on_run(run, number, len(runs), 0)
        try:
            measurer = measurers.for_run(run)
            outcome: Log | SearchlabError = search(run, measurer, on_trial)
        except SearchlabError as error:
            outcome = error
        yield run, outcome


def _announce_logs(runs: Sequence[Run]) -> None:
    """Announce how many trials are in existing logs, so that they are not measured again."""
    logs = [run.existing_log for run in runs if run.existing_log and run.existing_log.records]
    trial_count = sum(len(log.records) for log in logs)
    complete_count = sum(bool(run.existing_log and run.budget.is_complete(run.existing_log)) for run in runs)
    if len(runs) == 1 and logs:
        announce(f"{runs[0].log_path} {'is complete' if complete_count else 'continues'} after {trial_count} trials")
    elif logs:
        announce(f"{trial_count:,} trials are already logged; {complete_count:,} of {len(runs):,} runs are complete")


def warn_of_extra_trials(runs: Sequence[Run], logs: Sequence[Log]) -> None:
    """Warn about logs that contain more trials than their runs' budgets. No trials are removed from the logs."""
    trial_limits = [run.budget.find_end(log)[0] for run, log in zip(runs, logs, strict=True)]
    long_logs = [
        (log, trial_limit)
        for log, trial_limit in zip(logs, trial_limits, strict=True)
        if trial_limit < len(log.records)
    ]
    if long_logs:
        log, trial_limit = long_logs[0]
        others_text = f" (and so do {len(long_logs) - 1} other logs)" if len(long_logs) > 1 else ""
        warn(
            f"{log.path} contains {len(log.records)} trials, more than the {trial_limit} requested{others_text}; "
            f"results include all trials in a log"
        )


def warn_of_doubts(logs: Sequence[Log]) -> None:
    """Warn about unreliable times of the best programs in ``logs``."""
    doubts = [f"{log.path}: {text}" for log in logs if (text := describe_disagreement(log))]
    if doubts:
        others_text = f"; the same happened in {len(doubts) - 1} other runs" if len(doubts) > 1 else ""
        warn(f"{doubts[0]}{others_text}")


def warn_of_a_busy_machine(runs: Sequence[Run]) -> None:
    """Warn if this machine is about to be measured while other processes keep it busy."""
    if not any(run.settings.exclusive and run.space.workload.unit not in VALUES for run in runs):
        return  # the value of a function is the same on a busy machine
    if text := observe_load():
        warn(text)
