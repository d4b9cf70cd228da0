"""The code blocks of README, CONTRIBUTING and the pages of ``docs``.

A comment before a block decides how it is tested: ``<!-- test: file NAME -->`` writes it to a file, ``<!-- test: run
-->`` runs the commands of a console block, ``<!-- test: fragment -->`` completes a study file, ``<!-- test: keys REASON
-->`` reads one without planning it, ``<!-- test: output WORD... -->`` looks for each line in what the commands before
have printed, where each WORD may differ, and ``<!-- test: skip REASON -->`` skips a block.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = ("_build", "generated")  # folders of docs that are made from others
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(
        path for path in (ROOT / "docs").rglob("*.md") if path.relative_to(ROOT / "docs").parts[0] not in GENERATED
    ),
]


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    page: Path
    line: int
    language: str
    text: str
    test: str  # "run", "file", "fragment", "keys", "output", "skip", or empty
    argument: str  # of the test: the name of the file, the words of an output that may differ, or the reason

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command after ``$``; lines that end with a backslash go on."""
        joined = self.text.replace("\\\n", " ")
        lines = [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]
        return [shlex.split(line, comments=True) for line in lines]


_BLOCK = re.compile(
    r"(?:^<!-- test: (?P<test>\w+) ?(?P<argument>[^\n]*?) -->\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        yield Block(page, line, match["language"], match["text"], match["test"] or "", match["argument"] or "")


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
