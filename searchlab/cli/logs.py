"""``searchlab best``, ``verify``, ``log``, ``table`` and ``costmodel``: commands that work on the logs of runs."""

from __future__ import annotations

import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.text import Text
from typer import Argument, Option

from ..costmodel import COST_MODELS
from ..errors import SearchlabError, SearchlabWarning
from ..log.cache import read_logs
from ..log.read import find_logs, make_no_logs_error, read_log, read_logs_in
from ..log.reliability import describe_reliability, find_best_trial, measure_drift, measure_noise
from ..log.result import Best, load_log
from ..log.writer import check_log
from ..options import Seed, Trials
from ..plugins import Plugin
from . import parameters
from .parameters import number_option, parse_plugin, plugin_option
from .terminal import format_speed_and_time, interruptible, out, say, say_code, say_json, say_table, working

log = typer.Typer(no_args_is_help=True, help="Check the logs of runs.")
table = typer.Typer(no_args_is_help=True, help="Record measurements that stand in for the machine, and describe them.")
costmodel = typer.Typer(no_args_is_help=True, help="Evaluate cost models without a search.")

Show = StrEnum("Show", ["config", "trace", "python", "tir", "lowered", "llvm", "source", "kernel", "asm"])
ShowForm = Annotated[
    Show,
    Option(
        help=(
            "What to show: the `config`; the schedule as a `trace`; the TensorIR as TVMScript (`tir`), also as "
            "a `python` script that needs only TVM or in its lowered form (`lowered`); the LLVM IR (`llvm`; for a "
            "GPU, the LLVM IR of the host code); the generated code (`source`; for CUDA, C++); its part that takes "
            "most of the time (`kernel`: for CUDA, the kernels; for a CPU, the innermost loop in assembly); or the "
            "assembly (`asm`; for CUDA, PTX)."
        )
    ),
]

LANGUAGES_BY_FORM = {
    "llvm": ("llvm", "llvm"),
    "source": ("llvm", "cuda"),
    "kernel": ("gas", "cuda"),
    "asm": ("gas", "ptx"),
}
"""Pygments' names of the languages of texts for CPUs and for GPUs. All others are Python."""


# --- the fastest program ------------------------------------------------------------------------------------


def best(
    path: Annotated[Path, Argument(help="The log of a run, or a directory of logs.", metavar="LOG|DIR")],
    show: ShowForm = Show.config,
    html: Annotated[bool, Option("--html", help="Print a web page with highlighted code, for `--show`.")] = False,
    as_json: parameters.AsJson = False,
) -> None:
    """Show the fastest program in a log, or for each workload in a directory of logs."""
    if html and (as_json or show is Show.config):
        raise SearchlabError("--html is only for code; pass --show with the form of the program, and omit --json")
    is_directory = path.is_dir()
    bests = _load_best_by_workload(path) if is_directory else [load_log(path).best]
    if show is Show.config:
        if as_json:
            records = [make_best_record(best) for best in bests]
            say_json(records if is_directory else records[0])
        else:
            for best in bests:
                _say_best(best, is_single=not is_directory)
        return
    if len(bests) > 1:
        raise SearchlabError(
            f"{path} has logs for {len(bests)} workloads, but --show {show} shows only one program; specify one of "
            f"these logs: {', '.join(str(best.result.log.path) for best in bests)}"
        )
    from ..apply import program_text  # imported here because the other forms of output do not need it

    text = program_text(bests[0], show.value)
    if as_json:
        record = make_best_record(bests[0]) | {show.value: text}
        say_json([record] if is_directory else record)
    else:
        cpu_language, gpu_language = LANGUAGES_BY_FORM.get(show.value, ("python", "python"))
        is_for_gpu = bests[0].result.log.header.target["kind"] == "cuda"
        say_code(text, gpu_language if is_for_gpu else cpu_language, html)


def _say_best(best: Best, *, is_single: bool) -> None:
    """Print the fastest program in a log. If it ``is_single``, the importances of knobs take the place of the path."""
    from ..analysis.comparison import compare
    from ..analysis.words import format_percent, listed

    log = best.result.log
    source_text = "" if is_single else f" of {log.path}"
    say(f"{log.header.workload}: {format_speed_and_time(best)}, trial {best.trial.index}{source_text}")
    for name, value in best.config.items():
        say(f"  {name} = {value}")
    if is_single:
        [runs] = compare(best.result).runs.values()
        importances = {knob: share for space in runs.spaces for knob, share in space.importances.items()}
        if len(importances) > 1:
            shares = [f"{knob} {format_percent(share)}" for knob, share in importances.items()]
            say(f"importance of knobs: {listed(shares)}")
    for sentence in describe_reliability(log):
        say(sentence)


