"""What a notebook shows of an object: text and tables, in the notebook's own colours.

All text is escaped, so nothing in a log is taken for markup. There is no script, and nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_LEFT = ' style="text-align: left"'


def table(columns: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table with a head, and a row for each of ``rows``; the first column is text, the others are numbers."""
    head = "".join(f"<th{_LEFT if not place else ''}>{_text(one)}</th>" for place, one in enumerate(columns))
    body = "".join(
        "<tr>"
        + "".join(f"<td{_LEFT if not place else ''}>{_text(one)}</td>" for place, one in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f"<table>{_caption(caption)}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def facts(about: Mapping[str, object], caption: str = "") -> str:
    """A table of names and what each is."""
    rows = "".join(f"<tr><th{_LEFT}>{_text(k)}</th><td{_LEFT}>{_text(v)}</td></tr>" for k, v in about.items())
    return f"<table>{_caption(caption)}<tbody>{rows}</tbody></table>"


def paragraphs(sentences: Iterable[object]) -> str:
    return "".join(f"<p>{_text(one)}</p>" for one in sentences)


def _caption(text: str) -> str:
    return f"<caption{_LEFT}>{_text(text)}</caption>" if text else ""


def _text(value: object) -> str:
    return escape(str(value))
