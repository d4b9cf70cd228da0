"""The terminal: text from outside is shown, and never obeyed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but tab and newline, and those that reorder text: C0, DEL, C1, and Unicode's bidi controls."""


def plain(text: str) -> str:
    r"""``text`` with its control characters spelled, as ``\x1b``: a log may hold sequences that a terminal obeys."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """``text``, a name, as :func:`plain` gives it, without tabs and newlines."""
    return plain(text).replace("\n", "\\n").replace("\t", "\\t")


class Terminal(Console):
    """A console that shows whatever it is given as :func:`plain` does, in tables, bars and errors too."""

    def render(self, *args: Any, **given: Any) -> Iterable[Segment]:
        for segment in super().render(*args, **given):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)
