"""Utilities that commands share: terminal output, common arguments, and the handling of signals."""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer
from rich.box import Box
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from ..console import Terminal, escape_controls, escape_to_one_line, format_execution_time, format_speed, notify_if_slow
from ..errors import SearchlabError, SearchlabWarning, warn
from ..foreign_code import note_interrupts
from ..options import Batch, Seed, Trials, find_numeric_type
from ..plugins import Plugin

if TYPE_CHECKING:
    from ..log.result import Best

out = Terminal(width=None if sys.stdout.isatty() else 100, markup=False, emoji=False)
"""The standard output. Texts from other sources are never treated as markup; styled text is a ``rich.text.Text``."""

err = Terminal(stderr=True, width=None if sys.stderr.isatty() else 100, markup=False, emoji=False)
"""The standard error, for progress, and for notes if the standard output is JSON."""


def parse_measure(text: str) -> dict[str, Any]:
    """Parse the value of ``--measure``, a JSON object."""
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:  # invalid JSON, too many digits, or excessive nesting
        raise SearchlabError(f"--measure {text!r:.200} is not valid JSON: {error}") from None
    if not isinstance(settings, dict):
        raise SearchlabError(f"--measure must be a JSON object, not {text}")
    return settings


def parse_name_and_value(text: str) -> tuple[str, Any]:
    """Split ``name=value``. The value is parsed as JSON (``3``, ``true``, ``[2, 4]``) or else as text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise SearchlabError(f"the option {text!r} does not have the form name=value")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):  # invalid JSON, too many digits, or excessive nesting
        return name, value


def parse_plugin(text: str, options: Sequence[str] | None = None) -> Plugin:
    """Return the plug-in that ``name`` or ``name,option=value,...``, and further ``options`` specify.

    A comma within brackets or quotes does not end a value, as in ``arms=["tpe","xgb"]``. A mapping from knobs to values
    in JSON stands for the space ``parameters``.
    """
    if text.startswith("{"):
        text = f"parameters,parameters={text}"
    name, *option_parts = text.split(",")
    option_texts: list[str] = []
    for option_part in option_parts:
        if option_texts and not _is_complete(option_texts[-1]):
            option_texts[-1] += f",{option_part}"
        else:
            option_texts.append(option_part)
    return Plugin(name, dict(map(parse_name_and_value, [*option_texts, *(options or [])])))


def _is_complete(option_text: str) -> bool:
    """Return whether no bracket or quote is open at the end of ``option``."""
    value = option_text.partition("=")[2]
    return value.count("[") <= value.count("]") and value.count("{") <= value.count("}") and value.count('"') % 2 == 0


def plugin_option(*option_names: str, help: str) -> Any:
    """Return an ``Option`` whose value is a plug-in; see :func:`parse_plugin`."""
    return Option(*option_names, help=help, metavar="NAME", parser=parse_plugin)


StudyFile = Annotated[Path, Argument(help="The study file (TOML).", metavar="STUDY.toml")]
Logs = Annotated[list[Path], Argument(help="Logs, or directories of logs.", metavar="LOG|DIR...")]
Workload = Annotated[
    str,
    Argument(
        help="The workload: `gemm:512x512x512`, `conv2d:1x7x7x512x512x3x3:s1:p1`, `resnet50/conv3.2b`, ...",
        metavar="WORKLOAD",
    ),
]
SPACE_HELP = (
    "A space from `searchlab list spaces`; with options: `guided-gemm,blocks=knobs`. The values of knobs, as in "
    '`{"x": [1, 2]}`, stand for the space `parameters`'
)
SpaceName = Annotated[str, Option("--space", help=f"{SPACE_HELP}.")]
TARGET_HELP = "`native`, `cuda`, the name of an LLVM CPU, or a TVM target as JSON"
TargetSpec = Annotated[str, Option("--target", help=f"The target: {TARGET_HELP}.")]
TargetOrOwn = Annotated[
    str | None, Option("--target", help=f"The target: {TARGET_HELP} [default: native, or the table's].")
]
MeasureSpec = Annotated[
    dict[str, Any] | None,
    Option(
        "--measure",
        help='The `measure` key of a study file, as JSON: `{"repeat": 5}`.',
        metavar="JSON",
        parser=parse_measure,
    ),
]
WarmStartSources = Annotated[
    list[str] | None,
    Option(
        "--warm-start",
        help="An earlier log to learn from, a directory of logs, or `default`: the default config of the space is the "
        "first trial. May be repeated.",
        metavar="LOG|DIR|default",
    ),
]
CostModelSpec = Annotated[
    Plugin | None,
    plugin_option(
        "--cost-model",
        help="The cost model, if the policy uses one; with options: `xgboost,objective=rank` [default: the policy's "
        "own, or xgboost].",
    ),
]
FEATURES_HELP = "`knob`, `autotvm-knob`, `program`, `per-store`, `itervar` or `curve`"
FeaturesName = Annotated[
    str | None,
    Option("--features", help=f"The cost model's features: {FEATURES_HELP} [default: the policy's own, or knob]."),
]
SuitePath = Annotated[
    str, Option("--suite", help="The path of the suite of a directory from `suite run --out`, if no name finds it.")
]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no progress.")]
Verbose = Annotated[
    bool,
    Option("--verbose", "-v", help="Print a line for each trial, with its config, its result and the best one so far."),
]


def _make_option(owner: str) -> Any:
    return Option("--option", help=f"An option of the {owner}. May be repeated.", metavar="NAME=VALUE")


Options = Annotated[list[str] | None, _make_option("plug-in")]
PolicyOptions = Annotated[list[str] | None, _make_option("policy")]
SpaceOptions = Annotated[list[str] | None, _make_option("space")]


def number_option(value_range: Any, *option_names: str, **option_settings: Any) -> Any:
    """Return an ``Option`` with the limits of ``kind``, one of the ranges in :mod:`searchlab.options`."""
    number_type = find_numeric_type(value_range)
    assert number_type is not None
    return Option(*option_names, min=number_type.ge, max=number_type.le, **option_settings)


RunSeed = Annotated[int, number_option(Seed, help="The seed, which determines everything but the measurements.")]
BatchSize = Annotated[int, number_option(Batch, help="The number of configs that the policy proposes at once.")]
StopAfter = Annotated[
    int | None,
    number_option(Trials, help="Stop a run after this many trials that do not improve throughput by more than 1 %."),
]
Port = Annotated[int, Option(min=0, max=65535, help="The port to listen on; 0 for any free port.")]


def say(text: str | Text, console: Terminal = out) -> None:
    """Print a line without wrapping it. Terminals wrap lines themselves, and files should contain the complete line."""
    console.print(text, soft_wrap=True)


def say_code(text: str, language: str, html: bool = False) -> None:
    """Print code in one of Pygments' languages, highlighted in a terminal, or as a web page."""
    if not (html or out.is_terminal):
        print(escape_controls(text))
        return
    from rich.syntax import Syntax

    console = Terminal(record=True, file=StringIO(), markup=False, emoji=False) if html else out
    code = Syntax("", language, theme="default" if html else "ansi_dark").highlight(text)
    console.print(code, soft_wrap=True)
    if html:
        print(console.export_html())


