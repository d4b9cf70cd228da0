"""HTML that notebooks show for objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_LEFT_ALIGNED = ' style="text-align: left"'


def html_table(columns: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return an HTML table, with all text escaped. The first column is aligned as text, the others as numbers."""

    def make_row(tag: str, row_values: Sequence[object]) -> str:
        alignments = [_LEFT_ALIGNED, *[""] * (len(row_values) - 1)]
        cells = zip(alignments, row_values, strict=False)
        return f"<tr>{''.join(f'<{tag}{align}>{escape(str(value))}</{tag}>' for align, value in cells)}</tr>"

    body_html = "".join(make_row("td", row_values) for row_values in rows)
    return f"<table>{_make_caption(caption)}<thead>{make_row('th', columns)}</thead><tbody>{body_html}</tbody></table>"


def html_definitions(values_by_name: Mapping[str, object], caption: str = "") -> str:
    """Return an HTML table of names and values."""
    rows_html = "".join(
        f"<tr><th{_LEFT_ALIGNED}>{escape(name)}</th><td{_LEFT_ALIGNED}>{escape(str(value))}</td></tr>"
        for name, value in values_by_name.items()
    )
    return f"<table>{_make_caption(caption)}<tbody>{rows_html}</tbody></table>"


def html_paragraphs(sentences: Iterable[object]) -> str:
    return "".join(f"<p>{escape(str(sentence))}</p>" for sentence in sentences)


def _make_caption(text: str) -> str:
    return f"<caption{_LEFT_ALIGNED}>{escape(text)}</caption>" if text else ""
