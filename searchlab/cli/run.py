"""``searchlab run``, ``tune`` and ``watch``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ..analysis import Comparison, read_runs, report_directory
from ..analysis.contrasts import count_seeds_needed
from ..analysis.runs import ComparedRuns
from ..analysis.watch import StudyProgress, WatchServer
from ..analysis.words import counted
from ..console import format_duration
from ..errors import RunsFailed, SearchlabError
from ..executors.contract import EXECUTORS, choose_executor, count_jobs
from ..log.forecast import Forecast, RunStatus, forecast, sum_forecasts
from ..log.lease import is_locked
from ..log.writer import OtherRun
from ..options import Jobs, Trials
from ..plugins import Plugin, find_unregistered_code
from ..run.open import open_runs
from ..run.plan import Run, parse_shard, select_shard
from ..run.strategy import DEFAULT_POLICY, DEFAULT_SPACES
from ..run.study import Study
from ..run.tune import tune as tune_run
from ..stats.ranks import ALPHA
from ..workload.parse import split_workload_name
from . import parameters
from .logs import make_best_record
from .parameters import default_logs_dir, number_option, parse_plugin, plugin_option
from .report import Full, read_study_runs, show_report
from .terminal import (
    err,
    format_speed_and_time,
    interruptible,
    out,
    progress_console,
    say,
    say_json,
    say_table,
    working,
)

Discard = Annotated[
    bool,
    Option(
        "--discard",
        help="Move logs aside that cannot be continued, because they belong to different runs or because code has "
        "changed and no longer reproduces them, and start these runs again.",
    ),
]


def run(
    study: parameters.StudyFile,
    logs_dir: Annotated[
        Path | None, Option("--out", help="The directory for the logs and the report [default: results/STUDY].")
    ] = None,
    jobs: Annotated[
        int | None, number_option(Jobs, help="The number of concurrent runs, for a study on a fleet or over tables.")
    ] = None,
    executor: Annotated[
        str | None,
        Option(
            "--on",
            help="The executor: `local` (processes on this machine), `dask`, `dask://host:port`, `slurm`, or any other "
            "from `searchlab list executors` [default: as in the study, or this process].",
            metavar="EXECUTOR",
        ),
    ] = None,
    shard: Annotated[
        str,
        Option(
            help="Run only shard i of n. Afterwards, run `searchlab report` on a directory with the logs of all "
            "shards.",
            metavar="i/n",
        ),
    ] = "",
    discard: Discard = False,
    dry_run: Annotated[
        bool,
        Option(
            "--dry-run", help="Run nothing. Print what is left to run and how long it will take, judging by the logs."
        ),
    ] = False,
    full: Full = False,
    quiet: parameters.Quiet = False,
    verbose: parameters.Verbose = False,
    as_json: parameters.AsJson = False,
) -> None:
    """Run a study, then report on it. To resume an interrupted study, repeat the command."""
    console = err if as_json else out
    shard_number, shard_count = parse_shard(shard) if shard else (1, 1)
    logs_dir = logs_dir or default_logs_dir(study)
    loaded_study = Study.load(study)
    with working("planning the runs", quiet):
        runs, skipped = loaded_study.plan()
    for reason in skipped:
        say(f"note: {reason}", console)
    if dry_run:
        is_local = executor is None and loaded_study.spec.executor is None
        if is_local:
            count_jobs(jobs or 1, any(run.settings.exclusive for run in runs))  # refuses too many
        if executor_plugin := choose_executor(loaded_study.spec.executor, executor, jobs):
            EXECUTORS.check_options(executor_plugin, EXECUTORS.load(executor_plugin.name))
        _say_forecast(loaded_study, select_shard(runs, shard_number, shard_count), logs_dir, is_local, as_json)
        return
    if not quiet and any(not run.settings.replays for run in runs):
        say(f"see the results so far in a browser: searchlab watch {logs_dir}", err)
    with interruptible():
        try:
            results = loaded_study.run(
                logs_dir,
                jobs=jobs,
                executor=executor,
                shard=(shard_number, shard_count),
                discard=discard,
                progress=progress_console(quiet, verbose, console),
            )
        except RunsFailed:
            if shard_count == 1:
                with suppress(SearchlabError):  # none of the runs may have a trial
                    _report_runs(loaded_study, logs_dir, quiet, full, as_json)
            raise
        if shard_count == 1:
            _report_runs(loaded_study, logs_dir, quiet, full, as_json)
        else:
            shard_text = f"all {len(results)} runs of shard {shard_number} of {shard_count} are complete in {logs_dir}"
            say(f"{shard_text}. {_describe_other_shards(logs_dir)}", console)


def _report_runs(study: Study, logs_dir: Path, quiet: bool, full: bool, as_json: bool) -> None:
    """Write the report on the runs of ``study``, and print its tables or JSON."""
    with working("writing the report", quiet):
        comparison = Comparison(read_study_runs(study, logs_dir), study.spec.claims)
        report_dir = report_directory(logs_dir)
        comparison.save(report_dir)
    if as_json:
        say_json(comparison.summary.to_json())
    else:
        show_report(comparison.summary, report_dir, full=full)


def _describe_other_shards(logs_dir: Path) -> str:
    progress = StudyProgress(logs_dir)
    if progress.is_finished:
        return f"So are those of the other shards: run `searchlab report {logs_dir}`"
    return f"Of all shards, {progress}. When their logs are in one directory, run `searchlab report` on it"


def _say_forecast(study: Study, runs: Sequence[Run], logs_dir: Path, on_this_machine: bool, as_json: bool) -> None:
    """Print the work that is left, and which of the logs in ``logs_dir`` cannot be continued or are yet to be checked.

    The trials of a log that cannot be continued do not count.
    """
    refusals: list[str] = []

    def refuse(_: Run, error: OtherRun) -> None:
        refusals.append(str(error))

    own_runs = [replace(run, log_path=logs_dir / run.log_path) for run in runs]
    all_runs = [replace(run, log_path=logs_dir / run.log_path) for run in study.plan().runs]
    opened_runs = open_runs(own_runs, all_runs, on_this_machine, refuse)
    code_changes = [
        run.changes_since(log)
        for run in opened_runs
        if (log := run.existing_log) and log.records and not run.is_current(log)
    ]
    runs_by_log = {run.log: run for run in study.planned_runs()}
    run_statuses = [
        RunStatus.from_log(runs_by_log[run.log_path.as_posix()], opened_run.existing_log)
        for run, opened_run in zip(runs, opened_runs, strict=True)
    ]
    console = err if as_json else out
    if refusals:
        other_logs_text = f" ({len(refusals) - 1} other logs cannot be continued either)" if len(refusals) > 1 else ""
        say(f"note: {refusals[0]}{other_logs_text}", console)
    if code_changes:
        say(
            f"note: {counted(len(code_changes), 'log')} will first be compared with what today's code does, since "
            f"these have changed: {code_changes[0]}",
            console,
        )
    forecasts = forecast(run_statuses)
    if as_json:
        say_json(forecasts)
        return
    _say_work_left(runs, forecasts, logs_dir, sum(is_locked(run.log_path) for run in own_runs))
    if contrast_texts := [" against ".join(pair) for pair in study.spec.contrasts]:
        say(
            f"to be tested: {', '.join(contrast_texts)}. A significant difference on one workload needs at least "
            f"{count_seeds_needed(ALPHA / len(contrast_texts))} seeds; the study has "
            f"{len({run.seed for run in all_runs})}"
        )


def _say_work_left(runs: Sequence[Run], forecasts: Sequence[Forecast], logs_dir: Path, running_count: int) -> None:
    """Print the work that is left of ``runs``, of which ``running_count`` are being executed at the same time."""
    unknown_text, reason = "unknown", "no trials are logged"
    if all(run.settings.replays for run in runs):  # nothing has to be measured
        unknown_text, reason = "seconds", "tables replace measuring"
    say_table(
        ("workload", "space", "strategy", "runs", "complete", "trials left", "time left"),
        (
            (
                forecast.workload,
                forecast.space,
                forecast.strategy,
                forecast.run_count,
                forecast.complete_count,
                "unknown" if forecast.trial_count is None else f"{forecast.trial_count:,}",
                unknown_text if forecast.seconds is None else format_duration(forecast.seconds),
            )
            for forecast in forecasts
        ),
    )
    trial_count, seconds = sum_forecasts(forecasts)
    if seconds:
        seconds /= max(1, running_count)  # as on the page of searchlab watch
    say(
        f"{counted(len(runs), 'run')}, {sum(forecast.complete_count for forecast in forecasts)} of them complete in "
        f"{logs_dir}; "
        f"{'an unknown number of' if trial_count is None else f'{trial_count:,}'} trials are left: "
        f"{f'{unknown_text}, since {reason}' if seconds is None else format_duration(seconds)}"
    )


def tune(
    workload: parameters.Workload,
    log: Annotated[Path, Option(help="The log of the run. If it exists, the run resumes.", metavar="FILE.jsonl")],
    space: Annotated[
        Plugin | None,
        plugin_option(
            help=f"{parameters.SPACE_HELP} [default: the first of {', '.join(DEFAULT_SPACES)} that has programs for "
            "the workload]."
        ),
    ] = None,
    policy: parameters.PolicyName = DEFAULT_POLICY,
    option: parameters.PolicyOptions = None,
    trials: Annotated[
        int | None,
        number_option(
            Trials, help="The total number of trials [default: 64, or no limit with --seconds or --stop-after]."
        ),
    ] = None,
    seconds: Annotated[
        float | None, Option(help="Stop after this many seconds of proposing, training, building and running.")
    ] = None,
    stop_after: parameters.StopAfter = None,
    batch: parameters.BatchSize = 8,
    seed: parameters.RunSeed = 0,
    target: parameters.TargetOrOwn = None,
    cost_model: parameters.CostModelSpec = None,
    features: parameters.FeaturesName = None,
    warm_start: parameters.WarmStartSources = None,
    discard: Discard = False,
    measure: parameters.MeasureSpec = None,
    quiet: parameters.Quiet = False,
    verbose: parameters.Verbose = False,
    as_json: parameters.AsJson = False,
) -> None:
    """Search one workload in one space with one policy. To resume or extend a run, repeat the command."""
    with interruptible():
        result = tune_run(
            workload,
            space=space,
            policy=parse_plugin(policy, option),
            log=log,
            trials=trials,
            seconds=seconds,
            stop_after=stop_after,
            batch=batch,
            seed=seed,
            target=target,
            features=features,
            cost_model=cost_model,
            warm_start=warm_start or [],
            discard=discard,
            measure=measure,
            progress=progress_console(quiet, verbose, err if as_json else out),
        )
    if as_json:
        say_json(make_best_record(result.best))
        return
    trial_count, best = len(result.trials), result.best
    if end := result.log.run_end:
        say(f"the run ended after {trial_count}{f' of {trials}' if trials else ''} trials: {end.reason}")
    say(f"best of {trial_count}: {format_speed_and_time(best)} with {best.config.to_json()}")
    if best.tied:
        tied_trials = ", ".join(str(trial.index) for trial in best.tied)
        say(f"trials {tied_trials} are equally fast within the noise, judging by repeated measurements")
    if result.space.has_programs:
        header = result.log.header
        code = [split_workload_name(header.workload)[0], header.space.name, header.space.options]
        trust = " --trust" if find_unregistered_code(code) else ""
        say(f"show the program: searchlab best {log} --show tir{trust}")


def watch(
    paths: Annotated[
        list[Path],
        Argument(
            help="The directory of a study's logs, such as results/STUDY, or any other directory of logs; individual "
            "logs, `*.jsonl`; or a study file, followed by the directory of its logs unless that is results/STUDY.",
            metavar="PATH...",
        ),
    ],
    port: parameters.Port = 0,
) -> None:
    """Show the report on a study in a browser while the study runs, with its progress and the time left.

    The server only reads, so it can be started and stopped at any time. Press Ctrl-C to stop it. If it runs on another
    machine, forward its port: `ssh -L 9000:localhost:PORT HOST`.
    """
    read: Callable[..., ComparedRuns] = read_runs
    may_start_later = False
    if paths[0].suffix == ".toml":
        study, paths = paths[0], paths[1:] or [default_logs_dir(paths[0])]
        read = partial(read_study_runs, Study.load(study))
        may_start_later = not (study.parent / paths[0]).is_dir()
    if (absent_paths := [path for path in paths if not path.exists()]) and not may_start_later:
        raise SearchlabError(
            f"{absent_paths[0]} does not exist; run the study first, or pass the study file, or the directory that "
            f"contains its logs, such as results/STUDY"
        )
    with suppress(KeyboardInterrupt), WatchServer(*paths, read=read, port=port) as server:
        say(server.lines[0])
        say(f"the report: {server.url} (Ctrl-C closes the page; the study continues)")
        server.serve_forever()
    say("\nthe page is closed; a running study continues")
