"""Output of commands, and the handling of signals."""

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
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import typer
from rich.box import Box
from rich.table import Table
from rich.text import Text

from ..console import Terminal, escape_controls, escape_to_one_line, format_execution_time, format_speed, notify_if_slow
from ..errors import SearchlabWarning
from ..foreign_code import note_interrupts

if TYPE_CHECKING:
    from ..log.result import Best

out = Terminal(width=None if sys.stdout.isatty() else 100, markup=False, emoji=False)
"""The standard output. Texts from other sources are never treated as markup; styled text is a ``rich.text.Text``."""

err = Terminal(stderr=True, width=None if sys.stderr.isatty() else 100, markup=False, emoji=False)
"""The standard error, for progress, and for notes if the standard output is JSON."""


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


def format_speed_and_time(best: Best) -> str:
    """Return the throughput and the time of the best program, or what the function returned."""
    unit = best.result.log.unit
    speed_text = format_speed(best.gflops, unit)
    return f"{speed_text}, {format_execution_time(best.seconds)}" if unit == "GFLOPS" else speed_text


def strip_markup(docstring: str) -> str:
    """Remove reStructuredText markup: ``:class:`~a.b.C``` becomes `C`, and ``.name`` loses its leading dot."""
    text = re.sub(r":[a-z]+(?::[a-z]+)?:`([^`<]*?)\s*(?:<[^`]*>)?`", _format_role, docstring)
    return re.sub(r"::$", ":", text.replace("``", "`"), flags=re.MULTILINE)


def _format_role(role: re.Match[str]) -> str:
    target_name = role[1]
    return f"`{target_name.rpartition('.')[2] if target_name.startswith('~') else target_name.lstrip('.')}`"
