"""The command line. Each command imports what it needs when it runs, so that ``--help`` and ``list`` stay light."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Never

import typer
from rich.console import Console
from rich.table import Table

from .errors import SearchlabError

if TYPE_CHECKING:
    from .result import Best, Result

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Which search strategy finds a fast tensor program soonest?",
    epilog="Start with `searchlab run studies/quickstart.toml`. Bad input ends with one sentence and exit code 2.",
)
out = Console(width=None if sys.stdout.isatty() else 100)

Workload = Annotated[
    str, typer.Argument(help="As `gemm:512x512x512`, `conv2d:1x7x7x512x512x3x3:s1:p1` or `resnet50/conv3.2b`.")
]
SpaceName = Annotated[str, typer.Option("--space", help="A search space, as `searchlab list spaces` gives them.")]
TargetSpec = Annotated[str, typer.Option("--target", help="`native`, an LLVM CPU name, or a TVM target as JSON.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


def main() -> Never:
    """The ``searchlab`` command."""
    try:
        app()
    except SearchlabError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {_escaped(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(2)
    sys.exit(0)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


@contextmanager
def _interruptible(resume: str) -> Iterator[None]:
    """End cleanly on Ctrl-C and SIGTERM, saying how to go on."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        out.print(
            f"\ninterrupted; everything measured is kept. Go on with: [bold]{_escaped(resume)}[/]", soft_wrap=True
        )
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@app.command()
def run(
    study: Annotated[Path, typer.Argument(help="The study file (TOML).", metavar="STUDY.toml")],
    directory: Annotated[
        Path | None, typer.Option("--out", help="Where its logs and report go [default: results/<name of the study>].")
    ] = None,
) -> None:
    """Run what is missing of a study, then report. Interrupted, it goes on where it was when run again."""
    from .analysis import report as write_report
    from .analysis import summary_table
    from .progress import StudyProgress
    from .study import Study

    directory = directory or Path("results") / study.stem
    loaded = Study.load(study)
    default = directory == Path("results") / study.stem
    with _interruptible(f"searchlab run {study}" + ("" if default else f" --out {directory}")):
        cells, left_out = loaded.cells()
        for reason in left_out:
            out.print(f"note: {_escaped(reason)}", soft_wrap=True)
        with StudyProgress(out, len(cells), loaded.spec.trials) as progress:
            loaded.run(directory, progress.on_cell)
        summary = write_report(directory)
    out.print(*summary_table(summary))
    out.print(f"pictures and figures: {directory / 'report'}", soft_wrap=True)


@app.command()
def tune(
    workload: Workload,
    space: SpaceName,
    policy: Annotated[str, typer.Option(help="A search policy, as `searchlab list policies` gives them.")],
    log: Annotated[Path, typer.Option(help="The run's log; it is resumed if it is there.", metavar="FILE.jsonl")],
    trials: Annotated[int, typer.Option(min=1, help="How many trials the log shall hold.")] = 64,
    batch: Annotated[int, typer.Option(min=1, help="How many configs are asked for at a time.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Decides everything that is not a measurement.")] = 0,
    target: TargetSpec = "native",
    cost_model: Annotated[str, typer.Option(help="The cost model, for a policy that takes one.")] = "xgboost",
    features: Annotated[str, typer.Option(help="What the cost model sees: `knob` or `program`.")] = "knob",
) -> None:
    """Search one workload in one space with one policy. Run again it resumes; with more `--trials` it goes on."""
    from .progress import CellProgress
    from .study import tune as tune_cell

    again = "searchlab " + " ".join(_quoted(word) for word in sys.argv[1:])
    with _interruptible(again), CellProgress(out, trials) as progress:
        result = tune_cell(
            workload, space=space, policy=policy, log=log, trials=trials, batch=batch, seed=seed, target=target,
            cost_model=cost_model, features=features, on_trial=progress.start(workload, policy),
        )  # fmt: skip
    done = len(result.trials)
    if done < trials:
        out.print(f"the space is exhausted after {done} trials")
    best = result.best
    out.print(
        f"best of {done}: {best.gflops:.1f} GFLOPS ({_time(best.seconds)}) with {best.config.to_json()}", soft_wrap=True
    )
    out.print(f"see it: searchlab best {log} --show tir", soft_wrap=True)


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds < 1 else f"{seconds:.3f} s"


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(help="A study's directory, or any with logs in it.", metavar="DIR")],
    as_json: AsJson = False,
) -> None:
    """Compare the runs in a directory: tables here; pictures, CSV and JSON in DIR/report."""
    from .analysis import report as write_report
    from .analysis import summary_table

    summary = write_report(directory)
    if as_json:
        print(json.dumps(summary.to_json(), indent=2))
        return
    out.print(*summary_table(summary))
    out.print(f"pictures and figures: {directory / 'report'}", soft_wrap=True)


