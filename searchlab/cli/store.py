"""``searchlab store``: what has been measured, across studies."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SHOWN, SearchlabError
from .best import Show, ShowForm, show_bests
from .terminal import AsJson, TargetSpec, Workload, out

if TYPE_CHECKING:
    from rich.table import Table

    from ..store.store import Held

store = typer.Typer(
    no_args_is_help=True,
    help="What has been measured of a workload, by whichever study: a file of this user, which several processes may "
    "use at a time. It must be on a local disk, not on a network file system.",
)

StoreFile = Annotated[
    Path | None,
    typer.Option(
        "--store",
        help="The store [default: `SEARCHLAB_STORE`, or `searchlab/store.db` in `XDG_DATA_HOME`, which is "
        "`~/.local/share` if it is not set].",
        metavar="FILE",
        show_default=False,
    ),
]
Machine = Annotated[
    str | None,
    typer.Option(help="The machine that was measured: a part of its CPU's name, or the key of a fleet."),
]


@store.command()
def add(
    logs: Annotated[list[Path], typer.Argument(help="Logs, or directories of them.", metavar="LOG|DIR...")],
    file: StoreFile = None,
    as_json: AsJson = False,
) -> None:
    """Add what logs have measured. A log that is there already adds nothing; of one that has grown, its new trials.

    Logs of runs that a table answered measured nothing, and are left out.
    """
    from ..store import Store

    opened = Store(file)
    added = opened.add(*logs)
    if as_json:
        left_out = {str(path): reason for path, reason in added.left_out.items()}
        facts = {"store": str(opened.path), "runs": added.runs, "trials": added.trials, "known": added.known}
        print(json.dumps({**facts, "left_out": left_out}, indent=2))
        return
    reasons = list(added.left_out.values())
    for reason in reasons[:SHOWN]:
        out.print(f"left out: {reason}", soft_wrap=True)
    if more := len(reasons[SHOWN:]):
        out.print(f"left out: {more:,} more logs; --json names them", soft_wrap=True)
    known = f"; {added.known:,} logs brought nothing new" if added.known else ""
    out.print(f"{opened.path} has {added.runs:,} new runs, {added.trials:,} new trials{known}", soft_wrap=True)


@store.command()
def find(
    workload: Annotated[str | None, typer.Option(help="Only of this workload.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Only for this target: `native`, `cuda`, an LLVM CPU, or a TVM target as JSON.")
    ] = None,
    machine: Machine = None,
    space: Annotated[str | None, typer.Option(help="Only in this space.")] = None,
    file: StoreFile = None,
    as_json: AsJson = False,
) -> None:
    """List what the store holds: of which workload, for which target, on which machine, in which space."""
    from ..store import Store
    from ..store.store import in_words

    opened = Store(file)
    held = opened.find(workload, target=target, machine=machine, space=space)
    if as_json:
        print(json.dumps([one.to_json() for one in held], indent=2))
        return
    if not held:
        raise SearchlabError(f"the store {opened.path} holds nothing of this; searchlab store find lists all of it")
    place = sorted(held, key=lambda one: (one.key.target, one.key.machine))
    for (of, on), group in groupby(place, key=lambda one: (one.key.target, one.key.machine)):
        out.print(f"for {in_words(of, on)}", soft_wrap=True)
        out.print(_table(list(group)))


@store.command()
def best(
    workload: Workload,
    target: TargetSpec = "native",
    machine: Machine = None,
    show: ShowForm = Show.config,
    log: Annotated[
        Path | None,
        typer.Option(
            help="Write the log of its run here, for the commands that take a log: `export`, `verify`, `report`.",
            metavar="FILE.jsonl",
        ),
    ] = None,
    file: StoreFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the fastest program of a workload, as `searchlab best` shows that of a log.

    Programs for another target, or of another machine than this one, count only where they are asked for.
    """
    from ..store import Store

    fastest = Store(file).best(workload, target=target, machine=machine, log=log)
    show_bests([fastest], show, as_json, several=False, named=True)


def _table(held: list[Held]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    for name in ("workload", "space", "programs", "runs", "best", "measured", "by"):
        table.add_column(name, justify="right" if name in ("programs", "runs", "best") else "left", overflow="fold")
    for one in held:
        best = f"{one.gflops:.1f} {one.unit}" if one.gflops else "none ran"
        date = datetime.fromtimestamp(one.created, UTC).strftime("%Y-%m-%d") if one.created else ""
        cells = (one.key.workload, one.key.space, f"{one.programs:,}", f"{one.runs:,}", best, date, one.strategy)
        table.add_row(*map(Text, cells))
    return table
