"""The command line. Each command imports what it needs when it runs, so that ``--help`` and ``list`` stay light."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Never

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..errors import SearchlabError
from .best import best, verify
from .exchange import export, import_
from .fleet import fleet
from .hypertune import hypertune
from .log import logs
from .table import tables
from .terminal import (
    AsJson,
    MeasureSpec,
    SpaceName,
    TargetOrOwn,
    TargetSpec,
    Workload,
    again,
    interruptible,
    json_object,
    milliseconds,
    name_and_value,
    out,
    show_warning,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Which search strategy finds a fast tensor program soonest?",
    epilog="Start with `searchlab run studies/quickstart.toml`. Bad input ends with one sentence and exit code 2.",
)
app.add_typer(tables, name="table")
app.add_typer(fleet, name="fleet")
app.add_typer(logs, name="log")


def main() -> Never:
    """The ``searchlab`` command."""
    warnings.showwarning = show_warning
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as Ctrl-C does, from the first moment on
    sys.path.append(os.getcwd())  # `module:Class` may be beside the user, as it is for `python -m searchlab`
    try:
        app()
    except SearchlabError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(2)
    sys.exit(0)


@app.command()
def run(
    study: Annotated[Path, typer.Argument(help="The study file (TOML).", metavar="STUDY.toml")],
    directory: Annotated[
        Path | None, typer.Option("--out", help="Where its logs and report go [default: results/<name of the study>].")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="How many of its runs go on at the same time, on a fleet or from a table.")
    ] = 1,
) -> None:
    """Run what is missing of a study, then report. Interrupted, it goes on where it was when run again."""
    from ..analysis import report as write_report
    from ..analysis import summary_table
    from ..run.executors import check_jobs
    from ..run.study import Study
    from .progress import StudyProgress

    directory = directory or Path("results") / study.stem
    loaded = Study.load(study)
    check_jobs(jobs, loaded.spec.measure)
    default = directory == Path("results") / study.stem
    options = ("" if default else f" --out {directory}") + (f" --jobs {jobs}" if jobs > 1 else "")
    with interruptible(f"searchlab run {study}{options}"):
        runs, left_out = loaded.plan()
        for reason in left_out:
            out.print(f"note: {escape(reason)}", soft_wrap=True)
        with StudyProgress(out, len(runs), loaded.spec.trials) as progress:
            loaded.run(directory, progress.on_run, jobs)
        summary = write_report(directory)
    out.print(*summary_table(summary))
    out.print(f"the report: {directory / 'report' / 'report.html'} (pictures and figures beside it)", soft_wrap=True)


@app.command()
def tune(
    workload: Workload,
    space: SpaceName,
    policy: Annotated[
        str, typer.Option(help="A search policy, as `searchlab list policies` gives them, or `xgb,epsilon=0.2`.")
    ],
    log: Annotated[Path, typer.Option(help="The run's log; it is resumed if it is there.", metavar="FILE.jsonl")],
    trials: Annotated[int, typer.Option(min=1, help="How many trials the log shall hold.")] = 64,
    batch: Annotated[int, typer.Option(min=1, help="How many configs are asked for at a time.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Decides everything that is not a measurement.")] = 0,
    target: TargetOrOwn = None,
    cost_model: Annotated[
        str, typer.Option(help="The cost model, for a policy that takes one, as `xgboost` or `xgboost,objective=rank`.")
    ] = "xgboost",
    features: Annotated[str, typer.Option(help="What the cost model sees: `knob` or `program`.")] = "knob",
    warm_start: Annotated[
        list[Path] | None,
        typer.Option(
            help="A log of an earlier run to start from, or a directory of them; may be repeated.", metavar="LOG"
        ),
    ] = None,
    measure: MeasureSpec = None,
) -> None:
    """Search one workload in one space with one policy. Run again it resumes; with more `--trials` it goes on."""
    from ..run.study import tune as tune_cell
    from .progress import RunProgress

    with interruptible(again()), RunProgress(out, trials) as progress:
        result = tune_cell(
            workload, space=_plugin(space), policy=_plugin(policy), log=log, trials=trials, batch=batch, seed=seed,
            target=target, cost_model=_plugin(cost_model), features=features, warm_start=warm_start or [],
            measure=json_object(measure, "--measure"), on_trial=progress.start(workload, policy),
        )  # fmt: skip
    done = len(result.trials)
    if done < trials:
        out.print(f"the space is exhausted after {done} trials")
    found = result.best
    reached = f"{found.gflops:.1f} GFLOPS ({milliseconds(found.seconds)})"
    out.print(f"best of {done}: {reached} with {escape(str(found.config.to_json()))}", soft_wrap=True)
    if found.tied:
        names = ", ".join(str(trial.index) for trial in found.tied)
        out.print(f"it does not win beyond the noise: measured again, trials {names} are as fast", soft_wrap=True)
    out.print(f"see it: searchlab best {escape(str(log))} --show tir", soft_wrap=True)


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(help="A study's directory, or any with logs in it.", metavar="DIR")],
    as_json: AsJson = False,
) -> None:
    """Compare the runs in a directory: tables here; a page, report.html, pictures, CSV and JSON in DIR/report."""
    from ..analysis import report as write_report
    from ..analysis import summary_table

    summary = write_report(directory)
    if as_json:
        print(json.dumps(summary.to_json(), indent=2))
        return
    out.print(*summary_table(summary))
    out.print(f"the report: {directory / 'report' / 'report.html'} (pictures and figures beside it)", soft_wrap=True)


app.command()(best)
app.command()(verify)


class Kind(StrEnum):
    spaces = "spaces"
    policies = "policies"
    costmodels = "costmodels"
    workloads = "workloads"


@app.command(name="list")
def list_(
    kind: Annotated[Kind | None, typer.Argument(help="Only these.")] = None,
    as_json: AsJson = False,
) -> None:
    """What there is: installed spaces, policies and cost models, and workloads that have a name."""
    from ..costmodel import COST_MODELS
    from ..policy import POLICIES
    from ..space import SPACES
    from ..workload import parse_workload
    from ..workload.resnet50 import preset_names

    found: dict[str, dict[str, str]] = {}
    for one, registered in ((Kind.spaces, SPACES), (Kind.policies, POLICIES), (Kind.costmodels, COST_MODELS)):
        found[one.value] = {name: point.value for name, point in registered.installed().items()}
    found["workloads"] = {name: str(parse_workload(name)) for name in preset_names()}
    if kind:
        found = {kind.value: found[kind.value]}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for title, names in found.items():
        table = Table(title=title, title_justify="left", box=None, show_header=False)
        for name, what in names.items():
            table.add_row(f"[bold]{name}[/]", what)
        out.print(table)


@app.command(name="space")
def space_(
    workload: Workload,
    space: SpaceName,
    option: Annotated[list[str] | None, typer.Option(help="An option of the space.", metavar="NAME=VALUE")] = None,
    target: TargetSpec = "native",
    seed: Annotated[int, typer.Option(min=0, help="Decides the sample.")] = 0,
) -> None:
    """The knobs of a space, how many choices each has, and one sample."""
    import numpy as np

    from ..plugins import Plugin
    from ..space import SPACES
    from ..target import resolve_target
    from ..workload import parse_workload

    options = dict(name_and_value(text) for text in option or [])
    made = SPACES.make(Plugin(space, options), parse_workload(workload), resolve_target(target))
    sample = made.sample(np.random.default_rng(seed))
    knobs = made.knobs(sample)
    size = made.size()
    out.print(f"{made.workload} in {space}: " + (f"{size:,} configs" if size else "more than 100,000 configs"))
    table = Table("knob", "choices", "such as", f"sample (seed {seed})", box=None)
    for knob in knobs:
        some = ", ".join(str(choice) for choice in knob.choices[:3]) + (", ..." if len(knob.choices) > 3 else "")
        table.add_row(knob.name, str(len(knob.choices)), some, str(sample[knob.name]))
    out.print(table)


def _plugin(text: str) -> dict[str, Any]:
    """A plug-in as ``name`` or ``name,option=value,...``."""
    name, *options = text.split(",")
    return {"name": name, "options": dict(name_and_value(option) for option in options)}


cost_models = typer.Typer(no_args_is_help=True, help="Cost models, away from any search.")
app.add_typer(cost_models, name="costmodel")


@cost_models.command(name="eval")
def costmodel_eval(
    logs: Annotated[list[Path], typer.Argument(help="Logs, or directories of them.", metavar="LOG...")],
    model: Annotated[
        list[str], typer.Option(help="A cost model, as `xgboost` or `xgboost,objective=rank`; may be repeated.")
    ],
    features: Annotated[str, typer.Option(help="What the cost models see: `knob` or `program`.")] = "knob",
    split: Annotated[
        str,
        typer.Option(help="`within-task` holds out trials of each log; `by-task` all of each workload in turn."),
    ] = "within-task",
    seed: Annotated[int, typer.Option(min=0, help="Decides what is held out, and what the models draw.")] = 0,
    train_fraction: Annotated[float, typer.Option(help="Share of each log to train on, within-task.")] = 0.7,
    k: Annotated[int, typer.Option("-k", min=1, help="Of top-k recall and of the peak score.")] = 5,
    as_json: AsJson = False,
) -> None:
    """How well cost models predict recorded trials that they were not trained on."""
    from ..costmodel import COST_MODELS
    from ..tables.costmodels import evaluate, mean_quality, quality_table

    plugins = [COST_MODELS.named(_plugin(text))[0] for text in model]
    found = evaluate(logs, plugins, features=features, split=split, seed=seed, train_fraction=train_fraction, k=k)
    if as_json:
        import msgspec

        each = [msgspec.to_builtins(held, enc_hook=str) for held in found]
        print(json.dumps({"means": mean_quality(found), "logs": each}, indent=2))
        return
    trained = f"trained on {100 * train_fraction:g} % of each log" if split == "within-task" else "on other workloads"
    out.print(quality_table(found, f"{split}, {features} features: {trained}, k = {k}"))


class PluginKind(StrEnum):
    policy = "policy"
    space = "space"
    costmodel = "costmodel"


@app.command()
def check(
    kind: Annotated[PluginKind, typer.Argument(help="What it is.")],
    name: Annotated[str, typer.Argument(help="As `searchlab list` gives it, or `module:Class`.", metavar="NAME")],
    only: Annotated[list[str] | None, typer.Option(help="Only this check; may be repeated.", metavar="CHECK")] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of the plug-in.", metavar="NAME=VALUE")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed it is checked with.")] = 0,
    space: Annotated[
        str | None, typer.Option(help="Where a policy is checked that works in certain spaces only [default: toys].")
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="The workload of the space [default: a small one that it takes].")
    ] = None,
    target: TargetSpec = "native",
    cost_model: Annotated[str, typer.Option(help="The cost model, for a policy that takes one.")] = "xgboost",
    features: Annotated[str, typer.Option(help="What the cost model sees: `knob` or `program`.")] = "knob",
) -> None:
    """Hold a policy, space or cost model against its contract: what was expected, what happened, the likely fix."""
    from ..conformance import cost_model_checks, policy_checks, run_checks, selected, space_checks

    spec = {"name": name, "options": dict(name_and_value(text) for text in option or [])}
    if kind is PluginKind.policy:
        checks = policy_checks(
            spec, space=space, workload=workload, target=target, cost_model=_plugin(cost_model), features=features,
            seed=seed,
        )  # fmt: skip
    elif space is not None or (workload is not None and kind is PluginKind.costmodel):
        raise SearchlabError(f"a {kind} is not checked in a space; leave out --space and, of a costmodel, --workload")
    elif kind is PluginKind.space:
        checks = space_checks(spec, workload=workload, target=target, seed=seed)
    else:
        checks = cost_model_checks(spec, seed=seed)
    outcomes = []
    for outcome in run_checks(selected(checks, only or [])):
        outcomes.append(outcome)
        lines = outcome.text.splitlines()
        if outcome.status != "FAIL":
            out.print(f"{outcome.status:8} {': '.join([outcome.name, *lines])}", soft_wrap=True, markup=False)
            continue
        out.print(f"[bold red]FAIL[/]     [bold]{outcome.name}[/]")
        for line in lines:
            out.print(f"         {line}", soft_wrap=True, markup=False, highlight=False)
    failed = [outcome.name for outcome in outcomes if outcome.status == "FAIL"]
    passed = sum(outcome.status == "pass" for outcome in outcomes)
    out.print(f"{passed} of {len(outcomes)} checks pass" + (f"; {', '.join(failed)} failed" if failed else ""))
    if failed:
        raise typer.Exit(1)


@app.command()
def schema() -> None:
    """The JSON Schema of study files."""
    import msgspec

    from ..run.spec import StudySpec

    print(json.dumps(msgspec.json.schema(StudySpec), indent=2))


app.command(name="import")(import_)
app.command(name="export")(export)
app.command()(hypertune)
