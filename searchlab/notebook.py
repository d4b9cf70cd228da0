"""HTML that notebooks show for objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_LEFT = ' style="text-align: left"'


def html_table(columns: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return an HTML table, with all text escaped. The first column is aligned as text, the others as numbers."""

    def row(tag: str, values: Sequence[object]) -> str:
        cells = (f"<{tag}{'' if column else _LEFT}>{escape(str(value))}</{tag}>" for column, value in enumerate(values))
        return f"<tr>{''.join(cells)}</tr>"

    body = "".join(row("td", values) for values in rows)
    return f"<table>{_caption(caption)}<thead>{row('th', columns)}</thead><tbody>{body}</tbody></table>"


def html_facts(facts: Mapping[str, object], caption: str = "") -> str:
    """Return an HTML table of names and values."""
    rows = "".join(
        f"<tr><th{_LEFT}>{escape(name)}</th><td{_LEFT}>{escape(str(value))}</td></tr>" for name, value in facts.items()
    )
    return f"<table>{_caption(caption)}<tbody>{rows}</tbody></table>"


def html_paragraphs(sentences: Iterable[object]) -> str:
    return "".join(f"<p>{escape(str(sentence))}</p>" for sentence in sentences)


def _caption(text: str) -> str:
    return f"<caption{_LEFT}>{escape(text)}</caption>" if text else ""