def _load_best_by_workload(logs_dir: Path) -> list[Best]:
    if not (log_paths := find_logs(logs_dir)):
        raise make_no_logs_error([logs_dir])
    columns_of_logs = read_logs(logs_dir, log_paths)
    fastest_by_workload: dict[str, tuple[float, Path]] = {}
    for columns in columns_of_logs:
        if columns.has_success:
            _, seconds, _ = find_best_trial(columns)
            workload = columns.header.workload
            if workload not in fastest_by_workload or seconds < fastest_by_workload[workload][0]:
                fastest_by_workload[workload] = seconds, columns.path
    if not fastest_by_workload:
        raise SearchlabError(
            f"none of the {len(columns_of_logs)} logs in {logs_dir} has a successful trial; run more trials"
        )
    return [load_log(path).best for _, path in fastest_by_workload.values()]


def make_best_record(best: Best) -> dict[str, Any]:
    """Return the fastest program as JSON shows it."""
    log = best.result.log
    return {
        "file": str(log.path),
        "workload": log.header.workload,
        "trial": best.trial.index,
        "config": best.config.to_json(),
        "seconds": best.seconds,
        "value": best.value,
        "gflops": best.gflops,
        "unit": log.unit,
        "tied": None if best.tied is None else [trial.index for trial in best.tied],
        "noise": measure_noise(log),
        "drift": measure_drift(log),
    }


def verify(
    log: Annotated[Path, Argument(help="The log of a run.", metavar="LOG")],
    top: Annotated[int, number_option(Trials, help="The number of programs to verify, fastest first.")] = 1,
    seed: Annotated[int, Option(min=1, help="The seed for the first inputs to check; measurements use seed 0.")] = 1,
    as_json: parameters.AsJson = False,
) -> None:
    """Rebuild a log's fastest program, check its results on new inputs, and time it alongside the untuned program.

    The program of a matrix product is also compared with NumPy's BLAS. Programs are timed with the protocol recorded in
    the log. The exit code is 1 if a program fails or differs from the program that was measured.
    """
    from ..apply.verify import describe_verification, verify_log

    with working(f"building, checking and timing {'the fastest program' if top == 1 else 'programs'} of {log}"):
        verification = verify_log(log, top=top, seed=seed)
    if as_json:
        say_json(verification.to_json())
    else:
        for sentence in describe_verification(verification):
            say(sentence)
    if not verification.all_correct:
        raise typer.Exit(1)


# --- logs -------------------------------------------------------------------------------------------


@log.command(name="check")
def log_check(paths: parameters.Logs, as_json: parameters.AsJson = False) -> None:
    """Report problems in logs, line by line. The exit code is 1 if there are any, or if a file cannot be read."""
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always", SearchlabWarning)
        check_results = read_logs_in(paths, check_log)
    for warning in caught_warnings:
        warnings.warn(warning.message, stacklevel=1)
    if as_json:
        say_json(
            [
                {
                    "file": str(result.path),
                    "trials": result.trial_count,
                    "problems": [{"line": line.number, "text": line.problem} for line in result.problems],
                }
                for result in check_results
            ]
        )
    else:
        for result in check_results:
            for line in result.problems:
                say(f"{result.path}, line {line.number}: {line.problem}")
            if not result.problems:
                say(f"{result.path} is intact: {result.trial_count:,} trials")
            for feature in result.newer_features:
                say(f"{result.path} has a newer format than this version of searchlab: {feature} is ignored")
            if result.is_damaged and result.intact_line_count:
                command = f"head -n {result.intact_line_count} {result.path} > NEW.jsonl"
                say(
                    f"to resume the run from the {result.trial_count:,} trials before the damage, keep only these: "
                    f"{command}"
                )
    if caught_warnings or any(result.problems for result in check_results):
        raise typer.Exit(1)


# --- tables -----------------------------------------------------------------------------------------


