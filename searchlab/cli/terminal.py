"""What the commands share: the terminal, arguments that several of them take, and ending on a signal."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from ..errors import SearchlabError, SearchlabWarning

out = Console(width=None if sys.stdout.isatty() else 100)

Workload = Annotated[
    str, typer.Argument(help="As `gemm:512x512x512`, `conv2d:1x7x7x512x512x3x3:s1:p1` or `resnet50/conv3.2b`.")
]
SpaceName = Annotated[str, typer.Option("--space", help="A search space, as `searchlab list spaces` gives them.")]
TargetSpec = Annotated[str, typer.Option("--target", help="`native`, `cuda`, an LLVM CPU, or a TVM target as JSON.")]
TargetOrOwn = Annotated[
    str | None, typer.Option("--target", help="As `searchlab space` takes it [default: native, or a table's own].")
]
MeasureSpec = Annotated[
    str | None,
    typer.Option("--measure", help='As in a study file, in JSON: `{"kind": "local", "repeat": 5}`.', metavar="JSON"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: object = None,
) -> None:
    """Print a warning: a replacement for ``warnings.showwarning``."""
    known = category is SearchlabWarning
    said = str(message) if known else warnings.formatwarning(message, category, filename, lineno).rstrip()
    Console(stderr=True).print(f"[yellow]warning:[/] {escape(said)}", soft_wrap=True, highlight=False)


@contextmanager
def interruptible(resume: str) -> Iterator[None]:
    """End cleanly on Ctrl-C and SIGTERM, saying how to go on."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        out.print(f"\ninterrupted; everything measured is kept. Go on with: [bold]{escape(resume)}[/]", soft_wrap=True)
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def again() -> str:
    """The command as it was given, to say how to go on with it."""
    return "searchlab " + " ".join(shlex.quote(word) for word in sys.argv[1:])


def json_object(text: str | None, name: str) -> dict[str, Any] | None:
    """What the option ``name`` was given, as JSON."""
    if text is None:
        return None
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise SearchlabError(f"{name} {text!r} is not valid JSON: {error}") from None
    if not isinstance(given, dict):
        raise SearchlabError(f"{name} must be a JSON object, not {text}")
    return given


def name_and_value(text: str) -> tuple[str, Any]:
    """``name=value``, the value as JSON where it is that, as ``3``, ``true`` or ``[2, 4]``, else the text itself."""
    name, equals, value = text.partition("=")
    if not equals:
        raise SearchlabError(f"the option {text!r} is not of the form name=value")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def milliseconds(seconds: float) -> str:
    """A time as a reader takes it in."""
    return f"{seconds * 1e3:.3f} ms" if seconds < 1 else f"{seconds:.3f} s"