def say_json(value: Any) -> None:
    """Print dataclasses, structs and plain values as JSON."""
    print(json.dumps(msgspec.to_builtins(value, enc_hook=str), indent=2))


def say_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right_aligned: Collection[str] = (),
    title: str | Text | None = None,
    box: Box | None = None,
) -> None:
    """Print a table, with some columns ``right_aligned``. Long words are broken only in a terminal."""
    row_cells = [[cell if isinstance(cell, Text) else str(cell) for cell in row] for row in rows]
    table = Table(title=title, title_justify="left", box=box, padding=(0, 1, 0, 0), show_header=any(columns))
    for index, name in enumerate(columns):
        words = [word for row in row_cells for word in str(row[index]).split()]
        longest_word_length = None if out.is_terminal else max(map(len, words), default=None)
        table.add_column(
            name, justify="right" if name in right_aligned else "left", overflow="fold", min_width=longest_word_length
        )
    for row in row_cells:
        table.add_row(*row)
    out.print(table, crop=False)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: object = None,
) -> None:
    """Print a warning. This replaces ``warnings.showwarning``."""
    is_own = category is SearchlabWarning
    text = (
        escape_to_one_line(str(message))
        if is_own
        else warnings.formatwarning(message, category, filename, lineno).rstrip()
    )
    complain("warning:", "yellow", text)


def complain(title: str, style: str, text: str) -> None:
    """Print ``title`` and ``text`` to the standard error."""
    Terminal(stderr=True).print(Text.assemble((title, style), " ", text), soft_wrap=True, highlight=False)


def progress_console(quiet: bool, verbose: bool, console: Terminal = out) -> Terminal | Literal[False]:
    """Return the console for progress, or False to show none. If ``verbose``, trials go to ``console`` instead."""
    if verbose:
        handler = logging.StreamHandler(console.file)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger = logging.getLogger("searchlab")
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
    return False if quiet or verbose else err


@contextmanager
def working(activity: str, quiet: bool = False) -> Iterator[None]:
    """Show the ``activity`` of a command if it takes long: beside a spinner in a terminal, as a line elsewhere."""
    if quiet:
        yield
        return
    with err.status(Text(activity)) if err.is_terminal else notify_if_slow(lambda: say(f"{activity} ...", err)):
        yield


@contextmanager
def interruptible() -> Iterator[None]:
    """On Ctrl-C or SIGTERM, end cleanly and print the command with which to continue."""
    with note_interrupts() as interrupts:
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            if not (interrupts or isinstance(error, KeyboardInterrupt)):
                raise  # otherwise, TVM may have replaced the interrupt
            resume_command = "searchlab " + shlex.join(sys.argv[1:])
            say(Text("\ninterrupted; all measurements are kept. Continue with: ").append(resume_command, style="bold"))
            raise typer.Exit(130) from None


def default_logs_dir(study: Path) -> Path:
    """Return the default directory for the logs of a study file: results/STUDY in the current directory.

    Warns if only the directory of the study file contains results, since the user may have changed directory.
    """
    logs_dir = Path("results") / study.stem
    directory_beside_study = study.parent / logs_dir
    if directory_beside_study.is_dir() and not logs_dir.exists():
        warn(
            f"{logs_dir} does not exist here, but {directory_beside_study} does; specify it if it contains the logs "
            f"of {study}"
        )
    return logs_dir


def format_speed_and_time(best: Best) -> str:
    """Return the throughput and the time of the best program, or what the function returned."""
    unit = best.result.log.unit
    return format_speed(best.gflops, unit) + f", {format_execution_time(best.seconds)}" * (unit == "GFLOPS")


def strip_markup(docstring: str) -> str:
    """Remove reStructuredText markup: ``:class:`~a.b.C``` becomes `C`, and ``.name`` loses its leading dot."""
    text = re.sub(r":[a-z]+(?::[a-z]+)?:`([^`<]*?)\s*(?:<[^`]*>)?`", _format_role, docstring)
    return re.sub(r"::$", ":", text.replace("``", "`"), flags=re.MULTILINE)


def _format_role(role: re.Match[str]) -> str:
    target_name = role[1]
    return f"`{target_name.rpartition('.')[2] if target_name.startswith('~') else target_name.lstrip('.')}`"
