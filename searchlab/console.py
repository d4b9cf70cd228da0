"""Terminal output in which control characters from untrusted text are escaped, and texts about time and speed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

from rich.console import Console
from rich.segment import Segment

from .units import RUNS, VALUES, value_of_cost

_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters (C0, DEL and C1) except tab and newline, and Unicode's bidi controls, which reorder text."""


def escape_controls(text: str) -> str:
    r"""Escape control characters, for example as ``\x1b``, so that text from a log cannot control the terminal."""
    return _CONTROL_CHARACTERS.sub(lambda match: ascii(match[0])[1:-1], text)


def escape_to_one_line(text: str) -> str:
    """Escape control characters, tabs and newlines in a name."""
    return escape_controls(text).replace("\n", "\\n").replace("\t", "\\t")


def format_execution_time(seconds: float) -> str:
    """Return a duration as text, in milliseconds if it is less than a second."""
    if seconds >= 1:
        return f"{seconds:.3f} s"
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-4 else f"{seconds * 1e3:.3g} ms"


def format_duration(seconds: float) -> str:
    """Format an approximate duration in a suitable unit."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def format_speed(throughput: float, unit: str, number_format: str = ".1f") -> str:
    """Return a throughput as text or, for a function, the time or value that it returned."""
    if unit == RUNS:
        return format_execution_time(1 / throughput)
    if unit in VALUES:
        return f"value {value_of_cost(1 / throughput, unit):.6g}"
    return f"{throughput:{number_format}} {unit}"


PATIENCE_SECONDS = 2.0
"""The number of seconds after which users are told what takes so long, where output is printed in lines."""


@contextmanager
def notify_if_slow(notify: Callable[[], object]) -> Iterator[None]:
    """Return a context manager that calls ``notify`` in another thread if its block takes longer than the patience.

    The patience is :data:`PATIENCE_SECONDS`.
    """
    timer = Timer(PATIENCE_SECONDS, notify)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Terminal(Console):
    """A console that applies :func:`escape_controls` to all its output, including tables, progress bars and errors."""

    def render(self, *args: Any, **kwargs: Any) -> Iterable[Segment]:
        for segment in super().render(*args, **kwargs):
            yield segment if segment.control else Segment(escape_controls(segment.text), segment.style)
