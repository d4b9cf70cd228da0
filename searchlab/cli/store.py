"""``searchlab store``: the measurements of all studies."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from typer import Option

from ..errors import SHOWN, SearchlabError
from ..store import Store
from ..store.store import in_words
from .logs import Show, ShowForm, show_bests
from .terminal import NATIVE, AsJson, Logs, TargetSpec, Workload, say, say_json, say_table

store = typer.Typer(
    no_args_is_help=True,
    help="Store and look up the measurements from all studies in a database that several processes may use at the same "
    "time. It must be on a local disk, not on a network file system.",
)

StoreFile = Annotated[
    Path | None,
    Option(
        "--store",
        help="The store [default: $SEARCHLAB_STORE, or searchlab/store.db in $XDG_DATA_HOME or ~/.local/share].",
        metavar="FILE",
        show_default=False,
    ),
]
Machine = Annotated[str | None, Option(help="The machine: part of its CPU's name, or a fleet's key.")]


@store.command()
def add(logs: Logs, file: StoreFile = None, as_json: AsJson = False) -> None:
    """Add the measurements in logs. If a log is already in the store, only its new trials are added.

    Logs of runs over a table are skipped because nothing was measured.
    """
    opened = Store(file)
    added = opened.add(*logs)
    if as_json:
        left_out = {str(path): reason for path, reason in added.left_out.items()}
        facts = {"store": str(opened.path), "runs": added.runs, "trials": added.trials, "known": added.known}
        say_json({**facts, "left_out": left_out})
        return
    reasons = list(added.left_out.values())
    for reason in reasons[:SHOWN]:
        say(f"skipped: {reason}")
    if more := len(reasons[SHOWN:]):
        say(f"skipped: {more:,} more logs; use --json to list them")
    known = f"; {added.known:,} logs had no new trials" if added.known else ""
    say(f"added {added.runs:,} runs and {added.trials:,} trials to {opened.path}{known}")


@store.command()
def find(
    workload: Annotated[str | None, Option(help="Only this workload.")] = None,
    target: Annotated[str | None, Option(help=f"Only this target: {NATIVE}.")] = None,
    machine: Machine = None,
    space: Annotated[str | None, Option(help="Only this space.")] = None,
    file: StoreFile = None,
    as_json: AsJson = False,
) -> None:
    """List the contents of the store: workloads, targets, machines and spaces."""
    opened = Store(file)
    held = opened.find(workload, target=target, machine=machine, space=space)
    if as_json:
        say_json([one.to_json() for one in held])
        return
    if not held:
        raise SearchlabError(
            f"the store {opened.path} contains no such measurements; `searchlab store find` lists its full contents"
        )
    columns = ("workload", "space", "programs", "runs", "best", "measured", "by")
    place = sorted(held, key=lambda one: (one.key.target, one.key.machine))
    for (of, on), group in groupby(place, key=lambda one: (one.key.target, one.key.machine)):
        say(f"for {in_words(of, on)}")
        rows = (
            (
                one.key.workload, one.key.space, f"{one.programs:,}", f"{one.runs:,}",
                f"{one.gflops:.1f} {one.unit}" if one.gflops else "none ran",
                datetime.fromtimestamp(one.created, UTC).strftime("%Y-%m-%d") if one.created else "", one.strategy,
            )
            for one in group
        )  # fmt: skip
        say_table(columns, rows, right=columns[2:5], box=SIMPLE_HEAD)


@store.command()
def best(
    workload: Workload,
    target: TargetSpec = "native",
    machine: Machine = None,
    show: ShowForm = Show.config,
    log: Annotated[
        Path | None,
        Option(
            help="Also write its run's log to this file, for commands that need a log, such as `export` and `verify`.",
            metavar="FILE.jsonl",
        ),
    ] = None,
    file: StoreFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a workload's fastest program for this machine, or for the `--target` and `--machine` that you specify."""
    fastest = Store(file).best(workload, target=target, machine=machine, log=log)
    show_bests([fastest], show, as_json, several=False, named=True)
