"""Terminal output in which control characters from untrusted text are escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters (C0, DEL and C1) except tab and newline, and Unicode's bidi controls, which reorder text."""


def plain(text: str) -> str:
    r"""Escape control characters, for example as ``\x1b``, so that text from a log cannot control the terminal."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def one_line(text: str) -> str:
    """Escape control characters, tabs and newlines in a name."""
    return plain(text).replace("\n", "\\n").replace("\t", "\\t")


class Terminal(Console):
    """A console that applies :func:`plain` to all its output, including tables, progress bars and errors."""

    def render(self, *args: Any, **kwargs: Any) -> Iterable[Segment]:
        for segment in super().render(*args, **kwargs):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)
