"""The ranking and the contrasts of a report as LaTeX tables, and what to cite in BibTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import combinations
from pathlib import Path

from ..files import write_file
from .columns import Tables
from .contrasts import find_contrast
from .summary import Summary, WorkloadSummary
from .verdict import format_signed
from .words import format_p

TABLES_NAME, REFERENCES_NAME = "tables.tex", "references.bib"
"""The names of the files."""

TITLE, YEAR = "searchlab: which search strategy finds a fast tensor program soonest?", "2026"  # as in CITATION.cff

_NAME = r"(?:van )?[A-Z][\w-]+"
_CITATION = re.compile(
    rf'(?P<authors>{_NAME}(?:, {_NAME})*(?: and {_NAME}| et al\.)?), "(?P<title>[^"]+)" '
    r"\((?P<where>[^()]*(?:\([^()]*\)[^()]*)*?\b(?P<year>(?:19|20)\d\d)\b[^()]*)\)"
)
"""A paper as docstrings cite it: Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018)."""


def write_latex(summary: Summary, out: Path, origins: Mapping[str, tuple[str, str, str]]) -> None:
    """Write :data:`TABLES_NAME` and :data:`REFERENCES_NAME` to the directory ``out``.

    For ``origins``, see :func:`make_bibtex`.
    """
    write_file(out / TABLES_NAME, make_latex_tables(summary).encode(), under=out)
    write_file(out / REFERENCES_NAME, make_bibtex(origins).encode(), under=out)


def make_latex_tables(summary: Summary) -> str:
    """Return the ranking and the contrasts over all workloads, or on the only workload, as ``tabular`` environments."""
    if (main := summary.main) is None:
        return "% There are no tables, because no two strategies share a seed on every workload.\n"
    where = f"across {len(summary.workloads)} workloads"
    if isinstance(main, WorkloadSummary):
        where = f"on {main.workload}"
    ranking = main.make_table(Tables.TERMINAL).texts
    registered_pairs = [(answer.first, answer.second) for answer in summary.answers]
    pairs = combinations([row.strategy for row in main.strategies], 2)
    exploratory_pairs = [pair for pair in pairs if pair not in registered_pairs and pair[::-1] not in registered_pairs]
    contrast_rows = []
    for first, second in [*registered_pairs, *exploratory_pairs]:
        if (contrast := find_contrast(summary.contrasts, first, second)) is None:
            continue
        difference = contrast.difference.on_these.difference
        ends = difference.lower, difference.upper
        interval = "-" if None in ends else f"[{', '.join(format_signed(end) for end in ends if end is not None)}]"
        p = "-" if contrast.adjusted_p is None else format_p(contrast.adjusted_p)
        contrast_kind = "registered" if (first, second) in registered_pairs else "exploratory"
        contrast_rows.append([first, second, format_signed(difference.value), interval, p, contrast_kind])
    headings = ["strategy", "minus", "difference in area", "uncorrected 95 % interval", "corrected p", "contrast"]
    return (
        "% These tables require \\usepackage{booktabs}.\n"
        f"% The ranking {where}, by mean area under the curve\n{_make_tabular(*ranking)}\n"
        f"% The differences in area {where}\n{_make_tabular(headings, contrast_rows)}"
    )


def _make_tabular(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    import pandas as pd

    frame = pd.DataFrame(rows, columns=list(headings))
    is_numeric = [all(re.match(r"[-+<\[\d]", row[index]) for row in rows) for index in range(len(headings))]
    column_format = "".join("r" if is_number else "l" for is_number in is_numeric)
    text = str(frame.to_latex(index=False, escape=True, column_format=column_format))
    text = re.sub(r"(?<=[ \[])-(?=\d)", "$-$", text)  # a minus, not a hyphen
    text = re.sub(r"^\[", "{[}", text, flags=re.MULTILINE)  # not an argument of the line break before it
    return text.replace("<", "$<$").replace(">", "$>$")  # characters that pandas does not escape


def make_bibtex(origins: Mapping[str, tuple[str, str, str]]) -> str:
    """Return BibTeX entries for searchlab and for the algorithms on which policies are based.

    Args:
        origins: By policy, the name and the source of the published algorithm on which it is based, and the docstring
            of the policy's module. The entry is for the first paper that the docstring cites, or else for the
            algorithm itself.
    """
    software = _make_entry(
        "misc", "searchlab", author="{The searchlab authors}", title=TITLE, year=YEAR, version=version("searchlab")
    )
    entries = [
        _make_entry(
            "misc", f"searchlab-{policy}", **(_find_paper(docstring) or {"title": name}), note=f"{name}, {source}"
        )
        for policy, (name, source, docstring) in sorted(origins.items())
    ]
    return "\n".join([software, *entries])


def _find_paper(docstring: str) -> dict[str, str]:
    """Return the BibTeX fields of the first paper that a docstring cites, or an empty dictionary if it cites none."""
    if not (citation := _CITATION.search(" ".join(docstring.split()))):
        return {}
    authors = citation["authors"].replace(" et al.", " and others").replace(", ", " and ")
    return {"author": authors, "title": citation["title"], "howpublished": citation["where"], "year": citation["year"]}


def _make_entry(entry_type: str, key: str, **fields: str) -> str:
    escaped_fields = {name: re.sub(r"([%&#_$])", r"\\\1", value) for name, value in fields.items()}
    lines = [f"  {name} = {{{value}}},\n" for name, value in escaped_fields.items()]
    return f"@{entry_type}{{{key},\n{''.join(lines)}}}\n"
