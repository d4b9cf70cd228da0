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

from ..console import escape_to_one_line
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

MARKUP_MODE: Any = "markdown"
HELP_SETTINGS = {"help_option_names": ["-h", "--help"]}
TRACEBACK_OPTION = "--traceback"
TRUST_OPTION = "--trust"


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
            subcommand_text = error.ctx.command_path.removeprefix(ctx.command_path) if error.ctx else ""
            raise SearchlabError(
                f"{_make_sentence(error.format_message())} (see searchlab{subcommand_text} --help)"
            ) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, placeholder, remaining_arguments = super().resolve_command(ctx, args)
        return name, placeholder and _import_command(str(name)), remaining_arguments


def _make_sentence(message: str) -> str:
    """Return a message of Typer as a sentence, without what pydantic adds."""
    text = message.removesuffix(".").replace("Value error, ", "").replace(": Input should be ", ": it must be ")
    return text[:1].lower() + text[1:].partition(", unable to parse")[0]


def _import_command(name: str) -> Any:
    module_name, _, attribute_name = COMMANDS[name][0].partition(":")
    command = getattr(import_module(f".{module_name}", __package__), attribute_name)
    if isinstance(command, typer.Typer):
        command.rich_markup_mode = MARKUP_MODE
        command.info.context_settings = HELP_SETTINGS
        return typer.main.get_group(command)
    single_app = typer.Typer(add_completion=False, rich_markup_mode=MARKUP_MODE)
    single_app.command(name, context_settings=HELP_SETTINGS)(command)
    return typer.main.get_command(single_app)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=HELP_SETTINGS,
    rich_markup_mode=MARKUP_MODE,
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


def load_commands() -> Any:
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
    arguments = [word for word in sys.argv[1:] if word not in (TRACEBACK_OPTION, TRUST_OPTION)]
    try:
        with trust_plugins(TRUST_OPTION in sys.argv[1:]):
            app(arguments)
        sys.exit(0)
    except SearchlabError as error:
        if TRACEBACK_OPTION in sys.argv[1:]:
            traceback.print_exception(error)
        exit_code, text = error.exit_code, str(error)
    except OSError as error:  # of a path that cannot even be looked up, for example because a name in it is too long
        reason = error.strerror or str(error)
        exit_code, text = 2, f"cannot write the output, or use the current directory: {reason}"
        if error.filename:
            text = f"cannot use {error.filename}: {reason}; pass a different path"
    except UnicodeEncodeError as error:  # Python encodes file names according to the locale
        exit_code = 2
        text = f"{error.object!r} cannot be encoded in this locale's encoding, {error.encoding}; set PYTHONUTF8=1"
    except Warning as warning:
        exit_code, text = 1, f"{describe(warning)} (a warning, which PYTHONWARNINGS or -W turns into an error)"
    complain("error:", "bold red", escape_to_one_line(text))
    sys.exit(exit_code)
