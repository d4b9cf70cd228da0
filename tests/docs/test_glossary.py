"""The glossary and the code use the same words: one name for each class, and none of the words that are not names."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from .pages import PAGES, ROOT

GLOSSARY = ROOT / "docs" / "start" / "glossary.md"
SOURCES = ("searchlab", "spaces", "policies", "costmodels", "studies", "tests")
DATA = {"golden", "border", "reference"}  # folders of inputs and recorded results

LONGEST_TEST = 60


@cache
def modules() -> dict[str, ast.Module]:
    paths = (path.relative_to(ROOT) for source in SOURCES for path in sorted((ROOT / source).rglob("*.py")))
    return {path.as_posix(): ast.parse((ROOT / path).read_bytes()) for path in paths if not DATA & {*path.parts}}


def names_in(module: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each name that a module defines, with its line."""
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


def glossary_rows(first: str) -> list[tuple[str, str]]:
    """Return the cells of the table whose first heading is ``first``."""
    _, _, table = GLOSSARY.read_text().partition(f"| {first} |")
    lines = table.partition("\n\n")[0].splitlines()[2:]
    return [(name.strip(), meaning.strip()) for name, meaning in (line.strip("| ").split(" | ", 1) for line in lines)]


def test_no_two_modules_of_the_core_define_the_same_class() -> None:
    defined = defaultdict(set)
    for path, module in modules().items():
        if path.startswith("searchlab/"):
            for node in ast.walk(module):
                if isinstance(node, ast.ClassDef):
                    defined[node.name].add(path)
    assert {name: sorted(paths) for name, paths in defined.items() if len(paths) > 1} == {}


def test_no_name_is_a_word_that_the_glossary_excludes() -> None:
    words = {word for cell, _ in glossary_rows("not used") for word in re.findall(r"`(\w+)`", cell)}
    assert len(words) > 20
    uses = [
        f"{path}:{line}: {name}"
        for path, module in modules().items()
        for name, line in names_in(module)
        if name.strip("_") in words
    ]
    assert uses == []


def test_every_term_of_the_glossary_is_used() -> None:
    terms = [term for cell, _ in glossary_rows("term") for term in re.findall(r"\*\*(.+?)\*\*", cell)]
    assert len(terms) > 40
    pages = [path for path in PAGES if path != GLOSSARY]
    text = "\n".join(path.read_text() for path in [*pages, *(ROOT / path for path in modules())]).lower()
    assert [term for term in terms if not re.search(rf"\b{term.rstrip('s')}", text)] == []


def test_names_of_tests_are_short() -> None:
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    names = [name for path in paths for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)]
    assert len(names) > 1000
    assert [name for name in names if len(name) > LONGEST_TEST] == []
