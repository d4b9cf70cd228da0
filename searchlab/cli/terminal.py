"""What the commands share: the terminal, arguments that several commands take, and the end on a signal."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.text import Text

from ..console import Terminal
from ..errors import SearchlabError, SearchlabWarning

out = Terminal(width=None if sys.stdout.isatty() else 100, markup=False, emoji=False)
"""Names and texts from outside are never markup: what is styled here is a :class:`~rich.text.Text`."""

err = Terminal(stderr=True, width=None if sys.stderr.isatty() else 100, markup=False, emoji=False)
"""Where notes and progress go if the standard output is JSON."""

Workload = Annotated[
    str, typer.Argument(help="As `gemm:512x512x512`, `conv2d:1x7x7x512x512x3x3:s1:p1` or `resnet50/conv3.2b`.")
]
SpaceName = Annotated[
    str,
    typer.Option(
        "--space", help="A search space, as `searchlab list spaces` names it; with options: `guided-gemm,blocks=knobs`."
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", help="An option of the plug-in. May be repeated.", metavar="NAME=VALUE"),
]
PolicyOptions = Annotated[
    list[str] | None, typer.Option("--option", help="An option of the policy. May be repeated.", metavar="NAME=VALUE")
]
SpaceOptions = Annotated[
    list[str] | None, typer.Option("--option", help="An option of the space. May be repeated.", metavar="NAME=VALUE")
]
TargetSpec = Annotated[str, typer.Option("--target", help="`native`, `cuda`, an LLVM CPU, or a TVM target as JSON.")]
TargetOrOwn = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="`native`, `cuda`, an LLVM CPU, or a TVM target as JSON [default: native, or that of the table].",
    ),
]
MeasureSpec = Annotated[
    str | None,
    typer.Option("--measure", help='As in a study file, in JSON: `{"kind": "local", "repeat": 5}`.', metavar="JSON"),
]
CostModelName = Annotated[
    str | None,
    typer.Option(
        "--cost-model",
        help="The cost model, for a policy that takes one: `xgboost`, or `xgboost,objective=rank` [default: the "
        "policy's own, or xgboost].",
    ),
]
FeaturesName = Annotated[
    str | None,
    typer.Option(
        "--features",
        help="The features that the cost model sees: `knob`, `autotvm-knob`, `program`, `per-store`, `itervar` or "
        "`curve` [default: the policy's own, or knob].",
    ),
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
    complain("warning:", "yellow", said)


def complain(title: str, style: str, said: str) -> None:
    """Print ``title`` and a text on the standard error."""
    Terminal(stderr=True).print(Text.assemble((title, style), " ", said), soft_wrap=True, highlight=False)


@contextmanager
def interruptible(resume: str) -> Iterator[None]:
    """End cleanly on Ctrl-C and SIGTERM, and say how to go on."""
    from ..run.loop import busy

    doing = ""

    def interrupt(*_: object) -> None:
        nonlocal doing
        doing = busy(least=1.0)  # now: as the exception travels, the policy leaves its method
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except KeyboardInterrupt:
        why = f" ({doing})" if doing else ""
        said = Text(f"\ninterrupted{why}; everything measured is kept. Go on with: ").append(resume, style="bold")
        out.print(said, soft_wrap=True)
        raise typer.Exit(130) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def again() -> str:
    """The command as the user gave it: the one to go on with."""
    return "searchlab " + " ".join(shlex.quote(word) for word in sys.argv[1:])


def json_object(text: str | None, name: str) -> dict[str, Any] | None:
    """The value of the option ``name``, read as JSON."""
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
    """``name=value``. The value is read as JSON (``3``, ``true``, ``[2, 4]``) where it is JSON, else as text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise SearchlabError(f"the option {text!r} is not of the form name=value")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def plugin(text: str, options: Sequence[str] | None = None) -> dict[str, Any]:
    """A plug-in, spelled ``name`` or ``name,option=value,...``, as a study file has it.

    options: more of them, ``option=value`` each. A comma ends no value that is JSON so far: ``arms=["tpe","xgb"]``.
    """
    name, *parts = text.split(",")
    given: list[str] = []
    for part in parts:
        if given and not _is_whole(given[-1]):
            given[-1] += f",{part}"
        else:
            given.append(part)
    return {"name": name, "options": dict(name_and_value(option) for option in [*given, *(options or [])])}


def _is_whole(option: str) -> bool:
    """Whether no bracket or quote is open at the end of ``option``."""
    value = option.partition("=")[2]
    return value.count("[") <= value.count("]") and value.count("{") <= value.count("}") and value.count('"') % 2 == 0


def duration(seconds: float) -> str:
    """A time to wait for, roughly."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def milliseconds(seconds: float) -> str:
    """A time in the unit that reads best."""
    return f"{seconds * 1e3:.3f} ms" if seconds < 1 else f"{seconds:.3f} s"


def as_text(docstring: str) -> str:
    """``docstring`` without the marks of reStructuredText: a role is its last name, and literals are quoted once."""
    text = re.sub(r":[a-z]+(?::[a-z]+)?:`([^`<]*?)\s*(?:<[^`]*>)?`", lambda role: _target(role[1]), docstring)
    return re.sub(r"::$", ":", text.replace("``", "`"), flags=re.MULTILINE)


def _target(name: str) -> str:
    """What a role shows: of ``~a.b.C`` the last part, of ``.registry`` the name without its dots."""
    return f"`{name.rpartition('.')[2] if name.startswith('~') else name.lstrip('.')}`"