class Show(StrEnum):
    config = "config"
    trace = "trace"
    tir = "tir"
    source = "source"


@app.command()
def best(
    log: Annotated[Path, typer.Argument(help="A run's log.", metavar="LOG")],
    show: Annotated[Show, typer.Option(help="Its config, schedule trace, TensorIR, or generated code.")] = Show.config,
    as_json: AsJson = False,
) -> None:
    """The fastest program of a log."""
    from .result import load_log

    result = load_log(log)
    found = result.best
    text = "" if show is Show.config else _shown(found, result, show)
    if as_json:
        record: dict[str, Any] = {
            "workload": result.log.header.workload,
            "trial": found.trial.index,
            "config": found.config.to_json(),
            "seconds": found.seconds,
            "gflops": found.gflops,
        }
        print(json.dumps(record | ({show.value: text} if text else {}), indent=2))
    elif text:
        print(text)
    else:
        out.print(
            f"{result.log.header.workload}: {found.gflops:.1f} GFLOPS, {_time(found.seconds)}, "
            f"trial {found.trial.index}"
        )
        for name, value in found.config.items():
            out.print(f"  {name} = {value}")


def _shown(found: Best, result: Result, show: Show) -> str:
    schedule = found.schedule()
    if show is Show.trace:
        return str(schedule.trace)
    if show is Show.tir:
        return str(schedule.mod.script())
    import tvm

    return str(tvm.compile(schedule.mod, target=result.space.target.tvm).mod.inspect_source())


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
    from .presets import preset_names
    from .registry import installed
    from .workload import parse_workload

    found: dict[str, dict[str, str]] = {}
    for one, group in ((Kind.spaces, "space"), (Kind.policies, "policy"), (Kind.costmodels, "cost model")):
        found[one.value] = {name: point.value for name, point in installed(group).items()}
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
def space_(workload: Workload, space: SpaceName, target: TargetSpec = "native", seed: int = 0) -> None:
    """The knobs of a space, how many choices each has, and one sample."""
    import numpy as np

    from .log import Plugin
    from .target import resolve_target
    from .tuner import make_space
    from .workload import parse_workload

    made = make_space(Plugin(space), parse_workload(workload), resolve_target(target))
    sample = made.sample(np.random.default_rng(seed))
    knobs = made.knobs(sample)
    size = made.size()
    out.print(f"{made.workload} in {space}: " + (f"{size:,} configs" if size else "more than 100,000 configs"))
    table = Table("knob", "choices", "such as", f"sample (seed {seed})", box=None)
    for knob in knobs:
        some = ", ".join(str(choice) for choice in knob.choices[:3]) + (", ..." if len(knob.choices) > 3 else "")
        table.add_row(knob.name, str(len(knob.choices)), some, str(sample[knob.name]))
    out.print(table)


@app.command()
def schema() -> None:
    """The JSON Schema of study files."""
    import msgspec

    from .study import StudySpec

    print(json.dumps(msgspec.json.schema(StudySpec), indent=2))


if __name__ == "__main__":
    main()
