"""The ``searchlab`` command, put together.

Each command imports what it needs when it runs, so that ``--help`` and ``list`` stay light.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
import warnings
from importlib.metadata import version
from typing import Annotated, Never

import typer

from ..errors import SearchlabError
from ..plugins import trusting
from .best import best, verify
from .check import check
from .costmodel import cost_models
from .exchange import export, import_
from .fleet import fleet
from .hypertune import hypertune
from .list import list_
from .log import logs
from .power import power
from .report import report
from .run import run
from .schema import schema
from .show import show
from .space import space_
from .store import store
from .suite import suites
from .table import tables
from .terminal import complain, show_warning
from .tune import tune
from .watch import watch

TRACEBACK = "--traceback"
"""The word that has :func:`main` show the whole traceback of an error."""

TRUST = "--trust"
"""The word with which commands import what logs and other files name, though no installed package registers it."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Which search strategy finds a fast tensor program soonest?",
    epilog="Start with `searchlab run studies/quickstart.toml`. Bad input ends with one sentence and exit code 2, "
    "runs that fail with exit code 1; "
    "`--traceback`, with any command, also shows where in the code of a plug-in it arose. `--trust`, with any command, "
    "imports the plug-ins that a log names though no installed package registers them: for logs that you trust.",
)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"searchlab {version('searchlab')}")
        raise typer.Exit


@app.callback()
def every_command(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    pass


for command in (run, tune, watch, report, best, verify):
    app.command()(command)
app.command(name="list")(list_)
app.command()(show)
app.command(name="space")(space_)
app.command()(check)
app.command()(schema)
app.command(name="import")(import_)
app.command(name="export")(export)
app.command()(power)
app.command()(hypertune)
app.add_typer(tables, name="table")
app.add_typer(suites, name="suite")
app.add_typer(fleet, name="fleet")
app.add_typer(store, name="store")
app.add_typer(logs, name="log")
app.add_typer(cost_models, name="costmodel")


def main() -> Never:
    """The ``searchlab`` command."""
    warnings.showwarning = show_warning
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends the command as Ctrl-C does, from the start
    sys.path.append(os.getcwd())  # `module:Class` may be in the current directory, as for `python -m searchlab`
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names from outside may be more than a terminal can show
    words = [word for word in sys.argv[1:] if word not in (TRACEBACK, TRUST)]
    try:
        with trusting(TRUST in sys.argv[1:]):
            app(words)
    except SearchlabError as error:
        if TRACEBACK in sys.argv[1:]:
            traceback.print_exception(error)
        complain("error:", "bold red", str(error))
        sys.exit(error.exit_code)
    except UnicodeEncodeError as error:  # the name of a file, which Python encodes as the locale says
        said = f"{error.object!r} cannot be written in {error.encoding}, the encoding of this locale; set PYTHONUTF8=1"
        complain("error:", "bold red", said)
        sys.exit(2)
    sys.exit(0)
