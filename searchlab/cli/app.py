"""The ``searchlab`` command. A subcommand's module is imported only when the subcommand is called."""

from __future__ import annotations

import io
import signal
import sys
import traceback
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, Never

import typer
from typer.core import TyperGroup

from ..console import one_line
from ..errors import SearchlabError, describe
from ..plugins import trust_plugins
from .terminal import complain, show_warning

COMMANDS = {
    "run": ("run:run", "Run a study, then report."),
    "tune": ("run:tune", "Search one workload in one space with one policy."),
    "model": ("model:model", "Tune a model: list its tasks, or tune all of them."),
    "watch": ("run:watch", "Show a running study in a browser."),
    "report": ("report:report", "Compare runs: tables, a page and charts."),
    "best": ("logs:best", "Show the fastest program in a log."),
    "verify": ("logs:verify", "Rebuild a log's fastest program, check it, and time it."),
    "list": ("plugins:list_", "List the installed plug-ins and the named workloads."),
    "show": ("plugins:show", "Explain a policy, a space, a cost model, a scheduler or a workload."),
    "space": ("plugins:space_", "Show the knobs of a space."),
    "new": ("new:new", "Write a package with a plug-in, its tests and a study."),
    "check": ("plugins:check", "Check a plug-in against its contract."),
    "schema": ("plugins:schema", "Print the JSON Schema for study files."),
    "import": ("exchange:import_", "Convert another tuner's file to logs."),
    "export": ("exchange:export", "Export logs to another tool's format, or build the best program."),
    "power": ("report:power", "Estimate how many seeds and workloads it takes to detect a difference."),
    "hypertune": ("hypertune:hypertune", "Tune a policy's options on recorded tables."),
    "table": ("logs:table", "Record tables of measurements that stand in for the machine."),
    "suite": ("suite:suites", "Compare policies on suites of tables, with registered baselines."),
    "fleet": ("fleet:fleet", "Measure on remote devices behind TVM's RPC tracker."),
    "machine": ("machine:machine", "Determine what differences this machine can resolve."),
    "log": ("logs:log", "Check the logs of runs."),
    "costmodel": ("logs:costmodel", "Evaluate cost models without a search."),
}
"""The location of each subcommand, and its line in the help."""

MARKUP: Any = "markdown"
HELP = {"help_option_names": ["-h", "--help"]}
TRACEBACK = "--traceback"
TRUST = "--trust"


UsageError: Any = typer.BadParameter.__base__
"""What Typer raises for words that it cannot read."""


class LazyGroup(TyperGroup):
    """A group that lists the entries of :data:`COMMANDS`, and imports a subcommand when it is called or completed."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                raise
            words = error.ctx.command_path.removeprefix(ctx.command_path) if error.ctx else ""
            raise SearchlabError(f"{_sentence_of(error.format_message())} (see searchlab{words} --help)") from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder and _import_command(str(name)), rest


def _sentence_of(message: str) -> str:
    """Return a message of Typer as a sentence, without what pydantic adds."""
    text = message.removesuffix(".").replace("Value error, ", "").replace(": Input should be ", ": it must be ")
    return text[:1].lower() + text[1:].partition(", unable to parse")[0]


def _import_command(name: str) -> Any:
    module, _, attribute = COMMANDS[name][0].partition(":")
    command = getattr(import_module(f".{module}", __package__), attribute)
    if isinstance(command, typer.Typer):
        command.rich_markup_mode = MARKUP
        command.info.context_settings = HELP
        return typer.main.get_group(command)
    single_app = typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
    single_app.command(name, context_settings=HELP)(command)
    return typer.main.get_command(single_app)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=HELP,
    rich_markup_mode=MARKUP,
    help="Which search strategy finds a fast tensor program soonest?",
    epilog="Start with `searchlab tune gemm:64x64x64 --log gemm.jsonl`, which works in any directory. The exit code "
    "is 2 for invalid input, and 1 if a run or check fails. Two options work with every command: "
    "`--traceback` shows where an error was raised, including in plug-in code; `--trust` imports the plug-ins "
    "that a log uses even if no installed package registers them. Use it only with logs that you trust.",
)


def _say_version(show: bool) -> None:
    if show:
        print(f"searchlab {version('searchlab')}")
        raise typer.Exit


@app.callback()
def every_command(
    show_version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    pass


for command, (_, summary) in COMMANDS.items():
    app.command(command, help=summary)(lambda: None)


def complete() -> Any:
    """Return the command with all subcommands imported, for documentation and checks."""
    root: Any = typer.main.get_command(app)
    root.commands = {name: _import_command(name) for name in COMMANDS}
    return root


def main() -> Never:
    """Run the ``searchlab`` command."""
    warnings.showwarning = show_warning
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # from now on, SIGTERM acts like Ctrl-C
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may be unable to show some names
    words = [word for word in sys.argv[1:] if word not in (TRACEBACK, TRUST)]
    try:
        with trust_plugins(TRUST in sys.argv[1:]):
            app(words)
    except SearchlabError as error:
        if TRACEBACK in sys.argv[1:]:
            traceback.print_exception(error)
        complain("error:", "bold red", one_line(str(error)))
        sys.exit(error.exit_code)
    except OSError as error:  # of a path that cannot even be looked up, for example because a name in it is too long
        reason = error.strerror or str(error)
        text = f"cannot write the output, or use the current directory: {reason}"
        if error.filename:
            text = f"cannot use {error.filename}: {reason}; pass a different path"
        complain("error:", "bold red", one_line(text))
        sys.exit(2)
    except UnicodeEncodeError as error:  # Python encodes file names according to the locale
        text = f"{error.object!r} cannot be encoded in this locale's encoding, {error.encoding}; set PYTHONUTF8=1"
        complain("error:", "bold red", text)
        sys.exit(2)
    except Warning as warning:
        text = f"{one_line(describe(warning))} (a warning, which PYTHONWARNINGS or -W turns into an error)"
        complain("error:", "bold red", text)
        sys.exit(1)
    sys.exit(0)
