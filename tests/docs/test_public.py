"""Examples of the public names, links, and the facts that documents repeat from the code."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import searchlab
from tests.test_layers import LAYERS

from .pages import PAGES, ROOT

OTHER_PAGES = [ROOT / "CHANGELOG.md", *(ROOT / "studies").glob("*.md"), *(ROOT / "studies").glob("*/*.md")]


def test_every_public_name_has_an_example_and_all_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of ``tune`` comes first: it writes the log that others load."""
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(recurse=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    names = ["tune", *(name for name in searchlab.__all__ if name not in ("tune", "__version__"))]
    examples = {name: finder.find(inspect.unwrap(getattr(searchlab, name)), name) for name in names}
    assert not [name for name, tests in examples.items() if not tests or not tests[0].examples]
    text: list[str] = []
    for tests in examples.values():
        for test in tests:
            runner.run(test, out=text.append)
    assert not runner.failures, "".join(text)


def test_every_public_name_is_on_the_page_of_the_api() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
    documented = set(re.findall(r"^\.\. auto\w+:: searchlab\.(\w+)$", page, re.MULTILINE))
    assert documented >= set(searchlab.__all__) - {"__version__"}


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_the_targets_of_links_exist(page: Path) -> None:
    """Files, and headings of the pages themselves; web pages are not fetched."""
    text = re.sub(r"^```\w*\n.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor and file.suffix == ".md" and "generated/" not in file.read_text("utf-8"):
            assert anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pictures_have_alternative_texts(page: Path) -> None:
    text = page.read_text("utf-8")
    alts = re.findall(r"!\[(.*?)\]\(", text) + re.findall(r"^```\{image\}.*\n(?::alt: (.*))?", text, re.MULTILINE)
    assert all(len(alt) > 40 for alt in alts), alts


def test_the_modules_on_the_diagram_of_a_trial_exist() -> None:
    diagram = (ROOT / "docs" / "design" / "trial.svg").read_text("utf-8")
    names = re.findall(r'class="code"[^>]*>([a-z_.]+)<', diagram)
    assert len(names) == 8
    for name in names:
        assert find_spec(f"searchlab.{name}"), name


def test_the_page_of_the_layers_has_those_of_the_code() -> None:
    page = (ROOT / "docs" / "design" / "layers.md").read_text("utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page[page.index("| layer,") : page.index("Three rules")], re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == LAYERS[::-1]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and MyST make them, and of its labels."""
    text = re.sub(r"^```\w*\n.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"^\((\S+)\)=$", text, re.MULTILINE))


def test_the_entry_points_of_the_guides_are_searchlabs() -> None:
    guides = "".join(path.read_text("utf-8") for path in (ROOT / "docs" / "extend").glob("*.md"))
    groups = set(re.findall(r'"(searchlab\.\w+)"\]', guides))
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert groups and groups <= set(declared)


def test_the_results_hold_the_tables_that_the_code_declares() -> None:
    """What each policy is, and how it agrees with its original: printed from the policies and from recorded figures."""
    printed = subprocess.run(
        [sys.executable, "studies/fidelity/agreement.py", "--origins"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    results = (ROOT / "studies" / "RESULTS.md").read_text()
    for table in printed.strip().split("\n\n"):
        assert table in results, "print it again: python studies/fidelity/agreement.py --origins"
