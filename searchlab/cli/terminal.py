"""Utilities that commands share: terminal output, common arguments, and the handling of signals."""

from __future__ import annotations

import json
import logging
import re
import shlex
import signal
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

from ..console import Terminal, milliseconds, one_line, plain, speed, unless_quick
from ..errors import SearchlabError, SearchlabWarning, warn
from ..options import Batch, find_numeric_type

if TYPE_CHECKING:
    from ..log.result import Best

out = Terminal(width=None if sys.stdout.isatty() else 100, markup=False, emoji=False)
"""The standard output. Texts from other sources are never treated as markup; styled text is a ``rich.text.Text``."""

err = Terminal(stderr=True, width=None if sys.stderr.isatty() else 100, markup=False, emoji=False)
"""The standard error, for progress, and for notes if the standard output is JSON."""

StudyFile = Annotated[Path, Argument(help="The study file (TOML).", metavar="STUDY.toml")]
Logs = Annotated[list[Path], Argument(help="Logs, or directories of logs.", metavar="LOG|DIR...")]
Workload = Annotated[
    str,
    Argument(
        help="The workload: `gemm:512x512x512`, `conv2d:1x7x7x512x512x3x3:s1:p1`, `resnet50/conv3.2b`, ...",
        metavar="WORKLOAD",
    ),
]
SPACE = (
    "A space from `searchlab list spaces`; with options: `guided-gemm,blocks=knobs`. The values of knobs, as in "
    '`{"x": [1, 2]}`, stand for the space `parameters`'
)
SpaceName = Annotated[str, Option("--space", help=f"{SPACE}.")]
NATIVE = "`native`, `cuda`, the name of an LLVM CPU, or a TVM target as JSON"
TargetSpec = Annotated[str, Option("--target", help=f"The target: {NATIVE}.")]
TargetOrOwn = Annotated[str | None, Option("--target", help=f"The target: {NATIVE} [default: native, or the table's].")]
MeasureSpec = Annotated[
    str | None,
    Option(
        "--measure",
        help='The `measure` key of a study file, as JSON: `{"repeat": 5}`.',
        metavar="JSON",
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
CostModelName = Annotated[
    str | None,
    Option(
        "--cost-model",
        help="The cost model, if the policy uses one; with options: `xgboost,objective=rank` [default: the policy's "
        "own, or xgboost].",
    ),
]
FEATURES = "`knob`, `autotvm-knob`, `program`, `per-store`, `itervar` or `curve`"
FeaturesName = Annotated[
    str | None,
    Option("--features", help=f"The cost model's features: {FEATURES} [default: the policy's own, or knob]."),
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


def _option_of(kind: str) -> Any:
    return Option("--option", help=f"An option of the {kind}. May be repeated.", metavar="NAME=VALUE")


Options = Annotated[list[str] | None, _option_of("plug-in")]
PolicyOptions = Annotated[list[str] | None, _option_of("policy")]
SpaceOptions = Annotated[list[str] | None, _option_of("space")]


def number(kind: Any, *names: str, **settings: Any) -> Any:
    """Return an ``Option`` with the limits of ``kind``, one of the ranges in :mod:`searchlab.options`."""
    number_type = find_numeric_type(kind)
    assert number_type is not None
    return Option(*names, min=number_type.ge, max=number_type.le, **settings)


BatchSize = Annotated[int, number(Batch, help="The number of configs that the policy proposes at once.")]
Port = Annotated[int, Option(min=0, max=65535, help="The port to listen on; 0 for any free port.")]


def say(text: str | Text, console: Terminal = out) -> None:
    """Print a line without wrapping it. Terminals wrap lines themselves, and files should contain the complete line."""
    console.print(text, soft_wrap=True)


def say_code(text: str, language: str, html: bool = False) -> None:
    """Print code in one of Pygments' languages, highlighted in a terminal, or as a web page."""
    if not (html or out.is_terminal):
        print(plain(text))
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
    right: Collection[str] = (),
    title: str | Text | None = None,
    box: Box | None = None,
) -> None:
    """Print a table. The columns in ``right`` are right-aligned. Long words are broken only in a terminal."""
    cells = [[cell if isinstance(cell, Text) else str(cell) for cell in row] for row in rows]
    table = Table(title=title, title_justify="left", box=box, padding=(0, 1, 0, 0), show_header=any(columns))
    for index, name in enumerate(columns):
        words = [word for row in cells for word in str(row[index]).split()]
        longest = None if out.is_terminal else max(map(len, words), default=None)
        table.add_column(name, justify="right" if name in right else "left", overflow="fold", min_width=longest)
    for row in cells:
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
    text = one_line(str(message)) if is_own else warnings.formatwarning(message, category, filename, lineno).rstrip()
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
def working(on: str) -> Iterator[None]:
    """Show what the command is doing if it takes long: beside a spinner in a terminal, as a line elsewhere."""
    is_line = not err.is_terminal
    with unless_quick(lambda: say(f"{on} ...", err)) if is_line else err.status(Text(on)):
        yield


@contextmanager
def interruptible() -> Iterator[None]:
    """On Ctrl-C or SIGTERM, end cleanly and print the command with which to continue."""
    is_interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        raise KeyboardInterrupt

    previous_handlers = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except (KeyboardInterrupt, Exception) as error:
        if not (is_interrupted or isinstance(error, KeyboardInterrupt)):
            raise  # otherwise, TVM may have replaced the interrupt
        command = "searchlab " + shlex.join(sys.argv[1:])
        say(Text("\ninterrupted; all measurements are kept. Continue with: ").append(command, style="bold"))
        raise typer.Exit(130) from None
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def json_object(text: str | None, name: str) -> dict[str, Any] | None:
    """Parse the value of the option ``name`` as a JSON object."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # invalid JSON, too many digits, or excessive nesting
        raise SearchlabError(f"{name} {text!r:.200} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise SearchlabError(f"{name} must be a JSON object, not {text}")
    return value


def name_and_value(text: str) -> tuple[str, Any]:
    """Split ``name=value``. The value is parsed as JSON (``3``, ``true``, ``[2, 4]``) or else as text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise SearchlabError(f"the option {text!r} does not have the form name=value")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):  # invalid JSON, too many digits, or excessive nesting
        return name, value


def plugin(text: str, options: Sequence[str] | None = None) -> dict[str, Any]:
    """Convert ``name`` or ``name,option=value,...``, and further ``options``, to an entry as in a study file.

    A comma within brackets or quotes does not end a value, as in ``arms=["tpe","xgb"]``. A mapping from knobs to values
    in JSON stands for the space ``parameters``.
    """
    if text.startswith("{"):
        text = f"parameters,parameters={text}"
    name, *parts = text.split(",")
    pairs: list[str] = []
    for part in parts:
        if pairs and not _is_complete(pairs[-1]):
            pairs[-1] += f",{part}"
        else:
            pairs.append(part)
    return {"name": name, "options": dict(name_and_value(option) for option in [*pairs, *(options or [])])}


def logs_of(study: Path) -> Path:
    """Return the default directory for the logs of a study file: results/STUDY in the current directory.

    Warns if only the directory of the study file contains results, since the user may have changed directory.
    """
    directory = Path("results") / study.stem
    beside = study.parent / directory
    if beside.is_dir() and not directory.exists():
        warn(f"{directory} does not exist here, but {beside} does; specify it if it contains the logs of {study}")
    return directory


def _is_complete(option: str) -> bool:
    """Return whether no bracket or quote is open at the end of ``option``."""
    value = option.partition("=")[2]
    return value.count("[") <= value.count("]") and value.count("{") <= value.count("}") and value.count('"') % 2 == 0


def speed_and_time(best: Best) -> str:
    """Return the throughput and the time of the best program, or what the function returned."""
    unit = best.result.log.unit
    return speed(best.gflops, unit) + f", {milliseconds(best.seconds)}" * (unit == "GFLOPS")


def as_text(docstring: str) -> str:
    """Remove reStructuredText markup: ``:class:`~a.b.C``` becomes `C`, and ``.name`` loses its leading dot."""
    text = re.sub(r":[a-z]+(?::[a-z]+)?:`([^`<]*?)\s*(?:<[^`]*>)?`", _target, docstring)
    return re.sub(r"::$", ":", text.replace("``", "`"), flags=re.MULTILINE)


def _target(role: re.Match[str]) -> str:
    name = role[1]
    return f"`{name.rpartition('.')[2] if name.startswith('~') else name.lstrip('.')}`"