@table.command(name="build")
def table_build(
    source: Annotated[str, Argument(help="A study file, or a workload with --space.", metavar="STUDY.toml|WORKLOAD")],
    space: Annotated[str, Option(help="The space to measure, for a workload.")] = "",
    option: parameters.SpaceOptions = None,
    limit: Annotated[int | None, number_option(Trials, help="Measure this many random configs instead of all.")] = None,
    seed: Annotated[int, number_option(Seed, help="The seed, which determines the configs and their order.")] = 0,
    target: parameters.TargetOrOwn = None,
    output: Annotated[
        Path | None,
        Option(
            "--out",
            help="The output directory or, for a workload, the file: `*.jsonl`, or `*.parquet`, which is written "
            "when it is complete [default: results/tables/STUDY].",
        ),
    ] = None,
    measure: parameters.MeasureSpec = None,
    passes: Annotated[
        int | None,
        Option(
            help="Time all programs this many times, each time in a different order; 0 keeps the times of the run that "
            "checks them [default: 3, or 0 on a fleet].",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Measure all configs of a space, or of each workload and space of a study. To resume, repeat the command."""
    from ..run.progress import RunProgress
    from ..tables.build import build_tables, choose_passes, make_table_runs, make_table_study, plan_tables

    space_plugin = parse_plugin(space, option)
    study = make_table_study(source, space_plugin.name, space_plugin.options, target, measure)
    runs, left_out = plan_tables(study, limit, seed)
    default_path = Path("results", "tables", Path(source).stem if source.endswith(".toml") else "")
    passes = choose_passes(runs, passes)
    runs_by_table = make_table_runs(runs, output, default_path, passes)
    for reason in left_out:
        say(f"note: {reason}")
    with interruptible(), RunProgress(out) as progress:
        build_tables(runs_by_table, passes, progress.on_run, progress.show)
    for path, run in runs_by_table.items():
        say(f"{run.trial_count:,} configs: searchlab table info {path}")


@table.command(name="info")
def table_info(paths: parameters.Logs, as_json: parameters.AsJson = False) -> None:
    """Describe tables: their share of the space, the speed of the programs, failures, and the machine's noise.

    The exit code is 1 if the times in a table depend on when they were measured.
    """
    from ..tables.info import TableInfo, make_info_table

    infos = read_logs_in(paths, lambda path: TableInfo(read_log(path)))
    if as_json:
        say_json([info.to_json() for info in infos])
    else:
        out.print(*map(make_info_table, infos))
    if any(info.unsteady_reason for info in infos):
        raise typer.Exit(1)


# --- cost models ------------------------------------------------------------------------------------


@costmodel.command(name="eval")
def costmodel_eval(
    logs: parameters.Logs,
    cost_models: Annotated[
        list[Plugin],
        plugin_option("--model", help="A cost model; with options: `xgboost,objective=rank`. May be repeated."),
    ],
    features: Annotated[
        str, Option(help="The features: `knob`, `program`, `per-store`, `itervar` or `curve`.")
    ] = "knob",
    split: Annotated[
        str,
        Option(help="`within-task` holds out part of each log; `by-task` holds out all logs of each workload in turn."),
    ] = "within-task",
    seed: Annotated[
        int, number_option(Seed, help="The seed, which determines the held-out trials and the models.")
    ] = 0,
    train_fraction: Annotated[float, Option(help="The share of each log to train on, for `within-task`.")] = 0.7,
    k: Annotated[int, number_option(Trials, "-k", help="The k in top-k recall and in the peak score.")] = 5,
    as_json: parameters.AsJson = False,
) -> None:
    """Show how well cost models predict recorded trials that they were not trained on."""
    from ..tables.costmodels import TITLES_BY_METRIC, compute_mean_quality, evaluate, make_quality_rows

    plugins = [COST_MODELS.resolve(cost_model)[0] for cost_model in cost_models]
    qualities = evaluate(logs, plugins, features=features, split=split, seed=seed, train_fraction=train_fraction, k=k)
    if as_json:
        say_json({"means": compute_mean_quality(qualities), "logs": qualities})
        return
    training_text = "on other workloads"
    if split == "within-task":
        training_text = f"trained on {100 * train_fraction:g} % of each log"
    title = Text(f"{split}, {features} features: {training_text}, k = {k}", "bold")
    headings = list(TITLES_BY_METRIC.values())
    say_table(
        ("cost model", *headings), make_quality_rows(qualities), right_aligned=headings, title=title, box=SIMPLE_HEAD
    )
